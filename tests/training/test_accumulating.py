"""A batch in parts, large bodies in small batches, activations computed twice, and a rate that waits for progress."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gated_domains.backbones.bodies import MLP
from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.evaluation.metrics import SelectionRule
from gated_domains.methods import Classes
from gated_domains.training.callbacks import stopping as early_stopping
from gated_domains.training.callbacks.base import ProgressCallback
from gated_domains.training.callbacks.checkpoint import Checkpoint
from gated_domains.training.prediction import predict_rows
from gated_domains.training.training_data import LARGE_BATCH, LARGE_LOOKED_AT, LOOK_BATCH, has_large_body, sample_inputs
from small_trainings import Records, build, identical, material, train, training, vectors, weights


@pytest.fixture(scope="module")
def data():
    return material(vectors(120), train=80, validation=30)


def still() -> MLP:
    """A body that treats every row by itself, always alike: no batch norm, no dropout."""
    torch.manual_seed(1)
    return MLP((6,), (16, 8), norm=False, dropout=0)


# -- parts of a batch --------------------------------------------------------------------------------------------------


def batch(rows: int, blocks: int | None = None) -> DomainBatch:
    domains = torch.arange(rows) // (rows // (blocks or 1))
    return DomainBatch(torch.arange(rows * 3.0).reshape(rows, 3), torch.arange(rows), domains, blocks)


@pytest.mark.parametrize(("rows", "count", "sizes"), [(12, 4, [3] * 4), (10, 4, [3, 3, 3, 1]), (5, 4, [2, 2, 1])])
def test_a_batch_is_cut_into_parts_that_are_together_the_batch(rows, count, sizes):
    whole = batch(rows)
    parts = whole.cut(count)
    assert [len(part) for part in parts] == sizes
    for name in ("inputs", "targets", "domains"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name))
    assert [part.domains for part in whole.without_domains().cut(count)] == [None] * len(sizes)


def test_blocks_stay_whole():
    parts = batch(24, blocks=6).cut(3)
    assert [part.blocks for part in parts] == [2, 2, 2]
    assert [part.domains.tolist() for part in parts] == [[0] * 4 + [1] * 4, [2] * 4 + [3] * 4, [4] * 4 + [5] * 4]
    assert [part.blocks for part in batch(10, blocks=1).cut(4)] == [1] * 4  # all of one domain, however it is cut
    with pytest.raises(DataError, match="a batch of 6 domains cannot be cut into 4 parts; choose groups_per_batch"):
        batch(24, blocks=6).cut(4)


# -- the same update ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accumulate", [2, 4, 5, 30])
@pytest.mark.parametrize("batch_size", [32, 30, 200])  # 30 into 4: an uneven last part; 200: one short batch
def test_a_batch_in_parts_updates_as_the_whole_batch_does(data, accumulate, batch_size):
    found, terms = [], []
    for parts in (1, accumulate):
        method, journal = build("erm", data.dataset, body=still()), Records()
        start = weights(method)
        train(method, data, epochs=2, batch_size=batch_size, optimizer="sgd", accumulate=parts, journal=journal)
        found.append(weights(method))
        terms.append([record["train"]["task"] for record in journal])
    assert terms[0] == pytest.approx(terms[1], rel=1e-5)
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], rtol=1e-4, atol=1e-6)
        assert not torch.equal(value, start[name])


def test_class_weights_count_in_parts_as_in_the_whole(data):
    found = []
    for parts in (1, 4):
        method = build("erm", data.dataset, body=still(), task=Classes(torch.tensor([3.0, 1.0, 0.1])))
        train(method, data, epochs=1, batch_size=30, optimizer="sgd", accumulate=parts)
        found.append(weights(method))
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], rtol=1e-4, atol=1e-6)


def test_a_gated_method_is_trained_in_parts_and_has_all_its_terms(data):
    journals = []
    for parts in (1, 4):
        journals.append(Records())
        train(build("gdu", data.dataset, body=still()), data, epochs=1, accumulate=parts, journal=journals[-1])
    one, other = (journal[0]["train"] for journal in journals)
    assert one.keys() == other.keys()
    assert one == pytest.approx(other, rel=0.05)


def test_methods_that_compare_domains_are_cut_by_blocks(data):
    sizes: list[tuple[int, int | None]] = []
    method = build("coral", data.dataset)
    plain = method.objective

    def watched(batch: DomainBatch) -> Any:
        sizes.append((len(batch), batch.blocks))
        return plain(batch)

    method.objective = watched  # type: ignore[method-assign]
    train(method, data, epochs=1, batch_size=32, accumulate=2, groups_per_batch=2)
    assert set(sizes) == {(16, 1)}


# -- a rate that waits -------------------------------------------------------------------------------------------------

SCORES = (1, 2, 1, 1, 1, 1, 3, 0)
FALLING = {"schedule": "plateau", "decay": 0.5, "drop_after": 2, "rate": 0.01, "epochs": len(SCORES), "patience": None}
BY_EPOCH = SelectionRule(name="scripted", words="scripted", number=lambda evidence: float(SCORES[evidence.epoch]))


def test_a_plateau_lowers_the_rate_after_epochs_without_a_better_score(data):
    journal = Records()
    train(build("erm", data.dataset), data, rule=BY_EPOCH, journal=journal, **FALLING)
    lowered = [0, 0, 0, 0, 1, 1, 2, 2]  # after the fourth epoch and after the sixth; the seventh is better again
    assert [record["rate"] for record in journal] == pytest.approx([0.01 * 0.5**drops for drops in lowered])


def test_a_plateau_on_the_loss_lowers_the_rate_after_epochs_without_a_lower_loss_whatever_the_score(data, monkeypatch):
    losses = iter([5.0, 4.0, 4.0, 4.5, 3.9, 3.95, 3.9, 1.0])  # after the fourth epoch and after the seventh
    monkeypatch.setattr(early_stopping, "validation_loss", lambda output, targets: next(losses))
    journal = Records()
    train(build("erm", data.dataset), data, rule=BY_EPOCH, journal=journal, **FALLING, plateau_on="loss")
    assert [record["rate"] for record in journal] == pytest.approx([0.01 * 0.5**n for n in (0, 0, 0, 0, 1, 1, 1, 2)])


class Cut(ProgressCallback):
    """Ctrl-C after so many steps."""

    def __init__(self, after: int) -> None:
        self.left = after

    def on_step(self, step: int, steps: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [6, 7, 9, 12])  # two steps an epoch: within the waiting and after the first drop
@pytest.mark.parametrize("plateau_on", ["score", "loss"])
def test_a_training_that_was_cut_knows_how_long_it_has_waited(data, tmp_path, after, plateau_on):
    falling = {**FALLING, "plateau_on": plateau_on}
    whole, journal = Records(), Records()
    uncut = build("erm", data.dataset)
    torch.manual_seed(5)
    train(uncut, data, rule=BY_EPOCH, journal=whole, **falling)
    more = {"checkpoint": Checkpoint(tmp_path, seconds=0.0), "journal": journal, "rule": BY_EPOCH, **falling}
    torch.manual_seed(0)
    method = build("erm", data.dataset)
    torch.manual_seed(5)
    with pytest.raises(KeyboardInterrupt):
        train(method, data, progress=Cut(after), **more)
    method = build("erm", data.dataset)
    train(method, data, **more)
    assert journal.timeless() == whole.timeless()
    assert identical(weights(method), weights(uncut))


# -- large bodies ------------------------------------------------------------------------------------------------------


class Large(MLP):
    """A body that is looked at in small batches, and remembers in which; its activations may be computed twice."""

    large = True

    def __init__(self) -> None:
        super().__init__((6,), (8,), norm=False, dropout=0)
        self.sizes: list[int] = []
        self.twice: list[bool] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.sizes.append(len(inputs))
        return super().forward(inputs)

    def checkpoint_activations(self, on: bool) -> None:
        self.twice.append(on)


def test_large_bodies_are_predicted_with_in_batches_of_128():
    data = material(vectors(400), train=64, validation=300)
    for body, expected in ((Large(), [128, 128, 44]), (still(), None)):
        method = build("erm", data.dataset, body=body).eval()
        found = predict_rows(method, data.samples, data.validation)
        assert found.output.shape == (300, 3)
        assert has_large_body(method) == (expected is not None)
        if isinstance(body, Large):
            assert body.sizes == expected


def test_fewer_rows_are_looked_at_in_smaller_batches_where_the_body_is_large():
    data = material(vectors(3000), train=2900, validation=30)
    few = [len(inputs) for inputs in sample_inputs(data, 0, large=True)]
    assert few == [LARGE_BATCH] * (LARGE_LOOKED_AT // LARGE_BATCH)
    every = [len(inputs) for inputs in sample_inputs(data, 0)]
    assert sum(every) == 2900
    assert every[0] == LOOK_BATCH


def test_gates_look_at_a_large_body_in_small_batches_too():
    data = material(vectors(900), train=700, validation=150)
    body = Large()
    method = build("gdu", data.dataset, body=body, settings={"gating": "features"})
    train(method, data, epochs=1)
    assert max(body.sizes) <= 2 * LARGE_BATCH
    assert np.isfinite(predict_rows(method, data.samples, data.validation).output).all()


def test_the_setting_reaches_the_body(data):
    for on, expected in ((True, [True]), (False, [])):
        body = Large()
        training(build("erm", data.dataset, body=body), data, checkpoint_activations=on)
        assert body.twice == expected


def test_a_small_body_refuses_to_compute_twice(data):
    with pytest.raises(DataError, match=r"MLP is small, .*leave checkpoint_activations out"):
        training(build("erm", data.dataset), data, checkpoint_activations=True)
