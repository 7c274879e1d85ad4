"""The PyTorch layer beside the oracle that the Keras layer is held against: forward and gradients, float64 and float32.

It needs no Keras, so of the runs for several backends one is enough.
"""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import pytest
import torch
from oracle_cases import (
    FEATURES,
    GATING,
    HIDDEN,
    KAPPA,
    MIN_SCALE,
    ONE_BASIS,
    OUTPUTS,
    ROWS,
    SIZE,
    TOLERANCES,
    Case,
    assert_close,
    every_corner,
    every_head,
    every_triple,
    oracle,
)
from spec_oracle import PENALTY_WEIGHTS, weights_of_the_loss
from torch import Tensor, nn

from gated_domains.layer import (
    CosineGate,
    GatedDomainUnits,
    GatedOutput,
    LinearExperts,
    MLPExperts,
    MMDGate,
    ProjectionGate,
    StackedExperts,
    kernels,
    penalties,
)
from gated_domains.layer.experts import ProbabilisticRegression

pytestmark = [
    pytest.mark.extras,
    pytest.mark.skipif(os.environ.get("KERAS_BACKEND", "torch") != "torch", reason="once is enough"),
]


def network(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, outputs))


KERNELS = {
    "gaussian": lambda: kernels.Gaussian(1.5),
    "laplacian": lambda: kernels.Laplacian(2.0),
    "rational_quadratic": lambda: kernels.RationalQuadratic(1.5, alpha=0.75),
    "matern32": lambda: kernels.Matern32(2.5),
    "matern52": lambda: kernels.Matern52(2.5),
    "inverse_multiquadric": lambda: kernels.InverseMultiquadric(1.25),
    "average": lambda: kernels.Average([kernels.Gaussian(1.0), kernels.Matern32(3.0)]),
    "scaled": lambda: kernels.Scaled(kernels.Gaussian(1.5), 1.5),
    "function": lambda: lambda x, z: (0.3 * (x @ z.mT) + 0.6) ** 2,
}
GATES = {
    "cosine": partial(CosineGate, KAPPA),
    "mmd": partial(MMDGate, KAPPA),
    "projection": ProjectionGate,
    "exact": partial(ProjectionGate, 0.0),
    "exact_ridge": partial(ProjectionGate, 1e-3),
}
EXPERTS = {
    "linear": LinearExperts,
    "linear_no_bias": partial(LinearExperts, bias=False),
    "linear_tanh": partial(LinearExperts, activation=torch.tanh),
    "mlp": partial(MLPExperts, hidden=HIDDEN),
    "mlp_tanh_no_bias": partial(MLPExperts, hidden=HIDDEN, activation=torch.tanh, bias=False),
    "stacked": partial(StackedExperts, factory=network),
}
# As the oracle names them.
STACKED = {"stacked_0__weight": "lower.weight", "stacked_0__bias": "lower.bias"}
STACKED |= {"stacked_2__weight": "upper.weight", "stacked_2__bias": "upper.bias"}
PENALTIES = {
    "reconstruction": penalties.reconstruction,
    "sparsity": penalties.sparsity,
    "entropy": penalties.entropy,
    "soft_orthogonality": penalties.soft_orthogonality,
    "soft_orthogonality_to_identity": partial(penalties.soft_orthogonality, target="identity"),
    "srip": penalties.srip,
    "srip_to_identity": partial(penalties.srip, target="identity"),
    "mutual_coherence": penalties.mutual_coherence,
    "distributional_variance": penalties.distributional_variance,
}


class Built:
    """A case as a layer of a precision, with its inputs, and the loss of the oracle."""

    def __init__(self, case: Case, precision: str) -> None:
        known = oracle(case).known
        self.case = case
        self.head = GatedDomainUnits(
            FEATURES,
            OUTPUTS,
            num_bases=case.bases,
            max_bases=case.bases + case.spare,
            basis_size=SIZE,
            kernel=KERNELS[case.kernel](),
            gate=GATES[case.gate](),
            experts=EXPERTS[case.experts],
            shared=known.settings.shared,
            coverage=known.settings.quantiles is not None,
            task=ProbabilisticRegression(MIN_SCALE) if case.probabilistic else None,
            gating_features=None if known.gating is None else GATING,
        ).to(getattr(torch, precision))
        self.parameters = {_oracle_name(name): value for name, value in self.head.named_parameters()}
        assert self.parameters.keys() == known.parameters.keys()
        with torch.no_grad():
            for name, value in self.parameters.items():
                value.copy_(torch.from_numpy(known.parameters[name]))
        if known.settings.quantiles is not None:
            self.head.coverage.q50.fill_(known.settings.quantiles[0])
            self.head.coverage.q97.fill_(known.settings.quantiles[1])

        def leaf(value: np.ndarray) -> Tensor:
            return torch.tensor(value, dtype=getattr(torch, precision), requires_grad=True)

        self.features = leaf(known.features)
        self.gating = None if known.gating is None else leaf(known.gating)

    def evaluate(self) -> GatedOutput:
        return self.head.evaluate(self.features, self.gating, gates="batch" if self.case.pooled else "sample")

    def leaves(self) -> dict[str, Tensor]:
        view = {} if self.gating is None else {"gating": self.gating}
        return {**self.parameters, "features": self.features, **view}


def _oracle_name(name: str) -> str:
    kind, _, rest = name.partition(".")
    return ".".join([kind, STACKED.get(rest, rest)]) if rest else kind


def found(out: GatedOutput, case: Case) -> dict[str, Tensor]:
    """By the oracle's names, of the bases in use alone."""
    used, optional = case.bases, {"variance": out.variance, "coverage": out.coverage}
    return {
        "prediction": out.prediction,
        "beta": out.beta[:, :used],
        "self_product": out.products.self_product,
        "cross": out.products.cross[:, :used],
        "gram": out.products.gram[:used, :used],
        **{name: value for name, value in optional.items() if value is not None},
        **({name: penalty(out) for name, penalty in PENALTIES.items()} if case.penalised else {}),
    }


def loss_of(values: dict[str, Tensor]) -> Tensor:
    """The oracle's loss."""
    of_prediction, of_variance = (
        torch.from_numpy(weights).to(values["prediction"]) for weights in weights_of_the_loss((ROWS, OUTPUTS))
    )
    total = (of_prediction * values["prediction"]).sum()
    if "variance" in values:
        total = total + (of_variance * values["variance"]).sum()
    return total + sum(weight * values[name] for name, weight in PENALTY_WEIGHTS.items() if name in values)


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("case", [*every_triple(), *every_head(), *every_corner(), ONE_BASIS], ids=str)
def test_the_torch_layer_agrees_with_the_oracle_forward_and_in_gradients(case: Case, precision: str) -> None:
    built, said, tolerance = Built(case, precision), oracle(case), TOLERANCES[precision]
    out = built.evaluate()
    assert not out.beta[:, case.bases :].any()
    values = found(out, case)
    assert values.keys() == said.found.keys()
    for name, value in values.items():
        assert value.dtype == getattr(torch, precision)
        assert_close(value.detach().numpy(), said.found[name], tolerance, what=name)

    loss_of(values).backward()
    leaves = built.leaves()
    assert leaves.keys() == said.gradient.keys()
    for name, leaf in leaves.items():
        assert_close(leaf.grad.numpy(), said.gradient[name], tolerance, what=f"gradient of {name}")
