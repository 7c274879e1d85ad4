"""Digits-5, the data of the paper: MNIST, MNIST-M, SVHN, USPS and SYN, read from a data directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DATA_VARIABLE, DataError, cache_dir, data_folder, listing
from gated_domains.data.inputs import Images
from gated_domains.data.npz import array_headers, read_arrays

DOMAINS = ("mnist", "mnistm", "svhn", "usps", "syn")
KEYS = ("train_images", "train_labels", "test_images", "test_labels")
SIDE = 32
_SIDES = (16, 28, 32)  # USPS, MNIST, and the others
_CHUNK = 1024

StrPath = str | os.PathLike[str]


def digits5(*, data_dir: StrPath | None = None, small: bool = False) -> DomainDataset:
    """The five domains as 32 x 32 RGB images, from ``<data dir>/digits5/<domain>.npz`` (``small``: ``digits5-small``).

    Smaller images (MNIST 28 x 28, USPS 16 x 16) are resized by bilinear interpolation, not padded, so that a digit
    fills as much of the picture in one domain as in another; grey ones get three equal channels. The publishers' test
    images are marked as such; of USPS, the smallest, all images are scored when it is held out, as in the paper.
    Where SYN alone is missing, it is rendered from fonts, and ``notes`` say so.
    """
    name = folder_name(small=small)
    paths = [data_folder(data_dir) / name / f"{domain}.npz" for domain in DOMAINS]
    missing = [path for path in paths if not path.is_file()]
    if [path.stem for path in missing] == ["syn"]:
        paths[DOMAINS.index("syn")] = _rendered_syn(small=small)
    elif missing:
        raise _missing(name, missing, data_dir)
    labels = [read_labels(path) for path in paths]
    sizes = [len(train) + len(test) for train, test in labels]
    images = np.empty((sum(sizes), SIDE, SIDE, 3), np.uint8)
    start = 0
    for path, (train, test) in zip(paths, labels, strict=True):
        for split, rows in (("train", len(train)), ("test", len(test))):
            resize_into(images[start : start + rows], read_images(path, split, rows=rows))
            start += rows
    return DomainDataset(
        name=name,
        inputs=Images(images),
        targets=np.concatenate([part for pair in labels for part in pair]).astype(np.int64),
        class_names=tuple("0123456789"),
        domains=np.repeat(np.arange(len(DOMAINS)), sizes),
        domain_names=DOMAINS,
        official_test=np.concatenate([np.arange(len(train) + len(test)) >= len(train) for train, test in labels]),
        scored_whole=frozenset({"usps"}),
        notes=tuple(note for path in paths if (note := read_note(path))),
    )


def folder_name(*, small: bool) -> str:
    """The folder of the five files in a data directory."""
    return "digits5-small" if small else "digits5"


def read_labels(path: Path) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """The labels of one domain's file, for training and test, each a digit."""
    arrays = _read(path, "train_labels", "test_labels")
    train, test = arrays["train_labels"], arrays["test_labels"]
    for split, labels in (("train", train), ("test", test)):
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) == 0:
            raise DataError(
                f"{path}: {split}_labels must be one whole number an image, got {labels.dtype} of shape {labels.shape}"
            )
        outside = (labels < 0) | (labels > 9)
        if outside.any():
            row = int(np.argmax(outside))
            raise DataError(
                f"{path}: {split}_labels[{row}] is {labels[row]}, but a digit is 0 to 9 "
                f"({int(outside.sum()):,} such labels); make the file again"
            )
    return train, test


def read_images(path: Path, split: str, *, rows: int) -> NDArray[np.uint8]:
    """The images of one split of one domain's file, in the shape they are stored in."""
    images = _read(path, f"{split}_images")[f"{split}_images"]
    sides, channels = images.shape[1:3], images.shape[3:]
    if images.dtype != np.uint8 or sides not in [(side, side) for side in _SIDES] or channels not in [(), (3,)]:
        raise DataError(
            f"{path}: {split}_images must be bytes (uint8) of shape (rows, side, side) or (rows, side, side, 3) "
            f"with a side of {listing(_SIDES)}, got {images.dtype} of shape {images.shape}"
        )
    if len(images) != rows:
        raise DataError(f"{path}: {len(images):,} {split}_images but {rows:,} {split}_labels; make the file again")
    return images


def read_note(path: Path) -> str | None:
    """What is to be said wherever a result on this domain is shown, if anything."""
    note = _read(path, "note").get("note", np.array(""))
    if note.ndim != 0 or note.dtype.kind != "U":
        raise DataError(f"{path}: note must be one piece of text, got {note.dtype} of shape {note.shape}")
    return str(note) or None


def resize_into(out: NDArray[np.uint8], images: NDArray[np.uint8]) -> None:
    """Write square images, grey or RGB, into ``out`` (rows, 32, 32, 3), bilinearly where their side is not 32."""
    images = images if images.ndim == 4 else images[..., None]
    if images.shape[1] == SIDE:
        out[:] = images
        return
    weights = _bilinear(images.shape[1], SIDE)
    for start in range(0, len(images), _CHUNK):
        channels_first = images[start : start + _CHUNK].transpose(0, 3, 1, 2).astype(np.float32)
        resized = weights @ channels_first @ weights.T
        out[start : start + _CHUNK] = np.rint(resized).astype(np.uint8).transpose(0, 2, 3, 1)


def _bilinear(inputs: int, outputs: int) -> NDArray[np.float32]:
    """The matrix (outputs, inputs) of linear interpolation between the centres of pixels, constant beyond the last.

    From 16 or 28 to 32 every weight is a multiple of 1/16: float32 is exact, so every machine gives the same bytes.
    """
    centres = np.clip((np.arange(outputs) + 0.5) * inputs / outputs - 0.5, 0, inputs - 1)
    return np.maximum(0, 1 - np.abs(centres[:, None] - np.arange(inputs))).astype(np.float32)


def _read(path: Path, *keys: str) -> dict[str, NDArray[Any]]:
    """These arrays of one domain's file, where they are there; whatever is wrong with it comes with the cure."""
    try:
        there = array_headers(path)
        absent = [key for key in KEYS if key not in there]
        if absent:
            raise DataError(f"{path} lacks {listing(absent)}; there are {listing(there)}")
        return read_arrays(path, wanted=keys)
    except DataError as error:
        raise DataError(f"{error}. Make it again: gated-domains data prepare digits5 --from DIR") from error


def _rendered_syn(*, small: bool) -> Path:
    """A SYN rendered from fonts, made once into the cache: nobody may write where data lie, perhaps."""
    from gated_domains.data.originals.prepare import render_syn  # writes what is read here, and so imports this module

    path = cache_dir() / "rendered" / folder_name(small=small) / "syn.npz"
    if not path.is_file():
        render_syn(path.parent, small=small)
    return path


def _missing(name: str, paths: list[Path], data_dir: StrPath | None) -> DataError:
    places = (
        f"--data-dir ({'not given' if data_dir is None else data_dir})",
        f"${DATA_VARIABLE} ({os.environ.get(DATA_VARIABLE) or 'not set'})",
        f"the cache ({cache_dir() / 'data'})",
    )
    small = " --small" if name != "digits5" else ""
    fetch = "" if small else "`gated-domains data fetch digits5` with a network, or "
    return DataError(
        f"{name}: {listing(path.name for path in paths)} not found in {paths[0].parent}. The data directory is "
        f"the first that is set of {', '.join(places)}. Cure: {fetch}"
        f"`gated-domains data prepare digits5 --from DIR{small}` from the public originals in DIR"
    )
