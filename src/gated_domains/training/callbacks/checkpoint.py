"""Checkpoints while a training runs: when its state is written, and how it continues from the newest one."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gated_domains.data.errors import DataError, first_line
from gated_domains.training.callbacks.base import Callback
from gated_domains.training.checkpoints import load_checkpoint, newest_checkpoint, save_checkpoint

if TYPE_CHECKING:
    from gated_domains.training.trainer import Trainer

_CLOCK_STEPS = 100  # with several processes, steps between two looks at the clock, which all must wait for


class Checkpoint(Callback):
    """Writes the state of a training to a folder now and then, and resumes from the newest state that lies there.

    A resumed training ends as if it had never been interrupted, to the bit. Only the newest checkpoint is kept.

    Parameters
    ----------
    folder
        Where checkpoints are written, each as a folder ``checkpoint-<step>``.
    seconds
        The shortest time between two checkpoints; 0 writes one after every step (of one process).
    """

    def __init__(self, folder: str | os.PathLike[str], *, seconds: float = 20.0) -> None:
        self.folder, self.seconds = Path(folder), seconds
        self._saved = time.monotonic()

    def resume(self, trainer: Trainer) -> bool:
        """Restore the newest checkpoint, if there is one; the time until the next one counts from here."""
        self._saved = time.monotonic()
        # Of the first process: a shared disk may not show the same to all processes at once.
        path = trainer.fabric.broadcast(newest_checkpoint(self.folder))
        if path is None:
            return False
        state = load_checkpoint(path, device=trainer.device)
        here = trainer.fabric.world_size
        if state["world"] != here:
            raise DataError(
                f"{path} was made by {state['world']} processes, and here are {here}: go on with as many, "
                "or delete it to start this training again"
            )
        try:
            trainer.load_state_dict(state)
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            message = first_line(RuntimeError(" ".join(str(error).split())))
            raise DataError(
                f"{path} is of another model ({message}); delete it to start this training again"
            ) from error
        return True

    def on_step_end(self, trainer: Trainer) -> None:
        """Write a checkpoint if it is time; after the last step of an epoch, `on_epoch_end` does."""
        alone = trainer.fabric.world_size == 1
        if trainer.batch < len(trainer.sampler) and (alone or trainer.batch % _CLOCK_STEPS == 0):
            self._save_if_due(trainer)

    def on_epoch_end(self, trainer: Trainer, record: dict[str, Any]) -> None:
        """Write a checkpoint if it is time."""
        self._save_if_due(trainer)

    def save(self, trainer: Trainer) -> None:
        """Write a checkpoint now. With several processes, all of them must call it."""
        trainer.notify("on_checkpoint_start")
        state = trainer.state_dict()
        if trainer.fabric.is_global_zero:
            save_checkpoint(self.folder, trainer.step, state)
        self._saved = time.monotonic()

    def _save_if_due(self, trainer: Trainer) -> None:
        # By the clock of the first process, or some would save and others not.
        if trainer.fabric.broadcast(time.monotonic() - self._saved >= self.seconds):
            self.save(trainer)
