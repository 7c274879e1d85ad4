"""What matplotlib draws is the chart, letter by letter and the same every time; files are written whole."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from made_charts import HOSTILE, a_chart, dots, everything
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from gated_domains.reports.charts import Axis, Chart, Heat, Panel, Rule
from gated_domains.reports.charts.drawn import figure, file_name, write_chart


def rendered(chart: Chart) -> Figure:
    drawing = figure(chart)
    FigureCanvasAgg(drawing).draw()
    return drawing


def points(drawing: Figure, place: int = 0) -> list[list[float]]:
    found = [drawn for drawn in drawing.axes[place].collections if isinstance(drawn, PathCollection)]
    return np.concatenate([drawn.get_offsets() for drawn in found]).tolist()


def test_every_kind_of_chart_is_drawn_with_all_its_names() -> None:
    drawing = rendered(everything())
    assert len(drawing.axes) == 7
    assert drawing.axes[0].get_title(loc="left").replace(r"\$", "$") == HOSTILE


def test_points_lines_and_bars_are_those_of_the_marks() -> None:
    drawing = rendered(
        a_chart(
            Panel(marks=(dots(),)),
            Panel(marks=(dots(form="line", low=(2.0, 3.0), high=(4.0, 5.0)),)),
            Panel(x=Axis(categories=("a", "b")), marks=(dots(x=(0.0, 1.0), form="bars"),)),
            Panel(y=Axis(categories=("a", "b")), marks=(dots(x=(5.0, 6.0), y=(0.0, 1.0), form="bars"),)),
        )
    )
    assert points(drawing) == [[1.0, 3.0], [2.0, 4.0]]
    assert drawing.axes[1].lines[0].get_xydata().tolist() == [[1.0, 3.0], [2.0, 4.0]]
    band = drawing.axes[1].collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (2.0, 5.0)
    assert [bar.get_height() for bar in drawing.axes[2].patches] == [3.0, 4.0]
    assert [bar.get_width() for bar in drawing.axes[3].patches] == [5.0, 6.0]


def test_the_first_category_stands_on_top_and_an_interval_goes_from_low_to_high() -> None:
    marks = dots(y=(0.0, 1.0), low=(0.5, 1.0), high=(1.5, math.nan), interval="x")
    axis = rendered(a_chart(Panel(y=Axis(categories=("first", "second")), marks=(marks,)))).axes[0]
    assert [text.get_text() for text in axis.get_yticklabels()] == ["first", "second"]
    assert axis.get_ylim() == (1.5, -0.5)
    assert axis.collections[0].get_segments()[0].tolist() == [[0.5, 0.0], [1.5, 0.0]]


def test_a_heat_map_shows_its_values_marks_its_rows_and_leaves_gaps() -> None:
    heat = Heat(rows=("a", "b"), columns=("x", "y"), values=((1.0, math.nan), (3.0, 2.0)), digits=1, bold_rows=("b",))
    axis = rendered(a_chart(Panel(heat=heat))).axes[0]
    shown = axis.images[0].get_array()
    assert shown.mask.tolist() == [[False, True], [False, False]]
    assert [text.get_text() for text in axis.texts] == ["1.0", "", "3.0", "2.0"]
    assert [text.get_fontweight() for text in axis.get_yticklabels()] == ["normal", "bold"]


def test_rows_and_categories_of_one_name_lie_at_one_height() -> None:
    names = ("a", "b", "c")
    heat = Heat(rows=names, columns=("x",), values=((1.0,), (2.0,), (3.0,)))
    side = Panel(y=Axis(categories=names), marks=(dots(form="bars", y=(0.0, 2.0)),))
    drawing = rendered(a_chart(Panel(heat=heat), side, columns=2))
    assert drawing.axes[0].get_ylim() == drawing.axes[1].get_ylim()
    assert [text.get_text() for text in drawing.axes[1].get_yticklabels()] == ["", "", ""]


def test_the_legend_names_each_once_and_is_left_out_for_one_name() -> None:
    several = rendered(a_chart(Panel(marks=(dots(), dots(), dots("a $ b"), dots("quiet", legend=False)))))
    (legend,) = several.legends
    assert [text.get_text() for text in legend.get_texts()] == ["GDU", r"a \$ b"]
    assert not rendered(a_chart(Panel(marks=(dots(),)))).legends


def test_rules_are_drawn_with_their_words() -> None:
    rules = (Rule(along="x", at=3.5, label="half"), Rule(along="diagonal"))
    axis = rendered(a_chart(Panel(marks=(dots(x=(3.0, 4.0)),), rules=rules))).axes[0]
    assert set(axis.lines[0].get_ydata()) == {3.5}
    assert axis.lines[1].get_xydata().tolist() == [[3.0, 3.0], [4.0, 4.0]]
    assert [text.get_text().strip() for text in axis.texts] == ["half"]


def test_files_of_every_kind_are_written_with_the_numbers(tmp_path: Path) -> None:
    paths = write_chart(everything(), tmp_path)
    assert [path.name for path in paths] == ["made.svg", "made.png", "made.pdf", "made.csv"]
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    with (tmp_path / "made.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["y"] for line in lines if line["panel"] == "line"] == ["3.0", "4.0"]
    assert HOSTILE in {line["name"] for line in lines}


def test_the_same_chart_gives_the_same_file(tmp_path: Path) -> None:
    chart = a_chart(*everything().panels[:3])
    for folder in ("one", "other"):
        write_chart(chart, tmp_path / folder)
    for kind in ("svg", "png", "pdf", "csv"):
        assert (tmp_path / "one" / f"made.{kind}").read_bytes() == (tmp_path / "other" / f"made.{kind}").read_bytes()
    assert b"<dc:date>" not in (tmp_path / "one" / "made.svg").read_bytes()


@pytest.mark.parametrize("key", ["gates-../../etc", "a/b", "<script>", "x" * 300, "straße", "a b"])
def test_no_key_leads_out_of_the_folder(tmp_path: Path, key: str) -> None:
    paths = write_chart(a_chart(Panel(marks=(dots(),)), key=key), tmp_path, kinds=("svg",))
    assert {path.resolve().parent for path in paths} == {tmp_path.resolve()}


def test_keys_that_differ_have_files_that_differ() -> None:
    names = {file_name(key) for key in ("a b", "a/b", "a_b", "A_b")}
    assert len(names) == 4
    assert file_name("worst_mean") == "worst_mean"


def test_an_empty_chart_is_drawn(tmp_path: Path) -> None:
    assert write_chart(a_chart(), tmp_path, kinds=("png",))
    nothing = dots(x=(), y=(), low=(), high=())
    assert write_chart(a_chart(Panel(marks=(nothing,)), key="b"), tmp_path, kinds=("png",))


def test_marks_that_look_alike_are_drawn_at_once_and_none_is_lost() -> None:
    several = (dots(domain="a"), dots(x=(7.0,), y=(8.0,), domain="b"), dots("ERM", x=(9.0,), y=(9.0,), marker="s"))
    drawing = rendered(a_chart(Panel(marks=several)))
    assert points(drawing) == [[1.0, 3.0], [2.0, 4.0], [7.0, 8.0], [9.0, 9.0]]
    assert len(drawing.axes[0].collections) == 2
