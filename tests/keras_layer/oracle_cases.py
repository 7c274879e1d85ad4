"""Small layers to be held against the oracle: their parts by name, their numbers, and what the oracle says of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import spec_oracle

Array = np.ndarray[Any, Any]

ROWS, FEATURES, GATING, BASES, SIZE, OUTPUTS, HIDDEN = 5, 4, 3, 3, 2, 2, 5
MIN_SCALE = 0.05
KAPPA = 3.0
TOLERANCES = {"float64": 1e-10, "float32": 1e-5}

KERNELS = {
    "gaussian": spec_oracle.gaussian(1.5),
    "laplacian": spec_oracle.laplacian(2.0),
    "rational_quadratic": spec_oracle.rational_quadratic(1.5, alpha=0.75),
    "matern32": spec_oracle.matern32(2.5),
    "matern52": spec_oracle.matern52(2.5),
    "inverse_multiquadric": spec_oracle.inverse_multiquadric(1.25),
    "average": spec_oracle.average(spec_oracle.gaussian(1.0), spec_oracle.matern32(3.0)),
    "scaled": spec_oracle.scaled(spec_oracle.gaussian(1.5), 1.5),
    "function": spec_oracle.polynomial(0.3, 0.6),
}
# Which gate, and the ridge of a projection.
GATES = {
    "cosine": ("cosine", None),
    "mmd": ("mmd", None),
    "projection": ("projection", None),
    "exact": ("projection", 0.0),
    "exact_ridge": ("projection", 1e-3),
}
EXPERTS: dict[str, Callable[..., Array]] = {
    "linear": spec_oracle.linear,
    "linear_no_bias": spec_oracle.linear,
    "linear_tanh": spec_oracle.linear_tanh,
    "mlp": spec_oracle.mlp_relu,
    "mlp_tanh_no_bias": spec_oracle.mlp_tanh,
    "stacked": spec_oracle.stacked_network,
}
# Whether there is a shared expert, whether coverage holds its deviations back, whether gates see a view of their own.
MODES = {
    f"{mode}{view}": (mode != "plain", mode == "covered", bool(view))
    for mode in ("plain", "shared", "covered")
    for view in ("", "_view")
}


class Case(NamedTuple):
    """One layer, by the names of its parts."""

    gate: str
    kernel: str
    experts: str
    mode: str
    probabilistic: bool = False
    pooled: bool = False
    spare: int = 0
    """Places for bases that are not in use."""
    bases: int = BASES
    data: str = "random"
    """Or ``touching``: a sample lies on a vector of a basis; or ``far``: everything is far from the origin."""
    penalised: bool = True
    """Whether the loss has penalties. They look at gates alone: one kind of experts for each gate is enough."""

    def __str__(self) -> str:
        words = [self.gate, self.kernel, self.experts, self.mode]
        words += [name for name in ("probabilistic", "pooled") if getattr(self, name)]
        words += [f"{self.bases}_bases"] * (self.bases != BASES) + [f"{self.spare}_spare"] * bool(self.spare)
        return "-".join(words + [self.data] * (self.data != "random"))


ONE_BASIS = Case("exact", "gaussian", "linear", "covered", bases=1)


class Known(NamedTuple):
    """The numbers of a case, all of them representable in float32, and the oracle's settings for it."""

    parameters: dict[str, Array]
    features: Array
    gating: Array | None
    settings: spec_oracle.Settings


class Said:
    """What the oracle says of a case."""

    def __init__(self, known: Known) -> None:
        self.known = known

    @cached_property
    def found(self) -> dict[str, Array]:
        return spec_oracle.evaluate(*self.known)

    @cached_property
    def loss(self) -> float:
        return float(spec_oracle.loss(*self.known))

    @cached_property
    def gradient(self) -> dict[str, Array]:
        return spec_oracle.gradient(*self.known)


@cache
def oracle(case: Case) -> Said:
    """Once for every case, whatever is held against it."""
    return Said(numbers(case))


def every_triple() -> list[Case]:
    """Every gate with every kernel with every kind of experts; the modes take turns, so that each pair meets most."""
    modes = list(MODES)
    return [
        Case(gate, kernel, experts, modes[(g + k + e) % len(modes)], penalised=e == g)
        for g, gate in enumerate(GATES)
        for k, kernel in enumerate(KERNELS)
        for e, experts in enumerate(EXPERTS)
    ]


def every_head() -> list[Case]:
    """Every gate in every mode, by batch and with a probabilistic head; kernels and experts take turns."""
    kernels, experts = list(KERNELS), list(EXPERTS)
    wholes = [
        (gate, mode, probabilistic, pooled)
        for gate in GATES
        for mode in MODES
        for probabilistic, pooled in ((False, True), (True, False))  # neither: the triples; both: a corner
    ]
    return [
        Case(
            gate,
            kernels[i % len(kernels)],
            experts[(i + i // 6) % len(experts)],
            mode,
            probabilistic,
            pooled,
            penalised=pooled and mode.startswith("plain"),
        )
        for i, (gate, mode, probabilistic, pooled) in enumerate(wholes)
    ]


def some_triples() -> list[Case]:
    """Of the triples one for each kernel; every gate and kind of experts is among them, every gate with penalties."""
    gates, experts = list(GATES), list(EXPERTS)
    parts = {(gates[k % len(gates)], kernel, experts[k % len(experts)]) for k, kernel in enumerate(KERNELS)}
    return [case for case in every_triple() if case[:3] in parts]


def some_heads() -> list[Case]:
    """Of the heads two for each mode, by batch and probabilistic; every gate is among them."""
    gates, modes = list(GATES), list(MODES)
    return [case for case in every_head() if case.gate == gates[(modes.index(case.mode) + case.pooled) % len(gates)]]


def every_corner() -> list[Case]:
    """Bases not in use, a sample on a vector of a basis, everything far from the origin."""
    # As many places as elsewhere, so that backends which compile by shape have compiled already.
    spare = [
        Case(gate, "gaussian", "linear", mode, spare=1, bases=2, penalised=mode == "plain")
        for gate in GATES
        for mode in ("plain", "covered_view")
    ]
    spare.append(Case("cosine", "matern32", "mlp", "covered", probabilistic=True, pooled=True, spare=1, bases=2))
    spare.append(Case("projection", "gaussian", "stacked", "shared", probabilistic=True, spare=1, bases=2))
    alone = [Case(gate, "gaussian", "linear", "covered", spare=2, bases=1) for gate in GATES]
    touching = [Case("mmd", kernel, "linear", "plain", data="touching") for kernel in KERNELS]
    kernels = ("gaussian", "laplacian", "matern32", "rational_quadratic", "inverse_multiquadric")
    far = [
        Case(gate, kernel, "linear", "covered_view", data="far") for gate, kernel in zip(GATES, kernels, strict=True)
    ]
    return spare + alone + touching + far


def numbers(case: Case) -> Known:
    """The same parameters for every case with the same shapes."""
    rng = np.random.default_rng(5)

    def normal(*shape: int, scale: float = 1.0) -> Array:
        return _representable(scale * rng.normal(size=shape))

    shared, covered, view = MODES[case.mode]
    features = normal(ROWS, FEATURES)
    gating = normal(ROWS, GATING) if view else None
    bases = normal(case.bases + case.spare, SIZE, GATING if view else FEATURES)
    bases[np.arange(len(bases)), :, np.arange(len(bases)) % bases.shape[-1]] += 1.5  # apart from each other
    seen = features if gating is None else gating
    if case.data == "touching":
        bases[1, 0] = seen[2]
    if case.data == "far":
        bases, seen = _representable(bases + 1000), _representable(seen + 1000)
        features, gating = (features, seen) if view else (seen, None)

    outputs = OUTPUTS * (1 + case.probabilistic)
    shapes = expert_shapes(case.experts, outputs)
    parameters = {"bases": _representable(bases)}
    for name, shape in shapes.items():
        parameters[f"experts.{name}"] = normal(case.bases + case.spare, *shape, scale=0.6)
    if shared:
        for name, shape in shapes.items():
            parameters[f"shared.{name}"] = normal(1, *shape, scale=0.6)

    gate, ridge = GATES[case.gate]
    settings = spec_oracle.Settings(
        kernel=KERNELS[case.kernel],
        gate=gate,
        experts=EXPERTS[case.experts],
        kappa=KAPPA,
        ridge=ridge,
        shared=shared,
        min_scale=MIN_SCALE if case.probabilistic else None,
        pooled=case.pooled,
        used=case.bases,
        penalties=tuple(spec_oracle.PENALTIES) if case.penalised else (),
    )
    if covered:
        settings = settings._replace(quantiles=_quantiles(settings, seen, parameters["bases"][: case.bases]))
    return Known(parameters, features, gating, settings)


def expert_shapes(experts: str, outputs: int) -> dict[str, tuple[int, ...]]:
    """Those of one basis, by name."""
    if experts.startswith("mlp"):
        shapes = {"first.weight": (HIDDEN, FEATURES), "first.bias": (HIDDEN,)}
        shapes |= {"weight": (HIDDEN, outputs), "bias": (outputs,)}
    elif experts == "stacked":
        shapes = {"lower.weight": (HIDDEN, FEATURES), "lower.bias": (HIDDEN,)}
        shapes |= {"upper.weight": (outputs, HIDDEN), "upper.bias": (outputs,)}
    else:
        shapes = {"weight": (outputs, FEATURES), "bias": (outputs,)}
    return {name: shape for name, shape in shapes.items() if not (experts.endswith("no_bias") and "bias" in name)}


def assert_close(actual: Any, expected: Array, tolerance: float, *, what: str) -> None:
    """Every number within ``tolerance`` of the largest one expected."""
    actual, expected = np.asarray(actual, dtype=np.float64), np.asarray(expected)
    assert actual.shape == expected.shape, f"{what} has shape {actual.shape}, not {expected.shape}"
    scale = np.abs(expected).max() or 1.0
    worst = np.abs(actual - expected).max()
    assert worst <= tolerance * scale, f"{what} is off by {worst / scale:.2g} of its scale:\n{actual}\n{expected}"


def _quantiles(settings: spec_oracle.Settings, seen: Array, bases: Array) -> tuple[float, float]:
    """Such that of the rows some are covered wholly, some in part and one not at all."""
    novelty = spec_oracle.novelty(spec_oracle.inner_products(settings.kernel, seen, bases), settings)
    q50, q97 = np.quantile(novelty, [0.35, 0.9])
    return float(_representable(q50)), float(_representable(q97))


def _representable(values: Any) -> Any:
    return np.asarray(values).astype(np.float32).astype(np.float64)
