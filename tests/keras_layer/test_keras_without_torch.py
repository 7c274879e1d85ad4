"""The Keras layer where there is no torch: it is imported, fitted, trained, saved and loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("keras")

import keras  # noqa: E402

from hidden_torch import HIDE_TORCH  # noqa: E402

SCRIPT = (
    HIDE_TORCH
    + """
import numpy as np
import keras
from gated_domains.keras_layer import fine_tune, replace_head, to_torch

x = np.random.default_rng(0).standard_normal((200, 6)).astype("float32")
y = (x[:, 0] > 0).astype("int64")
dense = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, activation="relu"), keras.layers.Dense(2)])
model = replace_head(dense, verbose=False)
curve = fine_tune(model, x, y, epochs=1, verbose=0).history
assert np.isfinite(curve["loss"]).all()
model.save(sys.argv[1])
again = keras.models.load_model(sys.argv[1])
np.testing.assert_allclose(again.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-5)
try:
    to_torch(model.layers[-1])
except ImportError as error:
    print("says:", error)
assert not any(name == "torch" or name.startswith("torch.") for name in sys.modules)
"""
)


@pytest.mark.one_backend
@pytest.mark.skipif(keras.backend.backend() == "torch", reason="this backend is torch")
def test_the_layer_works_where_torch_cannot_be_imported(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(tmp_path / "model.keras")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "pip install" in done.stdout
