"""What comes of a training: who is told on the way, where it is kept, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from gated_domains.evaluation.scores import DomainScores


@runtime_checkable
class Journal(Protocol):
    """Where the numbers of every epoch go; a run folder is one."""

    def append_metrics(self, record: dict[str, Any]) -> None: ...
    def keep_metrics(self, through_step: int) -> None: ...


@runtime_checkable
class Watcher(Protocol):
    """Who is told how far a training is."""

    def stepped(self, step: int, steps: int) -> None: ...
    def epoch_ended(self, record: dict[str, Any]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """Where checkpoints go, and how many seconds lie between two at least; 0 keeps every step of one process."""

    folder: Path
    seconds: float = 20.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a training ended; the method carries the weights of the best epoch, or with ``swad`` an average."""

    best_epoch: int
    epochs: int
    stopped: str
    seconds: float
    validation: DomainScores | None
    """None until the predictions of what is kept are scored."""
    selection_score: float | None = None
    """The number of the weights that are kept under the selection rule; the higher, the better."""
    averaged: tuple[int, int] | None = None
    """The first and the last step whose weights were averaged, from 0; None where those of one were kept."""
    notes: tuple[str, ...] = ()
    """What whoever reads the result should know of the training."""


@runtime_checkable
class RunWatcher(Watcher, Protocol):
    """Who is told which run begins and ends, and how far it is."""

    def run_began(self, recipe: Any, folder: Any, *, epochs: int) -> None: ...
    def run_ended(self, recipe: Any, folder: Any, result: dict[str, Any]) -> None: ...


@runtime_checkable
class GridWatcher(RunWatcher, Protocol):
    """Who is told of several trainings at a time; ``worker``, counted from 0, says whose."""

    def run_began(self, recipe: Any, folder: Any, *, epochs: int, worker: int = 0) -> None: ...
    def stepped(self, step: int, steps: int, *, worker: int = 0) -> None: ...
    def epoch_ended(self, record: dict[str, Any], *, worker: int = 0) -> None: ...
    def run_ended(
        self, recipe: Any, folder: Any, result: dict[str, Any], *, worker: int = 0, seconds: float | None = None
    ) -> None: ...

    def run_found(self, recipe: Any, folder: Any) -> None: ...
    def run_lost(self, recipe: Any, why: str, *, worker: int = 0) -> None: ...
    def waiting(self, busy: Any) -> None: ...
