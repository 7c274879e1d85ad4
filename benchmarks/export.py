"""What an exported model costs: a batch of digits in onnxruntime, beside torch eager and the torch.export program.

    python benchmarks/export.py                 # the table, all rows measured in this one run
    python benchmarks/export.py --run RUN       # of a run there is, instead of one trained here
    python benchmarks/export.py --out FILE      # and as JSON

Trains a gated model on the embedded digits for one epoch, exports it to ONNX, and compares the outputs on real digits
at every batch size before it takes a time. Eager is what `predict` does with a batch: encoding and the network. All
three have the same threads; times are medians over rounds in which they take turns. Needs 'gated-domains[onnx]'.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from gated_domains.data.loading import load_data
from gated_domains.experiments.recipe_checks import choose_method, default_training
from gated_domains.experiments.runner import Runner
from gated_domains.export.examples import Arrays, drawn
from gated_domains.export.exporting import export_model, subject_of
from gated_domains.export.feeds import feeds_of
from gated_domains.export.graph import Served, traced
from gated_domains.export.onnx_file import Session
from gated_domains.export.parity import as_trained, differences
from gated_domains.export.subject import Subject
from gated_domains.export.torch_file import run_program
from gated_domains.runs.recipe import DataSettings, Recipe
from gated_domains.training.engine import Hardware

SIZES = (1, 7, 512)
OUTPUTS = ("prediction", "beta", "novelty", "coverage")


@dataclass(frozen=True)
class Row:
    batch: int
    way: str
    milliseconds: float
    ratio: float
    """Of torch eager's time in the same run."""
    difference: float
    """The largest, of any output, from torch eager's."""


def train_digits(root: Path) -> Path:
    """The folder of a short run."""
    dataset = load_data("digits")
    recipe = Recipe(
        data=DataSettings(what="digits"),
        training=default_training(dataset, {"epochs": 1}),
        method=choose_method("gdu"),
        hold_out=None,
    )
    return Runner(dataset, root, hardware=Hardware(device="cpu")).run(recipe).path


def ways(subject: Subject, onnx: Path, *, threads: int) -> dict[str, Callable[[Arrays], Arrays]]:
    """Each way to predict, as a function of a batch."""
    feeds = feeds_of(subject.schema.encoding)
    program = traced(Served(subject), drawn(subject, 5), feeds=feeds)
    return {
        "torch eager": lambda inputs: as_trained(subject, inputs),
        "torch.export": run_program(program, OUTPUTS),
        "onnxruntime": Session(onnx.read_bytes(), threads=threads),
    }


def measure(subject: Subject, found: dict[str, Callable[[Arrays], Arrays]], images: np.ndarray) -> list[Row]:
    """A row for every batch size and way."""
    rows = []
    for size in SIZES:
        inputs = {"images": images[:size]}
        apart = {way: max(differences(subject, run, inputs).values()) for way, run in found.items()}
        rounds = 15 if size > 100 else 100
        times: dict[str, list[float]] = {way: [] for way in found}
        for number in range(rounds + 3):
            for way, run in found.items():
                start = time.perf_counter()
                run(inputs)
                if number >= 3:  # the first ones find memory and choose kernels
                    times[way].append(1e3 * (time.perf_counter() - start))
        usual = {way: statistics.median(taken) for way, taken in times.items()}
        rows += [Row(size, way, usual[way], usual[way] / usual["torch eager"], apart[way]) for way in found]
    return rows


def show(rows: list[Row], *, threads: int) -> None:
    """The table."""
    table = Table("batch", "", box=None, header_style="bold", pad_edge=False)
    for heading in ("ms a batch", "of torch eager", "largest difference"):
        table.add_column(heading, justify="right")
    for row in rows:
        cells = (f"{row.milliseconds:.2f}", f"{row.ratio:.2f}", f"{row.difference:.1e}")
        table.add_row(str(row.batch) if row.way == "torch eager" else "", row.way, *cells)
    console = Console()
    console.print(table)
    console.print(f"{threads} threads, torch {torch.__version__}, {platform.machine()}", highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="the folder of a run on images; else one is trained")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    chosen = parser.parse_args()
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        run = chosen.run or train_digits(Path(folder) / "runs")
        onnx = export_model(run, Path(folder) / "model.onnx", say=print).path
        subject = subject_of(run, gates=None)
        inputs = load_data("digits").inputs
        images = inputs.read(np.random.default_rng(0).choice(len(inputs), max(SIZES), replace=False))
        rows = measure(subject, ways(subject, onnx, threads=threads), images)
    show(rows, threads=threads)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
