"""Forms of Gated Domain Units, compared without a look at what they will be judged by.

    python benchmarks/search_gdu.py digits5 --never mnistm --seeds 2 --epochs 8 --body digits   # needs a GPU
    python benchmarks/search_gdu.py pacs.npz --never sketch --seeds 2                           # features, on a CPU

One domain (``--never``) only trains. Of the others every pair is left out of training once, and a form is scored by its
accuracy on both: on the first of the two at the epoch that is best for the second, on the second at its own best epoch,
which is optimistic, alike for all forms. Forms are compared with `gdu` domain by domain: the difference on a domain is
the mean over the pairs that it is part of. Scores of one training, and of trainings that share sources, are correlated,
so intervals are too narrow: the table ranks forms and is no evidence. The best form is then to be confirmed once, with
the domain held out that was never left out. ``deviations`` is the mean over bases of the squared weights of the head's
deviations from the shared expert.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

from recompute import METRIC, against_columns
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gated_domains.cli.watching import Watching
from gated_domains.data.loading import load_data
from gated_domains.experiments.environment import machine
from gated_domains.experiments.executors import choose_executor
from gated_domains.experiments.model import Model
from gated_domains.experiments.recipe import DataSettings, Recipe, default_training, methods_written
from gated_domains.experiments.run_folder import RunFolder
from gated_domains.experiments.runner import Runner
from gated_domains.reports.against import Key, compare_methods
from gated_domains.training.engine import Hardware

RESULTS = Path(__file__).parent / "results"
BASE = "gdu"
FORMS = (
    "erm",
    "gdu",
    "gdu[gates=constant]",
    "gdu[coverage=true]",
    "gdu[gated_norm=false]",
    "gdu[num_bases=3]",
    "gdu[num_bases=10]",
    "gdu[entropy=0.25]",
    "gdu[entropy=0.75]",
    *(f"gdu[lambda_dev={weight}]" for weight in (0, 0.01, 1)),
    "gdu[test_gates=batch]",
    "gdu[gating=style]",
)


def recipes(form: str, pairs: list[tuple[str, str]], seeds: int, frame: dict[str, Any]) -> list[Recipe]:
    (method,) = methods_written(form)
    return [
        Recipe(**frame, hold_out=one, validation_domain=other, selection="out_of_domain", seed=seed, method=method)
        for seed in range(seeds)
        for one, other in pairs
    ]


def left_out(recipe: Recipe, result: dict[str, Any]) -> dict[Key, float]:
    """The accuracy on both domains that did not train."""
    one, other = str(recipe.hold_out), str(recipe.validation_domain)
    scores = {one: result["test"]["by_domain"][one], other: result["validation"]["by_domain"][other]}
    return {(f"{one}+{other}", name, recipe.seed): score for name, score in scores.items()}


def deviation_norm(run: RunFolder) -> float | None:
    """``mean_j ||d_j||^2`` of the deviations in the head of a run; None where it has none."""
    units = getattr(Model.load(run.path).method, "units", None)
    return None if units is None or units.shared is None else float(units.deviation_norm().detach())


def without_folders(arguments: list[str]) -> list[str]:
    """A command line without where runs and data lie on this machine."""
    told = iter(arguments)
    kept = []
    for word in told:
        option, _, value = word.partition("=")
        if option not in ("--out", "--data-dir"):
            kept.append(Path(word).name if Path(word).is_absolute() else word)
        elif not value:
            next(told, None)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--never", required=True, help="the domain that is kept for the confirmation")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--precision", default="32")
    parser.add_argument("--body", default="auto")
    parser.add_argument("--data-dir")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--forms", nargs="+", default=list(FORMS))
    parser.add_argument("--out", type=Path, default=Path("out/search"))
    parser.add_argument("--save", metavar="NAME")
    chosen = parser.parse_args()
    dataset = load_data(chosen.data, data_dir=chosen.data_dir)
    domains = [name for name in dataset.domain_names if name != chosen.never]
    if len(domains) == len(dataset.domain_names):
        parser.error(f"--never {chosen.never}: there is no such domain; there are {', '.join(domains)}")
    pairs = list(combinations(domains, 2))
    asked = {"epochs": chosen.epochs, "batch_size": chosen.batch_size, "precision": chosen.precision}
    training = default_training(dataset, {k: v for k, v in asked.items() if v is not None})
    hardware = Hardware(compile=chosen.compile)
    runner = Runner(dataset, chosen.out / "runs", hardware=hardware)
    found: dict[str, dict[Key, float]] = {}
    seconds: dict[str, float] = {}
    norms: dict[str, float] = {}
    every = {
        form: [
            one.but(training=one.method.trained(training))
            for one in recipes(form, pairs, chosen.seeds, {"data": DataSettings(what=chosen.data), "body": chosen.body})
        ]
        for form in chosen.forms
    }
    todo = [recipe for some in every.values() for recipe in some]
    with choose_executor(runner, len(todo), workers=chosen.workers) as executor:
        left, there = runner.to_train(todo)
        with Watching(left, done=there, workers=executor.workers) as watching:
            executor.run(todo, watcher=watching)
    for form, some in every.items():
        results = [(recipe, runner.folder(recipe).result()) for recipe in some]
        found[form] = {key: score for one in results for key, score in left_out(*one).items()}
        seconds[form] = statistics.mean(result["seconds"] for _, result in results)
        sizes = [size for recipe in some if (size := deviation_norm(runner.folder(recipe))) is not None]
        if sizes:
            norms[form] = statistics.mean(sizes)
    base = BASE if BASE in found else None
    headings, cells = against_columns(found, base, decimals=2)
    against = compare_methods(found, base, metric=METRIC, margin=METRIC.margin())
    table = Table(
        title=f"{chosen.data}: accuracy on left-out sources, {chosen.never} always trains; compared with {BASE}",
        title_justify="left",
    )
    for heading in ("form", *domains, "mean", "deviations", *headings):
        table.add_column(heading, justify="left" if heading == "form" else "right")
    rows = []
    for form in sorted(found, key=lambda form: -statistics.mean(found[form].values())):
        by_domain = {
            name: 100 * statistics.mean(score for (_, domain, _), score in found[form].items() if domain == name)
            for name in domains
        }
        mean = 100 * statistics.mean(found[form].values())
        versus = against[form].as_json() if form in against else None
        rows.append(
            {
                "form": form,
                "mean": mean,
                "by_domain": by_domain,
                "deviations": norms.get(form),
                "seconds": seconds[form],
                "against_base": versus,
            }
        )
        size = f"{norms[form]:.2g}" if form in norms else ""
        table.add_row(Text(form), *(f"{value:.1f}" for value in by_domain.values()), f"{mean:.2f}", size, *cells[form])
    Console(width=180).print(table)
    if chosen.save:
        path = RESULTS / f"{chosen.save}.json"
        command = " ".join(["python", "benchmarks/search_gdu.py", *without_folders(sys.argv[1:])])
        about = {"machine": machine(hardware.accelerator), "command": command, "never": chosen.never, "rows": rows}
        scores = {
            form: {f"{name} without {pair} seed {seed}": 100 * score for (pair, name, seed), score in runs.items()}
            for form, runs in found.items()
        }
        path.write_text(json.dumps({**about, "scores": scores}, indent=1) + "\n")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
