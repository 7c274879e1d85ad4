"""Which cases of a test run on every backend of Keras, and which on one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def on_every_backend(chosen: Collection[Any], *, of: Iterable[Any], slow: Collection[Any] = ()) -> list[Any]:
    """Parameters for a test: those ``chosen`` run on every backend, the others are marked ``one_backend``, or slow."""
    cases = list(of)
    assert all(case in cases for case in (*chosen, *slow))

    def marked(case: Any) -> Any:
        mark = pytest.mark.slow if case in slow else pytest.mark.one_backend
        return case if case in chosen else pytest.param(case, marks=mark)

    return [marked(case) for case in cases]
