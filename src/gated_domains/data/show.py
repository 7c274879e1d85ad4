"""A picture of data: what samples of each domain look like, or how the rows of each domain lie."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import fit_encoding
from gated_domains.data.inputs import Table
from gated_domains.data.pictures import picture_path, write_figure
from gated_domains.data.sizes import sizes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_COLUMNS, _MOST_DOMAINS, _MOST_DOTS = 12, 12, 4_000
_SAMPLES_A_CLASS = 5


def show_data(dataset: DomainDataset, path: str | os.PathLike[str], *, seed: int = 0) -> Path:
    """Write the picture: a contact sheet of images, else the classes and the first two directions by domain."""
    path = picture_path(path)
    figure = contact_sheet(dataset, seed=seed) if dataset.inputs.kind == "images" else overview(dataset, seed=seed)
    return write_figure(figure, path)


def contact_sheet(dataset: DomainDataset, *, seed: int = 0) -> Figure:
    """A panel a domain, a column a class (or samples at random where classes are many)."""
    from matplotlib.figure import Figure

    chance = np.random.default_rng(seed)
    names = dataset.domain_names[:_MOST_DOMAINS] or ("all",)
    across = 2 if len(names) > 1 else 1
    down = -(-len(names) // across)
    figure = Figure(figsize=(6.4 * across, 3.6 * down), layout="constrained")
    axes = np.atleast_1d(figure.subplots(down, across)).ravel()
    for axis in axes[len(names) :]:
        axis.axis("off")
    for axis, name in zip(axes, names, strict=False):
        rows = dataset.rows_of(name) if dataset.domain_names else np.arange(len(dataset))
        _sheet(axis, dataset, rows, chance)
        axis.set_title(f"{_label(name)}  ({len(rows):,} images)", loc="left", fontsize=11)
    figure.suptitle(_label(dataset.name, 60) + _of_many(dataset))
    return figure


def _sheet(axis: Axes, dataset: DomainDataset, rows: NDArray[np.int64], chance: np.random.Generator) -> None:
    classes = dataset.class_names
    by_class = classes is not None and len(classes) <= _MOST_COLUMNS
    columns = len(classes) if by_class and classes is not None else 10
    grid = np.full((_SAMPLES_A_CLASS, columns), -1, np.int64)
    for column in range(columns):
        mine = rows[dataset.targets[rows] == column] if by_class else rows
        drawn = chance.permutation(mine)[:_SAMPLES_A_CLASS]
        grid[: len(drawn), column] = drawn
    used = grid[grid >= 0]
    images = dataset.inputs.read(used) if len(used) else np.zeros((1, 1, 1, 3), np.uint8)
    height, width, channels = images.shape[1:]
    tiles = np.full((grid.size, height + 2, width + 2, channels), 255, np.uint8)
    tiles[np.flatnonzero(grid.ravel() >= 0), 1:-1, 1:-1] = images[: len(used)]
    sheet = tiles.reshape(*grid.shape, height + 2, width + 2, channels).transpose(0, 2, 1, 3, 4)
    sheet = sheet.reshape(grid.shape[0] * (height + 2), grid.shape[1] * (width + 2), channels)
    axis.imshow(
        sheet[..., :3] if channels >= 3 else sheet[..., 0], cmap="gray", vmin=0, vmax=255, interpolation="nearest"
    )
    axis.set_yticks([])
    axis.tick_params(length=0, labelsize=9)
    for side in axis.spines.values():
        side.set_visible(False)
    if by_class and classes is not None:
        axis.set_xticks((np.arange(columns) + 0.5) * (width + 2) - 0.5, [_label(name, 12) for name in classes])
        if max(len(name) for name in classes) > 4:
            axis.tick_params(axis="x", labelrotation=35)
    else:
        axis.set_xticks([])


def overview(dataset: DomainDataset, *, seed: int = 0) -> Figure:
    """Classes (or the target) by domain, the rows along their first two principal directions, and what is missing."""
    from matplotlib.figure import Figure

    missing = _missing(dataset)
    panels = 2 if missing is None else 3
    figure = Figure(figsize=(5.2 * panels, 4.4), layout="constrained")
    axes = figure.subplots(1, panels)
    _targets(axes[0], dataset)
    sizes = sizes_of(dataset.inputs)
    if sizes is None:
        _directions(axes[1], dataset, seed)
    else:
        _sizes(axes[1], dataset, *sizes)
    if missing is not None:
        columns, shares = missing
        _missing_map(axes[2], columns, shares[:, :_MOST_DOMAINS], dataset.domain_names[:_MOST_DOMAINS] or ("all",))
    figure.suptitle(f"{_label(dataset.name, 60)}: {len(dataset):,} rows{_of_many(dataset)}")
    return figure


def _of_many(dataset: DomainDataset) -> str:
    count = len(dataset.domain_names)
    return f", the first {_MOST_DOMAINS} of {count:,} domains" if count > _MOST_DOMAINS else ""


def _targets(axis: Axes, dataset: DomainDataset) -> None:
    names = dataset.domain_names or ("all",)
    shown = names[:_MOST_DOMAINS]
    places = np.arange(len(shown))
    axis.set_yticks(places, [_label(name) for name in shown])
    if dataset.class_names is None:
        _spread(axis, dataset, dataset.targets, shown)
        axis.set_xlabel("target: median, middle half, middle 90 %")
    else:
        shares = dataset.counts()[: len(shown)] / np.maximum(
            dataset.counts()[: len(shown)].sum(axis=1, keepdims=True), 1
        )
        left = np.zeros(len(shown))
        palette = _colours(len(dataset.class_names))
        for number, name in enumerate(dataset.class_names):
            axis.barh(places, shares[:, number], left=left, color=palette[number], label=_label(name))
            left += shares[:, number]
        axis.set_xlabel("share of rows")
        axis.set_xlim(0, 1)
        if len(dataset.class_names) <= 10:
            axis.legend(frameon=False, fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    axis.invert_yaxis()
    axis.set_title("target by domain", loc="left", fontsize=11)


def _spread(axis: Axes, dataset: DomainDataset, values: NDArray[Any], names: tuple[str, ...]) -> None:
    """The median, the middle half and the middle 90 % of numbers, a line a domain."""
    for place, name in enumerate(names):
        here = values[dataset.rows_of(name)] if dataset.domain_names else values
        if len(here):
            low, first, middle, third, high = np.quantile(here, [0.05, 0.25, 0.5, 0.75, 0.95])
            axis.plot([low, high], [place, place], color="tab:blue", linewidth=1)
            axis.barh(place, third - first, left=first, height=0.5, color="tab:blue", alpha=0.5)
            axis.plot([middle, middle], [place - 0.25, place + 0.25], color="black", linewidth=2)


def _sizes(axis: Axes, dataset: DomainDataset, what: str, sizes: NDArray[np.int64]) -> None:
    """How long texts are, or how large molecules, by domain."""
    shown = dataset.domain_names[:_MOST_DOMAINS] or ("all",)
    axis.set_yticks(np.arange(len(shown)), [_label(name) for name in shown])
    _spread(axis, dataset, sizes, shown)
    axis.invert_yaxis()
    axis.set_xlabel(f"{what}: median, middle half, middle 90 %")
    axis.set_title(f"{what} by domain", loc="left", fontsize=11)


def _directions(axis: Axes, dataset: DomainDataset, seed: int) -> None:
    rows = np.sort(np.random.default_rng(seed).permutation(len(dataset))[:_MOST_DOTS])
    prepared = fit_encoding(dataset, np.arange(len(dataset))).prepare(dataset.inputs)
    values = prepared.read(rows).astype(np.float64)
    values = (values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-12)
    left, sizes, _ = np.linalg.svd(values, full_matrices=False)
    places = (left * sizes)[:, :2]
    if places.shape[1] < 2:
        places = np.column_stack([places, np.zeros(len(places))])
    names = dataset.domain_names[:_MOST_DOMAINS] or ("all",)
    palette = _colours(len(names))
    for number, name in enumerate(names):
        mine = places if dataset.domains is None else places[dataset.domains[rows] == number]
        axis.scatter(mine[:, 0], mine[:, 1], s=5, alpha=0.5, color=palette[number], linewidth=0, label=_label(name))
    share = sizes[:2] ** 2 / max(float((sizes**2).sum()), 1e-12)
    axis.set_xlabel(f"first principal direction ({share[0]:.0%} of the variance)")
    axis.set_ylabel(f"second ({share[1]:.0%})" if len(share) > 1 else "")
    axis.legend(frameon=False, fontsize=8, markerscale=3)
    axis.set_title("rows by domain", loc="left", fontsize=11)


def _missing(dataset: DomainDataset) -> tuple[list[str], NDArray[np.float64]] | None:
    """Columns with missing values, and the share missing by column and domain."""
    if not isinstance(dataset.inputs, Table):
        return None
    columns = [column for column in dataset.inputs.columns if column.missing.any()][:30]
    if not columns:
        return None
    domains = np.zeros(len(dataset), np.int64) if dataset.domains is None else dataset.domains
    count = max(1, len(dataset.domain_names))
    total = np.maximum(np.bincount(domains, minlength=count), 1)
    shares = np.stack([np.bincount(domains, column.missing, count) / total for column in columns])
    return [column.name for column in columns], shares


def _missing_map(axis: Axes, names: list[str], shares: NDArray[np.float64], domains: tuple[str, ...]) -> None:
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axis.set_yticks(range(len(names)), [_label(name) for name in names], fontsize=8)
    axis.set_xticks(range(len(domains)), [_label(name, 16) for name in domains], rotation=35, ha="right", fontsize=8)
    if shares.size <= 200:
        for (row, column), share in np.ndenumerate(shares):
            colour = "white" if share > 0.5 else "black"
            axis.text(column, row, f"{share:.0%}", ha="center", va="center", fontsize=7, color=colour)
    axis.set_title("share missing", loc="left", fontsize=11)


def _label(name: str, most: int = 24) -> str:
    """A name as matplotlib shows it letter by letter: no formula between $ signs, not hidden for a leading _."""
    short = name if len(name) <= most else name[: most - 1] + "…"
    return ("\u200b" * short.startswith("_") + short).replace("$", r"\$")


def _colours(count: int) -> Any:
    from matplotlib import colormaps

    return colormaps["tab10"](np.arange(count)) if count <= 10 else colormaps["turbo"](np.linspace(0.05, 0.95, count))
