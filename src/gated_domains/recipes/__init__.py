"""Recipes that come with the package: one YAML file a published run, reached as ``recipes/wilds/NAME.yaml``."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from gated_domains.data.errors import DataError, did_you_mean

_PREFIX = "recipes/"


def folder(benchmark: str) -> Path:
    """Where the recipes of a benchmark lie, once installed."""
    return Path(str(files(__name__))) / benchmark


def names(benchmark: str) -> list[str]:
    """The recipes of a benchmark, by the names that a command line takes."""
    return [f"{_PREFIX}{benchmark}/{path.name}" for path in sorted(folder(benchmark).glob("*.yaml"))]


def located(what: str) -> str:
    """The file behind ``recipes/wilds/NAME.yaml``; anything else, and a file here that is called so, stays as it is."""
    if not what.startswith(_PREFIX) or Path(what).exists():
        return what
    benchmark, _, name = what.removeprefix(_PREFIX).partition("/")
    there = folder(benchmark) / name
    if not name or not there.is_file():
        known = names(benchmark) if folder(benchmark).is_dir() else names("wilds")
        raise DataError(f"the package has no recipe {what}{did_you_mean(what, known)}")
    return str(there)
