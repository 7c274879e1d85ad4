"""GateStream: gates from the last rows of a stream rather than from each row alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from gated_domains.common.validation import at_least_one, positive

ROWS_AT_A_TIME = 32
"""Rows that join a stream together where many are predicted: each is gated by the window that ends with the last."""


class GateStream:
    """A weighted buffer of the last ``size`` gating rows; ``head(x, gates=stream)`` adds x's rows, then gates by all.

    Every row weighs the same unless ``half_life`` is given: then a row's weight halves every so many rows. ``watch`` is
    shown every new row once, in order, before it joins; gates do not depend on it.
    """

    def __init__(
        self, size: int = 256, *, half_life: float | None = None, watch: Callable[[Tensor], None] | None = None
    ) -> None:
        self.size = at_least_one("size", size)
        self.half_life = None if half_life is None else positive("half_life", half_life)
        self.watch = watch
        self.rows: Float[Tensor, "held features"] | None = None

    def push(self, gating: Float[Tensor, "batch features"]) -> Float[Tensor, "held features"]:
        """Add rows, oldest first; return what the buffer now holds."""
        new = gating.detach()
        if self.rows is not None and self.rows.shape[-1] != new.shape[-1]:
            raise ValueError(
                f"the stream holds rows of width {self.rows.shape[-1]}, got {new.shape[-1]}; "
                "one stream serves one layer"
            )
        if self.watch is not None:
            self.watch(new)
        held = new if self.rows is None else torch.cat([self.rows.to(new), new])
        self.rows = held[-self.size :]
        return self.rows

    @property
    def weights(self) -> Float[Tensor, " held"]:
        """The weight of each held row, oldest first, summing to one."""
        if self.rows is None:
            raise ValueError("the stream is empty: push rows first")
        age = torch.arange(len(self.rows) - 1, -1, -1, device=self.rows.device, dtype=torch.float64)
        weights = torch.ones_like(age) if self.half_life is None else 0.5 ** (age / self.half_life)
        return weights / weights.sum()

    def clear(self) -> None:
        """Forget all rows."""
        self.rows = None

    def __len__(self) -> int:
        return 0 if self.rows is None else len(self.rows)

    def __repr__(self) -> str:
        return f"GateStream(size={self.size}, half_life={self.half_life}, held={len(self)})"
