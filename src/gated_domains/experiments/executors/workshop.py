"""What a worker needs to make runs: the data, where runs go, and surroundings like those of whoever started it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.experiments.runner import Runner
from gated_domains.training.engine import Hardware

_OURS = "GATED_DOMAINS_"  # variables that say where data and caches lie

Loading = Callable[[], DomainDataset]


@dataclass(frozen=True, eq=False, kw_only=True)
class Workshop:
    """How a worker makes a Runner like the one it works for: the data, or how to load them, and where runs go."""

    data: DomainDataset | Loading
    fingerprint: str
    root: Path
    hardware: Hardware
    checkpoint_seconds: float
    folder: str = field(default_factory=os.getcwd)
    command: tuple[str, ...] = field(default_factory=lambda: tuple(sys.argv))
    variables: dict[str, str] = field(
        default_factory=lambda: {name: value for name, value in os.environ.items() if name.startswith(_OURS)}
    )

    @classmethod
    def of(cls, runner: Runner, data: Loading | None = None, *, hardware: Hardware | None = None) -> Workshop:
        """The workshop of a runner; ``data`` loads what it has in memory, which is sent along where there is none."""
        return cls(
            data=runner.dataset if data is None else data,
            fingerprint=runner.fingerprint,
            root=Path(os.path.abspath(runner.root)),
            hardware=hardware or runner.hardware,
            checkpoint_seconds=runner.checkpoint_seconds,
        )

    def opened(self) -> Runner:
        """The runner. The process becomes like the one it works for: the same folder, command and variables."""
        os.environ.update(self.variables)
        with suppress(OSError):  # on another machine it may not be there, nor be needed
            os.chdir(self.folder)
        sys.argv[:] = self.command
        dataset = self.data if isinstance(self.data, DomainDataset) else self.data()
        runner = Runner(dataset, self.root, hardware=self.hardware, checkpoint_seconds=self.checkpoint_seconds)
        if runner.fingerprint != self.fingerprint:
            raise DataError(
                f"{dataset.name} is not the same for all workers: it was changed after this command was begun, "
                "or it is not the same on all machines; start again when it stays as it is"
            )
        return runner


def use_threads(count: int) -> None:
    """Let all that computes in this process use so many threads."""
    os.environ["OMP_NUM_THREADS"] = str(count)  # for what is loaded later
    torch.set_num_threads(count)
    threadpool_limits(count)
