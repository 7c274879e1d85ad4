"""A watcher of trainings that tells another one all it hears, and has what it hears tracked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import Recipe
from gated_domains.training.outcome import GridWatcher
from gated_domains.utils.locks import BusyError


@runtime_checkable
class Follows(Protocol):
    """Who is told that the folder of a run has more in it, or is complete."""

    def follow(self, run: RunFolder) -> None: ...
    def finish(self, run: RunFolder) -> None: ...


class TrackedWatcher:
    """Passes on what it is told. What is tracked is read from the folders of runs, whichever process writes them."""

    def __init__(self, tracking: Follows, watcher: GridWatcher) -> None:
        self.tracking, self.watcher = tracking, watcher
        self._under_way: dict[int, dict[str, RunFolder]] = {}

    def run_began(self, recipe: Recipe, folder: RunFolder, *, epochs: int, worker: int = 0) -> None:
        self._under_way.setdefault(worker, {})[folder.name] = folder
        self.watcher.run_began(recipe, folder, epochs=epochs, worker=worker)

    def stepped(self, step: int, steps: int, *, worker: int = 0) -> None:
        self.watcher.stepped(step, steps, worker=worker)

    def epoch_ended(self, record: dict[str, Any], *, worker: int = 0) -> None:
        self.watcher.epoch_ended(record, worker=worker)
        for folder in self._under_way.get(worker, {}).values():  # several, where heads are trained together
            self.tracking.follow(folder)

    def run_ended(
        self,
        recipe: Recipe,
        folder: RunFolder,
        result: dict[str, Any],
        *,
        worker: int = 0,
        seconds: float | None = None,
    ) -> None:
        self.watcher.run_ended(recipe, folder, result, worker=worker, seconds=seconds)
        self._under_way.get(worker, {}).pop(folder.name, None)
        self.tracking.finish(folder)

    def run_found(self, recipe: Recipe, folder: RunFolder) -> None:
        self.watcher.run_found(recipe, folder)
        self.tracking.finish(folder)

    def run_lost(self, recipe: Recipe, why: str, *, worker: int = 0) -> None:
        self._under_way.pop(worker, None)
        self.watcher.run_lost(recipe, why, worker=worker)

    def waiting(self, busy: Sequence[BusyError]) -> None:
        self.watcher.waiting(busy)
