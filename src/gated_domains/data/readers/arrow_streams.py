"""Streams that Arrow reads through Python, and the wait until its threads have released them.

A thread of Arrow's pools may release its last reference to a Python object after the call that started it has
returned. If the interpreter has ended by then, the thread cannot take the interpreter's lock, and the process aborts
("terminate called without an active exception"). So a call that reads through Python is over when Arrow holds none of
its objects any more. What Arrow reads by itself, such as ``pyarrow.OSFile``, needs no wait.
"""

from __future__ import annotations

import codecs
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

# Seconds. A reference that somebody else keeps, a debugger for example, must not stop the reading for ever.
_PATIENCE = 10.0


@contextmanager
def lending(file: Any, encoding: str) -> Iterator[Callable[[], Any]]:
    """Yield a function that returns a stream of the file's text in UTF-8; on exit, wait until Arrow has released it.

    Pass the stream on without keeping it in a variable, and delete readers that use it before leaving.
    """
    held: list[weakref.ref[Any]] = []

    def lend() -> Any:
        decoder = None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)()
        stream = _Stream(partial(_read, file, decoder, held))
        held.append(weakref.ref(stream))
        return stream

    try:
        yield lend
    finally:
        until = time.monotonic() + _PATIENCE
        while any(lent() is not None for lent in held) and time.monotonic() < until:
            time.sleep(0.001)


class _Stream:
    """A file as Arrow uses it. ``read`` is no method: the frames of an error in it would hold the stream."""

    closed = False

    def __init__(self, read: Callable[[int], _Block]) -> None:
        self.read = read

    def close(self) -> None:
        """Nothing: the file belongs to whoever opened it."""


class _Block(bytearray):
    """Bytes with weak references."""


def _read(file: Any, decoder: codecs.IncrementalDecoder | None, held: list[weakref.ref[Any]], size: int) -> _Block:
    while True:
        content = file.read(size)
        text = content if decoder is None else decoder.decode(content, final=not content).encode()
        if text or not content:  # half a character gives no text, which Arrow would take for the end
            block = _Block(text)
            held.append(weakref.ref(block))
            return block
