"""Data sets fetched by name, for people with a network."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from gated_domains.data.catalogue import DIGITS5, RemoteFile
from gated_domains.data.digits5 import folder_name
from gated_domains.data.download import download, to_stderr
from gated_domains.data.errors import DataError, data_folder, did_you_mean, listing
from gated_domains.data.originals.prepare import RENDERED, Preparation, already_prepared, prepare_digits5
from gated_domains.data.wilds.fetching import fetch_wilds
from gated_domains.data.wilds.sets import PREFIX, WILDS, is_wilds

__all__ = ["RemoteFile", "download", "fetch", "fetchable"]

Say = Callable[[str], None]


def fetchable() -> tuple[str, ...]:
    """The names that can be fetched: a data set, or one domain of it."""
    return ("digits5", *DIGITS5, *(f"{PREFIX}{name}" for name in WILDS))


def fetch(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    offline: bool = False,
    timeout: float = 30.0,
    say: Say | None = None,
) -> Preparation | Path:
    """Fetch a data set of WILDS into ``<data dir>/wilds`` and return its folder; or fetch the originals of ``name``,
    ``digits5`` or one of its domains, into ``<data dir>/originals/digits5`` and prepare the data set from them.

    What is prepared already is not fetched. Of what cannot be had the rest is prepared before the error; SYN alone is
    no loss, as it is rendered from fonts then. With ``offline`` only originals that are there are used.
    """
    if name not in fetchable():
        raise DataError(f"there is nothing called {name!r} to fetch{did_you_mean(name, fetchable())}")
    say = say or to_stderr
    if is_wilds(name):
        return fetch_wilds(name, data_dir=data_dir, offline=offline, timeout=timeout, say=say)
    parts = tuple(DIGITS5) if name == "digits5" else (name,)
    folder = data_folder(data_dir) / "originals" / "digits5"
    failures: dict[str, str] = {}
    for part in parts:
        if _is_prepared(data_folder(data_dir) / folder_name(small=False) / f"{part}.npz"):
            continue
        try:
            _have(part, folder, offline=offline, timeout=timeout, say=say)
        except DataError as error:
            failures[part] = str(error)
    if len(failures) == len(parts):
        raise DataError("\n".join(f"{part}: {reason}" for part, reason in failures.items()))
    if "syn" in failures:
        say(f"syn: {failures.pop('syn')}; it is rendered from fonts instead, and every table says so")
    folder.mkdir(parents=True, exist_ok=True)  # not there when everything was prepared from elsewhere
    prepared = prepare_digits5(
        folder, data_dir=data_dir, domains=[part for part in parts if part not in failures], say=say
    )
    if failures:
        raise DataError(
            "\n".join(f"{part}: {reason}" for part, reason in failures.items())
            + f"\n{name} is not complete; prepared are {listing(prepared.domains)}, in {prepared.folder}"
        )
    return prepared


def _is_prepared(path: Path) -> bool:
    try:
        there = already_prepared(path)
    except DataError:
        return False
    return there is not None and there.note != RENDERED


def _have(part: str, folder: Path, *, offline: bool, timeout: float, say: Say) -> None:
    """Have one set of a part's files in the folder: one that is there, else the first that can be fetched."""
    reasons: list[str] = []
    for only_look in (True,) if offline else (True, False):
        reasons.clear()
        for file_set in DIGITS5[part]:
            try:
                for file in file_set:
                    download(file, folder, offline=only_look, timeout=timeout, say=say)
                return
            except DataError as error:
                reasons.append(str(error))
    raise DataError(". Or: ".join(reasons))
