"""PenaltyRamp: the factor of each epoch is in the loss, and gone when training is over."""

from __future__ import annotations

import math

import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("keras")

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers, optimizers  # noqa: E402
from small_keras_models import LOSS, Calls, gated, rows  # noqa: E402

from gated_domains.keras_layer import GatedDomainUnits  # noqa: E402
from gated_domains.keras_layer.arrays import as_numpy  # noqa: E402
from gated_domains.keras_layer.callbacks import PenaltyRamp  # noqa: E402

X, Y = rows(24)
FIT = {"batch_size": 24, "verbose": 0}
ALL = {"lambda_ols": 1.0, "lambda_l1": 2.0, "lambda_entropy": 3.0, "lambda_orth": 4.0, "lambda_dev": 5.0}


def scales(head):
    return as_numpy(head.penalty_scales).tolist()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"epochs": 4}, [0, 0.25, 0.5, 0.75, 1, 1]),
        ({"epochs": 2, "start": 0.5}, [0.5, 0.75, 1, 1, 1, 1]),
        ({"epochs": 1, "start": 2.0}, [2, 1, 1, 1, 1, 1]),
        ({"schedule": lambda epoch: 0.5**epoch}, [1, 0.5, 0.25, 0.125, 0.0625, 0.03125]),
        ({"schedule": lambda epoch: np.float32(epoch)}, [0, 1, 2, 3, 4, 5]),
    ],
    ids=["from 0", "from a start", "downwards", "a schedule", "a schedule in NumPy's numbers"],
)
def test_the_factor_by_epoch(settings, expected):
    ramp = PenaltyRamp(**settings)
    assert [ramp.factor(epoch) for epoch in range(6)] == pytest.approx(expected)


@pytest.mark.parametrize("jit", [False, True] if keras.backend.backend() != "torch" else [False])
def test_the_loss_of_each_epoch_holds_as_much_of_the_penalties(jit):
    """With a rate of 0 nothing moves but the factor, so that losses lie on a line from task to task + penalty."""
    model, head = gated(optimizers.SGD(0.0), jit=jit, **ALL)
    for norm in model.get_layer("body").layers[1:2]:
        norm.trainable = False
    model.compile(optimizers.SGD(0.0), LOSS(), jit_compile=jit)
    history = model.fit(X, Y, epochs=4, callbacks=[PenaltyRamp(2)], **FIT).history
    assert history["penalty_scale"] == [0, 0.5, 1, 1]
    penalty = float(as_numpy(head.penalty(head.evaluate(model.get_layer("body")(X)))))
    task = float(as_numpy(LOSS()(Y, model(X))))
    assert penalty > 1
    np.testing.assert_allclose(history["loss"], task + penalty * np.array([0, 0.5, 1, 1]), rtol=1e-5)


@pytest.mark.one_backend
def test_steps_of_an_epoch_see_its_factor_validation_too():
    model, head = gated(**ALL)
    seen = []
    looks = [Calls(lambda _: seen.append(scales(head)), at=at) for at in ("on_train_batch_end", "on_test_end")]
    model.fit(X, Y, batch_size=12, epochs=2, verbose=0, validation_data=(X, Y), callbacks=[PenaltyRamp(4), *looks])
    assert seen == [[0] * 5] * 3 + [[0.25] * 5] * 3


@pytest.mark.one_backend
def test_penalties_that_are_named_ramp_and_the_others_stay():
    model, head = gated(**ALL)
    seen = []
    look = Calls(lambda _: seen.append(scales(head)), at="on_train_batch_end")
    slow = PenaltyRamp(4, penalties="entropy")
    down = PenaltyRamp(schedule=lambda epoch: 2 - epoch, penalties=["orthogonality", "sparsity"])
    history = model.fit(X, Y, epochs=2, callbacks=[slow, down, look], **FIT).history
    assert seen == [[1, 2, 0, 2, 1], [1, 1, 0.25, 1, 1]]
    assert history["penalty_scale_entropy"] == [0, 0.25]
    assert history["penalty_scale_orthogonality"] == history["penalty_scale_sparsity"] == [2, 1]
    assert "penalty_scale" not in history


@pytest.mark.one_backend
def test_penalties_that_are_not_in_use_stay_where_they_are():
    model, head = gated(lambda_ols=0.1, lambda_dev=0.0)
    seen = []
    look = Calls(lambda _: seen.append(scales(head)), at="on_train_batch_end")
    model.fit(X, Y, callbacks=[PenaltyRamp(), look], **FIT)
    assert seen == [[0, 1, 1, 1, 1]]


def test_between_epochs_and_after_training_the_factor_is_1(tmp_path):
    model, head = gated(**ALL)
    path = tmp_path / "model.keras"
    model.fit(X, Y, epochs=2, callbacks=[PenaltyRamp(), keras.callbacks.ModelCheckpoint(path)], **FIT)
    assert scales(head) == [1] * 5
    assert scales(keras.saving.load_model(path).get_layer("head")) == [1] * 5


@pytest.mark.one_backend
def test_a_training_that_is_taken_up_later_ramps_on():
    model, _ = gated(**ALL)
    history = model.fit(X, Y, epochs=4, initial_epoch=2, callbacks=[PenaltyRamp(4)], **FIT).history
    assert history["penalty_scale"] == [0.5, 0.75]


@pytest.mark.one_backend
def test_of_several_units_all_ramp_or_the_one_that_is_named():
    inputs = keras.Input((6,))
    heads = [GatedDomainUnits(3, num_bases=2, basis_size=2, name=name) for name in ("left", "right")]
    model = keras.Model(inputs, layers.Add()([head(inputs) for head in heads]))
    model.compile(optimizers.SGD(0.05), LOSS())
    for layer, expected in ((None, [0, 0]), ("right", [1, 0]), (heads[0], [0, 1])):
        seen = []
        look = Calls(lambda _, seen=seen: seen.append([scales(head)[0] for head in heads]), at="on_train_batch_end")
        model.fit(X, Y, callbacks=[PenaltyRamp(layer=layer), look], **FIT)
        assert seen == [expected]


def test_a_penalty_that_is_not_in_use_is_refused_with_the_cure():
    model, _ = gated(lambda_ols=0.1)
    ramp = PenaltyRamp(penalties=["reconstruction", "entropy"])
    with pytest.raises(ValueError, match=r"'entropy' is not in use in 'head'.* lambda_entropy above 0.*reconstruction"):
        model.fit(X, Y, callbacks=[ramp], **FIT)


def test_a_layer_without_penalties_is_refused():
    model, _ = gated(lambda_ols=0.0, lambda_dev=0.0)
    with pytest.raises(ValueError, match=r"no penalty of 'head' is in use.* lambda_ols"):
        model.fit(X, Y, callbacks=[PenaltyRamp()], **FIT)


@pytest.mark.parametrize("given", ["entropie", ["entropy", "l1"], []])
def test_names_of_no_penalty_are_refused_with_those_there_are(given):
    with pytest.raises(ValueError, match="penalties must be some of reconstruction, sparsity, entropy, orthogonality"):
        PenaltyRamp(penalties=given)


@pytest.mark.parametrize("given", [-1, math.nan, math.inf, "much", None])
def test_a_schedule_that_gives_no_factor_is_refused(given):
    with pytest.raises(ValueError, match=r"schedule\(3\) must be a number of at least 0, got"):
        PenaltyRamp(schedule=lambda epoch: given).factor(3)


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"epochs": 0}, ValueError, "epochs must be a whole number of at least 1"),
        ({"epochs": 2.5}, ValueError, "epochs must be a whole number of at least 1"),
        ({"start": -0.1}, ValueError, "start must be finite and at least 0"),
        ({"schedule": 0.5}, TypeError, "schedule must be a function of the epoch"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("without_shape_checks")
def test_settings_that_make_no_sense_are_refused(settings, error, says):
    with pytest.raises(error, match=says):
        PenaltyRamp(**settings)


def test_a_model_without_weights_yet_is_refused_where_the_trainer_makes_none():
    model = keras.Sequential([GatedDomainUnits(3, num_bases=2, basis_size=2)])
    model.compile(optimizers.SGD(0.05), LOSS())
    if keras.backend.backend() == "tensorflow":
        with pytest.raises(ValueError, match=r"no weights yet .*keras\.Input"):
            model.fit(X, Y, callbacks=[PenaltyRamp()], **FIT)
        model(X[:1])
    assert model.fit(X, Y, callbacks=[PenaltyRamp()], **FIT).history["penalty_scale"] == [0]
