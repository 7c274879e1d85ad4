"""LISA: who is mixed with whom, the loss of what comes of it, and what it unlearns by it."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

import numpy as np
import pytest
import torch

from gated_domains.backbones.backbone import Identity
from gated_domains.data.batches import DomainBatch
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.methods import lisa
from gated_domains.methods.lisa import cut_and_pasted, mixed, random_partners
from gated_domains.training.prediction import predict_rows
from small_trainings import build, material, pictures, train, vectors

WITHIN_LABELS, WITHIN_DOMAINS = torch.tensor(True), torch.tensor(False)


def batch_of(dataset: DomainDataset, rows: int = 30) -> DomainBatch:
    inputs, targets = torch.from_numpy(dataset.inputs.values[:rows]), torch.from_numpy(dataset.targets[:rows])
    return DomainBatch(inputs, targets, torch.from_numpy(dataset.domains[:rows]))


# -- partners --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("within_labels", [True, False])
def test_a_partner_shares_the_label_and_not_the_domain_or_the_domain_and_not_the_label(within_labels):
    labels, domains = torch.randint(4, (60,)), torch.randint(3, (60,))
    partners = random_partners(labels, domains, within_labels=torch.tensor(within_labels))
    same, other = (labels, domains) if within_labels else (domains, labels)
    assert (same[partners] == same).all()
    assert (other[partners] != other).all()


def test_each_row_that_may_be_a_partner_is_one_as_often_as_any_other():
    labels, domains = torch.tensor([0, 0, 0, 0, 1, 1]), torch.tensor([0, 1, 2, 0, 1, 0])
    draws = [random_partners(labels, domains, within_labels=WITHIN_LABELS).tolist() for _ in range(900)]
    found = Counter(draw[0] for draw in draws)
    assert found.keys() == {1, 2}
    assert abs(found[1] - 450) < 5 * math.sqrt(900) / 2
    assert Counter(draw[1] for draw in draws).keys() == {0, 2, 3}


def test_a_row_that_nobody_may_be_mixed_with_stays_as_it_is():
    labels, domains = torch.tensor([0, 0, 1]), torch.tensor([0, 0, 1])
    for within in (WITHIN_LABELS, WITHIN_DOMAINS):
        assert random_partners(labels, domains, within_labels=within).tolist() == [0, 1, 2]


def test_numbers_are_mixed_with_another_row_of_their_domain_whatever_was_drawn():
    numbers, domains = torch.randn(40), torch.arange(40) % 3
    for within in (WITHIN_LABELS, WITHIN_DOMAINS):
        partners = random_partners(numbers, domains, within_labels=within)
        assert (domains[partners] == domains).all()
        assert (partners != torch.arange(40)).all()


@pytest.mark.parametrize(("intra_label", "expected"), [(1.0, {True}), (0.0, {False}), (0.5, {True, False})])
def test_one_draw_decides_for_a_batch_with_the_probability_that_was_set(intra_label, expected, monkeypatch):
    method, batch, drawn = build("lisa", vectors(), settings={"intra_label": intra_label}), batch_of(vectors()), []

    def watched(*args, within_labels):
        drawn.append(bool(within_labels))
        return random_partners(*args, within_labels=within_labels)

    monkeypatch.setattr(lisa, "random_partners", watched)
    for _ in range(20):
        method.objective(batch)
    assert set(drawn) == expected


def test_batches_are_mixed_within_labels_unless_asked_otherwise():
    assert build("lisa", vectors()).settings.intra_label == 1


# -- the loss --------------------------------------------------------------------------------------------------------


class Fixed:
    """Shares that are not drawn."""

    shares = torch.linspace(0.05, 0.95, 30)
    alpha = None

    def __init__(self, one, other, validate_args) -> None:
        assert torch.equal(one, other)
        assert one.shape == (30,)
        Fixed.alpha = set(one.tolist())

    def sample(self) -> torch.Tensor:
        return self.shares


@pytest.fixture
def fixed(monkeypatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Partners and shares that the test knows."""
    partners = torch.arange(30).roll(7)
    monkeypatch.setattr(lisa, "random_partners", lambda *_, within_labels: partners)
    monkeypatch.setattr(lisa, "Beta", Fixed)
    return partners, Fixed.shares


@pytest.mark.parametrize("mix", ["inputs", "features"])
def test_it_is_the_mean_of_both_labels_losses_of_the_mixed_sample_by_their_shares(mix, fixed):
    method = build("lisa", vectors(), body=Identity((6,)), settings={"mix": mix, "alpha": 3.0})
    batch, (partners, shares) = batch_of(vectors()), fixed
    weight, bias = method.head.weight.tolist(), method.head.bias.tolist()
    losses = []
    for i, j in enumerate(partners.tolist()):
        s, xs = float(shares[i]), batch.inputs.tolist()
        x = [s * a + (1 - s) * b for a, b in zip(xs[i], xs[j], strict=True)]
        logits = [
            math.fsum(w * v for w, v in zip(row, x, strict=True)) + b for row, b in zip(weight, bias, strict=True)
        ]
        whole = math.log(math.fsum(map(math.exp, logits)))
        losses += [s * (whole - logits[batch.targets[i]]), (1 - s) * (whole - logits[batch.targets[j]])]
    (found,) = method.objective(batch).values()
    assert float(found.detach()) == pytest.approx(math.fsum(losses) / 30, rel=1e-5)
    assert Fixed.alpha == {3.0}


def test_features_are_mixed_behind_the_body_and_inputs_before_it(fixed):
    batch, (partners, shares) = batch_of(vectors()), fixed
    for mix in ("inputs", "features"):
        method = build("lisa", vectors(), settings={"mix": mix}).eval()
        body, inputs = method.backbone.body, batch.inputs
        made = body(mixed(inputs, inputs[partners], shares)) if mix == "inputs" else mixed(
            body(inputs), body(inputs)[partners], shares
        )  # fmt: skip
        out = method.of_features(made)
        own, other = (method.task.losses(out, y) for y in (batch.targets, batch.targets[partners]))
        expected = (shares * own + (1 - shares) * other).mean()
        torch.testing.assert_close(method.objective(batch)["task"], expected)


def test_numbers_have_the_gradient_of_their_mixed_targets(fixed):
    data = vectors(regression=True)
    method, batch, (partners, shares) = build("lisa", data).eval(), batch_of(data), fixed
    parameters = list(method.parameters())
    found = torch.autograd.grad(method.objective(batch)["task"], parameters)
    targets = mixed(batch.targets.float(), batch.targets[partners].float(), shares)
    out = method.logits(mixed(batch.inputs, batch.inputs[partners], shares))
    expected = torch.autograd.grad(method.task.losses(out, targets).mean(), parameters)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_where_nobody_has_a_partner_it_is_erm():
    batch = batch_of(vectors())
    alone = DomainBatch(batch.inputs, torch.zeros(30, dtype=torch.int64), torch.zeros(30, dtype=torch.int64))
    found = [build(name, vectors()).eval().objective(alone)["task"] for name in ("lisa", "erm")]
    torch.testing.assert_close(*found)


def test_shares_are_drawn_for_each_row_from_the_beta_distribution_that_was_set(monkeypatch):
    drawn = []
    monkeypatch.setattr(lisa, "mixed", lambda own, other, shares: drawn.append(shares) or own)
    for alpha in (0.5, 2.0):
        method = build("lisa", vectors(), settings={"alpha": alpha})
        drawn.clear()
        for _ in range(60):
            method.objective(batch_of(vectors(), 100))
        shares = torch.cat(drawn).double()
        assert len(shares.unique()) > 5_000
        assert float(shares.mean()) == pytest.approx(0.5, abs=0.03)
        assert float(shares.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.1)


def test_on_a_frozen_body_its_features_are_mixed_whatever_was_set():
    method = build("lisa", pictures(), mode="fine_tune", settings={"mix": "cutmix"})
    assert method.settings.mix == "features"


def test_partners_of_a_processs_own_share_are_named():
    assert "partners that samples are mixed with" in build("lisa", vectors()).per_rank()


# -- boxes of images -------------------------------------------------------------------------------------------------


def test_a_box_of_the_other_image_stands_in_each_and_the_shares_are_those_of_the_pixels():
    own, other = torch.zeros(200, 3, 10, 14), torch.ones(200, 3, 10, 14)
    shares = torch.rand(200)
    made, left = cut_and_pasted(own, other, shares)
    assert torch.equal(made[:, 0], made[:, 2])
    torch.testing.assert_close(left, 1 - made.mean((1, 2, 3)))
    for image in made[:, 0].bool():
        rows, columns = image.any(1), image.any(0)
        assert torch.equal(image, rows.unsqueeze(1) & columns)  # a box
        for side in (rows, columns):
            assert int((side[1:] != side[:-1]).sum()) <= 2  # of one piece
    inside = (made[:, 0, 0].sum(1) == 0) & (made[:, 0, -1].sum(1) == 0)  # no border cuts them above and below
    inside &= (made[:, 0, :, 0].sum(1) == 0) & (made[:, 0, :, -1].sum(1) == 0)
    assert inside.sum() > 20
    assert (left - shares)[inside].abs().mean() < 0.03


def test_cutmix_trains_on_images_and_is_refused_for_vectors_with_the_cure():
    method = build("lisa", pictures(), settings={"mix": "cutmix"})
    images = torch.rand(12, 3, 8, 8)
    terms = method.objective(DomainBatch(images, torch.arange(12) % 3, torch.arange(12) // 6))
    assert torch.isfinite(terms["task"])
    with pytest.raises(DataError, match="cuts boxes out of images, and these are vectors; choose inputs or features"):
        build("lisa", vectors(), settings={"mix": "cutmix"})


# -- what it unlearns ------------------------------------------------------------------------------------------------


def grounds(seed: int) -> DomainDataset:
    """Images whose bright half tells the class in 8 of 10, and the colour of the ground in 9 of 10: the domain.

    The last hundred are the hundred before them on the other ground.
    """
    rng = np.random.default_rng(seed)
    bright = rng.integers(2, size=600)
    classes = np.where(rng.random(600) < 0.2, 1 - bright, bright)
    domains = np.where(rng.random(600) < 0.1, 1 - classes, classes)
    values = rng.normal(80, 20, size=(600, 8, 8, 3))
    for row, half in enumerate(bright):
        values[row, :, 4 * half : 4 * half + 4] += 60
    values, classes = np.concatenate([values, values[-100:]]), np.concatenate([classes, classes[-100:]])
    domains = np.concatenate([domains, 1 - domains[-100:]])
    values[np.arange(700), :, :, domains] += 60
    return DomainDataset.from_arrays(values.clip(0, 255).round().astype(np.uint8), classes, domains, name="grounds")


@cache
def moved_by_the_ground(name: str, seed: int, mix: str | None = None) -> float:
    """How far what a method says of an image moves where nothing but the ground changes."""
    data = material(grounds(seed), train=400, validation=100)
    method = build(name, data.dataset, seed=seed, settings={} if mix is None else {"mix": mix})
    train(method, data, epochs=4, batch_size=64)
    here, there = (predict_rows(method, data.samples, np.arange(start, start + 100)).output for start in (500, 600))
    return float(np.abs(here - there)[:, 0].mean())


@pytest.mark.parametrize("mix", ["inputs", "features"])
def test_it_relies_less_on_a_spurious_background_than_erm(mix):
    erm = np.mean([moved_by_the_ground("erm", seed) for seed in (1, 3)])
    assert erm > 0.3
    assert np.mean([moved_by_the_ground("lisa", seed, mix) for seed in (1, 3)]) < 0.5 * erm
