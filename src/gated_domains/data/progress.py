"""A bar on the terminal for anything that takes more than a moment; one line where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_UNDER_WAY: ContextVar[bool] = ContextVar("a bar is shown", default=False)


@contextmanager
def progress(what: str, total: int | None = None, *, unit: str = "count") -> Iterator[Callable[[int], None]]:
    """Yield ``advance(steps)``. ``unit="bytes"`` shows sizes and speed. Written to standard error.

    Inside another bar nothing is shown: that one tells how long it all takes.
    """
    if _UNDER_WAY.get():
        yield lambda steps: None
        return
    shown = _UNDER_WAY.set(True)
    try:
        with _bar(what, total, unit) as advance:
            yield advance
    finally:
        _UNDER_WAY.reset(shown)


@contextmanager
def progress_if(long: bool, what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """The same where it takes ``long``; else nothing is shown."""
    if not long:
        yield lambda steps: None
        return
    with progress(what, total) as advance:
        yield advance


@contextmanager
def _bar(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(file=sys.stderr)
    if not console.is_terminal:
        console.print(f"{what} ...", highlight=False)
        yield lambda steps: None
        return
    count = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps: bar.advance(task, steps)
