"""The worst group of several methods where an attribute misleads, over draws of the data `spurious`.

    python benchmarks/subpopulations.py                          # three strengths of the attribute, five draws of each
    python benchmarks/subpopulations.py --correlations 0.95 --seeds 10 --methods erm,gdu-groups,"gdu-groups[over=bases]"

A row is a method, a column the share of training rows whose attribute is that of their class. Each draw has a seed of
its own for data and training, so draws are independent; differences to ERM are paired over draws, with the p-value of a
paired t-test. Runs are kept in `--out`: the same command again skips what is done.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy import stats

from gated_domains.data.spurious import spurious
from gated_domains.experiments import DataSettings, Recipe, Runner
from gated_domains.experiments.recipe_checks import default_training, parse_methods
from gated_domains.layer import GateWarning

METHODS = "erm,group-dro,gdu-groups"
GROUPS = ("attribute", "class")


def worst_groups(correlation: float, seed: int, methods: str, out: Path) -> dict[str, float]:
    """The accuracy of each method in its worst group at the balanced site, in percent."""
    dataset = spurious(correlation=correlation, seed=seed)
    training = default_training(dataset, {"group_by": GROUPS})
    runner, found = Runner(dataset, out / f"{correlation:g}-{seed}"), {}
    for method in parse_methods(methods):
        recipe = Recipe(
            data=DataSettings(what="spurious", seed=seed),
            hold_out="balanced",
            method=method,
            training=method.trained(training),
            score_by=GROUPS,
            seed=seed,
        )
        found[method.label] = 100 * min((runner.run(recipe).result().by_group or {}).values())
    return found


def cell(own: list[float], base: list[float]) -> str:
    """Mean and standard deviation, and the paired difference where it is not that of ERM to itself."""
    shown = f"{statistics.mean(own):.1f} ± {statistics.stdev(own):.1f}"
    if own == base:
        return shown
    gains = [one - other for one, other in zip(own, base, strict=True)]
    return f"{shown} ({statistics.mean(gains):+.1f}, p {stats.ttest_1samp(gains, 0.0).pvalue:.2g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--correlations", type=float, nargs="+", default=[0.9, 0.95, 0.98])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", default=METHODS, help="as gated-domains compare takes them, erm among them")
    parser.add_argument("--out", type=Path, default=Path("runs/subpopulations"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", GateWarning)
    found: dict[float, list[dict[str, float]]] = {}
    asked = [(share, seed) for share in arguments.correlations for seed in range(arguments.seeds)]
    for share, seed in track(asked, "training", transient=True):
        found.setdefault(share, []).append(worst_groups(share, seed, arguments.methods, arguments.out))
    table = Table(title="worst group at the balanced site, in percent", title_justify="left")
    for heading in ("method", *(f"{share:g}" for share in found)):
        table.add_column(heading, no_wrap=True)
    for label in next(iter(found.values()))[0]:
        draws = ([[run[name] for run in runs] for name in (label, "ERM")] for runs in found.values())
        table.add_row(label, *(cell(own, base) for own, base in draws))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
