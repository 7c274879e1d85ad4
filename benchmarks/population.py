"""Heads on the features of a frozen body: trainings a minute one by one and as a population, in one run.

    python benchmarks/population.py [--members 1 10 50 150] [--save NAME]

Every training is the paper's head (cosine, M 10) over some epochs, with validation after each. One by one, on a GPU
with its step recorded as a graph, is timed on a few trainings; the rest would take as long each.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gated_domains.backbones.bodies import Identity
from gated_domains.backbones.cached import CachedBackbone
from gated_domains.data.batches import place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import FeatureEncoding
from gated_domains.evaluation.selection import SELECTION_RULES
from gated_domains.methods import METHODS, Classes, Problem
from gated_domains.training.engine import Hardware, threads_for
from gated_domains.training.loop import Training
from gated_domains.training.material import Material
from gated_domains.training.population import Population
from gated_domains.training.population.population import _Together
from gated_domains.training.settings import TrainingSettings

CLASSES, DOMAINS = 10, 4
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Size:
    """What is trained: features, how long, and how many trainings are timed one by one."""

    rows: int
    features: int
    batch: int
    epochs: int
    alone: int
    method: str = "gdu-paper"
    bases: int = 10
    precision: str = "32"


@dataclass
class Row:
    """A number of trainings, each way."""

    members: int
    one_by_one: float
    """Trainings a minute."""
    together: float
    ratio: float
    steps: float
    """The share of the population's time that its steps take; validation takes the rest."""
    milliseconds: float
    """Of a step of all members."""


class Bench:
    """Trainings of one size on made-up features."""

    def __init__(self, size: Size, device: str) -> None:
        self.size, self.fabric = size, Hardware(device=device).fabric(size.precision)
        rng = np.random.default_rng(0)
        classes, domains = rng.integers(CLASSES, size=size.rows), np.arange(size.rows) % DOMAINS
        centres = rng.normal(size=(CLASSES + DOMAINS, size.features)).astype(np.float32)
        values = rng.normal(size=(size.rows, size.features)).astype(np.float32)
        values += 0.1 * (centres[classes] + 2 * centres[CLASSES + domains])
        dataset = DomainDataset.from_arrays(values, classes, domains, name="features")
        samples = place(dataset, FeatureEncoding(size.features), device=self.fabric.device)
        cut = int(0.8 * size.rows)
        rows = rng.permutation(size.rows)
        self.material = Material(dataset=dataset, samples=samples, train=rows[:cut], validation=rows[cut:])

    def training(self, seed: int) -> Training:
        """A head with weights and batches of its own."""
        torch.manual_seed(seed)
        size, kind = self.size, METHODS[self.size.method]
        problem = Problem(
            kind="features",
            shape=(size.features,),
            outputs=CLASSES,
            task=Classes(),
            make_body=lambda: Identity((size.features,)),
            domains=(),
        )
        chosen = {} if size.method == "linear" else {"num_bases": size.bases}
        method = kind.build(kind.settings_type(**chosen), problem, mode="fine_tune")
        method.backbone = CachedBackbone(size.features)
        settings = TrainingSettings(
            epochs=size.epochs, batch_size=size.batch, patience=None, precision=size.precision, rate=1e-3
        )
        rule = SELECTION_RULES["source_validation"]
        return Training(method, self.material, settings, fabric=self.fabric, seed=seed, rule=rule)

    def alone(self) -> float:
        """Seconds of a training one by one."""
        members = [self.training(seed) for seed in range(self.size.alone)]
        return self._timed(lambda: [member.run() for member in members]) / len(members)

    def together(self, count: int) -> tuple[float, float]:
        """Seconds of all trainings as a population, and of the ends of their epochs."""
        members, ends = [self.training(seed) for seed in range(count)], [0.0]
        plain = _Together._end_epochs

        def timed(self: _Together) -> None:
            began = time.perf_counter()
            plain(self)
            ends[0] += time.perf_counter() - began

        _Together._end_epochs = timed  # type: ignore[method-assign]
        try:
            return self._timed(Population(members).run), ends[0]
        finally:
            _Together._end_epochs = plain  # type: ignore[method-assign]

    def _timed(self, call: Any) -> float:
        if self.fabric.device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        if self.fabric.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began


def measure(bench: Bench, counts: list[int]) -> list[Row]:
    """A row for every number of members."""
    bench.training(0).run()  # libraries choose their algorithms
    rows = []
    for count in counts:
        alone = bench.alone()
        seconds, ends = bench.together(count)
        steps = bench.size.epochs * (int(0.8 * bench.size.rows) // bench.size.batch)
        rows.append(
            Row(
                members=count,
                one_by_one=60 / alone,
                together=60 * count / seconds,
                ratio=alone * count / seconds,
                steps=1 - ends / seconds,
                milliseconds=1000 * (seconds - ends) / steps,
            )
        )
    return rows


def table(rows: list[Row]) -> str:
    lines = ["| members | one by one, a minute | together, a minute | ratio | share of steps | ms a step |"]
    lines.append("|---|---|---|---|---|---|")
    for row in rows:
        rates = f"{row.one_by_one:,.0f} | {row.together:,.0f} | {row.ratio:.1f} x"
        lines.append(f"| {row.members} | {rates} | {100 * row.steps:.0f} % | {row.milliseconds:.2f} |")
    return "\n".join(lines)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", default="cuda" if on_gpu else "cpu")
    words.add_argument("--members", type=int, nargs="+", default=[1, 10, 50, 150] if on_gpu else [1, 5, 20])
    words.add_argument("--rows", type=int, default=20_000 if on_gpu else 2_000)
    words.add_argument("--features", type=int, default=2_048 if on_gpu else 64)
    words.add_argument("--batch", type=int, default=128)
    words.add_argument("--epochs", type=int, default=5)
    words.add_argument("--method", default="gdu-paper")
    words.add_argument("--precision", default="32")
    words.add_argument("--save", help="name of a file under benchmarks/results")
    given = words.parse_args()
    size = Size(
        rows=given.rows,
        features=given.features,
        batch=given.batch,
        epochs=given.epochs,
        alone=3 if on_gpu else 2,
        method=given.method,
        precision=given.precision,
    )
    with threads_for(size.batch * size.features):
        rows = measure(Bench(size, given.device), given.members)
    machine = torch.cuda.get_device_name() if given.device == "cuda" else "CPU"
    print(f"{machine}, torch {torch.__version__}: {size}\n\n{table(rows)}")
    if given.save:
        content = {
            "machine": machine,
            "torch": torch.__version__,
            "size": asdict(size),
            "rows": list(map(asdict, rows)),
        }
        (RESULTS / f"{given.save}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
