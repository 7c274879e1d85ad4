"""Gated models that never saw some domains, from runs or from estimators: what the tables of shift are made of."""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gated_domains import GDUClassifier
from gated_domains.applying.inside import GatedEstimator, GatedModel, GatedRun, as_new_data
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.labels import Reading
from gated_domains.data.like import new_data_of
from gated_domains.data.loading import load_data
from gated_domains.data.new_data import NewData
from gated_domains.data.splits import HoldOut, hold_outs
from gated_domains.experiments.executors import choose_executor
from gated_domains.experiments.grid import plan_grid
from gated_domains.experiments.progress import ProgressBar
from gated_domains.experiments.recipe_checks import default_training, parse_methods
from gated_domains.experiments.runner import Runner
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.provenance import machine
from gated_domains.runs.recipe import DataSettings, Recipe, RunConfig
from gated_domains.training.engine import Hardware

RESULTS = Path(__file__).parent / "results"


class Opened(NamedTuple):
    """A gated model, the data set as it reads it, and the rows that it was trained, validated and scored on."""

    model: GatedModel
    data: NewData
    split: HoldOut

    @property
    def familiar(self) -> NewData:
        """Rows of the sources that it was not trained on."""
        return self.data.take(self.split.validation)

    def domain(self, name: str) -> NewData:
        """The rows of a held-out domain that are scored."""
        assert self.data.domains is not None
        number = self.data.domain_names.index(name)
        return self.data.take(self.split.test[self.data.domains[self.split.test] == number])


class Runs:
    """Models of runs, each in a folder: what is done is found there."""

    def __init__(self, chosen: argparse.Namespace, what: str = "digits5-small", reading: Reading | None = None) -> None:
        # A folder with digits5-small in it holds data sets; another is one itself.
        itself = chosen.data is not None and not (chosen.data / what).is_dir()
        self.what = "digits" if chosen.data is None else str(chosen.data) if itself else what
        reading = reading or Reading(fraction=chosen.fraction)
        self.dataset = load_data(self.what, reading, data_dir=None if itself else chosen.data)
        self.hardware = Hardware(device=chosen.device)
        self.runner = Runner(self.dataset, chosen.out / "runs", hardware=self.hardware)
        asked = {"epochs": chosen.epochs, "precision": chosen.precision}
        training = default_training(self.dataset, {name: value for name, value in asked.items() if value is not None})
        self.config = RunConfig(data=DataSettings.of(self.what, reading), body=chosen.body, training=training)
        self.workers: int | None = chosen.workers
        self.made: dict[tuple[str, str, int], tuple[Recipe, RunFolder]] = {}

    @property
    def machine(self) -> str:
        """Where they are made."""
        return machine(self.hardware.accelerator)

    def make(self, held_out: Sequence[str], methods: Sequence[str], seeds: int) -> None:
        """Train what is not there yet: every method with every hold-out."""
        chosen = parse_methods(",".join(methods))
        grid = plan_grid(self.runner.planner, chosen, hold_out=",".join(held_out), seeds=seeds, config=self.config)
        with choose_executor(self.runner, len(grid.recipes), workers=self.workers) as executor:
            left, there = grid.plan.missing(self.runner.root)
            with ProgressBar(left, done=there, workers=executor.workers) as watching:
                folders = executor.run(grid.plan, callback=watching)
        # As ``plan_grid`` lists them: a seed, a hold-out, a method.
        keys = [(split.key, method, seed) for seed in range(seeds) for split in grid.splits for method in methods]
        self.made |= dict(zip(keys, zip(grid.recipes, folders, strict=True), strict=True))

    def accuracy(self, held_out: str, method: str, seed: int, domain: str) -> float:
        """On one of the domains held out."""
        return self.made[held_out, method, seed][1].result().test[domain]

    def opened(self, held_out: str, seed: int, method: str = "gdu") -> Opened:
        """The model of a gated run."""
        recipe, folder = self.made[held_out, method, seed]
        model = GatedRun(folder, device=self.hardware.accelerator)
        return Opened(model, as_new_data(self.dataset), self.runner.planner.split(recipe))


class Fits:
    """Estimators fitted to the rows of a file; a fifth of every source is kept out of it."""

    def __init__(self, path: Path, *, fraction: float | None = None) -> None:
        self.dataset = load_data(path, Reading(fraction=fraction))

    @property
    def machine(self) -> str:
        """Where they are fitted."""
        return machine("cpu")

    def opened(self, held_out: str, seed: int) -> Opened:
        """A model fitted to all domains but these."""
        data, (split,) = self.dataset, hold_outs(self.dataset, [held_out])
        assert data.class_names is not None
        assert data.domains is not None
        classes, domains = np.array(data.class_names), np.array(data.domain_names)
        print(f"fitting without {held_out}, seed {seed}", file=sys.stderr)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator = GDUClassifier(random_state=seed).fit(
                data.inputs.read(split.train),
                classes[data.targets[split.train]],
                sample_domain=domains[data.domains[split.train]],
            )
        model = GatedEstimator(estimator)
        return Opened(model, new_data_of(data, model.schema, targets=True), split)


def pairs_of(dataset: DomainDataset, most: int | None = None) -> list[tuple[str, str]]:
    """Every two domains, in the order of the data set; the first few where few are asked for."""
    return list(combinations(dataset.domain_names, 2))[:most]


def options(what: str) -> argparse.ArgumentParser:
    """What both scripts are asked."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, help="folder with digits5-small, or other data; without, the embedded digits"
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--precision", default="32")
    parser.add_argument("--body", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--fraction", type=float, help="a share of the rows, for a first try")
    parser.add_argument("--out", type=Path, default=Path("out/shift"), help="where runs are kept")
    parser.add_argument("--save", metavar="NAME", help="write results/NAME.json beside this script")
    return parser


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """One table; the first column is words, the others numbers."""
    lines = [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def mean(values: Iterable[float]) -> float:
    """Of those that are there; NaN where none is."""
    there = [value for value in values if not math.isnan(value)]
    return float(np.mean(there)) if there else math.nan


def percent(value: float, *, sign: bool = False) -> str:
    """Without the sign of it, as headings say; a dash where nobody knows."""
    return "-" if math.isnan(value) else f"{100 * value:{'+' if sign else ''}.1f}"


def save(name: str, results: dict[str, Any]) -> None:
    """Write the numbers behind the tables, with the command but not where things lie on this machine."""
    told, kept = iter(sys.argv[1:]), [f"benchmarks/{Path(sys.argv[0]).name}"]
    for word in told:
        option, _, value = word.partition("=")
        if option == "--out":
            next(told, None) if not value else None
        else:
            kept.append(Path(word).name if "/" in word else word)
    path = RESULTS / f"{name}.json"
    told_all = _known({"command": " ".join(["python", *kept]), **results})
    path.write_text(json.dumps(told_all, indent=1, allow_nan=False) + "\n")
    print(f"written: {path.name}", file=sys.stderr)


def _known(value: Any) -> Any:
    """The same with None for every NaN, which JSON has no word for."""
    if isinstance(value, dict):
        return {name: _known(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_known(part) for part in value]
    return None if isinstance(value, float) and math.isnan(value) else value
