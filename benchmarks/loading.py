"""What loading costs: a large CSV beside pandas, a folder of images beside a plain loop over PIL, in one run.

    python benchmarks/loading.py                  # the table
    python benchmarks/loading.py --out FILE       # and as JSON

Writes the files to a temporary folder first (200,000 rows with 50 columns, 10,000 images of 64 pixels). Times are the
best of rounds in which the rivals take turns. Memory is the peak of a process of its own that loads once, above what
the same process needs to import its libraries (Linux), also relative to the bytes that are in memory in the end.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

ROWS, FLOATS, WHOLES = 200_000, 40, 6  # and two columns of names, the target, the domain: 50
DOMAINS, CLASSES, SIDE = 4, 5, 64
GOAL = 3.0


@dataclass(frozen=True)
class Result:
    name: str
    seconds: float
    ratio: float
    peak_mb: float
    data_mb: float


# -- files -----------------------------------------------------------------------------------------------------------


def write_table(path: Path, rows: int) -> None:
    import pyarrow as pa
    from pyarrow import csv

    chance = np.random.default_rng(0)

    def with_gaps(values: np.ndarray) -> pa.Array:
        return pa.array(values, mask=chance.random(rows) < 0.01)

    columns = {f"x{place}": with_gaps(chance.normal(size=rows).round(6)) for place in range(FLOATS)}
    columns |= {f"n{place}": with_gaps(chance.integers(1_000, size=rows)) for place in range(WHOLES)}
    columns["colour"] = with_gaps(np.array(["red", "green", "blue"])[chance.integers(3, size=rows)])
    columns["ward"] = with_gaps(np.array([f"ward {place}" for place in range(40)])[chance.integers(40, size=rows)])
    columns["site"] = pa.array(np.array(["north", "east", "south", "west"])[chance.integers(DOMAINS, size=rows)])
    columns["y"] = pa.array(chance.integers(CLASSES, size=rows))
    csv.write_csv(pa.table(columns), path)


def write_images(root: Path, count: int) -> None:
    from PIL import Image

    chance = np.random.default_rng(0)
    ramp = np.linspace(0, 200, SIDE)[:, None, None] * np.ones((1, SIDE, 3))
    for number in range(count):
        folder = root / f"domain {number % DOMAINS}" / f"class {number // DOMAINS % CLASSES}"
        folder.mkdir(parents=True, exist_ok=True)
        noisy = ramp + chance.integers(0, 56, size=(SIDE, SIDE, 3))
        Image.fromarray(noisy.astype(np.uint8)).save(folder / f"{number:05}.png", compress_level=1)


# -- the rivals ------------------------------------------------------------------------------------------------------


def table_by_pandas(folder: Path) -> Any:
    import pandas as pd

    return pd.read_csv(folder / "table.csv")


def table_by_ours(folder: Path) -> Any:
    from gated_domains.data import Reading, load_data

    return load_data(folder / "table.csv", Reading(target="y", domain="site"))


def images_by_pil(folder: Path) -> Any:
    from PIL import Image

    images = []
    for path in sorted((folder / "images").glob("*/*/*.png")):
        with Image.open(path) as image:
            images.append(np.asarray(image.convert("RGB")))
    return images


def images_by_ours(folder: Path) -> Any:
    from gated_domains.data import load_data

    return load_data(folder / "images")


RIVALS: dict[str, dict[str, Callable[[Path], Any]]] = {
    "table": {"pandas.read_csv": table_by_pandas, "load_data, a table": table_by_ours},
    "images": {"a loop over PIL": images_by_pil, "load_data, a folder": images_by_ours},
}


def best_times(rivals: dict[str, Callable[[Path], Any]], folder: Path, *, rounds: int) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(rounds):
        for name, load in rivals.items():
            begin = time.perf_counter()
            load(folder)
            taken[name].append(time.perf_counter() - begin)
    return {name: min(times) for name, times in taken.items()}


# -- memory ----------------------------------------------------------------------------------------------------------


def in_memory(loaded: Any) -> int:
    """Bytes of what was loaded."""
    if isinstance(loaded, list):
        return sum(image.nbytes for image in loaded)
    if hasattr(loaded, "memory_usage"):
        return int(loaded.memory_usage(deep=True).sum())
    return int(loaded.inputs.nbytes + loaded.targets.nbytes + loaded.domains.nbytes)


def peak_of_this_process(kind: str, name: str, folder: Path, *, load: bool) -> tuple[float, float]:
    """Peak resident megabytes, and megabytes of the data; without loading, what the libraries need."""
    import pandas  # noqa: F401
    import PIL.Image
    import pyarrow.csv  # noqa: F401

    import gated_domains.data.loading  # noqa: F401

    PIL.Image.preinit()
    data = in_memory(RIVALS[kind][name](folder)) if load else 0
    # Not getrusage: there a process starts with the peak of the one that started it.
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(float(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return peak / 1024, data / 2**20


def memory(kind: str, name: str, folder: Path) -> tuple[float, float]:
    def measured(*more: str) -> tuple[float, float]:
        command = [sys.executable, __file__, "--folder", str(folder), "--memory-of", kind, name, *more]
        return tuple(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))

    peak, data = measured()
    return peak - measured("--import-only")[0], data


# -- the table -------------------------------------------------------------------------------------------------------


def measure(kind: str, folder: Path, *, rounds: int) -> list[Result]:
    times = best_times(RIVALS[kind], folder, rounds=rounds)
    rival = next(iter(times.values()))
    return [Result(name, taken, taken / rival, *memory(kind, name, folder)) for name, taken in times.items()]


def show(console: Console, title: str, results: list[Result]) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    for heading in ("seconds", "ratio", "peak MB", "data MB", "peak / data"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in results:
        table.add_row(
            row.name,
            f"{row.seconds:.2f}",
            f"{row.ratio:.2f} x",
            f"{row.peak_mb:.0f}",
            f"{row.data_mb:.0f}",
            f"{row.peak_mb / row.data_mb:.1f} x",
        )
    console.print(table)


def machine() -> str:
    versions = ", ".join(f"{name} {__import__(name).__version__}" for name in ("numpy", "pandas", "pyarrow", "PIL"))
    return f"{len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, {versions}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the CSV (%(default)s)")
    parser.add_argument("--images", type=int, default=10_000, help="images in the folder (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="also write the results to this file, as JSON")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--import-only", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        print(json.dumps(peak_of_this_process(*arguments.memory_of, arguments.folder, load=not arguments.import_only)))
        return

    console = Console(width=100)
    console.print(f"machine: {machine()}")
    with tempfile.TemporaryDirectory(prefix="gated-domains-loading-") as name:
        folder = Path(name)
        write_table(folder / "table.csv", arguments.rows)
        write_images(folder / "images", arguments.images)
        size = (folder / "table.csv").stat().st_size / 2**20
        titles = {
            "table": f"CSV, {arguments.rows:,} rows, 50 columns, {size:.0f} MB",
            "images": f"{arguments.images:,} PNG images of {SIDE} x {SIDE} in domain/class folders",
        }
        results = {kind: measure(kind, folder, rounds=arguments.rounds) for kind in RIVALS}
    for kind, rows in results.items():
        show(console, titles[kind], rows)
    slowest = max(rows[-1].ratio for rows in results.values())
    console.print(f"slowest against its rival: {slowest:.2f} x (goal: at most {GOAL:.0f} x)")
    if arguments.out:
        said = {"machine": machine(), "command": " ".join(["python", *sys.argv])}
        said |= {titles[kind]: [asdict(row) for row in rows] for kind, rows in results.items()}
        arguments.out.write_text(json.dumps(said, indent=1) + "\n")
        console.print(f"written: {arguments.out}")


if __name__ == "__main__":
    main()
