"""Bad input is refused with a message that carries the value."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import nn

from gated_domains.layer import CosineGate, GatedDomainUnits, GateStream, MMDGate, ProjectionGate, penalties
from gated_domains.layer.kernels import KERNELS, Average, Gaussian, RationalQuadratic, Scaled

# As users run: our own messages answer, not those of the shape checks.
pytestmark = pytest.mark.usefixtures("without_shape_checks")

NOT_POSITIVE = [0.0, -1.5, math.nan, math.inf, -math.inf]
NOT_COUNTS = [0, -3, 2.5, True, None, "3"]


# -- the input of a head -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gates", ["sample", "batch"])
@pytest.mark.parametrize("method", ["forward", "evaluate"])
@pytest.mark.parametrize("shape", [(5, 3), (5,), (2, 5, 3), ()], ids=str)
def test_features_of_another_width_are_refused(shape, method, gates):
    with pytest.raises(ValueError, match=rf"features must have width 4.*{_escaped(shape)}"):
        getattr(GatedDomainUnits(4, 2), method)(torch.randn(shape), gates=gates)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0, 4)], ids=str)
def test_an_empty_batch_is_refused(shape):
    with pytest.raises(ValueError, match=rf"empty batch.*{_escaped(shape)}"):
        GatedDomainUnits(4, 2)(torch.randn(shape))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64])
def test_features_that_are_no_real_numbers_are_refused(dtype):
    with pytest.raises(TypeError, match=f"features must be floating point.*{dtype}"):
        GatedDomainUnits(4, 2)(torch.ones(5, 4).to(dtype))


def test_an_integer_gating_view_is_refused():
    with pytest.raises(TypeError, match=r"gating must be floating point.*torch\.int64"):
        GatedDomainUnits(4, 2, gating_features=3)(torch.randn(5, 4), torch.ones(5, 3).long())


def test_a_missing_gating_view_is_asked_for():
    with pytest.raises(ValueError, match="view of width 3, the features have 4: pass that view as gating="):
        GatedDomainUnits(4, 2, gating_features=3)(torch.randn(5, 4))


def test_a_gating_view_of_another_width_is_refused():
    with pytest.raises(ValueError, match=r"gating must have width 3.*\(5, 4\); .*gating_features=4\)"):
        GatedDomainUnits(4, 2, gating_features=3)(torch.randn(5, 4), torch.randn(5, 4))


@pytest.mark.parametrize("shape", [(6, 3), (1, 3), (5, 1, 3), (3,)], ids=str)
def test_a_gating_view_with_other_rows_is_refused(shape):
    with pytest.raises(ValueError, match=rf"row for each row.*{_escaped(shape)}.*\(5, 4\)"):
        GatedDomainUnits(4, 2, gating_features=3)(torch.randn(5, 4), torch.randn(shape))


@pytest.mark.parametrize("gates", ["batches", "", None, 3])
def test_an_unknown_kind_of_gates_is_refused(gates):
    with pytest.raises((ValueError, TypeError), match=rf"'sample', 'batch' or a GateStream.*{gates!r}"):
        GatedDomainUnits(4, 2)(torch.randn(5, 4), gates=gates)


def test_novelty_refuses_what_forward_refuses():
    with pytest.raises(ValueError, match=r"width 4.*\(5, 3\)"):
        GatedDomainUnits(4, 2).novelty(torch.randn(5, 3))


# -- the numbers of a head ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["in_features", "out_features", "basis_size", "num_bases"])
@pytest.mark.parametrize("value", NOT_COUNTS, ids=repr)
def test_sizes_that_are_no_counts_are_refused(name, value):
    sizes = {"in_features": 4, "out_features": 2, name: value}
    with pytest.raises((ValueError, TypeError), match=rf"{name}.*{value!r}"):
        GatedDomainUnits(sizes.pop("in_features"), sizes.pop("out_features"), **sizes)


@pytest.mark.parametrize("name", ["max_bases", "gating_features"])
@pytest.mark.parametrize("value", [0, -3, 2.5], ids=repr)
def test_optional_sizes_that_are_no_counts_are_refused(name, value):
    with pytest.raises((ValueError, TypeError), match=rf"{name}.*{value!r}"):
        GatedDomainUnits(4, 2, **{name: value})


def test_less_room_than_bases_is_refused():
    with pytest.raises(ValueError, match=r"max_bases=3.*num_bases=5"):
        GatedDomainUnits(4, 2, num_bases=5, max_bases=3)


def test_room_for_one_basis_leaves_nothing_to_choose():
    with pytest.raises(ValueError, match="max_bases=1"):
        GatedDomainUnits(4, 2, num_bases="auto", max_bases=1)


@pytest.mark.parametrize("name", ["lambda_ols", "lambda_l1", "lambda_entropy", "lambda_orth"])
@pytest.mark.parametrize("value", [-1e-3, math.nan, math.inf])
def test_negative_or_endless_penalty_weights_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"{name}.*{value}"):
        GatedDomainUnits(4, 2, **{name: value})


# -- kernels and gates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", NOT_POSITIVE)
@pytest.mark.parametrize("name", KERNELS)
def test_a_width_that_is_not_positive_is_refused(name, value):
    with pytest.raises(ValueError, match=f"sigma.*{value}"):
        KERNELS[name](value)
    kernel = KERNELS[name](2.0)
    with pytest.raises(ValueError, match=f"sigma.*{value}"):
        kernel.set_sigma(value)
    assert kernel.sigma.item() == 2.0


@pytest.mark.parametrize("value", NOT_POSITIVE)
def test_alpha_and_scale_that_are_not_positive_are_refused(value):
    with pytest.raises(ValueError, match=f"alpha.*{value}"):
        RationalQuadratic(1.0, alpha=value)
    with pytest.raises(ValueError, match=f"scale.*{value}"):
        Scaled(Gaussian(1.0), value)


@pytest.mark.parametrize("value", NOT_POSITIVE)
@pytest.mark.parametrize("gate", [CosineGate, MMDGate])
def test_a_kappa_that_is_not_positive_is_refused(gate, value):
    with pytest.raises(ValueError, match=f"kappa.*{value}"):
        gate(value)
    kept = gate(2.0)
    with pytest.raises(ValueError, match=f"kappa.*{value}"):
        kept.set_kappa(value)
    assert kept.kappa.item() == 2.0


@pytest.mark.parametrize("value", [-1e-3, math.nan, math.inf])
def test_a_ridge_below_zero_or_endless_is_refused(value):
    with pytest.raises(ValueError, match=f"ridge.*{value}"):
        ProjectionGate(value)


def test_an_average_of_no_kernels_is_refused():
    with pytest.raises(ValueError, match="at least one kernel"):
        Average([])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"gate": "cosin"}, "unknown gate 'cosin'; known: cosine, mmd, projection; did you mean 'cosine'?"),
        ({"gate": "softmax"}, "unknown gate 'softmax'; known: cosine, mmd, projection"),
        ({"kernel": "Gauss"}, "unknown kernel 'Gauss'; known: gaussian, laplacian, rational_quadratic, matern32, "),
        ({"kernel": "Gauss"}, "did you mean 'gaussian'?"),
        ({"task": "regressions"}, "did you mean 'regression'?"),
        ({"task": nn.MSELoss()}, "task must be a task or its name, got MSELoss()"),
        (
            {"orthogonality": "srp"},
            "unknown orthogonality 'srp'; known: srip, soft_orthogonality, mutual_coherence; did",
        ),
        ({"orthogonality_target": "diag"}, "target must be 'diagonal' or 'identity', got 'diag'"),
        ({"gate": CosineGate}, "gate must be a gate or its name, got <class"),
        ({"kernel": Gaussian}, "kernel must be a kernel, its name or a callable k(x, z), got <class"),
    ],
)
def test_an_unknown_part_is_refused_with_the_known_names(settings, said):
    with pytest.raises((ValueError, TypeError), match=re.escape(said)):
        GatedDomainUnits(8, 3, **settings)


def test_an_unknown_target_of_orthogonality_is_refused():
    out = GatedDomainUnits(4, 2).evaluate(torch.randn(5, 4))
    for penalty in (penalties.soft_orthogonality, penalties.srip):
        with pytest.raises(ValueError, match="'unit'"):
            penalty(out, "unit")


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -3, 2.5])
def test_a_stream_needs_room(value):
    with pytest.raises(ValueError, match=f"size.*{value}"):
        GateStream(value)


@pytest.mark.parametrize("value", NOT_POSITIVE)
def test_a_half_life_that_is_not_positive_is_refused(value):
    with pytest.raises(ValueError, match=f"half_life.*{value}"):
        GateStream(5, half_life=value)


def test_an_empty_stream_has_no_weights():
    with pytest.raises(ValueError, match="empty"):
        _ = GateStream(5).weights


def test_a_stream_refuses_rows_of_another_width():
    stream = GateStream(5)
    stream.push(torch.randn(2, 3))
    with pytest.raises((ValueError, RuntimeError), match=r"3.*4|4.*3"):
        stream.push(torch.randn(2, 4))


# -- fitting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fit_bases", "fit_sigma", "fit_coverage", "health"])
@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (torch.randn(20, 3), ValueError, r"width 4.*\(20, 3\)"),
        (torch.randn(4), ValueError, r"width 4.*\(4,\)"),
        (torch.ones(20, 4).long(), TypeError, r"floating point.*torch\.int64"),
        (torch.full((20, 4), math.nan), ValueError, "NaN or infinity in 20 of 20 rows"),
        (torch.cat([torch.randn(19, 4), torch.full((1, 4), math.inf)]), ValueError, "NaN or infinity in 1 of 20 rows"),
        (torch.randn(0, 4), ValueError, "0"),
    ],
    ids=["width", "vector", "integer", "nan", "infinity", "empty"],
)
def test_rows_that_nothing_can_be_fitted_to_are_refused_and_change_nothing(method, rows, error, message):
    head = GatedDomainUnits(4, 2)
    before = {name: value.clone() for name, value in head.state_dict().items()}
    with pytest.raises(error, match=message):
        getattr(head, method)(rows)
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())


def test_fewer_rows_than_bases_are_refused():
    with pytest.raises(ValueError, match=r"5.*got 4"):
        GatedDomainUnits(4, 2, num_bases=5).fit_bases(torch.randn(4, 4))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("sigma", value) for value in NOT_POSITIVE),
        *(("kappa", value) for value in NOT_POSITIVE),
        *(("entropy", value) for value in (0.0, 1.0, -0.5, 2.0, math.nan)),
    ],
)
def test_settings_of_fit_bases_that_make_no_sense_are_refused_and_change_nothing(name, value):
    head = GatedDomainUnits(4, 2)
    before = {key: kept.clone() for key, kept in head.state_dict().items()}
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        head.fit_bases(torch.randn(50, 4), **{name: value})
    assert all(torch.equal(kept, before[key]) for key, kept in head.state_dict().items())


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: Average([Gaussian(1.0), f]), lambda f: Scaled(f, 2.0)])
def test_a_width_for_a_kernel_that_has_none_is_refused_and_changes_nothing(wrap):
    head = GatedDomainUnits(4, 2, kernel=wrap(lambda x, z: x @ z.mT))
    before = {name: value.clone() for name, value in head.state_dict().items()}
    with pytest.raises(ValueError, match="width"):
        head.fit_bases(torch.randn(50, 4), sigma=2.0)
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: Average([Gaussian(1.0), f]), lambda f: Scaled(f, 2.0)])
def test_a_kernel_that_has_no_width_can_be_fitted_without_one(wrap):
    head = GatedDomainUnits(4, 2, kernel=wrap(lambda x, z: torch.exp(-(x[:, None] - z).square().sum(-1) / 8)))
    head.fit_bases(torch.randn(50, 4))
    assert torch.isfinite(head(torch.randn(5, 4))).all()


def _escaped(shape):
    return str(tuple(shape)).replace("(", r"\(").replace(")", r"\)")
