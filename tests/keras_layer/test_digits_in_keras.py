"""The embedded digits through ``model.fit``: it learns, and no number on the way is broken."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("keras")

import keras  # noqa: E402
from backends import on_every_backend  # noqa: E402

from gated_domains.data import hold_outs, load_data  # noqa: E402
from gated_domains.keras_layer import GatedDomainUnits  # noqa: E402


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and validation rows with one domain held out, an image as 8 x 8 x 3 means."""
    data = load_data("digits")
    (split,) = hold_outs(data, "street")

    def small(rows: np.ndarray) -> np.ndarray:
        images = data.inputs.read(rows).astype("float32") / 127.5 - 1
        return images.reshape(-1, 8, 4, 8, 4, 3).mean((2, 4)).reshape(len(rows), -1)

    train, validation = split.train[::3], split.validation[::3]
    return small(train), data.targets[train], small(validation), data.targets[validation]


CASES = [(form, gate) for form in ("recommended", "paper") for gate in ("cosine", "mmd", "projection")]


@pytest.mark.parametrize("case", on_every_backend(CASES[:1], of=CASES, slow=CASES[1::2]), ids="-".join)
def test_a_model_learns_the_digits(digits, case):
    form, gate = case
    x, y, x_new, y_new = digits
    keras.utils.set_random_seed(0)
    make = GatedDomainUnits.paper if form == "paper" else GatedDomainUnits
    head = make(10, gate=gate)
    body = keras.Sequential([keras.Input((192,)), keras.layers.Dense(64, activation="relu")])
    if form == "recommended":
        head.fit_bases(body.predict(x, verbose=0))
    model = keras.Sequential([keras.Input((192,)), body, head])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss, metrics=["accuracy"])
    curve = model.fit(x, y, batch_size=128, epochs=5, validation_data=(x_new, y_new), verbose=0).history
    assert all(np.isfinite(values).all() for values in curve.values())
    assert curve["loss"][-1] < 0.8 * curve["loss"][0]
    # Ten classes: chance is 0.1, and this network without units gets about 0.6.
    assert curve["val_accuracy"][-1] > 0.45
