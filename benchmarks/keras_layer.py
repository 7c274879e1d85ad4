"""What a training step of the Keras layer costs on each backend, beside the PyTorch layer's own.

    python benchmarks/keras_layer.py                 # the table, all rows measured in this one run
    python benchmarks/keras_layer.py --save NAME     # and as JSON in benchmarks/results/NAME.json

A step is forward, cross-entropy, all four penalties, backward and Adam, on one batch. Keras runs it as users do, by
``train_on_batch`` of a compiled model, with ``jit_compile=True`` on TensorFlow and JAX; on PyTorch Keras is eager, as
is our own layer. A process for each row, one measuring at a time, in rounds that visit every row in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
LAMBDAS = {"lambda_ols": 1e-3, "lambda_l1": 1e-3, "lambda_entropy": 1e-3, "lambda_orth": 1e-3}
OWN = "PyTorch"
KERAS = {"Keras on TensorFlow, jitted": "tensorflow", "Keras on JAX, jitted": "jax", "Keras on PyTorch, eager": "torch"}


@dataclass(frozen=True)
class Size:
    batch: int = 512
    features: int = 2048
    num_bases: int = 10
    basis_size: int = 10
    classes: int = 10

    def __str__(self) -> str:
        return (
            f"batch {self.batch}, features {self.features}, M {self.num_bases}, N {self.basis_size}, "
            f"{self.classes} classes"
        )


@dataclass(frozen=True)
class Row:
    name: str
    milliseconds: float
    ratio: float
    """Against the PyTorch layer; the median over rounds of ratios within a round."""
    version: str


def rows_of(size: Size) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((size.batch, size.features)).astype("float32")
    return x, rng.integers(0, size.classes, size.batch)


def torch_step(size: Size) -> tuple[Callable[[], object], str]:
    import torch
    import torch.nn.functional as F

    from gated_domains.layer import GatedDomainUnits

    x, y = map(torch.from_numpy, rows_of(size))
    shape = {"num_bases": size.num_bases, "basis_size": size.basis_size}
    head = GatedDomainUnits(size.features, size.classes, **shape, **LAMBDAS)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)

    def step() -> float:
        out = head.evaluate(x)
        loss = F.cross_entropy(out.prediction, y) + head.penalty(out)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step, f"torch {torch.__version__}"


def keras_step(size: Size) -> tuple[Callable[[], object], str]:
    import keras

    from gated_domains.keras_layer import GatedDomainUnits

    x, y = rows_of(size)
    shape = {"num_bases": size.num_bases, "basis_size": size.basis_size}
    head = GatedDomainUnits(size.classes, **shape, **LAMBDAS)
    model = keras.Sequential([keras.Input((size.features,)), head])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    backend = keras.backend.backend()
    model.compile(keras.optimizers.Adam(1e-3), loss, jit_compile=backend != "torch")
    version = sys.modules[backend].__version__
    return lambda: model.train_on_batch(x, y), f"keras {keras.__version__}, {backend} {version}"


def serve(name: str, size: Size, steps: int) -> None:
    """Warm up, then answer every line on stdin with the median milliseconds of some steps."""
    step, version = torch_step(size) if name == OWN else keras_step(size)
    for _ in range(3):
        step()
    print(version, flush=True)
    for _ in sys.stdin:
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        print(1000 * statistics.median(times), flush=True)


class Contender:
    """A row in a process of its own, which measures when asked."""

    def __init__(self, name: str, size: Size, steps: int) -> None:
        self.name = name
        environment = {**os.environ, "KERAS_BACKEND": KERAS.get(name, "torch"), "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, __file__, "--serve", name, "--steps", str(steps), "--size", json.dumps(asdict(size))]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.version = self._read()

    def measure(self) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self._read())

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self.process.wait()}; its own error is above")
        return line.strip()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def measure(size: Size, *, rounds: int, steps: int) -> list[Row]:
    contenders: list[Contender] = []
    try:
        for name in (OWN, *KERAS):
            print(f"starting {name}", file=sys.stderr, flush=True)
            contenders.append(Contender(name, size, steps))
        times = [[contender.measure() for contender in contenders] for _ in range(rounds)]
    finally:
        for contender in contenders:
            contender.stop()
    return [
        Row(
            name=contender.name,
            milliseconds=statistics.median(row[place] for row in times),
            ratio=statistics.median(row[place] / row[0] for row in times),
            version=contender.version,
        )
        for place, contender in enumerate(contenders)
    ]


def main() -> None:
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10, help="steps a row and round, of which the median counts")
    parser.add_argument("--save", metavar="NAME", help="write the rows to benchmarks/results/NAME.json")
    parser.add_argument("--size", type=json.loads, default={}, help=argparse.SUPPRESS)
    parser.add_argument("--serve", metavar="ROW", help=argparse.SUPPRESS)
    options = parser.parse_args()
    size = Size(**options.size)
    if options.serve:
        serve(options.serve, size, options.steps)
        return
    rows = measure(size, rounds=options.rounds, steps=options.steps)
    table = Table(title=f"A training step: {size}", title_justify="left")
    for heading in ("", "ms", "against PyTorch", "versions"):
        table.add_column(heading, justify="right" if heading in ("ms", "against PyTorch") else "left")
    for row in rows:
        table.add_row(row.name, f"{row.milliseconds:.1f}", f"{row.ratio:.2f} x", row.version)
    Console(width=110).print(table)
    if options.save:
        machine = {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
        path = RESULTS / f"{options.save}.json"
        path.write_text(json.dumps({**machine, "size": asdict(size), "rows": [asdict(row) for row in rows]}, indent=1))
        print(f"saved {path}")


if __name__ == "__main__":
    main()
