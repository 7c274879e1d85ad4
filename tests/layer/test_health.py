"""Each finding about gates fires on the case made for it, and on no other."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits

from gated_domains.layer import CosineGate, GatedDomainUnits, GateWarning, InnerProducts, MMDGate, ProjectionGate
from gated_domains.layer.fitting import kmeans_bases, paper_bases
from gated_domains.layer.gates import gate_health
from gated_domains.layer.kernels import Gaussian

ROWS, BASES = 50, 4


def digits(rows: int = 400) -> torch.Tensor:
    return torch.tensor(load_digits().data[:rows] / 16, dtype=torch.float32)


def found(cross=None, gram=None, beta=None, active=None) -> list[str]:
    """The findings of a case that is healthy but for what is given."""
    cross = 0.2 + 0.6 * torch.rand(ROWS, BASES) if cross is None else cross
    gram = 0.5 * torch.eye(BASES) + 0.2 if gram is None else gram
    beta = torch.randn(ROWS, BASES).softmax(-1) if beta is None else beta
    return gate_health(InnerProducts(torch.ones(ROWS), cross, gram, active), beta).findings()


def caught(call) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    assert all(issubclass(one.category, GateWarning) for one in seen)
    return [str(one.message) for one in seen]


# -- from inner products ---------------------------------------------------------------------------------------------


def test_a_healthy_case_has_no_finding():
    assert found() == []


def test_rows_far_from_every_basis_are_found_alone_with_the_largest_kernel_value():
    (finding,) = found(cross=torch.full((ROWS, BASES), 4.2e-5))
    assert "far from every basis" in finding
    assert "4.2e-05" in finding
    assert "raise sigma" in finding


def test_rows_near_every_basis_are_found_alone_with_the_smallest_kernel_value():
    (finding,) = found(cross=torch.full((ROWS, BASES), 0.99955))
    assert "near every basis" in finding
    assert "0.99955" in finding
    assert "lower sigma" in finding


def test_gates_that_ignore_the_input_are_found_alone_with_their_spread():
    wiggle = torch.zeros(ROWS, BASES)
    wiggle[0, 0] = 1e-3
    (finding,) = found(beta=torch.full((ROWS, BASES), 0.25) + wiggle)
    assert "do not depend on the input" in finding
    assert f"{1e-3 / ROWS**0.5:.2g}" in finding
    assert "kappa=None" in finding


def test_a_dead_basis_is_found_alone_by_its_number():
    beta = torch.randn(ROWS, BASES)
    beta[:, 2] = -20
    (finding,) = found(beta=beta.softmax(-1))
    assert "bases [2] are dead" in finding
    assert "fewer bases or a smaller kappa" in finding


def test_doubled_bases_are_found_alone_by_their_numbers():
    gram = 0.5 * torch.eye(BASES) + 0.2
    gram[1, 3] = gram[3, 1] = 0.6997
    (finding,) = found(gram=gram)
    assert "bases [[1, 3]] are doubles" in finding
    assert "fewer bases" in finding


def test_one_basis_alone_is_healthy_though_its_weight_never_changes():
    only_first = torch.tensor([True, False, False, False])
    beta = only_first.float().expand(ROWS, BASES)
    assert found(beta=beta, active=only_first) == []


def test_bases_not_in_use_are_never_found_dead_or_doubled():
    active = torch.tensor([True, True, False, False])
    beta = torch.randn(ROWS, BASES).masked_fill(~active, -torch.inf).softmax(-1)
    gram = 0.5 * torch.eye(BASES) + 0.2
    gram[2:, 2:] = 1.0
    assert found(gram=gram, beta=beta, active=active) == []


def test_negative_weights_are_not_dead_ones():
    beta = torch.randn(ROWS, BASES)
    beta[:, 1] = -beta[:, 1].abs() - 0.1
    assert found(beta=beta) == []


# -- from a layer and data -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", [CosineGate, MMDGate, ProjectionGate, lambda: ProjectionGate(ridge=1e-3)])
def test_a_layer_fitted_on_digits_warns_of_nothing(gate):
    head = GatedDomainUnits(64, 10, gate=gate())
    assert caught(lambda: head.fit_bases(digits())) == []


@pytest.mark.parametrize("gate", ["cosine", "mmd"])
def test_the_start_of_the_paper_leaves_gates_that_do_not_depend_on_the_input(gate):
    # Digits seen through 512 rectified random filters, as wide as a backbone's features.
    features = torch.relu(digits() @ torch.randn(64, 512))
    head = GatedDomainUnits.paper(512, 10, gate=gate, setting="wilds")
    seen = caught(lambda: head.health(features).warn())
    assert any("do not depend on the input" in one for one in seen)
    assert any("saturates: every sample is far from every basis" in one for one in seen)


def test_bases_from_the_initialiser_of_the_paper_are_warned_of_when_fitted():
    features = torch.relu(digits() @ torch.randn(64, 512))
    head = GatedDomainUnits(512, 10)
    seen = caught(lambda: head.fit_bases(features, initialiser=paper_bases, sigma=4.0, kappa=2.0))
    assert any("do not depend on the input" in one for one in seen)


def test_a_sigma_far_too_large_puts_every_row_near_every_basis():
    seen = caught(lambda: GatedDomainUnits(64, 10).fit_bases(digits(), sigma=1e4))
    assert any("near every basis" in one and "smallest mean k 1.000000" in one for one in seen)


def test_a_basis_given_twice_is_the_only_thing_warned_of():
    def doubled(x, num_bases, basis_size, seed):
        bases = kmeans_bases(x, num_bases, basis_size, seed)
        bases[3] = bases[0]
        return bases

    (seen,) = caught(lambda: GatedDomainUnits(64, 10).fit_bases(digits(), initialiser=doubled))
    assert "bases [[0, 3]] are doubles" in seen


def test_a_basis_that_no_row_comes_near_is_the_only_thing_warned_of():
    def stray(x, num_bases, basis_size, seed):
        bases = kmeans_bases(x, num_bases, basis_size, seed)
        bases[4] += 1e3
        return bases

    (seen,) = caught(lambda: GatedDomainUnits(64, 10).fit_bases(digits(), initialiser=stray, kappa=30.0))
    assert "bases [4] are dead" in seen


def test_fitting_sigma_alone_checks_the_gates_too():
    head = GatedDomainUnits.paper(64, 10, gate="cosine")
    with torch.no_grad():
        head.bases.copy_(head.bases[:1].expand_as(head.bases))
    assert any("doubles" in one for one in caught(lambda: head.fit_sigma(digits())))


def test_asking_for_health_warns_of_nothing_and_changes_nothing():
    head = GatedDomainUnits(64, 10, kernel=Gaussian(1e-3))
    before = {name: value.clone() for name, value in head.state_dict().items()}
    assert caught(lambda: head.health(digits())) == []
    assert all(torch.equal(before[name], value) for name, value in head.state_dict().items())


def test_a_warning_points_to_the_line_that_called_fit_bases(tmp_path: Path):
    script = tmp_path / "user_script.py"
    script.write_text(
        "import torch\n"
        "from gated_domains import GatedDomainUnits\n"
        "GatedDomainUnits(4, 2).fit_bases(torch.randn(50, 4), sigma=1e5)\n"
    )
    # In a process of its own: the run-time shape checks of the tests add frames that users do not have.
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert "GateWarning" in done.stderr
    assert f"{script}:3: GateWarning" in done.stderr
