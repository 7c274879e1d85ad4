"""Predictions of many rows: in their order, by one process or by several, and the method is left as it was."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric

from gated_domains.backbones.backbone import Backbone
from gated_domains.backbones.bodies import Identity
from gated_domains.data.batches import place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import FeatureEncoding
from gated_domains.methods import ERM, Classes, Prediction
from gated_domains.training import prediction
from gated_domains.training.prediction import _padded_share, parts_of_one_domain, predict_rows
from gated_domains.training.training_data import sample_inputs
from small_trainings import build, cpu, material, pictures, vectors


@pytest.fixture(scope="module")
def data():
    return material(vectors(120), train=80, validation=30)


def prepared(data, name: str = "gdu"):
    method = build(name, data.dataset).eval()
    method.prepare(lambda: sample_inputs(data, 0))
    return method


def test_predictions_come_in_the_order_of_the_rows_whatever_the_batches(data, monkeypatch):
    method, rows = prepared(data), np.array([50, 3, 119, 3, 80, 7, 8])
    inputs = torch.from_numpy(data.dataset.inputs.values[rows])
    with torch.no_grad():
        expected = method.predict(inputs)
    monkeypatch.setattr(prediction, "_BATCH", {"cpu": 3})
    found = predict_rows(method, data.samples, rows)
    for name, values in found.arrays().items():
        assert values.dtype == np.float32
        np.testing.assert_allclose(values, getattr(expected, name).numpy(), rtol=1e-5, atol=1e-6)
    assert list(found.arrays()) == ["output", "beta", "residual", "coverage"]


def test_methods_without_gates_say_nothing_of_them(data):
    assert list(predict_rows(prepared(data, "erm"), data.samples, np.arange(5)).arrays()) == ["output"]


def test_predictions_are_made_in_eval_mode_and_the_method_is_left_in_its_own(data):
    method = prepared(data)
    expected = predict_rows(method, data.samples, data.validation)
    method.train()
    method.backbone.body.blocks[0].eval()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    found = predict_rows(method, data.samples, data.validation)
    assert np.array_equal(found.output, expected.output)
    assert method.training
    assert not method.backbone.body.blocks[0].training
    assert method.backbone.body.blocks[1].training
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())


def test_no_gradient_is_kept(data):
    method = prepared(data)
    predict_rows(method, data.samples, np.arange(4))
    assert all(parameter.grad is None for parameter in method.parameters())


@pytest.mark.parametrize("precision", ["64", "bf16"])
def test_predictions_are_made_in_the_precision_of_training(precision):
    data = material(pictures(40), train=30, validation=10)
    method = prepared(data)
    expected = predict_rows(method, data.samples, data.validation).output
    wrapped = cpu(precision).setup(copy.deepcopy(method))
    found = predict_rows(wrapped.module, data.samples, data.validation, fabric=cpu(precision)).output
    apart = np.abs(found - expected).max()
    assert apart < (1e-5 if precision == "64" else 0.05)
    if precision == "bf16":
        assert apart > 1e-5


@pytest.mark.parametrize(("rows", "world"), [(7, 2), (6, 3), (2, 5), (1, 4), (30, 1)])
def test_shares_are_equally_long_and_cover_every_row(rows, world):
    chosen = np.arange(100, 100 + rows)
    shares = [_padded_share(chosen, rank, world) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    in_order = np.stack(shares, 1).ravel()
    assert np.array_equal(in_order[:rows], chosen)


class OneOfSeveral(Fabric):
    """Fabric as one of several processes would have it."""

    world_size = global_rank = 0
    strategy = property(lambda self: cpu().strategy)

    def __init__(self, rank: int, world: int) -> None:
        self.global_rank, self.world_size = rank, world

    def autocast(self):
        return cpu().autocast()


@pytest.mark.parametrize("name", ["gdu", "arm-bn"])
@pytest.mark.parametrize("rows", [30, 7, 1])
def test_several_processes_give_what_one_gives_in_the_same_order(rows, name, data, monkeypatch):
    """Three threads, each with a model of its own, that meet where processes would gather."""
    method, chosen, world = prepared(data, name), data.validation[:rows][::-1], 3
    monkeypatch.setattr(prediction, "_OF_ONE_DOMAIN", 4)
    meeting, held = threading.Barrier(world, timeout=60), {}

    def gathered(fabric, value: torch.Tensor) -> torch.Tensor:
        held[fabric.global_rank] = value
        meeting.wait()
        every = torch.stack([held[rank] for rank in range(world)])
        meeting.wait()
        return every

    monkeypatch.setattr(prediction, "from_all", gathered)
    found = {}

    def work(rank: int) -> None:
        alike = OneOfSeveral(rank, world)
        found[rank] = predict_rows(copies[rank], data.samples, chosen, fabric=alike)

    copies = [copy.deepcopy(method) for _ in range(world)]
    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(world)]
    with torch.no_grad():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    expected = predict_rows(method, data.samples, chosen)
    assert len(found) == world
    for rank in range(world):
        for name, values in expected.arrays().items():
            np.testing.assert_allclose(found[rank].arrays()[name], values, rtol=1e-5, atol=1e-6)


# -- where what is said of a row hangs on the batch ------------------------------------------------------------------


class Watched(ERM):
    """Says of a row what it is, and keeps what it was asked."""

    batchwise = True

    def predict(self, inputs: torch.Tensor) -> Prediction:
        self.asked.append(inputs[:, 0].long().tolist())
        return Prediction(torch.stack([inputs[:, 0], inputs.sum(1)], 1))


def asked(
    rows: np.ndarray, domains: np.ndarray | None, monkeypatch, *, most: int = 10
) -> tuple[np.ndarray, list[list[int]]]:
    """What came back for these rows, and the rows of each batch that the method was given."""
    monkeypatch.setattr(prediction, "_OF_ONE_DOMAIN", most)
    values = np.stack([np.arange(200), np.zeros(200)], 1).astype(np.float32)
    dataset = DomainDataset.from_arrays(values, np.arange(200) % 2, domains, task="classification")
    method = Watched(Backbone(Identity((2,))), 2, Classes())
    method.asked = []
    samples = place(dataset, FeatureEncoding(2))
    return predict_rows(method, samples, rows).output[:, 0], method.asked


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 12, 21, 95])
def test_batches_of_a_batchwise_method_are_of_one_domain_nearly_alike_in_size_and_never_of_a_lone_row(
    count, monkeypatch
):
    domains = np.where(np.arange(200) < 100, 0, 3)
    rows = np.concatenate([np.arange(100, 100 + count), np.arange(25)])
    found, batches = asked(rows, domains, monkeypatch)
    assert found.tolist() == rows.tolist()
    sizes: dict[int, list[int]] = {0: [], 3: []}
    for batch in batches:
        assert len({domains[row] for row in batch}) == 1
        sizes[domains[batch[0]]].append(len(batch))
    assert sum(sizes[0]) == 25
    assert sum(sizes[3]) == count
    for own, total in ((sizes[0], 25), (sizes[3], count)):
        assert len(own) == -(-total // 10)
        assert max(own) - min(own) <= 1
        assert min(own) > 1 or total == 1


@pytest.mark.parametrize("support", [2, 5, 8])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 8, 11, 12, 40, 100])
def test_batches_have_as_many_rows_as_the_method_asks_for_where_that_can_be(support, count):
    sizes = [len(part) for part in parts_of_one_domain(np.arange(count), None, support=support)]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) > 1 or count == 1
    if count % support == 0:
        assert set(sizes) == {support}
    elif count > support:
        assert min(sizes) >= 2 * support / 3
        assert max(sizes) <= 3 * support / 2 + 1


def test_batches_of_a_batchwise_method_mix_the_rows_of_sorted_files_and_always_alike(monkeypatch):
    domains = np.zeros(200, np.int64)
    _, batches = asked(np.arange(200), domains, monkeypatch, most=50)
    assert all(min(batch) < 50 and max(batch) >= 150 for batch in batches)
    assert asked(np.arange(200), domains, monkeypatch, most=50)[1] == batches


def test_rows_of_a_domain_go_together_alike_whatever_their_order_and_the_other_domains(monkeypatch):
    domains = np.arange(200) % 4
    own = np.flatnonzero(domains == 2)
    alone = asked(own, domains, monkeypatch)[1]
    found, batches = asked(np.random.default_rng(1).permutation(200), domains, monkeypatch)
    assert found.tolist() == np.random.default_rng(1).permutation(200).tolist()
    assert sorted(sorted(batch) for batch in batches if domains[batch[0]] == 2) == sorted(map(sorted, alone))


def test_rows_of_which_nobody_knows_the_domain_are_taken_for_one(monkeypatch):
    found, batches = asked(np.array([7, 3, 3, 150]), None, monkeypatch)
    assert found.tolist() == [7, 3, 3, 150]
    assert len(batches) == 1


def test_a_batchwise_method_says_of_rows_what_it_says_of_their_domains_batch(data):
    method, rows = prepared(data, "arm-bn"), np.array([90, 3, 118, 6, 80, 7, 8, 9])
    found = predict_rows(method, data.samples, rows).output
    inputs, domains = torch.from_numpy(data.dataset.inputs.values[rows]), data.dataset.domains[rows]
    for domain in set(domains.tolist()):
        own = domains == domain
        with torch.no_grad():
            expected = method.predict(inputs[own]).output
        np.testing.assert_allclose(found[own], expected, rtol=1e-4, atol=1e-6)
