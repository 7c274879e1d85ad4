"""A comparison for machines: CSV with a line a method, CSV with a line a run, JSON with everything. No rounding."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gated_domains.evaluation.statistics import Spread, spread
from gated_domains.reports.numbers import PERCENTILE, MethodNumbers, Numbers

FORMAT = 2


def methods_csv(numbers: Numbers) -> str:
    """One line per method: mean and standard deviation by hold-out, mean, worst, differences to the baseline, cost.

    Scores are as measured: an accuracy is a share, not percent. What is not known is empty.
    """
    return _csv([_method_line(row, numbers) for row in numbers.rows])


def _method_line(row: MethodNumbers, numbers: Numbers) -> dict[str, Any]:
    line: dict[str, Any] = {"method": row.method, "label": row.label, "uses_domains": row.uses_domains}
    line["oracle"] = row.oracle
    # The prefix keeps a domain called "worst" apart from the column of that name.
    for hold_out in numbers.hold_outs:
        cell = row.cells.get(hold_out)
        line |= _spread_fields(f"held out: {hold_out}", cell) | {f"held out: {hold_out}, n": cell.n if cell else 0}
    line |= _spread_fields("mean", row.mean) | _spread_fields("worst", row.worst)
    if numbers.score_by:
        line |= _spread_fields("worst_group", row.worst_group)
        line |= _spread_fields(f"group_percentile_{PERCENTILE}", row.percentile)
    line["n"] = len(row.mean_by_seed)
    return line | _tests(row) | {"best": row.best} | _cost(row)


def _tests(row: MethodNumbers) -> dict[str, Any]:
    """The differences to the baseline, on a new domain and on these domains; empty where there are none."""
    line: dict[str, Any] = {}
    for name in ("new_domain", "these_domains"):
        effect = None if row.against is None else getattr(row.against, name)
        stored = dict.fromkeys(("difference", "low", "high", "p_value", "n")) if effect is None else effect.as_json()
        line |= {f"{name}_{field}": stored[field] for field in ("difference", "low", "high", "p_value", "n")}
    found = row.against
    return line | {
        "holm_p_value": None if found is None else found.holm,
        "sign_flip_p_value": None if found is None else found.sign_flip,
        "wins": None if found is None else found.record.wins,
        "ties": None if found is None else found.record.ties,
        "losses": None if found is None else found.record.losses,
        "verdict": None if found is None else found.verdict,
        "domains_needed": None if found is None else found.domains_needed,
    }


def _spread_fields(name: str, value: Spread | None) -> dict[str, float | None]:
    separator = ", " if name.startswith("held out") else "_"
    return {name: None if value is None else value.mean, f"{name}{separator}std": None if value is None else value.std}


def _cost(row: MethodNumbers) -> dict[str, float]:
    return {
        "seconds": row.seconds,
        "parameters_trained": round(spread(run.parameters_trained for run in row.runs).mean),
        "parameters_all": round(spread(run.parameters_all for run in row.runs).mean),
    }


def runs_csv(numbers: Numbers) -> str:
    """One line a run: its score (the mean over its held-out domains), the score of each as JSON, how it went."""
    lines = [
        {
            "run": run.run,
            "method": run.method,
            "label": run.label,
            "hold_out": run.hold_out,
            "seed": run.seed,
            "score": spread(run.test.values()).mean,
            "worst": numbers.metric.worst_of(run.test.values()),
            "by_domain": json.dumps(dict(run.test), ensure_ascii=False),
            "oracle": run.oracle,
            "temperature": run.temperature,
            "validation": run.validation_overall,
            "best_epoch": run.best_epoch,
            "epochs": run.epochs,
            "stopped": run.stopped,
            "seconds": run.seconds,
            "parameters_trained": run.parameters_trained,
            "parameters_all": run.parameters_all,
        }
        for row in numbers.rows
        for run in row.runs
    ]
    return _csv(lines)


def as_json(
    numbers: Numbers, *, verdict: str, caption: Sequence[str], notes: Sequence[str], machine: str | None
) -> str:
    """Everything, as JSON text."""
    stored = {
        "format": FORMAT,
        "data": numbers.data,
        "metric": numbers.metric.name,
        "higher_is_better": numbers.metric.higher_is_better,
        "protocol": numbers.protocol,
        "selection": numbers.selection,
        "oracle": numbers.oracle,
        "score_by": list(numbers.score_by),
        "unscored": list(numbers.unscored),
        "tested": numbers.tested,
        "margin": numbers.margin,
        "unit": numbers.unit,
        "baseline": numbers.baseline.method if numbers.baseline else None,
        "hold_outs": list(numbers.hold_outs),
        "seeds": list(numbers.seeds),
        "machine": machine,
        "methods": [_method(row) for row in numbers.rows],
        "verdict": verdict.splitlines(),
        "caption": list(caption),
        "notes": list(notes),
    }
    return json.dumps(stored, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _method(row: MethodNumbers) -> dict[str, Any]:
    return {
        "method": row.method,
        "label": row.label,
        "uses_domains": row.uses_domains,
        "oracle": row.oracle,
        "hold_outs": {hold_out: asdict(cell) for hold_out, cell in row.cells.items()},
        "mean": None if row.mean is None else asdict(row.mean),
        "worst": None if row.worst is None else asdict(row.worst),
        "worst_group": None if row.worst_group is None else asdict(row.worst_group),
        f"group_percentile_{PERCENTILE}": None if row.percentile is None else asdict(row.percentile),
        "mean_by_seed": {str(seed): value for seed, value in row.mean_by_seed.items()},
        "worst_by_seed": {str(seed): value for seed, value in row.worst_by_seed.items()},
        "difference": None if row.against is None else row.against.as_json(),
        "best": row.best,
        **_cost(row),
        "runs": [run.to_json() for run in row.runs],
    }


def _csv(lines: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
