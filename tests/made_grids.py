"""Grids for tests of executors; ``python made_grids.py FOLDER WORKERS`` makes one, to be killed, and tells of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from gated_domains.experiments.executors import Executor, ProcessExecutor, RayExecutor, SerialExecutor
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import Recipe
from gated_domains.runs.storage import BusyError
from gated_domains.training.callbacks.base import ProgressCallback
from made_runs import digest, recipe, runner, vectors, without_times

EPOCHS = 8


class Told(ProgressCallback):
    """Writes down what an executor says, as words and the name of the run."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []

    def on_run_start(self, recipe: Recipe, folder: RunFolder, *, epochs: int, worker: int = 0) -> None:
        self.note("began", folder.name)

    def on_step(self, step: int, steps: int, *, worker: int = 0) -> None:
        self.note("stepped", step)

    def on_epoch(self, record: dict[str, Any], *, worker: int = 0) -> None:
        self.note("epoch", record["epoch"])

    def on_run_end(
        self, recipe: Recipe, folder: RunFolder, result: Any, *, worker: int = 0, seconds: float | None = None
    ) -> None:
        self.note("ended", folder.name)

    def on_run_found(self, recipe: Recipe, folder: RunFolder) -> None:
        self.note("found", folder.name)

    def on_run_lost(self, recipe: Recipe, why: str, *, worker: int = 0) -> None:
        self.note("lost", why)

    def on_wait(self, busy: Sequence[BusyError]) -> None:
        self.note("waiting", busy[0].pid)

    def note(self, what: str, about: Any) -> None:
        self.heard.append((what, about))

    def all(self, what: str) -> list[Any]:
        return [about for heard, about in self.heard if heard == what]


class Aloud(Told):
    """Says at once what it hears."""

    def note(self, what: str, about: Any) -> None:
        if what != "stepped":
            print(what, about, flush=True)


def grid(epochs: int = EPOCHS, seeds: int = 2) -> list[Recipe]:
    """Of every seed an ERM run, a head that stands on it and an ensemble of two, of which it is one."""
    methods: list[tuple[str, dict[str, Any]]] = [("linear", {}), ("erm", {}), ("ensemble", {"members": 2})]
    return [
        recipe(name, seed=seed, settings=settings, training={"epochs": epochs})
        for seed in range(seeds)
        for name, settings in methods
    ]


def assert_same_runs(some: list[RunFolder], others: list[RunFolder]) -> None:
    """The same runs in the same order, to the bit."""
    assert [run.name for run in some] == [run.name for run in others]
    for one, other in zip(some, others, strict=True):
        assert digest(one.path / "model.safetensors") == digest(other.path / "model.safetensors")
        assert without_times(one) == without_times(other)
        assert one.result().to_json()["test"] == other.result().to_json()["test"]
        for name, values in one.predictions().items():
            np.testing.assert_array_equal(values, other.predictions()[name])


def executor(name: str, folder: Path) -> Executor:
    """``ray``, or a number of workers."""
    maker = runner(vectors(), folder, checkpoint_seconds=0.05)
    if name == "ray":
        return RayExecutor(maker)
    return SerialExecutor(maker) if name == "1" else ProcessExecutor(maker, workers=int(name))


def main(folder: Path, name: str) -> None:
    with executor(name, folder) as made:
        made.run(grid(), callback=Aloud())
    print("all done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
