"""Small data and recipes for tests that train: three domains, two classes, a second a run at most."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from gated_domains import cli
from gated_domains.data.dataset import DomainDataset
from gated_domains.experiments.recipe_checks import choose_method
from gated_domains.experiments.runner import Runner
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import DataSettings, Recipe, TrainingSettings
from gated_domains.runs.result import RunResult
from gated_domains.settings import parsed
from gated_domains.training.callbacks.base import ProgressCallback
from gated_domains.training.engine import Hardware

DOMAINS = ("north", "south", "west")
TRAINING: dict[str, Any] = {"epochs": 2, "batch_size": 32, "patience": None}
CPU = Hardware(device="cpu")


def vectors(rows: int = 150, *, domains: bool = True) -> DomainDataset:
    """Two classes that four numbers tell apart, shifted by domain."""
    rng = np.random.default_rng(0)
    site, label = np.arange(rows) % 3, rng.integers(2, size=rows)
    inputs = rng.normal(size=(rows, 4)) + 2.0 * label[:, None] + 0.5 * site[:, None]
    return DomainDataset.from_arrays(
        inputs.astype(np.float32),
        label,
        site if domains else None,
        name="vectors",
        class_names=("no", "yes"),
        domain_names=DOMAINS if domains else None,
    )


def numbers(rows: int = 150) -> DomainDataset:
    """A number of a large unit to predict from three others."""
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(rows, 3)).astype(np.float32)
    targets = 5_000.0 + 300.0 * inputs[:, 0] + rng.normal(size=rows)
    return DomainDataset.from_arrays(
        inputs, targets, np.arange(rows) % 3, name="numbers", domain_names=DOMAINS, task="regression"
    )


def images(each: int = 4) -> DomainDataset:
    """Images of 8 x 8 pixels: light and dark ones, in three tints."""
    rng = np.random.default_rng(2)
    label, site = np.divmod(np.arange(6 * each) // each, 3)
    level = 60 + 120 * label[:, None, None, None] + rng.integers(40, size=(6 * each, 8, 8, 3))
    level[np.arange(6 * each), :, :, site] += 30
    return DomainDataset.from_arrays(
        level.astype(np.uint8), label, site, name="images", class_names=("dark", "light"), domain_names=DOMAINS
    )


def table(path: Path, rows: int = 150, *, target: bool = True, domain: bool = True, start: int = 0) -> Path:
    """A CSV file: numbers ``age`` and ``dose``, a word ``kind``; beside them ``site`` and ``sick`` where wanted."""
    rng = np.random.default_rng(3)
    lines = [",".join(["age", "dose", "kind", *["site"] * domain, *["sick"] * target])]
    for row in range(start + rows):
        sick, site, kind = int(rng.integers(2)), row % 3, "abc"[rng.integers(3)]
        age, dose = 50 + 9 * sick + 4 * site + rng.normal(), rng.normal() - sick
        cells = [f"{age:.3f}", f"{dose:.3f}", kind, *[DOMAINS[site]] * domain, *[("no", "yes")[sick]] * target]
        lines += [",".join(cells)] * (row >= start)
    path.write_text("\n".join(lines) + "\n")
    return path


def recipe(method: str = "erm", hold_out: str | None = "north", **others: Any) -> Recipe:
    """A recipe of two short epochs; ``settings`` are of the method, ``training`` of the training."""
    chosen = choose_method(method, others.pop("settings", {}))
    training = parsed(TrainingSettings, {**TRAINING, **others.pop("training", {})}, "training")
    data = others.pop("data", DataSettings(what="made in a test"))
    selection = others.pop("selection", "source_validation")
    return Recipe(data=data, hold_out=hold_out, method=chosen, training=training, selection=selection, **others)


def made_up_result(**fields: Any) -> RunResult:
    """The result of a run that nobody made."""
    usual: dict[str, Any] = {
        "run": "none", "data": "vectors", "method": "erm", "label": "ERM", "seed": 0, "hold_out": "north",
        "held_out": ("north",), "sources": ("south", "west"), "metric": "accuracy", "higher_is_better": True,
        "test": {"north": 0.9}, "validation": {"south": 0.5, "west": 1.0}, "validation_overall": 0.7,
        "selection": "mean source validation accuracy", "protocol": "as made up in a test", "best_epoch": 1,
        "epochs": 2, "stopped": "all epochs", "seconds": 1.5, "parameters_trained": 130, "parameters_all": 1_130,
        "uses_domains": False,
    }  # fmt: skip
    return RunResult(**{**usual, **fields})


def runner(dataset: DomainDataset, root: Path, **others: Any) -> Runner:
    return Runner(dataset, root, hardware=CPU, **others)


class Watcher(ProgressCallback):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.began: list[Recipe] = []
        self.ended: list[str] = []
        self.steps = 0

    def on_run_start(self, recipe: Recipe, folder: RunFolder, *, epochs: int, worker: int = 0) -> None:
        self.began.append(recipe)

    def on_run_end(self, recipe: Recipe, folder: RunFolder, result: dict[str, Any], **how: Any) -> None:
        self.ended.append(folder.name)

    def on_step(self, step: int, steps: int, *, worker: int = 0) -> None:
        self.steps += 1


class NothingIsTrained(Watcher):
    """For what must be there already."""

    def on_run_start(self, recipe: Recipe, folder: RunFolder, *, epochs: int, worker: int = 0) -> None:
        raise AssertionError(f"{recipe.method.label} is trained, and should be there")


class Interrupt(Watcher):
    """Ctrl-C after so many steps."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def on_step(self, step: int, steps: int, *, worker: int = 0) -> None:
        super().on_step(step, steps)
        if self.steps == self.after:
            raise KeyboardInterrupt


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def without_times(run: RunFolder) -> list[dict[str, Any]]:
    """The metrics of a run, but for how long it took."""
    return [{name: value for name, value in record.items() if name != "seconds"} for record in run.metrics()]


def changed(path: Path, **fields: Any) -> None:
    """Other values in a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


class Done(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


def call(*arguments: object) -> Done:
    """The command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["gated-domains", *map(str, arguments)])
        patch.setenv("COLUMNS", "200")
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


def assert_refused(done: Done, *words: str) -> None:
    """Exit code 2 and one sentence at the end, on standard error."""
    assert done.code == 2, done
    assert "Traceback" not in done.out + done.err
    *_, last = done.err.splitlines()
    assert last.startswith("error: ")
    for word in words:
        assert word in last
