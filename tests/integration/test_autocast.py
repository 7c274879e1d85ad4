"""Mixed precision on the CPU: finite, near float32, and no overflow of large features."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gated_domains import CosineGate, GatedDomainUnits, MMDGate, ProjectionGate, fit_head, model_head, replace_head
from gated_domains.layer import MLPExperts, StackedExperts
from gated_domains.layer.experts import ProbabilisticRegression

GATES = {
    "cosine": CosineGate,
    "mmd": MMDGate,
    "projection": ProjectionGate,
    "exact": partial(ProjectionGate, ridge=1e-3),
}
# Half of the last digit that the type holds, with room for sums over 32 features.
TOLERANCE = {torch.bfloat16: 5e-2, torch.float16: 8e-3}

every_gate = pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
every_precision = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def fitted(scale: float = 1.0, **settings) -> tuple[GatedDomainUnits, torch.Tensor]:
    x = scale * torch.randn(80, 32)
    head = GatedDomainUnits(32, 3, num_bases=4, lambda_orth=0.1, **settings).fit_bases(x)
    with torch.no_grad():
        for parameter in head.experts.parameters():
            parameter.normal_(std=0.1)
    return head, x


@every_gate
@every_precision
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "not shared"])
def test_predictions_under_autocast_are_near_those_in_float32(gate, dtype, shared):
    head, x = fitted(gate=gate(), shared=shared)
    exact = head.evaluate(x)
    with torch.autocast("cpu", dtype):
        out = head.evaluate(x)
    assert out.prediction.isfinite().all()
    scale = exact.prediction.abs().max().item()
    torch.testing.assert_close(out.prediction.float(), exact.prediction, rtol=0, atol=TOLERANCE[dtype] * scale)


@every_gate
@every_precision
def test_gates_do_not_lose_precision_under_autocast(gate, dtype):
    head, x = fitted(gate=gate())
    with torch.autocast("cpu", dtype):
        out = head.evaluate(x)
    exact = head.evaluate(x)
    torch.testing.assert_close(out.products.cross, exact.products.cross, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(out.beta.float(), exact.beta, rtol=1e-3, atol=1e-3)


@every_gate
@every_precision
def test_gradients_under_autocast_are_finite_and_point_the_same_way(gate, dtype):
    head, x = fitted(gate=gate())
    y = torch.randn(80, 3)

    def gradients(enabled: bool) -> dict[str, torch.Tensor]:
        head.zero_grad()
        with torch.autocast("cpu", dtype, enabled=enabled):
            out = head.evaluate(x)
            loss = F.mse_loss(out.prediction.float(), y) + head.penalty(out)
        loss.backward()
        return {name: parameter.grad.clone() for name, parameter in head.named_parameters()}

    exact, mixed = gradients(False), gradients(True)
    for name, value in mixed.items():
        assert value.isfinite().all(), name
        assert F.cosine_similarity(value.flatten(), exact[name].flatten(), dim=0) > 0.99, name


@every_gate
@every_precision
def test_features_of_the_autocast_type_are_taken_as_a_backbone_gives_them(gate, dtype):
    head, x = fitted(gate=gate())
    exact = head(x)
    with torch.autocast("cpu", dtype):
        prediction = head(x.to(dtype))
    scale = exact.abs().max().item()
    torch.testing.assert_close(prediction.float(), exact, rtol=0, atol=2 * TOLERANCE[dtype] * scale)


@every_gate
def test_large_features_do_not_overflow_in_float16(gate):
    head, x = fitted(scale=1e4, gate=gate())
    exact = head.evaluate(x)
    with torch.autocast("cpu", torch.float16):
        out = head.evaluate(x.half())
    assert out.prediction.isfinite().all()
    assert out.beta.isfinite().all()
    torch.testing.assert_close(out.products.cross, exact.products.cross, rtol=1e-2, atol=1e-3)


@every_gate
def test_a_layer_cast_to_float16_takes_large_features_too(gate):
    head, x = fitted(scale=1e4, gate=gate())
    exact = head.evaluate(x)
    out = head.half().evaluate(x.half())
    assert out.prediction.dtype == torch.float16
    assert out.prediction.isfinite().all()
    torch.testing.assert_close(out.products.cross, exact.products.cross, rtol=1e-2, atol=1e-3)


@every_precision
@pytest.mark.parametrize(
    "settings",
    [
        {"experts": MLPExperts},
        {"experts": partial(StackedExperts, factory=nn.Linear)},
        {"task": ProbabilisticRegression()},
        {"max_bases": 6},
        {"memory_budget": 2000},
    ],
    ids=["mlp", "stacked", "probabilistic", "room to spare", "small memory"],
)
def test_other_settings_are_near_float32_under_autocast(dtype, settings):
    head, x = fitted(**settings)
    exact = head(x)
    with torch.autocast("cpu", dtype):
        prediction = head(x)
    scale = exact.abs().max().item()
    torch.testing.assert_close(prediction.float(), exact, rtol=0, atol=TOLERANCE[dtype] * scale)


@every_precision
def test_the_gate_of_a_batch_does_not_lose_precision_under_autocast(dtype):
    head, x = fitted()
    exact = head.evaluate(x, gates="batch").beta
    with torch.autocast("cpu", dtype):
        beta = head.evaluate(x, gates="batch").beta
    torch.testing.assert_close(beta.float(), exact, rtol=1e-4, atol=1e-5)


@every_gate
@every_precision
def test_coverage_novelty_and_penalties_do_not_lose_precision_under_autocast(gate, dtype):
    head, x = fitted(gate=gate())
    exact = head.evaluate(x)
    with torch.autocast("cpu", dtype):
        out = head.evaluate(x)
        penalty, novelty = head.penalty(out), head.novelty(x)
    torch.testing.assert_close(novelty, head.novelty(x), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(out.coverage, exact.coverage, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(penalty, head.penalty(exact), rtol=1e-4, atol=1e-6)


@every_precision
def test_fitting_under_autocast_is_fitting_without(dtype):
    x = torch.randn(80, 32)
    plain, mixed = (GatedDomainUnits(32, 3) for _ in range(2))
    plain.fit_bases(x)
    with torch.autocast("cpu", dtype):
        mixed.fit_bases(x)
    assert torch.equal(mixed.bases, plain.bases)
    assert mixed.kernel.sigma.item() == pytest.approx(plain.kernel.sigma.item(), rel=1e-6)
    assert mixed.gate.kappa.item() == pytest.approx(plain.gate.kappa.item(), rel=1e-2)


@every_precision
@pytest.mark.parametrize("gating", [lambda x: x.mean((2, 3)), ["0"]], ids=["callable", "names"])
def test_a_model_with_a_view_works_under_autocast(dtype, gating):
    images = torch.randn(40, 3, 6, 6)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)).eval()
    model = replace_head(model, gating=gating, example=images[:4], verbose=False)
    fit_head(model, images)
    with torch.no_grad():
        model_head(model).experts.weight.normal_(std=0.1)
    exact = model(images)
    with torch.autocast("cpu", dtype):
        prediction = model(images)
    assert prediction.isfinite().all()
    torch.testing.assert_close(prediction.float(), exact, rtol=0, atol=2 * TOLERANCE[dtype] * exact.abs().max().item())
