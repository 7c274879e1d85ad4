"""What the page costs: from 30 run folders to 2,000, in one run, reading and drawing apart.

    python benchmarks/report.py                   # the table
    python benchmarks/report.py --out FILE        # and as JSON

Run folders are made up (20 hold-outs, 10 methods, 10 seeds; 1,000 predictions and 20 epochs each), with the files that
a training leaves, a few of them unfinished or damaged. Ratios are to the smallest; seconds are those of this machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from gated_domains.reports.page import write_page
from gated_domains.runs.collection import gather
from gated_domains.runs.result import RunResult

METHODS = ("erm", "gdu", "linear", "coral", "irm", "group-dro", "fish", "lisa", "cgd", "arm-bn")
ROWS, CLASSES, BASES, EPOCHS = 1_000, 10, 5, 20


@dataclass(frozen=True)
class Result:
    runs: int
    reading: float
    page: float
    figures: float
    megabytes: float
    left_out: int


def make_runs(root: Path, hold_outs: int, methods: int, seeds: int) -> None:
    names = [f"hospital {place}" for place in range(hold_outs)]
    chance = np.random.default_rng(0)
    for hold_out in names:
        for method in METHODS[:methods]:
            for seed in range(seeds):
                make_run(root / f"{method}-{hold_out}-{seed}", method, hold_out, seed, names, chance)
    for number in range(max(1, hold_outs // 4)):
        (root / f"cut-{number}").mkdir()
        (root / f"cut-{number}" / "run.json").write_text("{}", encoding="utf-8")
        (root / f"torn-{number}").mkdir()
        (root / f"torn-{number}" / "result.json").write_text('{"format": 1, "run', encoding="utf-8")


def make_run(
    folder: Path, method: str, hold_out: str, seed: int, names: list[str], chance: np.random.Generator
) -> None:
    folder.mkdir(parents=True)
    score = float(0.7 + 0.1 * chance.random())
    result = RunResult(
        run=folder.name, data="made", method=method, label=method.upper(), seed=seed, hold_out=hold_out,
        held_out=(hold_out,), sources=tuple(name for name in names if name != hold_out), metric="accuracy",
        higher_is_better=True, test={hold_out: score}, validation={}, validation_overall=score + 0.1,
        selection="source validation accuracy", protocol="leave one domain out", best_epoch=EPOCHS - 1, epochs=EPOCHS,
        stopped="all epochs", seconds=10.0, parameters_trained=1_000, parameters_all=1_000, uses_domains=False,
        domain_names=tuple(names),
    )  # fmt: skip
    (folder / "result.json").write_text(json.dumps(result.to_json()), encoding="utf-8")
    (folder / "run.json").write_text(json.dumps({"format": 1, "recipe": {"method": method}}), encoding="utf-8")
    classes = {"schema": {"class_names": [str(number) for number in range(CLASSES)]}}
    (folder / "model.json").write_text(json.dumps(classes), encoding="utf-8")
    gated = {"gate_entropy": 0.8, "srip": 0.5, "beta_std": 0.2, "coverage": 0.7} if method == "gdu" else {}
    lines = [
        {"epoch": epoch, "step": epoch, "train": {"task": 1 / (1 + epoch)}, "selection": score, "measures": gated}
        for epoch in range(EPOCHS)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    arrays = {
        "part": np.repeat(np.array([0, 1], np.uint8), ROWS // 2),
        "targets": chance.integers(CLASSES, size=ROWS),
        "domains": chance.integers(len(names), size=ROWS),
        "output": chance.dirichlet(np.ones(CLASSES), ROWS).astype(np.float32),
    }
    if method == "gdu":
        arrays["beta"] = chance.dirichlet(np.ones(BASES), ROWS).astype(np.float32)
        arrays["coverage"] = chance.random(ROWS, dtype=np.float32)
    np.savez(folder / "predictions.npz", **arrays)


def measure(hold_outs: int, methods: int, seeds: int) -> Result:
    with tempfile.TemporaryDirectory() as place:
        root, page = Path(place, "runs"), Path(place, "report.html")
        make_runs(root, hold_outs, methods, seeds)
        began = time.perf_counter()
        gathered = gather([root])
        reading = time.perf_counter() - began
        written = write_page(gathered, page, kinds=())
        built = time.perf_counter() - began - reading
        began = time.perf_counter()
        write_page(gather([root]), page)
        figures = time.perf_counter() - began - built - reading
        size = written[0].stat().st_size / 1e6
        return Result(hold_outs * methods * seeds, reading, built, figures, size, len(gathered.broken))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    measure(2, 2, 2)  # imports, and plotly's code packed once
    results = [measure(5, 3, 2), measure(10, 6, 5), measure(20, 10, 10)]
    table = Table(title=f"the page, on {platform.processor() or platform.machine()}")
    for name in ("runs", "reading", "page", "svg, png, pdf", "to the smallest", "MB", "left out"):
        table.add_column(name, justify="right")
    for result in results:
        whole, least = (found.reading + found.page for found in (result, results[0]))
        table.add_row(
            f"{result.runs:,}", f"{result.reading:.1f} s", f"{result.page:.1f} s", f"{result.figures:.1f} s",
            f"{whole / least:.1f} x", f"{result.megabytes:.1f}", str(result.left_out),
        )  # fmt: skip
    Console().print(table)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps([asdict(result) for result in results], indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
