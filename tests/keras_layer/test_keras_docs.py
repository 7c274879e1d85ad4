"""What docs/keras.md and the README tell people to type works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.extras, pytest.mark.one_backend]
pytest.importorskip("keras")

import keras  # noqa: E402

from gated_domains import GatedDomainUnits as TorchUnits  # noqa: E402
from gated_domains.keras_layer import GatedDomainUnits  # noqa: E402

ROOT = Path(__file__).parent.parent.parent


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


def test_the_page_on_keras_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 512)
    x = (rng.standard_normal((512, 32)) + 2 * np.eye(10, 32)[y]).astype("float32")
    dense_model = keras.Sequential(
        [keras.Input((32,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(10)]
    )
    world: dict[str, Any] = {"x": x, "y": y, "dense_model": dense_model}
    for block in blocks("docs/keras.md", "python"):
        exec(block, world)
    loaded = keras.models.load_model("model.keras")
    assert isinstance(loaded.layers[-1], GatedDomainUnits)
    assert isinstance(world["model"].layers[-1], GatedDomainUnits)
    assert isinstance(world["units"], TorchUnits)
    assert isinstance(world["again"], GatedDomainUnits)


def test_the_lines_of_the_readme_train_a_model():
    (block,) = blocks("README.md", "py")
    rng = np.random.default_rng(0)
    body = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu")])
    world: dict[str, Any] = {"body": body, "x": rng.normal(size=(64, 8)).astype("float32"), "y": np.arange(64) % 10}
    exec(block, world)
    assert tuple(world["model"](world["x"][:2]).shape) == (2, 10)
    assert world["model"].layers[-1].coverage.fitted
