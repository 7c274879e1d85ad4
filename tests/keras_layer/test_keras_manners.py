"""The layer does all that Keras expects of one: its own layer test, configuration, saving, precision, compilation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("keras")

import keras  # noqa: E402
from backends import on_every_backend  # noqa: E402
from keras import ops  # noqa: E402
from keras.src.testing.test_case import TestCase  # noqa: E402

from gated_domains.keras_layer import (  # noqa: E402
    GatedDomainUnits,
    GaussianLikelihood,
    LinearExperts,
    MLPExperts,
    ProbabilisticRegression,
    ProjectionGate,
    StackedExperts,
    kernels,
    mean_and_variance,
)

BACKEND = keras.backend.backend()
OTHERS = sorted({"tensorflow", "jax", "torch"} - {BACKEND})
ALL_PENALTIES = {"lambda_ols": 0.1, "lambda_l1": 0.1, "lambda_entropy": 0.1, "lambda_orth": 0.1, "lambda_dev": 0.1}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((24, 6)).astype("float32")
Z = RNG.standard_normal((24, 4)).astype("float32")


@keras.saving.register_keras_serializable("keras_manners")
def cubic(x: Any, z: Any) -> Any:
    return (0.2 * (x @ ops.transpose(z)) + 1) ** 3


def two_layers() -> keras.Sequential:
    return keras.Sequential([keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(3)])


KINDS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"shared": False, "gate": "mmd", "kappa": 3.0, "sigma": 2.0, **ALL_PENALTIES},
    "exact": {"gate": ProjectionGate(0.01), "kernel": "matern52", "sigma": 3.0},
    "composed": {"kernel": kernels.Scaled(kernels.Average([kernels.Gaussian(1.0), kernels.Laplacian(2.0)]), 1.5)},
    "function": {"kernel": cubic, "gate": "projection", "coverage": False},
    "tanh": {"experts": LinearExperts("tanh", bias=False), "activation": "softmax"},
    "mlp": {"experts": MLPExperts(hidden=7), "orthogonality": "mutual_coherence", "lambda_orth": 0.1},
    "stacked": {"experts": StackedExperts(two_layers()), "shared": False},
    "auto": {"num_bases": "auto", "max_bases": 4, **ALL_PENALTIES},
    "probabilistic": {"task": ProbabilisticRegression()},
}


def made(kind: str, **more: Any) -> GatedDomainUnits:
    return GatedDomainUnits(3, **{"num_bases": 3, "basis_size": 2, **KINDS[kind], **more})


def model_of(head: GatedDomainUnits) -> keras.Model:
    features, gating = keras.Input((6,)), keras.Input((4,))
    return keras.Model([features, gating], head(features, gating=gating))


@pytest.fixture
def float32_again():
    yield
    keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize("kind", on_every_backend(["default", "stacked"], of=KINDS))
def test_keras_own_layer_test_passes(kind):
    settings = {"num_bases": 3, "basis_size": 2, **KINDS[kind]}
    head = GatedDomainUnits(3, **settings)
    head.build((None, 6))
    TestCase().run_layer_test(
        GatedDomainUnits,
        {"units": 3, **settings},
        input_shape=(8, 6),
        expected_output_shape=(8, 6 if kind == "probabilistic" else 3),
        expected_num_trainable_weights=len(head.trainable_weights),
        expected_num_non_trainable_weights=len(head.non_trainable_weights),
        expected_num_losses=sum(weight > 0 for weight, _ in head._weighted().values()),
        supports_masking=True,
    )


def test_keras_own_layer_test_passes_with_a_view_of_its_own_for_gates():
    TestCase().run_layer_test(
        GatedDomainUnits,
        {"units": 3, "num_bases": 3, "basis_size": 2},
        input_shape=[(8, 6), (8, 4)],
        expected_output_shape=(8, 3),
        expected_num_trainable_weights=5,
        expected_num_non_trainable_weights=6,
        expected_num_losses=2,
        supports_masking=True,
        run_training_check=BACKEND != "tensorflow",  # Keras's test hands it a list, which tf.data refuses
    )


@pytest.mark.parametrize("template", [two_layers(), keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])])
def test_no_two_weights_have_one_name(template):
    average = kernels.Average([kernels.Gaussian(1.0), kernels.Scaled(kernels.Gaussian(2.0), 0.5)])
    head = GatedDomainUnits(3, experts=StackedExperts(template), kernel=average)
    head.build((None, 6))
    paths = [weight.path for weight in head.weights]
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize("kind", on_every_backend(["exact", "mlp", "stacked", "probabilistic"], of=KINDS))
def test_a_saved_model_says_the_same_when_loaded(kind, tmp_path):
    head = made(kind)
    model = model_of(head)
    for weight in head.trainable_weights:
        weight.assign(RNG.normal(size=weight.shape).astype("float32"))
    head.fit_bases(Z)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    again = next(layer for layer in loaded.layers if isinstance(layer, GatedDomainUnits))
    np.testing.assert_allclose(
        ops.convert_to_numpy(loaded([X, Z])), ops.convert_to_numpy(model([X, Z])), rtol=1e-6, atol=1e-6
    )
    assert again.num_bases == head.num_bases
    assert repr(again.kernel) == repr(head.kernel)
    assert repr(again.gate) == repr(head.gate)
    assert (again.coverage.q50, again.coverage.q97) == (head.coverage.q50, head.coverage.q97)
    assert again.get_config() == head.get_config()


def test_weights_alone_are_saved_and_loaded_too(tmp_path):
    model, other = model_of(made("default")), model_of(made("default"))
    model.layers[-1].fit_bases(Z)
    model.save_weights(tmp_path / "head.weights.h5")
    other.load_weights(tmp_path / "head.weights.h5")
    for one, two in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(one), ops.convert_to_numpy(two))


LOADING = """
import sys, numpy as np, keras
import gated_domains.keras_layer
assert keras.backend.backend() == sys.argv[1]
model = keras.models.load_model(sys.argv[2] + "/model.keras")
held = np.load(sys.argv[2] + "/held.npz")
said = keras.ops.convert_to_numpy(model([held["x"], held["z"]]))
np.testing.assert_allclose(said, held["said"], rtol=1e-5, atol=1e-5)
model.compile("sgd", "mse")
before = keras.ops.convert_to_numpy(model.layers[-1].bases)
model.fit([held["x"], held["z"]], held["said"] + 1, epochs=1, verbose=0)
assert np.abs(keras.ops.convert_to_numpy(model.layers[-1].bases) - before).max() > 0
print("agrees")
"""


@pytest.mark.parametrize("other", on_every_backend({"tensorflow"} - {BACKEND}, of=OTHERS))
def test_a_model_saved_here_is_loaded_and_trained_on_another_backend(other, tmp_path):
    head = made("default", lambda_orth=0.1)
    model = model_of(head)
    for weight in head.trainable_weights:
        weight.assign(RNG.normal(size=weight.shape).astype("float32"))
    head.fit_bases(Z)
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "held.npz", x=X, z=Z, said=ops.convert_to_numpy(model([X, Z])))
    environment = {**os.environ, "KERAS_BACKEND": other, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", LOADING, other, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr[-2000:]
    assert "agrees" in done.stdout


@pytest.mark.usefixtures("float32_again")
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_keeps_gates_and_penalties_in_float32(policy):
    full = made("default", **ALL_PENALTIES)
    full.fit_bases(X)
    keras.config.set_dtype_policy(policy)
    half = made("default", **ALL_PENALTIES)
    half.build((None, 6))
    for weight, exact in zip(half.weights, full.weights, strict=True):
        assert weight.dtype == exact.dtype
        weight.assign(exact)
    out, exact = half.evaluate(X), full.evaluate(X)
    assert keras.backend.standardize_dtype(out.prediction.dtype) == policy.removeprefix("mixed_")
    np.testing.assert_allclose(ops.convert_to_numpy(out.beta), ops.convert_to_numpy(exact.beta), atol=1e-6)
    for name, value in half.penalty_terms(out).items():
        np.testing.assert_allclose(float(value), float(full.penalty_terms(exact)[name]), rtol=1e-5)
    said = ops.convert_to_numpy(ops.cast(half(X), "float32"))
    np.testing.assert_allclose(said, ops.convert_to_numpy(full(X)), atol=0.05)


@pytest.mark.usefixtures("float32_again")
def test_features_beyond_the_range_of_float16_gate_as_in_float32():
    far = (X * 1e5).astype("float32")
    full = made("default", sigma=1e5)
    full.build((None, 6))
    keras.config.set_dtype_policy("mixed_float16")
    half = made("default", sigma=1e5)
    half.build((None, 6))
    half.bases.assign(full.bases)
    np.testing.assert_allclose(
        ops.convert_to_numpy(half.evaluate(far).beta), ops.convert_to_numpy(full.evaluate(far).beta), atol=1e-6
    )


@pytest.mark.parametrize(
    "kind", on_every_backend(["default", "stacked"], of=["default", "exact", "auto", "stacked"], slow=["exact"])
)
def test_a_compiled_step_learns_what_an_eager_one_does(kind):
    def trained(**how: Any) -> list[np.ndarray]:
        keras.utils.set_random_seed(0)
        head = made(kind, lambda_orth=0.1)
        model = model_of(head)
        head.fit_bases(Z)
        model.compile(keras.optimizers.SGD(0.1), "mse", **how)
        model.fit([X, Z], np.ones((24, 3), "float32"), epochs=2, batch_size=8, shuffle=False, verbose=0)
        return [ops.convert_to_numpy(weight) for weight in head.weights]

    compiled = {"jit_compile": True} if BACKEND != "torch" else {}
    for one, two in zip(trained(**compiled), trained(run_eagerly=True), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def test_the_penalties_join_the_loss_of_the_model():
    head = made("paper")
    model = model_of(head)
    model.compile("sgd", "mse")
    target = np.zeros((24, 3), "float32")
    out = head.evaluate(X, Z)
    penalty = float(head.penalty(out))
    assert penalty > 0.05
    task = float(ops.mean(ops.square(out.prediction)))
    np.testing.assert_allclose(model.evaluate([X, Z], target, batch_size=24, verbose=0), task + penalty, rtol=1e-5)
    model([X, Z])
    np.testing.assert_allclose(float(sum(model.losses)), penalty, rtol=1e-5)


def test_the_scale_of_a_penalty_moves_the_loss_without_compiling_anew():
    head = made("paper")
    model = model_of(head)
    model.compile("sgd", "mse")
    target = np.zeros((24, 3), "float32")
    whole = model.evaluate([X, Z], target, batch_size=24, verbose=0)
    head.penalty_scales.assign([0.0] * len(head.PENALTIES))
    task = float(ops.mean(ops.square(head.evaluate(X, Z).prediction)))
    np.testing.assert_allclose(model.evaluate([X, Z], target, batch_size=24, verbose=0), task, rtol=1e-5)
    assert whole > task + 0.05


@pytest.mark.one_backend
def test_a_probabilistic_model_learns_where_it_is_unsure():
    keras.utils.set_random_seed(0)
    x = np.linspace(-1, 1, 512, dtype="float32")[:, None]
    noise = np.where(x > 0, 0.5, 0.05) * np.random.default_rng(0).standard_normal(x.shape)
    head = GatedDomainUnits(1, task=ProbabilisticRegression(), num_bases=2, basis_size=4)
    head.fit_bases(x)
    model = keras.Sequential([keras.Input((1,)), head])
    model.compile(keras.optimizers.Adam(0.05), GaussianLikelihood())
    curve = model.fit(x, (2 * x + noise).astype("float32"), epochs=60, batch_size=128, verbose=0).history["loss"]
    mean, variance = (ops.convert_to_numpy(part) for part in mean_and_variance(model(x)))
    assert curve[-1] < curve[0]
    assert np.abs(mean - 2 * x).mean() < 0.25
    assert variance[x > 0.3].mean() > 4 * variance[x < -0.3].mean()


def test_sequences_keep_their_leading_dimensions():
    head = made("default")
    x = RNG.standard_normal((4, 5, 6)).astype("float32")
    out = head.evaluate(x)
    assert tuple(out.prediction.shape) == (4, 5, 3)
    assert tuple(out.beta.shape) == (4, 5, 3)
    assert tuple(out.coverage.shape) == (4, 5)
    np.testing.assert_allclose(
        ops.convert_to_numpy(out.prediction[1]), ops.convert_to_numpy(head(x[1])), rtol=1e-5, atol=1e-6
    )
    assert head.compute_output_shape((None, 5, 6)) == (None, 5, 3)
    symbolic = keras.Model(inputs := keras.Input((None, 6)), head(inputs))
    np.testing.assert_allclose(symbolic.predict(x, verbose=0), ops.convert_to_numpy(head(x)), rtol=1e-5, atol=1e-6)
