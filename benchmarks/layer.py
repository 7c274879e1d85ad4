"""What the layer costs: forward, backward and all penalties, beside a literal loop and two bare linear layers.

    python benchmarks/layer.py                 # the table, all rows measured in this one run
    python benchmarks/layer.py --save NAME     # and as JSON in benchmarks/results/NAME.json

On a GPU the same steps are also compiled and captured in CUDA graphs. Times are medians over rounds that visit every
row in turn; memory is the peak above what stood before the step, on a CPU measured in a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from literal_loop import LiteralLoop
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from gated_domains.layer import CosineGate, GatedDomainUnits
from gated_domains.layer.kernels import Gaussian

LAMBDAS = (1e-3, 1e-3, 1e-3, 1e-3)
RESULTS = Path(__file__).parent / "results"
Step = Callable[[], Tensor]


@dataclass(frozen=True)
class Size:
    batch: int
    features: int
    num_bases: int
    basis_size: int
    classes: int

    def __str__(self) -> str:
        return (
            f"batch {self.batch}, features {self.features}, M {self.num_bases}, N {self.basis_size}, "
            f"{self.classes} classes"
        )


PAPER_SIZE = Size(batch=512, features=2048, num_bases=10, basis_size=10, classes=10)
LARGE_SIZE = Size(batch=4096, features=2048, num_bases=100, basis_size=50, classes=10)


@dataclass(frozen=True)
class Row:
    name: str
    milliseconds: float
    spread: float
    megabytes: float | None


class Bench:
    """The models and the batch of one size; ``loss`` functions give the loss of a step."""

    def __init__(self, size: Size, device: torch.device) -> None:
        torch.manual_seed(0)
        self.size, self.device = size, device
        self.x = torch.randn(size.batch, size.features, device=device, requires_grad=True)
        self.y = torch.randint(size.classes, (size.batch,), device=device)
        sigma = (2 * size.features) ** 0.5

        def units(*, shared: bool) -> GatedDomainUnits:
            ols, l1, entropy, orth = LAMBDAS
            return GatedDomainUnits(
                size.features, size.classes, num_bases=size.num_bases, basis_size=size.basis_size,
                kernel=Gaussian(sigma), gate=CosineGate(kappa=20.0), shared=shared,
                lambda_ols=ols, lambda_l1=l1, lambda_entropy=entropy, lambda_orth=orth,
            ).to(device)  # fmt: skip

        self.ours, self.ours_shared = units(shared=False), units(shared=True)
        experts = self.ours.experts
        self.loop = LiteralLoop(
            self.ours.bases.detach(), experts.weight.detach(), experts.bias.detach(), sigma=sigma, kappa=20.0
        ).to(device)
        self.floor = nn.Linear(size.features, size.num_bases * (size.classes + size.basis_size)).to(device)
        self.linear = nn.Linear(size.features, size.classes).to(device)

    def ours_loss(self) -> Tensor:
        out = self.ours.evaluate(self.x)
        return F.cross_entropy(out.prediction, self.y) + self.ours.penalty(out)

    def ours_shared_loss(self) -> Tensor:
        out = self.ours_shared.evaluate(self.x)
        return F.cross_entropy(out.prediction, self.y) + self.ours_shared.penalty(out)

    def loop_loss(self) -> Tensor:
        prediction, beta = self.loop(self.x)
        return F.cross_entropy(prediction, self.y) + self.loop.penalty(self.x, beta, LAMBDAS)

    def floor_loss(self) -> Tensor:
        return F.cross_entropy(self.floor(self.x), self.y)

    def linear_loss(self) -> Tensor:
        return F.cross_entropy(self.linear(self.x), self.y)

    def agreement(self) -> tuple[float, float]:
        """Largest relative difference of loss and of the features' gradient between ours and the literal loop."""
        ours, loop = self.ours_loss(), self.loop_loss()
        (ours_grad,), (loop_grad,) = torch.autograd.grad(ours, self.x), torch.autograd.grad(loop, self.x)
        return float(((ours - loop).abs() / loop).detach()), float((ours_grad - loop_grad).norm() / loop_grad.norm())


def backward_step(bench: Bench, loss: Step) -> Step:
    def step() -> Tensor:
        for module in (bench.ours, bench.ours_shared, bench.loop, bench.floor, bench.linear):
            module.zero_grad(set_to_none=True)
        bench.x.grad = None
        value = loss()
        value.backward()
        return value

    return step


def captured(bench: Bench, loss: Step) -> Step:
    """The step as a CUDA graph: the same kernels, launched by the device itself."""
    step = backward_step(bench, loss)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = step()

    def replay() -> Tensor:
        graph.replay()
        return value

    return replay


def losses(bench: Bench) -> dict[str, Step]:
    return {
        "ours": bench.ours_loss,
        "ours, default (shared expert)": bench.ours_shared_loss,
        "floor: nn.Linear(features, M classes + M N)": bench.floor_loss,
        "nn.Linear(features, classes)": bench.linear_loss,
    }


def cpu_steps(bench: Bench, *, with_loop: bool) -> dict[str, Step]:
    measured = losses(bench) | ({"literal loop over bases": bench.loop_loss} if with_loop else {})
    return {name: backward_step(bench, loss) for name, loss in measured.items()}


def gpu_steps(bench: Bench, *, with_loop: bool) -> dict[str, Step]:
    steps = {f"{name} (eager)": step for name, step in cpu_steps(bench, with_loop=with_loop).items()}
    for name, loss in losses(bench).items():
        compiled = torch.compile(loss, fullgraph=True, options={"combo_kernels": True})
        steps[f"{name} (compiled)"] = backward_step(bench, compiled)
        steps[f"{name} (graph)"] = captured(bench, loss)
        steps[f"{name} (compiled + graph)"] = captured(bench, compiled)
    return steps


def clock(step: Step, device: torch.device, repeats: int) -> float:
    """Milliseconds of one step, averaged over repeats."""
    if device.type == "cuda":
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            step()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / repeats
    begin = time.perf_counter()
    for _ in range(repeats):
        step()
    return 1e3 * (time.perf_counter() - begin) / repeats


def times(steps: dict[str, Step], device: torch.device, *, rounds: int) -> dict[str, list[float]]:
    repeats = {}
    for name, step in steps.items():
        step()
        once = clock(step, device, 1)
        repeats[name] = max(1, min(200, round((5 if device.type == "cuda" else 50) / max(once, 1e-3))))
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            step()  # untimed: what ran before leaves cold caches and an allocator in another state
            taken[name].append(clock(step, device, repeats[name]))
    return taken


def peak_memory(name: str, size: Size, device: torch.device, step: Step) -> float | None:
    """Megabytes above what stood before the step; a graph allocates nothing when it is replayed."""
    if "graph" in name:
        return None
    if device.type == "cuda":
        step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    command = [sys.executable, __file__, "--memory-of", name, "--size", json.dumps(asdict(size))]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def memory_in_this_process(name: str, size: Size) -> float:
    """The rise of this process's peak resident memory over one first step (Linux)."""
    step = cpu_steps(Bench(size, torch.device("cpu")), with_loop=True)[name]
    small = Bench(replace(size, batch=2, features=8), torch.device("cpu"))
    cpu_steps(small, with_loop=True)[name]()  # loads the libraries a first call loads
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    step()
    return (_status("VmHWM") - before) / 1024


def _status(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith(key)).split()[1])


def measure(size: Size, device: torch.device, *, rounds: int, with_loop: bool) -> list[Row]:
    bench = Bench(size, device)
    steps = (gpu_steps if device.type == "cuda" else cpu_steps)(bench, with_loop=with_loop)
    taken = times(steps, device, rounds=rounds)
    rows = []
    for name, step in steps.items():
        values = taken[name]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        rows.append(Row(name, statistics.median(values), spread, peak_memory(name, size, device, step)))
    return rows


def show(console: Console, title: str, rows: list[Row]) -> None:
    reference = next(row for row in rows if row.name.startswith("ours") and "default" not in row.name)
    table = Table(title=title, title_justify="left")
    for heading in ("step: forward + backward + all penalties", "ms", "± ms", "against ours", "peak MB"):
        table.add_column(heading, justify="left" if heading.startswith("step") else "right", no_wrap=True)
    for row in sorted(rows, key=lambda row: -row.milliseconds):
        ratio = row.milliseconds / reference.milliseconds
        table.add_row(
            row.name,
            f"{row.milliseconds:.3f}",
            f"{row.spread:.3f}",
            f"{ratio:.3f} x",
            "-" if row.megabytes is None else f"{row.megabytes:.0f}",
        )
    console.print(table)


def machine(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    return f"{torch.get_num_threads()} threads of {os.cpu_count()} cores, {model}, torch {torch.__version__}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-large", action="store_true", help="leave the large size out")
    parser.add_argument("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--size", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        print(memory_in_this_process(arguments.memory_of, Size(**json.loads(arguments.size))))
        return

    device = torch.device(arguments.device)
    console = Console(width=120)
    console.print(f"machine: {machine(device)}")
    console.print("two to three minutes; the literal loop takes most of them")
    loss_gap, gradient_gap = Bench(PAPER_SIZE, device).agreement()
    console.print(f"ours against the literal loop: loss differs by {loss_gap:.1e}, gradient by {gradient_gap:.1e}\n")
    results = {"machine": machine(device), "command": " ".join(["python", *sys.argv])}
    rows = measure(PAPER_SIZE, device, rounds=arguments.rounds, with_loop=True)
    show(console, str(PAPER_SIZE), rows)
    results[str(PAPER_SIZE)] = [asdict(row) for row in rows]
    if not arguments.no_large:
        rows = measure(LARGE_SIZE, device, rounds=1, with_loop=False)
        show(console, f"{LARGE_SIZE} (the literal loop would need hundreds of GB)", rows)
        results[str(LARGE_SIZE)] = [asdict(row) for row in rows]
    if arguments.save:
        path = RESULTS / f"{arguments.save}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(results, indent=1) + "\n")
        console.print(f"written: {path}")


if __name__ == "__main__":
    main()
