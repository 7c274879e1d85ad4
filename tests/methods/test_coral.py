"""CORAL: its penalty against a slow loop, and features of two shifted domains that come to agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles
from domain_problems import accuracies, shifted_gaussians, some_rows, trained, whole
from gated_domains.backbones.backbone import Identity
from gated_domains.backbones.bodies import MLP
from gated_domains.data.errors import DataError
from gated_domains.methods.coral import moments_apart
from small_trainings import build, vectors


def features_of(rows: int, width: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, generator=generator, dtype=torch.float64) * 2 + 1


# -- the penalty -----------------------------------------------------------------------------------------------------


@given(
    domains=st.lists(st.integers(0, 3), min_size=1, max_size=14),
    width=st.integers(1, 5),
    seed=st.integers(0, 1_000),
)
def test_moments_apart_are_the_mean_over_pairs_of_domains_with_two_rows_or_more(domains, width, seed):
    features = features_of(len(domains), width, seed)
    found = moments_apart(features, torch.tensor(domains), 5)  # the fifth is never there
    oracles.assert_matches(found, oracles.moments_apart(features.tolist(), domains))


def test_the_loss_is_that_of_erm_and_the_weighted_penalty_on_the_features():
    batch = whole(vectors(40))
    method = build("coral", vectors(), body=Identity((6,)), settings={"weight": 0.3})
    plain = build("erm", vectors(), body=Identity((6,)))
    terms = method.objective(batch)
    assert set(terms) == {"task", "coral"}
    torch.testing.assert_close(terms["task"], plain.objective(batch)["task"])
    slow = 0.3 * oracles.moments_apart(batch.inputs.tolist(), batch.domains.tolist())
    assert float(terms["coral"].detach()) == pytest.approx(slow, rel=1e-5)


def test_it_compares_the_features_of_the_body_and_not_its_inputs():
    batch, body = whole(vectors(40)), MLP((6,), (5,), norm=False, dropout=0)
    method = build("coral", vectors(), body=body)
    slow = oracles.moments_apart(body(batch.inputs).tolist(), batch.domains.tolist())
    assert float(method.objective(batch)["coral"].detach()) == pytest.approx(slow, rel=1e-4)


def test_the_gradient_of_the_penalty_is_that_of_small_differences():
    domains = torch.tensor([0, 1, 0, 2, 1, 0, 3, 1])  # two domains with one row
    features = features_of(8, 3, 0).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: moments_apart(x, domains, 5), features)


@pytest.mark.parametrize("domains", [[0, 0, 0, 0], [0, 1, 2, 3], [0, 0, 0, 1]], ids=["one", "single_rows", "one_other"])
def test_where_there_is_nothing_to_compare_the_penalty_and_its_gradient_are_zero(domains):
    features = features_of(4, 3, 0).requires_grad_()
    found = moments_apart(features, torch.tensor(domains), 4)
    found.backward()
    assert float(found.detach()) == pytest.approx(0, abs=1e-12)
    assert features.grad.abs().max() < 1e-12


def test_far_from_the_origin_floats_lose_little():
    domains = torch.arange(60) % 3
    features = features_of(60, 8, 0) * (1 + domains.unsqueeze(1)) + 300
    exact = moments_apart(features, domains, 3)
    torch.testing.assert_close(moments_apart(features.float(), domains, 3).double(), exact, rtol=1e-4, atol=0)


def test_half_precision_around_it_does_not_touch_the_penalty():
    domains, features = torch.arange(60) % 3, features_of(60, 8, 0).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        found = moments_apart(features, domains, 3)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, moments_apart(features.float(), domains, 3), rtol=1e-6, atol=0)


def test_blocks_of_a_few_domains_among_many_cost_no_more_than_those():
    """The domains that are not in the batch change nothing."""
    batch = some_rows(whole(vectors()), [2] * 6 + [0] * 6)
    few = moments_apart(batch.inputs, torch.tensor([0] * 6 + [1] * 6), 2)
    torch.testing.assert_close(moments_apart(batch.inputs, batch.domains * 100, 500), few)


# -- a known answer --------------------------------------------------------------------------------------------------


def disagreement(method, dataset) -> tuple[float, float]:
    """How far apart the means and the covariances of two domains' features are, beside the spread of all features."""
    with torch.no_grad():
        features = method.backbone(whole(dataset).inputs).features.double().numpy()
    one, two = (features[dataset.domains == domain] for domain in (0, 1))
    spread = np.cov(features.T)
    means = np.linalg.norm(one.mean(0) - two.mean(0)) / np.sqrt(np.trace(spread))
    return float(means), float(np.linalg.norm(np.cov(one.T) - np.cov(two.T)) / np.linalg.norm(spread))


@pytest.mark.parametrize("seed", [0, 1])
def test_it_makes_the_features_of_two_shifted_gaussians_agree_and_still_learns(seed):
    dataset, found = shifted_gaussians(seed=seed), {}
    for name in ("erm", "coral"):
        method = build(name, dataset, seed=seed, body=MLP((4,), (16, 8), norm=False, dropout=0))
        trained(method, whole(dataset), rate=0.02)
        found[name] = disagreement(method, dataset)
        assert min(accuracies(method, dataset)) > 0.95
    assert min(found["erm"]) > 0.2
    assert max(found["coral"]) < 0.05


# -- without domains -------------------------------------------------------------------------------------------------


def test_without_domains_it_says_what_it_needs():
    clean = vectors()
    clean = type(clean).from_arrays(clean.inputs.values, clean.targets, task="classification")
    with pytest.raises(DataError, match="CORAL compares source domains in training, and none is known"):
        build("coral", clean)
    with pytest.raises(DataError, match="whose domains are known"):
        build("coral", vectors()).objective(whole(clean))
