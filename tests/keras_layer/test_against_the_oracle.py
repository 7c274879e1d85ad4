"""The Keras layer beside the oracle, on whichever backend runs: forward and gradients, float64 and float32."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("keras")

import keras  # noqa: E402
from backends import on_every_backend  # noqa: E402
from gradients import COMPILERS, with_gradients  # noqa: E402
from keras import ops  # noqa: E402
from oracle_cases import (  # noqa: E402
    HIDDEN,
    KAPPA,
    MIN_SCALE,
    ONE_BASIS,
    OUTPUTS,
    ROWS,
    SIZE,
    TOLERANCES,
    Array,
    Case,
    assert_close,
    every_corner,
    every_head,
    every_triple,
    oracle,
    some_heads,
    some_triples,
)
from spec_oracle import PENALTY_WEIGHTS, deviation_norm, weights_of_the_loss  # noqa: E402

from gated_domains.keras_layer import (  # noqa: E402
    CosineGate,
    GatedDomainUnits,
    GatedOutput,
    LinearExperts,
    MLPExperts,
    MMDGate,
    ProbabilisticRegression,
    ProjectionGate,
    StackedExperts,
    kernels,
    penalties,
)
from gated_domains.keras_layer.experts import Experts  # noqa: E402


def polynomial(x: Any, z: Any) -> Any:
    return (0.3 * (x @ ops.transpose(z)) + 0.6) ** 2


@keras.saving.register_keras_serializable("oracle")
def exact_tanh(x: Any) -> Any:
    return 2 * ops.sigmoid(2 * x) - 1


def tanh(precision: str) -> Any:
    """Keras's own where it serves; on JAX it gives float32 for float64."""
    return "tanh" if precision == "float32" else exact_tanh


def dense(outputs: int, precision: str, activation: Any = None) -> keras.layers.Layer:
    """Keras's Dense where it serves; on PyTorch it computes in float32 whatever its precision."""
    if precision == "float32":
        return keras.layers.Dense(outputs, activation=activation)
    return keras.layers.EinsumDense("bi,io->bo", outputs, bias_axes="o", activation=activation, dtype=precision)


def network(outputs: int, precision: str) -> keras.Sequential:
    return keras.Sequential([dense(HIDDEN, precision, tanh(precision)), dense(outputs, precision)])


KERNELS = {
    "gaussian": lambda: kernels.Gaussian(1.5),
    "laplacian": lambda: kernels.Laplacian(2.0),
    "rational_quadratic": lambda: kernels.RationalQuadratic(1.5, alpha=0.75),
    "matern32": lambda: kernels.Matern32(2.5),
    "matern52": lambda: kernels.Matern52(2.5),
    "inverse_multiquadric": lambda: kernels.InverseMultiquadric(1.25),
    "average": lambda: kernels.Average([kernels.Gaussian(1.0), kernels.Matern32(3.0)]),
    "scaled": lambda: kernels.Scaled(kernels.Gaussian(1.5), 1.5),
    "function": lambda: polynomial,
}
GATES = {
    "cosine": partial(CosineGate, KAPPA),
    "mmd": partial(MMDGate, KAPPA),
    "projection": ProjectionGate,
    "exact": partial(ProjectionGate, 0.0),
    "exact_ridge": partial(ProjectionGate, 1e-3),
}
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
COMPILED = [
    Case("cosine", "gaussian", "linear", "covered"),
    Case("mmd", "laplacian", "mlp", "plain_view", pooled=True),
    Case("exact", "matern32", "stacked", "covered_view"),
    Case("projection", "function", "linear_tanh", "covered", probabilistic=True, bases=2, spare=1),
    ONE_BASIS,
]
# The layer's names for penalties on orthogonality, and the oracle's.
ORTHOGONALITY = {
    ("srip", "diagonal"): "srip",
    ("srip", "identity"): "srip_to_identity",
    ("soft_orthogonality", "diagonal"): "soft_orthogonality",
    ("soft_orthogonality", "identity"): "soft_orthogonality_to_identity",
    ("mutual_coherence", "diagonal"): "mutual_coherence",
}


@pytest.fixture(params=TOLERANCES)
def precision(request: pytest.FixtureRequest) -> Iterator[str]:
    """float64 and float32; JAX has the first only where it is switched on."""
    if keras.backend.backend() != "jax":
        yield request.param
        return
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", request.param == "float64")
    yield request.param
    jax.config.update("jax_enable_x64", before)


in_float32 = pytest.mark.parametrize("precision", ["float32"], indirect=True)


def experts_of(case: Case, precision: str) -> Experts:
    if case.experts == "stacked":
        return StackedExperts(network(OUTPUTS * (1 + case.probabilistic), precision))
    bias = not case.experts.endswith("no_bias")
    if case.experts.startswith("mlp"):
        return MLPExperts(hidden=HIDDEN, activation=tanh(precision) if "tanh" in case.experts else "relu", bias=bias)
    return LinearExperts(tanh(precision) if "tanh" in case.experts else None, bias=bias)


def layer_of(case: Case, precision: str, **more: Any) -> GatedDomainUnits:
    """A case as a layer, built, with the oracle's numbers."""
    known = oracle(case).known
    layer = GatedDomainUnits(
        OUTPUTS,
        num_bases=case.bases,
        max_bases=case.bases + case.spare,
        basis_size=SIZE,
        kernel=KERNELS[case.kernel](),
        gate=GATES[case.gate](),
        experts=experts_of(case, precision),
        shared=known.settings.shared,
        coverage=known.settings.quantiles is not None,
        task=ProbabilisticRegression(MIN_SCALE) if case.probabilistic else None,
        dtype=precision,
        **more,
    )
    layer.build(known.features.shape, None if known.gating is None else known.gating.shape)
    for place in places_of(layer):
        place.variable.assign(place.taken(known.parameters[place.name]).astype(precision))
    if known.settings.quantiles is not None:
        for name, value in zip(("q50", "q97"), known.settings.quantiles, strict=True):
            layer.coverage.set(name, value)
    return layer


class Place(NamedTuple):
    """A variable, and which of the oracle's parameters it holds: one, or of a stack one member's, transposed."""

    variable: keras.Variable
    name: str
    member: int | None = None

    def taken(self, value: Array) -> Array:
        return value if self.member is None else value[self.member].T


def places_of(layer: GatedDomainUnits) -> list[Place]:
    """Where the oracle's parameters lie in a layer; every variable that is trained holds one."""
    places = [Place(layer.bases, "bases")]
    for kind, bank in (("experts", layer.experts), ("shared", layer.shared)):
        if isinstance(layer.kind_of_experts, StackedExperts) and bank is not None:
            for j, member in enumerate(bank.members):
                for name, dense in zip(("lower", "upper"), member.layers, strict=True):
                    places.append(Place(dense.kernel, f"{kind}.{name}.weight", j))
                    places.append(Place(dense.bias, f"{kind}.{name}.bias", j))
        elif bank is not None:
            for holder, under in ((bank, kind), (getattr(bank, "first", None), f"{kind}.first")):
                for name in ("weight", "bias"):
                    if getattr(holder, name, None) is not None:
                        places.append(Place(getattr(holder, name), f"{under}.{name}"))
    assert len(places) == len(layer.trainable_variables)
    return places


def found(out: GatedOutput, case: Case) -> dict[str, Any]:
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


def loss_of(values: dict[str, Any]) -> Any:
    """The oracle's loss."""
    of_prediction, of_variance = weights_of_the_loss((ROWS, OUTPUTS))

    def weighed(name: str, weights: Array) -> Any:
        return ops.sum(ops.cast(ops.convert_to_tensor(weights), values[name].dtype) * values[name])

    total = weighed("prediction", of_prediction)
    if "variance" in values:
        total = total + weighed("variance", of_variance)
    return total + sum(weight * values[name] for name, weight in PENALTY_WEIGHTS.items() if name in values)


def assert_agrees(case: Case, precision: str, *, compiled: str | None = None) -> None:
    """Everything a layer finds, and every gradient, is the oracle's."""
    known, tolerance = oracle(case).known, TOLERANCES[precision]
    layer = layer_of(case, precision)
    places = places_of(layer)
    inputs = {"features": known.features} | ({} if known.gating is None else {"gating": known.gating})

    def evaluated(*tensors: Any) -> tuple[Any, dict[str, Any]]:
        out = layer.evaluate(*tensors, gates="batch" if case.pooled else "sample")
        values = found(out, case)
        return loss_of(values), {**values, "spare": out.beta[:, case.bases :]}

    arrays = [value.astype(precision) for value in inputs.values()]
    values, of_variables, of_arrays = with_gradients(
        evaluated, [place.variable for place in places], arrays, compiled=compiled
    )
    assert not values.pop("spare").any()
    said = oracle(case)
    assert values.keys() == said.found.keys()
    for name, value in values.items():
        assert value.dtype == precision
        assert_close(value, said.found[name], tolerance, what=name)
    for place, value in zip(places, of_variables, strict=True):
        assert_close(value, place.taken(said.gradient[place.name]), tolerance, what=f"gradient of {place.name}")
    for name, value in zip(inputs, of_arrays, strict=True):
        assert_close(value, said.gradient[name], tolerance, what=f"gradient of {name}")


@pytest.mark.parametrize("case", on_every_backend(some_triples(), of=every_triple()), ids=str)
def test_every_gate_kernel_and_kind_of_experts(case: Case, precision: str) -> None:
    assert_agrees(case, precision)


@pytest.mark.parametrize("case", on_every_backend(some_heads(), of=every_head()), ids=str)
def test_every_gate_by_batch_and_every_gate_with_a_variance(case: Case, precision: str) -> None:
    assert_agrees(case, precision)


@pytest.mark.parametrize("case", every_corner(), ids=str)
def test_spare_bases_a_sample_on_a_basis_and_data_far_from_the_origin(case: Case, precision: str) -> None:
    assert_agrees(case, precision)


@in_float32
@pytest.mark.parametrize("compiled", COMPILERS[keras.backend.backend()])
@pytest.mark.parametrize("case", COMPILED, ids=str)
def test_compiled(case: Case, precision: str, compiled: str) -> None:
    assert_agrees(case, precision, compiled=compiled)


@in_float32
@pytest.mark.parametrize(("orthogonality", "target"), ORTHOGONALITY)
def test_a_call_adds_each_penalty_times_its_lambda_and_its_scale(
    orthogonality: str, target: str, precision: str
) -> None:
    case, tolerance = Case("projection", "gaussian", "linear", "covered"), TOLERANCES[precision]
    lambdas = {"lambda_ols": 0.3, "lambda_l1": 0.2, "lambda_entropy": 0.5, "lambda_orth": 0.7, "lambda_dev": 0.4}
    layer = layer_of(case, precision, orthogonality=orthogonality, orthogonality_target=target, **lambdas)
    scales = np.array([1.0, 0.5, 2.0, 0.25, 3.0])
    layer.penalty_scales.assign(scales.astype(precision))
    said = oracle(case)
    features = ops.convert_to_tensor(said.known.features.astype(precision))

    names = ["reconstruction", "sparsity", "entropy", ORTHOGONALITY[orthogonality, target]]
    unweighted = [said.found[name] for name in names] + [deviation_norm(said.known.parameters, case.bases)]
    weighted = [scale * by * value for scale, by, value in zip(scales, lambdas.values(), unweighted, strict=True)]
    assert_close(ops.convert_to_numpy(layer(features)), said.found["prediction"], tolerance, what="prediction")
    assert_close([ops.convert_to_numpy(value) for value in layer.losses], weighted, tolerance, what="losses")
    out = layer.evaluate(features)
    terms = layer.penalty_terms(out)
    assert tuple(terms) == layer.PENALTIES
    assert_close([ops.convert_to_numpy(value) for value in terms.values()], unweighted, tolerance, what="terms")
    assert_close(ops.convert_to_numpy(layer.penalty(out)), sum(weighted), tolerance, what="penalty")


@in_float32
@pytest.mark.parametrize("experts", ["linear", "linear_no_bias", "mlp", "stacked"])
@pytest.mark.parametrize("spare", [0, 2])
def test_the_penalty_on_deviations_is_the_mean_square_of_those_in_use(experts: str, spare: int, precision: str) -> None:
    case = Case("cosine", "gaussian", experts, "shared", spare=spare)
    expected = deviation_norm(oracle(case).known.parameters, case.bases)
    norm = ops.convert_to_numpy(layer_of(case, precision).deviation_norm())
    assert_close(norm, expected, TOLERANCES[precision], what="deviations")


@in_float32
def test_a_call_of_a_probabilistic_layer_gives_mean_and_variance_side_by_side(precision: str) -> None:
    case = Case("cosine", "gaussian", "linear", "covered_view", probabilistic=True)
    said = oracle(case)
    features, gating = (ops.convert_to_tensor(x.astype(precision)) for x in (said.known.features, said.known.gating))
    both = np.concatenate([said.found["prediction"], said.found["variance"]], axis=-1)
    layer = layer_of(case, precision)
    for given in (layer(features, gating), layer([features, gating])):
        assert_close(ops.convert_to_numpy(given), both, TOLERANCES[precision], what="call")


@in_float32
def test_rows_may_lie_in_more_dimensions(precision: str) -> None:
    case = Case("exact", "gaussian", "mlp", "covered_view")
    said, layer = oracle(case), layer_of(case, precision)
    features, gating = (x.astype(precision).reshape(ROWS, 1, -1) for x in (said.known.features, said.known.gating))
    out = layer.evaluate(ops.convert_to_tensor(features), ops.convert_to_tensor(gating))
    lying = {
        "prediction": out.prediction,
        "beta": out.beta,
        "coverage": out.coverage,
        "self_product": out.products.self_product,
        "cross": out.products.cross,
    }
    for name, value in lying.items():
        expected = said.found[name].reshape(ROWS, 1, *said.found[name].shape[1:])
        assert_close(ops.convert_to_numpy(value), expected, TOLERANCES[precision], what=name)
