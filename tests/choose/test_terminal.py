"""The curve in a terminal: what is drawn is what was computed, within the width, in letters that can be shown."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gated_domains.choose import NumBasesCurve
from gated_domains.choose.terminal import ASCII, UNICODE, Glyphs, draw_num_bases, glyphs_for

BOTH = pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])


def curve(scores: list[list[float]], *, first: int = 2, score: str = "davies_bouldin") -> NumBasesCurve:
    table = np.array(scores)
    candidates = np.arange(first, first + table.shape[1])
    return NumBasesCurve(candidates=candidates, scores=table, score=score, on="features")


def drawn(text: str, glyphs: Glyphs) -> tuple[list[str], dict[int, int]]:
    """The lines between top and floor, and the column of each M by the numbers below the floor."""
    lines = text.splitlines()
    floor = next(place for place, line in enumerate(lines) if line.lstrip().startswith(glyphs.corner))
    marks = [place for place, letter in enumerate(lines[floor]) if letter == glyphs.mark]
    marks = [place for place in marks if place > lines[floor].index(glyphs.corner)]
    return lines[:floor], dict(zip(map(int, lines[floor + 1].split()), marks, strict=True))


def letters_at(rows: list[str], column: int) -> str:
    """What stands in a column, from top to floor."""
    return "".join(row[column] if column < len(row) else " " for row in rows)


@BOTH
def test_points_stand_above_their_number_and_as_high_as_their_score(glyphs: Glyphs) -> None:
    means = [1.0, 0.4, 0.7, 0.9, 0.1]
    rows, columns = drawn(draw_num_bases(curve([means]), glyphs=glyphs), glyphs)
    marked = {m: letters_at(rows, column) for m, column in columns.items()}
    depth = {m: next(row for row, letter in enumerate(found) if letter in glyphs[:2]) for m, found in marked.items()}
    assert list(marked) == [2, 3, 4, 5, 6]
    expected = [round((1.0 - mean) / 0.9 * 12) for mean in means]
    assert all(abs(found - wanted) <= 1 for found, wanted in zip(depth.values(), expected, strict=True))
    assert sorted(depth, key=depth.__getitem__) == [2, 5, 4, 3, 6]


@BOTH
@pytest.mark.parametrize(("score", "best"), [("davies_bouldin", 3), ("silhouette", 4)])
def test_the_best_alone_has_its_mark(glyphs: Glyphs, score: str, best: int) -> None:
    rows, columns = drawn(draw_num_bases(curve([[1.0, 0.4, 1.7, 0.9]], score=score), glyphs=glyphs), glyphs)
    assert [m for m, column in columns.items() if glyphs.best in letters_at(rows, column)] == [best]
    assert "".join(rows).count(glyphs.best) == 1


@BOTH
def test_the_spread_is_drawn_from_one_standard_deviation_above_to_one_below(glyphs: Glyphs) -> None:
    rows, columns = drawn(draw_num_bases(curve([[0.0, 4.0, 5.0], [0.0, 6.0, 5.0]]), glyphs=glyphs), glyphs)
    spread, still = letters_at(rows, columns[3]), letters_at(rows, columns[4])
    # From 5 - 1.41 to 5 + 1.41 on a scale from 0 to 6.41 in twelve rows: the upper 5.3.
    assert [letter in (glyphs.spread, glyphs.mean) for letter in spread] == [True] * 6 + [False] * 6
    assert glyphs.spread not in still


@BOTH
def test_labels_stand_beside_the_scores_they_name(glyphs: Glyphs) -> None:
    rows, _ = drawn(draw_num_bases(curve([[0.0, 0.5, 1.0]]), glyphs=glyphs), glyphs)
    labels = {row: float(line.split()[0]) for row, line in enumerate(rows) if glyphs.tick in line}
    assert len(labels) >= 3
    for row, value in labels.items():
        assert abs((1.0 - value) * 12 - row) <= 1


def test_points_are_joined_without_a_gap() -> None:
    for glyphs in (UNICODE, ASCII):
        rows, columns = drawn(draw_num_bases(curve([[0.0, 1.0, 0.0]]), glyphs=glyphs), glyphs)
        for column in range(columns[2], columns[4] + 1):
            assert letters_at(rows, column).strip(), column
        for row in rows:
            assert len(row) > columns[2]


def test_one_run_has_no_spread_in_the_legend() -> None:
    assert "std" not in draw_num_bases(curve([[1.0, 2.0]]))
    assert "one run" in draw_num_bases(curve([[1.0, 2.0]]))
    assert "± 1 std" in draw_num_bases(curve([[1.0, 2.0], [1.0, 3.0]]))


def test_where_candidates_are_many_every_so_many_have_a_number() -> None:
    scores = [[float(m) for m in range(60)]]
    _, columns = drawn(draw_num_bases(curve(scores)), UNICODE)
    steps = set(np.diff(list(columns)).tolist())
    assert len(steps) == 1
    assert steps != {1}


def test_the_best_shows_where_many_share_a_column() -> None:
    scores = [1.0] * 300
    scores[150] = 0.999999
    assert UNICODE.best in "".join(drawn(draw_num_bases(curve([scores])), UNICODE)[0])


def test_ascii_is_ascii() -> None:
    text = draw_num_bases(curve([[1.0, 2.0, 1.5], [1.1, 2.5, 1.0]]), glyphs=ASCII)
    assert text.isascii()


@pytest.mark.parametrize(
    ("encoding", "glyphs"),
    [("utf-8", UNICODE), ("utf-16", UNICODE), ("ascii", ASCII), ("cp437", ASCII), (None, ASCII), ("?", ASCII)],
)
def test_the_letters_are_the_best_that_the_encoding_holds(encoding: str | None, glyphs: Glyphs) -> None:
    assert glyphs_for(encoding) == glyphs


@given(
    scores=st.lists(
        st.lists(st.floats(-1e6, 1e6) | st.floats(0, 1e-6), min_size=40, max_size=40), min_size=1, max_size=3
    ),
    used=st.integers(1, 40),
    first=st.sampled_from([2, 95]),
    width=st.integers(30, 100),
    glyphs=st.sampled_from([UNICODE, ASCII]),
)
def test_any_curve_fits_into_its_width(
    scores: list[list[float]], used: int, first: int, width: int, glyphs: Glyphs
) -> None:
    text = draw_num_bases(curve([run[:used] for run in scores], first=first), width=width, glyphs=glyphs)
    rows, columns = drawn(text, glyphs)
    assert max(map(len, text.splitlines())) <= width
    assert len(rows) == 12
    assert first in columns
    assert "".join(rows).count(glyphs.best) == 1
