"""The paper's start: basis j drawn from N(0.5 j (-1)^j, (0.1 (j + 1))^2)."""

from __future__ import annotations

import pytest
import torch

from gated_domains.layer import GatedDomainUnits
from gated_domains.layer.fitting import INITIALISERS, paper_normal

MEANS = [0.0, -0.5, 1.0, -1.5, 2.0, -2.5]
STDS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]


def assert_drawn_as_in_the_paper(bases):
    count = bases[0].numel()
    for basis, mean, std in zip(bases, MEANS, STDS, strict=False):
        assert basis.mean().item() == pytest.approx(mean, abs=5 * std / count**0.5)
        assert basis.std().item() == pytest.approx(std, rel=5 / (2 * count) ** 0.5)


def test_paper_normal_has_the_means_and_deviations_of_the_paper():
    bases = paper_normal(6, 200, 200)
    assert bases.shape == (6, 200, 200)
    assert_drawn_as_in_the_paper(bases)


def test_paper_normal_is_normal():
    drawn = paper_normal(3, 200, 200)[2].flatten().sort().values
    quantiles = torch.distributions.Normal(1.0, 0.3).icdf(torch.linspace(0.01, 0.99, 99))
    torch.testing.assert_close(torch.quantile(drawn, torch.linspace(0.01, 0.99, 99)), quantiles, atol=0.02, rtol=0)


def test_the_papers_head_starts_from_the_papers_bases():
    head = GatedDomainUnits.paper(300, 10, num_bases=5, basis_size=100)
    assert_drawn_as_in_the_paper(head.bases.detach())


def test_the_papers_initialiser_follows_the_seed_and_not_the_data():
    initialise = INITIALISERS["paper"]
    one = initialise(torch.randn(20, 30), 5, 100, 7)
    assert_drawn_as_in_the_paper(one)
    assert torch.equal(one, initialise(torch.randn(20, 30) + 100, 5, 100, 7))
    assert not torch.equal(one, initialise(torch.randn(20, 30), 5, 100, 8))
