"""Trainings that are killed and begun again, each time by a process of its own. One Python starts them all, as forks.

``python cut_workers.py FOLDER`` cuts every case at every point in turn and leaves what came of it in ``FOLDER/<case>``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from safetensors.torch import save_file

from gated_domains.runs.folder import RunFolder
from gated_domains.training.callbacks import checkpoint as checkpoints
from gated_domains.training.callbacks.base import ProgressCallback
from gated_domains.training.callbacks.checkpoint import Checkpoint
from gated_domains.training.trainer import Trainer
from small_trainings import build, material, training, vectors, weights

#: What is trained: the method, its settings, those of the training.
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "erm": ("erm", {}, {}),  # with dropout and batch norm
    "gdu": ("gdu", {}, {}),  # as recommended, with gated norms
    "gdu averaged": ("gdu", {"gating": "features"}, {"ema": 0.9}),  # fitted again in the second epoch
}

STEPS, EPOCHS = 5, 3

#: Where it is cut: after a step before it is kept, at the end of an epoch before that is kept, or within a writing.
POINTS = [
    ("stepped", 1),
    ("stepped", 4),
    ("ended", 0),
    ("stepped", STEPS + 1),
    ("written", STEPS + 3),
    ("stepped", 2 * STEPS + 3),
    ("ended", EPOCHS - 1),
]


def new_training(case: str, folder: Path | None, journal: Any, progress: Any = None) -> Trainer:
    """A training from its start; it goes on from what lies in the folder."""
    name, settings, more = CASES[case]
    dataset = vectors(STEPS * 16 + 40)
    method = build(name, dataset, settings=settings).eval()  # whatever mode it comes in
    torch.manual_seed(7)
    checkpoint = None if folder is None else Checkpoint(folder, seconds=0.0)
    data = material(dataset, train=STEPS * 16, validation=30)
    return training(
        method,
        data,
        epochs=EPOCHS,
        batch_size=16,
        patience=None,
        checkpoint=checkpoint,
        journal=journal,
        progress=progress,
        **more,
    )


class Scythe(ProgressCallback):
    """Ends this process at a point of the training, as a pulled plug would."""

    def __init__(self, kind: str, number: int) -> None:
        self.kind, self.number, self.step = kind, number, 0
        if kind == "written":
            whole = checkpoints._write
            checkpoints._write = lambda path, content: self._half(whole, path, content)

    def on_step(self, step: int, steps: int) -> None:
        self.step = step
        self._at("stepped", step)

    def on_epoch(self, record: dict[str, Any]) -> None:
        self._at("ended", record["epoch"])

    def _half(self, write: Callable[[Path, bytes], None], path: Path, content: bytes) -> None:
        write(path, content[: len(content) // 2] if self.step == self.number else content)
        self._at("written", self.step)

    def _at(self, kind: str, number: int) -> None:
        if (kind, number) == (self.kind, self.number):
            os.kill(os.getpid(), signal.SIGKILL)


def cut(case: str, folder: Path) -> None:
    """Train until each of the points in turn, then to the end; every time in a new process."""
    folder.mkdir(parents=True)
    for point in POINTS:
        found = forked(partial(until, case, folder, *point))
        if found != -signal.SIGKILL:
            raise RuntimeError(f"{case}: not cut at {point}, but ended with {found}")
    ended = forked(partial(finish, case, folder))
    if ended != 0:
        raise RuntimeError(f"{case}: the last process ended with {ended}")


def until(case: str, folder: Path, kind: str, number: int) -> None:
    new_training(case, folder, RunFolder(folder), Scythe(kind, number)).fit()


def finish(case: str, folder: Path) -> None:
    run = new_training(case, folder, RunFolder(folder))
    outcome = run.fit()
    save_file(weights(run.method), folder / "weights.safetensors")
    about = {"best_epoch": outcome.best_epoch, "epochs": outcome.epochs, "validation": outcome.validation.as_json()}
    (folder / "outcome.json").write_text(json.dumps(about))


def forked(do: Callable[[], None]) -> int:
    """Do it in a process of its own; how that ended."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            do()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder: Path) -> None:
    torch.set_num_threads(1)  # as the tests, and a process with one thread may fork
    for case in CASES:
        cut(case, folder / case)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
