"""The figures of the ablations on disk: pictures, numbers, words, and a page of all that were drawn."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from gated_domains.data.errors import written_whole
from gated_domains.reports.ablations.setting import Found, Setting
from gated_domains.reports.charts.chart import Chart
from gated_domains.reports.charts.drawn import write_chart
from gated_domains.reports.renderers import escaped

PAGE = "ablations.md"


def write_figure_of(
    chart: Chart, found: Found, folder: Path, *, words: Sequence[str] = (), notes: Sequence[str] = ()
) -> list[Path]:
    """Write a chart, its numbers (``KEY.csv``), every run behind it (``KEY-runs.csv``) and its words (``KEY.md``)."""
    written = write_chart(chart, folder)
    lines = [
        f"## {escaped(chart.title)}",
        "",
        f"![{escaped(chart.title)}]({chart.key}.png)",
        "",
        escaped(chart.counted),
    ]
    if words or notes:
        lines += ["", *(f"- {escaped(line)}" for line in (*words, *notes))]
    return [
        *written,
        _write(folder / f"{chart.key}-runs.csv", runs_csv(found)),
        _write(folder / f"{chart.key}.md", "\n".join(lines) + "\n"),
    ]


def write_page(folder: Path, *, about: str, order: Sequence[str]) -> list[Path]:
    """Put the words of all figures that were drawn into one page; it, and their files."""
    there = [name for name in order if (folder / f"{name}.md").is_file()]
    parts = [(folder / f"{name}.md").read_text("utf-8") for name in there]
    text = "\n".join([f"# The paper's ablations, run again\n\n{escaped(about)}\n", *parts])
    pictures = [folder / f"{name}.svg" for name in there]
    return [_write(folder / PAGE, text), *pictures]


def runs_csv(found: Found) -> str:
    """A line a run: its setting, its seed, its accuracy."""
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    names = [each.name for each in fields(Setting)]
    table.writerow([*names, "seed", "accuracy"])
    for setting, by_seed in found.scores.items():
        values = [getattr(setting, name) for name in names]
        for seed, score in sorted(by_seed.items()):
            table.writerow(["" if value is None else value for value in values] + [seed, score])
    return written.getvalue()


def _write(path: Path, text: str) -> Path:
    with written_whole(path) as draft:
        draft.write_text(text, "utf-8", newline="")
    return path
