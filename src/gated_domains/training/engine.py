"""Devices, precision and processes by Lightning Fabric; compiled objectives and peak memory."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.methods.method import Method, Terms
from gated_domains.runs.recipe import Precision

if TYPE_CHECKING:  # imported when a training begins: with it, a prediction would start twice as late
    from lightning_fabric import Fabric

# Numbers in a batch. On two cores the small network is as fast on one, a table ten times faster, and whoever else
# uses the cores is not in the way.
_WORTH_THREADS = 1_000_000


_SAID = 200  # letters of what a compiler complains of


_PRECISIONS: dict[str, str] = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed", "64": "64-true"}


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
        from lightning_fabric import Fabric

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
            # Raised where an objective cannot be compiled: no compiler for C, a step that a graph cannot hold.
            from torch._dynamo.exc import TorchDynamoException

            try:
                with self.fabric.autocast():
                    return compiled_objective(self.compiled, *batch.fields)
            except TorchDynamoException as error:
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
    from lightning_fabric.plugins import MixedPrecision

    class Autocast(MixedPrecision):
        """Mixed precision that rounds nothing before the method has seen it: neither the view of gates nor targets."""

        def convert_input(self, data: Any) -> Any:
            return data

    name = "bf16-mixed" if accelerator == "cpu" else _PRECISIONS[precision]  # CPUs have no 16 bits but these
    return {"plugins": [Autocast(cast(Any, name), device=accelerator)]}


_NEVER = torch.iinfo(torch.int64).max


def from_all(fabric: Fabric, value: Tensor) -> Tensor:
    """``(processes, ...)``: what each of them has, of one shape. Not Fabric's own, which warns that it is outdated."""
    if fabric.world_size == 1:
        return value.unsqueeze(0)
    own = value.to(fabric.device).contiguous()
    parts = [torch.empty_like(own) for _ in range(fabric.world_size)]
    dist.all_gather(parts, own)
    return torch.stack(parts)


def from_first(fabric: Fabric, tensors: Iterable[Tensor]) -> None:
    """Overwrite tensors with what the first process has in them."""
    if fabric.world_size > 1:
        for tensor in tensors:
            dist.broadcast(tensor.detach(), src=0)


def earliest(fabric: Fabric, step: int | None) -> int | None:
    """The process with the earliest step; None where none has one."""
    if fabric.world_size == 1:
        return None if step is None else 0
    steps = from_all(fabric, torch.tensor(_NEVER if step is None else step))
    rank = int(steps.argmin())
    return None if int(steps[rank]) == _NEVER else rank


BACKEND: Any = "inductor"


_SETTINGS: dict[str, Any] = {
    "recompile_limit": 256,  # architectures that one process may meet
    "accumulated_recompile_limit": 4096,
    "skip_nnmodule_hook_guards": False,  # or a network whose styles are mixed would be taken for one without
}


def compiled_objective(method: Method, *batch: Tensor | int | None) -> Terms:
    """The terms of the loss, for the parts of a batch in the order that ``Method.forward`` takes."""
    from torch import _dynamo

    with _dynamo.config.patch(_SETTINGS):
        return cast(Terms, _compiled(BACKEND)(method, *batch))


@cache
def _compiled(backend: Any) -> Any:
    return torch.compile(_objective, dynamic=False, backend=backend)


def _objective(method: Method, *batch: Any) -> Any:
    return method(*batch)


_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


_FORGET_PEAK = "5"  # what Linux takes for: let the peak of resident memory begin anew


class PeakMemory:
    """The peak from now on, in bytes: of what torch takes on a GPU, on a CPU of what the process holds in memory.

    Where the peak of a process cannot begin anew, what it reached before hides all that stays below: it is then known
    only once it has risen.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._hidden_below = 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        elif not _forgotten():
            self._hidden_below = _resident_peak() or 0

    def bytes(self) -> int | None:
        """The peak so far; None where it cannot be told."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        peak = _resident_peak()
        return None if peak is None or peak <= self._hidden_below else peak


def _forgotten() -> bool:
    """Let the peak of this process begin anew; False where the system has no such thing, or does not allow it."""
    try:
        _CLEAR.write_text(_FORGET_PEAK)
    except OSError:
        return False
    return True


def _resident_peak() -> int | None:
    """The most bytes that this process had in memory; None where nobody counts them."""
    try:
        lines = _STATUS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return _peak_of_usage()
    found = next((line.split() for line in lines if line.startswith("VmHWM:")), None)
    return _peak_of_usage() if found is None else int(found[1]) * 1024


def _peak_of_usage() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
