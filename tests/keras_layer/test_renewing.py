"""RenewCoverage: quantiles always belong to the weights that are looked at."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("keras")

import keras  # noqa: E402
import numpy as np  # noqa: E402
from backends import on_every_backend  # noqa: E402
from keras import layers, optimizers  # noqa: E402
from small_keras_models import LOSS, Calls, body, gated, rows  # noqa: E402

from gated_domains.keras_layer import GatedDomainUnits  # noqa: E402
from gated_domains.keras_layer.arrays import as_numpy  # noqa: E402
from gated_domains.keras_layer.callbacks import DomainMonitor, RenewCoverage  # noqa: E402

X, Y = rows()
UNSEEN = rows(seed=5)
FIT = {"batch_size": 16, "verbose": 0}
MOMENTS = ["on_epoch_begin", "on_test_begin", "on_epoch_end", "on_train_end"]


def quantiles(head):
    return head.coverage.q50, head.coverage.q97


def by_hand(model, x=X):
    """The quantiles that these inputs give with the model as it is; the layer is left as it was."""
    head = model.get_layer("head")
    residual = as_numpy(head.novelty(model.get_layer("body")(x, training=False)))
    return tuple(np.quantile(residual, [0.5, 0.97]))


@pytest.mark.one_backend
def test_after_training_quantiles_belong_to_the_trained_model():
    model, head = gated()
    before = quantiles(head)
    model.fit(X, Y, epochs=2, callbacks=[RenewCoverage(X)], **FIT)
    assert quantiles(head) == pytest.approx(by_hand(model), rel=1e-5)
    assert quantiles(head) != pytest.approx(before, rel=0.01)


@pytest.mark.parametrize("at", on_every_backend(["on_test_begin"], of=MOMENTS))
def test_at_each_moment_that_counts_they_belong_to_the_model_as_it_is(at):
    model, head = gated(optimizers.SGD(0.5))
    seen = []
    look = Calls(lambda model: seen.append((quantiles(head), by_hand(model))), at=at)
    model.fit(X, Y, epochs=2, validation_data=UNSEEN, callbacks=[RenewCoverage(X), look], **FIT)
    assert seen
    for found, expected in seen:
        assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.one_backend
def test_they_would_not_without_it():
    """The tests above can fail."""
    model, head = gated(optimizers.SGD(0.5))
    head.fit_coverage(as_numpy(model.get_layer("body")(X)))
    model.fit(X, Y, epochs=2, **FIT)
    assert quantiles(head) != pytest.approx(by_hand(model), rel=1e-2)


@pytest.mark.parametrize("jit", [False, True] if keras.backend.backend() != "torch" else [False])
def test_steps_and_validation_fall_back_by_the_renewed_quantiles(jit):
    """With a rate of 0 both losses are those of a model that was fitted by hand."""
    model, head = gated(optimizers.SGD(0.0), jit=jit)
    model.get_layer("body").layers[1].trainable = False
    model.compile(optimizers.SGD(0.0), LOSS(), jit_compile=jit)
    unfitted = model.evaluate(*UNSEEN, batch_size=48, verbose=0)
    settings = {"batch_size": 48, "verbose": 0}
    history = model.fit(X, Y, validation_data=UNSEEN, callbacks=[RenewCoverage(X)], **settings).history
    head.fit_coverage(as_numpy(model.get_layer("body")(X)))
    assert history["loss"][0] == pytest.approx(model.evaluate(X, Y, batch_size=48, verbose=0), rel=1e-5)
    assert history["val_loss"][0] == pytest.approx(model.evaluate(*UNSEEN, batch_size=48, verbose=0), rel=1e-5)
    assert history["val_loss"][0] != pytest.approx(unfitted, rel=1e-4)


@pytest.mark.one_backend
@pytest.mark.parametrize("validation", [None, UNSEEN], ids=["without validation", "with validation"])
def test_a_pass_is_made_only_when_weights_have_moved(validation):
    model, _ = gated()
    renew = RenewCoverage(X)
    model.fit(X, Y, epochs=3, validation_data=validation, callbacks=[renew], **FIT)
    assert renew.renewals == 1 + 3 + 1  # before training, once an epoch, after training


@pytest.mark.one_backend
def test_weights_that_come_back_after_training_get_their_own_quantiles():
    model, head = gated(optimizers.SGD(5.0))
    restore = keras.callbacks.EarlyStopping("loss", mode="max", patience=1, restore_best_weights=True)
    for order in ([restore, RenewCoverage(X)], [RenewCoverage(X), restore]):
        model.fit(X, Y, epochs=4, callbacks=order, **FIT)
        assert quantiles(head) == pytest.approx(by_hand(model), rel=1e-5)


def test_averages_that_become_weights_get_their_own_quantiles():
    model, head = gated(optimizers.SGD(0.5, use_ema=True, ema_momentum=0.9))
    seen = []
    swap = keras.callbacks.SwapEMAWeights()
    looks = [
        Calls(lambda model: seen.append((quantiles(head), by_hand(model))), at=at)
        for at in ("on_test_begin", "on_epoch_end", "on_train_end")
    ]
    model.fit(X, Y, epochs=2, validation_data=UNSEEN, callbacks=[swap, RenewCoverage(X), *looks], **FIT)
    assert len(seen) == 5
    for found, expected in seen:
        assert found == pytest.approx(expected, rel=1e-5)


def test_evaluate_on_its_own_renews_too():
    model, head = gated()
    renew = RenewCoverage(X)
    for _ in range(2):
        head.bases.assign(as_numpy(head.bases) + 0.5)
        model.evaluate(*UNSEEN, callbacks=[renew], verbose=0)
        assert quantiles(head) == pytest.approx(by_hand(model), rel=1e-5)


@pytest.mark.one_backend
def test_training_draws_the_same_random_numbers():
    """Coverage changes the loss, so the deviations are zero here and nothing else may differ."""
    ends = []
    for callbacks in ([], [RenewCoverage(X)]):
        model, head = gated(dropout=0.3)
        head.experts.weight.assign(np.zeros(head.experts.weight.shape, dtype="float32"))
        head.experts.trainable = False
        model.compile(optimizers.SGD(0.05), LOSS())
        model.fit(X, Y, epochs=2, callbacks=callbacks, **FIT)
        ends.append([as_numpy(weight) for weight in model.trainable_weights])
    for one, other in zip(*ends, strict=True):
        np.testing.assert_array_equal(one, other)


def test_rows_come_from_all_of_an_array_and_batches_from_a_dataset():
    model, head = gated()
    few = [(X[start : start + 16], Y[start : start + 16]) for start in (0, 16, 32)]
    model.evaluate(*UNSEEN, callbacks=[RenewCoverage(few)], verbose=0)
    assert quantiles(head) == pytest.approx(by_hand(model), rel=1e-5)
    model.evaluate(*UNSEEN, callbacks=[RenewCoverage(X, max_rows=3, batch_size=2)], verbose=0)
    assert quantiles(head) == pytest.approx(by_hand(model, X[[0, 24, 47]]), rel=1e-5)


def test_it_works_in_half_precision():
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model, head = gated()
    finally:
        keras.config.set_dtype_policy(policy)
    history = model.fit(X, Y, callbacks=[RenewCoverage(X), DomainMonitor(X)], **FIT).history
    assert quantiles(head) == pytest.approx(by_hand(model), rel=1e-4)
    assert sum(history[f"train_gate_{j}"][0] for j in range(3)) == pytest.approx(1, abs=1e-5)


@pytest.mark.one_backend
def test_of_several_units_those_with_coverage_are_renewed():
    inputs = keras.Input((6,))
    features = body()(inputs)
    kinds = {"left": {}, "plain": {"shared": False}, "right": {}}
    heads = {name: GatedDomainUnits(3, num_bases=2, basis_size=2, name=name, **kind) for name, kind in kinds.items()}
    model = keras.Model(inputs, layers.Add()([head(features) for head in heads.values()]))
    model.compile(optimizers.SGD(0.05), LOSS())
    unfitted = quantiles(heads["left"])
    model.evaluate(*UNSEEN, callbacks=[RenewCoverage(X, layer="right")], verbose=0)
    assert quantiles(heads["left"]) == unfitted != quantiles(heads["right"])
    model.evaluate(*UNSEEN, callbacks=[RenewCoverage(X)], verbose=0)
    assert quantiles(heads["left"]) != unfitted
    assert quantiles(heads["plain"]) == unfitted


def test_units_without_coverage_are_refused():
    model, _ = gated(coverage=False)
    with pytest.raises(ValueError, match=r"'head' uses no coverage.* shared=True and coverage=True"):
        model.fit(X, Y, callbacks=[RenewCoverage(X)], **FIT)


def test_what_can_be_read_only_once_is_refused():
    with pytest.raises(TypeError, match="generator can be read only once"):
        RenewCoverage(batch for batch in [X])


@pytest.mark.parametrize("inputs", [None, "x", (X, Y), {}, 3], ids=["none", "text", "tuple", "empty dict", "number"])
def test_what_is_no_input_is_refused(inputs):
    with pytest.raises(TypeError, match="inputs"):
        RenewCoverage(inputs)


@pytest.mark.parametrize("setting", ["max_rows", "batch_size"])
def test_sizes_must_be_whole_numbers(setting):
    with pytest.raises(ValueError, match=f"{setting} must be a whole number of at least 1, got 0"):
        RenewCoverage(X, **{setting: 0})
