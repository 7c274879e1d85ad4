"""Bases that are not in use change nothing: ``max_bases`` above ``num_bases``."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from gated_domains.layer import GatedDomainUnits, penalties

PENALTIES = {
    "reconstruction": penalties.reconstruction,
    "sparsity": penalties.sparsity,
    "entropy": penalties.entropy,
    "soft_diagonal": penalties.soft_orthogonality,
    "soft_identity": partial(penalties.soft_orthogonality, target="identity"),
    "srip_diagonal": penalties.srip,
    "srip_identity": partial(penalties.srip, target="identity"),
    "mutual_coherence": penalties.mutual_coherence,
    "distributional_variance": penalties.distributional_variance,
}


def roomy_and_snug(build_head):
    """The same head with and without room for two bases more, in float64, with nothing left at zero."""
    roomy, snug = build_head(max_bases=5).double(), build_head().double()
    torch.manual_seed(2)
    with torch.no_grad():
        for (name, large), (_, small) in zip(roomy.named_parameters(), snug.named_parameters(), strict=True):
            large.normal_(std=0.5)
            small.copy_(large[: len(small)] if large.shape != small.shape else large)
            assert name == "bases" or name.startswith(("experts", "shared"))
    return roomy, snug


def used_part(value, like):
    return value if value.shape == like.shape else value[: len(like)]


@pytest.mark.parametrize("gates", ["sample", "batch"])
def test_spare_room_changes_no_prediction(build_head, gates):
    roomy, snug = roomy_and_snug(build_head)
    x = torch.randn(5, 4).double()
    large, small = roomy.evaluate(x, gates=gates), snug.evaluate(x, gates=gates)
    torch.testing.assert_close(large.prediction, small.prediction, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(large.beta[:, :3], small.beta, rtol=1e-9, atol=1e-9)
    assert (large.beta[:, 3:] == 0).all()
    if small.coverage is not None:
        torch.testing.assert_close(large.coverage, small.coverage)
    if small.variance is not None:
        torch.testing.assert_close(large.variance, small.variance)
    torch.testing.assert_close(roomy.novelty(x), snug.novelty(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", PENALTIES)
def test_spare_room_changes_no_penalty(make_gate, name):
    roomy, snug = roomy_and_snug(partial(GatedDomainUnits, 4, 2, num_bases=3, basis_size=2, gate=make_gate()))
    x = torch.randn(5, 4).double()
    large, small = PENALTIES[name](roomy.evaluate(x)), PENALTIES[name](snug.evaluate(x))
    torch.testing.assert_close(large, small, rtol=1e-9, atol=1e-9)
    if not small.requires_grad:
        return
    (large_gradient,), (small_gradient,) = (
        torch.autograd.grad(value, head.bases) for value, head in ((large, roomy), (small, snug))
    )
    torch.testing.assert_close(large_gradient[:3], small_gradient, rtol=1e-8, atol=1e-9)
    assert (large_gradient[3:] == 0).all()


def test_spare_room_changes_no_gradient(build_head):
    roomy, snug = roomy_and_snug(build_head)
    x, gradients = torch.randn(5, 4).double(), []
    for head in (roomy, snug):
        features = x.clone().requires_grad_()
        out = head.evaluate(features)
        (out.prediction.square().sum() + head.penalty(out)).backward()
        gradients.append([features.grad, *(parameter.grad for parameter in head.parameters())])
    for large, small in zip(*gradients, strict=True):
        torch.testing.assert_close(used_part(large, small), small, rtol=1e-8, atol=1e-9)
        if large.shape != small.shape:
            assert (large[3:] == 0).all()


@pytest.mark.parametrize("garbage", [30.0, 1e200, float("nan")])
def test_garbage_in_the_spare_room_changes_nothing(make_gate, garbage):
    head, _ = roomy_and_snug(partial(GatedDomainUnits, 4, 2, num_bases=3, basis_size=2, gate=make_gate()))
    x, results = torch.randn(5, 4).double(), []
    for fill in (0.0, garbage):
        with torch.no_grad():
            head.bases[3:] = fill
        head.zero_grad()
        features = x.clone().requires_grad_()
        out = head.evaluate(features)
        values = [penalty(out) for penalty in PENALTIES.values()]
        (out.prediction.square().sum() + head.penalty(out) + sum(values)).backward()
        results.append([out.prediction, out.beta, *values, features.grad, head.bases.grad])
    for clean, dirty in zip(*results, strict=True):
        torch.testing.assert_close(dirty, clean, rtol=1e-6, atol=1e-6)


def test_spare_room_costs_no_precision_far_from_the_origin():
    # What fit_bases leaves: bases in use among the data, the spare ones where they started, around the origin.
    x = torch.randn(200, 30) + 1000
    exact = GatedDomainUnits(30, 2, num_bases=3)
    exact.fit_bases(x)
    roomy = GatedDomainUnits(30, 2, num_bases=3, max_bases=12)
    roomy.fit_bases(x)
    assert torch.equal(roomy.active_bases, exact.bases)
    exact.double()
    expected = exact.evaluate(x.double()).products.cross.float()
    torch.testing.assert_close(roomy.evaluate(x).products.cross[:, :3], expected, rtol=1e-5, atol=1e-5)


def test_num_bases_counts_those_in_use():
    head = GatedDomainUnits(4, 2, num_bases=3, max_bases=7)
    assert (head.num_bases, head.max_bases) == (3, 7)
    assert head.active.tolist() == [True] * 3 + [False] * 4
    assert head.active_bases.shape == (3, 10, 4)
    assert "3 bases of 10 (room for 7)" in repr(head)


def test_without_max_bases_there_is_no_spare_room():
    head = GatedDomainUnits(4, 2, num_bases=3)
    assert head.bases.shape == (3, 10, 4)
    assert head.active.all()


def test_an_automatic_number_of_bases_stays_within_the_room():
    clusters = torch.tensor([[-20.0, 0.0], [20.0, 0.0], [0.0, 30.0]])
    x = clusters[torch.arange(90) % 3] + torch.randn(90, 2)
    head = GatedDomainUnits(2, 1, num_bases="auto", max_bases=6)
    shape = head.bases.shape
    head.fit_bases(x)
    assert head.num_bases == 3
    assert head.bases.shape == shape
    assert (head.evaluate(x).beta[:, 3:] == 0).all()
