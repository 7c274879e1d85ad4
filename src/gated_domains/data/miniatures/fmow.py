"""A miniature of FMoW: land use seen from above, over fifteen years and five regions; eight of the 62 categories.

Years before 2013 are trained on, 2013 to 2015 are for validation, 2016 and 2017 for test. Later years have other
sensors: sharper, with another tint, more haze and more tilted views. Regions have soils and plants of their own;
Africa and Oceania are rare among the rows trained on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.miniatures.drawing import Pen, as_bytes, field
from gated_domains.data.miniatures.files import write_all, write_picture, write_table
from gated_domains.data.miniatures.fmow_shapes import SHAPES
from gated_domains.data.miniatures.miniature import Miniature, Order

# Region: some countries (code, latitude, longitude), the colour of bare ground and that of plants.
_REGIONS = {
    "Asia": ((("CHN", 35, 105), ("IND", 21, 78), ("JPN", 36, 138)), (150, 128, 100), (88, 112, 70)),
    "Europe": ((("FRA", 46, 2), ("DEU", 51, 10), ("ITA", 43, 12)), (126, 116, 98), (70, 104, 58)),
    "Africa": ((("KEN", 1, 38), ("NGA", 9, 8), ("EGY", 26, 30)), (188, 138, 92), (140, 128, 74)),
    "Americas": ((("USA", 39, -98), ("BRA", -10, -53), ("MEX", 23, -102)), (140, 118, 88), (78, 118, 60)),
    "Oceania": ((("AUS", -25, 134), ("NZL", -41, 174)), (176, 112, 78), (112, 120, 70)),
}
_OTHER = ("XKX", 42, 21)  # a code that the list of countries does not have
# Part: share of rows, the publisher's name for it, first and last year, and shares of the regions and of no region.
_PARTS = (
    (0.48, "train", 2002, 2012, (0.28, 0.32, 0.06, 0.26, 0.06, 0.02)),
    (0.11, "val", 2002, 2012, (0.25, 0.29, 0.1, 0.24, 0.1, 0.02)),
    (0.11, "test", 2002, 2012, (0.25, 0.29, 0.1, 0.24, 0.1, 0.02)),
    (0.13, "val", 2013, 2015, (0.2, 0.2, 0.2, 0.2, 0.18, 0.02)),
    (0.13, "test", 2016, 2017, (0.2, 0.2, 0.2, 0.2, 0.18, 0.02)),
    (0.02, "train", 2013, 2017, (0.2, 0.2, 0.2, 0.2, 0.18, 0.02)),  # too late to be trained on, in no split
    (0.02, "seq", 2002, 2017, (0.2, 0.2, 0.2, 0.2, 0.18, 0.02)),  # kept back by the publisher, without pictures
)


class _Row(NamedTuple):
    """A picture: the publisher's name for its part, and what it shows when and where."""

    split: str
    year: int
    region: str
    category: str


def write(folder: Path, order: Order) -> None:
    """``rgb_metadata.csv``, ``country_code_mapping.csv`` and ``images/rgb_img_ROW.png``."""
    rng = order.rng("sites")
    rows = _rows(order.rows, rng)
    kept = [number for number, row in enumerate(rows) if row.split != "seq"]
    side = order.side or 224

    def draw(place: int, path: Path) -> None:
        write_picture(path, _site(rows[kept[place]], order.rng("site", kept[place]), side))

    write_all("sites of fmow", [folder / "images" / f"rgb_img_{number}.png" for number in kept], draw)
    write_table(folder / "rgb_metadata.csv", _metadata(rows, rng))
    countries = [(code, name) for name, (among, _, _) in _REGIONS.items() for code, _, _ in among]
    write_table(
        folder / "country_code_mapping.csv",
        {
            "name": [code for code, _ in countries],
            "alpha-3": [code for code, _ in countries],
            "region": [name for _, name in countries],
        },
    )


def _rows(count: int, rng: np.random.Generator) -> list[_Row]:
    """In random order. Within a part categories and regions come in turn, so that none is left out."""
    rows = []
    for share, split, first, last, regions in _PARTS:
        size = round(count * share)
        ends = np.round(np.cumsum(regions) * size)
        place = np.searchsorted(ends, np.arange(size), side="right")
        years = rng.integers(first, last + 1, size).tolist()
        rows += [
            _Row(split, years[row], [*_REGIONS, "Other"][place[row]], [*SHAPES][row % len(SHAPES)])
            for row in range(size)
        ]
    return [rows[row] for row in rng.permutation(len(rows))]


def _metadata(rows: list[_Row], rng: np.random.Generator) -> dict[str, list[Any]]:
    among = [_REGIONS[row.region][0] if row.region in _REGIONS else (_OTHER,) for row in rows]
    places = [countries[rng.integers(len(countries))] for countries in among]
    names = [f"{row.category}_{number}" for number, row in enumerate(rows)]
    days = rng.integers(365, size=len(rows)).tolist()
    return {
        "split": [row.split for row in rows],
        "img_filename": [f"{name}_rgb.jpg" for name in names],
        "img_path": [
            f"{row.split}/{row.category}/{name}/{name}_rgb.jpg" for row, name in zip(rows, names, strict=True)
        ],
        "spatial_reference": ["GEOGCS"] * len(rows),
        "epsg": [4326] * len(rows),
        "category": [row.category for row in rows],
        "visible": [True] * len(rows),
        "img_width": [224] * len(rows),
        "img_height": [224] * len(rows),
        "country_code": [code for code, _, _ in places],
        "cloud_cover": rng.integers(0, 20, len(rows)).tolist(),
        "timestamp": [
            f"{np.datetime64(f'{row.year}-01-01') + day}T10:{number % 60:02}:00Z"
            for number, (row, day) in enumerate(zip(rows, days, strict=True))
        ],
        "lat": [round(latitude + float(rng.normal(0, 2)), 5) for _, latitude, _ in places],
        "lon": [round(longitude + float(rng.normal(0, 2)), 5) for _, _, longitude in places],
        "region": [row.region for row in rows],
    }


def _site(row: _Row, rng: np.random.Generator, side: int) -> NDArray[np.uint8]:
    """Ground, what stands on it, and the sensor of the year."""
    _, bare, plants = _REGIONS.get(row.region, _REGIONS["Europe"])
    cover = np.clip(np.rint(field(rng, 5, height=side, width=side)) + 2, 0, 4).astype(np.int64)
    mixed = as_bytes(np.linspace(bare, plants, 5))
    pen = Pen(mixed[cover])
    late = min(max((row.year - 2012) / 3, 0), 1)
    pen.place(
        *rng.uniform(-0.15, 0.15, 2),
        scale=rng.uniform(0.7, 1.0) * (1 - 0.25 * late * rng.random()),
        degrees=rng.uniform(0, 40 + 140 * late),
    )
    SHAPES[row.category](pen, rng)
    haze = 70 * late * rng.random() + 10 * rng.random()
    tint = 1 + late * np.array((0.12, -0.06, -0.22))
    pen.tone(gain=tint * (1 - haze / 255) * rng.uniform(0.85, 1.1), lift=haze)
    return pen.picture


MINIATURE = Miniature(folder="fmow_v1.1", release="RELEASE_v1.1.txt", rows=1000, least=400, write=write, side=224)
