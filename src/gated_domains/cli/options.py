"""Options that several commands share: how data are to be read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from gated_domains.data.readers.reading import Reading

What = Annotated[str, typer.Argument(metavar="DATA", help="A name (see `data list`), a file, a folder, a .yaml card.")]
DataDir = Annotated[Path | None, typer.Option(help="Where data sets lie; else $GATED_DOMAINS_DATA, else the cache.")]
Seed = Annotated[int, typer.Option(help="For all that is drawn by chance.", min=0)]

_PANEL = "How to read the data"
_TEXTS = {
    "target": "Column to be predicted.",
    "domain": "Column that names the domain.",
    "positive": "Target values that make the positive class: 1,2,3.",
    "categorical": "Columns of names that are written as numbers: a,b.",
    "drop": "Columns to leave out: a,b.",
    "metadata": "Columns to keep beside the inputs: a,b.",
    "keep_together": "Column (a patient) whose groups are never divided.",
    "task": "classification or regression; found out by default.",
}
_OPTIONS: dict[str, Any] = {
    **{name: Annotated[str | None, typer.Option(help=text, rich_help_panel=_PANEL)] for name, text in _TEXTS.items()},
    "image_size": Annotated[
        int | None, typer.Option(help="Side in pixels that images are fitted to.", rich_help_panel=_PANEL)
    ],
}
_LISTS = ("positive", "categorical", "drop", "metadata")


def takes_reading(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of Reading; it gets them as one argument, ``reading``."""

    def run(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in _OPTIONS}
        lists: dict[str, Any] = {name: tuple(_names(chosen[name])) for name in _LISTS if chosen[name] is not None}
        others = {name: value for name, value in chosen.items() if name not in _LISTS}
        command(reading=Reading(**others, **lists), **given)

    own = [entry for name, entry in inspect.signature(command, eval_str=True).parameters.items() if name != "reading"]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _OPTIONS.items()
    ]
    entries = [entry.replace(kind=inspect.Parameter.KEYWORD_ONLY) for entry in own] + shared
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(entries)  # type: ignore[attr-defined]
    run.__annotations__ = {entry.name: entry.annotation for entry in entries}
    return run


def _names(written: str) -> list[str]:
    return [name.strip() for name in written.split(",") if name.strip()]
