"""Pictures of data: written whole, readable, and drawn whatever the names and numbers are."""

from __future__ import annotations

import errno
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gated_domains.data import errors
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Categories, Features, Images, Inputs, Numbers, Table
from gated_domains.data.show import contact_sheet, overview, show_data

RNG = np.random.default_rng(0)


def images(channels: int = 3, rows: int = 60) -> Images:
    return Images(RNG.integers(256, size=(rows, 10, 14, channels), dtype=np.uint8))


def table(rows: int = 60, *, missing: bool = True) -> Table:
    age = RNG.normal(size=rows)
    if missing:
        age[::3] = np.nan
    return Table(
        [Numbers("age", age), Categories("word", RNG.integers(3, size=rows).astype(np.int32), ("a", "b", "c"))]
    )


def dataset(inputs: Inputs, *, domains: int = 3, classes: int | None = 4, prefix: str = "name ") -> DomainDataset:
    rows = len(inputs)
    return DomainDataset(
        name="things",
        inputs=inputs,
        targets=RNG.normal(size=rows) if classes is None else np.arange(rows) % classes,
        class_names=None if classes is None else tuple(f"{prefix}{index}" for index in range(classes)),
        domains=RNG.integers(domains, size=rows) if domains else None,
        domain_names=tuple(f"{prefix}{index}" for index in range(domains)),
    )


def assert_is_a_picture(path: Path) -> None:
    with Image.open(path) as image:
        image.load()
        assert min(image.size) > 300
        assert np.asarray(image.convert("L")).std() > 5  # something is drawn on it


CASES = {
    "images": lambda: dataset(images()),
    "grey images": lambda: dataset(images(1)),
    "images of two channels": lambda: dataset(images(2)),
    "images with alpha": lambda: dataset(images(4)),
    "images of many classes": lambda: dataset(images(), classes=30),
    "images of many domains": lambda: dataset(images(), domains=20),
    "images without domains": lambda: dataset(images(), domains=0),
    "a single image a domain": lambda: dataset(images(rows=3), domains=3, classes=3),
    "images with a quantity": lambda: dataset(images(), classes=None),
    "a table": lambda: dataset(table()),
    "a table without gaps": lambda: dataset(table(missing=False)),
    "a table without domains": lambda: dataset(table(), domains=0),
    "features": lambda: dataset(Features(RNG.normal(size=(60, 5)))),
    "one feature": lambda: dataset(Features(RNG.normal(size=(60, 1)))),
    "constant features": lambda: dataset(Features(np.ones((60, 3)))),
    "half precision": lambda: dataset(Features(RNG.normal(size=(60, 5)).astype(np.float16))),
    "a quantity": lambda: dataset(Features(RNG.normal(size=(60, 5))), classes=None),
    "a quantity without domains": lambda: dataset(table(), classes=None, domains=0),
    "many domains": lambda: dataset(table(rows=400), domains=100),
    "many classes": lambda: dataset(table(), classes=30),
    "two rows": lambda: dataset(Features(RNG.normal(size=(2, 2))), domains=2, classes=2),
    "an empty domain": lambda: dataset(Features(RNG.normal(size=(2, 2))), domains=5, classes=None),
    "odd names": lambda: dataset(table(), prefix="_$x_{^$"),
    "odd names of images": lambda: dataset(images(), prefix="$\\frac$"),
    "names of another script": lambda: dataset(table(), prefix="日本"),
}


@pytest.mark.parametrize("case", CASES)
def test_every_kind_of_data_is_drawn_and_nobody_is_warned(tmp_path, case):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = show_data(CASES[case](), tmp_path / "picture.png")
    assert_is_a_picture(path)
    assert os.listdir(tmp_path) == ["picture.png"]


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".PNG", b"\x89PNG"), (".svg", b"<?xml"),
                                               (".pdf", b"%PDF")])  # fmt: skip
def test_the_suffix_chooses_the_format(tmp_path, suffix, start):
    path = show_data(dataset(table()), tmp_path / "new" / f"picture{suffix}")
    assert path.read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["picture", "picture.bmp", ".png", "picture.csv"])
def test_another_suffix_is_refused_before_anything_is_drawn(tmp_path, name):
    with pytest.raises(DataError, match=r"a picture is written as \.png, \.svg, \.pdf, by its suffix"):
        show_data(dataset(table()), tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_a_sheet_has_a_panel_a_domain_and_a_column_a_class():
    figure = contact_sheet(dataset(images(), domains=3, classes=4))
    shown = [axis for axis in figure.axes if axis.get_images()]
    assert [axis.get_title(loc="left").split("  ")[0] for axis in shown] == ["name 0", "name 1", "name 2"]
    assert [label.get_text() for label in shown[0].get_xticklabels()] == [f"name {index}" for index in range(4)]


def test_samples_stand_in_the_column_of_their_class():
    """Every class its own brightness."""
    targets = np.repeat([0, 1, 2], 10)
    pixels = np.full((30, 4, 4, 1), 50, np.uint8) * (targets + 1)[:, None, None, None].astype(np.uint8)
    data = DomainDataset.from_arrays(pixels, targets)
    sheet = np.asarray(contact_sheet(data).axes[0].get_images()[0].get_array())
    assert sheet.shape == (5 * 6, 3 * 6)
    for column, brightness in enumerate((50, 100, 150)):
        assert (sheet[1:5, column * 6 + 1 : column * 6 + 5] == brightness).all()


def test_the_same_seed_draws_the_same_samples():
    data = dataset(images())
    first, again, other = (
        np.asarray(contact_sheet(data, seed=seed).axes[0].get_images()[0].get_array()) for seed in (0, 0, 1)
    )
    assert (first == again).all()
    assert (first != other).any()


def test_an_overview_shows_what_is_missing_where_something_is():
    assert len(overview(dataset(table())).axes) == 3
    assert len(overview(dataset(table(missing=False))).axes) == 2


def test_of_very_many_domains_the_first_are_drawn_and_that_is_said():
    for figure in (overview(dataset(table(), domains=20)), contact_sheet(dataset(images(), domains=20))):
        assert figure.get_suptitle().endswith("the first 12 of 20 domains")


def test_a_full_disk_leaves_nothing_and_keeps_the_old_picture(tmp_path, monkeypatch):
    path = tmp_path / "picture.png"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(errors.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        show_data(dataset(table()), path)
    assert os.listdir(tmp_path) == ["picture.png"]
    assert path.read_bytes() == b"old"
