"""How fast one training step can be on a GPU, and what taking several trainings at once adds.

    python benchmarks/fast_path.py               # the table, all rows measured in this one run; needs a GPU
    python benchmarks/fast_path.py --save NAME   # and as JSON in benchmarks/results/NAME.json

The paper's network for digits, 512 images of 32 x 32 x 3 in bf16, a whole step (objective, backward, fused Adam) as one
CUDA graph: as it is written, and compiled. Then trainings side by side: streams of one process, and processes that
share the GPU. The floor is the arithmetic of a step at the rate that a large product of bf16 matrices reaches on the
machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from gated_domains.backbones.bodies import DigitsCNN
from gated_domains.backbones.mixstyle import mix_styles
from gated_domains.data.batches import DomainBatch
from gated_domains.experiments.recipe_checks import parse_methods
from gated_domains.methods import Classes, Method, Problem
from gated_domains.methods.method import total
from gated_domains.runs.recipe import TrainingSettings
from gated_domains.training.engine import compiled_objective
from gated_domains.training.optimizers import GraphedStep, make_optimizer
from layer import RESULTS, machine

BATCH, CLASSES, SHAPE = 512, 10, (3, 32, 32)
CASES = {
    "ERM": "erm",
    "GDU (paper)": "gdu-paper[num_bases=10]",
    "GDU": "gdu",
    "ERM + MixStyle": "erm",
    "GDU + MixStyle": "gdu",
}
ROUNDS, REPLAYS = 5, 60


@dataclass(frozen=True)
class Row:
    case: str
    how: str
    at_once: int
    milliseconds: float
    """Of one step of one of the trainings: the time of a round over all of them, divided by how many there are."""
    share_of_floor: float


class OneStep:
    """A training step of one method on one batch, as a CUDA graph."""

    def __init__(self, case: str, *, compiled: bool, seed: int = 0) -> None:
        torch.manual_seed(seed)
        (choice,) = parse_methods(CASES[case])
        problem = Problem(
            kind="images", shape=SHAPE, outputs=CLASSES, task=Classes(), make_body=lambda: DigitsCNN(SHAPE), domains=()
        )
        self.method: Method = choice.kind.build(choice.settings, problem, mode="end_to_end").cuda()
        chance = torch.Generator("cuda").manual_seed(seed)
        inputs = torch.rand((BATCH, *SHAPE), generator=chance, device="cuda") * 2 - 1
        targets = torch.randint(CLASSES, (BATCH,), generator=chance, device="cuda")
        self.batch = DomainBatch(inputs, targets, None)
        self.mixer = mix_styles(self.method.backbone, 0.5) if "MixStyle" in case else None  # type: ignore[arg-type]
        self.method.eval()
        self.method.prepare(lambda: [inputs])
        self.method.train()
        self.optimizer = make_optimizer(self.method, TrainingSettings(batch_size=BATCH), torch.device("cuda"))
        self.call: Callable[..., dict[str, Tensor]] = compiled_objective if compiled else _objective
        self.graphed = GraphedStep(self._step)
        self.stream = torch.cuda.Stream()

    def _step(self, batch: DomainBatch) -> dict[str, Tensor]:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            if self.mixer is None:
                terms = self.call(self.method, batch.inputs, batch.targets, None, None)
            else:
                with self.mixer.told(None):
                    terms = self.call(self.method, batch.inputs, batch.targets, None, None)
        total(terms).backward()
        self.optimizer.step()
        return terms

    def record(self) -> None:
        with torch.cuda.stream(self.stream):  # libraries keep scratch memory by stream
            for _ in range(5):
                self.graphed(self.batch)
        torch.cuda.synchronize()
        assert self.graphed.graph is not None

    def replay(self) -> None:
        assert self.graphed.graph is not None
        with torch.cuda.stream(self.stream):
            self.graphed.graph.replay()


def _objective(method: Method, *batch: Any) -> dict[str, Tensor]:
    return method(*batch)


def milliseconds(steps: list[OneStep]) -> float:
    """Of one step of each, side by side."""
    found = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(REPLAYS):
            for step in steps:
                step.replay()
        torch.cuda.synchronize()
        found.append(1e3 * (time.perf_counter() - began) / REPLAYS / len(steps))
    return statistics.median(found)


def matrix_rate() -> float:
    """Floating-point operations a second of a large product of bf16 matrices."""
    side = 8192
    a, b = (torch.randn(side, side, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    times = []
    for _ in range(20):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        a @ b
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return 2 * side**3 / statistics.median(times) * 1e3


def operations(case: str) -> int:
    """Floating-point operations of one step, forward and backward."""
    step = OneStep(case, compiled=False)
    with FlopCounterMode(display=False) as counter, torch.autocast("cuda", torch.bfloat16):
        total(_objective(step.method, step.batch.inputs, step.batch.targets, None, None)).backward()
    return counter.get_total_flops()


def in_processes(case: str, count: int, *, seconds: float = 6.0) -> float:
    """Milliseconds of a step where so many processes share the GPU, each with one training."""
    command = [sys.executable, "-W", "ignore", __file__, "--child", case]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()  # it is ready
    for child in children:
        assert child.stdin is not None
        child.stdin.write(f"{seconds}\n")
        child.stdin.flush()
    taken = [int(child.communicate()[0].strip() or 0) for child in children]
    return 1e3 * seconds / sum(taken)


def child(case: str) -> None:
    """One training in a process of its own: as many steps as it can in the time that it is told."""
    step = OneStep(case, compiled=True)
    step.record()
    print("ready", flush=True)
    until = time.perf_counter() + float(sys.stdin.readline())
    taken = 0
    while time.perf_counter() < until:
        for _ in range(10):
            step.replay()
        torch.cuda.synchronize()
        taken += 10
    print(taken, flush=True)


def measure(cases: list[str], say: Callable[[str], None], *, processes: bool) -> tuple[list[Row], dict[str, Any]]:
    rate = matrix_rate()
    rows: list[Row] = []
    floors: dict[str, float] = {}
    for case in cases:
        floors[case] = 1e3 * operations(case) / rate
        for compiled in (False, True):
            began = time.perf_counter()
            step = OneStep(case, compiled=compiled)
            step.record()
            first = time.perf_counter() - began
            took = milliseconds([step])
            rows.append(Row(case, "compiled" if compiled else "as written", 1, took, floors[case] / took))
            say(f"{case}, compiled {compiled}: {took:.3f} ms, ready after {first:.1f} s")
    for case in cases:
        for count in (2, 4, 6):
            steps = [OneStep(case, compiled=True, seed=seed) for seed in range(count)]
            for step in steps:
                step.record()
            took = milliseconds(steps)
            rows.append(Row(case, "compiled, streams", count, took, floors[case] / took))
            say(f"{case}, {count} streams: {took:.3f} ms")
            del steps
        for count in (1, 2, 3) if processes else ():
            took = in_processes(case, count)
            rows.append(Row(case, "compiled, processes", count, took, floors[case] / took))
            say(f"{case}, {count} processes: {took:.3f} ms")
    return rows, {"bf16_tflops": rate / 1e12, "floor_ms": floors}


def show(console: Console, rows: list[Row]) -> None:
    table = Table(title=f"one training step, digits network, {BATCH} images, bf16", title_justify="left")
    for heading in ("method", "how", "at once", "ms a step", "share of the floor"):
        table.add_column(heading, justify="left" if heading in ("method", "how") else "right")
    for row in rows:
        table.add_row(row.case, row.how, str(row.at_once), f"{row.milliseconds:.3f}", f"{row.share_of_floor:.0%}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--only", metavar="NAMES", default=",".join(CASES), help="rows to measure: ERM,GDU")
    parser.add_argument("--processes", action="store_true", help="also processes that share the GPU: some minutes")
    parser.add_argument("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no GPU here, and on a CPU a step is neither recorded nor compiled")
    if arguments.child:
        child(arguments.child)
        return
    console = Console(width=120)
    named = machine(torch.device("cuda"))
    console.print(f"machine: {named}")
    chosen = arguments.only.split(",")
    unknown = sorted(set(chosen) - set(CASES))
    if unknown:
        parser.error(f"there is no row {unknown[0]!r}; there are {', '.join(CASES)}")
    rows, about = measure(chosen, lambda line: print(line, flush=True), processes=arguments.processes)
    show(console, rows)
    if arguments.save:
        path = RESULTS / f"{arguments.save}.json"
        path.parent.mkdir(exist_ok=True)
        command = " ".join(["python", os.path.relpath(sys.argv[0]), *sys.argv[1:]])
        found = {"machine": named, "command": command, **about, "rows": [asdict(row) for row in rows]}
        path.write_text(json.dumps(found, indent=1) + "\n")
        console.print(f"written: {path}")


if __name__ == "__main__":
    main()
