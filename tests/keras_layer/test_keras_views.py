"""Views that gates see: statistics of channels, and their standardisation, on whichever backend runs."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("keras")

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import ops  # noqa: E402

from gated_domains.keras_layer.arrays import as_numpy  # noqa: E402
from gated_domains.keras_layer.views import ChannelStatistics, Standardised  # noqa: E402


def maps(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(2.0, 3.0, size=shape).astype("float32")


def by_hand(x: np.ndarray) -> np.ndarray:
    """A loop over samples and channels, which come last."""
    rows = []
    for sample in x.astype("float64"):
        columns = sample.reshape(-1, sample.shape[-1]).T
        means = [column.sum() / len(column) for column in columns]
        spread = [((column - mean) ** 2).sum() / len(column) for column, mean in zip(columns, means, strict=True)]
        rows.append([*means, *[np.log(np.sqrt(value + 1e-6)) for value in spread]])
    return np.array(rows)


@pytest.mark.parametrize("shape", [(4, 7, 3), (4, 5, 6, 3), (4, 3, 4, 5, 2)])
def test_statistics_are_mean_and_log_deviation_of_each_channel(shape):
    x = maps(*shape)
    found = as_numpy(ChannelStatistics("channels_last")(x))
    assert found.shape == (4, 2 * shape[-1])
    np.testing.assert_allclose(found, by_hand(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 7, 3), (4, 5, 6, 3)])
def test_channels_may_come_first(shape):
    x = maps(*shape)
    first = as_numpy(ChannelStatistics("channels_first")(np.moveaxis(x, -1, 1)))
    np.testing.assert_allclose(first, as_numpy(ChannelStatistics("channels_last")(x)), rtol=1e-5, atol=1e-6)


def test_without_a_format_images_go_by_the_setting_of_keras_and_sequences_have_channels_last(monkeypatch):
    images, sequence = maps(4, 5, 6, 3), maps(4, 7, 3)
    monkeypatch.setattr(keras.config, "image_data_format", lambda: "channels_first")
    assert as_numpy(ChannelStatistics()(images)).shape == (4, 10)
    assert as_numpy(ChannelStatistics()(sequence)).shape == (4, 6)
    monkeypatch.setattr(keras.config, "image_data_format", lambda: "channels_last")
    assert as_numpy(ChannelStatistics()(images)).shape == (4, 6)


def test_plain_vectors_stay_as_they_are():
    x = maps(4, 5)
    np.testing.assert_array_equal(as_numpy(ChannelStatistics()(x)), x)


def test_they_are_those_of_the_pytorch_package():
    torch = pytest.importorskip("torch")
    from gated_domains.backbones.gating import channel_statistics

    x = maps(4, 5, 6, 3)
    theirs = channel_statistics(torch.from_numpy(np.moveaxis(x, -1, 1).copy())).numpy()
    np.testing.assert_allclose(as_numpy(ChannelStatistics("channels_last")(x)), theirs, rtol=1e-5, atol=1e-5)


def test_half_precision_is_widened_before_anything_is_squared():
    x = (300 + maps(4, 6, 6, 2)).astype("float16")  # squares of these have no float16
    found = ChannelStatistics("channels_last", dtype="mixed_float16")(ops.convert_to_tensor(x))
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_allclose(as_numpy(found), by_hand(x), rtol=1e-4, atol=1e-3)


def test_a_constant_channel_gives_finite_numbers():
    found = as_numpy(ChannelStatistics("channels_last")(np.full((2, 4, 4, 3), 5.0, "float32")))
    np.testing.assert_allclose(found[:, :3], 5.0)
    np.testing.assert_allclose(found[:, 3:], np.log(1e-3), rtol=1e-4)


def test_the_shape_is_known_before_the_numbers_are():
    images = keras.Input((None, None, 3))
    view = ChannelStatistics("channels_last")(images)
    assert view.shape == (None, 6)
    assert ChannelStatistics("channels_last").compute_output_shape((None, 8, 8, 3)) == (None, 6)


def test_what_has_no_known_channels_is_refused():
    with pytest.raises(ValueError, match="known number of channels"):
        ChannelStatistics("channels_last")(keras.Input((8, 8, None)))
    with pytest.raises(ValueError, match="'channels_last', 'channels_first' or None, got 'last'"):
        ChannelStatistics("last")


def test_a_fitted_view_has_mean_0_and_deviation_1():
    x = maps(50, 4) * np.array([1.0, 10.0, 0.01, 1.0], "float32")
    layer = Standardised().fit(x)
    found = as_numpy(layer(x))
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(found.std(0, ddof=1), 1, rtol=1e-5)
    np.testing.assert_allclose(layer.inverse(layer(x)), x, rtol=1e-4, atol=1e-4)


def test_a_view_is_as_it_was_until_it_is_fitted():
    x = maps(5, 4)
    np.testing.assert_array_equal(as_numpy(Standardised()(x)), x)


def test_a_constant_column_is_centred_and_no_more():
    x = np.column_stack([np.full(10, 7.0), np.arange(10.0)]).astype("float32")
    found = as_numpy(Standardised().fit(x)(x + np.array([[0.5, 0.0]], "float32")))
    np.testing.assert_allclose(found[:, 0], 0.5, rtol=1e-5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [(np.ones((1, 3)), "at least 2 rows"), (np.full((4, 3), np.nan), "NaN or infinity in 4 of 4 rows")],
)
def test_rows_that_tell_nothing_are_refused_and_leave_the_layer_as_it_was(rows, message):
    layer = Standardised().fit(maps(20, 3))
    before = [as_numpy(weight).copy() for weight in layer.weights]
    with pytest.raises(ValueError, match=message):
        layer.fit(rows)
    for weight, kept in zip(layer.weights, before, strict=True):
        np.testing.assert_array_equal(as_numpy(weight), kept)


def test_a_view_of_maps_is_refused():
    with pytest.raises(ValueError, match=r"shape \(batch, features\), this one has \(None, 8, 3\)"):
        Standardised()(keras.Input((8, 3)))


def test_no_gradient_flows_back_through_a_view():
    early = keras.layers.Dense(4, name="early")
    inputs = keras.Input((3,))
    outputs = keras.layers.Dense(1)(Standardised()(early(inputs)))
    model = keras.Model(inputs, outputs)
    before = [weight.copy() for weight in model.get_weights()]
    model.compile("sgd", "mse")
    model.fit(maps(16, 3), np.ones((16, 1), "float32"), epochs=1, verbose=0)
    after = model.get_weights()
    np.testing.assert_array_equal(early.get_weights()[0], before[0])
    assert not np.array_equal(after[-2], before[-2])  # the layer behind the view did learn


def test_a_view_is_saved_and_loaded_with_its_numbers(tmp_path):
    x = maps(20, 6, 6, 3)
    inputs = keras.Input((6, 6, 3))
    standardised = Standardised()
    model = keras.Model(inputs, standardised(ChannelStatistics("channels_last")(inputs)))
    standardised.fit(model.predict(x, verbose=0))
    model.save(tmp_path / "view.keras")
    again = keras.models.load_model(tmp_path / "view.keras")
    np.testing.assert_array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))
    np.testing.assert_allclose(again.predict(x, verbose=0).mean(0), 0, atol=1e-5)


def test_a_view_in_double_precision_stays_in_it():
    x = maps(20, 6, 6, 3).astype("float64")
    view = Standardised(dtype="float64")
    view.fit(as_numpy(ChannelStatistics("channels_last", dtype="float64")(ops.convert_to_tensor(x))))
    assert keras.backend.standardize_dtype(view.mean.dtype) == "float64"
