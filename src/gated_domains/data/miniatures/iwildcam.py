"""A miniature of iWildCam: photographs by camera traps, of eight kinds (the first is that nothing is there).

Each camera has a scene of its own (sky, ground, trees, colours) that all its pictures show, by day in colour and by
night in grey. It sees some animals more often than others. The cameras of the validation and test splits are not
among those trained on; ``id_val`` and ``id_test`` are other days of those that are.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.miniatures.drawing import Pen, as_bytes, colour, field
from gated_domains.data.miniatures.files import write_all, write_picture, write_table
from gated_domains.data.miniatures.iwildcam_animals import ANIMALS
from gated_domains.data.miniatures.miniature import Miniature, Order

_CAMERAS = {"train": 14, "val": 5, "test": 6}
# Split: share of rows, whose cameras, and the first of its days.
_PARTS = {
    "train": (0.5, "train", 0),
    "id_val": (0.12, "train", 200),
    "id_test": (0.12, "train", 240),
    "val": (0.12, "val", 0),
    "test": (0.14, "test", 0),
}
_FREQUENCY = np.array((0.26, 0.18, 0.12, 0.12, 0.1, 0.09, 0.07, 0.06))  # of the kinds, over all cameras
_EACH = 2  # sequences of every kind in every split, at least
_FRAMES = 3  # pictures of a sequence, at most


class _Row(NamedTuple):
    """A picture, and when which camera took it."""

    split: str
    camera: int
    kind: int
    day: int
    hour: int
    sequence: int

    @property
    def night(self) -> bool:
        return not 5 <= self.hour < 21


class _Camera(NamedTuple):
    """What a camera always sees, and the tint that its place gives to fur."""

    scene: NDArray[np.uint8]
    fur: NDArray[np.float32]


def write(folder: Path, order: Order) -> None:
    """``metadata.csv``, ``categories.csv`` and ``train/NAME.jpg``, where the pictures of all splits lie."""
    rows = _rows(order.rows, order.rng("rows"))
    names = [order.rng("name", number).bytes(8).hex() for number in range(len(rows))]
    width = order.side or 256
    cameras = [
        _camera(order.rng("camera", number), width, far=number >= _CAMERAS["train"])
        for number in range(sum(_CAMERAS.values()))
    ]
    lamp = _lamp(width)

    def draw(number: int, path: Path) -> None:
        row = rows[number]
        write_picture(path, _picture(cameras[row.camera], row, order.rng("picture", number), lamp))

    write_all("pictures of iwildcam", [folder / "train" / f"{name}.jpg" for name in names], draw)
    write_table(
        folder / "metadata.csv",
        {
            "split": [row.split for row in rows],
            "location_remapped": [row.camera for row in rows],
            "location": [7 * row.camera + 3 for row in rows],
            "sequence_remapped": [row.sequence for row in rows],
            "seq_id": [f"sequence-{row.sequence:04}" for row in rows],
            "y": [row.kind for row in rows],
            "category_id": [11 * row.kind for row in rows],
            "datetime": [
                f"{np.datetime64('2013-01-01') + row.day} {row.hour:02}:{number % 60:02}:00.000"
                for number, row in enumerate(rows)
            ],
            "filename": [f"{name}.jpg" for name in names],
            "image_id": names,
        },
        index=True,
    )
    kinds = range(len(ANIMALS))
    write_table(
        folder / "categories.csv", {"y": kinds, "category_id": [11 * kind for kind in kinds], "name": [*ANIMALS]}
    )


def _rows(count: int, rng: np.random.Generator) -> list[_Row]:
    """In sequences of a few frames. Every kind is in every split, and every camera of a split too."""
    ends = dict(zip(_CAMERAS, np.cumsum(list(_CAMERAS.values())).tolist(), strict=True))
    often = rng.dirichlet(_FREQUENCY * 4, sum(_CAMERAS.values())) * 0.7 + _FREQUENCY * 0.3
    rows: list[_Row] = []
    sequence = 0
    for split, (share, whose, first) in _PARTS.items():
        cameras = range(ends[whose] - _CAMERAS[whose], ends[whose])
        size, start = round(count * share), len(rows)
        due = [kind for kind in range(len(ANIMALS)) for _ in range(_EACH)]
        while len(rows) - start < size:
            camera = cameras[sequence % len(cameras)]
            kind = due.pop() if due else int(rng.choice(len(ANIMALS), p=often[camera]))
            day, hour = first + int(rng.integers(40)), int(rng.integers(24))
            frames = min(int(rng.integers(1, _FRAMES + 1)), size - (len(rows) - start))
            rows += [_Row(split, camera, kind, day, hour, sequence)] * frames
            sequence += 1
    return [rows[number] for number in rng.permutation(len(rows))]


def _camera(rng: np.random.Generator, width: int, *, far: bool) -> _Camera:
    """One camera's scene. Those that are not trained on hang far away, where ground and light vary more."""
    height = width * 3 // 4
    warmth = rng.uniform(-40, 70) if far else rng.uniform(0, 30)
    sky = rng.uniform(110, 210) + colour(warmth / 2, 0.0, -warmth / 2) + rng.normal(0, 8, 3)
    ground = (
        (rng.uniform(30, 180) if far else rng.uniform(80, 140))
        + colour(warmth, rng.uniform(-5, 30), -warmth)
        + rng.normal(0, 8, 3)
    )
    horizon = rng.uniform(-0.5, 0.1)
    pen = Pen(as_bytes(sky + np.zeros((height, width, 3), np.float32)))
    pen.box(-2.0, horizon, 2.0, 1.1, ground)
    for place, thick, shade in rng.uniform((-1.3, 0.03, 0.3), (1.3, 0.14, 0.8), (rng.integers(2, 8), 3)):
        pen.box(place, -1.1, place + thick, horizon + 0.6 * shade, ground * shade)
    relief = field(rng, 12, height=height, width=width)[..., None]
    fur = rng.uniform(35, 110) + colour(15.0, 0.0, -15.0) + rng.normal(0, 8, 3)
    return _Camera(as_bytes(pen.picture + 9 * relief), fur.astype(np.float32))


def _lamp(width: int) -> NDArray[np.float32]:
    """How bright the lamp of a camera makes a night, (height, width): less towards the corners."""
    across, down = np.linspace(-1, 1, width), np.linspace(-1, 1, width * 3 // 4)
    return (0.77 - 0.4 * np.hypot(across, down[:, None])).astype(np.float32)


def _picture(camera: _Camera, row: _Row, rng: np.random.Generator, lamp: NDArray[np.float32]) -> NDArray[np.uint8]:
    pen = Pen(camera.scene)
    animal = [*ANIMALS.values()][row.kind]
    if animal is not None:
        x, y = rng.uniform((-0.4, 0.1), (0.4, 0.3))
        pen.place(x, y, scale=rng.uniform(0.7, 1.05), mirrored=bool(rng.integers(2)))
        animal.draw(pen, (0.65 * colour(*animal.fur) + 0.35 * camera.fur) * np.float32(rng.uniform(0.85, 1.15)))
    pen.tone(gain=rng.uniform(0.75, 1.15))
    if not row.night:
        return pen.picture
    grey = pen.picture.mean(axis=2, dtype=np.float32) * lamp
    return np.repeat(as_bytes(grey)[..., None], 3, axis=2)


MINIATURE = Miniature(folder="iwildcam_v2.0", release="RELEASE_v2.0.txt", rows=900, least=400, write=write, side=256)
