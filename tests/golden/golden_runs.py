"""Golden runs: what representative trainings, predictions and reports give, recorded to compare later code with.

    python tests/golden/golden_runs.py            # run all cases and compare them with golden.json
    python tests/golden/golden_runs.py --record   # run all cases and write golden.json

Every case goes through the command line or the estimators. On the machine and with the packages that the record was
made with, weights and predictions must be identical to the bit; elsewhere scores must agree to 1e-4. Cases whose data
or packages are missing are left out.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import lzma
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).with_name("golden.json")
SHARED = Path(__file__).parents[3] / "shared" / "data"
HEART = SHARED / "heart_disease_4hospitals.csv"
REVIEWS = SHARED / "fdu_mtl_16domains_labelled.tar.xz"
MOLECULES = SHARED / "mol_hiv41127.csv.xz"
HEART_OPTIONS = ("--target", "num", "--domain", "hospital", "--positive", "1,2,3,4")
TOLERANCE = 1e-4
_NOT_COMPARED = ("seconds", "memory", "minutes", "hour", "run")  # parts of the names of columns and fields

Facts = dict[str, Any]


def commands(*arguments: object, check: bool = True) -> str:
    """Run the command line in a new process; its standard output."""
    done = subprocess.run(_command(*arguments), capture_output=True, text=True, env=_environment(), check=False)
    if check and done.returncode not in (0, 3):
        raise RuntimeError(f"{' '.join(map(str, arguments))} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "gated_domains", *map(str, arguments)]


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "120"}


# Cases. Each gets a folder of its own and returns facts; numbers are compared, "sha256 ..." only where bits must agree.


def digits(folder: Path) -> Facts:
    methods = (
        "erm,gdu,recommended,fish,arm-bn,erm[swad=true],erm[ema=0.99,mixstyle=0.5],linear,erm-ensemble[heads=2],ensemble[members=2],"
        "gdu-paper[mode=fine_tune],gdu-paper"
    )
    return _compared(folder, "digits", "--fraction", 0.05, "--hold-out", "street", "--methods", methods, "--epochs", 2)


def table(folder: Path) -> Facts:
    methods = "gdu,erm,linear,coral,group-dro,irm,lisa,cgd,gdu[gates=constant]"
    options = ("--hold-out", "cleveland,va", "--epochs", 4, "--score-by", "class")
    return _compared(folder, HEART, *HEART_OPTIONS, "--methods", methods, *options)


def workers(folder: Path) -> Facts:
    """Two worker processes make what one process makes."""
    options = ("--methods", "gdu,erm,linear", "--hold-out", "cleveland,va", "--epochs", 4)
    one = _compared(folder / "one", HEART, *HEART_OPTIONS, *options)
    two = _compared(folder / "two", HEART, *HEART_OPTIONS, *options, processes=2)
    if one != two:
        raise AssertionError("two workers give other results than one process")
    return two


def regression(folder: Path) -> Facts:
    options = ("--target", "chol", "--domain", "hospital", "--task", "regression", "--hold-out", "va", "--epochs", 4)
    return _compared(folder, HEART, *options, "--drop-missing-target", "--methods", "gdu,erm")


def text(folder: Path) -> Facts:
    options = ("--fraction", 0.1, "--hold-out", "books", "--methods", "gdu,erm", "--epochs", 2)
    return _compared(folder, REVIEWS, *options)


def molecules(folder: Path) -> Facts:
    """Some molecules, the active ones among them, in domains by the length of their formula."""
    with lzma.open(MOLECULES, "rt", encoding="utf-8") as file:
        rows = [row for number, row in enumerate(csv.DictReader(file)) if row["ACTIVE"] == "1" or number % 80 == 0]
    path = folder / "molecules.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["SMILES", "ACTIVE", "size"])
        for row in rows[::2]:
            size = "small" if len(row["SMILES"]) < 35 else "medium" if len(row["SMILES"]) < 55 else "large"
            writer.writerow([row["SMILES"], row["ACTIVE"], size])
    options = ("--smiles", "SMILES", "--target", "ACTIVE", "--domain", "size", "--hold-out", "large", "--epochs", 2)
    fingerprints = _compared(folder / "fingerprints", path, *options, "--methods", "gdu,erm")
    graphs = _compared(folder / "graphs", path, *options, "--as", "graphs", "--methods", "erm", "--fraction", 0.2)
    return {"fingerprints": fingerprints, "graphs": graphs}


def tuned(folder: Path) -> Facts:
    options = ("--hold-out", "cleveland", "--methods", "erm", "--tune", 3, "--epochs", 3)
    facts = _compared(folder, HEART, *HEART_OPTIONS, *options)
    (search,) = json.loads((folder / "tuning.json").read_text())["searches"]
    facts["tuning"] = {"chosen": search["chosen"], "scores": [trial["score"] for trial in search["trials"]]}
    return facts


def left_out_sources(folder: Path) -> Facts:
    options = ("--hold-out", "cleveland", "--methods", "erm", "--epochs", 3, "--selection", "leave_one_source_out")
    return _compared(folder, HEART, *HEART_OPTIONS, *options)


def resumed(folder: Path) -> Facts:
    """A training that is killed after its first epoch and resumed gives what an uninterrupted one gives."""
    options = ("--hold-out", "street", "--fraction", 0.05, "--method", "gdu[ema=0.99]", "--epochs", 3, "--seed", 1)
    commands("train", "digits", *options, "--out", folder / "whole")
    arguments = ("train", "digits", *options, "--checkpoint-seconds", 0, "--out", folder / "killed")
    process = subprocess.Popen(_command(*arguments), env=_environment(), stdout=subprocess.DEVNULL)
    while process.poll() is None and not any((folder / "killed").glob("*/metrics.jsonl")):
        time.sleep(0.01)
    process.kill()
    process.wait()
    commands(*arguments)
    whole, again = _runs(folder / "whole"), _runs(folder / "killed")
    if whole != again:
        raise AssertionError("a resumed training gives other results than an uninterrupted one")
    return again


def model_commands(folder: Path) -> Facts:
    """What predict, evaluate, shift, doctor and export make of one trained model."""
    heart = _without(folder, "va")
    commands("train", heart, *HEART_OPTIONS, "--epochs", 10, "--out", folder / "runs")
    (run,) = [path.parent for path in (folder / "runs").glob("*/result.json")]
    commands("predict", run, HEART, "--out", folder / "predictions.csv")
    facts: Facts = {
        "predict": _table(folder / "predictions.csv"),
        "evaluate": _json(commands("evaluate", run, HEART, "--target", "num", "--domain", "hospital", "--json")),
        "shift": _json(commands("shift", run, HEART, "--no-page", "--json")),
        "doctor": _json(commands("doctor", run, "--json")),
    }
    if find_spec("onnxruntime"):
        commands("export", run, "--out", folder / "model.onnx")
        commands("predict", folder / "model.onnx", HEART, "--out", folder / "onnx.csv")
        facts["onnx"] = _table(folder / "onnx.csv")
    return facts


def estimators(folder: Path) -> Facts:
    from sklearn.datasets import load_breast_cancer, load_diabetes

    from gated_domains import ERMClassifier, GDUClassifier, GDURegressor, load_estimator

    x, y = load_breast_cancer(return_X_y=True)
    facts: Facts = {}
    for name, estimator in {
        "classifier": GDUClassifier(random_state=0),
        "adam": GDUClassifier(random_state=0, solver="adam", max_iter=5),
        "erm": ERMClassifier(random_state=0),
    }.items():
        fitted = estimator.fit(x, y)
        facts[name] = _array(fitted.predict_proba(x))
    fitted.save(folder / "saved")
    facts["loaded"] = _array(load_estimator(folder / "saved").predict_proba(x))
    x, y = load_diabetes(return_X_y=True)
    facts["regressor"] = _array(GDURegressor(random_state=0).fit(x, y).predict(x))
    return facts


CASES: dict[str, Callable[[Path], Facts]] = {
    case.__name__: case
    for case in (digits, table, workers, regression, text, molecules, tuned, left_out_sources, resumed, model_commands)
} | {"estimators": estimators}


def unavailable(name: str) -> str | None:
    """Why a case cannot be run here; None if it can."""
    needs = {"digits": None, "resumed": None, "estimators": None, "text": REVIEWS, "molecules": MOLECULES}
    data = needs.get(name, HEART)
    if data is not None and not data.is_file():
        return f"{data.name} is not in ../shared/data"
    return "RDKit is not installed" if name == "molecules" and not find_spec("rdkit") else None


# Collecting facts.


def _compared(folder: Path, *arguments: object, processes: int = 1) -> Facts:
    fixed = ("--workers", processes, "--seeds", 1, "--no-report", "--out", folder)
    commands("compare", *arguments, *fixed)
    return {"runs": _runs(folder), "table": _table(folder / "table.csv")}


def _runs(folder: Path) -> Facts:
    """The result, weights and predictions of every run in a folder, by label, hold-out and seed."""
    found = {}
    for path in folder.glob("*/result.json"):
        result = json.loads(path.read_text())
        validated = json.loads((path.parent / "run.json").read_text())["recipe"]["validation_domain"]
        key = ", ".join(map(str, (result["label"], result["hold_out"], result["seed"], validated)))
        with np.load(path.parent / "predictions.npz", allow_pickle=False) as kept:
            predictions = {name: _array(kept[name]) for name in sorted(kept.files)}
        lines = (path.parent / "metrics.jsonl").read_text().splitlines() if _has_metrics(path.parent) else []
        digest = json.loads((path.parent / "model.json").read_text())["sha256"]
        while key in found:  # trials of a search share their label
            key += "'"
        found[key] = {
            "sha256 weights": digest,
            "result": _comparable(result),
            "predictions": predictions,
            "epochs": [_comparable(json.loads(line)) for line in lines],
        }
    ordered = sorted(found.items(), key=lambda item: (item[0].rstrip("'"), item[1]["sha256 weights"]))
    return {str(number) + " " + key.rstrip("'"): facts for number, (key, facts) in enumerate(ordered)}


def _has_metrics(run: Path) -> bool:
    return (run / "metrics.jsonl").exists()


def _without(folder: Path, hospital: str) -> Path:
    """The heart data without one hospital."""
    path = folder / "sources.csv"
    lines = HEART.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if f"{hospital}," not in line and f",{hospital}" not in line))
    return path


def _table(path: Path) -> Facts:
    """A CSV file: text as it is, columns of numbers with their digest."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if not _left_out(name)]
    return {name: _column([row[name] for row in rows]) for name in names}


def _column(cells: list[str]) -> Any:
    try:
        return _array(np.array([float(cell) if cell else np.nan for cell in cells]))
    except ValueError:
        return "sha256 " + hashlib.sha256("\n".join(cells).encode()).hexdigest()


def _array(values: Any) -> Facts:
    """An array: its digest, its shape, and numbers that show a change of values or of their order."""
    array = np.ascontiguousarray(values)
    if array.dtype.kind not in "biuf":
        return {"sha256": hashlib.sha256(repr(array.tolist()).encode()).hexdigest()}
    numbers = array.astype(float).ravel()
    finite = np.where(np.isfinite(numbers), numbers, 0.0)
    weights = np.cos(np.arange(finite.size))
    scale = max(1, finite.size)
    return {
        "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
        "shape": list(array.shape),
        "mean": float(finite.sum() / scale),
        "weighted": float(finite @ weights / scale),
        "missing": int((~np.isfinite(numbers)).sum()),
    }


def _json(text: str) -> Any:
    return _comparable(json.loads(text))


def _comparable(fields: Any) -> Any:
    """Numbers alone: no wording, no names of runs and folders, no times and memory."""
    if isinstance(fields, dict):
        kept = {name: _comparable(value) for name, value in fields.items() if not _left_out(name)}
        return {name: value for name, value in kept.items() if not isinstance(value, str)}
    if isinstance(fields, list):
        return [_comparable(value) for value in fields if not isinstance(value, str)]
    return fields


def _left_out(name: str) -> bool:
    return any(part in name.lower() for part in _NOT_COMPARED) or name in ("path", "folder", "model", "file", "version")


# Comparing.


def machine() -> Facts:
    """What bits depend on."""
    import sklearn
    import torch

    cpu = next((line for line in _cpu_lines() if line.startswith("model name")), platform.processor())
    versions = {"torch": torch.__version__, "numpy": np.__version__, "scikit-learn": sklearn.__version__}
    return {"cpu": cpu.partition(":")[2].strip(), "python": platform.python_version(), **versions}


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def differences(expected: Any, found: Any, *, exact: bool, where: str = "") -> list[str]:
    """Where the facts of a case differ from those recorded, in words."""
    if isinstance(expected, dict) and isinstance(found, dict):
        missing = [f"{where}/{name} is missing" for name in expected if name not in found]
        missing += [f"{where}/{name} is new" for name in found if name not in expected]
        shared = [name for name in expected if name in found]
        nested = [differences(expected[name], found[name], exact=exact, where=f"{where}/{name}") for name in shared]
        return missing + [line for lines in nested for line in lines]
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return [f"{where}: {len(found)} entries instead of {len(expected)}"]
        pairs = enumerate(zip(expected, found, strict=True))
        nested = [differences(old, new, exact=exact, where=f"{where}/{index}") for index, (old, new) in pairs]
        return [line for lines in nested for line in lines]
    if "sha256" in where:
        return [f"{where}: not identical to the bit"] if exact and expected != found else []
    if isinstance(expected, int | float) and isinstance(found, int | float):
        tolerance = 0.0 if exact else TOLERANCE * max(1.0, abs(expected))
        close = expected == found or math.isclose(expected, found, rel_tol=0.0, abs_tol=tolerance)
        return [] if close else [f"{where}: {found} instead of {expected}"]
    return [] if expected == found else [f"{where}: {found!r} instead of {expected!r}"]


def collect(name: str) -> Facts:
    with tempfile.TemporaryDirectory() as folder:
        facts = CASES[name](Path(folder))
    return json.loads(json.dumps(facts))  # tuples and numpy's numbers as they are read again


def _written(golden: Facts) -> str:
    """JSON with a line for each run, so that a difference can be read."""
    lines = []
    for case, facts in sorted(golden["cases"].items()):
        parts = [f"  {json.dumps(name)}: {json.dumps(value, sort_keys=True)}" for name, value in facts.items()]
        lines.append(f" {json.dumps(case)}: {{\n" + ",\n".join(parts) + "\n }")
    return f'{{"machine": {json.dumps(golden["machine"])},\n"cases": {{\n' + ",\n".join(lines) + "\n}}\n"


def compare_with_record(name: str) -> list[str]:
    """Run a case; where it differs from the record, in words. Bits are compared on the machine of the record alone."""
    golden = json.loads(GOLDEN.read_text())
    expected = golden["cases"][name]
    if "onnx" in expected and not find_spec("onnxruntime"):
        del expected["onnx"]
    return differences(expected, collect(name), exact=golden["machine"] == machine(), where=name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write golden.json instead of comparing with it")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all by default")
    chosen = parser.parse_args()
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {"machine": machine(), "cases": {}}
    agrees = "identical" if golden["machine"] == machine() else f"agrees to {TOLERANCE:g}"
    failed = False
    for name in chosen.cases or CASES:
        if why := unavailable(name):
            print(f"{name}: left out, {why}")
            continue
        began = time.monotonic()
        wrong: list[str] = []
        if chosen.record:
            golden["cases"][name] = collect(name)
            verdict = "recorded"
        else:
            wrong = compare_with_record(name)
            verdict = f"{len(wrong)} differences" if wrong else agrees
        failed = failed or bool(wrong)
        print("\n".join([f"{name}: {verdict} ({time.monotonic() - began:.0f} s)", *wrong[:20]]), flush=True)
    if chosen.record:
        GOLDEN.write_text(_written({**golden, "machine": machine()}))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
