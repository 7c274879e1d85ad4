"""The main job: every method on every hold-out with every seed, as a list of recipes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gated_domains.data.errors import DataError
from gated_domains.data.splits import HoldOut
from gated_domains.experiments.recipe import DataSettings, MethodChoice, Recipe
from gated_domains.experiments.run_folder import RunFolder
from gated_domains.experiments.runner import Runner
from gated_domains.reports.pictures import draw_comparison, draw_gates
from gated_domains.reports.results import RunResult
from gated_domains.reports.table import Comparison
from gated_domains.training.settings import TrainingSettings

BASELINE = "erm"
_MOST_PICTURES = 8  # of gates; what the others would show is in their run folders


def plan(
    runner: Runner,
    splits: Sequence[HoldOut],
    methods: Sequence[MethodChoice],
    seeds: int,
    *,
    data: DataSettings,
    body: str,
    training: TrainingSettings,
    validation: float,
    split_seed: int,
) -> list[Recipe]:
    """One recipe a run, a whole seed before the next: whoever stops in between has something to look at."""
    if seeds < 1:
        raise DataError(f"there must be at least one seed, got {seeds}")
    recipes = []
    for seed in range(seeds):
        for split in splits:
            for method in methods:
                recipe = Recipe(
                    data=data,
                    hold_out="+".join(split.held_out),
                    validation=validation,
                    split_seed=split_seed,
                    body=body,
                    method=method,
                    training=training,
                    seed=seed,
                )
                runner.know(split, recipe)
                recipes.append(recipe)
    return recipes


def draw(comparison: Comparison, runs: Sequence[RunFolder], runner: Runner, folder: Path) -> list[Path]:
    """The pictures of a comparison: scores by held-out domain, and the gates of one gated run of each hold-out."""
    written = [draw_comparison(comparison, folder / "scores.png")]
    seen: set[str] = set()
    for run in sorted(runs, key=lambda run: run.result()["method"] != "gdu"):  # the recommended form before others
        if len(seen) == _MOST_PICTURES:
            break
        result, arrays = run.result(), run.predictions()
        if "beta" not in arrays or "domains" not in arrays or result["hold_out"] in seen:
            continue
        seen.add(result["hold_out"])
        name = "".join(letter if letter.isalnum() else "-" for letter in result["hold_out"])[:40]
        path = folder / f"gates-{name}.png"
        written.append(
            draw_gates(
                arrays["beta"],
                path if path not in written else folder / f"gates-{name}-{len(seen)}.png",
                domains=arrays["domains"],
                domain_names=runner.dataset.domain_names,
                unseen=result["held_out"],
                coverage=arrays.get("coverage"),
                title=f"{result['label']}, {result['hold_out']} held out: who uses which basis",
            )
        )
    return written


def named_as_asked(results: Sequence[RunResult], splits: Sequence[HoldOut]) -> list[RunResult]:
    """The results under the names that their hold-outs have here: one that was found may be called otherwise."""
    names = {frozenset(split.held_out): split.name for split in splits}
    return [replace(result, hold_out=names[frozenset(result.held_out)]) for result in results]
