"""What fitting an estimator costs beside scikit-learn's logistic regression: time and memory, in one run.

Every row is fitted in a process of its own, one after the other, on the same made embeddings of several domains; the
peak of memory is that of the process while it fits, with Python, torch and the data themselves in it.

    python benchmarks/estimators.py [--rows 100000] [--columns 1024] [--save estimators_2cpu]
    python benchmarks/estimators.py --beside-busy FEATURES.npz [--rounds 3] [--save estimators_busy_2cpu]

``--beside-busy`` fits ERMClassifier and GDUClassifier to features in a file (``features``, ``labels``), in turns alone
and beside a process that keeps one core busy, and gives the ratio of the two in every round.
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
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

CLASSES, DOMAINS = 10, 4
RESULTS = Path(__file__).parent / "results"


def embeddings(rows: int, columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Classes that lie apart, in domains that are shifted against each other."""
    rng = np.random.default_rng(seed)
    labels, domains = rng.integers(0, CLASSES, rows), rng.integers(0, DOMAINS, rows)
    centres = 0.15 * rng.standard_normal((CLASSES, columns), np.float32)
    shifts = 0.5 * rng.standard_normal((DOMAINS, columns), np.float32)
    values = np.empty((rows, columns), np.float32)
    for start in range(0, rows, 4096):
        part = slice(start, min(start + 4096, rows))
        noise = rng.standard_normal((part.stop - start, columns), np.float32)
        values[part] = centres[labels[part]] + shifts[domains[part]] + noise
    return values, labels


def estimators(bases: int) -> dict[str, Callable[[], Any]]:
    """What is fitted, by name."""
    from sklearn.linear_model import LogisticRegression

    from gated_domains import ERMClassifier, GDUClassifier

    return {
        "LogisticRegression(saga, max_iter=20)": lambda: LogisticRegression(solver="saga", max_iter=20),
        "ERMClassifier": lambda: ERMClassifier(random_state=0),
        f"GDUClassifier(num_bases={bases})": lambda: GDUClassifier(num_bases=bases, random_state=0),
        f"GDUClassifier(num_bases={bases}, learn_bases=True)": lambda: GDUClassifier(
            num_bases=bases, learn_bases=True, random_state=0
        ),
        "GDUClassifier()": lambda: GDUClassifier(random_state=0),
    }


def fit_one(name: str, folder: Path, bases: int) -> dict[str, float]:
    """Fit one of them to what lies in a folder."""
    import resource
    import warnings

    warnings.simplefilter("ignore")
    made = estimators(bases)[name]()  # imports come before the clock starts
    values, labels = np.load(folder / "X.npy"), np.load(folder / "y.npy")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    start = time.perf_counter()
    made.fit(values, labels)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    some = slice(0, 5_000)
    return {
        "seconds": seconds,
        "peak": peak,
        "grown": peak - before,
        "data": float(values.nbytes),
        "score": float(made.score(values[some], labels[some])),
    }


BUSY = "while True: pass"


def beside_busy(path: Path, rounds: int) -> dict[str, Any]:
    """Seconds of fits alone and beside a process that keeps a core busy, in turns, and the load when each began."""
    from gated_domains import ERMClassifier, GDUClassifier

    with np.load(path) as file:
        values, labels = file["features"], file["labels"]
    found: dict[str, Any] = {}
    for kind in (ERMClassifier, GDUClassifier):
        kind(random_state=0, epochs=1).fit(values, labels)  # what is done once in a process is done before the clock
        found[kind.__name__] = []
        for _ in range(rounds):
            row: dict[str, float] = {"load": os.getloadavg()[0]}
            row["alone"], row["alone_cpu"] = fit_seconds(kind, values, labels)
            with subprocess.Popen([sys.executable, "-c", BUSY]) as busy:
                row["busy"], row["busy_cpu"] = fit_seconds(kind, values, labels)
                busy.kill()
            found[kind.__name__].append(row)
            print(
                f"{kind.__name__}: {row['alone']:.1f} s alone, {row['busy']:.1f} s beside a busy process, "
                f"{row['busy'] / row['alone']:.2f} x (load average {row['load']:.1f})",
                flush=True,
            )
    return found


def fit_seconds(kind: Any, values: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Seconds of a fit by the clock, and of all cores together."""
    start, worked = time.perf_counter(), time.process_time()
    kind(random_state=0).fit(values, labels)
    return time.perf_counter() - start, time.process_time() - worked


def shown(found: dict[str, dict[str, float]]) -> str:
    """The table."""
    base = next(iter(found.values()))["seconds"]
    lines = ["| | s | against saga | peak of the process / data | grown while fitting / data | accuracy (seen) |"]
    lines.append("|---|---|---|---|---|---|")
    for name, row in found.items():
        lines.append(
            f"| `{name}` | {row['seconds']:.1f} | {row['seconds'] / base:.2f} x | {row['peak'] / row['data']:.2f} x | "
            f"{row['grown'] / row['data']:.2f} x | {100 * row['score']:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=1_024)
    parser.add_argument("--bases", type=int, default=10)
    parser.add_argument("--beside-busy", type=Path, metavar="FEATURES", help="measure beside a busy process instead")
    parser.add_argument("--rounds", type=int, default=3, help="of --beside-busy")
    parser.add_argument("--save", help="name of a file under results/")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(fit_one(chosen.one[0], Path(chosen.one[1]), chosen.bases)))
        return
    if chosen.beside_busy:
        measured = beside_busy(chosen.beside_busy, chosen.rounds)
        if chosen.save:
            machine = f"{os.cpu_count()} CPU cores, {platform.platform()}, torch {version('torch')}"
            command = " ".join(["python benchmarks/estimators.py", *sys.argv[1:]])
            said = {"machine": machine, "command": command, **measured}
            RESULTS.joinpath(f"{chosen.save}.json").write_text(json.dumps(said, indent=1) + "\n")
        return
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as place:
        values, labels = embeddings(chosen.rows, chosen.columns)
        np.save(Path(place) / "X.npy", values)
        np.save(Path(place) / "y.npy", labels)
        print(f"{chosen.rows:,} x {chosen.columns:,} in float32, {CLASSES} classes, {platform.processor() or 'CPU'}")
        for name in estimators(chosen.bases):
            command = [sys.executable, __file__, "--bases", str(chosen.bases), "--one", name, place]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found[name] = json.loads(done.stdout.splitlines()[-1])
            print(f"{name}: {found[name]['seconds']:.1f} s", flush=True)
    print(shown(found))
    if chosen.save:
        RESULTS.joinpath(f"{chosen.save}.json").write_text(json.dumps({"arguments": vars(chosen), **found}, indent=1))


if __name__ == "__main__":
    main()
