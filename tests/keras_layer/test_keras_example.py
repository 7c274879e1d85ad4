"""The Keras example, at a size that tests can wait for."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.extras, pytest.mark.one_backend]
pytest.importorskip("keras")
torch = pytest.importorskip("torch")

import keras  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "keras_digits.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """What the example defines, with a few hundred rows to train on."""
    names = runpy.run_path(str(EXAMPLE))
    scope = names["main"].__globals__
    all_rows: Callable[..., list[Any]] = scope["hold_outs"]

    def few_rows(*given: Any) -> list[Any]:
        (split,) = all_rows(*given)
        return [replace(split, train=split.train[::20], validation=split.validation[::20], test=split.test[::10])]

    scope.update(hold_outs=few_rows, CHANNELS=(4, 8), WIDTH=16, BATCH=64)
    return scope


@pytest.fixture(scope="module")
def parts(example: dict[str, Any]) -> dict[str, Any]:
    return example["prepare"]("street")


def logits(example: dict[str, Any], model: Any, network: Any, samples: Any) -> tuple[Any, Any]:
    network.eval()
    with torch.no_grad():
        theirs = network(torch.from_numpy(samples.images), torch.from_numpy(samples.view)).numpy()
    return model.predict((samples.images, samples.view), verbose=0), theirs


@pytest.mark.parametrize("gated", [True, False])
def test_both_networks_begin_alike_and_stay_alike_for_a_few_steps(example, parts, gated):
    model = example["keras_model"](parts["train"], gated=gated, seed=0)
    network = example["Network"](model)
    ours, theirs = logits(example, model, network, parts["held out"])
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
    three = example["Batches"](replace_rows(parts["train"], 3 * example["BATCH"]), epochs=1, seed=0)
    example["train_keras"](model, three, epochs=1, after_epoch=lambda: None)
    example["train_torch"](network, three, after_epoch=lambda: None)
    ours, theirs = logits(example, model, network, parts["held out"])
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-3)
    assert np.abs(ours).max() > 0.1


def replace_rows(samples: Any, rows: int) -> Any:
    return replace(samples, **{name: getattr(samples, name)[:rows] for name in ("images", "view", "labels")})


def test_an_epoch_shows_every_row_once_and_the_next_one_in_another_order(example, parts):
    train = parts["train"]
    batches = example["Batches"](train, epochs=2, seed=1)
    rows = batches.rows.reshape(2, -1)
    assert batches.an_epoch == len(train.labels) // example["BATCH"]
    assert len(batches) == 2 * batches.an_epoch
    assert [len(set(each)) for each in rows.tolist()] == [batches.an_epoch * example["BATCH"]] * 2
    assert not np.array_equal(rows[0], rows[1])
    (images, view), labels = batches[1]
    np.testing.assert_array_equal(images, train.images[batches.rows[1]])
    np.testing.assert_array_equal(view, train.view[batches.rows[1]])
    np.testing.assert_array_equal(labels, train.labels[batches.rows[1]])


def test_the_view_is_standardised_by_the_rows_that_train(parts):
    np.testing.assert_allclose(parts["train"].view.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(parts["train"].view.std(0), 1, atol=1e-3)
    assert np.abs(parts["held out"].view.mean(0)).max() > 0.1


def test_the_example_prints_both_sides_and_what_they_say(example, monkeypatch, capsys):
    threads = torch.get_num_threads()
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--seeds", "1", "--epochs", "1", "--hold-out", "numbers"])
    example["main"]()
    torch.set_num_threads(threads)
    printed = " ".join(capsys.readouterr().out.split())
    keras_side = f"Keras on {keras.backend.backend()}"
    assert f"{keras_side} beside PyTorch; numbers held out; rows: 515 train, 175 source, 100 held out" in printed
    for side in (keras_side, "PyTorch"):
        for head in ("gated", "linear"):
            assert f"seed 0, {head} head, {side}: source " in printed
    for part in ("the four sources", "numbers, unseen", "difference", "three seeds or more would tell"):
        assert part in printed


def test_means_within_two_standard_errors_are_called_noise_and_others_not(example):
    against = example["against"]
    same = against("PyTorch", [70.0, 72.0, 74.0], [70.5, 72.5, 74.5])
    assert same == "is 0.5 points below PyTorch, within seed noise (two standard errors of the difference are 3.3)"
    apart = against("PyTorch", [80.0, 81.0, 82.0], [70.0, 71.0, 72.0])
    assert apart == "is 10.0 points above PyTorch, beyond seed noise (two standard errors of the difference are 1.6)"


HIDDEN = """
import runpy, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
runpy.run_path({example!r}, run_name="__main__")
"""


@pytest.mark.parametrize("hidden", ["keras", keras.backend.backend()])
def test_who_lacks_keras_or_its_backend_is_told_in_one_line(hidden):
    code = HIDDEN.format(hidden=hidden, example=str(EXAMPLE))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert f"No module named '{hidden}" in line
    assert "pip install 'gated-domains[keras]'" in line


def test_a_number_of_seeds_that_is_none_is_refused(example, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--seeds", "0"])
    with pytest.raises(SystemExit):
        example["main"]()
    assert "--seeds and --epochs must be 1 or more, got 0 and 4" in capsys.readouterr().err
