"""A callback of trainings that tells another one all it hears, and has what it hears tracked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import Recipe
from gated_domains.runs.storage import BusyError
from gated_domains.training.callbacks.base import ProgressCallback


@runtime_checkable
class Follows(Protocol):
    """Who is told that the folder of a run has more in it, or is complete."""

    def follow(self, run: RunFolder) -> None: ...
    def finish(self, run: RunFolder) -> None: ...


class TrackingCallback(ProgressCallback):
    """Passes on what it is told. What is tracked is read from the folders of runs, whichever process writes them."""

    def __init__(self, tracking: Follows, callback: ProgressCallback) -> None:
        self.tracking, self.callback = tracking, callback
        self._under_way: dict[int, dict[str, RunFolder]] = {}

    def on_run_start(self, recipe: Recipe, folder: RunFolder, *, epochs: int, worker: int = 0) -> None:
        self._under_way.setdefault(worker, {})[folder.name] = folder
        self.callback.on_run_start(recipe, folder, epochs=epochs, worker=worker)

    def on_step(self, step: int, steps: int, *, worker: int = 0) -> None:
        self.callback.on_step(step, steps, worker=worker)

    def on_epoch(self, record: dict[str, Any], *, worker: int = 0) -> None:
        self.callback.on_epoch(record, worker=worker)
        for folder in self._under_way.get(worker, {}).values():
            self.tracking.follow(folder)

    def on_run_end(
        self,
        recipe: Recipe,
        folder: RunFolder,
        result: dict[str, Any],
        *,
        worker: int = 0,
        seconds: float | None = None,
    ) -> None:
        self.callback.on_run_end(recipe, folder, result, worker=worker, seconds=seconds)
        self._under_way.get(worker, {}).pop(folder.name, None)
        self.tracking.finish(folder)

    def on_run_found(self, recipe: Recipe, folder: RunFolder) -> None:
        self.callback.on_run_found(recipe, folder)
        self.tracking.finish(folder)

    def on_run_lost(self, recipe: Recipe, why: str, *, worker: int = 0) -> None:
        self._under_way.pop(worker, None)
        self.callback.on_run_lost(recipe, why, worker=worker)

    def on_wait(self, busy: Sequence[BusyError]) -> None:
        self.callback.on_wait(busy)
