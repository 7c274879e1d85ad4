"""The name of a run: a hash of all that it depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

LENGTH = 12


def canonical(obj: Any) -> str:
    """The one way to write plain values as JSON: keys sorted, floats by ``repr``, no NaN; a tuple is a list."""
    _refuse_odd_keys(obj)
    return json.dumps(obj, sort_keys=True, separators=(",", ":"), allow_nan=False)


def run_hash(fields: Mapping[str, Any]) -> str:
    """12 hexadecimal characters that stand for these fields."""
    return hashlib.sha256(canonical(dict(fields)).encode()).hexdigest()[:LENGTH]


def _refuse_odd_keys(obj: Any) -> None:
    """JSON writes the keys 1 and "1" alike, and two runs would share a name."""
    if isinstance(obj, dict):
        for key, value in obj.items():
            if not isinstance(key, str):
                raise TypeError(f"a key must be text, got {key!r}")
            _refuse_odd_keys(value)
    elif isinstance(obj, (list, tuple)):
        for value in obj:
            _refuse_odd_keys(value)
