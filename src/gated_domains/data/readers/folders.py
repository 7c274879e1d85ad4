"""Image folders ``domain/class/*``: read at once where they fit into memory, file by file where they do not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, decoding, listing, naming
from gated_domains.data.inputs import Images, Inputs, Rows, describe_images, digest_of_bytes
from gated_domains.data.labels import Reading
from gated_domains.data.memory import available_bytes
from gated_domains.data.progress import progress
from gated_domains.data.readers.table_files import is_table_file

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
MOST_PIXELS = 89_000_000  # of one image; beyond, PIL itself takes it for a trap, and warns
LARGEST_SIDE = 224  # of images of many sizes, unless another is asked for
_SNIFFED = 20_000
_PARTS = ("train", "training", "val", "valid", "validation", "dev", "test", "testing")
_SHARE = 64  # images one thread reads before it takes more
_LITTLE = 2_000  # images that are read before anybody would look for a progress bar


@dataclass(frozen=True)
class ImageFolder:
    """What lies in a folder: files, and the place of their domain and class among the names."""

    root: Path
    files: list[str]
    domains: NDArray[np.int64]
    classes: NDArray[np.int64]
    domain_names: tuple[str, ...]
    class_names: tuple[str, ...]
    others: tuple[str, ...]  # files that are no images

    def labels(self) -> NDArray[Any]:
        """The class of every file, by name."""
        return np.array(self.class_names)[self.classes]

    def without(self, rows: Sequence[int]) -> ImageFolder:
        """The folder less some files."""
        kept = np.setdiff1d(np.arange(len(self.files)), np.asarray(rows, np.int64))
        files = [self.files[row] for row in kept]
        names = (self.domain_names, self.class_names, self.others)
        return ImageFolder(self.root, files, self.domains[kept], self.classes[kept], *names)


class ImageFiles(Inputs):
    """Images on disk, decoded when they are asked for, fitted to one size: scaled and cut around the middle."""

    kind = "images"

    def __init__(
        self, files: Sequence[str | os.PathLike[str]], *, height: int, width: int, notes: tuple[str, ...] = ()
    ) -> None:
        self.files, self.height, self.width = [os.fspath(file) for file in files], height, width
        self.notes = notes

    def __len__(self) -> int:
        return len(self.files)

    @property
    def nbytes(self) -> int:
        return len(self) * self.height * self.width * 3

    def read(self, rows: Rows) -> NDArray[Any]:
        images = np.empty((len(rows), self.height, self.width, 3), np.uint8)
        for place, row in enumerate(rows):
            images[place] = read_image(self.files[row], height=self.height, width=self.width)
        return images

    def read_all(self) -> Images:
        """Every image, in memory."""
        images = np.empty((len(self), self.height, self.width, 3), np.uint8)
        digests = np.empty(len(self), np.uint64)

        def fill(row: int) -> None:
            images[row] = read_image(self.files[row], height=self.height, width=self.width)
            digests[row] = _digest(self.files[row])

        in_threads(fill, range(len(self)), "reading images")
        return Images(images, digests=digests)

    def at_hand(self) -> Images | ImageFiles:
        """All in memory where they take up no more than half of it, else as they are."""
        return self.read_all() if self.nbytes < available_bytes() // 2 else self

    def digests(self) -> NDArray[np.uint64]:
        """Of the files as they are: the same picture saved twice in two ways counts as two."""
        digests = np.empty(len(self), np.uint64)

        def fill(row: int) -> None:
            digests[row] = _digest(self.files[row])

        in_threads(fill, range(len(self)), "comparing images")
        return digests

    def take(self, rows: Rows) -> ImageFiles:
        return ImageFiles([self.files[row] for row in rows], height=self.height, width=self.width, notes=self.notes)

    def describe(self) -> str:
        return describe_images(self.height, self.width, 3)


def read_folder(path: Path, reading: Reading) -> DomainDataset:
    """A data set from an image folder. An image that cannot be read is named, and nothing is guessed in its place."""
    reading.refuse_all_but("image_size", "positive", what="an image folder")
    folder = scan(path)
    return as_dataset(folder, image_files(folder, image_size=reading.image_size), reading)


def as_dataset(folder: ImageFolder, images: ImageFiles, reading: Reading) -> DomainDataset:
    """The images of a folder with their classes and domains."""
    from gated_domains.data.labels import as_targets

    used = np.unique(folder.classes)
    if len(used) < 2:
        raise DataError(
            f"{folder.root}: every image is of one class, {folder.class_names[used[0]]!r}; nothing can be learned"
        )
    targets, class_names = as_targets(folder.labels(), positive=reading.positive, what="class", task="classification")
    return DomainDataset(
        name=folder.root.resolve().name,
        inputs=images.at_hand(),
        targets=targets,
        class_names=class_names,
        classes_found=reading.positive is None,
        domains=folder.domains,
        domain_names=folder.domain_names,
        metadata={"file": relative(folder.root, folder.files)},
        notes=(*images.notes, *doubts(folder)),
        reading=reading,
    )


def relative(root: Path, files: Sequence[str]) -> NDArray[Any]:
    """The paths of files below a folder, as they can be printed."""
    start = os.path.join(root, "")
    return np.array([_printable(file.removeprefix(start)) for file in files], object)


def doubts(folder: ImageFolder) -> Iterator[str]:
    """Signs that the folders may not be domains and classes after all, and what was passed over."""
    if all(name.casefold() in _PARTS for name in folder.domain_names):
        yield f"the domains are called {listing(folder.domain_names)}: are these domains? It must be domain/class/*"
    top = len(folder.root.parts)
    deeper = [file for file in folder.files if len(Path(file).parts) > top + 3]
    if deeper:
        below = os.path.relpath(deeper[0], folder.root)
        yield (
            f"{len(deeper):,} images lie deeper than domain/class/* ({_printable(below)}); the first two folders are "
            "taken for their domain and class"
        )
    yield from passed_over(folder.others)


def passed_over(others: Sequence[str]) -> Iterator[str]:
    """A note on files that are no images, where there are any."""
    if others:
        what = (
            "1 file is not an image and was" if len(others) == 1 else f"{len(others):,} files are not images and were"
        )
        yield f"{what} skipped: {listing(others, 3)}"


def scan(root: Path) -> ImageFolder:
    """Find ``domain/class/*``, sorted by name, so that the same folder gives the same rows everywhere."""
    files: list[str] = []
    places: list[tuple[str, str]] = []
    others: list[str] = []
    for domain in _folders(root):
        for group in _folders(domain.path):
            for file in _files_below(group.path):
                if file.lower().endswith(IMAGE_SUFFIXES):
                    files.append(file)
                    places.append((_printable(domain.name), _printable(group.name)))
                else:
                    others.append(_printable(os.path.relpath(file, root)))
    if not files:
        _refuse_tables(root)
        raise DataError(
            f"{root}: images are expected as domain/class/*.png, but {_elsewhere(root)}; sort them into such folders"
        )
    domain_names, domains = np.unique([domain for domain, _ in places], return_inverse=True)
    class_names, classes = np.unique([group for _, group in places], return_inverse=True)
    return ImageFolder(
        root,
        files,
        domains.astype(np.int64),
        classes.astype(np.int64),
        tuple(str(name) for name in domain_names),
        tuple(str(name) for name in class_names),
        tuple(others),
    )


def scan_loose(root: Path) -> tuple[list[str], tuple[str, ...]]:
    """All images in a folder, however deep, in the order that ``scan`` has for those it finds; and other files."""
    found = [entry.path for entry in _entries(root) if entry.is_file()]
    for folder in _folders(root):
        found += [entry.path for entry in _entries(folder.path) if entry.is_file()]
        found += [file for group in _folders(folder.path) for file in _files_below(group.path)]
    found.sort(key=lambda file: Path(file).parts)
    images = [file for file in found if file.lower().endswith(IMAGE_SUFFIXES)]
    if not images:
        _refuse_tables(root)
        raise DataError(f"{root}: there are no images in this folder ({listing(IMAGE_SUFFIXES)})")
    return images, tuple(relative(root, [file for file in found if not file.lower().endswith(IMAGE_SUFFIXES)]))


def _refuse_tables(root: Path) -> None:
    if tables := [entry.name for entry in _entries(root) if is_table_file(Path(entry.path))]:
        raise DataError(f"{root} holds tables ({listing(tables, 3)}); join them into one, with a column for the domain")


def _elsewhere(root: Path) -> str:
    """Where images lie that are not two folders deep, to help somebody on."""

    def images(folder: str | os.PathLike[str]) -> int:
        return sum(entry.name.lower().endswith(IMAGE_SUFFIXES) for entry in _entries(folder))

    if loose := images(root):
        return f"{loose:,} images lie in it directly"
    shallow = {folder.name: images(folder.path) for folder in _folders(root)}
    if any(shallow.values()):
        names = listing(_printable(name) for name, count in shallow.items() if count)
        return f"{sum(shallow.values()):,} images lie one folder deep, in {names}"
    return "none was found"


def image_files(folder: ImageFolder, *, image_size: int | None = None) -> ImageFiles:
    """The images at the size asked for; else at their own, where they share one; else at a square of the usual side."""
    if image_size is not None and not 1 <= image_size <= 4096:
        raise DataError(f"the image size must be 1 to 4096 pixels, got {image_size}")
    if image_size is not None:
        return ImageFiles(folder.files, height=image_size, width=image_size)
    step = max(1, len(folder.files) // _SNIFFED)
    sizes = np.array([_size(file) for file in folder.files[::step]])
    if (sizes == sizes[0]).all():
        width, height = (int(side) for side in sizes[0])
        return ImageFiles(folder.files, height=height, width=width)
    side = min(LARGEST_SIDE, int(np.median(sizes.min(axis=1))))
    by_area = sizes[np.argsort(sizes.prod(axis=1), kind="stable")]
    (least_width, least_height), (most_width, most_height) = by_area[0], by_area[-1]
    note = (
        f"images differ in size, from {least_width} x {least_height} to {most_width} x {most_height}; all are scaled "
        f"and cut around the middle to {side} x {side} (--image-size chooses another side)"
    )
    return ImageFiles(folder.files, height=side, width=side, notes=(note,))


def read_image(path: str | os.PathLike[str], *, height: int, width: int) -> NDArray[np.uint8]:
    """One image as RGB bytes. Another size is scaled and cut around the middle; a turned photograph is set upright."""
    from PIL import Image, ImageOps

    with opened_image(path) as image:
        upright = ImageOps.exif_transpose(image) if image.format in ("JPEG", "TIFF", "WEBP") else image
        if upright.mode.startswith("I") or upright.mode == "F":
            upright = _as_bytes(upright)
        if upright.mode == "P" and "transparency" in upright.info:
            upright = upright.convert("RGBA")
        rgb = upright if upright.mode == "RGB" else upright.convert("RGB")
        if rgb.size != (width, height):
            rgb = ImageOps.fit(rgb, (width, height), Image.Resampling.BILINEAR)
        return np.asarray(rgb)


def _digest(path: str) -> int:
    with open(path, "rb") as file:
        return digest_of_bytes(file.read())


def _as_bytes(image: Any) -> Any:
    """Grey of 16 bits or of floats -> bytes; PIL alone would cut off what is above 255."""
    from PIL import Image

    values = np.asarray(image, np.float64)
    if not np.isfinite(values).all():
        raise DataError("the image holds NaN or infinity")
    scale = 255 / 65535 if image.mode.startswith("I") else 255.0 if values.max() <= 1 else 1.0
    return Image.fromarray((values * scale).clip(0, 255).astype(np.uint8))


def _size(path: str) -> tuple[int, int]:
    with opened_image(path) as image:
        # A TIFF turns its size by itself.
        turned = image.format in ("JPEG", "WEBP") and image.getexif().get(0x0112, 1) > 4  # lies on its side
        return (image.height, image.width) if turned else (image.width, image.height)


@contextmanager
def opened_image(path: str | os.PathLike[str]) -> Iterator[Any]:
    """The image in a file, not yet decoded; one that says it is huge never is."""
    from PIL import Image, UnidentifiedImageError

    too_large = f"{path}: says it has more than {MOST_PIXELS:,} pixels; scale it down"
    with decoding(path), naming(path), open(path, "rb") as file:
        try:
            image = Image.open(file)
        except Image.DecompressionBombError as error:
            raise DataError(too_large) from error
        except UnidentifiedImageError as error:
            raise DataError(f"{path}: no image; it is cut short, damaged, or not what its name says") from error
        with image:
            if image.width * image.height > MOST_PIXELS:
                raise DataError(too_large)
            yield image


def in_threads(work: Callable[[int], None], rows: range, what: str) -> None:
    """Do the work for every row, a few at a time; decoders let go of the interpreter while they decode."""
    threads = min(8, os.cpu_count() or 1)

    def share(first: int) -> int:
        mine = range(rows.start + first * _SHARE, min(rows.stop, rows.start + (first + 1) * _SHARE))
        for row in mine:
            work(row)
        return len(mine)

    shares = range(-(-len(rows) // _SHARE))
    with ThreadPoolExecutor(threads) as pool:
        done = pool.map(share, shares)
        if len(rows) < _LITTLE:
            list(done)
            return
        with progress(what, len(rows)) as advance:
            for count in done:
                advance(count)


def _entries(folder: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        return sorted(
            (entry for entry in found if not entry.name.startswith((".", "__"))), key=lambda entry: entry.name
        )


def _folders(folder: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    return [entry for entry in _entries(folder) if entry.is_dir()]


def _files_below(folder: str) -> Iterator[str]:
    """All files below, in order. Links to folders are not followed here: they may go round in a circle."""
    waiting = _entries(folder)[::-1]
    while waiting:
        entry = waiting.pop()
        if entry.is_dir(follow_symlinks=False):
            waiting += _entries(entry.path)[::-1]
        elif entry.is_file():
            yield entry.path


def _printable(name: str) -> str:
    """A name on disk may be any bytes; where they are no text, their numbers stand for them."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
