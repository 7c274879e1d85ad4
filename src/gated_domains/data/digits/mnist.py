"""Real MNIST, a part of which is shipped with the package: `mnist` takes one half, `blended` the other."""

from __future__ import annotations

import hashlib
import lzma
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.digits.drawing import SIDE
from gated_domains.data.digits.parts import Domain, Sizes, own_seed
from gated_domains.data.errors import DataError

# The file, once decompressed: a byte for each label, then 28 x 28 bytes for each image; MNIST's training images first,
# then its test images (other writers), as many of each digit. Made by benchmarks/make_mnist_subset.py.
FILE = Path(__file__).with_name("mnist-subset.xz")
SHA256 = "f6c11fc5672eb51f9d0c549feea7e66faa6271570c31e3903802e9d37f96bcf7"
TRAIN, TEST = 6_000, 2_000
MNIST_SIDE = 28


@cache
def subset() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The shipped images (8000, 28, 28) and their labels, read-only."""
    try:
        content = lzma.decompress(FILE.read_bytes())
    except (lzma.LZMAError, EOFError) as error:
        raise DataError(f"{FILE} is damaged ({error}); install gated-domains anew") from error
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise DataError(f"{FILE} is not the file that was shipped; install gated-domains anew")
    labels = np.frombuffer(content, np.uint8, TRAIN + TEST).astype(np.int64)
    labels.flags.writeable = False
    images = np.frombuffer(content, np.uint8, offset=TRAIN + TEST)
    return images.reshape(TRAIN + TEST, MNIST_SIDE, MNIST_SIDE), labels


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of the subset, in random order, that are trained on and tested on."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]

    @property
    def all(self) -> NDArray[np.int64]:
        return np.concatenate([self.train, self.test])


def halves(seed: int, sizes: Sizes) -> tuple[Rows, Rows]:
    """Rows for `mnist` and rows for `blended`: no image in both, as many of each digit."""
    rng = np.random.default_rng(own_seed(seed, "mnist"))
    own_train, other_train = _two_of_each(np.arange(TRAIN, dtype=np.int64), sizes.train, rng)
    own_test, other_test = _two_of_each(np.arange(TRAIN, TRAIN + TEST, dtype=np.int64), sizes.test, rng)
    return Rows(own_train, own_test), Rows(other_train, other_test)


def _two_of_each(
    rows: NDArray[np.int64], count: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    _, labels = subset()
    each = count // 10
    shuffled = [rng.permutation(rows[labels[rows] == digit]) for digit in range(10)]
    own = np.concatenate([of_digit[:each] for of_digit in shuffled])
    other = np.concatenate([of_digit[each : 2 * each] for of_digit in shuffled])
    return rng.permutation(own), rng.permutation(other)


def centred(rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Images of the subset in the middle of SIDE x SIDE, on black."""
    images, _ = subset()
    margin = (SIDE - MNIST_SIDE) // 2
    return np.pad(images[rows], ((0, 0), (margin, margin), (margin, margin)))


def make(seed: int, sizes: Sizes) -> Domain:
    """MNIST as it is, white on black."""
    rows, _ = halves(seed, sizes)
    _, labels = subset()
    return Domain.joined(centred(rows.train), centred(rows.test), labels=labels[rows.all])
