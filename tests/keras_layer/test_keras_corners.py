"""Corners of the Keras layer: optimisers with a memory, half precision, masks, copies, odd experts and shapes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("keras")

import keras  # noqa: E402
from keras import layers, ops  # noqa: E402

from gated_domains.keras_layer import (  # noqa: E402
    GatedDomainUnits,
    LinearExperts,
    ProbabilisticRegression,
    ProjectionGate,
    StackedExperts,
    gates,
    gating_rows,
    kernels,
)
from gated_domains.keras_layer.arrays import as_numpy  # noqa: E402
from gated_domains.layer.gates import GATES  # noqa: E402
from gated_domains.layer.kernels import KERNELS  # noqa: E402

RNG = np.random.default_rng(0)
X = (RNG.standard_normal((120, 5)) + 10).astype("float32")
Y = (X[:, 0] > 10).astype("int64")


def trained(head: GatedDomainUnits, optimizer: keras.optimizers.Optimizer) -> keras.Model:
    model = keras.Sequential([keras.Input((5,)), head])
    model.compile(optimizer, "mse")
    model.fit(X, np.ones((len(X), 2), "float32"), epochs=1, verbose=0)
    return model


def test_every_kernel_and_gate_of_pytorch_has_its_namesake():
    assert kernels.KERNELS.keys() == KERNELS.keys()
    assert gates.GATES.keys() == GATES.keys()


@pytest.mark.one_backend
def test_the_average_of_rewritten_bases_begins_anew():
    head = GatedDomainUnits(2, num_bases=3)
    model = trained(head, keras.optimizers.Adam(1e-3, use_ema=True))
    head.fit_bases(X, optimizer=model.optimizer)
    place = [one is head.bases for one in model.optimizer._trainable_variables].index(True)
    np.testing.assert_array_equal(
        as_numpy(model.optimizer._model_variables_moving_average[place]), as_numpy(head.bases)
    )


def test_rewriting_bases_leaves_the_count_of_steps_alone():
    head = GatedDomainUnits(2, num_bases=3, shared=False, experts=LinearExperts(bias=False))
    model = trained(head, keras.optimizers.SGD(1e-3))
    steps = int(as_numpy(model.optimizer.iterations))
    assert steps > 0
    assert len(head.trainable_weights) == 2  # as many as an optimiser without momenta has variables
    head.fit_bases(X, optimizer=model.optimizer)
    assert int(as_numpy(model.optimizer.iterations)) == steps


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a habit of TensorFlow")
def test_importing_leaves_devices_to_be_set_up():
    script = (
        "import gated_domains.keras_layer, tensorflow as tf\n"
        "cpu = tf.config.list_physical_devices('CPU')[0]\n"
        "tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1000:]


def test_the_variance_of_a_half_precision_head_stays_in_range():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        head = GatedDomainUnits(1, task=ProbabilisticRegression(), shared=False)
        said = head(X)
        head.experts.bias.assign(np.full(head.experts.bias.shape, 400.0, "float32"))
        spread = as_numpy(head(X))[:, 1]
    finally:
        keras.config.set_dtype_policy("float32")
    assert keras.backend.standardize_dtype(said.dtype) == "float32"
    assert np.isfinite(spread).all()
    assert spread.max() > 65504


def test_a_mask_goes_through_as_through_dense():
    tokens = np.array([[1, 2, 0, 0], [3, 0, 0, 0]])

    def loss_under(head: keras.layers.Layer) -> float:
        model = keras.Sequential([keras.Input((4,)), layers.Embedding(5, 6, mask_zero=True), head])
        model.compile("sgd", keras.losses.MeanSquaredError())
        target = np.zeros((2, 4, 2), "float32")
        target[tokens == 0] = 1e6
        return float(model.evaluate(tokens, target, verbose=0))

    assert loss_under(layers.Dense(2)) < 1e3
    assert loss_under(GatedDomainUnits(2)) < 1e3


@pytest.mark.parametrize("last", ["softmax", "sum"])
def test_stacked_deviations_that_do_not_start_at_zero_are_refused(last):
    inputs = keras.Input((5,))
    if last == "softmax":
        template: Any = keras.Sequential([layers.Dense(2), layers.Softmax()])
    else:
        template = keras.Model(inputs, layers.Add()([layers.Dense(2)(inputs), layers.Dense(2)(inputs)]))
    with pytest.raises(ValueError, match="must start at zero"):
        GatedDomainUnits(2, experts=StackedExperts(template)).build((None, 5))


@pytest.mark.one_backend
def test_parts_of_a_fitted_layer_are_copied_with_their_fitted_numbers():
    head = GatedDomainUnits(2, kernel=kernels.Scaled(kernels.Average([kernels.Gaussian(1.0)]), 2.0)).fit_bases(X)
    other = GatedDomainUnits(2, kernel=head.kernel, gate=head.gate)
    assert other.kernel.get_sigma() == pytest.approx(head.kernel.get_sigma())
    assert other.gate.get_kappa() == pytest.approx(head.gate.get_kappa())
    other.fit_bases(X[:60])
    assert head.kernel.get_sigma() != other.kernel.get_sigma()


@pytest.mark.parametrize("kernel", [None, "gaussian", "matern32"])
def test_a_width_that_nobody_gave_follows_the_features(kernel):
    head = GatedDomainUnits(2, kernel=kernel)
    head.build((None, 50))
    assert head.kernel.get_sigma() == pytest.approx(10)
    again = GatedDomainUnits.from_config(head.get_config())
    again.build((None, 8))
    assert again.kernel.get_sigma() == pytest.approx(4)


def test_doubled_bases_are_no_end_of_an_exact_projection():
    head = GatedDomainUnits(2, num_bases=2, gate=ProjectionGate(0.0))
    head.build((None, 5))
    bases = as_numpy(head.bases).copy()
    bases[1] = bases[0]
    head.bases.assign(bases)
    assert np.isfinite(as_numpy(head.evaluate(X).beta)).all()


def test_a_layer_that_is_not_built_yet_answers():
    assert GatedDomainUnits(2, num_bases=4).num_bases == 4
    assert as_numpy(GatedDomainUnits(2).novelty(X)).shape == (120,)
    head = GatedDomainUnits(2)
    head.build((None, 5), (None, 3))
    with pytest.raises(ValueError, match="pass that view as gating="):
        head.novelty(X)


@pytest.mark.one_backend
def test_rows_of_sequences_are_taken_from_all_of_them():
    sequences = np.repeat(np.arange(40, dtype="float32"), 3 * 2).reshape(40, 3, 2)  # each of its own number
    model = keras.Sequential([keras.Input((3, 2)), GatedDomainUnits(2)])
    rows = gating_rows(model, sequences, max_rows=20)
    assert rows.shape == (20, 2)
    assert rows.min() < 3
    assert rows.max() > 36


@pytest.mark.one_backend
def test_one_row_and_one_basis_are_enough():
    head = GatedDomainUnits(2, num_bases=1, basis_size=1, lambda_orth=0.1, lambda_entropy=0.1)
    out = head.evaluate(X[:1].astype("float64"))
    assert as_numpy(out.beta) == 1
    assert all(np.isfinite(as_numpy(value)) for value in head.penalty_terms(out).values())
    assert float(as_numpy(ops.sum(out.products.gram))) == pytest.approx(1)
