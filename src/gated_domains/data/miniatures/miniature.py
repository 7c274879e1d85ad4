"""What a miniature is: the folder that the ``wilds`` package looks for, how many rows, and what fills it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gated_domains.data.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is asked of a miniature. ``side``: pixels of a picture, where there are pictures."""

    seed: int
    rows: int
    side: int | None = None
    smiles: Path | None = None

    def rng(self, *what: str | int) -> np.random.Generator:
        """A source of chance for one thing: what is drawn from it does not depend on what else is drawn, or when."""
        words = [part if isinstance(part, int) else int.from_bytes(part.encode(), "little") for part in what]
        return np.random.default_rng([self.seed, *words])


@dataclass(frozen=True, kw_only=True)
class Miniature:
    """``write(folder, order)`` fills an empty folder. Below ``least`` rows a split or a scored group would be empty."""

    folder: str
    release: str
    rows: int
    least: int
    write: Callable[[Path, Order], None]
    side: int | None = None
    takes_smiles: bool = False

    def order(self, name: str, *, seed: int, rows: int | None, side: int | None, smiles: Path | None) -> Order:
        """What was asked for, with the usual values filled in, or a DataError that says what cannot be had."""
        if seed < 0:
            raise DataError(f"seed must be 0 or more, got {seed}")
        if rows is not None and rows < self.least:
            raise DataError(
                f"a miniature of {name} needs at least {self.least:,} rows, so that no split and no scored group is "
                f"empty; got {rows:,}"
            )
        if side is not None and self.side is None:
            raise DataError(f"{name} has no pictures, so that side={side} means nothing; leave it out")
        if side is not None and not 16 <= side <= 1024:
            raise DataError(f"side must lie between 16 and 1,024 pixels, got {side}")
        if smiles is not None and not self.takes_smiles:
            raise DataError(f"{name} has no molecules, so that smiles={str(smiles)!r} means nothing; leave it out")
        return Order(
            seed=seed, rows=self.rows if rows is None else rows, side=self.side if side is None else side, smiles=smiles
        )
