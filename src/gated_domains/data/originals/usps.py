"""USPS in the three forms it is passed around in: LIBSVM text, the text files of a textbook, HDF5."""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError
from gated_domains.data.originals.parts import Bytes, Parts, as_bytes, as_digits

_SIDE = 16
_PIXELS = _SIDE * _SIDE
_MOST_TEXT = 200 * 10**6  # the longest, unpacked, has 30 MB


def read_usps_libsvm(train: Path, test: Path) -> Parts:
    """``usps.bz2`` and ``usps.t.bz2``: lines ``label index:value ...``, labels 1 to 10 for 0 to 9, values -1 to 1."""
    return (*_libsvm(train), *_libsvm(test))


def read_usps_text(train: Path, test: Path) -> Parts:
    """``zip.train`` and ``zip.test``: lines of the digit and 256 values, -1 to 1."""
    return (*_text(train), *_text(test))


def read_usps_h5(path: Path) -> Parts:
    """``usps.h5``: groups ``train`` and ``test`` with ``data`` (rows, 256), 0 to 1, and ``target``. Needs h5py."""
    try:
        h5py: Any = importlib.import_module("h5py")
    except ImportError as error:
        raise DataError(f"{path} is an HDF5 file, which h5py reads: pip install h5py") from error
    try:
        with h5py.File(path, "r") as file:
            arrays = [np.asarray(file[split][key]) for split in ("train", "test") for key in ("data", "target")]
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, PermissionError):
            raise
        raise DataError(f"{path} is damaged, or lacks train and test with data and target ({error})") from error
    train, train_labels, test, test_labels = arrays
    return (
        *_checked(train, train_labels, f"{path}, train", low=0.0),
        *_checked(test, test_labels, f"{path}, test", low=0.0),
    )


def _libsvm(path: Path) -> tuple[Bytes, Bytes]:
    lines = [line for line in _content(path).splitlines() if line.strip()]
    labels = np.empty(len(lines))
    pixels = np.zeros((len(lines), _PIXELS))  # what the format leaves out is zero
    for row, line in enumerate(lines):
        try:
            numbers = np.array(line.replace(":", " ").split(), np.float64)
            index = numbers[1::2].astype(np.int64) - 1
            if len(numbers) % 2 == 0:
                raise ValueError("an index has no value")
            if ((index < 0) | (index >= _PIXELS)).any():
                raise ValueError(f"an index is outside 1 to {_PIXELS}")
            labels[row], pixels[row, index] = numbers[0] - 1, numbers[2::2]
        except (ValueError, IndexError) as error:
            raise DataError(f"{path}, line {row + 1}: {error}; a line reads `label index:value ...`") from error
    return _checked(pixels, labels, str(path), low=-1.0)


def _text(path: Path) -> tuple[Bytes, Bytes]:
    try:
        table = np.loadtxt(io.StringIO(_content(path)), ndmin=2)
    except ValueError as error:
        raise DataError(f"{path}: {error}; a line holds the digit and {_PIXELS} values") from error
    if table.shape[1] != _PIXELS + 1:
        raise DataError(f"{path}: a line must hold the digit and {_PIXELS} values, got {table.shape[1]} numbers")
    return _checked(table[:, 1:], table[:, 0], str(path), low=-1.0)


def _checked(pixels: NDArray[Any], labels: NDArray[Any], where: str, *, low: float) -> tuple[Bytes, Bytes]:
    if pixels.ndim < 2 or len(pixels) == 0 or pixels[0].size != _PIXELS:
        raise DataError(f"{where}: an image must have {_PIXELS} pixels, got an array of shape {pixels.shape}")
    images = as_bytes(pixels, where, low=low, high=1.0).reshape(-1, _SIDE, _SIDE)
    return images, as_digits(labels, where, rows=len(images))


def _content(path: Path) -> str:
    """The text of a file, plain or compressed, whatever its name says."""
    with open(path, "rb") as plain:
        head = plain.read(3)
    opener = bz2.open if head == b"BZh" else gzip.open if head[:2] == b"\x1f\x8b" else open
    try:
        with opener(path, "rb") as file:
            content = file.read(_MOST_TEXT + 1)
    except (EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged or cut short ({error}); fetch it again") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise DataError(f"{path} is damaged or cut short ({error}); fetch it again") from error
    if not content or len(content) > _MOST_TEXT:
        raise DataError(f"{path} holds {'nothing' if not content else 'more text than USPS has'}; fetch it again")
    return content.decode("ascii", "replace")
