"""A miniature of PovertyMap: villages and towns of 23 countries seen in eight bands, and how wealthy they are.

The wealthier a place, the more of it is built, the brighter its roofs and the more light it gives at night. Countries
differ in the haze and light they are seen in, in their soil and plants, and in how bright their nights are; in each of
the five folds two groups of countries are held out.

The ``wilds`` class sets 2,000 rows of the countries trained on aside, whatever there is: some 3,800 rows are needed
for a few hundred to train on in every fold. So many of the original's 224 pixels a side would take 40 MB and most of a
minute; places are 64 pixels wide unless ``side`` says otherwise, in cells of one colour, and take about 1 kB each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.miniatures.files import write_all, write_table
from gated_domains.data.miniatures.miniature import Miniature, Order

# By group: held out together in one of the folds A to E, as the ``wilds`` class has it.
_GROUPS = (
    ("angola", "cote_d_ivoire", "ethiopia", "mali", "rwanda"),
    ("benin", "burkina_faso", "guinea", "sierra_leone", "tanzania"),
    ("cameroon", "ghana", "malawi", "zimbabwe"),
    ("democratic_republic_of_congo", "mozambique", "nigeria", "togo", "uganda"),
    ("kenya", "lesotho", "senegal", "zambia"),
)
_SET_ASIDE = 2_000  # rows of the three groups trained on
_BANDS = 8  # blue, green, red, two of short-wave infrared, temperature, near infrared, lights at night
_CELLS = 16
_SIDE = 64
_FIELDS, _ROOF = 3, 3  # kinds of field, and the number of the kind "roof"


def write(folder: Path, order: Order) -> None:
    """``dhs_metadata.csv`` and ``images/landsat_poverty_img_ROW.npz``, each with an array ``x`` (8, side, side)."""
    rng = order.rng("places")
    each = order.rows // len(_GROUPS)
    country = np.concatenate([np.array(group)[np.arange(each) % len(group)] for group in _GROUPS])
    country = country[rng.permutation(len(country))]
    names = sorted({name for group in _GROUPS for name in group})
    number = np.searchsorted(names, country)
    urban = rng.random(len(country)) < 0.4
    level = order.rng("wealth of countries").normal(0, 0.25, len(names))
    wealth = level[number] + np.where(urban, 0.6, -0.4) + rng.normal(0, 0.55, len(country))
    year = rng.integers(2009, 2017, len(country))
    seen = _Countries(order.rng("countries"), len(names))
    lights = np.zeros(len(country))
    side = order.side or _SIDE
    across = np.arange(side) * _CELLS // side
    paths = [folder / "images" / f"landsat_poverty_img_{row}.npz" for row in range(len(country))]

    def draw(row: int, path: Path) -> None:
        picture = _place(wealth[row], bool(urban[row]), int(number[row]), seen, order.rng("place", row))
        lights[row] = picture[-1].mean()
        np.savez_compressed(path, x=picture[:, across][:, :, across])

    write_all("places of poverty", paths, draw)
    write_table(
        folder / "dhs_metadata.csv",
        {
            "lat": np.round(-20 + 35 * rng.random(len(country)), 5),
            "lon": np.round(-15 + 50 * rng.random(len(country)), 5),
            "wealthpooled": np.round(wealth, 6),
            "country": country.tolist(),
            "year": year,
            "urban": urban,
            "nl_mean": np.round(lights, 6),
            "nl_center": np.round(lights * 1.5, 6),
            "households": rng.integers(10, 40, len(country)),
        },
    )


class _Countries:
    """How each country is seen: colours of three fields and of roofs (countries, 4, bands), and light and haze."""

    def __init__(self, rng: np.random.Generator, count: int) -> None:
        common = rng.normal(0, 0.5, (1, _FIELDS + 1, _BANDS))
        common[:, _ROOF] = (1.2, 1.1, 1.0, 0.6, 0.8, 0.9, -0.8, 0.0)
        common[:, :_FIELDS, -1] = -0.4
        own = rng.normal(0, 0.3, (count, _FIELDS + 1, _BANDS))
        own[..., -1] = 0
        self.colours = common + own
        self.gain = np.exp(rng.normal(0, 0.25, (count, 1, _BANDS)))
        self.haze = rng.normal(0, 0.4, (count, 1, _BANDS))


def _place(wealth: float, urban: bool, country: int, seen: _Countries, rng: np.random.Generator) -> NDArray[np.float32]:
    """(bands, cells, cells): fields in strips, and roofs in the middle that show what the place is worth."""
    kinds = np.repeat(rng.integers(_FIELDS, size=(_CELLS, 1)), _CELLS, axis=1)
    reach = slice(4, 12) if urban else slice(5, 11)
    built = 1 / (1 + np.exp(-(wealth - 0.2 + rng.normal(0, 0.35))))
    middle = kinds[reach, reach]
    kinds[reach, reach] = np.where(rng.random(middle.shape) < 0.15 + 0.7 * built, _ROOF, middle)
    colours = seen.colours[country].copy()
    colours[_ROOF, :3] += 0.5 * (wealth + rng.normal(0, 0.3))
    colours[_ROOF, -1] += 0.9 * (wealth + rng.normal(0, 0.5)) + (0.6 if urban else 0)
    colours = colours * seen.gain[country] + seen.haze[country] + rng.normal(0, 0.08, (1, _BANDS))
    # Steps of 1/16: exact in half precision too, and cheap to pack.
    return np.ascontiguousarray(np.rint(colours * 16)[kinds].transpose(2, 0, 1) / 16, dtype=np.float32)


_ROWS = 3_850  # three fifths of them, less those set aside, are 310 to train on
MINIATURE = Miniature(
    folder="poverty_v1.1",
    release="RELEASE_v1.1.txt",
    rows=_ROWS,
    least=(_SET_ASIDE + 100) * 5 // 3,
    write=write,
    side=_SIDE,
)
