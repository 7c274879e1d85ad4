"""Batches on a device: of samples that all lie there, or of samples that processes read ahead of time."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import Encoding
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features, Images, Inputs, Rows
from gated_domains.data.memory import available_bytes
from gated_domains.data.new_data import NewData
from gated_domains.data.progress import progress
from gated_domains.data.sampling import InOrder, Sampler

MOST_WORKERS = 8
_TOGETHER = 1 << 25  # bytes read in one go where all samples are put on a device


@dataclass(frozen=True, eq=False)
class DomainBatch:
    """Samples as a model takes them, with their targets and, where known, the domains they come from."""

    inputs: Shaped[Tensor, "batch ..."]
    targets: Shaped[Tensor, "batch ..."]
    domains: Int64[Tensor, "batch"] | None
    blocks: int | None = None
    """Into how many blocks of one size it falls, the rows of each of one domain; None where it falls into none."""
    soft_targets: Float[Tensor, "batch outputs"] | None = None
    """What a teacher predicts, as ``Prediction.output`` has it; None where there is no teacher."""
    soft_weight: Float[Tensor, ""] | None = None
    """The weight of the loss against the soft targets."""

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def fields(self) -> tuple[Any, ...]:
        """All fields, in the order that ``Method.forward`` takes."""
        return (self.inputs, self.targets, self.domains, self.blocks, self.soft_targets, self.soft_weight)

    def to(self, device: str | torch.device, *, non_blocking: bool = False) -> DomainBatch:
        """The batch on another device."""
        return self.each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> DomainBatch:
        """The batch in memory that a GPU reads by itself."""
        return self.each(lambda tensor: tensor.pin_memory())

    def without_domains(self) -> DomainBatch:
        """The batch as it is where nobody knows the domains."""
        return replace(self, domains=None, blocks=None)

    def parts(self) -> list[DomainBatch]:
        """The batch domain by domain: its blocks, or where there are none the rows of each domain that it has."""
        if self.domains is None:
            return [self]
        if self.blocks is not None:
            return self.split(self.blocks, blocks=1)
        mine = (self.domains == domain for domain in self.domains.unique())
        return [replace(self.select(own), blocks=1) for own in mine]

    def select(self, rows: Shaped[Tensor, " rows"] | slice) -> DomainBatch:
        """The rows at these indices, or where a mask is true; a slice copies nothing."""
        return self.each(lambda tensor: tensor[rows])

    def split(self, count: int, *, blocks: int | None = None) -> list[DomainBatch]:
        """Split into ``count`` parts of nearly equal size; ``blocks`` is the number of blocks in each part."""
        each, more = divmod(len(self), count)
        return self._between([number * each + min(number, more) for number in range(count + 1)], blocks)

    def cut(self, count: int) -> list[DomainBatch]:
        """Split into ``count`` parts without dividing blocks, unless the batch is a single one."""
        blocks = self.blocks
        if blocks is not None and blocks > 1 and blocks % count:
            raise DataError(
                f"a batch of {self.blocks} domains cannot be cut into {count} parts; "
                "choose groups_per_batch as a multiple of accumulate"
            )
        blocks = None if blocks is None else max(1, blocks // count)
        longest = -(-len(self) // count)
        return self._between([*range(0, len(self), longest), len(self)], blocks)

    def each(self, change: Callable[[Tensor], Tensor]) -> DomainBatch:
        """The batch with every tensor that has a row for each sample changed."""
        domains = None if self.domains is None else change(self.domains)
        soft = None if self.soft_targets is None else change(self.soft_targets)
        return replace(
            self, inputs=change(self.inputs), targets=change(self.targets), domains=domains, soft_targets=soft
        )

    def _between(self, edges: Sequence[int], blocks: int | None) -> list[DomainBatch]:
        spans = [slice(start, end) for start, end in pairwise(edges) if end > start]
        return [replace(self.select(span), blocks=blocks) for span in spans]


def place(
    dataset: DomainDataset | NewData,
    encoding: Encoding,
    *,
    device: str | torch.device = "cpu",
    resident: bool | None = None,
    workers: int | None = None,
) -> Samples:
    """The samples of a data set, made ready once; training, validation and test of all hold-outs draw from them.

    Of new data without targets, ``Samples.input_batches`` gives the inputs.

    With ``resident`` all of them lie on the device. By default they do where they ``fit``; else each batch is read when
    its turn comes, by as many processes as there are cores (8 at most) or ``workers``, 0 for none. Samples that are in
    memory already are read without processes. A script that has batches read by processes must keep its own doings
    under ``if __name__ == "__main__":``, as everywhere in Python where processes are not forked.
    """
    if workers is not None and workers < 0:
        raise DataError(f"workers must be 0 or more, got {workers}")
    device = torch.device(device)
    dataset = dataset.with_inputs(encoding.prepare(dataset.inputs))
    in_memory = dataset.inputs.in_memory
    if workers is None:
        workers = 0 if in_memory else min(MOST_WORKERS, _cores())
    if multiprocessing.current_process().daemon:
        workers = 0  # such a process may have no children
    if dataset.inputs.ragged:
        if resident:
            raise DataError(
                f"{dataset.inputs.describe()} differ in length and cannot lie in one array; leave resident out"
            )
        resident = False
    if resident is None:
        resident = (in_memory and device.type == "cpu") or fits(dataset.inputs.nbytes, device)
    kind = ResidentSamples if resident else StreamedSamples
    return kind(dataset, encoding, device=device, workers=workers)


def fits(nbytes: int, device: str | torch.device) -> bool:
    """Whether this much takes up at most half of what is free on the device: the model and its gradients need room."""
    device = torch.device(device)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()
    return nbytes <= free // 2


class Samples(ABC):
    """Samples ready to be batched on one device. It keeps no place: any number of epochs may be under way at a time.

    Targets are int64 for classes, float32 for numbers to be predicted; domains int64.
    """

    resident: ClassVar[bool]

    def __init__(
        self, dataset: DomainDataset | NewData, encoding: Encoding, *, device: torch.device, workers: int
    ) -> None:
        self.name, self.inputs = dataset.name, dataset.inputs
        self.encoding, self.device, self.workers = encoding, device, workers
        self._targets: Tensor | None = None
        if dataset.targets is not None:
            targets = dataset.targets.astype(np.int64 if dataset.class_names is not None else np.float32, copy=False)
            self._targets = torch.from_numpy(targets).to(device)
        self.domains = None if dataset.domains is None else torch.from_numpy(dataset.domains.copy()).to(device)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def targets(self) -> Tensor:
        """The targets of all samples; refused where there are none."""
        if self._targets is None:
            raise DataError(f"{self.name} was read without targets; nothing can be learned from it, nor scored")
        return self._targets

    def batches(
        self, sampler: Sampler, epoch: int = 0, *, start: int = 0, groups: Tensor | None = None
    ) -> Iterator[DomainBatch]:
        """The batches of an epoch from the ``start``-th on, in the sampler's order.

        ``groups``, of all rows and on the device, stand for the domains where they are given.
        """
        targets, known = self.targets, self.domains if groups is None else groups
        for inputs, pick in self._picked(sampler, epoch, start):
            domains = None if known is None else known.index_select(0, pick)
            yield DomainBatch(inputs, targets.index_select(0, pick), domains, sampler.blocks)

    def input_batches(self, sampler: Sampler, epoch: int = 0, *, start: int = 0) -> Iterator[Tensor]:
        """The inputs of these batches alone: all that a prediction needs."""
        return (inputs for inputs, _ in self._picked(sampler, epoch, start))

    def _picked(self, sampler: Sampler, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The inputs of each batch, and their rows, on the device."""
        order = list(sampler.batches(epoch))[start:]
        if not order:
            return
        rows = np.concatenate(order)
        if rows.min() < 0 or rows.max() >= len(self):  # on a GPU nothing but a broken context would tell
            raise IndexError(
                f"the sampler asks for rows {rows.min()} to {rows.max()}, but there are {len(self):,} samples"
            )
        # One copy an epoch: sent batch by batch, the indices would make the host wait for the device each time.
        picks = torch.from_numpy(rows).to(self.device).split([len(batch) for batch in order])
        for raw, pick in zip(self._raw(order, picks), picks, strict=True):
            yield self.encoding.tensor(raw), pick

    @abstractmethod
    def _raw(self, order: Sequence[Rows], picks: Sequence[Tensor]) -> Iterator[Tensor]:
        """The prepared samples of every batch, on the device; ``picks`` is ``order`` there."""


class ResidentSamples(Samples):
    """All samples as one tensor on the device, bytes as bytes. An array on the CPU is used as it is, without a copy."""

    resident = True

    def __init__(
        self, dataset: DomainDataset | NewData, encoding: Encoding, *, device: torch.device, workers: int
    ) -> None:
        super().__init__(dataset, encoding, device=device, workers=workers)
        self.values = self._all()

    def _all(self) -> Tensor:
        if isinstance(self.inputs, (Images, Features)):
            return _narrow(_tensor(self.inputs.values), self.device).to(self.device)
        count = max(1, _TOGETHER * len(self) // max(1, self.inputs.nbytes))
        order = list(InOrder(np.arange(len(self)), count).batches())
        parts = (_narrow(part, self.device) for part in _read_ahead(self.inputs, order, self.workers))
        first = next(parts)
        if len(order) == 1:
            return first.to(self.device)
        values = torch.empty((len(self), *first.shape[1:]), dtype=first.dtype, device=self.device)
        values[: len(first)] = first
        with progress("reading samples", len(order) - 1) as advance:
            for rows, part in zip(order[1:], parts, strict=True):
                values[rows[0] : rows[0] + len(rows)] = part
                advance(1)
        return values

    def _raw(self, order: Sequence[Rows], picks: Sequence[Tensor]) -> Iterator[Tensor]:
        return (self.values.index_select(0, pick) for pick in picks)


class StreamedSamples(Samples):
    """Samples read when their turn comes, some batches ahead, and sent to the device as the bytes they are."""

    resident = False

    def _raw(self, order: Sequence[Rows], picks: Sequence[Tensor]) -> Iterator[Tensor]:
        pinned = self.device.type == "cuda"
        for raw in _read_ahead(self.inputs, order, self.workers, pinned=pinned):
            yield _narrow(raw, self.device).to(self.device, non_blocking=pinned)


@dataclass(frozen=True)
class _Failed:
    """What went wrong in another process, brought back as it is: torch would wrap its text in a traceback."""

    error: Exception


class _Reader(Dataset["Tensor | _Failed"]):
    """Inputs as torch's loader takes them: a batch of rows -> their samples."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    def __getitem__(self, rows: Rows) -> Tensor | _Failed:
        try:
            return _tensor(self.inputs.read(rows))
        except (DataError, OSError) as error:
            return _Failed(error)


def _read_ahead(inputs: Inputs, order: Sequence[Rows], workers: int, *, pinned: bool = False) -> Iterator[Tensor]:
    """The samples of every batch, in order, on the host."""
    workers = min(workers, len(order)) if len(order) > 1 else 0
    loader = DataLoader(
        _Reader(inputs),
        batch_size=None,
        sampler=order,
        num_workers=workers,
        pin_memory=pinned,
        multiprocessing_context=_context() if workers else None,
        generator=torch.Generator(),  # else the loader would move the global one, and dropout would depend on it
    )
    for part in loader:
        if isinstance(part, _Failed):
            raise part.error
        yield part


def _context() -> Any:
    """How processes start: not as forks of this one, which may hold a lock or a GPU that the fork would wait for.

    Forks of a server that has done nothing but import what is needed cost a tenth of a second; Windows has none.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", __name__])
    return context


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _tensor(values: NDArray[Any]) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable")  # nothing is ever written to it
        return torch.from_numpy(np.ascontiguousarray(values))


def _narrow(values: Tensor, device: torch.device) -> Tensor:
    """Doubles as floats where they leave the CPU: a model gets floats anyway, and not every device has doubles."""
    return values.float() if values.dtype == torch.float64 and device.type != "cpu" else values
