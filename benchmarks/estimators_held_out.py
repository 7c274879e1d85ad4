"""Estimators on domains that they have not seen: each domain left out in turn, by scikit-learn's own means.

    python benchmarks/estimators_held_out.py pacs_efflite0_feats.npz [--seeds 3] [--save pacs_estimators]
    python benchmarks/estimators_held_out.py heart_disease_4hospitals.csv --target num --domain hospital

A .npz with ``features``, ``labels``, ``domains``; or a CSV of numbers, where a target above 0 is the positive class.
Missing values become the median or the mean of the training rows, each with and without an indicator column for every
column that has missing values in training: a table for each of the four. Accuracy in per cent on each domain, mean
over seeds, and the columns of ``recompute.py`` against ``ERMClassifier()``.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from recompute import against_columns, markdown
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneGroupOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gated_domains import ERMClassifier, GDUClassifier

RESULTS = Path(__file__).parent / "results"

MODELS: dict[str, Callable[[int], Any]] = {
    "LogisticRegression()": lambda seed: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "LogisticRegression(C=0.01)": lambda seed: make_pipeline(
        StandardScaler(), LogisticRegression(C=0.01, max_iter=1000)
    ),
    "LogisticRegression(C=0.001)": lambda seed: make_pipeline(
        StandardScaler(), LogisticRegression(C=0.001, max_iter=1000)
    ),
    "ERMClassifier()": lambda seed: ERMClassifier(random_state=seed),
    "ERMClassifier(alpha=0.0001)": lambda seed: ERMClassifier(alpha=1e-4, random_state=seed),
    "GDUClassifier()": lambda seed: GDUClassifier(random_state=seed),
    "GDUClassifier(alpha=0.0001)": lambda seed: GDUClassifier(alpha=1e-4, random_state=seed),
    "GDUClassifier(num_bases=5)": lambda seed: GDUClassifier(num_bases=5, random_state=seed),
    "GDUClassifier(learn_bases=True)": lambda seed: GDUClassifier(learn_bases=True, random_state=seed),
}
BASELINE = "ERMClassifier()"
IMPUTED: dict[str, dict[str, Any]] = {
    "median": {"strategy": "median"},
    "median and indicators": {"strategy": "median", "add_indicator": True},
    "mean": {"strategy": "mean"},
    "mean and indicators": {"strategy": "mean", "add_indicator": True},
}


def read(path: Path, target: str, domain: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, classes and domains."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            names = arrays["domain_names"] if "domain_names" in arrays else np.unique(arrays["domains"])
            return arrays["features"], arrays["labels"], names[arrays["domains"]]
    table = pd.read_csv(path)
    values = table.drop(columns=[target, domain]).to_numpy(np.float64)
    return values, (table[target] > 0).to_numpy(), table[domain].to_numpy()


def left_out(
    model: Any, values: np.ndarray, classes: np.ndarray, *, domains: np.ndarray, imputed: dict[str, Any]
) -> np.ndarray:
    """The accuracy on each domain, of a model fitted to the others."""
    whole = make_pipeline(SimpleImputer(**imputed, keep_empty_features=True), model)
    return cross_val_score(whole, values, classes, groups=domains, cv=LeaveOneGroupOut())


def table(
    values: np.ndarray, classes: np.ndarray, *, domains: np.ndarray, imputed: dict[str, Any], seeds: int
) -> list[str]:
    """Every model on every domain left out."""
    names = [str(name) for name in np.unique(domains)]
    scores, seconds = {}, {}
    for name, make in MODELS.items():
        # Logistic regression draws nothing at random: one fit stands for all seeds.
        fits = 1 if "Logistic" in name else seeds
        start = time.perf_counter()
        found = [left_out(make(seed), values, classes, domains=domains, imputed=imputed) for seed in range(fits)]
        seconds[name] = (time.perf_counter() - start) / np.size(found)
        scores[name] = {
            (domain, domain, seed): float(found[seed % fits][index])
            for seed in range(seeds)
            for index, domain in enumerate(names)
        }
    headings, cells = against_columns(scores, BASELINE, decimals=1)
    means = {name: 100 * math.fsum(found.values()) / len(found) for name, found in scores.items()}
    rows = []
    for name, found in scores.items():
        by_domain = [100 * np.mean([found[domain, domain, seed] for seed in range(seeds)]) for domain in names]
        mean = f"{means[name]:.1f}"
        mean = f"**{mean}**" if means[name] == max(means.values()) else mean
        shown = [f"{score:.1f}" for score in by_domain]
        rows.append([f"`{name}`", *shown, mean, *cells[name], f"{seconds[name]:.1f}"])
    return markdown(["accuracy on the domain left out", *names, "mean", *headings, "s a fit"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--target", default="target")
    parser.add_argument("--domain", default="domain")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--save", help="name of a file under results/")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    values, classes, domains = read(chosen.data, chosen.target, chosen.domain)
    missing = bool(np.isnan(values).any())
    lines: list[str] = []
    for name, imputed in IMPUTED.items() if missing else [("", IMPUTED["median"])]:
        part = [f"Missing values: {name}", ""] if missing else []
        part += table(values, classes, domains=domains, imputed=imputed, seeds=chosen.seeds)
        print(*part, "", sep="\n", flush=True)
        lines += [*part, ""]
    if chosen.save:
        RESULTS.joinpath(f"{chosen.save}.md").write_text("\n".join(lines[:-1]) + "\n")


if __name__ == "__main__":
    main()
