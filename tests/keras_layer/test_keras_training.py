"""Training a Keras model with units: the head alone on kept features, or body and head together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("keras")

import keras  # noqa: E402
import numpy as np  # noqa: E402
from backends import on_every_backend  # noqa: E402
from keras import layers  # noqa: E402

from gated_domains.keras_layer import (  # noqa: E402
    GatedDomainUnits,
    GaussianLikelihood,
    ProbabilisticRegression,
)
from gated_domains.keras_layer.arrays import as_numpy  # noqa: E402
from gated_domains.keras_layer.compiling import default_loss  # noqa: E402
from gated_domains.keras_layer.heads import gating_rows, model_head, replace_head  # noqa: E402
from gated_domains.keras_layer.training import end_to_end, fine_tune, stands_still  # noqa: E402

SMALL = partial(GatedDomainUnits, num_bases=3, basis_size=4)
ROWS, WIDTH, CLASSES = 96, 5, 3
TOGETHER = {"epochs": 3, "batch_size": 32, "verbose": 0}


@pytest.fixture(autouse=True)
def one_keras_seed_a_test() -> None:
    keras.utils.set_random_seed(0)


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three classes in each of three domains, which lie apart."""
    draws = np.random.default_rng(seed)
    y, domain = draws.integers(CLASSES, size=ROWS), draws.integers(3, size=ROWS)
    x = draws.normal(size=(ROWS, WIDTH))
    x[:, 0] += 4 * domain
    x[np.arange(ROWS), 1 + y] += 3
    return x.astype("float32"), y


def plain(activation: str | None = None) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    x = layers.Dense(6, activation="relu", name="hidden")(inputs)
    x = layers.Dropout(0.2)(layers.BatchNormalization(name="norm")(x))
    return keras.Model(inputs, layers.Dense(CLASSES, activation=activation, name="head")(x), name="net")


def sequential() -> keras.Model:
    return keras.Sequential([plain_body(), layers.Dense(CLASSES, name="head"), layers.Softmax()], name="net")


def plain_body() -> keras.Model:
    whole = plain()
    return keras.Model(whole.input, whole.get_layer("norm").output, name="body")


def nested() -> keras.Model:
    return keras.Sequential([keras.Input((WIDTH,)), layers.Rescaling(0.5), plain()], name="outer")


def norm_after_the_head() -> keras.Model:
    whole = plain()
    return keras.Model(whole.input, layers.BatchNormalization(name="after")(whole.output), name="net")


def bare() -> keras.Model:
    return keras.Sequential([keras.Input((WIDTH,)), layers.Dense(CLASSES, name="head")], name="net")


def gated(make: Any = plain, head: Any = SMALL, *, name: str | None = None, gating: Any = None) -> keras.Model:
    return replace_head(make(), head, name=name, gating=gating, verbose=False)


MODELS = {
    "softmax": partial(gated, partial(plain, "softmax")),
    "sequential, view of a layer inside": partial(gated, sequential, gating=["body/hidden"]),
    "nested head, view of the input": partial(gated, nested, gating=layers.Flatten()),
    "nested head": partial(gated, nested),
    "batch norm after the head": partial(gated, norm_after_the_head, name="head"),
    "no body": partial(gated, bare),
}


def apart_from_units(model: keras.Model) -> dict[str, np.ndarray]:
    """Every weight that is neither of the units nor of the standardisation of their view."""
    kept = {id(weight) for weight in model_head(model).weights}
    return {
        f"{place} {weight.path}": as_numpy(weight).copy()
        for place, weight in enumerate(model.weights)
        if id(weight) not in kept and "standardised" not in weight.path
    }


def flags(model: keras.Model) -> list[bool]:
    return [part.trainable for part in (*model._flatten_layers(), *model.variables)]


def task_loss(model: keras.Model, x: np.ndarray, y: np.ndarray) -> float:
    output = as_numpy(model(x, training=False))
    logits = not np.allclose(output.sum(-1), 1, atol=1e-4)
    return float(keras.losses.SparseCategoricalCrossentropy(from_logits=logits)(y, output))


class Spy(keras.callbacks.Callback):
    def __init__(self, units: GatedDomainUnits) -> None:
        super().__init__()
        self.units = units
        self.bases: list[np.ndarray] = []

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.bases.append(as_numpy(self.units.bases).copy())


class Run(NamedTuple):
    """A training and what was seen of it."""

    model: keras.Model
    history: keras.callbacks.History
    fits: list[dict[str, Any]]
    passes: list[keras.Model]
    spy: Spy
    found: tuple[float, float]


def seen(train: Callable[..., keras.callbacks.History], model: keras.Model, **settings: Any) -> Run:
    """Train, and note every call of ``fit_bases`` and ``predict``."""
    fits: list[dict[str, Any]] = []
    passes: list[keras.Model] = []
    spy = Spy(model_head(model))
    fit_bases, predict = GatedDomainUnits.fit_bases, keras.Model.predict

    def noted(self: GatedDomainUnits, features: Any, **given: Any) -> Any:
        fits.append({"rows": np.asarray(features).copy(), **given})
        return fit_bases(self, features, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GatedDomainUnits, "fit_bases", noted)
        patch.setattr(keras.Model, "predict", lambda self, *a, **k: passes.append(self) or predict(self, *a, **k))
        history = train(model, *data(), callbacks=[spy], **{**TOGETHER, **settings})
    coverage = model_head(model).coverage
    return Run(model, history, fits, passes, spy, (coverage.q50, coverage.q97))


@pytest.fixture(scope="module")
def tuned() -> Run:
    keras.utils.set_random_seed(0)
    return seen(fine_tune, gated(gating=["hidden"]), validation_data=data(seed=1))


@pytest.fixture(scope="module")
def together() -> Run:
    keras.utils.set_random_seed(0)
    fast = keras.optimizers.Adam(0.01)
    return seen(end_to_end, gated(), fit_after=2, optimizer=fast, validation_data=data(seed=1))


@pytest.mark.parametrize(
    "name", on_every_backend(["nested head, view of the input"], of=MODELS, slow=["nested head", "no body"])
)
def test_fine_tuning_trains_the_head_and_leaves_the_body_as_it_was_bit_for_bit(name):
    model, (x, y) = MODELS[name](), data()
    body, settings, start = apart_from_units(model), flags(model), task_loss(model, x, y)
    history = fine_tune(model, x, y, epochs=6, batch_size=32, optimizer=keras.optimizers.Adam(0.03), verbose=0)
    assert task_loss(model, x, y) < 0.9 * start
    assert len(history.history["loss"]) == 6
    assert np.isfinite(history.history["loss"]).all()
    assert "accuracy" in history.history
    for path, kept in body.items():
        np.testing.assert_array_equal(apart_from_units(model)[path], kept, err_msg=path)
    assert flags(model) == settings


def test_the_head_that_was_trained_is_the_model_s_own(tuned):
    model, (x, _) = tuned.model, data()
    features = as_numpy(keras.Model(model.input, model.get_layer("norm").output)(x, training=False))
    kept = [features, gating_rows(model, x)]
    np.testing.assert_allclose(as_numpy(tuned.history.model(kept)), as_numpy(model(x, training=False)), atol=1e-5)


def test_features_are_computed_once(tuned):
    assert len(tuned.passes) == 2  # of training and of validation data
    assert len(tuned.history.history["val_accuracy"]) == 3


def test_bases_fit_the_standardised_view(tuned):
    assert len(tuned.fits) == 1
    np.testing.assert_allclose(tuned.fits[0]["rows"], gating_rows(tuned.model, data()[0]), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(tuned.fits[0]["rows"].mean(0), 0, atol=1e-4)


@pytest.mark.parametrize("run", ["tuned", "together"])
def test_coverage_belongs_to_the_weights_there_are_at_the_end(run, request):
    model, found = request.getfixturevalue(run).model, request.getfixturevalue(run).found
    units = model_head(model)
    units.fit_coverage(gating_rows(model, data()[0]))
    assert found == pytest.approx((units.coverage.q50, units.coverage.q97), rel=1e-3)


def test_a_model_that_was_not_compiled_can_be_evaluated_after_fine_tuning(tuned):
    assert tuned.model.evaluate(*data(), verbose=0, return_dict=True)["accuracy"] > 0.3


def test_the_paper_s_head_keeps_its_bases():
    model = gated(head=GatedDomainUnits.paper)
    units = model_head(model)
    bases, sigma = as_numpy(units.bases).copy(), units.kernel.get_sigma()
    assert not seen(fine_tune, model, fit="sigma", optimizer=keras.optimizers.SGD(0.0)).fits
    np.testing.assert_array_equal(as_numpy(units.bases), bases)
    assert units.kernel.get_sigma() != sigma


@pytest.mark.one_backend
def test_penalties_are_part_of_the_loss():
    model, (x, y) = gated(head=partial(SMALL, lambda_ols=10.0)), data()
    history = fine_tune(model, x, y, epochs=1, batch_size=ROWS, optimizer=keras.optimizers.SGD(0.0), verbose=0)
    penalty = float(as_numpy(model_head(model).novelty(gating_rows(model, x))).mean())
    assert history.history["loss"][0] == pytest.approx(task_loss(model, x, y) + 10 * penalty, rel=1e-3)


@pytest.mark.one_backend
def test_a_frozen_and_compiled_model_is_fine_tuned_all_the_same_and_stays_as_it_is():
    model, (x, y) = gated(), data()
    model.trainable = False
    model.compile("sgd", "mse")
    before, optimizer = as_numpy(model_head(model).shared.weight).copy(), model.optimizer
    fine_tune(model, x, y, **TOGETHER)
    assert not np.array_equal(as_numpy(model_head(model).shared.weight), before)
    assert not any(flags(model))
    assert model.optimizer is optimizer


def test_flags_come_back_after_an_error_too():
    model, (x, y) = gated(norm_after_the_head, name="head"), data()
    settings = flags(model)
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever Keras says of targets that do not fit
        fine_tune(model, x, y[:10], **TOGETHER)
    assert flags(model) == settings


def test_fine_tuning_refuses_datasets_and_outputs_that_need_more_than_the_head():
    x, y = data()
    with pytest.raises(TypeError, match="fine_tune keeps the features of arrays, got list; end_to_end takes datasets"):
        fine_tune(gated(), [(x, y)], None, **TOGETHER)
    whole = plain()
    both = layers.Add()([whole.output, layers.Dense(CLASSES, name="linear")(whole.input)])
    model = replace_head(keras.Model(whole.input, both, name="both"), SMALL, name="head", verbose=False)
    with pytest.raises(ValueError, match="the output of the model 'both' needs more than head gives"):
        fine_tune(model, x, y, **TOGETHER)


@pytest.mark.parametrize(
    "name", on_every_backend(["nested head"], of=["nested head", "sequential, view of a layer inside"])
)
def test_training_end_to_end_moves_body_and_head(name):
    model, (x, y) = MODELS[name](), data()
    body, start = apart_from_units(model), task_loss(model, x, y)
    history = end_to_end(model, x, y, epochs=6, batch_size=32, optimizer=keras.optimizers.Adam(0.02), verbose=0)
    assert task_loss(model, x, y) < 0.8 * start
    assert len(history.history["loss"]) == 6
    moved = [path for path, kept in body.items() if not np.array_equal(apart_from_units(model)[path], kept)]
    assert len(moved) >= 6  # kernel and bias, and the four numbers of the norm


def test_bases_are_fitted_again_where_the_view_moves(together):
    assert len(together.fits) == 2
    assert together.fits[1]["optimizer"] is together.model.optimizer
    assert not np.array_equal(together.fits[0]["rows"], together.fits[1]["rows"])  # what gates saw then
    first, second, third = together.spy.bases
    assert np.abs(third - second).max() > np.abs(second - first).max()


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("settings", "gating"),
    [({}, layers.Flatten()), ({"fit_after": 0}, None)],
    ids=["a view that stands still", "no second fit"],
)
def test_bases_are_fitted_once_where_that_is_enough(settings, gating):
    assert len(seen(end_to_end, gated(gating=gating), **{"epochs": 2, **settings}).fits) == 1


@pytest.mark.one_backend
def test_quantiles_after_a_second_fit_are_of_rows_in_its_scale():
    model, (x, y) = gated(gating=["hidden"]), data()
    units, found = model_head(model), []

    def look(epoch: int, logs: dict[str, Any] | None = None) -> None:
        now = units.coverage.q50, units.coverage.q97
        units.fit_coverage(gating_rows(model, x))
        found.append((now, (units.coverage.q50, units.coverage.q97)))

    spy = keras.callbacks.LambdaCallback(on_epoch_begin=look)
    end_to_end(model, x, y, optimizer=keras.optimizers.Adam(0.05), callbacks=[spy], **TOGETHER)
    for now, expected in found:
        assert now == pytest.approx(expected, rel=1e-4)


def frozen(model: keras.Model) -> keras.Model:
    for name in ("hidden", "norm"):
        model.get_layer(name).trainable = False
    return model


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("make", "still"),
    [
        (partial(gated, gating=layers.Flatten()), True),
        (lambda: frozen(gated(gating=["norm"])), True),
        (partial(gated, bare), True),
        (gated, False),
        (partial(gated, gating=["hidden"]), False),
    ],
)
def test_a_view_stands_still_where_nothing_that_makes_it_learns(make, still):
    model = make()
    assert stands_still(model, model_head(model)) is still


def test_a_norm_that_gathers_statistics_makes_a_view_that_moves():
    model = gated(gating=["norm"])
    model.get_layer("hidden").trainable = False
    assert not stands_still(model, model_head(model))
    norm = layers.BatchNormalization(center=False, scale=False)  # nothing in it is trained, and yet it moves
    model = gated(gating=norm)
    assert not stands_still(model, model_head(model))


@pytest.mark.one_backend
def test_nothing_is_fitted_where_nothing_is_asked_for():
    assert not seen(end_to_end, gated(head=GatedDomainUnits.paper), fit=None, epochs=1).fits


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, place: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = data()
        return x[32 * place : 32 * (place + 1)], y[32 * place : 32 * (place + 1)]


def test_a_dataset_may_take_the_place_of_arrays():
    model, (x, y) = gated(), data()
    start = task_loss(model, x, y)
    end_to_end(model, Batches(), epochs=4, optimizer=keras.optimizers.Adam(0.03), verbose=0)
    assert task_loss(model, x, y) < 0.8 * start


@pytest.mark.one_backend
def test_a_loader_of_pytorch_may_take_the_place_of_arrays():
    torch = pytest.importorskip("torch")
    x, y = data()
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=32
    )
    history = end_to_end(gated(), loader, epochs=1, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.one_backend
def test_a_tensorflow_dataset_may_take_the_place_of_arrays():
    tensorflow = pytest.importorskip("tensorflow")
    dataset = tensorflow.data.Dataset.from_tensor_slices(data()).batch(32)
    history = end_to_end(gated(), dataset, epochs=1, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.one_backend
def test_a_generator_needs_a_sample():
    x, y = data()

    def endless() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        while True:
            yield x[:32], y[:32]

    with pytest.raises(TypeError, match="x is a generator, which can be read only once: pass sample="):
        end_to_end(gated(), endless(), epochs=1)
    history = end_to_end(gated(), endless(), epochs=1, steps_per_epoch=2, sample=x, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


def test_a_compiled_model_is_trained_as_it_is_compiled():
    model, (x, y) = gated(), data()
    model.compile(keras.optimizers.SGD(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    optimizer = model.optimizer
    history = end_to_end(model, x, y, epochs=1, verbose=0)
    assert model.optimizer is optimizer
    assert "accuracy" not in history.history
    end_to_end(model, x, y, epochs=0, optimizer="adam", verbose=0)
    assert model.optimizer is not optimizer


@pytest.mark.parametrize("settings", [{"fit": "all"}, {"fit_after": -1}])
def test_settings_that_mean_nothing_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        end_to_end(gated(), *data(), **settings, **TOGETHER)


def head_with(activation: str | None, width: int = CLASSES) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    return gated(lambda: keras.Model(inputs, layers.Dense(width, activation=activation, name="head")(inputs)))


def after_the_head(*more: layers.Layer) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    x = layers.Dense(CLASSES, name="head")(inputs)
    for layer in more:
        x = layer(x)
    return gated(lambda: keras.Model(inputs, x), name="head")


NUMBERS = np.array([0, 1, 2, 1])
ONE_HOT = np.eye(CLASSES)[NUMBERS]
YES_OR_NO = np.array([0, 1, 1, 0])
SEVERAL = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
REALS = np.array([[0.5, 1.5, 2.0], [1.0, 0.0, 0.1], [0.2, 0.3, 4.0], [1.0, 1.0, 1.5]])


@pytest.mark.one_backend
@pytest.mark.parametrize(
    ("model", "targets", "kind", "logits"),
    [
        (partial(head_with, None), NUMBERS, "SparseCategoricalCrossentropy", True),
        (partial(head_with, None), NUMBERS[:, None].astype("float32"), "SparseCategoricalCrossentropy", True),
        (partial(head_with, None), None, "SparseCategoricalCrossentropy", True),
        (partial(head_with, None), ONE_HOT, "CategoricalCrossentropy", True),
        (partial(head_with, "softmax"), NUMBERS, "SparseCategoricalCrossentropy", False),
        (partial(head_with, "softmax"), ONE_HOT, "CategoricalCrossentropy", False),
        (partial(after_the_head, layers.Softmax()), NUMBERS, "SparseCategoricalCrossentropy", False),
        (partial(after_the_head, layers.Activation("sigmoid")), SEVERAL, "BinaryCrossentropy", False),
        (partial(after_the_head, layers.Dropout(0.1), layers.Activation("linear")), NUMBERS, "Sparse", True),
        (partial(after_the_head, layers.BatchNormalization(name="after")), NUMBERS, "Sparse", True),
        (partial(gated, sequential), NUMBERS, "SparseCategoricalCrossentropy", False),
        (partial(gated, nested), NUMBERS, "SparseCategoricalCrossentropy", True),
        (partial(head_with, None), SEVERAL, "BinaryCrossentropy", True),
        (partial(head_with, "sigmoid", 1), YES_OR_NO, "BinaryCrossentropy", False),
        (partial(head_with, None, 1), YES_OR_NO, "BinaryCrossentropy", True),
        (partial(head_with, None), REALS, "MeanSquaredError", None),
        (partial(head_with, "relu", 1), REALS[:, 0], "MeanSquaredError", None),
    ],
)
def test_the_loss_follows_the_last_activation_and_the_targets(model, targets, kind, logits):
    made = model()
    loss = default_loss(made, model_head(made), targets)
    assert type(loss).__name__.startswith(kind)
    assert getattr(loss, "from_logits", None) is logits


def test_a_probabilistic_head_has_its_likelihood():
    model, (x, y) = gated(head=partial(SMALL, task=ProbabilisticRegression())), data()
    targets = np.eye(CLASSES, dtype="float32")[y]
    assert isinstance(default_loss(model, model_head(model), targets), GaussianLikelihood)
    history = fine_tune(model, x, targets, **TOGETHER)
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        (partial(head_with, None, 1), None),
        (partial(head_with, None, 1), np.array([3, 7, 2])),
        (partial(head_with, None), np.array([0, 1, 5])),
        (partial(head_with, "tanh"), None),
    ],
)
def test_an_unclear_loss_is_asked_for(model, targets):
    made = model()
    with pytest.raises(ValueError, match=r"which loss suits an output of shape .* Say loss="):
        default_loss(made, model_head(made), targets)


@pytest.mark.one_backend
def test_binary_accuracy_is_taken_at_the_right_threshold():
    model, (x, y) = head_with(None, 1), data()
    targets = (y == 0).astype("float32")
    fine_tune(model, x, targets, epochs=8, batch_size=32, optimizer=keras.optimizers.Adam(0.05), verbose=0)
    by_hand = ((as_numpy(model(x, training=False))[:, 0] > 0) == targets).mean()
    assert model.evaluate(x, targets, verbose=0, return_dict=True)["accuracy"] == pytest.approx(by_hand, abs=1e-6)


def test_mixed_precision_and_a_body_in_it():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = gated(gating=["hidden"])
        x, y = data()
        history = fine_tune(model, x, y, **TOGETHER)
        assert np.isfinite(history.history["loss"]).all()
        history = end_to_end(model, x, y, epochs=1, verbose=0)
        assert np.isfinite(history.history["loss"]).all()
    finally:
        keras.config.set_dtype_policy(before)
