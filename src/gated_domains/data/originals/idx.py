"""MNIST as its authors publish it: four IDX files, plain or gzipped."""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path

import numpy as np

from gated_domains.data.errors import DataError
from gated_domains.data.originals.parts import Bytes, Parts, as_digits, as_images

_BYTES = 0x08  # the code of unsigned bytes; MNIST has no other kind
_LARGEST = 1 << 31


def read_mnist(train_images: Path, train_labels: Path, test_images: Path, test_labels: Path) -> Parts:
    """MNIST's images (28 x 28, grey) and digits."""
    return (*_pair(train_images, train_labels), *_pair(test_images, test_labels))


def read_idx(path: str | os.PathLike[str]) -> Bytes:
    """An array of bytes from an IDX file: two zeros, the type, the number of axes, their lengths, the bytes."""
    with open(path, "rb") as plain:
        zipped = plain.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if zipped else open(path, "rb") as file:
            head = file.read(4)
            if len(head) < 4 or head[:2] != b"\0\0":
                raise DataError(f"{path} is no IDX file: it begins with {head!r}; fetch it again")
            if head[2] != _BYTES:
                raise DataError(f"{path} holds type 0x{head[2]:02x}, but MNIST's files hold bytes (0x08)")
            lengths = file.read(4 * head[3])
            if len(lengths) < 4 * head[3] or head[3] == 0:
                raise DataError(f"{path} is cut short: its header is incomplete; fetch it again")
            shape = struct.unpack(f">{head[3]}I", lengths)
            expected = math.prod(shape)
            if expected > _LARGEST:
                raise DataError(f"{path} says it holds {expected:,} bytes of shape {shape}; that is no MNIST file")
            content = file.read(expected + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged or cut short ({error}); fetch it again") from error
    if len(content) != expected:
        more = "more than" if len(content) > expected else f"{len(content):,} of"
        raise DataError(f"{path} holds {more} the {expected:,} bytes of its shape {shape}; fetch it again")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _pair(images: Path, labels: Path) -> tuple[Bytes, Bytes]:
    pictures = as_images(read_idx(images), str(images), shape=(28, 28))
    return pictures, as_digits(read_idx(labels), str(labels), rows=len(pictures))
