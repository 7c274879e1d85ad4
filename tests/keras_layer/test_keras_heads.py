"""Units where a Keras model's final Dense stood, and what they take from the model's own features."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("keras")

import keras  # noqa: E402
import numpy as np  # noqa: E402
from backends import on_every_backend  # noqa: E402
from keras import layers  # noqa: E402

from gated_domains.keras_layer import (  # noqa: E402
    GatedDomainUnits,
    GateWarning,
    MLPExperts,
    ProbabilisticRegression,
    StackedExperts,
)
from gated_domains.keras_layer.arrays import as_numpy  # noqa: E402
from gated_domains.keras_layer.heads import (  # noqa: E402
    fit_head,
    gating_rows,
    model_head,
    renew_head,
    replace_head,
)
from gated_domains.keras_layer.views import Standardised  # noqa: E402

SMALL = partial(GatedDomainUnits, num_bases=3, basis_size=4)


@pytest.fixture(autouse=True)
def one_keras_seed_a_test() -> None:
    keras.utils.set_random_seed(0)


@keras.saving.register_keras_serializable("test_keras_heads")
class Colour(layers.Layer):
    """Mean and deviation of each colour of an image."""

    def call(self, x: Any) -> Any:
        mean, deviation = keras.ops.mean(x, axis=(1, 2)), keras.ops.std(x, axis=(1, 2))
        return keras.ops.concatenate([mean, deviation], axis=-1)


def images(rows: int = 40, seed: int = 0) -> np.ndarray:
    """Three domains: dark, grey and bright."""
    draws = np.random.default_rng(seed)
    brightness = 3 * draws.integers(3, size=(rows, 1, 1, 1))
    return (draws.normal(size=(rows, 8, 8, 3)) + brightness).astype("float32")


def body(name: str = "body") -> keras.Model:
    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, name="conv1")(inputs)
    x = layers.BatchNormalization(name="norm")(x)
    x = layers.Conv2D(6, 3, activation="relu", name="conv2")(x)
    return keras.Model(inputs, layers.GlobalAveragePooling2D(name="pooled")(x), name=name)


def functional(activation: str | None = None) -> keras.Model:
    inner = body()
    x = layers.Dropout(0.3, name="dropout")(inner.output)
    return keras.Model(inner.input, layers.Dense(2, activation=activation, name="head")(x), name="net")


def with_tail() -> keras.Model:
    inner = functional()
    x = layers.Dropout(0.5, name="tail_dropout")(inner.output)
    x = layers.Reshape((2, 1), name="tall")(x)
    x = layers.Reshape((2,), name="wide")(x)
    return keras.Model(inner.input, layers.Softmax(name="softmax")(x), name="net")


def with_operations_after() -> keras.Model:
    inner = functional()
    return keras.Model(inner.input, keras.ops.softmax(inner.output), name="net")


def sequential() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3, name="conv1"),
            layers.Flatten(),
            layers.Dense(5, activation="relu"),
            layers.Dense(2, name="head"),
            layers.Activation("softmax"),
        ],
        name="net",
    )


def backbone_and_dense() -> keras.Model:
    return keras.Sequential([body(), layers.Dense(2, activation="softmax", name="head")], name="net")


def head_in_a_nested_model() -> keras.Model:
    inner = functional()
    return keras.Sequential([keras.Input((8, 8, 3)), layers.Rescaling(0.5), inner], name="outer")


def head_two_models_deep() -> keras.Model:
    inputs = keras.Input((8, 8, 3))
    top = keras.Sequential([layers.Dense(4, name="hidden"), layers.Dense(2, name="head")], name="top")
    both = keras.Sequential([layers.Flatten(), top], name="both")
    return keras.Model(inputs, layers.Softmax()(both(body_maps()(inputs))), name="outer")


def body_maps() -> keras.Model:
    whole = body("maps")
    return keras.Model(whole.input, whole.get_layer("conv2").output, name="maps")


MODELS = {
    "functional": functional,
    "dense with an activation": partial(functional, "sigmoid"),
    "layers after the dense": with_tail,
    "operations after the dense": with_operations_after,
    "sequential": sequential,
    "backbone and dense": backbone_and_dense,
    "nested": head_in_a_nested_model,
    "nested twice": head_two_models_deep,
}


@pytest.fixture(params=on_every_backend(["layers after the dense", "nested twice"], of=MODELS))
def model(request: pytest.FixtureRequest) -> keras.Model:
    built = MODELS[request.param]()
    for weight in built.weights:  # biases and norms that are not zeros and ones
        if weight.dtype == "float32":
            draws = np.random.default_rng(len(weight.path)).uniform(0.1, 0.5, size=weight.shape)
            weight.assign(as_numpy(weight) + draws)
    return built


def predictions(model: keras.Model, x: np.ndarray | None = None) -> np.ndarray:
    return as_numpy(model(images() if x is None else x, training=False))


def numbers_of(layer: keras.layers.Layer) -> list[np.ndarray]:
    return [as_numpy(weight).copy() for weight in layer.weights]


def seen_by_gates(model: keras.Model, x: np.ndarray) -> np.ndarray:
    """The rows that reach the units, as the layer's own record has them."""
    with model_head(model).watch() as seen:
        model(x, training=False)
    return as_numpy(seen[0])


def test_the_output_is_as_before_until_trained(model):
    before = predictions(model)
    new = replace_head(model, verbose=False)
    np.testing.assert_allclose(predictions(new), before, rtol=0, atol=1e-6)
    fit_head(new, images())
    np.testing.assert_allclose(predictions(new), before, rtol=0, atol=1e-6)
    assert np.ptp(before, axis=0).max() > 1e-3  # not the same for every input


def test_the_new_model_is_of_the_same_kind_name_and_shape(model):
    new = replace_head(model, verbose=False)
    assert type(new) is type(model)
    assert new.name == model.name
    assert new.output_shape == model.output_shape
    assert new.inputs[0] is model.inputs[0]
    assert [layer.name for layer in new.layers] == [layer.name for layer in model.layers]
    assert model_head(new).name == "head"


def test_body_layers_are_the_given_model_s_own(model):
    new = replace_head(model, verbose=False)
    units = {id(weight) for weight in model_head(new).weights}
    own = {id(weight) for weight in model.weights}
    assert all(id(weight) in own for weight in new.weights if id(weight) not in units)
    assert len(new.weights) - len(units) == len(model.weights) - 2  # all but kernel and bias of the Dense


@pytest.mark.one_backend
def test_the_given_model_goes_on_working(model, tmp_path):
    before = predictions(model)
    new = replace_head(model, verbose=False)
    model_head(new).shared.weight.assign(np.zeros(model_head(new).shared.weight.shape))
    np.testing.assert_array_equal(predictions(model), before)
    model.save(tmp_path / "old.keras")
    np.testing.assert_allclose(predictions(keras.models.load_model(tmp_path / "old.keras")), before, atol=1e-6)


@pytest.mark.parametrize("gating", [None, ["conv1"], Colour()], ids=["features", "layer", "input"])
@pytest.mark.parametrize(
    "name", on_every_backend(["nested"], of=["layers after the dense", "backbone and dense", "nested"])
)
def test_a_gated_model_is_saved_and_loaded(name, gating, tmp_path):
    new = replace_head(MODELS[name](), SMALL, gating=gating, verbose=False)
    fit_head(new, images())
    move_deviations(new)
    new.save(tmp_path / "new.keras")
    again = keras.models.load_model(tmp_path / "new.keras")
    np.testing.assert_allclose(predictions(again), predictions(new), rtol=0, atol=1e-6)
    np.testing.assert_allclose(seen_by_gates(again, images()), seen_by_gates(new, images()), rtol=1e-5, atol=1e-5)
    assert model_head(again).gate.get_kappa() == model_head(new).gate.get_kappa()


def move_deviations(model: keras.Model) -> None:
    experts = model_head(model).experts
    experts.weight.assign(np.random.default_rng(1).normal(size=experts.weight.shape))


def test_layers_of_both_models_give_what_they_are_asked_for():
    """``get_layer(...).output`` belongs to a graph from the same inputs, so that parts can be cut out as ever."""
    new = replace_head(functional(), verbose=False)
    part = keras.Model(new.input, new.get_layer("conv1").output)
    assert as_numpy(part(images())).shape == (40, 6, 6, 4)


@pytest.mark.one_backend
def test_a_mobile_net_with_an_inner_activation_and_a_frozen_body():
    old = keras.applications.MobileNetV2(weights=None, input_shape=(32, 32, 3), alpha=0.35, classes=3)
    old.trainable = False
    x = np.random.default_rng(0).uniform(-1, 1, size=(6, 32, 32, 3)).astype("float32")
    new = replace_head(old, SMALL, gating=["Conv1", "block_1_expand"], verbose=False)
    np.testing.assert_allclose(predictions(new, x), predictions(old, x), rtol=0, atol=1e-6)
    np.testing.assert_allclose(predictions(new, x).sum(-1), 1, rtol=1e-5)
    assert model_head(new).gating_features == 2 * 16 + 2 * 48
    trained = {weight.path.split("/")[0] for weight in new.trainable_weights}
    assert trained == {"predictions"}


def test_it_says_what_it_replaced(capsys):
    replace_head(head_in_a_nested_model(), SMALL, gating=Colour())
    assert capsys.readouterr().out == (
        "replaced net/head: Dense(6 -> 2) by 3 gated domain units of 4 vectors, gates see a view of width 6\n"
    )
    replace_head(functional(), verbose=False)
    assert capsys.readouterr().out == ""


def test_the_activation_of_the_dense_is_the_units_own():
    new = replace_head(functional("softmax"), verbose=False)
    assert model_head(new).activation is keras.activations.softmax
    chosen = replace_head(functional("softmax"), partial(SMALL, activation="sigmoid"), verbose=False)
    assert model_head(chosen).activation is keras.activations.sigmoid


def test_the_head_may_be_the_paper_s():
    units = model_head(replace_head(functional("softmax"), GatedDomainUnits.paper, verbose=False))
    assert units.shared is None
    assert units.lambda_l1 == 1e-3
    assert units.name == "head"
    assert units.activation is keras.activations.softmax


def test_a_head_may_have_a_name_of_its_own():
    new = replace_head(functional(), partial(SMALL, name="gated"), verbose=False)
    assert model_head(new).name == "gated"


@pytest.mark.parametrize("experts", [MLPExperts(hidden=4), None, "stacked"], ids=["mlp", "probabilistic", "stacked"])
def test_weights_are_kept_only_where_they_mean_the_same(experts):
    task = ProbabilisticRegression() if experts is None else None
    if experts == "stacked":
        experts = StackedExperts(layers.Dense(2))
    new = replace_head(functional(), partial(SMALL, experts=experts, task=task), verbose=False)
    assert np.isfinite(predictions(new)).all()
    assert predictions(new).shape == (40, 4 if task else 2)


def test_a_dense_without_bias_leaves_units_with_a_bias_of_zero():
    inputs = keras.Input((5,))
    old = keras.Model(inputs, layers.Dense(2, use_bias=False)(inputs))
    x = np.random.default_rng(0).normal(size=(7, 5)).astype("float32")
    np.testing.assert_allclose(predictions(replace_head(old, verbose=False), x), predictions(old, x), atol=1e-6)


def test_a_dense_on_every_step_of_a_sequence():
    inputs = keras.Input((4, 5))
    old = keras.Model(inputs, layers.Dense(2)(layers.Dense(3, "relu")(inputs)))
    x = np.random.default_rng(0).normal(size=(30, 4, 5)).astype("float32")
    new = replace_head(old, SMALL, verbose=False)
    fit_head(new, x)
    np.testing.assert_allclose(predictions(new, x), predictions(old, x), atol=1e-6)
    assert gating_rows(new, x).shape == (120, 3)


def test_the_precision_of_the_dense_is_the_units_own():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        inputs = keras.Input((5,))
        old = keras.Model(inputs, layers.Dense(2, dtype="float32", name="head")(layers.Dense(4, "relu")(inputs)))
        half = keras.Model(inputs, layers.Dense(2, name="head")(layers.Dense(4, "relu")(inputs)))
    finally:
        keras.config.set_dtype_policy(before)
    assert model_head(replace_head(old, verbose=False)).compute_dtype == "float32"
    assert model_head(replace_head(half, verbose=False)).compute_dtype == "float16"
    assert keras.config.dtype_policy() == before


def test_a_compiled_model_gives_one_that_is_not():
    old = functional()
    old.compile("sgd", lambda y, p: keras.ops.mean(p))  # a loss that nobody can save
    assert not replace_head(old, verbose=False).compiled
    assert old.compiled


def test_a_class_of_one_s_own_stays():
    class Logged(keras.Model):
        def train_step(self, *args: Any, **kwargs: Any) -> Any:
            return super().train_step(*args, **kwargs)

    inner = functional()
    assert type(replace_head(Logged(inner.input, inner.output), verbose=False)) is Logged


def test_several_outputs_are_refused_with_the_names():
    inner = body()
    one, other = layers.Dense(2, name="class")(inner.output), layers.Dense(1, name="age")(inner.output)
    several = keras.Model(inner.input, {"class": one, "age": other})
    with pytest.raises(ValueError, match=r"2 outputs: .*class \(6 -> 2\).*name=") as refused:
        replace_head(several)
    assert "age (6 -> 1)" in str(refused.value)
    before = several(images(), training=False)
    new = replace_head(several, name="age", verbose=False)
    found = new(images(), training=False)
    assert model_head(new).units == 1
    for key, value in before.items():
        np.testing.assert_allclose(as_numpy(found[key]), as_numpy(value), rtol=0, atol=1e-6)


def test_branches_that_meet_are_refused_with_the_names():
    inner = body()
    one, other = layers.Dense(2, name="left")(inner.output), layers.Dense(2, name="right")(inner.output)
    meeting = keras.Model(inner.input, layers.Add()([one, other]))
    with pytest.raises(ValueError, match=r"2 that could be the head: left \(6 -> 2\), right \(6 -> 2\)"):
        replace_head(meeting)
    new = replace_head(meeting, name="right", verbose=False)
    np.testing.assert_allclose(predictions(new), predictions(meeting), rtol=0, atol=1e-6)


def test_a_dense_that_only_weighs_channels_is_no_head():
    inner = body_maps()
    weights = layers.Dense(6, activation="sigmoid", name="excite")(layers.GlobalAveragePooling2D()(inner.output))
    squeezed = keras.Model(inner.input, layers.Multiply()([inner.output, weights]))
    with pytest.raises(ValueError, match=r"no Dense that is clearly the head: excite \(6 -> 6\)"):
        replace_head(squeezed)


def test_a_dense_before_layers_with_weights_is_no_head():
    inputs = keras.Input((5,))
    x = layers.BatchNormalization()(layers.Dense(2, name="middle")(inputs))
    with pytest.raises(ValueError, match=r"clearly the head: middle \(5 -> 2\); choose one with name="):
        replace_head(keras.Model(inputs, x))


def test_a_dense_called_twice_is_refused():
    shared, first, second = layers.Dense(2, name="twice"), keras.Input((3,)), keras.Input((3,))
    siamese = keras.Model([first, second], layers.Subtract()([shared(first), shared(second)]))
    with pytest.raises(ValueError, match="twice is called several times"):
        replace_head(siamese, name="twice")


def test_names_in_nested_models():
    outer = head_two_models_deep()
    assert model_head(replace_head(outer, name="both/top/hidden", verbose=False)).units == 4
    assert model_head(replace_head(outer, name="hidden", verbose=False)).units == 4
    with pytest.raises(ValueError, match=r"no Dense layer named 'heads'; it has .*both/top/head \(4 -> 2\)"):
        replace_head(outer, name="heads")


@pytest.mark.parametrize("name", [None, "head"])
@pytest.mark.parametrize("make", [functional, head_in_a_nested_model])
def test_a_head_that_was_replaced_is_not_replaced_again(make, name):
    new = replace_head(make(), SMALL, verbose=False)
    with pytest.raises(ValueError, match=rf"{new.name}' already has gated domain units: head; use them \(model_head"):
        replace_head(new, name=name)


def test_a_model_without_a_dense_is_refused():
    with pytest.raises(ValueError, match="'body' has no Dense layer whose place units could take"):
        replace_head(body())


def test_a_model_that_is_not_built_is_refused_with_the_cure():
    loose = keras.Sequential([layers.Dense(4), layers.Dense(2)])
    with pytest.raises(ValueError, match=r"is not built, .* call model.build\(\(None, ...\)\)"):
        replace_head(loose)
    loose.build((None, 5))
    assert model_head(replace_head(loose, verbose=False)).in_features == 4


def test_a_subclassed_model_is_refused_with_the_cure():
    class Subclassed(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(2)

        def call(self, x: Any) -> Any:
            return self.dense(x)

    with pytest.raises(TypeError, match=r"Subclassed is a subclassed model.*GatedDomainUnits\(units\)"):
        replace_head(Subclassed())
    with pytest.raises(TypeError, match="expected a Keras model, got Dense"):
        replace_head(layers.Dense(2))


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (layers.Dense, "head must make GatedDomainUnits"),
        (partial(SMALL, task=ProbabilisticRegression()), "would distort mean and variance"),
    ],
)
def test_a_head_that_does_not_suit_is_refused(head, message):
    with pytest.raises((TypeError, ValueError), match=message):
        replace_head(functional("softmax"), head)


def test_gates_see_the_statistics_of_named_layers():
    old = functional()
    new = replace_head(old, SMALL, gating=["conv1", "conv2"], verbose=False)
    maps = [as_numpy(keras.Model(old.input, old.get_layer(name).output)(images())) for name in ("conv1", "conv2")]
    expected = np.concatenate(
        [part for x in maps for part in (x.mean((1, 2)), np.log(x.var((1, 2)) + 1e-6) / 2)], axis=-1
    )
    np.testing.assert_allclose(gating_rows(new, images()), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("gating", [["body/conv1"], ["conv1"], "conv1"])
def test_layers_of_a_nested_body_can_be_named(gating):
    old = backbone_and_dense()
    new = replace_head(old, SMALL, gating=gating, verbose=False)
    inner = old.layers[0]
    maps = as_numpy(keras.Model(inner.input, inner.get_layer("conv1").output)(images()))
    expected = np.concatenate([maps.mean((1, 2)), np.log(maps.var((1, 2)) + 1e-6) / 2], axis=-1)
    np.testing.assert_allclose(gating_rows(new, images()), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(predictions(new), predictions(old), rtol=0, atol=1e-6)
    before = inner.get_layer("norm").get_weights()
    new(images(), training=True)
    once = inner.get_layer("norm").get_weights()
    momentum = inner.get_layer("norm").momentum
    expected_mean = momentum * before[2] + (1 - momentum) * maps.mean((0, 1, 2))
    np.testing.assert_allclose(
        once[2], expected_mean, rtol=1e-3, atol=1e-4
    )  # the body ran once, not once for each view


@pytest.mark.parametrize("name", on_every_backend(["functional", "nested twice"], of=MODELS))
def test_gates_may_see_a_layer_called_on_the_input(name):
    old = MODELS[name]()
    new = replace_head(old, SMALL, gating=Colour(), verbose=False)
    x = images()
    np.testing.assert_allclose(
        gating_rows(new, x), np.concatenate([x.mean((1, 2)), x.std((1, 2))], -1), rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(predictions(new), predictions(old), rtol=0, atol=1e-6)
    assert new.output_shape == old.output_shape
    assert model_head(new).gating_features == 6


def test_gates_may_see_a_model_called_on_the_input():
    view = keras.Sequential([keras.Input((8, 8, 3)), layers.Flatten(), layers.Dense(5)], name="view")
    new = replace_head(functional(), SMALL, gating=view, verbose=False)
    np.testing.assert_allclose(gating_rows(new, images()), as_numpy(view(images())), rtol=1e-4, atol=1e-4)


@pytest.mark.one_backend
def test_a_model_with_several_inputs_and_a_view_of_all_of_them():
    first, second = keras.Input((3,), name="first"), keras.Input((4,), name="second")
    x = layers.Concatenate()([layers.Dense(5, "relu")(first), second])
    old = keras.Model({"first": first, "second": second}, layers.Dense(2, name="head")(x))
    view = keras.Model({"first": first, "second": second}, layers.Concatenate()([second, first]))
    new = replace_head(old, SMALL, gating=view, verbose=False)
    draws = np.random.default_rng(0)
    inputs = {"first": draws.normal(size=(30, 3)).astype("f"), "second": draws.normal(size=(30, 4)).astype("f")}
    fit_head(new, inputs)
    np.testing.assert_allclose(as_numpy(new(inputs)), as_numpy(old(inputs)), rtol=0, atol=1e-6)
    assert gating_rows(new, inputs, max_rows=20, batch_size=8).shape == (20, 7)


@pytest.mark.parametrize(
    ("gating", "message"),
    [
        ([], r"gating names layers of the model, got \[\]"),
        (["conv9"], r"unknown: \['conv9'\]"),
        (["head"], r"gates cannot see \['head'\]: they do not come before the head"),
        (lambda x: x, "could not be saved with the model"),
        (layers.Lambda(lambda x: x), "could not be saved with the model"),
        (layers.Reshape((64, 3)), r"a gating view has shape \(batch, features\), this one has \(None, 64, 3\)"),
    ],
)
def test_a_view_that_cannot_be_is_refused(gating, message):
    with pytest.raises((TypeError, ValueError), match=message):
        replace_head(functional(), gating=gating)


def test_a_name_in_several_nested_models_is_refused():
    inputs = keras.Input((8, 8, 3))
    both = layers.Concatenate()([body("left")(inputs), body("right")(inputs)])
    model = keras.Model(inputs, layers.Dense(2)(both))
    with pytest.raises(ValueError, match=r"in several nested models: \['conv1'\], write outer/inner"):
        replace_head(model, gating="conv1")
    assert model_head(replace_head(model, gating=["left/conv1", "right/conv2"], verbose=False)).gating_features == 20


def test_views_on_both_sides_of_a_nested_head_are_refused():
    inputs = keras.Input((8, 8, 3))
    outer = keras.Model(inputs, functional()(layers.Conv2D(3, 1, name="early")(inputs)))
    with pytest.raises(ValueError, match="inside 'net', where the head lies, and layers outside it"):
        replace_head(outer, gating=["early", "conv1"])
    for gating, width in (("early", 6), ("conv1", 8)):
        new = replace_head(outer, SMALL, gating=gating, verbose=False)
        assert model_head(new).gating_features == width
        np.testing.assert_allclose(predictions(new), predictions(outer), rtol=0, atol=1e-6)


def test_nothing_is_back_propagated_through_the_view():
    inputs = keras.Input((8, 8, 3))
    early = layers.Conv2D(4, 3, name="early")
    maps = early(inputs)
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(6, 3)(inputs))  # the features do not come by way of it
    old = keras.Model(inputs, layers.Dense(2)(x))
    wide = keras.Model(inputs, [old.output, maps])
    view = keras.Model(inputs, layers.GlobalAveragePooling2D()(wide.outputs[1]))
    new = replace_head(old, partial(SMALL, lambda_ols=1.0, lambda_entropy=1.0), gating=view, verbose=False)
    fit_head(new, images())
    before, bases = early.get_weights(), as_numpy(model_head(new).bases).copy()
    new.compile(keras.optimizers.SGD(0.1), "mse")
    new.fit(images(), np.ones((40, 2), "float32"), epochs=2, verbose=0)
    np.testing.assert_array_equal(early.get_weights()[0], before[0])
    assert not np.array_equal(as_numpy(model_head(new).bases), bases)


def test_fitting_standardises_the_view_and_gives_gates_that_work():
    new = replace_head(functional(), SMALL, gating=["conv1"], verbose=False)
    assert fit_head(new, images()) is model_head(new)
    rows = gating_rows(new, images())
    np.testing.assert_allclose(rows.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(rows.std(0, ddof=1), 1, rtol=1e-3)
    assert not model_head(new).health(rows).findings()
    assert as_numpy(model_head(new).evaluate(np.zeros((len(rows), 6), "f"), rows).beta).std(0).max() > 0.05


def test_fitting_twice_is_fitting_once():
    new = replace_head(functional(), SMALL, gating=["conv1"], verbose=False)
    fit_head(new, images())
    first = [*numbers_of(model_head(new)), *numbers_of(standardiser(new))]
    fit_head(new, images())
    second = [*numbers_of(model_head(new)), *numbers_of(standardiser(new))]
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-3)


def standardiser(model: keras.Model) -> Standardised:
    return next(layer for layer in model.layers if isinstance(layer, Standardised))


def test_a_refused_fit_leaves_everything_as_it_was():
    new = replace_head(functional(), SMALL, gating=["conv1"], verbose=False)
    fit_head(new, images())
    before = [*numbers_of(model_head(new)), *numbers_of(standardiser(new))]
    same = np.repeat(images()[:1], 40, axis=0)  # they can be standardised, and then sigma cannot be found
    with pytest.raises(ValueError, match=r"sigma|distance|distinct"):
        fit_head(new, same)
    for kept, now in zip(before, [*numbers_of(model_head(new)), *numbers_of(standardiser(new))], strict=True):
        np.testing.assert_array_equal(now, kept)


def test_fitting_clears_what_the_optimiser_remembers_of_the_bases():
    new = replace_head(functional(), partial(SMALL, lambda_ols=1.0), verbose=False)
    fit_head(new, images())
    optimizer = keras.optimizers.Adam(0.01)
    new.compile(optimizer, "mse")
    new.fit(images(), np.ones((40, 2), "float32"), verbose=0)
    place = next(i for i, variable in enumerate(optimizer._trainable_variables) if variable is model_head(new).bases)
    assert np.abs(as_numpy(optimizer._momentums[place])).max() > 0
    fit_head(new, images(), optimizer=optimizer)
    assert np.abs(as_numpy(optimizer._momentums[place])).max() == 0
    assert max(np.abs(as_numpy(held)).max() for held in optimizer._momentums) > 0  # of others it remembers


def test_renewed_coverage_follows_features_that_have_moved():
    new = replace_head(functional(), SMALL, verbose=False)
    fit_head(new, images())
    units = model_head(new)
    before = units.coverage.q97
    units.bases.assign(as_numpy(units.bases) + 1.0)
    renew_head(new, images())
    assert units.coverage.q97 != before
    rows = gating_rows(new, images())
    assert np.median(as_numpy(units.familiarity(rows))) == pytest.approx(1.0, abs=0.05)


def test_renewing_warns_of_dead_gates_and_refits_them_with_the_optimizer():
    new = replace_head(functional(), SMALL, verbose=False)
    new.compile("adam", "mse")
    fit_head(new, images())
    units = model_head(new)
    with warnings.catch_warnings():
        warnings.simplefilter("error", GateWarning)
        renew_head(new, images())
    units.bases.assign(as_numpy(units.bases) + 100.0)
    with pytest.warns(GateWarning, match="features have moved away from the bases .* with optimizer= at the start"):
        renew_head(new, images())
    renew_head(new, images(), optimizer=new.optimizer)
    assert units.drift(gating_rows(new, images())) is None


def test_rows_come_in_any_form_that_a_model_takes():
    new = replace_head(functional(), SMALL, verbose=False)
    x = images()
    expected = gating_rows(new, x)
    batches = [(x[:20], np.zeros(20)), (x[20:], np.zeros(20))]
    np.testing.assert_allclose(gating_rows(new, batches), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gating_rows(new, x, batch_size=20), expected, rtol=1e-4, atol=1e-5)
    assert gating_rows(new, x, max_rows=20).shape == (20, 6)
    assert gating_rows(new, batches, max_rows=30).shape == (30, 6)


def test_looking_at_rows_changes_nothing_in_the_model():
    new = replace_head(functional(), SMALL, verbose=False)
    before = numbers_of(new)
    gating_rows(new, images())
    for kept, now in zip(before, numbers_of(new), strict=True):
        np.testing.assert_array_equal(now, kept)


def test_a_model_without_units_is_refused_with_the_cure():
    with pytest.raises(ValueError, match=r"no GatedDomainUnits layer.*replace_head\(model\)"):
        model_head(functional())
