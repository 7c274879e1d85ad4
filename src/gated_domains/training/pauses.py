"""Pauses of a training, in which its process may go on with another one."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextvars import ContextVar
from enum import Enum, auto
from typing import Any, TypeVar, cast

CLOCK: ContextVar[Callable[[], float]] = ContextVar("the clock of a training", default=time.monotonic)
"""What a training counts its seconds by: where several take turns, each has a share of those that go by."""
_NAP = 1e-3  # seconds between two looks at a thread that is waited for
Result = TypeVar("Result")


class Pause(Enum):
    """Where a training pauses."""

    AFTER_STEP = auto()
    """It can go on at once."""
    UNTIL_DONE = auto()
    """It will read what its device has computed: going on before that is there would make the host wait for it."""
    ELSEWHERE = auto()
    """It waits for a thread of its own."""


def drained(going: Generator[Any, None, Result]) -> Result:
    """What a generator returns, with no pause made use of."""
    while True:
        try:
            if next(going) is Pause.ELSEWHERE:
                time.sleep(_NAP)
        except StopIteration as end:
            return cast(Result, end.value)
