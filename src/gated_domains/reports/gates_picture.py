"""A picture of the gates: who uses which basis."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError
from gated_domains.data.pictures import picture_path, write_figure
from gated_domains.reports.dots import COLOURS, QUIET, plain
from gated_domains.reports.terminal import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LONGEST_NAME = 24
_MOST_ANNOTATED = 400


def draw_gates(
    beta: NDArray[Any],
    path: str | os.PathLike[str],
    *,
    domains: NDArray[Any],
    domain_names: Sequence[str],
    unseen: Sequence[str] = (),
    coverage: NDArray[Any] | None = None,
    title: str = "who uses which basis",
) -> Path:
    """Mean gate weight of each basis for each domain as a heat-map, mean coverage at its right.

    ``beta`` is (rows, bases), ``coverage`` (rows,); ``domains`` are indices into ``domain_names``. Domains named in
    ``unseen`` stand last and are marked.
    """
    path = picture_path(path)
    return write_figure(
        gates_figure(beta, domains=domains, domain_names=domain_names, unseen=unseen, coverage=coverage, title=title),
        path,
    )


def gates_figure(
    beta: NDArray[Any],
    *,
    domains: NDArray[Any],
    domain_names: Sequence[str],
    unseen: Sequence[str] = (),
    coverage: NDArray[Any] | None = None,
    title: str = "who uses which basis",
) -> Figure:
    """The figure behind ``draw_gates``."""
    from matplotlib.figure import Figure

    _check_gates(beta, domains, coverage)
    present = [domain_names[index] for index in np.unique(domains).tolist()]
    names = [name for name in present if name not in unseen] + [name for name in present if name in unseen]
    rows = [domains == list(domain_names).index(name) for name in names]
    means = np.stack([beta[mine].mean(axis=0, dtype=np.float64) for mine in rows])
    bases = beta.shape[1]
    width, height = min(2.6 + 0.52 * max(bases, 4), 14.0), 1.3 + max(0.24 * len(names), 0.6)
    figure = Figure(figsize=(width + (1.9 if coverage is not None else 0.4), height), layout="constrained")
    if coverage is None:
        axis = figure.subplots()
    else:
        axis, side = figure.subplots(1, 2, width_ratios=[max(bases, 4) * 0.52, 1.5])
        _coverage_panel(side, [float(coverage[mine].mean()) for mine in rows])
    _heat_map(axis, means)
    labels = [name + "  (unseen)" * (name in unseen) for name in shortened(names, _LONGEST_NAME)]
    marked = [name in unseen for name in names]
    axis.set_yticks(range(len(names)), [plain(label) for label in labels], fontsize=9)
    for text, mark in zip(axis.get_yticklabels(), marked, strict=True):
        text.set_fontweight("bold" if mark else "normal")
    if any(marked) and not all(marked):
        axis.axhline(marked.index(True) - 0.5, color="black", linewidth=1.2)
    figure.suptitle(plain(title), x=0.01, ha="left", fontsize=12)
    return figure


def _heat_map(axis: Axes, means: NDArray[np.float64]) -> None:
    # Weights of a projection may be negative: then zero is white, and the two signs have two colours.
    signed = bool(means.min() < -1e-6)
    top = max(float(np.abs(means).max()), 1e-12)
    limits = {"cmap": "RdBu", "vmin": -top, "vmax": top} if signed else {"cmap": "Blues", "vmin": 0.0, "vmax": top}
    axis.imshow(means, aspect="auto", interpolation="nearest", **limits)  # type: ignore[arg-type]
    if means.size <= _MOST_ANNOTATED and means.shape[1] <= 20:
        for (row, column), value in np.ndenumerate(means):
            colour = "white" if abs(value) > 0.6 * top else "black"
            axis.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    apart = math.ceil(means.shape[1] / 20)
    axis.set_xticks(range(0, means.shape[1], apart), [str(number) for number in range(1, means.shape[1] + 1, apart)])
    axis.set_xlabel("basis", fontsize=9)
    axis.set_title("mean gate weight", loc="left", fontsize=10)
    axis.tick_params(length=0, labelsize=9)
    axis.spines[:].set_visible(False)


def _coverage_panel(axis: Axes, values: list[float]) -> None:
    axis.barh(range(len(values)), values, color=COLOURS[2], height=0.6)
    for place, value in enumerate(values):
        axis.text(value + 0.03, place, f"{value:.2f}", va="center", fontsize=8)
    axis.set_xlim(0, 1.3)
    axis.set_xticks([0, 0.5, 1.0], ["0", "0.5", "1"])
    axis.set_ylim(len(values) - 0.5, -0.5)
    axis.set_yticks([])
    axis.set_title("mean coverage", loc="left", fontsize=10)
    axis.tick_params(colors=QUIET, labelsize=9)
    axis.spines[:].set_visible(False)


def _check_gates(beta: NDArray[Any], domains: NDArray[Any], coverage: NDArray[Any] | None) -> None:
    if beta.ndim != 2 or not beta.size or len(domains) != len(beta):
        raise DataError(f"gates must be (rows, bases) with a domain for every row, got {beta.shape}, {domains.shape}")
    if coverage is not None and coverage.shape != (len(beta),):
        raise DataError(f"coverage must be one number a row, got {coverage.shape} for {len(beta):,} rows")
    for name, values in (("gates", beta), ("coverage", coverage)):
        if values is not None and not np.isfinite(values).all():
            raise DataError(f"{name} hold NaN or infinity: the model has diverged; lower the learning rate")
