"""Runs are tracked as they are made and when they are found; a tracker that fails never stops a training."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Protocol, runtime_checkable

from gated_domains.data.errors import DataError, did_you_mean, first_line, listing
from gated_domains.experiments.planner import Plan
from gated_domains.experiments.tracking.to_mlflow import MlflowTracker, import_mlflow
from gated_domains.experiments.tracking.to_tensorboard import TensorBoardTracker
from gated_domains.experiments.tracking.watching import TrackingCallback
from gated_domains.runs.folder import RunFolder
from gated_domains.training.callbacks.base import ProgressCallback


@runtime_checkable
class Tracker(Protocol):
    """What shows runs elsewhere. It reads the folder of a run, and may be told of the same run any number of times."""

    @property
    def look(self) -> str:
        """The command that shows what was written."""

    def has(self, run: RunFolder) -> bool: ...
    def follow(self, run: RunFolder) -> None: ...
    def finish(self, run: RunFolder) -> None: ...
    def close(self) -> None: ...


TRACKERS: dict[str, Callable[[Path], Tracker]] = {"tensorboard": TensorBoardTracker, "mlflow": MlflowTracker}
"""By the name that ``--track`` takes; each is given the folder that the runs go to."""
_NEEDED: dict[str, Callable[[], object]] = {
    "tensorboard": lambda: importlib.import_module("torch.utils.tensorboard"),
    "mlflow": import_mlflow,
}


def check_trackers(written: str | None) -> tuple[str, ...]:
    """The trackers that are named, separated by commas; refused where one is not known, or its package is not there."""
    names = tuple(dict.fromkeys(name.strip() for name in (written or "").split(",") if name.strip()))
    if written is not None and not names:
        raise DataError(f"--track names what shows the trainings, got {written!r}; there are {listing(TRACKERS)}")
    for name in names:
        if name not in TRACKERS:
            raise DataError(f"--track {name}: there is none of that name{did_you_mean(name, TRACKERS)}")
        try:
            _NEEDED[name]()
        except ImportError as error:
            raise DataError(
                f"--track {name} needs a package that is not installed ({first_line(error)}): "
                "pip install 'gated-domains[track]'"
            ) from error
    return names


class Tracking:
    """Trackers of the runs that go to one folder. One that fails is left out from then on, with a warning.

    What it then lacks is added by the same command, once what was wrong is mended.
    """

    def __init__(self, names: Sequence[str], root: Path) -> None:
        self._trackers = {name: TRACKERS[name](root) for name in names}

    def follow(self, run: RunFolder) -> None:
        """Bring the curves of a run up to date that is under way."""
        for name, tracker in list(self._trackers.items()):
            self._attempt(name, tracker.follow, run)

    def finish(self, run: RunFolder) -> None:
        """Enter all of a finished run where it is not there yet."""
        for name, tracker in list(self._trackers.items()):
            self._attempt(name, lambda run, to=tracker: None if to.has(run) else to.finish(run), run)  # type: ignore[misc]

    def catch_up(self, runs: Iterable[RunFolder]) -> None:
        """Enter all of these that are finished."""
        for run in runs if self._trackers else ():
            if run.done:
                self.finish(run)

    @property
    def look(self) -> tuple[str, ...]:
        """The commands that show what was written."""
        return tuple(tracker.look for tracker in self._trackers.values())

    def close(self) -> None:
        """Let go of what is open."""
        for tracker in self._trackers.values():
            tracker.close()

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __bool__(self) -> bool:
        return bool(self._trackers)

    def _attempt(self, name: str, do: Callable[[RunFolder], None], run: RunFolder) -> None:
        try:
            do(run)
        except Exception as error:  # whatever it is: training goes on
            del self._trackers[name]
            warnings.warn(
                f"{name} failed on the run {run.name} ({type(error).__name__}: {first_line(error)}) and is disabled; "
                "the trainings continue, and the same command later adds what is missing",
                stacklevel=2,
            )


@contextmanager
def tracked(
    tracking: Tracking | None, plan: Plan, root: Path, callback: ProgressCallback
) -> Iterator[ProgressCallback]:
    """While a plan is made in a folder: a callback that tracks its runs; in the end also those found done."""
    if not tracking:
        yield callback
        return
    yield TrackingCallback(tracking, callback)
    tracking.catch_up(run.folder(root) for run in plan.runs.values())
