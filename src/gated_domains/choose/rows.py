"""Rows of features as every suggestion takes them: checked, subsampled, one seed a run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def as_rows(features: ArrayLike, *, at_least: int) -> NDArray[Any]:
    """The features as a matrix of finite real numbers, one row a sample; refused otherwise."""
    try:
        x = np.asarray(features)
        # Floats keep their width: only the subsample is widened, which may be far smaller.
        x = x if x.dtype.kind == "f" else x.astype(np.float64, casting="unsafe" if x.dtype.kind == "O" else "safe")
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"features cannot be read as a matrix of numbers ({error}); keep numeric columns of equal length, "
            "and hand a tensor over as features.detach().cpu().numpy()"
        ) from error
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(
            f"expected features with shape (rows, features), got shape {x.shape}; reshape them, "
            "a single feature with features.reshape(-1, 1)"
        )
    if len(x) < at_least:
        raise ValueError(f"at least {at_least} rows of features are needed, got {len(x)}; pass more rows")
    broken = int((~np.isfinite(x)).any(axis=1).sum())
    if broken:
        raise ValueError(f"features hold NaN or infinity in {broken} of {len(x)} rows; clean or drop those rows first")
    return x


def subsample(x: NDArray[Any], max_rows: int, seed: int) -> NDArray[np.float64]:
    """At most ``max_rows`` rows at random, in double precision; every row, in order, where they are few enough."""
    if len(x) > max_rows:
        x = x[np.random.default_rng(seed).choice(len(x), max_rows, replace=False)]
    return x.astype(np.float64)


def run_seeds(seed: int, runs: int) -> list[int]:
    """A seed for each run. Not ``seed + run``: then neighbouring seeds would share all runs but one."""
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
    return [int(state) for state in np.random.SeedSequence(seed).generate_state(runs)]


def check_at_least(name: str, value: int, low: int) -> None:
    """Refuse a count that is too small."""
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}")
