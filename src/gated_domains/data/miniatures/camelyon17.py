"""A miniature of Camelyon17: patches of lymph nodes, dyed in five hospitals, with tumour cells in the middle or not.

Tissue is drawn as amounts of two dyes, haematoxylin in nuclei and eosin around them; light is absorbed as
``exp(-(h * H + e * E))``. Hospitals differ in how strong their dyes are, in their tints and in how crowded healthy
tissue is; hospital 2, that of the test split, lies farthest from those that are trained on.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.miniatures.drawing import Pen, as_bytes, colour, field, steps
from gated_domains.data.miniatures.files import write_all, write_picture, write_table
from gated_domains.data.miniatures.miniature import Miniature, Order

_SLIDES = 10  # of a hospital, as in the original
_ID_VAL = 5  # every so many rows of a slide


class _Hospital(NamedTuple):
    """Strength of both dyes, their tints (absorption of red, green, blue), haze; and of healthy tissue, how many
    nuclei there are, and how often some of them lie in a clump."""

    h: float
    e: float
    h_tint: tuple[float, float, float]
    e_tint: tuple[float, float, float]
    haze: float
    crowd: int
    clumps: float


# 1 is the validation split and 2 the test split, by the rule of the original.
_HOSPITALS = (
    _Hospital(1.00, 0.50, (0.65, 0.70, 0.29), (0.07, 0.99, 0.11), 0.02, 14, 0.3),
    _Hospital(0.88, 0.64, (0.60, 0.74, 0.30), (0.09, 0.95, 0.17), 0.05, 17, 0.35),
    _Hospital(0.82, 0.74, (0.69, 0.66, 0.24), (0.14, 0.92, 0.10), 0.08, 21, 0.45),
    _Hospital(0.90, 0.62, (0.62, 0.72, 0.31), (0.08, 0.97, 0.16), 0.00, 12, 0.3),
    _Hospital(1.15, 0.42, (0.68, 0.68, 0.27), (0.06, 0.99, 0.09), 0.04, 16, 0.3),
)


def write(folder: Path, order: Order) -> None:
    """``metadata.csv`` and ``patches/patient_PPP_node_N/patch_..._x_X_y_Y.png``."""
    each = order.rows // (len(_HOSPITALS) * _SLIDES)
    slide = np.repeat(np.arange(len(_HOSPITALS) * _SLIDES), each)
    within = np.tile(np.arange(each), len(_HOSPITALS) * _SLIDES)
    center = slide // _SLIDES
    tumor = (within + slide) % 2
    patient = [f"{2 * number:03}" for number in slide]  # twenty patients a hospital, every other one with a slide
    node = slide % 5
    x, y = 96 * (within % 8) + 3000, 96 * (within // 8) + 2000 + 96 * slide
    write_table(
        folder / "metadata.csv",
        {
            "patient": patient,
            "node": node,
            "x_coord": x,
            "y_coord": y,
            "tumor": tumor,
            "slide": slide,
            "center": center,
            "split": (within // 2 % _ID_VAL == _ID_VAL - 1).astype(int),  # pairs, so that both classes are there
        },
        index=True,
    )
    paths = [
        folder / "patches" / f"patient_{p}_node_{n}" / f"patch_patient_{p}_node_{n}_x_{x_}_y_{y_}.png"
        for p, n, x_, y_ in zip(patient, node, x, y, strict=True)
    ]
    strengths = order.rng("slides").normal(1, 0.06, len(_HOSPITALS) * _SLIDES)
    side = order.side or 96

    def draw(row: int, path: Path) -> None:
        hospital = _HOSPITALS[center[row]]
        rng = order.rng("patch", row)
        write_picture(path, _patch(hospital, bool(tumor[row]), strengths[slide[row]], rng, side))

    write_all("patches of camelyon17", paths, draw)


def _patch(hospital: _Hospital, tumor: bool, strength: float, rng: np.random.Generator, side: int) -> NDArray[np.uint8]:
    """Small round nuclei anywhere; in the middle large uneven ones (tumour), a clump of small ones, or nothing."""
    pen = Pen(np.zeros((side, side), np.uint8))
    scattered = rng.uniform(-1.05, 1.05, (rng.poisson(hospital.crowd), 2))
    clump = rng.normal(0, 0.2, (rng.integers(8, 16) if not tumor and rng.random() < hospital.clumps else 0, 2))
    for x, y in np.concatenate([scattered, clump]).tolist():
        radius = rng.uniform(0.045, 0.08)
        pen.ellipse(x, y, radius, radius * rng.uniform(0.8, 1), 130.0 + 40.0 * rng.integers(2))
    for x, y in rng.normal(0, 0.22, (rng.integers(5, 13) if tumor else 0, 2)).tolist():
        a, b = rng.uniform(0.08, 0.16, 2)
        pen.ellipse(x, y, a, b, 130.0 + 40.0 * rng.integers(3), degrees=rng.uniform(0, 180))
    h = pen.picture / np.float32(200) + np.float32(0.08)
    e = np.clip(1 + 0.25 * steps(field(rng, 6, height=side, width=side), 0.5), 0.2, 2)
    dyed = h[..., None] * colour(*hospital.h_tint) * np.float32(hospital.h * strength)
    dyed += e[..., None] * colour(*hospital.e_tint) * np.float32(hospital.e * strength)
    return as_bytes(250 * np.exp(-dyed - np.float32(hospital.haze)))


MINIATURE = Miniature(folder="camelyon17_v1.0", release="RELEASE_v1.0.txt", rows=1000, least=500, write=write, side=96)
