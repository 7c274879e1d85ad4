"""MNIST-M as published: a folder of PNG files and a list of their digits, or a folder for each digit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gated_domains.data.errors import DataError
from gated_domains.data.originals.parts import Bytes, Parts, as_digits
from gated_domains.data.progress import progress

_SIDES = (28, 32)


def read_mnistm_lists(train: Path, test: Path) -> Parts:
    """``mnist_m_train_labels.txt`` (lines ``00000000.png 5``) beside the folder ``mnist_m_train``; likewise test."""
    return (*_listed(train), *_listed(test))


def read_mnistm_folders(train: Path, test: Path) -> Parts:
    """Folders for training and test, in each of them folders ``0`` to ``9`` of PNG files."""
    return (*_sorted_by_digit(train), *_sorted_by_digit(test))


def _listed(path: Path) -> tuple[Bytes, Bytes]:
    folder = path.with_name(path.name.removesuffix("_labels.txt"))
    images: list[Path] = []
    labels: list[int] = []
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), start=1):
        name, _, digit = line.strip().rpartition(" ")
        if not name or not digit.isdigit() or Path(name).name != name:
            raise DataError(f"{path}, line {number}: {line!r} does not read `name.png digit`")
        images.append(folder / name)
        labels.append(int(digit))
    return _read(images, labels, where=str(path))


def _sorted_by_digit(folder: Path) -> tuple[Bytes, Bytes]:
    found = [(image, digit) for digit in range(10) for image in sorted((folder / str(digit)).glob("*.png"))]
    return _read([image for image, _ in found], [digit for _, digit in found], where=str(folder))


def _read(paths: Sequence[Path], labels: Sequence[int], *, where: str) -> tuple[Bytes, Bytes]:
    if not paths:
        raise DataError(f"{where}: there are no images")
    first = _picture(paths[0])
    images = np.empty((len(paths), *first.shape), np.uint8)
    with progress(f"reading {len(paths):,} images of MNIST-M", total=len(paths)) as advance:
        for row, path in enumerate(paths):
            picture = _picture(path)
            if picture.shape != first.shape:
                raise DataError(f"{path} is of shape {picture.shape}, but {paths[0].name} of {first.shape}")
            images[row] = picture
            advance(1)
    return images, as_digits(np.array(labels), where, rows=len(images))


def _picture(path: Path) -> Bytes:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            if image.size not in [(side, side) for side in _SIDES]:
                raise DataError(f"{path} is {image.width} x {image.height}; MNIST-M's images are 32 x 32")
            return np.asarray(image.convert("RGB"))
    except (FileNotFoundError, PermissionError):
        raise
    except UnidentifiedImageError as error:
        raise DataError(f"{path} is no image; fetch it again") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is damaged or cut short ({error}); fetch it again") from error
