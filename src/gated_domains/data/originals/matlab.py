"""MATLAB files: SVHN and SYN as published, and the collection called Digit-Five."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, listing
from gated_domains.data.originals.parts import Bytes, Parts, as_bytes, as_digits, as_images


def read_svhn(train: Path, test: Path) -> Parts:
    """SVHN's cropped digits, and SYN, which copies their form: ``X`` (32, 32, 3, rows) and ``y``, where 10 means 0."""
    return (*_crops(train), *_crops(test))


def read_digit_five_mnist(path: Path) -> Parts:
    """``mnist_data.mat``: the 28 x 28 images where they are there (MNIST's own), else those of 32 x 32."""
    content = _load(path, "label_train", "label_test", optional=("train_28", "test_28", "train_32", "test_32"))
    side = 28 if {"train_28", "test_28"} <= set(content) else 32
    absent = [key for key in (f"train_{side}", f"test_{side}") if key not in content]
    if absent:
        raise DataError(f"{path} lacks {listing(absent)}; fetch it again")

    def split(name: str) -> tuple[Bytes, Bytes]:
        images = content[f"{name}_{side}"]
        images = images.reshape(len(images), -1)  # with or without an axis for the one channel
        as_images(images, f"{path}, {name}_{side}", shape=(side * side,))
        return _checked(images.reshape(-1, side, side), content[f"label_{name}"], f"{path}, {name}_{side}")

    return (*split("train"), *split("test"))


def read_digit_five_mnistm(path: Path) -> Parts:
    """``mnistm_with_label.mat``: ``train``, ``test`` (rows, 28, 28, 3) and one column a digit for labels."""
    content = _load(path, "train", "test", "label_train", "label_test")

    def split(name: str) -> tuple[Bytes, Bytes]:
        images = as_images(content[name], f"{path}, {name}", shape=(28, 28, 3))
        return _checked(images, content[f"label_{name}"], f"{path}, {name}")

    return (*split("train"), *split("test"))


def read_digit_five_usps(path: Path) -> Parts:
    """``usps_28x28.mat``: cells ``dataset``, a row for training, one for test: images (rows, 1, 28, 28) and labels."""
    cells = _load(path, "dataset")["dataset"]
    if cells.dtype != object or cells.shape != (2, 2):
        raise DataError(f"{path}: dataset must be 2 x 2 cells, got {cells.dtype} of shape {cells.shape}")

    def split(row: int, name: str) -> tuple[Bytes, Bytes]:
        where = f"{path}, {name}"
        images, labels = (np.asarray(cell) for cell in cells[row])
        return _checked(as_images(images, where, shape=(1, 28, 28))[:, 0], labels, where)

    return (*split(0, "training part"), *split(1, "test part"))


def read_digit_five_syn(path: Path) -> Parts:
    """``syn_number.mat``: ``train_data``, ``test_data`` (rows, 32, 32, 3) and ``train_label``, ``test_label``."""
    content = _load(path, "train_data", "train_label", "test_data", "test_label")

    def split(name: str) -> tuple[Bytes, Bytes]:
        images = as_images(content[f"{name}_data"], f"{path}, {name}_data", shape=(32, 32, 3))
        return _checked(images, content[f"{name}_label"], f"{path}, {name}_data")

    return (*split("train"), *split("test"))


def _crops(path: Path) -> tuple[Bytes, Bytes]:
    content = _load(path, "X", "y")
    if content["X"].ndim != 4:
        raise DataError(f"{path}: X must have shape (32, 32, 3, rows), got {content['X'].shape}")
    # A view: of half a million SYN images only those drawn are ever copied.
    images = as_images(content["X"].transpose(3, 0, 1, 2), f"{path}, X", shape=(32, 32, 3))
    return _checked(images, content["y"], str(path))


def _checked(images: NDArray[Any], labels: NDArray[Any], where: str) -> tuple[Bytes, Bytes]:
    return as_bytes(images, where), as_digits(labels, where, rows=len(images), ten_is_zero=True)


def _load(path: Path, *keys: str, optional: tuple[str, ...] = ()) -> dict[str, NDArray[Any]]:
    """Named arrays of a MATLAB file."""
    from scipy.io import loadmat

    with open(path, "rb"):  # what the system has against it, before scipy wraps it in words of its own
        pass
    try:
        content = loadmat(path, variable_names=[*keys, *optional])
    except NotImplementedError as error:
        raise DataError(f"{path} is a MATLAB 7.3 file, which scipy does not read; save it again with -v7") from error
    except Exception as error:  # scipy raises whatever a damaged file happens to lead to
        raise DataError(
            f"{path} is damaged, cut short, or no MATLAB file ({type(error).__name__}: {error}); fetch it again"
        ) from error
    absent = [key for key in keys if key not in content]
    if absent:
        raise DataError(f"{path} lacks {listing(absent)}; it is not the file its name says")
    return {key: np.asarray(content[key]) for key in (*keys, *optional) if key in content}
