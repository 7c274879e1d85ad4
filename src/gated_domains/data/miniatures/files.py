"""Tables and pictures of a miniature as files: the same bytes for the same content, on every day."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.progress import progress

Picture = NDArray[np.uint8]  # (height, width, 3)


def write_table(
    path: Path, columns: Mapping[str, Iterable[Any]], *, index: bool = False, quote_text: bool = False
) -> None:
    """A CSV file with a header; ``index`` puts the row's number first, under no name, as pandas does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(
            file, quoting=csv.QUOTE_NONNUMERIC if quote_text else csv.QUOTE_MINIMAL, lineterminator="\n"
        )
        writer.writerow([*([""] if index else []), *columns])
        for number, row in enumerate(zip(*columns.values(), strict=True)):
            # numpy's numbers are written as Python's, whatever numpy calls them when printed
            writer.writerow([*([number] if index else []), *(v.item() if hasattr(v, "item") else v for v in row)])


def write_gzip_csv(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """A compressed CSV file without a header, as OGB has them. Gzip's own time and file name are left out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    with open(path, "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        packed.write(text.getvalue().encode())


def write_all(what: str, paths: Sequence[Path], write: Callable[[int, Path], None]) -> None:
    """Call ``write(row, path)`` for every path, a few at a time: packing pictures leaves Python's lock alone."""
    for parent in sorted({path.parent for path in paths}):
        parent.mkdir(parents=True, exist_ok=True)
    with (
        progress(f"writing {len(paths):,} {what}", total=len(paths)) as advance,
        ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool,
    ):
        for _ in pool.map(write, range(len(paths)), paths):
            advance(1)


def write_picture(path: Path, picture: Picture) -> None:
    """As PNG or JPEG, by the name."""
    from PIL import Image

    options: dict[str, Any] = {"quality": 80} if path.suffix == ".jpg" else {"compress_level": 6}
    Image.fromarray(picture).save(path, **options)
