"""What one training step of every method costs, relative to ERM.

    python benchmarks/methods.py                 # the table, all rows measured in this one run
    python benchmarks/methods.py --save NAME     # and as JSON in benchmarks/results/NAME.json
    python benchmarks/methods.py --body resnet50 --side 224 --batch 64 --steps 40 --only GDU,"GDU (paper)"
    python benchmarks/methods.py --only "GDU with gated norms","GDU with statistics of the batch" --compile

A row is a short training by `Trainer` itself on made images of four domains; the time of a step is that between
two steps, once the first have been taken: reading the batch, the objective, backward, the optimiser and whatever a
switch adds. Rounds visit every row in turn, ERM before each, to which the ratio is taken; medians are shown. On a
CPU the small network with batches of 128 images on one thread, in processor time, the median of the steps; on a GPU the
paper's network for digits, 512 images, bf16, the step as a CUDA graph where it can be recorded. `linear` trains on
features that are taken once, and `ensemble` is some trainings of ERM: neither has a step of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from gated_domains.backbones.bodies import BODIES
from gated_domains.data.batches import place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import fit_encoding
from gated_domains.evaluation.metrics import SELECTION_RULES
from gated_domains.experiments.recipe_checks import choose_method
from gated_domains.layer import GateWarning
from gated_domains.methods import METHODS, Classes, Ensemble, Method, Problem
from gated_domains.runs.recipe import TrainingSettings
from gated_domains.settings import plain
from gated_domains.training.callbacks.base import ProgressCallback
from gated_domains.training.engine import Hardware, threads_for
from gated_domains.training.trainer import Trainer
from gated_domains.training.training_data import TrainingData
from layer import RESULTS, machine

CLASSES, DOMAINS = 10, 4
BASE = "ERM"


@dataclass(frozen=True)
class Size:
    body: str
    side: int
    batch: int
    precision: str
    steps: int
    """Timed in a round, after as many that are not: libraries choose their algorithms in those, graphs are recorded."""

    def __str__(self) -> str:
        return (
            f"the {self.body} network, {self.batch} images of {self.side} x {self.side} x 3, precision {self.precision}"
        )

    def threads(self) -> AbstractContextManager[None]:
        """As many threads as a training of this size takes."""
        return threads_for(self.batch * self.side**2 * 3)


SIZES = {
    "cpu": Size(body="small", side=28, batch=128, precision="32", steps=20),
    "cuda": Size(body="digits", side=32, batch=512, precision="bf16", steps=100),
}


@dataclass(frozen=True)
class Case:
    """One row: a method, and what is switched on."""

    name: str
    method: str
    switches: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the method."""


def cases() -> list[Case]:
    """Every method that has a training step of its own, and the switches that go with every method."""
    own = {
        name: kind for name, kind in METHODS.items() if "end_to_end" in kind.modes and not issubclass(kind, Ensemble)
    }
    found = [Case(kind.label, name) for name, kind in own.items()]
    recommended = choose_method("recommended")
    found += [
        Case("GDU with gated norms", "gdu", settings={"gated_norm": True}),
        Case("GDU with statistics of the batch", "gdu", settings={"gated_norm": True, "norm_statistics": "batch"}),
        Case("ERM + MixStyle", "erm", {"mixstyle": 0.5}),
        Case("ERM + EMA", "erm", {"ema": 0.999}),
        Case("ERM + SWAD", "erm", {"swad": True}),
        Case("GDU + MixStyle", "gdu", {"mixstyle": 0.5}),
        Case("ERM + Fourier mixing", "erm", {"fourier_mix": 0.9}),
        Case("ERM + Fourier mixing + consistency", "erm", {"fourier_mix": 0.9, "consistency": 1.0}),
        Case("recommended", recommended.name, recommended.training, plain(recommended.settings)),
    ]
    return sorted(found, key=lambda case: case.name != BASE)


@dataclass(frozen=True)
class Row:
    name: str
    milliseconds: float
    ratio: float
    ratios: list[float]


class Clock(ProgressCallback):
    """The time of a step, from the first that counts to the last."""

    def __init__(self, device: torch.device, *, first: int) -> None:
        self.device, self.first = device, first
        self.times: list[float] = []

    def on_step(self, step: int, steps: int, *, worker: int = 0) -> None:
        if self.device.type == "cpu" and step >= self.first:
            # On one thread the same as the time that goes by, but that others on the machine do not lengthen it.
            self.times.append(time.process_time())
        elif step in (self.first, steps):  # in between a GPU is not made to wait for the host
            torch.cuda.synchronize()
            self.times.append(time.perf_counter())
        self.last = step

    @property
    def milliseconds(self) -> float:
        if self.device.type == "cpu":
            return 1e3 * statistics.median(np.diff(self.times))
        return 1e3 * (self.times[1] - self.times[0]) / (self.last - self.first)


class Bench:
    """Made images of one size, and short trainings on them."""

    def __init__(self, size: Size, device: str, *, compiled: bool = False) -> None:
        self.size, self.compiled = size, compiled
        self.fabric = Hardware(device=device).fabric(size.precision)  # type: ignore[arg-type]
        rows = 2 * size.steps * size.batch
        chance = np.random.default_rng(0)
        labels, domains = chance.integers(CLASSES, size=rows + size.batch), np.arange(rows + size.batch) % DOMAINS
        pixels = chance.integers(120, size=(len(labels), size.side, size.side, 3), dtype=np.uint8)
        pixels += (10 * labels + 10 * domains).astype(np.uint8)[:, None, None, None]
        self.dataset = DomainDataset.from_arrays(pixels, labels, domains, name="made images")
        self.train, self.validation = np.arange(rows), np.arange(rows, len(labels))

    @cached_property
    def material(self) -> TrainingData:
        encoding = fit_encoding(self.dataset, self.train)
        samples = place(self.dataset, encoding, device=self.fabric.device)
        return TrainingData(dataset=self.dataset, samples=samples, train=self.train, validation=self.validation)

    def build(self, case: Case) -> Method:
        torch.manual_seed(0)
        shape, kind = tuple(self.material.samples.encoding.shape), METHODS[case.method]
        problem = Problem(
            kind=self.dataset.inputs.kind,
            shape=shape,
            outputs=CLASSES,
            task=Classes(),
            make_body=lambda: BODIES[self.size.body](shape),
            domains=tuple(np.bincount(self.dataset.domains[self.train]).tolist()),
        )
        return kind.build(kind.settings_type(**case.settings), problem, mode="end_to_end")

    def milliseconds(self, case: Case) -> float:
        """Of one step of a training of one epoch, but for the first half of them."""
        size, clock = self.size, Clock(self.fabric.device, first=self.size.steps)
        settings = TrainingSettings(
            epochs=1, batch_size=size.batch, precision=size.precision, rate=1e-4, **case.switches
        )
        rule = SELECTION_RULES["source_validation"]
        with warnings.catch_warnings(), size.threads():
            warnings.simplefilter("ignore", GateWarning)  # after a few steps gates have nothing to say yet
            method, shared = self.build(case), {"fabric": self.fabric, "seed": 0, "rule": rule}
            Trainer(method, self.material, settings, callbacks=[clock], compiled=self.compiled, **shared).fit()
        return clock.milliseconds


def measure(bench: Bench, chosen: list[Case], *, rounds: int) -> list[Row]:
    taken: dict[str, list[tuple[float, float]]] = {case.name: [] for case in chosen}
    turns = [case for _ in range(rounds) for case in chosen]
    for case in track(turns, "measuring", transient=True, disable=not sys.stderr.isatty()):
        base = bench.milliseconds(Case(BASE, "erm"))
        taken[case.name].append((bench.milliseconds(case), base))
    rows = []
    for name, pairs in taken.items():
        ratios = [own / base for own, base in pairs]
        rows.append(Row(name, statistics.median(own for own, _ in pairs), statistics.median(ratios), ratios))
    return rows


def show(console: Console, title: str, rows: list[Row]) -> None:
    table = Table(title=title, title_justify="left")
    for heading in ("one training step", "ms", "against ERM", "lowest", "highest"):
        table.add_column(heading, justify="left" if heading.startswith("one") else "right", no_wrap=True)
    for row in sorted(rows, key=lambda row: row.ratio):
        ratios = (row.ratio, min(row.ratios), max(row.ratios))
        table.add_row(row.name, f"{row.milliseconds:.2f}", *(f"{ratio:.2f} x" for ratio in ratios))
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=list(SIZES), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--body", choices=list(BODIES), help="another network than the usual one")
    for name, what in (("side", "pixels of an image"), ("batch", "images a step"), ("steps", "timed in a round")):
        parser.add_argument(f"--{name}", type=int, help=what)
    parser.add_argument("--compile", action="store_true", help="compile the objective of every row, ERM's too")
    parser.add_argument("--only", metavar="NAMES", help="rows to measure, by their names: GDU,CORAL")
    parser.add_argument("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    arguments = parser.parse_args()

    asked = {name: value for name in ("body", "side", "batch", "steps") if (value := getattr(arguments, name))}
    chosen = cases()
    if arguments.only:
        wanted = arguments.only.split(",")
        unknown = sorted(set(wanted) - {case.name for case in chosen})
        if unknown:
            parser.error(f"there is no row {unknown[0]!r}; there are {', '.join(case.name for case in chosen)}")
        chosen = [case for case in chosen if case.name in wanted]
    console, bench = (
        Console(width=120),
        Bench(replace(SIZES[arguments.device], **asked), arguments.device, compiled=arguments.compile),
    )
    with bench.size.threads():
        named = machine(bench.fabric.device)
    console.print(f"machine: {named}")
    rows = measure(bench, chosen, rounds=arguments.rounds)
    show(console, str(bench.size), rows)
    if arguments.save:
        path = RESULTS / f"{arguments.save}.json"
        path.parent.mkdir(exist_ok=True)
        about = {"machine": named, "command": " ".join(["python", *sys.argv]), "size": asdict(bench.size)}
        path.write_text(json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
        console.print(f"written: {path}")


if __name__ == "__main__":
    main()
