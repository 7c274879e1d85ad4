"""What the fused kernel of the inner products costs on a GPU, beside the plain path, and how near the device's limits.

    PYTHONPATH=src python3 benchmarks/fused.py                # a minute or two on one GPU
    PYTHONPATH=src python3 benchmarks/fused.py --save NAME    # and as JSON in benchmarks/results/NAME.json
    PYTHONPATH=src python3 benchmarks/fused.py --sweep        # also the fused path by step size and stages

A step is ``inner_products`` (cross and gram) and its backward pass to features and bases. Times are medians over steps,
each between two CUDA events; memory is the peak above what stood before the step, gradients included. The error is the
largest difference from the same step in float64, relative to the largest entry. A row that did not take the path of its
name is reported as failed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gated_domains.layer import fused
from gated_domains.layer.kernels import Gaussian
from gated_domains.layer.products import inner_products

RESULTS = Path(__file__).parent / "results"
Step = Callable[[], object]


@dataclass(frozen=True)
class Size:
    batch: int
    features: int
    num_bases: int
    basis_size: int

    def __str__(self) -> str:
        return f"batch {self.batch}, features {self.features}, M {self.num_bases}, N {self.basis_size}"

    @property
    def plain_flops(self) -> float:
        """Of the three products that the plain path takes, forward and backward, for cross and gram."""
        columns = self.num_bases * self.basis_size
        return 3 * 2.0 * (self.batch + columns) * columns * self.features

    def fused_flops(self, parts: int) -> float:
        """What the fused path's tensor cores do in bfloat16: distances twice, and the products with the weights.

        Of cross that is four products, of gram three, each six times for three parts and three times for two.
        """
        columns = self.num_bases * self.basis_size
        return {2: 3, 3: 6}[parts] * 2.0 * (4 * self.batch + 3 * columns) * columns * self.features

    @property
    def fewest_bytes(self) -> float:
        """Features and bases read once and their gradients written once, in float32."""
        return 2 * 4.0 * (self.batch + self.num_bases * self.basis_size) * self.features


SIZES = (Size(4096, 2048, 100, 50), Size(512, 2048, 10, 10))


@dataclass
class Row:
    name: str
    milliseconds: float | None = None
    spread: float | None = None
    megabytes: float | None = None
    error_cross: float | None = None
    error_gram: float | None = None
    error_x: float | None = None
    error_bases: float | None = None
    teraflops: float | None = None
    teraflops_done: float | None = None
    failure: str | None = None


class Bench:
    """Features, bases and kernel of one size; a step gives cross, gram and both gradients."""

    def __init__(self, size: Size, dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(0)
        self.size = size
        self.x = (torch.randn(size.batch, size.features, device="cuda") + 1).to(dtype).requires_grad_()
        shape = (size.num_bases, size.basis_size, size.features)
        self.bases = (torch.randn(shape, device="cuda") + 1).to(dtype)
        self.bases[0] = self.x[: size.basis_size].detach()  # some rows lie at distance 0
        self.bases.requires_grad_()
        self.kernel = Gaussian((2 * size.features) ** 0.5).cuda()
        self.to_cross = torch.randn(size.batch, size.num_bases, device="cuda")
        self.to_gram = torch.randn(size.num_bases, size.num_bases, device="cuda")

    def loss(self, x: Tensor, bases: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        products = inner_products(self.kernel, x, bases)
        value = (products.cross * self.to_cross.to(products.cross)).sum() / self.size.batch
        return value + (products.gram * self.to_gram.to(products.gram)).sum(), products.cross, products.gram

    def step(self, loss: Callable[..., tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, ...]:
        value, cross, gram = loss(self.x, self.bases)
        return cross.detach(), gram.detach(), *torch.autograd.grad(value, (self.x, self.bases))

    def reference(self) -> tuple[Tensor, ...]:
        x, bases = self.x.detach().double().requires_grad_(), self.bases.detach().double().requires_grad_()
        with fused.fused_path("off"):
            value, cross, gram = self.loss(x, bases)
            return cross.detach(), gram.detach(), *torch.autograd.grad(value, (x, bases))


def errors(found: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> list[float]:
    return [
        float((ours.double() - theirs).abs().max() / theirs.abs().max())
        for ours, theirs in zip(found, right, strict=True)
    ]


@contextmanager
def fused_calls() -> Iterator[list[int]]:
    """The number of bfloat16 parts in every call of a fused operator, in compiled graphs too."""
    before, seen = fused._tiles, []

    def watched(x: Tensor, bases: Tensor) -> Any:
        tiles = before(x, bases)
        seen.append(tiles.count)
        return tiles

    fused._tiles = watched
    try:
        yield seen
    finally:
        fused._tiles = before


def clock(step: Step, count: int) -> list[float]:
    """Milliseconds of each of some warm steps."""
    for _ in range(3):
        step()
    taken = []
    for _ in range(count):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        taken.append(start.elapsed_time(end))
    return taken


def peak_megabytes(step: Step) -> float:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def device_limits() -> dict[str, float]:
    """Measured: terabytes a second of a copy, and teraflops of a square product in three precisions."""
    a = torch.empty(2**28, device="cuda")
    b = torch.empty_like(a)
    found = {"copy TB/s": 2 * a.numel() * 4 / statistics.median(clock(lambda: b.copy_(a), 10)) / 1e9}
    del a, b
    for name, dtype, tf32 in (
        ("fp32", torch.float32, False), ("tf32", torch.float32, True), ("bf16", torch.bfloat16, False),
    ):  # fmt: skip
        torch.backends.cuda.matmul.allow_tf32 = tf32
        left, right = (torch.randn(8192, 8192, device="cuda", dtype=dtype) for _ in range(2))
        taken = statistics.median(clock(lambda left=left, right=right: left @ right, 5))
        found[f"{name} TFLOP/s"] = 2 * 8192**3 / taken / 1e9
    torch.backends.cuda.matmul.allow_tf32 = False
    return found


def measure(bench: Bench, name: str, mode: str, *, compiled: bool, right: tuple[Tensor, ...], tf32: bool) -> Row:
    row = Row(name)
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        with fused.fused_path(mode):
            torch._dynamo.reset()
            loss = torch.compile(bench.loss, fullgraph=True) if compiled else bench.loss

            def step() -> tuple[Tensor, ...]:
                return bench.step(loss)

            with fused_calls() as parts:
                row.error_cross, row.error_gram, row.error_x, row.error_bases = errors(step(), right)
            if bool(parts) != (mode == "on"):
                raise RuntimeError(f"fused path {mode!r} was asked for; its operators were called {len(parts)} times")
            taken = clock(step, 20)
            row.milliseconds, row.spread = statistics.median(taken), statistics.stdev(taken)
            row.megabytes = peak_megabytes(step)
            row.teraflops = bench.size.plain_flops / row.milliseconds / 1e9
            if parts:
                row.teraflops_done = bench.size.fused_flops(parts[0]) / row.milliseconds / 1e9
    except Exception as error:  # one row that fails is reported, and the others are measured all the same
        traceback.print_exc()
        row.failure = f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    return row


def show(row: Row, limits: dict[str, float], size: Size) -> None:
    if row.failure is not None or row.milliseconds is None:
        print(f"  {row.name:32s} failed: {row.failure}")
        return
    bandwidth = size.fewest_bytes / row.milliseconds / 1e9 / limits["copy TB/s"]
    share = (row.teraflops_done or 0) / limits["bf16 TFLOP/s"]
    print(
        f"  {row.name:32s} {row.milliseconds:8.3f} ms ± {row.spread:.3f}  {row.megabytes:7.0f} MB  "
        f"errors {row.error_cross:.1e} {row.error_gram:.1e} {row.error_x:.1e} {row.error_bases:.1e}  "
        f"{row.teraflops:6.1f} TFLOP/s = {row.teraflops / limits['fp32 TFLOP/s']:.2f} of fp32; "
        f"done in bf16: {share:.2f} of bf16; {bandwidth:.3f} of the copy"
    )


def rows_of(size: Size) -> list[tuple[Bench, str, str, bool, bool]]:
    return [
        (bench, f"{mode} {how}{precision}{', TF32 allowed' if tf32 else ''}", switch, how == "compiled", tf32)
        for bench, precision in ((Bench(size), ""), (Bench(size, torch.bfloat16), ", bf16"))
        for tf32 in (False, True)
        for mode, switch in (("plain", "off"), ("fused", "on"))
        for how in ("eager", "compiled")
    ]


def sweep(size: Size) -> None:
    """Times of the fused step by (parts, features a step, stages)."""
    from gated_domains.layer import fused_tiles

    bench, before = Bench(size), dict(fused_tiles.STEPS)
    right = bench.reference()
    for parts, step, stages in ((3, 32, 3), (3, 32, 4), (3, 64, 2), (2, 32, 4), (2, 64, 2), (2, 64, 3)):
        fused_tiles.STEPS[parts] = (step, stages)
        row = measure(bench, f"{parts} parts, step {step}, stages {stages}", "on",
                      compiled=False, right=right, tf32=parts == 2)  # fmt: skip
        print(f"  {row.name:32s} {row.milliseconds} ms {row.failure or ''}")
        fused_tiles.STEPS.update(before)


def parts_of_a_step(size: Size) -> None:
    """Where the time of a fused step goes, by kernel."""
    bench = Bench(size)
    with fused.fused_path("on"):
        for _ in range(2):
            bench.step(bench.loss)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            bench.step(bench.loss)
            torch.cuda.synchronize()
    for event in sorted(seen.key_averages(), key=lambda event: -event.device_time_total)[:10]:
        print(f"  {event.device_time_total / 1e3:8.3f} ms in {event.count:3d} x {event.key[:80]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    parser.add_argument("--sweep", action="store_true", help="also the fused path by step size and stages")
    parser.add_argument("--parts", action="store_true", help="also the time of each kernel of a fused step")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a CUDA device, and torch sees none")
    machine = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    limits = device_limits()
    print(f"machine: {machine}\nmeasured: " + ", ".join(f"{name} {value:.2f}" for name, value in limits.items()))
    results: dict[str, object] = {"machine": machine, "command": " ".join(["python", *sys.argv]), "limits": limits}
    for size in SIZES:
        print(
            f"{size}: the plain path's products {size.plain_flops / 1e9:.0f} GFLOP; errors of cross, gram, dx, dbases"
        )
        rows = []
        references: dict[Bench, tuple[Tensor, ...]] = {}
        for bench, name, mode, compiled, tf32 in rows_of(size):
            if bench not in references:
                references[bench] = bench.reference()
            rows.append(measure(bench, name, mode, compiled=compiled, right=references[bench], tf32=tf32))
            show(rows[-1], limits, size)
        results[str(size)] = [asdict(row) for row in rows]
        del references
        torch.cuda.empty_cache()
    if arguments.parts:
        parts_of_a_step(SIZES[0])
    if arguments.sweep:
        sweep(SIZES[0])
    if arguments.save:
        path = RESULTS / f"{arguments.save}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(results, indent=1) + "\n")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
