"""GatedDomainUnits.paper: every number of the paper's parameter tables."""

from __future__ import annotations

import pytest
import torch

import oracles
from gated_domains.layer import CosineGate, GatedDomainUnits, LinearExperts, MMDGate, ProjectionGate
from gated_domains.layer.experts import Regression
from gated_domains.layer.kernels import Gaussian
from oracles import assert_matches, rows

# setting, gate -> sigma, kappa, lambda_ols, lambda_l1, lambda_orth
TABLE = {
    ("digits", "cosine"): (7.5, 2.0, 1e-3, 1e-3, 0.0),
    ("digits", "mmd"): (7.5, 2.0, 1e-3, 1e-3, 0.0),
    ("digits", "projection"): (7.5, None, 1e-3, 1e-3, 1e-8),
    ("wilds", "cosine"): (4.0, 2.0, 1e-3, 1e-3, 0.0),
    ("wilds", "mmd"): (4.0, 2.0, 1e-3, 1e-3, 0.0),
    ("wilds", "projection"): (16.0, None, 1e-3, 0.0, 1e-3),
}
GATES = {"cosine": CosineGate, "mmd": MMDGate, "projection": ProjectionGate}


@pytest.fixture(params=TABLE, ids="-".join)
def row(request):
    setting, gate = request.param
    return GatedDomainUnits.paper(6, 3, gate=gate, setting=setting), setting, gate, TABLE[request.param]


def test_kernel_is_the_gaussian_of_the_papers_width(row):
    head, _, _, (sigma, *_) = row
    assert type(head.kernel) is Gaussian
    assert head.kernel.sigma.item() == sigma


def test_gate_is_the_papers_with_its_kappa(row):
    head, _, gate, (_, kappa, *_) = row
    assert type(head.gate) is GATES[gate]
    if kappa is None:
        assert head.gate.ridge is None
    else:
        assert head.gate.kappa.item() == kappa


def test_penalty_weights_are_the_papers(row):
    head, _, _, (_, _, lambda_ols, lambda_l1, lambda_orth) = row
    assert (head.lambda_ols, head.lambda_l1, head.lambda_orth) == (lambda_ols, lambda_l1, lambda_orth)
    assert head.lambda_entropy == 0


def test_ten_bases_of_ten_vectors_as_in_the_papers_text(row):
    head = row[0]
    assert head.bases.shape == (10, 10, 6)
    assert head.num_bases == head.max_bases == 10


def test_the_five_bases_of_the_papers_table_are_a_setting():
    assert GatedDomainUnits.paper(6, 3, num_bases=5).bases.shape == (5, 10, 6)


def test_orthogonality_is_srip_towards_the_identity(row):
    head = row[0].double()
    out = head.evaluate(torch.randn(4, 6).double())
    gram = oracles.gram(oracles.radial_kernel("gaussian", head.kernel.sigma.item()), rows(head.bases))
    # These bases overlap so much that the two largest eigenvalues may be close: power iteration promises 1e-5.
    assert_matches(head.orthogonality(out), oracles.srip(gram, "identity"), tolerance=1e-5)


def test_experts_are_linear_with_tanh_on_digits_and_without_on_wilds(row):
    head, setting, *_ = row
    assert type(head.experts) is LinearExperts
    assert head.experts.activation is (torch.tanh if setting == "digits" else None)
    assert head.experts.bias is None


def test_the_papers_head_has_no_shared_expert_and_no_coverage(row):
    head = row[0]
    assert head.shared is None
    assert not head.applies_coverage
    assert head.evaluate(torch.randn(2, 6)).coverage is None


def test_the_default_preset_is_cosine_on_digits():
    head = GatedDomainUnits.paper(6, 3)
    assert type(head.gate) is CosineGate
    assert head.kernel.sigma.item() == 7.5


def test_the_preset_takes_a_task():
    assert isinstance(GatedDomainUnits.paper(6, 1, task=Regression()).task, Regression)


def test_fine_tuning_takes_sigma_from_the_median_distance():
    x = torch.randn(60, 6).double() * 3
    squared = [oracles.squared_distance(a, b) for i, a in enumerate(rows(x)) for b in rows(x)[:i]]
    head = GatedDomainUnits.paper(6, 3).double()
    head.fit_sigma(x)
    assert head.kernel.sigma.item() == pytest.approx(oracles.quantile(squared, 0.5) ** 0.5, rel=1e-9)


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(("setting", "gate"), [("imagenet", "cosine"), ("digits", "euclid")])
def test_a_setting_the_paper_does_not_have_is_refused_with_those_it_has(setting, gate):
    with pytest.raises(ValueError, match=rf"'{setting}' with gate '{gate}'.*digits/cosine"):
        GatedDomainUnits.paper(6, 3, gate=gate, setting=setting)
