"""Features are those of a loop over samples; the backbone runs once; no half-written or foreign file is believed."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gated_domains.backbones.backbone import View
from gated_domains.data.batches import Samples, place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import FeatureEncoding
from gated_domains.data.errors import DataError
from gated_domains.training import training_data as feature_cache
from gated_domains.training.training_data import cached_features, module_hash, trim

ROWS = np.random.default_rng(0).normal(size=(23, 4)).astype(np.float32)


class Calls:
    """How often a backbone ran, out of sight of its hash."""

    def __init__(self) -> None:
        self.count = 0


class Network(nn.Module):
    """A backbone with all that must stand still: dropout, running statistics."""

    def __init__(self, *, gating: bool = True) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
        self.gating = gating
        self.calls = Calls()

    def forward(self, inputs: Tensor) -> View:
        self.calls.count += 1
        return View(self.body(inputs), 2 * inputs[:, :2] if self.gating else None)


def network(*, gating: bool = True) -> Network:
    torch.manual_seed(0)
    backbone = Network(gating=gating)
    backbone(torch.randn(9, 4))  # statistics that are not 0 and 1
    backbone.calls.count = 0
    return backbone


def samples(values: np.ndarray = ROWS) -> Samples:
    return place(DomainDataset.from_arrays(values, np.arange(len(values)) % 2), FeatureEncoding(values.shape[1]))


def extract(folder: Path, backbone: nn.Module | None = None, **more: Any) -> feature_cache.CachedFeatures:
    options = {"key": "data", "device": "cpu", "batch_size": 5, "folder": folder, **more}
    return cached_features(network() if backbone is None else backbone, options.pop("samples", samples()), **options)


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


@pytest.mark.parametrize("batch_size", [1, 5, 23, 512])
@pytest.mark.parametrize("gating", [True, False])
def test_features_are_those_of_a_loop_over_samples(gating, batch_size, tmp_path):
    backbone = network(gating=gating)
    cache = extract(tmp_path, backbone, batch_size=batch_size)
    backbone.eval()
    with torch.no_grad():
        views = [backbone(torch.from_numpy(row[None])) for row in ROWS]
    expected = [torch.cat([view.features, *([view.gating] if gating else [])], 1)[0].tolist() for view in views]
    assert (cache.features, cache.gating) == (3, 2 if gating else 0)
    assert cache.values.dtype == np.float32
    np.testing.assert_allclose(cache.values, expected, atol=1e-6)


def test_the_values_lie_on_disk_and_cannot_be_written_to(tmp_path):
    values = extract(tmp_path).values
    assert isinstance(values, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        values[0, 0] = 1
    np.testing.assert_array_equal(np.load(files(tmp_path)[0], allow_pickle=False), values)


def test_a_second_call_does_not_run_the_backbone(tmp_path):
    backbone = network()
    first = extract(tmp_path, backbone)
    assert backbone.calls.count == 5
    again = copy.deepcopy(backbone)
    again.forward = None  # would raise
    second = extract(tmp_path, again)
    assert (second.features, second.gating) == (first.features, first.gating)
    np.testing.assert_array_equal(first.values, second.values)


def test_the_backbone_is_left_as_it_was(tmp_path):
    backbone = network()
    backbone.train()
    backbone.body[1].eval()
    before = copy.deepcopy(backbone.state_dict())
    random = torch.get_rng_state()
    extract(tmp_path, backbone)
    assert [part.training for part in backbone.body] == [True, False, True]
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(p.requires_grad and p.grad is None for p in backbone.parameters())


def test_every_mode_comes_back_where_the_backbone_fails(tmp_path):
    backbone = network().train()
    backbone.body[0] = nn.Linear(7, 3)  # too wide for the samples
    with pytest.raises(RuntimeError):
        extract(tmp_path, backbone)
    assert all(part.training for part in backbone.modules())
    assert files(tmp_path) == []


def test_no_gradient_and_no_autocast_reaches_the_features(tmp_path):
    class Watching(Network):
        def forward(self, inputs: Tensor) -> View:
            assert not torch.is_grad_enabled()
            assert not torch.is_autocast_enabled("cpu")
            return super().forward(inputs)

    torch.manual_seed(0)
    with torch.autocast("cpu"):
        extract(tmp_path, Watching())
        assert torch.is_autocast_enabled("cpu")


def test_a_change_of_anything_makes_a_new_entry(tmp_path, monkeypatch):
    extract(tmp_path)
    moved = network()
    with torch.no_grad():
        moved.body[0].weight[0, 0] += 1e-6
    statistics = network()
    statistics.body[1].running_mean[0] += 1e-6
    for count, options in enumerate(
        [
            {"key": "other data"},
            {"backbone": moved},
            {"backbone": statistics},
            {"backbone": network(gating=False)},
        ],
        start=2,
    ):
        extract(tmp_path, **options)
        assert len(files(tmp_path)) == count
    monkeypatch.setattr(feature_cache.torch, "__version__", "99")
    extract(tmp_path)
    assert len(files(tmp_path)) == 6


def test_the_cache_lies_where_all_caches_lie(monkeypatch, tmp_path):
    monkeypatch.setenv("GATED_DOMAINS_CACHE", str(tmp_path))
    extract(None)
    assert len(files(tmp_path / "features")) == 1


def test_progress_is_told_where_it_takes_a_while(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(feature_cache, "_A_WHILE", 1)
    extract(tmp_path)
    assert "extracting features ..." in capsys.readouterr().err
    extract(tmp_path)
    assert capsys.readouterr().err == ""


# Damage


def other_array(array: np.ndarray, **options: Any) -> Any:
    return lambda path: np.save(path, array, **options)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:60]),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        lambda path: path.write_bytes(b"something else"),
        lambda path: path.write_bytes(path.read_bytes().replace(b"(23, 5)", b"(23, 9)")),
        lambda path: path.write_bytes(path.read_bytes().replace(b"(23, 5)", b"(5, 23)")),
        lambda path: path.write_bytes(path.read_bytes().replace(b"(23, 5)", b"(((((((")),
        lambda path: path.write_bytes(path.read_bytes().replace(b"<f4", b"<i4")),
        lambda path: path.write_bytes(path.read_bytes().replace(b"False", b"True ")),
        other_array(np.zeros((22, 5), np.float32)),
        other_array(np.zeros((23, 5), np.float64)),
        other_array(np.array([{"a": 1}] * 23, dtype=object), allow_pickle=True),
        lambda path: path.write_bytes(archive()),
    ],
)
def test_a_file_that_is_not_whole_or_not_ours_is_made_again(damage, tmp_path):
    expected = np.array(extract(tmp_path).values)
    (path,) = files(tmp_path)
    damage(path)
    backbone = network()
    cache = extract(tmp_path, backbone)
    assert backbone.calls.count == 5
    np.testing.assert_array_equal(cache.values, expected)
    assert files(tmp_path) == [path]
    assert extract(tmp_path, backbone).values.shape == (23, 5)
    assert backbone.calls.count == 5


def archive() -> bytes:
    import io

    file = io.BytesIO()
    np.savez(file, a=np.zeros(3))
    return file.getvalue()


def test_data_of_another_length_under_the_same_key_is_not_believed(tmp_path):
    extract(tmp_path)
    assert extract(tmp_path, samples=samples(ROWS[:7])).values.shape == (7, 5)


def test_nothing_half_written_is_left_under_the_final_name(tmp_path):
    class Failing(Network):
        def forward(self, inputs: Tensor) -> View:
            if self.calls.count == 3:
                assert [path.name.startswith(".") for path in files(tmp_path)] == [True]
                raise KeyboardInterrupt
            return super().forward(inputs)

    torch.manual_seed(0)
    with pytest.raises(KeyboardInterrupt):
        extract(tmp_path, Failing())
    assert files(tmp_path) == []


def test_a_draft_that_a_dead_process_left_is_not_believed(tmp_path):
    extract(tmp_path)
    (path,) = files(tmp_path)
    path.rename(path.with_name(f".{path.stem}.1-abcd{path.suffix}"))
    backbone = network()
    extract(tmp_path, backbone)
    assert backbone.calls.count == 5


def test_two_that_do_the_same_at_a_time_do_no_harm(tmp_path):
    class Interrupted(Network):
        def forward(self, inputs: Tensor) -> View:
            if self.calls.count == 2:  # meanwhile somebody else makes the same entry
                self.calls.count += 1
                other = copy.deepcopy(self)
                other.calls.count = 9
                results.append(extract(tmp_path, other))
            return super().forward(inputs)

    results: list[Any] = []
    torch.manual_seed(0)
    results.append(extract(tmp_path, Interrupted()))
    assert len(files(tmp_path)) == 1
    np.testing.assert_array_equal(results[0].values, results[1].values)


# Numbers that are none


def test_a_sample_of_which_nothing_finite_is_made_is_named(tmp_path):
    rows = ROWS.copy()
    rows[17] = 3e38
    with pytest.raises(DataError, match=r"of row 17 \(column \d\); its weights are finite, .* look at that row"):
        extract(tmp_path, samples=samples(rows))
    assert files(tmp_path) == []


def test_a_gating_view_that_is_not_finite_is_named_too(tmp_path):
    rows = ROWS.copy()
    rows[21, 1] = 3e38
    backbone = network()
    nn.init.zeros_(backbone.body[0].weight)
    with pytest.raises(DataError, match=r"makes inf of row 21 \(column 4\)"):
        extract(tmp_path, backbone, samples=samples(rows))


def test_weights_that_went_astray_are_named_as_the_cause(tmp_path):
    backbone = network()
    with torch.no_grad():
        backbone.body[0].bias[1] = float("nan")
    with pytest.raises(DataError, match=r"makes nan of row 0 .*body\.0\.bias.* train the backbone again"):
        extract(tmp_path, backbone)


# The hash of a module


def test_the_hash_is_that_of_equal_modules_alone():
    class Strided(nn.Module):
        def __init__(self, stride: int = 1, activation: Any = torch.relu) -> None:
            super().__init__()
            self.stride, self.activation = stride, activation
            self.register_buffer("hidden", torch.ones(2), persistent=False)
            self.register_buffer("empty", torch.ones(0))

    class Told(nn.Module):
        def __init__(self, *, widths: dict[str, int]) -> None:
            super().__init__()
            self.widths = widths

        def extra_repr(self) -> str:
            return f"widths={self.widths}"

    def with_zeros(dtype: torch.dtype) -> nn.Module:
        module = nn.Module()
        module.register_buffer("zeros", torch.zeros(2, dtype=dtype))
        return module

    def hidden(module: Strided) -> Strided:
        module.hidden[0] = 5
        return module

    torch.manual_seed(0)
    linear = nn.Linear(2, 2)
    turned = copy.deepcopy(linear)
    turned.weight = nn.Parameter(linear.weight.detach().T.contiguous())
    different = [
        linear,
        turned,
        copy.deepcopy(linear).double(),
        nn.Sequential(linear),
        nn.Sequential(linear, nn.ReLU()),
        nn.Sequential(linear, nn.Tanh()),
        nn.Sequential(linear, nn.LeakyReLU(0.1)),
        nn.Sequential(linear, nn.LeakyReLU(0.2)),
        Strided(1),
        Strided(2),
        Strided(activation=torch.tanh),
        hidden(Strided()),
        Told(widths={"a": 1}),
        Told(widths={"a": 2}),
        with_zeros(torch.float32),
        with_zeros(torch.int32),
    ]
    assert len({module_hash(module) for module in different}) == len(different)
    for module in different:
        assert module_hash(copy.deepcopy(module)) == module_hash(module)


def test_the_hash_does_not_depend_on_mode_layout_gradients_or_earlier_runs():
    backbone = network()
    expected = module_hash(backbone)
    backbone.eval().requires_grad_(False)
    backbone(torch.randn(3, 4))
    backbone.last = torch.ones(3)
    assert module_hash(backbone) == expected
    convolution = nn.Conv2d(3, 4, 3)
    expected = module_hash(convolution)
    assert module_hash(convolution.to(memory_format=torch.channels_last)) == expected


def test_names_of_devices_and_places_in_memory_are_no_part_of_the_hash():
    plain = "Parameter containing: [torch.FloatTensor of size 3]"
    assert feature_cache._places_removed("Parameter containing: [torch.cuda.FloatTensor of size 3 (cuda:0)]") == plain
    assert feature_cache._places_removed("<function f at 0x7f9d6ca48220>, 2") == "<function f>, 2"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_hash_is_the_same_on_a_gpu():
    module = nn.Sequential(nn.Linear(2, 2), nn.ParameterList([torch.ones(2)]), nn.ParameterDict({"a": torch.ones(2)}))
    assert module_hash(copy.deepcopy(module).cuda()) == module_hash(module)


def test_the_hash_is_the_same_in_every_process():
    code = """
import torch
from torch import nn
from gated_domains.backbones.backbone import Backbone
from gated_domains.backbones.bodies import SmallCNN
from gated_domains.backbones.gating import Style
from gated_domains.training.training_data import module_hash
torch.manual_seed(0)
body = SmallCNN((3, 8, 8))
more = nn.ParameterDict({"b": torch.ones(1), "a": torch.ones(2)})
found = module_hash(nn.ModuleList([Backbone(body, Style(body)), more]))
print(found)
"""
    here: dict[str, Any] = {}
    exec(code, here)
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    there = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here["found"]


# The size of the cache


def entry(folder: Path, name: str, *, age: float, size: int = 100) -> Path:
    path = folder / name
    path.write_bytes(b"x" * size)
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    paths = {age: entry(tmp_path, f"{9 - age}.npy", age=age) for age in (3, 1, 4, 2)}
    trim(tmp_path, 1000)
    assert len(files(tmp_path)) == 4
    trim(tmp_path, 250)
    assert set(files(tmp_path)) == {paths[1], paths[2]}
    trim(tmp_path, 0, keep=paths[2])
    assert files(tmp_path) == [paths[2]]


def test_abandoned_drafts_go_and_fresh_ones_and_strangers_stay(tmp_path):
    entry(tmp_path, ".old.1-ab.npy", age=100_000)
    kept = {entry(tmp_path, ".fresh.1-ab.npy", age=60), entry(tmp_path, "notes.txt", age=100_000)}
    trim(tmp_path, 0)
    assert set(files(tmp_path)) == kept
    trim(tmp_path / "nowhere", 0)


def test_a_new_entry_pushes_out_those_not_used_for_longest_and_never_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(feature_cache, "MOST_BYTES", 1500)  # an entry has 588
    paths = {}
    for age, key in ((30, "a"), (20, "b")):
        extract(tmp_path, key=key)
        paths[key] = max(files(tmp_path), key=lambda path: path.stat().st_mtime)
        os.utime(paths[key], (time.time() - age, time.time() - age))
    extract(tmp_path, key="a")  # used again
    extract(tmp_path, key="c")
    assert len(files(tmp_path)) == 2
    assert paths["a"].exists()
    assert not paths["b"].exists()
    monkeypatch.setattr(feature_cache, "MOST_BYTES", 1)
    assert extract(tmp_path, key="d").values.shape == (23, 5)
    assert len(files(tmp_path)) == 1
