"""How the layer's Triton kernels are made from functions; imported where there is Triton alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import unwrap
from typing import Any

import triton


def jit(function: Callable[..., Any], *, counts: Sequence[str] = ()) -> Any:
    """``triton.jit`` of what stands in the file, also where a run-time type checker has wrapped it.

    ``counts`` are arguments that differ from call to call: for these, no variant is compiled for 1 and multiples of 16.
    """
    return triton.jit(unwrap(function), do_not_specialize=list(counts))
