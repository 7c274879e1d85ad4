"""The benchmark of the Keras layer times the step that it says."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

pytestmark = [pytest.mark.extras, pytest.mark.one_backend]
keras = pytest.importorskip("keras")

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def bench():
    return runpy.run_path(str(ROOT / "benchmarks" / "keras_layer.py"))


def test_both_steps_train(bench):
    size = bench["Size"](batch=16, features=8, num_bases=2, basis_size=3, classes=3)
    for make in (bench["torch_step"], bench["keras_step"]):
        step, version = make(size)
        losses = [float(step()) for _ in range(30)]
        assert losses[-1] < losses[0]
        assert version
    assert keras.backend.backend() in version


def test_the_saved_table_has_every_row_and_none_is_three_times_slower(bench):
    saved = json.loads((bench["RESULTS"] / "keras_2cpu.json").read_text())
    assert [row["name"] for row in saved["rows"]] == [bench["OWN"], *bench["KERAS"]]
    assert all(row["ratio"] < 3 for row in saved["rows"] if "jitted" in row["name"])
