"""Samples that lie in a file each: half a million paths in little memory, and a digest that reads none of them."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Inputs, Rows, digest_of_bytes
from gated_domains.data.memory import available_bytes
from gated_domains.data.readers.folders import in_threads

FEW = 20_000
LITTLE = 2 * 2**30
"""Up to so many files and bytes samples are read at once; of more, each time that they are asked for."""


class SampleFiles(Inputs):
    """Files below ``root``, read when they are asked for. ``name`` is that of the data set, for messages."""

    def __init__(self, root: Path, paths: Sequence[str] | NDArray[Any], *, name: str) -> None:
        self.root, self.name = root, name
        # Bytes in one array: as Python objects half a million paths would be copied into every reading process.
        self.paths = paths if isinstance(paths, np.ndarray) else np.array([os.fsencode(path) for path in paths])

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, row: int) -> str:
        """The file of a row."""
        return os.path.join(self.root, os.fsdecode(self.paths[row]))

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of one sample."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers in a sample."""

    @abstractmethod
    def decode(self, path: str) -> NDArray[Any]:
        """The sample in a file."""

    @property
    def nbytes(self) -> int:
        return len(self) * int(np.prod(self.shape)) * self.dtype.itemsize

    def read(self, rows: Rows) -> NDArray[Any]:
        samples = np.empty((len(rows), *self.shape), self.dtype)
        for place, row in enumerate(rows):
            samples[place] = self.read_one(int(row))
        return samples

    def read_one(self, row: int) -> NDArray[Any]:
        """One sample; a file that is not there is named, and whose it is."""
        path = self.path(row)
        try:
            return self.decode(path)
        except FileNotFoundError as error:
            raise DataError(
                f"{path} is missing, though the metadata of {self.name} have a row for it; "
                f"`gated-domains data check {self.name}` tells what else is"
            ) from error

    def read_all(self) -> NDArray[Any]:
        """Every sample."""
        samples = np.empty((len(self), *self.shape), self.dtype)

        def fill(row: int) -> None:
            samples[row] = self.read_one(row)

        in_threads(fill, range(len(self)), f"reading {self.name}")
        return samples

    @property
    def is_small(self) -> bool:
        """Whether all may be read at once: a miniature, not the data set itself."""
        return len(self) < FEW and self.nbytes < min(LITTLE, available_bytes() // 2)

    def digests(self) -> NDArray[np.uint64]:
        """Of the path below the data set's folder and the size of the file, not of what is in it.

        It tells whether two people have the same files without reading 50 GB of them. Copies of one sample under two
        names it does not find: WILDS published its divisions with whatever copies they hold.
        """
        digests = np.empty(len(self), np.uint64)

        def fill(row: int) -> None:
            try:
                size = os.stat(self.path(row)).st_size
            except FileNotFoundError:
                size = -1  # whoever reads it will say so
            digests[row] = digest_of_bytes(self.paths[row] + f" {size}".encode())

        in_threads(fill, range(len(self)), f"listing {self.name}")
        return digests
