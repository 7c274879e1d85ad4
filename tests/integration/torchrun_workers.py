"""What each of two processes does in ``test_torchrun``: commands one after the other, then one that is killed.

``python torchrun_workers.py COMMANDS.json FOUND``, in the surroundings that torchrun gives; COMMANDS.json maps names to
arguments. What comes of each is written to ``FOUND/rank0.json`` and ``FOUND/rank1.json``.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import torch

from gated_domains.cli import main, one_voice
from gated_domains.data.batches import DomainBatch
from gated_domains.methods import ERM
from gated_domains.methods.method import Terms
from gated_domains.training import trainer
from gated_domains.training.callbacks import checkpoint

BROKEN_AT = 5  # the step at which the second process's loss is no number
CLOCK_STEPS = 3
KILLED_AT = 11  # in the second epoch, two steps after a checkpoint


def called(*arguments: str) -> dict[str, object]:
    """The exit code of a command, and what it said."""
    out, err = io.StringIO(), io.StringIO()
    with patch.object(sys, "argv", ["gated-domains", *arguments]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
            code: object = 0
        except SystemExit as end:
            code = end.code or 0
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


@contextmanager
def a_broken_share() -> Iterator[None]:
    """The second process gets a loss that is no number at one step."""
    objective, calls = ERM.objective, iter(range(1_000))

    def broken(self: ERM, batch: DomainBatch) -> Terms:
        terms = objective(self, batch)
        return {"task": terms["task"] * torch.nan} if next(calls) == BROKEN_AT else terms

    with patch.object(ERM, "objective", broken) if os.environ["RANK"] == "1" else nullcontext():
        yield


@contextmanager
def killed() -> Iterator[None]:
    """Every process kills itself before this step."""
    step = trainer.Trainer._train_step

    def last(self: trainer.Trainer, batch: DomainBatch) -> None:
        if self.step == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        step(self, batch)

    with patch.object(trainer.Trainer, "_train_step", last):
        yield


AROUND = {"broken": a_broken_share, "killed": killed}


def work(commands: dict[str, list[str]], found: Path) -> None:
    path = found / f"rank{os.environ['RANK']}.json"
    ends: dict[str, object] = {}
    for name, arguments in commands.items():
        with AROUND.get(name, nullcontext)():
            ends[name] = called(*arguments)
        path.write_text(json.dumps(ends))


if __name__ == "__main__":
    torch.set_num_threads(1)
    # Nobody ends these processes when one has ended, and the clock is looked at more often than in a long training.
    with patch.object(one_voice, "_PATIENCE", 0.0), patch.object(checkpoint, "_CLOCK_STEPS", CLOCK_STEPS):
        work(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
