"""FreezeBackbone: the body stands still bit for bit, the gated layer goes on as if nothing had happened."""

from __future__ import annotations

import warnings

import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("keras")

import keras  # noqa: E402
import numpy as np  # noqa: E402
from backends import on_every_backend  # noqa: E402
from keras import layers, optimizers  # noqa: E402
from small_keras_models import LOSS, Calls, body, gated, moved, quick_compile, rows, weights  # noqa: E402, F401

from gated_domains.keras_layer import GatedDomainUnits  # noqa: E402
from gated_domains.keras_layer.arrays import as_numpy  # noqa: E402
from gated_domains.keras_layer.callbacks import FreezeBackbone  # noqa: E402
from gated_domains.keras_layer.callbacks.freezing import optimisers_in  # noqa: E402

X, Y = rows()
FIT = {"batch_size": 16, "verbose": 0}

OPTIMISERS = {
    "sgd": lambda: optimizers.SGD(0.05, momentum=0.9),
    "adamw": lambda: optimizers.AdamW(0.01, weight_decay=0.1),
    "averages": lambda: optimizers.Adam(0.01, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
    "schedule": lambda: optimizers.Adam(optimizers.schedules.CosineDecay(0.01, 12)),
    "loss scale": lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.01, use_ema=True)),
    "accumulation": lambda: optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "several": lambda: optimizers.MultiOptimizer(
        optimizers.OptimizerMap(optimizers.Adam(0.01), {".*head.*": optimizers.SGD(0.05, momentum=0.9, use_ema=True)})
    ),
}


def fit_and_look(model, *callbacks, epochs=3, **settings):
    """The weights after each epoch and after training."""
    seen = []
    look = Calls(lambda model: seen.append(weights(model)), at="on_epoch_end")
    model.fit(X, Y, epochs=epochs, callbacks=[*callbacks, look], **{**FIT, **settings})
    return [*seen, weights(model)]


def outside(head, paths):
    return {path for path in paths if path not in {weight.path for weight in head.weights}}


def check_frozen_after_the_first(head, first, second, third, final):
    trained = {weight.path for weight in head.trainable_weights}
    assert moved(first, second) == trained
    assert moved(second, third) == trained
    assert moved(third, final) <= trained  # averages may become the weights


def check_whole(optimiser, model):
    assert [id(v) for v in optimiser._trainable_variables] == [id(v) for v in model.trainable_variables]
    for part in optimisers_in(optimiser):
        known = part._trainable_variables
        assert sorted(part._trainable_variables_indices.values()) == list(range(len(known)))
        assert len(getattr(part, "_model_variables_moving_average", known)) == len(known)


@pytest.mark.parametrize(
    "name", on_every_backend(["averages"], of=OPTIMISERS, slow=["sgd", "schedule", "accumulation"])
)
def test_the_body_stands_still_bit_by_bit_and_the_head_goes_on_with_the_same_optimiser(name):
    optimiser = OPTIMISERS[name]()
    model, head = gated(optimiser)
    start = weights(model)
    seen = fit_and_look(model, FreezeBackbone(1), validation_data=(X, Y))
    assert len(outside(head, moved(start, seen[0]))) == 6  # kernel, bias, and four of the batch norm
    check_frozen_after_the_first(head, *seen)
    assert bool(moved(*seen[-2:])) == (name in ("averages", "loss scale", "several"))  # those that average weights
    assert model.optimizer is optimiser
    counts = [int(as_numpy(part._iterations)) for part in optimisers_in(optimiser)]
    assert max(counts) == 9  # three steps an epoch
    check_whole(optimiser, model)


@pytest.mark.one_backend
@pytest.mark.usefixtures("quick_compile")
def test_it_works_in_compiled_steps():
    model, head = gated(OPTIMISERS["sgd"](), jit=True)
    start = weights(model)
    seen = fit_and_look(model, FreezeBackbone(1))
    assert len(outside(head, moved(start, seen[0]))) == 6
    check_frozen_after_the_first(head, *seen)
    if keras.backend.backend() == "torch":  # traces everything a third time, for minutes
        return
    before = weights(model)
    model.fit(X, Y, epochs=1, validation_data=(X, Y), **FIT)
    assert len(outside(head, moved(before, weights(model)))) == 6


@pytest.mark.one_backend
def test_without_it_everything_moves():
    """The tests above can fail."""
    model, head = gated(OPTIMISERS["sgd"]())
    first, second, *_ = fit_and_look(model, epochs=2)
    assert len(outside(head, moved(first, second))) == 6


@pytest.mark.one_backend
def test_from_the_first_epoch_on_unless_told_otherwise():
    model, head = gated()
    start = weights(model)
    seen = fit_and_look(model, FreezeBackbone(), epochs=1)
    assert moved(start, seen[-1]) == {weight.path for weight in head.trainable_weights}


@pytest.mark.one_backend
def test_a_training_that_is_taken_up_later_is_frozen_at_once():
    model, head = gated()
    start = weights(model)
    seen = fit_and_look(model, FreezeBackbone(2), epochs=5, initial_epoch=4)
    assert outside(head, moved(start, seen[-1])) == set()


@pytest.mark.one_backend
def test_momentum_goes_on():
    """With a rate of 0 in the frozen epochs nothing but the momentum from before moves the head, n steps on."""
    model, head = gated(optimizers.SGD(0.05, momentum=0.9))
    found = {}

    def note(model):
        places = {id(v): place for place, v in enumerate(model.optimizer._trainable_variables)}
        momenta = [model.optimizer.momentums[places[id(v)]] for v in head.trainable_weights]
        found.setdefault("momenta", [np.array(as_numpy(m)) for m in momenta])
        found.setdefault("weights", [np.array(as_numpy(v)) for v in head.trainable_weights])

    rates = optimizers.schedules.PiecewiseConstantDecay([2], [0.05, 0.0])  # three steps an epoch
    model.compile(optimizers.SGD(rates, momentum=0.9), LOSS())
    model.fit(X, Y, epochs=2, callbacks=[FreezeBackbone(1), Calls(note, at="on_epoch_end")], **FIT)
    for before, momentum, after in zip(found["weights"], found["momenta"], head.trainable_weights, strict=True):
        assert np.abs(momentum).max() > 0
        expected = before + momentum * (0.9 + 0.9**2 + 0.9**3)
        np.testing.assert_allclose(as_numpy(after), expected, rtol=1e-5, atol=1e-7)


def test_what_was_trainable_is_so_again_between_epochs_and_after_training():
    model, head = gated()
    norm = model.get_layer("body").layers[1]
    norm.trainable = False
    model.compile(optimizers.SGD(0.05), LOSS())

    def flags(model):
        every = model._flatten_layers()
        return [layer.trainable for layer in every], [variable.trainable for variable in model.variables]

    before, between = flags(model), []
    look = Calls(lambda model: between.append(flags(model)), at="on_epoch_end")
    model.fit(X, Y, epochs=2, callbacks=[FreezeBackbone(), look], **FIT)
    assert not all(before[0])
    assert [*between, flags(model)] == [before] * 3
    assert head.trainable


@pytest.mark.one_backend
def test_the_model_can_be_fitted_again_with_it_and_without():
    model, head = gated(OPTIMISERS["sgd"]())
    freeze = FreezeBackbone(1)
    for _ in range(2):
        start = weights(model)
        seen = fit_and_look(model, freeze)
        assert len(outside(head, moved(start, seen[0]))) == 6
        check_frozen_after_the_first(head, *seen)
    start = weights(model)
    model.fit(X, Y, epochs=1, **FIT)
    assert len(outside(head, moved(start, weights(model)))) == 6


def test_a_checkpoint_from_a_frozen_epoch_is_of_a_plain_model(tmp_path):
    model, _ = gated(OPTIMISERS["sgd"]())
    path = tmp_path / "model.keras"
    model.fit(X, Y, epochs=2, callbacks=[FreezeBackbone(), keras.callbacks.ModelCheckpoint(path)], **FIT)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # Keras warns when the optimiser's state does not fit
        loaded = keras.saving.load_model(path)
    assert all(layer.trainable for layer in loaded._flatten_layers())
    for one, other in zip(model.optimizer.variables, loaded.optimizer.variables, strict=True):
        np.testing.assert_array_equal(as_numpy(one), as_numpy(other))


@pytest.mark.one_backend
def test_units_deep_inside_go_on_and_what_holds_them_stands_still():
    class Holder(layers.Layer):
        """Units beside a weight of its own."""

        def __init__(self):
            super().__init__(name="holder")
            self.head = GatedDomainUnits(3, num_bases=2, basis_size=2, name="head")

        def build(self, shape):
            self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
            self.head.build(shape)

        def call(self, x):
            return self.head(x * self.scale)

    holder = Holder()
    inner = keras.Sequential([keras.Input((8,)), layers.Dense(8, name="before"), holder], name="inner")
    model = keras.Sequential([body(), inner, layers.Dense(3, name="after")])
    model.compile(optimizers.SGD(0.05), LOSS())
    start = weights(model)
    model.fit(X, Y, callbacks=[FreezeBackbone()], **FIT)
    assert moved(start, weights(model)) == {weight.path for weight in holder.head.trainable_weights}
    assert holder.scale.trainable


def two_heads():
    inputs = keras.Input((6,))
    features = body()(inputs)
    heads = [GatedDomainUnits(3, num_bases=2, basis_size=2, name=name)(features) for name in ("left", "right")]
    model = keras.Model(inputs, layers.Add()(heads))
    model.compile(optimizers.SGD(0.05), LOSS())
    return model


@pytest.mark.one_backend
@pytest.mark.parametrize("layer", [None, "left", "itself"])
def test_of_several_units_all_go_on_or_the_one_that_is_named(layer):
    model = two_heads()
    start = weights(model)
    chosen = model.get_layer("left") if layer == "itself" else layer
    model.fit(X, Y, callbacks=[FreezeBackbone(layer=chosen)], **FIT)
    expected = ["left", "right"] if layer is None else ["left"]
    trained = {weight.path for name in expected for weight in model.get_layer(name).trainable_weights}
    assert moved(start, weights(model)) == trained


def test_release_undoes_it_after_a_training_that_was_broken_off():
    def stop(model):
        raise KeyboardInterrupt

    model, head = gated(OPTIMISERS["sgd"]())
    freeze = FreezeBackbone()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, callbacks=[freeze, Calls(stop, at="on_train_batch_end")], **FIT)
    freeze.release()
    freeze.release()  # twice does no harm
    assert all(layer.trainable for layer in model._flatten_layers())
    start = weights(model)
    model.fit(X, Y, **FIT)
    assert len(outside(head, moved(start, weights(model)))) == 6


@pytest.mark.parametrize("after", [-1, 1.5, True, "2", None])
def test_after_must_be_an_epoch(after):
    with pytest.raises(ValueError, match=r"after must be a whole number of at least 0.* got"):
        FreezeBackbone(after)


def test_numpy_counts_too():
    assert FreezeBackbone(np.int64(3)).after == 3


def test_a_model_without_units_is_refused():
    model = keras.Sequential([keras.Input((6,)), layers.Dense(3)], name="plain")
    model.compile("sgd", LOSS())
    with pytest.raises(ValueError, match="'plain' has no GatedDomainUnits layer"):
        model.fit(X, Y, callbacks=[FreezeBackbone(3)], **FIT)


def test_a_name_that_is_not_there_is_refused_with_those_that_are():
    model = two_heads()
    with pytest.raises(ValueError, match=r"'middle' is no GatedDomainUnits layer .* it has 'left', 'right'"):
        model.fit(X, Y, callbacks=[FreezeBackbone(3, layer="middle")], **FIT)


def test_nothing_left_to_train_is_refused():
    model, head = gated()
    head.trainable = False
    model.compile(optimizers.SGD(0.05), LOSS())
    with pytest.raises(ValueError, match="nothing is left to train"):
        model.fit(X, Y, callbacks=[FreezeBackbone()], **FIT)
    assert model.get_layer("body").trainable


def test_a_layer_that_changes_itself_in_training_is_found_out():
    dense = layers.SpectralNormalization(layers.Dense(8), name="spectral")
    model = keras.Sequential([keras.Input((6,)), dense, GatedDomainUnits(3, num_bases=2, basis_size=2)])
    model.compile(optimizers.SGD(0.05), LOSS())
    with pytest.raises(RuntimeError, match=r"spectral/\S+ moved in a frozen epoch"):
        model.fit(X, Y, epochs=2, callbacks=[FreezeBackbone()], **FIT)
    assert dense.trainable


def test_a_model_without_weights_yet_is_refused_where_the_trainer_makes_none():
    model = keras.Sequential([layers.Dense(8), GatedDomainUnits(3, num_bases=2, basis_size=2)])
    model.compile(optimizers.SGD(0.05), LOSS())
    if keras.backend.backend() == "tensorflow":
        with pytest.raises(ValueError, match=r"no weights yet .*keras\.Input"):
            model.fit(X, Y, callbacks=[FreezeBackbone()], **FIT)
        model(X[:1])
    model.fit(X, Y, callbacks=[FreezeBackbone()], **FIT)
