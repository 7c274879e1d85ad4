"""Tables of Digits-5 made up for tests."""

from __future__ import annotations

from typing import Any

from made_results import result

from gated_domains.reports.digits_numbers import DigitsNumbers
from gated_domains.reports.published_digits import ROWS, TARGETS
from gated_domains.reports.reproduced import Cell

Scores = dict[str, dict[str, list[float]]]


def digits_numbers(scores: Scores, *, why: dict[tuple[str, str], str] | None = None, **others: Any) -> DigitsNumbers:
    """A table of ``{row: {target: [score of seed 0, of seed 1, ...]}}``; ``why`` says what is missing in a cell."""
    targets = {name: title for name, title in TARGETS.items() if any(name in found for found in scores.values())}
    run = others.pop("run", {})
    cells = {
        (row, target): Cell(
            results=tuple(result(row, target, seed, score, **run).to_json() for seed, score in enumerate(found)),
            asked=len(found),
            why=(why or {}).get((row, target), ""),
        )
        for row, by_target in scores.items()
        for target, found in by_target.items()
    }
    rows = [row for row in ROWS if row in scores]
    return DigitsNumbers(rows=rows, targets=targets, cells=cells, machine="2 CPU cores (some CPU)", **others)
