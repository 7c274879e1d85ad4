"""The originals that lie under a folder, those inside archives unpacked for as long as they are read."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gated_domains.data.archives import UnsafeArchiveError, is_archive, member_names, unpack
from gated_domains.data.errors import DataError, listing
from gated_domains.data.originals.finding import Found, Recipe, find, is_needed


@dataclass(frozen=True)
class Original:
    """The files of one domain, the recipe that reads them, and their names for people."""

    recipe: Recipe
    paths: tuple[Path, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class RunCollection:
    """Originals by domain, and a line for each thing that was passed over: archives that cannot be read, pickles."""

    originals: Mapping[str, Original]
    passed_over: tuple[str, ...]


@contextmanager
def gathered(source: Path, domains: tuple[str, ...], *, scratch_parent: Path) -> Iterator[RunCollection]:
    """The originals of these domains under ``source``, a folder or an archive.

    Archives are looked into for the domains whose files do not lie there unpacked. Whatever is taken out of them is
    kept in a folder in ``scratch_parent``, which is gone in the end.
    """
    found = _loose(source)
    passed_over = []
    if found.pickles:
        names = listing(path.name for path in found.pickles)
        passed_over.append(
            f"{names}: a pickle runs code when it is opened, so it never is; use another form of the data"
        )
    scratch = scratch_parent / f".originals.{os.getpid()}-{secrets.token_hex(4)}"
    unpacked: dict[Path, Path] = {}
    try:
        for archive in found.archives:
            absent = tuple(domain for domain in domains if found.files_of(domain) is None)
            place = scratch / str(len(unpacked)) / archive.name
            try:
                if absent and _unpacked(archive, place, absent):
                    unpacked[place] = archive
                    found.add(find(place))
            except UnsafeArchiveError:
                raise
            except DataError as error:
                passed_over.append(str(error))
        originals = {}
        for domain in domains:
            if (files := found.files_of(domain)) is not None:
                recipe, paths = files
                originals[domain] = Original(recipe, paths, tuple(_shown(path, source, unpacked) for path in paths))
        yield RunCollection(originals, tuple(passed_over))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _loose(source: Path) -> Found:
    if source.is_dir():
        return find(source)
    if source.is_file() and is_archive(source):
        return Found(archives=[source])
    what = "is no folder and no archive" if source.exists() else "is not there"
    raise DataError(f"{source} {what}; name the folder that holds the originals (--from)")


def _unpacked(archive: Path, place: Path, domains: tuple[str, ...]) -> bool:
    """Unpack what these domains need from an archive, if it holds any of it."""

    def needed(name: str) -> bool:
        return is_needed(f"{archive.name}/{name}", domains)

    if not any(needed(name) for name in member_names(archive)):
        return False
    unpack(archive, place, only=needed)
    return True


def _shown(path: Path, source: Path, unpacked: Mapping[Path, Path]) -> str:
    for place, archive in unpacked.items():
        if path.is_relative_to(place):
            return f"{archive.name}: {path.relative_to(place).as_posix()}"
    return path.relative_to(source).as_posix()
