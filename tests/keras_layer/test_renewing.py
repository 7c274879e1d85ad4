"""RenewHead: gates stay fitted as features move, and quantiles always belong to the weights that are looked at."""

from __future__ import annotations

import warnings
from itertools import pairwise

import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("keras")

import keras  # noqa: E402
import numpy as np  # noqa: E402
from backends import on_every_backend  # noqa: E402
from keras import layers, optimizers  # noqa: E402
from small_keras_models import LOSS, Calls, body, gated, rows  # noqa: E402

from gated_domains.common.validation import GateWarning  # noqa: E402
from gated_domains.keras_layer import GatedDomainUnits  # noqa: E402
from gated_domains.keras_layer.arrays import as_numpy  # noqa: E402
from gated_domains.keras_layer.callbacks import DomainMonitor, RenewHead  # noqa: E402

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
    model.fit(X, Y, epochs=2, callbacks=[RenewHead(X)], **FIT)
    assert quantiles(head) == pytest.approx(by_hand(model), rel=1e-5)
    assert quantiles(head) != pytest.approx(before, rel=0.01)


@pytest.mark.parametrize("at", on_every_backend(["on_test_begin"], of=MOMENTS))
def test_at_each_moment_that_counts_they_belong_to_the_model_as_it_is(at):
    model, head = gated(optimizers.SGD(0.5))
    seen = []
    look = Calls(lambda model: seen.append((quantiles(head), by_hand(model))), at=at)
    model.fit(X, Y, epochs=2, validation_data=UNSEEN, callbacks=[RenewHead(X), look], **FIT)
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
    history = model.fit(X, Y, validation_data=UNSEEN, callbacks=[RenewHead(X)], **settings).history
    head.fit_coverage(as_numpy(model.get_layer("body")(X)))
    assert history["loss"][0] == pytest.approx(model.evaluate(X, Y, batch_size=48, verbose=0), rel=1e-5)
    assert history["val_loss"][0] == pytest.approx(model.evaluate(*UNSEEN, batch_size=48, verbose=0), rel=1e-5)
    assert history["val_loss"][0] != pytest.approx(unfitted, rel=1e-4)


@pytest.mark.one_backend
@pytest.mark.parametrize("validation", [None, UNSEEN], ids=["without validation", "with validation"])
def test_a_pass_is_made_only_when_weights_have_moved(validation):
    model, _ = gated()
    renew = RenewHead(X)
    model.fit(X, Y, epochs=3, validation_data=validation, callbacks=[renew], **FIT)
    assert renew.renewals == 1 + 3 + 1  # before training, once an epoch, after training


@pytest.mark.one_backend
def test_weights_that_come_back_after_training_get_their_own_quantiles():
    model, head = gated(optimizers.SGD(5.0))
    restore = keras.callbacks.EarlyStopping("loss", mode="max", patience=1, restore_best_weights=True)
    for order in ([restore, RenewHead(X)], [RenewHead(X), restore]):
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
    model.fit(X, Y, epochs=2, validation_data=UNSEEN, callbacks=[swap, RenewHead(X), *looks], **FIT)
    assert len(seen) == 5
    for found, expected in seen:
        assert found == pytest.approx(expected, rel=1e-5)


def test_evaluate_on_its_own_renews_too():
    model, head = gated()
    renew = RenewHead(X)
    for _ in range(2):
        head.bases.assign(as_numpy(head.bases) + 0.5)
        model.evaluate(*UNSEEN, callbacks=[renew], verbose=0)
        assert quantiles(head) == pytest.approx(by_hand(model), rel=1e-5)


@pytest.mark.one_backend
def test_training_draws_the_same_random_numbers():
    """Coverage changes the loss, so the deviations are zero here and nothing else may differ."""
    ends = []
    for callbacks in ([], [RenewHead(X, refit=False)]):
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
    model.evaluate(*UNSEEN, callbacks=[RenewHead(few)], verbose=0)
    assert quantiles(head) == pytest.approx(by_hand(model), rel=1e-5)
    model.evaluate(*UNSEEN, callbacks=[RenewHead(X, max_rows=3, batch_size=2)], verbose=0)
    assert quantiles(head) == pytest.approx(by_hand(model, X[[0, 24, 47]]), rel=1e-5)


def test_it_works_in_half_precision():
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model, head = gated()
    finally:
        keras.config.set_dtype_policy(policy)
    history = model.fit(X, Y, callbacks=[RenewHead(X), DomainMonitor(X)], **FIT).history
    assert quantiles(head) == pytest.approx(by_hand(model), rel=1e-4)
    assert sum(history[f"train_gate_{j}"][0] for j in range(3)) == pytest.approx(1, abs=1e-5)


@pytest.mark.one_backend
def test_of_several_units_all_are_renewed_or_the_one_that_is_named():
    inputs = keras.Input((6,))
    features = body()(inputs)
    heads = {name: GatedDomainUnits(3, num_bases=2, basis_size=2, name=name) for name in ("left", "right")}
    model = keras.Model(inputs, layers.Add()([head(features) for head in heads.values()]))
    model.compile(optimizers.SGD(0.05), LOSS())
    unfitted = quantiles(heads["left"])
    model.evaluate(*UNSEEN, callbacks=[RenewHead(X, layer="right")], verbose=0)
    assert quantiles(heads["left"]) == unfitted != quantiles(heads["right"])
    model.fit(X, Y, callbacks=[RenewHead(X)], **FIT)
    assert quantiles(heads["left"]) != unfitted
    assert all(head.drift(as_numpy(model.layers[1](X))) is None for head in heads.values())


def grown(renew: RenewHead, *, epoch: int, by: float = 40.0, epochs: int = 4):
    """A model whose features have grown after an epoch, and its bases when each epoch has begun."""
    model, head = gated(optimizers.Adam(1e-4))
    bases = []

    def note(model):
        bases.append(np.array(as_numpy(head.bases)))

    def grow(model):
        if len(bases) == epoch + 1:
            norm = next(layer for layer in model.get_layer("body").layers if hasattr(layer, "gamma"))
            norm.gamma.assign(by * as_numpy(norm.gamma))

    callbacks = [Calls(grow, at="on_test_begin"), renew, Calls(note, at="on_epoch_begin")]
    model.fit(X, Y, epochs=epochs, validation_data=UNSEEN, callbacks=callbacks, **FIT)
    return model, head, bases


def test_bases_are_refitted_when_features_have_moved_away_and_then_only():
    with warnings.catch_warnings():
        warnings.simplefilter("error", GateWarning)
        model, head, bases = grown(RenewHead(X), epoch=1)
    moved = [np.abs(after - before).max() for before, after in pairwise(bases)]
    assert moved[0] < 0.1  # a few steps of training
    assert moved[1] > 5  # the refit
    assert moved[2] < 0.1
    assert head.drift(as_numpy(model.get_layer("body")(X))) is None


def test_dead_gates_are_warned_of_once_where_they_are_not_refitted():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        grown(RenewHead(X), epoch=3)  # in the last epoch, so that none is left to refit in
    (warning,) = [str(one.message) for one in seen if one.category is GateWarning]
    assert "features have moved away from the bases" in warning
    assert "at the start of every epoch" in warning


def test_refit_false_keeps_the_bases():
    model, head = gated(optimizers.SGD(0.0))
    before = np.array(as_numpy(head.bases))
    model.fit(X, Y, epochs=2, callbacks=[RenewHead(X, refit=False)], **FIT)
    np.testing.assert_array_equal(as_numpy(head.bases), before)


def test_what_can_be_read_only_once_is_refused():
    with pytest.raises(TypeError, match="generator can be read only once"):
        RenewHead(batch for batch in [X])


@pytest.mark.parametrize("inputs", [None, "x", (X, Y), {}, 3], ids=["none", "text", "tuple", "empty dict", "number"])
def test_what_is_no_input_is_refused(inputs):
    with pytest.raises(TypeError, match="inputs"):
        RenewHead(inputs)


@pytest.mark.parametrize("setting", ["max_rows", "batch_size"])
def test_sizes_must_be_whole_numbers(setting):
    with pytest.raises(ValueError, match=f"{setting} must be a whole number of at least 1, got 0"):
        RenewHead(X, **{setting: 0})
