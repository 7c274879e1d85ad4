"""The ``wilds`` package's own scores, without ``torch_scatter``, which has no build for most machines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch


def scatter(src: torch.Tensor, index: torch.Tensor, dim_size: int, reduce: str) -> torch.Tensor:
    """The mean of the values of each group, 0 for one without any: all that the package asks for."""
    assert reduce == "mean"
    counts = torch.zeros(dim_size).index_add_(0, index, torch.ones(len(index)))
    return torch.zeros(dim_size).index_add_(0, index, src.float()) / counts.clamp(min=1)


@contextmanager
def scattering() -> Iterator[None]:
    """While this lasts, ``import torch_scatter`` finds a stand-in."""
    before = sys.modules.get("torch_scatter")
    stand_in = ModuleType("torch_scatter")
    stand_in.scatter = scatter  # type: ignore[attr-defined]
    sys.modules["torch_scatter"] = stand_in
    try:
        yield
    finally:
        if before is None:
            del sys.modules["torch_scatter"]
        else:
            sys.modules["torch_scatter"] = before


def wilds_eval(opened: Any, said: torch.Tensor, rows: torch.Tensor) -> dict[str, Any]:
    """What the class itself makes of these predictions for its rows."""
    with scattering():
        results, _ = opened.eval(said, opened.y_array[rows], opened.metadata_array[rows])
    return results
