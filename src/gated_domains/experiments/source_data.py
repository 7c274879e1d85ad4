"""A data set as the runs on it see it, and how worker processes share it."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from multiprocessing import reduction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import fingerprint
from gated_domains.data.splits import HoldOut
from gated_domains.evaluation.metrics import SELECTION_RULES
from gated_domains.runs.recipe import Recipe


class SourceData:
    """A data set as the sources of each run have it: kinds of columns and the list of classes decided on them."""

    def __init__(
        self, dataset: DomainDataset, *, digests: NDArray[np.uint64] | None = None, known: str | None = None
    ) -> None:
        self.dataset = dataset
        self.digests = dataset.inputs.digests() if digests is None else digests
        self.fingerprint = fingerprint(dataset, self.digests) if known is None else known
        self._views: dict[str, tuple[DomainDataset, dict[str, Any]]] = {}

    def view(self, recipe: Recipe, split: HoldOut, hashed: str) -> DomainDataset:
        """The data of a run; where it selects by the rows held out, as all rows have it."""
        return self._view(recipe, split, hashed)[0]

    def identity(self, recipe: Recipe, split: HoldOut, hashed: str) -> dict[str, Any]:
        """What distinguishes the data of a run from others; where its sources decide otherwise, how they decide."""
        return self._view(recipe, split, hashed)[1]

    def _view(self, recipe: Recipe, split: HoldOut, hashed: str) -> tuple[DomainDataset, dict[str, Any]]:
        whole = {"name": self.dataset.name, "fingerprint": self.fingerprint}
        if SELECTION_RULES[recipe.selection].oracle:
            return self.dataset, whole
        if hashed not in self._views:
            view = self.dataset.decided_on(split.seen)
            if view is not self.dataset:
                same_inputs = view.inputs is self.dataset.inputs
                whole = {**whole, "decided": fingerprint(view, self.digests if same_inputs else None)}
            self._views[hashed] = view, whole
        return self._views[hashed]


_ALIGNED = 64  # bytes


class _Pickler(pickle.Pickler):
    """Keeps all arrays of numbers out of the pickle: NumPy writes those into it that are not contiguous, or memmaps."""

    def reducer_override(self, obj: Any) -> Any:
        given = type(obj)
        if given is np.memmap or (given is np.ndarray and not obj.flags.forc and not obj.dtype.hasobject):
            return np.ascontiguousarray(obj).__reduce_ex__(5)
        return NotImplemented


class SharedData:
    """A data set whose arrays lie once in a temporary file, which worker processes map into memory.

    The file has no name on disk: it vanishes with the last process that uses it, however that ends. Only raw numbers
    are in it; everything else goes to workers with the process.
    """

    def __init__(self, data: SourceData) -> None:
        buffers: list[pickle.PickleBuffer] = []
        self.content = content = (data.dataset, data.digests, data.fingerprint)
        header = io.BytesIO()
        _Pickler(header, protocol=5, buffer_callback=buffers.append).dump(content)
        self.header = header.getvalue()
        self.spans: list[tuple[int, int]] = []
        self.file = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the executor
        try:
            for buffer in buffers:
                start = -(-self.file.tell() // _ALIGNED) * _ALIGNED
                self.file.seek(start)
                self.file.write(buffer.raw())
                self.spans.append((start, self.file.tell()))
            self.file.flush()
        except OSError as error:
            self.file.close()
            size = sum(buffer.raw().nbytes for buffer in buffers) / 1e9
            raise DataError(
                f"{size:.1f} GB of data for worker processes cannot be written to {tempfile.gettempdir()} "
                f"({error.strerror}); set TMPDIR to a folder with room, or use one worker"
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        """For a process that is being started: a duplicate of the file's handle instead of its content."""
        if not hasattr(reduction, "DupFd"):  # on Windows each worker gets a copy
            return _open_copy, self.content
        return _open_shared, (reduction.DupFd(self.file.fileno()), self.header, self.spans)

    def close(self) -> None:
        self.file.close()


def _open_copy(dataset: DomainDataset, digests: NDArray[np.uint64], known: str) -> SourceData:
    return SourceData(dataset, digests=digests, known=known)


def _open_shared(handle: Any, header: bytes, spans: list[tuple[int, int]]) -> SourceData:
    """In a worker: the data, with arrays that are read from the file when they are needed."""
    file = handle.detach()
    try:
        # Private: pages are shared with all others until somebody writes to them.
        mapped = memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_COPY)) if spans else memoryview(b"")
    finally:
        os.close(file)
    dataset, digests, known = pickle.loads(header, buffers=[mapped[start:end] for start, end in spans])
    return SourceData(dataset, digests=digests, known=known)
