"""What is shown of samples of every kind."""

from __future__ import annotations

import numpy as np
import pytest

from gated_domains.data.inputs import Categories, Features, Images, Numbers, Table
from gated_domains.data.text.inputs import Text
from gated_domains.data.wilds.bands import Bands
from gated_domains.insight.previews import MOST_COLUMNS, columns, pictures, texts, values


def images(*shape: int) -> Images:
    return Images(np.random.default_rng(0).integers(256, size=shape).astype(np.uint8))


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((9, 20, 20, 3), (20, 20, 3)),
        ((9, 64, 32, 3), (28, 14, 3)),
        ((9, 56, 56, 1), (28, 28, 1)),
        ((9, 40, 40, 4), (28, 28, 3)),
        ((9, 400, 3, 2), (28, 1, 1)),
    ],
)
def test_pictures_are_small_and_keep_their_ratio(shape, wanted):
    assert pictures(images(*shape), np.arange(5), side=28).shape == (5, *wanted)


def test_a_smaller_picture_has_the_mean_colours_of_the_larger_one():
    made = images(70, 56, 56, 3)
    rows = np.array([69, 3])
    small = pictures(made, rows, side=28)
    wanted = made.read(rows).reshape(2, 28, 2, 28, 2, 3).mean(axis=(2, 4))
    assert np.abs(small - wanted).max() <= 1


def test_bands_are_drawn_from_the_third_to_the_first_and_scaled_to_bytes():
    made = np.zeros((3, 8, 4, 4), np.float32)
    made[:, 2] = np.linspace(-3, 3, 16).reshape(4, 4)
    found = pictures(Bands(made), np.arange(3), side=28)
    assert found.shape == (3, 4, 4, 3)
    assert (found[..., 0].min(), found[..., 0].max()) == (0, 255)
    assert (found[..., 1:] == 0).all()
    assert pictures(Bands(made[:, :2]), np.arange(3), side=28).shape == (3, 4, 4, 1)


def test_texts_are_cut_and_stand_in_one_line():
    made = Text(["short\n  one", "x" * 500])
    first, second = texts(made, np.array([0, 1]), np.array([10, 11]))
    assert first == "short one"
    assert len(second) == 160
    assert second.endswith("…")


def test_cells_are_what_a_person_wrote():
    made = Table(
        [
            Numbers("age", np.array([53.25, np.nan, 7.0])),
            Numbers("seen", np.array([0.0, np.nan, 19_000.0]), dates=True),
            Categories("kind", np.array([1, -1, 0], np.int32), ("a", "b")),
        ]
    )
    assert columns(made).tolist() == ["age", "seen", "kind"]
    assert values(made, np.array([2, 1, 0])).tolist() == [
        ["7", "2022-01-08", "a"], ["", "", ""], ["53.25", "1970-01-01", "b"]
    ]  # fmt: skip
    assert texts(made, np.array([0, 1]), np.array([0, 1])).tolist() == [
        "age 53.25, seen 1970-01-01, kind b", "age -, seen -, kind -"
    ]  # fmt: skip


def test_of_wide_tables_the_first_columns_are_shown():
    made = Table([Numbers(f"c{number}", np.zeros(3)) for number in range(40)])
    assert len(columns(made)) == MOST_COLUMNS
    assert values(made, np.arange(2)).shape == (2, MOST_COLUMNS)


def test_vectors_go_by_their_row_in_the_whole():
    made = Features(np.zeros((4, 3), np.float32))
    assert texts(made, np.array([1, 3]), np.array([17, 21])).tolist() == ["row 17", "row 21"]


@pytest.mark.parametrize("made", [images(3, 8, 8, 3), Features(np.zeros((3, 2), np.float32)), Text(["a", "b", "c"])])
def test_what_a_kind_of_sample_does_not_have_is_empty(made):
    rows = np.arange(3)
    assert (pictures(made, rows, side=28).size > 0) == isinstance(made, Images)
    assert (texts(made, rows, rows).size == 0) == isinstance(made, Images)
    assert columns(made).size == values(made, rows).size == 0
