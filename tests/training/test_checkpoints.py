"""A training's state comes back bit by bit, whatever was cut off; what is damaged is named, with the cure."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from gated_domains.data.errors import DataError
from gated_domains.layer import GatedDomainUnits
from gated_domains.training.callbacks import checkpoint as checkpoints
from gated_domains.training.callbacks.checkpoint import (
    STATE,
    TENSORS,
    load_checkpoint,
    newest_checkpoint,
    pack,
    rng_state,
    save_checkpoint,
    set_rng_state,
    unpack,
)

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.bool, torch.complex64, torch.complex128),
]


def same(one: Any, other: Any) -> bool:
    """Alike in type and in every bit, all the way down."""
    if isinstance(one, Tensor):
        alike = isinstance(other, Tensor) and (one.dtype, one.shape) == (other.dtype, other.shape)
        return alike and bits(one) == bits(other)
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        alike = type(other) is (tuple if isinstance(one, tuple) else list) and len(one) == len(other)
        return alike and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float):
        return type(other) is float and repr(one) == repr(other)
    return type(one) is type(other) and one == other


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def round_trip(folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    return load_checkpoint(save_checkpoint(folder, 1, state))


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(),
        GatedDomainUnits(64, 2, num_bases=3),
    ).to(memory_format=torch.channels_last)


OPTIMISERS = {
    "adam": lambda parameters: torch.optim.Adam(parameters, amsgrad=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=torch.tensor(0.01)),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "groups": lambda parameters: torch.optim.Adam([{"params": [p], "lr": 0.1 / 3} for p in parameters]),
}


def train(model: nn.Module, optimiser: torch.optim.Optimizer, steps: int) -> None:
    model.train()
    for _ in range(steps):
        loss = model(torch.randn(5, 3, 6, 6)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_training_that_was_cut_ends_where_the_uncut_one_does(name, tmp_path):
    model = network()
    optimiser = OPTIMISERS[name](model.parameters())
    train(model, optimiser, 3)
    state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "random": rng_state("cpu")}
    path = save_checkpoint(tmp_path, 3, state)
    train(model, optimiser, 3)

    torch.manual_seed(99)
    again = network()
    resumed = OPTIMISERS[name](again.parameters())
    state = load_checkpoint(path)
    again.load_state_dict(state["model"])
    resumed.load_state_dict(state["optimiser"])
    set_rng_state(state["random"], "cpu")
    train(again, resumed, 3)
    assert same(dict(again.state_dict()), dict(model.state_dict()))
    assert same(resumed.state_dict(), optimiser.state_dict())


def test_saving_takes_nothing_from_the_random_numbers_and_keeps_a_copy(tmp_path):
    before, weights = torch.get_rng_state(), torch.ones(3)
    tensors, skeleton = pack({"weights": weights})
    save_checkpoint(tmp_path, 1, {"weights": weights})
    weights.zero_()
    assert unpack(tensors, skeleton)["weights"].tolist() == [1, 1, 1]
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_every_type_come_back_as_they_were(dtype, tmp_path):
    values = torch.arange(24).to(dtype).reshape(2, 3, 4)
    state = {
        "plain": values,
        "scalar": values[1, 1, 1],
        "empty": values[:0],
        "turned": values.permute(2, 0, 1),
        "every other": values[:, :, ::2],
        "repeated": values[0, 0].expand(3, 4),
    }
    assert same(state, round_trip(tmp_path, state))


def test_numbers_that_are_none_keep_their_bits(tmp_path):
    payload = torch.tensor([0x7FC00001, 0x7F800000, -0x800000, -0x80000000], dtype=torch.int32).view(torch.float32)
    state = {"payload": payload, "conjugate": torch.tensor([1 + 2j]).conj()}
    loaded = round_trip(tmp_path, state)
    assert bits(loaded["payload"]) == bits(payload)
    assert loaded["conjugate"].tolist() == [1 - 2j]


def test_shared_memory_and_channels_last_are_no_hindrance(tmp_path):
    weight = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    state = {"one": weight, "tied": weight, "part": weight[0], "parameter": nn.Parameter(weight)}
    loaded = round_trip(tmp_path, state)
    assert same(state, loaded)
    assert not any(tensor.requires_grad for tensor in loaded.values())


names = st.text(max_size=5) | st.sampled_from(["a", "a/b", "__metadata__", "a#2", "\ud800", "tensor", "dict", "tuple"])
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(DTYPES).map(lambda dtype: torch.tensor(1).to(dtype))
    | st.lists(st.floats(width=32), max_size=3).map(torch.tensor)
)
states = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(names | st.integers(-2, 2), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(states)
def test_any_nested_state_comes_back(state):
    tensors, skeleton = pack(state)
    assert same(state, unpack(tensors, json.loads(json.dumps(skeleton, allow_nan=False))))


@given(st.dictionaries(names, states, max_size=3))
def test_any_nested_state_comes_back_from_disk(state):
    folder = Path(os.environ["GATED_DOMAINS_CACHE"]) / "checkpoints"
    assert same(state, round_trip(folder, state))


def test_names_that_would_meet_do_not(tmp_path):
    one, two, three = torch.tensor(1), torch.tensor(2), torch.tensor(3)
    state = {"a/b": one, "a": {"b": two, 1: two, "1": three}, "a/b#2": three}
    assert same(state, round_trip(tmp_path, state))


def test_kinds_of_dicts_tuples_and_floats_that_torch_and_numpy_have_are_kept_by_value(tmp_path):
    state = {"order": OrderedDict(b=1, a=2), "size": torch.zeros(2, 3).shape, "score": np.float64(0.1)}
    assert same(round_trip(tmp_path, state), {"order": {"b": 1, "a": 2}, "size": (2, 3), "score": 0.1})


class Pair(NamedTuple):
    one: int
    other: int


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (object(), "object"),
        ({1, 2}, r"\{1, 2\}"),
        (np.arange(2), "array"),
        (np.int64(3), "3"),
        (Pair(1, 2), "Pair"),
        ({True: 1}, "True"),
        ({(1, 2): 3}, r"\(1, 2\)"),
        (torch.eye(2).to_sparse(), "sparse"),
        (torch.empty(2, device="meta"), "meta"),
    ],
)
def test_what_would_not_come_back_is_refused_with_its_place(value, word, tmp_path):
    with pytest.raises(TypeError, match=rf"{word}.* in state/model/1"):
        save_checkpoint(tmp_path, 1, {"model": [0, value]})
    assert list(tmp_path.iterdir()) == []


def test_what_lay_on_the_cpu_stays_there_and_the_rest_goes_to_the_device():
    tensors, skeleton = pack({"step": torch.tensor(3.0), "weight": torch.ones(2)})
    skeleton["dict"][1][1]["away"] = True  # as if it had been on a GPU
    state = unpack(tensors, skeleton, device="meta")
    assert (state["step"].device.type, state["weight"].device.type) == ("cpu", "meta")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_keeps_its_weights_and_random_numbers(tmp_path):
    model = nn.Linear(3, 2).cuda()
    optimiser = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 3, device="cuda")).sum().backward()
    optimiser.step()
    path = save_checkpoint(tmp_path, 1, {"optimiser": optimiser.state_dict(), "random": rng_state("cuda")})
    expected = torch.randn(3, device="cuda")
    state = load_checkpoint(path, device="cuda")
    set_rng_state(state["random"], "cuda")
    assert torch.equal(expected, torch.randn(3, device="cuda"))
    assert state["optimiser"]["state"][0]["step"].device.type == "cpu"
    assert state["optimiser"]["state"][0]["exp_avg"].device.type == "cuda"


def test_random_numbers_go_on_where_they_stood():
    state = rng_state("cpu")
    expected = torch.randn(4)
    set_rng_state(state, "cpu")
    assert torch.equal(expected, torch.randn(4))
    assert set(state) == {"cpu"}


# The folder


def test_a_new_checkpoint_takes_the_place_of_older_ones(tmp_path):
    assert newest_checkpoint(tmp_path / "nowhere") is None
    assert newest_checkpoint(tmp_path) is None
    for step in (1, 20, 3_000_000_000):
        path = save_checkpoint(tmp_path / "run", step, {"step": step})
        assert newest_checkpoint(tmp_path / "run") == path
        assert list((tmp_path / "run").iterdir()) == [path]
        assert load_checkpoint(path) == {"step": step}
    assert sorted(file.name for file in path.iterdir()) == [STATE, TENSORS]


def test_later_steps_count_as_newer_whatever_their_digits(tmp_path):
    save_checkpoint(tmp_path, 3_000_000_000, {})
    save_checkpoint(tmp_path, 999_999_999, {})
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-3000000000"


def test_other_files_of_the_run_are_left_alone(tmp_path):
    strangers = [tmp_path / name for name in ("run.json", "checkpoint-best", "checkpoint-000000001.txt", "model")]
    for stranger in strangers:
        stranger.mkdir()
    (tmp_path / "checkpoint-000000007").write_text("a file, not a folder")
    save_checkpoint(tmp_path, 5, {})
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-000000005"
    assert all(stranger.exists() for stranger in strangers)


def test_a_leftover_draft_is_ignored_and_cleaned_up_with_the_next_checkpoint(tmp_path):
    path = save_checkpoint(tmp_path, 1, {"step": 1})
    draft = tmp_path / ".checkpoint-123-abcdef01"
    shutil.copytree(path, draft)
    assert newest_checkpoint(tmp_path) == path
    path = save_checkpoint(tmp_path, 2, {"step": 2})
    assert list(tmp_path.iterdir()) == [path]


class CutError(Exception):
    """The power went."""


class Power:
    """Runs out at the n-th use of the disk; ``uses`` counts them."""

    def __init__(self, last: float) -> None:
        self.last, self.uses = last, 0

    def use(self) -> None:
        self.uses += 1
        if self.uses >= self.last:
            raise CutError


def until(power: Power, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every use of the disk while saving, one by one, with half a file written where the power goes meanwhile."""

    def limited(place: Any, name: str) -> None:
        original = getattr(place, name)

        def use(*arguments: Any, **options: Any) -> Any:
            power.use()
            return original(*arguments, **options)

        monkeypatch.setattr(place, name, use)

    write = checkpoints._write

    def written(path: Path, content: bytes) -> None:
        path.write_bytes(content[: len(content) // 2])
        power.use()
        write(path, content)

    limited(checkpoints.os, "replace")
    limited(checkpoints.os, "fsync")
    limited(checkpoints.os, "open")
    limited(checkpoints, "bytes_of_tensors")
    monkeypatch.setattr(checkpoints, "_write", written)
    # Without power nobody tidies up either.
    remove = shutil.rmtree

    def removed(path: Path, **options: Any) -> None:
        if power.uses < power.last:
            power.use()
            remove(path, **options)

    monkeypatch.setattr(checkpoints.shutil, "rmtree", removed)


@pytest.mark.parametrize("step", [4, 5], ids=["the same step again", "a later step"])
def test_wherever_saving_is_cut_the_old_or_the_new_state_can_be_loaded(step, tmp_path):
    seen, last = set(), 0
    while True:
        last += 1
        folder = tmp_path / str(last)
        save_checkpoint(folder, 4, {"weights": torch.zeros(100)})
        with pytest.MonkeyPatch.context() as patch:
            power = Power(last)
            until(power, patch)
            try:
                save_checkpoint(folder, step, {"weights": torch.ones(100)})
                break
            except CutError:
                pass
        weights = load_checkpoint(newest_checkpoint(folder))["weights"]
        assert weights.tolist() in ([0] * 100, [1] * 100)
        seen.add(weights[0].item())
        path = save_checkpoint(folder, 6, {})
        assert list(folder.iterdir()) == [path]  # and nothing is left of the accident
    assert last > 10
    assert seen == {0.0, 1.0}


def test_a_save_that_fails_leaves_no_draft_and_names_the_checkpoint(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, 1, {"step": 1})

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints.os, "fsync", full)
    with pytest.raises(OSError, match="No space") as raised:
        save_checkpoint(tmp_path, 2, {"step": 2})
    assert raised.value.filename == str(tmp_path / "checkpoint-000000002")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000000001"]


# Damage


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    state = {"weights": torch.arange(50.0), "epoch": 31, "best": math.inf, "rate": 0.1}
    return save_checkpoint(tmp_path, 7, state)


def fails(path: Path, name: str, word: str) -> None:
    with pytest.raises(DataError, match=word) as raised:
        load_checkpoint(path)
    assert str(path / name) in str(raised.value)
    assert f"delete the folder {path} to start this training again, nothing else is lost" in str(raised.value)


@pytest.mark.parametrize("name", [STATE, TENSORS])
def test_a_missing_file_is_named(saved, name):
    (saved / name).unlink()
    fails(saved, name, "is missing")
    (saved / name).mkdir()
    fails(saved, name, "is missing")


def test_a_checkpoint_that_is_not_there_is_named(tmp_path):
    fails(tmp_path / "checkpoint-000000009", STATE, "is missing")


@pytest.mark.parametrize("name", [STATE, TENSORS])
def test_no_part_of_a_file_is_taken_for_the_whole(saved, name):
    whole = (saved / name).read_bytes()
    for end in range(0, len(whole), 13):
        (saved / name).write_bytes(whole[:end])
        fails(saved, name, f"holds {end:,} bytes of {len(whole):,}" if name == TENSORS else "is not JSON")
    (saved / name).write_bytes(whole + b"x")
    fails(saved, name, "bytes of" if name == TENSORS else "is not JSON")


def test_a_changed_bit_of_the_tensors_is_noticed_wherever_it_is(saved):
    whole = (saved / TENSORS).read_bytes()
    for place in range(0, len(whole), 7):
        (saved / TENSORS).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        fails(saved, TENSORS, "SHA-256 differs")


@pytest.mark.parametrize(
    ("old", "new"),
    [(" 31", " 32"), ("0.1", "0.2"), ('"inf"', '"nan"'), ('"step": 7', '"step": 8')],
)
def test_a_changed_number_of_the_state_is_noticed(saved, old, new):
    text = (saved / STATE).read_text()
    assert text.count(old) == 1
    (saved / STATE).write_text(text.replace(old, new))
    fails(saved, STATE, "SHA-256 differs")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[1, 2]", "is not the state of a training"),
        ("{}", "is not the state of a training"),
        ("null", "is not the state of a training"),
        ('{"format": 1}', "has format 1, this version reads 2"),
        ('{"format": "x", "sha256": ""}', "has format 'x'"),
        ('{"format": 2}', "SHA-256 differs"),
        ("[" * 100_000, "is not JSON"),
        ("\x00\x01", "is not JSON"),
    ],
)
def test_the_state_of_something_else_is_refused(saved, text, word):
    (saved / STATE).write_text(text)
    fails(saved, STATE, word)


def test_bytes_that_are_no_text_are_refused(saved):
    (saved / STATE).write_bytes(b"\xff\xfe\xff")
    fails(saved, STATE, "is not JSON")


def test_tensors_that_are_none_are_refused_even_with_the_right_sum(saved):
    content = b"not tensors at all"
    (saved / TENSORS).write_bytes(content)
    body = json.loads((saved / STATE).read_text())
    del body["sha256"]
    body["tensors"] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (saved / STATE).write_text(json.dumps({**body, "sha256": checkpoints._digest(body)}))
    fails(saved, TENSORS, "cannot be read")


def test_nothing_on_disk_is_a_pickle(saved):
    for file in saved.iterdir():
        assert not file.read_bytes().startswith((b"PK", b"\x80"))
    json.loads((saved / STATE).read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
