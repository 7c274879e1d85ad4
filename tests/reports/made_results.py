"""Results made up for tests of tables and pictures."""

from __future__ import annotations

from typing import Any

from gated_domains.runs.result import RunResult


def result(method: str = "erm", hold_out: str = "mnist", seed: int = 0, score: float = 0.5, **others: Any) -> RunResult:
    """One finished run; ``score`` goes to the one held-out domain unless ``test`` is given."""
    test = others.pop("test", {hold_out: score})
    settings: dict[str, Any] = {
        "run": f"{method}-{hold_out}-{seed}",
        "data": "digits",
        "label": method.upper(),
        "held_out": tuple(test),
        "sources": ("usps",),
        "metric": "accuracy",
        "higher_is_better": True,
        "validation": {"usps": 0.97},
        "validation_overall": 0.97,
        "selection": "source validation accuracy",
        "protocol": "leave one domain out",
        "best_epoch": 7,
        "epochs": 8,
        "stopped": "early",
        "seconds": 12.5,
        "parameters_trained": 72_042,
        "parameters_all": 72_042,
        "uses_domains": False,
        "notes": (),
    }
    return RunResult(method=method, hold_out=hold_out, seed=seed, test=test, **{**settings, **others})


def results(scores: dict[str, dict[str, list[float]]], **others: Any) -> list[RunResult]:
    """Runs of ``{method: {hold-out: [score of seed 0, of seed 1, ...]}}``; NaN leaves a run out."""
    return [
        result(method, hold_out, seed, score, **others)
        for method, by_hold_out in scores.items()
        for hold_out, found in by_hold_out.items()
        for seed, score in enumerate(found)
        if score == score
    ]


def many(methods: int, hold_outs: int, seeds: int, *, name: str = "hospital of somewhere {}") -> list[RunResult]:
    """A full grid, its scores all different."""
    return [
        result("erm" if method == 0 else f"method{method}", name.format(place), seed, 0.5 + 0.37 * (number % 101) / 101)
        for method in range(methods)
        for place in range(hold_outs)
        for seed in range(seeds)
        for number in [37 * method + 11 * place + 5 * seed]
    ]
