"""A loss or a weight that is no number: which step, which rows, the likely cause; and nothing is kept after it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gated_domains.backbones.bodies import MLP, Identity
from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.data.sampling import Shuffled
from gated_domains.runs.recipe import TrainingSettings
from gated_domains.training.callbacks.checkpoint import Checkpoint, load_checkpoint, newest_checkpoint
from gated_domains.training.callbacks.stopping import FiniteWatch, NotFiniteError, all_finite, explain
from gated_domains.training.training_data import TrainingData
from small_trainings import build, material, train, vectors

STEP = 3  # the step that meets the row, in batches of 16
ROWS = list(Shuffled(np.arange(80), 16, seed=0).batches(0))[STEP]
ROW = int(ROWS[11])


def poisoned(value: float = math.nan, *, regression: bool = False) -> TrainingData:
    """Data of which one training row holds what no file could have brought in."""
    data = material(vectors(120, regression=regression), train=80, validation=30)
    data.samples.values[ROW, 2] = value
    return data


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["erm", "gdu"])
def test_an_input_that_is_no_number_is_found_by_its_row(name, value):
    data = poisoned(value)
    method = build(name, data.dataset, body=Identity((6,)), settings={"gating": "features"} if name == "gdu" else None)
    if name == "gdu":
        method.prepare = lambda looks: None  # it would not have come this far: fitting refuses such rows
        method.renew = lambda looks, *, epoch, optimizer: None
    with pytest.raises(NotFiniteError) as caught:
        train(method, data, batch_size=16)
    said = str(caught.value)
    assert said.startswith("the loss ")
    assert f"is not a finite number at step 3 (epoch 1, rows {', '.join(map(str, ROWS[:8]))} ...)" in said
    assert said.endswith(f"the inputs of row {ROW} hold NaN or infinity; clean the data")
    assert isinstance(caught.value, DataError)


def test_a_target_that_is_no_number_is_found_by_its_row():
    data = material(vectors(120, regression=True), train=80, validation=30)
    data.samples.targets[ROW] = math.nan
    with pytest.raises(NotFiniteError, match=f"the targets of row {ROW} hold NaN or infinity; clean the data"):
        train(build("erm", data.dataset), data, batch_size=16)


def test_inputs_out_of_all_proportion_are_named():
    data = poisoned(3e38)
    with pytest.raises(NotFiniteError, match=r"reach 3e\+38; standardise the features first"):
        train(build("erm", data.dataset, body=Identity((6,))), data, batch_size=16, rate=100.0)


def test_a_learning_rate_far_too_high_is_named_with_a_lower_one_to_try():
    data = material(vectors(120), train=80, validation=30)
    method = build("erm", data.dataset, body=MLP((6,), (16, 16, 16, 16), norm=False, dropout=0))
    with pytest.raises(NotFiniteError) as caught:
        train(method, data, rate=1e9, optimizer="adamw", schedule="constant")
    said = str(caught.value)
    assert "epoch 1" in said
    assert said.endswith("the learning rate 1e+09 is probably too high for adamw; try --rate 1e+08")


def test_in_sixteen_bits_those_are_named():
    data = material(vectors(120), train=80, validation=30)
    method = build("erm", data.dataset, body=MLP((6,), (16, 16, 16, 16), norm=False, dropout=0))
    with pytest.raises(NotFiniteError, match="numbers of 16 bits overflow easily; use --precision bf16 or 32"):
        train(method, data, rate=1e9, precision="16", schedule="constant")


def some_batch() -> DomainBatch:
    return DomainBatch(torch.randn(4, 3), torch.zeros(4, dtype=torch.int64), None)


@pytest.mark.parametrize(
    ("losses", "grew"),
    [([2.0, 1.0, 3.0], "it had grown from 1 to 3 by then; "), ([2.0, 1.0, 1.5], ""), ([5.0], ""), ([], "")],
)
def test_a_loss_that_had_grown_before_is_told(losses, grew):
    rows = np.array([9, 8, 7, 6])
    settings = TrainingSettings(rate=0.5, optimizer="sgd")
    said = str(explain("the loss", 17, epoch=2, rows=rows, batch=some_batch(), losses=losses, settings=settings))
    assert said == (
        "the loss is not a finite number at step 17 (epoch 3, rows 9, 8, 7, 6): "
        f"{grew}the learning rate 0.5 is probably too high for sgd; try --rate 0.05"
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_the_first_step_that_was_no_number_is_remembered_and_which_term_it_was(value):
    watch, fine = FiniteWatch(torch.device("cpu")), torch.tensor(1.0)
    watch.see({"task": fine, "pull": fine}, 0)
    assert watch.found() is None
    watch.see({"task": fine, "pull": torch.tensor(value)}, 1)
    watch.see({"task": torch.tensor(math.nan), "pull": fine}, 2)
    watch.see({"task": fine, "pull": fine}, 3)
    assert watch.found() == 1
    assert watch.broken() == "the loss (its terms: pull)"


def test_a_sum_that_overflows_is_no_number_though_its_terms_are():
    watch, large = FiniteWatch(torch.device("cpu")), torch.tensor(3e38)
    watch.see({"task": large, "pull": large}, 5)
    assert watch.found() == 5
    assert watch.broken() == "the loss"


def test_nothing_is_kept_after_it_and_the_newest_checkpoint_is_whole(tmp_path):
    data = poisoned()
    method = build("erm", data.dataset)
    with pytest.raises(NotFiniteError):
        train(method, data, batch_size=16, checkpoint=Checkpoint(tmp_path, seconds=0.0))
    newest = newest_checkpoint(tmp_path)
    assert newest.name == "checkpoint-000000003"
    assert all(value.isfinite().all() for value in load_checkpoint(newest)["method"].values())


def test_a_weight_that_is_no_number_after_the_last_step_is_found_before_it_is_kept(tmp_path):
    """The loss of the only step is finite; what the step makes of the weights is not."""
    data = material(vectors(120), train=80, validation=30)
    settings = {"rate": 3e38, "optimizer": "sgd", "batch_size": 80, "schedule": "constant", "momentum": 0.0}
    for name, gating in (("erm", {}), ("gdu", {"gating": "features"})):
        method = build(name, data.dataset, settings=gating)
        with torch.no_grad():
            next(method.backbone.body.parameters()).mul_(1e3)
            for parameter in method.parameters():
                parameter.mul_(30)
        with pytest.raises(
            NotFiniteError, match=r"a weight is not a finite number at step 0 \(epoch 1, .*--rate 3e\+37"
        ):
            train(method, data, checkpoint=Checkpoint(tmp_path / name, seconds=0.0), **settings)
        assert newest_checkpoint(tmp_path / name) is None


def test_weights_are_all_finite_or_not():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    assert all_finite(model)
    with torch.no_grad():
        model[1].bias[0] = math.nan
    assert not all_finite(model)
    assert all_finite(model[0])
    assert all_finite(torch.nn.Identity())
