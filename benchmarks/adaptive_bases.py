"""The number of bases found in training, beside Davies-Bouldin's and beside fixed numbers.

    python benchmarks/adaptive_bases.py --synthetic [--dimension 10] [--separation 6] [--seeds 10]
    python benchmarks/adaptive_bases.py digits5 --data-dir DIR --seeds 3 --epochs 15 --body digits      # needs a GPU
    python benchmarks/adaptive_bases.py pacs_efflite0_feats.npz --seeds 2                               # features

``--synthetic``: mixtures of K elements, all rows pooled; in how many seeds their number is found. With data: every
domain is held out in turn; accuracy in per cent on it, and the M that the runs ended with, mean over seeds.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from gated_domains import GatedDomainUnits
from gated_domains.data.loading import load_data
from gated_domains.data.synthetic import synthetic
from gated_domains.experiments.executors import choose_executor
from gated_domains.experiments.grid import plan_grid
from gated_domains.experiments.model import Model
from gated_domains.experiments.recipe_checks import default_training, parse_methods
from gated_domains.experiments.runner import Runner
from gated_domains.layer.fitting import choose_num_bases
from gated_domains.runs.recipe import DataSettings, Recipe, RunConfig
from gated_domains.training.engine import Hardware

RESULTS = Path(__file__).parent / "results"
FORMS = (
    "gdu[num_bases=adaptive]",
    "gdu[num_bases=auto]",
    "gdu[num_bases=1]",
    "gdu[num_bases=3]",
    "gdu[num_bases=5]",
    "gdu[num_bases=10]",
)


def on_mixtures(elements: int, seeds: int, **settings: Any) -> tuple[list[int], list[int], float]:
    """What is found from one basis, what Davies-Bouldin finds, and the seconds that the first takes."""
    grown, scored, seconds = [], [], 0.0
    for seed in range(seeds):
        x = torch.from_numpy(synthetic(elements=elements, seed=seed, **settings).dataset.inputs.values)
        begun = time.perf_counter()
        grown.append(GatedDomainUnits(x.shape[1], 2, num_bases="adaptive").grow_bases(x, seed=seed).num_bases)
        seconds += time.perf_counter() - begun
        scored.append(choose_num_bases(x, range(2, 13), seed=seed)[0])
    return grown, scored, seconds / seeds


def synthetic_table(chosen: argparse.Namespace) -> list[str]:
    lines = [f"| K | adaptive: found in {chosen.seeds} | M | Davies-Bouldin: found | M | s a fit |", "|---" * 6 + "|"]
    print(*lines, sep="\n", flush=True)
    for elements in range(1, 7):
        grown, scored, seconds = on_mixtures(
            elements, chosen.seeds, dimension=chosen.dimension, separation=chosen.separation, rows=chosen.rows
        )
        cells = [f"{found.count(elements)} | {min(found)} to {max(found)}" for found in (grown, scored)]
        lines.append(f"| {elements} | {cells[0]} | {cells[1]} | {seconds:.1f} |")
        print(lines[-1], flush=True)
    return lines


def held_out_table(chosen: argparse.Namespace) -> list[str]:
    dataset = load_data(chosen.data, data_dir=chosen.data_dir)
    asked = {"epochs": chosen.epochs, "batch_size": chosen.batch_size, "precision": chosen.precision}
    training = default_training(dataset, {name: value for name, value in asked.items() if value is not None})
    config = RunConfig(data=DataSettings(what=chosen.data), body=chosen.body, training=training)
    runner = Runner(dataset, chosen.out / "runs", hardware=Hardware(device=chosen.device))
    methods = {form: parse_methods(form) for form in FORMS}
    grids = {
        form: plan_grid(runner.planner, method, hold_out="each", seeds=chosen.seeds, config=config)
        for form, method in methods.items()
    }
    todo = [recipe for grid in grids.values() for recipe in grid.recipes]
    with choose_executor(runner, len(todo), workers=chosen.workers) as executor:
        executor.run(todo)
    names = [split.key for split in grids[FORMS[0]].splits]
    lines = [f"| accuracy on the domain held out | {' | '.join(names)} | mean | M | s a run |"]
    lines.append("|---" * (len(names) + 4) + "|")
    lines += [_row(form, [told(runner, recipe) for recipe in grid.recipes], names) for form, grid in grids.items()]
    print(*lines, sep="\n", flush=True)
    return lines


def told(runner: Runner, recipe: Recipe) -> dict[str, Any]:
    """What a run came to: the domain held out, the accuracy there, its M, its seconds."""
    folder = runner.folder(recipe)
    result = folder.result()
    units: Any = Model.load(folder.path).method.units
    return {
        "domain": recipe.hold_out,
        "accuracy": 100 * statistics.mean(result.test.values()),
        "bases": units.num_bases,
        "seconds": result.seconds,
    }


def _row(form: str, runs: list[dict[str, Any]], names: list[str]) -> str:
    scores = [statistics.mean(run["accuracy"] for run in runs if run["domain"] == name) for name in names]
    bases = sorted(run["bases"] for run in runs)
    many = f"{bases[0]}" if bases[0] == bases[-1] else f"{bases[0]} to {bases[-1]}, mean {statistics.mean(bases):.1f}"
    cells = " | ".join(f"{score:.1f}" for score in scores)
    seconds = statistics.mean(run["seconds"] for run in runs)
    return f"| `{form}` | {cells} | {statistics.mean(scores):.1f} | {many} | {seconds:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="the name of a data set, or a file")
    parser.add_argument("--synthetic", action="store_true", help="mixtures of known elements")
    parser.add_argument("--seeds", type=int, default=None)
    parser.add_argument("--dimension", type=int, default=10)
    parser.add_argument("--separation", type=float, default=6.0)
    parser.add_argument("--rows", type=int, default=300, help="a domain, of which there are 6")
    parser.add_argument("--data-dir", "--data", dest="data_dir")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--precision")
    parser.add_argument("--body", default="auto")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--out", type=Path, default=Path("out/adaptive"))
    parser.add_argument("--save", metavar="NAME", help="of a file under results/")
    chosen = parser.parse_args()
    if not chosen.synthetic and chosen.data is None:
        parser.error("name a data set, or --synthetic")
    warnings.simplefilter("ignore")
    chosen.seeds = chosen.seeds or (10 if chosen.synthetic else 1)
    lines = synthetic_table(chosen) if chosen.synthetic else held_out_table(chosen)
    if chosen.save:
        RESULTS.joinpath(f"{chosen.save}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
