"""Where a data set of WILDS lies, and which of its files are there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from gated_domains.data.errors import DataError, data_folder, listing
from gated_domains.data.wilds.sets import PREFIX, WildsSet

ROOT = "wilds"


def roots(data_dir: str | os.PathLike[str] | None = None) -> tuple[Path, Path]:
    """Where ``root_dir`` of the ``wilds`` package may be: ``<data dir>/wilds``, else the data directory itself."""
    place = data_folder(data_dir)
    return place / ROOT, place


def find(chosen: WildsSet, data_dir: str | os.PathLike[str] | None = None) -> Path | None:
    """The folder of a data set, or None where there is none."""
    # OGB itself takes a folder from its older versions before the usual one.
    folders = (f"{chosen.folder}_pyg", chosen.folder) if chosen.kind == "graphs" else (chosen.folder,)
    looked_in = (root / folder for root in roots(data_dir) for folder in folders)
    return next((folder for folder in looked_in if folder.is_dir()), None)


def located(chosen: WildsSet, data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The folder of a data set with all that must lie in it besides the samples; else what is missing, and the cure."""
    folder = find(chosen, data_dir)
    if folder is None:
        looked_in = " or ".join(str(root / chosen.folder) for root in roots(data_dir))
        raise DataError(f"{chosen.title} is not in {looked_in}; {how_to_get(chosen)}")
    missing = missing_files(folder, required(chosen))
    if missing == [chosen.version]:
        raise DataError(
            f"{folder / chosen.version} is missing, by which WILDS knows a data set that is all there; unpack the "
            "archive again, or, if you are sure of the data, make that file, empty"
        )
    if missing:
        raise DataError(f"{folder}: missing are {listing(missing)}; unpack the archive again, or {how_to_get(chosen)}")
    return folder


def required(chosen: WildsSet) -> tuple[str, ...]:
    """The files without which nothing can be read. OGB's own reader asks for a version; ours does without."""
    return chosen.files if chosen.kind == "graphs" else (chosen.version, *chosen.files)


def missing_files(folder: Path, wanted: Iterable[str]) -> list[str]:
    """Those that are not there."""
    return [name for name in wanted if not (folder / name).is_file()]


def is_miniature(folder: Path) -> bool:
    """Whether this is a made-up stand-in for the data set."""
    return (folder / "MINIATURE.txt").is_file()


def how_to_get(chosen: WildsSet) -> str:
    """Commands that bring the data, or a miniature of them."""
    name = PREFIX + chosen.name
    return (
        f"bring it with `gated-domains data fetch {name}` ({_size(chosen.bytes)}), or write a small stand-in with "
        f"`gated-domains data miniature {name} DIR` and use --data-dir DIR"
    )


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
