"""What ``gated-domains predict`` imports: torch, and nothing that prediction can do without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.runs.recipe import DataSettings
from made_runs import recipe, runner, table

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as users run

# What trains, scores, fits or draws: two seconds together, of which our own modules are the least.
SPARED = (
    "lightning_fabric",
    "torchmetrics",
    "sklearn",
    "matplotlib",
    "scipy.signal",
    "torch._dynamo",
    "gated_domains.experiments.runner",
    "gated_domains.insight.making",
)
PREDICT = f"""
import sys
from gated_domains.cli import main

try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("brought:", [name for name in {SPARED} if name in sys.modules])
print("torch" in sys.modules)
"""


@pytest.mark.parametrize("method", ["gdu", "erm"])
def test_predict_brings_nothing_that_it_can_do_without(tmp_path: Path, method: str):
    reading = Reading(target="sick", domain="site")
    clinic = table(tmp_path / "clinic.csv")
    settings = {"num_bases": 3} if method == "gdu" else {}
    chosen = recipe(method, settings=settings, data=DataSettings.of(clinic, reading))
    run = runner(load_data(clinic, reading), tmp_path / "runs").run(chosen)
    new, out = table(tmp_path / "new.csv", 20, target=False), tmp_path / "predictions.csv"
    done = subprocess.run(
        [sys.executable, "-c", PREDICT, "predict", run.path, new, "--out", out], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["brought: []", "True"]
    assert len(out.read_text().splitlines()) == 21
