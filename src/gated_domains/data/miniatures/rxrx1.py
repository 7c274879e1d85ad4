"""A miniature of RxRx1: cells under the microscope after a gene was silenced, in three dyes; eight siRNAs.

What a siRNA does shows in the cells' number, size, shape and in how bright each dye is. Cells of four types look
different from the start, and each experiment, a batch of plates handled together, has brightness and background of
its own. Experiments of the validation and test splits are not among those trained on; of those that are,
site 2 of each well is ``id_test``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.miniatures.drawing import Pen
from gated_domains.data.miniatures.files import write_all, write_picture, write_table
from gated_domains.data.miniatures.miniature import Miniature, Order

# Experiments of each type of cell that are trained on, for validation and for test; numbered in this order.
_EXPERIMENTS = {"HEPG2": (3, 1, 1), "HUVEC": (4, 1, 2), "RPE": (3, 1, 1), "U2OS": (3, 1, 1)}
_COUNT = sum(sum(counts) for counts in _EXPERIMENTS.values())
_SIRNAS, _SITES = 8, (1, 2)


class _Look(NamedTuple):
    """Of cells: how many, radius, how drawn out, size of the nucleus in it, and brightness of the three dyes."""

    cells: float
    radius: float
    stretch: float
    nucleus: float
    dyes: NDArray[np.float64]


_TYPES = {
    "HEPG2": _Look(22, 0.15, 1.1, 0.55, np.array((1.0, 0.9, 0.7))),
    "HUVEC": _Look(14, 0.19, 1.5, 0.42, np.array((0.8, 1.0, 0.9))),
    "RPE": _Look(17, 0.17, 1.25, 0.48, np.array((0.9, 0.8, 1.0))),
    "U2OS": _Look(15, 0.18, 1.3, 0.50, np.array((1.0, 0.8, 0.8))),
}


class _Batch(NamedTuple):
    """Of an experiment: gain and background of each dye."""

    gain: NDArray[np.float64]
    background: NDArray[np.float64]


def write(folder: Path, order: Order) -> None:
    """``metadata.csv`` and ``images/EXPERIMENT/PlateP/WELL_sS.png``."""
    rows = _rows(order)
    effects = _effects(order.rng("sirnas"))
    batches = {row["experiment"]: _batch(order.rng("batch", row["experiment"]), row["dataset"]) for row in rows}
    side = order.side or 256

    def draw(number: int, path: Path) -> None:
        row = rows[number]
        look = _changed(_TYPES[row["cell_type"]], effects[row["sirna_id"]])
        write_picture(path, _cells(look, batches[row["experiment"]], order.rng("site", number), side))

    paths = [
        folder / "images" / row["experiment"] / f"Plate{row['plate']}" / f"{row['well']}_s{row['site']}.png"
        for row in rows
    ]
    write_all("sites of rxrx1", paths, draw)
    write_table(folder / "metadata.csv", {name: [row[name] for row in rows] for name in rows[0]})


def _rows(order: Order) -> list[dict[str, Any]]:
    """On each plate of each experiment every siRNA once, in a well by chance; two sites a well."""
    rng = order.rng("plates")
    plates = max(round(order.rows / (_COUNT * _SIRNAS * len(_SITES))), 1)
    wells = [f"{letter}{number:02}" for letter in "BCDEFGH" for number in range(2, 12)]
    rows = []
    for cell_type, counts in _EXPERIMENTS.items():
        number = 0
        for dataset, count in zip(("train", "val", "test"), counts, strict=True):
            for _ in range(count):
                number += 1
                experiment = f"{cell_type}-{number:02}"
                for plate in range(1, plates + 1):
                    taken = rng.choice(len(wells), _SIRNAS, replace=False)
                    rows += [
                        _row(dataset, cell_type, experiment, plate, wells[well], site, sirna)
                        for sirna, well in enumerate(taken)
                        for site in _SITES
                    ]
    return rows


def _row(dataset: str, cell_type: str, experiment: str, plate: int, well: str, site: int, sirna: int) -> dict[str, Any]:
    well_id = f"{experiment}_{plate}_{well}"
    return {
        "site_id": f"{well_id}_{site}",
        "well_id": well_id,
        "cell_type": cell_type,
        "dataset": dataset,
        "experiment": experiment,
        "plate": plate,
        "well": well,
        "site": site,
        "well_type": "treatment",
        "sirna": f"s{10_000 + sirna}",
        "sirna_id": sirna,
    }


def _effects(rng: np.random.Generator) -> list[_Look]:
    """Factors on the look of untreated cells: few or many, small or large, round or drawn out, and other dyes."""
    return [
        _Look(cells, radius, stretch, 1.0, np.exp(rng.normal(0, 0.25, 3)))
        for stretch in (0.8, 1.3)
        for radius in (0.85, 1.2)
        for cells in (0.7, 1.7)
    ]


def _changed(look: _Look, by: _Look) -> _Look:
    return _Look(
        cells=look.cells * by.cells,
        radius=look.radius * by.radius,
        stretch=look.stretch * by.stretch,
        nucleus=look.nucleus * by.nucleus,
        dyes=look.dyes * by.dyes,
    )


def _batch(rng: np.random.Generator, dataset: str) -> _Batch:
    strange = 0.12 if dataset == "train" else 0.35  # who is not trained on lies farther out
    return _Batch(gain=np.exp(rng.normal(0, strange, 3)), background=np.abs(rng.normal(0, 60 * strange, 3)))


def _cells(look: _Look, batch: _Batch, rng: np.random.Generator, side: int) -> NDArray[np.uint8]:
    """Red the body of the cell, green a rim of threads within it, blue the nucleus."""
    pen = Pen(np.zeros((side, side, 3), np.uint8))
    red, green, blue = look.dyes * rng.normal(1, 0.05, 3)
    for _ in range(max(rng.poisson(look.cells), 3)):
        x, y = rng.uniform(-1, 1, 2)
        radius = look.radius * rng.normal(1, 0.12)
        turn = rng.uniform(0, 180)
        long, short = radius * look.stretch, radius / look.stretch
        pen.ellipse(x, y, long, short, (90.0 * red, 30.0 * green, 0.0), degrees=turn)
        pen.ellipse(x, y, 0.8 * long, 0.8 * short, (60.0 * red, 110.0 * green, 0.0), degrees=turn)
        inner = look.nucleus * radius
        pen.ellipse(x, y, inner, inner * 0.85, (30.0 * red, 40.0 * green, 150.0 * blue), degrees=turn)
    pen.tone(gain=batch.gain, lift=batch.background)
    return pen.picture


_ROWS = _COUNT * _SIRNAS * len(_SITES) * 2  # two plates of each experiment
MINIATURE = Miniature(
    folder="rxrx1_v1.0", release="RELEASE_v1.0.txt", rows=_ROWS, least=_ROWS // 2, write=write, side=256
)
