"""Rows that are gated together: asked of a model a part at a time, and put back in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.inputs import Rows


def asked_in_parts(parts: Sequence[Rows], ask: Callable[[Rows], Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """What is said of each part of the rows, by name, in the order of the rows; ``parts`` have each of them once."""
    said = [ask(part) for part in parts]
    back = np.argsort(np.concatenate(parts))
    return {name: np.concatenate([found[name] for found in said])[back] for name in said[0]}
