"""Devices, precision and processes, by Lightning Fabric; the loop stays ours."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from torch import Tensor

from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.methods.method import Method, Terms
from gated_domains.training.compiling import CompileError, compiled_objective
from gated_domains.training.settings import Precision

# Numbers in a batch. On two cores the small network is as fast on one, a table ten times faster, and whoever else
# uses the cores is not in the way.
_WORTH_THREADS = 1_000_000
_SAID = 200  # letters of what a compiler complains of
_PRECISIONS: dict[str, str] = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed", "64": "64-true"}


class Autocast(MixedPrecision):
    """Mixed precision that rounds nothing before the method has seen it: neither the view of gates nor targets."""

    def convert_input(self, data: Any) -> Any:
        return data


@dataclass(frozen=True)
class Hardware:
    """Where a training runs; none of it is part of a recipe.

    ``device`` is ``auto`` (a GPU where there is one), ``cpu`` or ``cuda``; ``devices`` how many of them (under torchrun
    as many as it started); ``strategy`` is Fabric's: ``auto`` or ``ddp``. ``compile`` lets torch.compile make the
    objective of each architecture: worth its some ten seconds where many trainings of one architecture follow.
    """

    device: str = "auto"
    devices: int | None = None
    strategy: str = "auto"
    compile: bool = False

    def fabric(self, precision: Precision) -> Fabric:
        """Fabric for this hardware, launched."""
        accelerator = self.accelerator
        started = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        if self.devices is not None and self.devices < 1:
            raise DataError(f"devices must be 1 or more, got {self.devices}")
        if self.devices is not None and started > 1 and self.devices != started:
            raise DataError(f"torchrun started {started} processes here, but devices is {self.devices}; leave it out")
        devices = self.devices or started
        if devices > 1 and started == 1:
            raise DataError(
                f"{devices} devices need {devices} processes: start with "
                f"`torchrun --nproc-per-node {devices} -m gated_domains train ... --devices {devices}`"
            )
        if accelerator == "cuda" and devices > torch.cuda.device_count():
            there = torch.cuda.device_count()
            raise DataError(f"{devices} GPUs are asked for, there are {there}; start fewer processes, or --device cpu")
        if self.strategy not in ("auto", "ddp"):
            raise DataError(f"the strategy must be auto or ddp, got {self.strategy!r}: weights are not sharded yet")
        strategy = "ddp" if devices > 1 and self.strategy == "auto" else self.strategy
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it would announce every precision
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of SLURM variables and the like
                nodes = max(1, int(os.environ.get("WORLD_SIZE", "1")) // started)
                fabric = Fabric(
                    accelerator=accelerator,
                    devices=devices,
                    num_nodes=nodes,
                    strategy=strategy,
                    **_numbers(precision, accelerator),
                )
        except (ValueError, TypeError) as error:
            raise DataError(f"this hardware cannot be used: {error}") from error
        fabric.launch()
        return fabric

    @property
    def accelerator(self) -> str:
        """cpu or cuda."""
        if self.device not in ("auto", "cpu", "cuda"):
            raise DataError(f"the device must be auto, cpu or cuda, got {self.device!r}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise DataError("no GPU can be used here (torch.cuda.is_available() is False); leave --device out")
        if self.device != "auto":
            return self.device
        return "cuda" if torch.cuda.is_available() else "cpu"


@contextmanager
def threads_for(numbers: int) -> Iterator[None]:
    """One thread on the CPU where a batch has so few numbers that threads only get in each other's way."""
    before = torch.get_num_threads()
    try:
        if numbers < _WORTH_THREADS:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)


class WrappedObjective:
    """A method's objective behind Fabric's wrappers, as a step takes it; of one process it may be ``compiled``."""

    def __init__(self, fabric: Fabric, module: Any, *, compiled: Method | None = None) -> None:
        self.fabric, self.module, self.compiled = fabric, module, compiled

    def __call__(self, batch: DomainBatch) -> Terms:
        if self.compiled is not None:
            try:
                with self.fabric.autocast():
                    return compiled_objective(self.compiled, *batch.fields)
            except CompileError as error:
                self.compiled, said = None, " ".join(str(error).split())[:_SAID]
                warnings.warn(
                    f"the objective cannot be compiled ({said}); it runs without, slower",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return cast(Terms, self.module(*batch.fields))

    def backward(self, loss: Tensor) -> None:
        self.fabric.backward(loss)


def as_computed(inputs: Tensor, fabric: Fabric) -> Tensor:
    """Inputs in the numbers that a method set up by this Fabric computes with: doubles, where it has become doubles."""
    return cast(Tensor, fabric.strategy.precision.convert_input(inputs))


def _numbers(precision: Precision, accelerator: str) -> dict[str, Any]:
    """What tells Fabric the precision."""
    if precision in ("32", "64"):
        return {"precision": _PRECISIONS[precision]}
    name = "bf16-mixed" if accelerator == "cpu" else _PRECISIONS[precision]  # CPUs have no 16 bits but these
    return {"plugins": [Autocast(cast(Any, name), device=accelerator)]}
