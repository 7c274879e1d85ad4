"""Estimators on domains that they have not seen: each domain left out in turn, by scikit-learn's own means.

    python benchmarks/estimators_held_out.py pacs_efflite0_feats.npz [--seeds 3] [--save pacs_estimators]
    python benchmarks/estimators_held_out.py heart_disease_4hospitals.csv --target num --domain hospital

A .npz with ``features``, ``labels``, ``domains``; or a CSV of numbers, where missing ones become the median of the
training rows and a target above 0 is the positive class. Accuracy in per cent on each domain, mean over seeds.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
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


def read(path: Path, target: str, domain: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, classes and domains."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            names = arrays["domain_names"] if "domain_names" in arrays else np.unique(arrays["domains"])
            return arrays["features"], arrays["labels"], names[arrays["domains"]]
    table = pd.read_csv(path)
    values = table.drop(columns=[target, domain]).to_numpy(np.float64)
    return values, (table[target] > 0).to_numpy(), table[domain].to_numpy()


def left_out(model: Any, values: np.ndarray, classes: np.ndarray, domains: np.ndarray) -> np.ndarray:
    """The accuracy on each domain, of a model fitted to the others."""
    whole = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), model)
    return cross_val_score(whole, values, classes, groups=domains, cv=LeaveOneGroupOut())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--target", default="target")
    parser.add_argument("--domain", default="domain")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--save", help="name of a file under results/")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    values, classes, domains = read(chosen.data, chosen.target, chosen.domain)
    lines = [f"| accuracy on the domain left out | {' | '.join(np.unique(domains))} | mean | s a fit |"]
    lines.append("|---" * (len(np.unique(domains)) + 3) + "|")
    print(*lines, sep="\n", flush=True)
    for name, make in MODELS.items():
        # Without anything drawn by chance, seeds are one and the same.
        seeds = range(1 if "Logistic" in name else chosen.seeds)
        start = time.perf_counter()
        scores = [left_out(make(seed), values, classes, domains) for seed in seeds]
        seconds = (time.perf_counter() - start) / np.size(scores)
        by_domain = 100 * np.mean(scores, axis=0)
        cells = " | ".join(f"{score:.1f}" for score in by_domain)
        lines.append(f"| `{name}` | {cells} | {by_domain.mean():.1f} | {seconds:.1f} |")
        print(lines[-1], flush=True)
    if chosen.save:
        RESULTS.joinpath(f"{chosen.save}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
