"""Small tables and estimators for the tests of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gated_domains.estimators import ERMClassifier, ERMRegressor, GDUClassifier, GDURegressor


class Table(NamedTuple):
    """Rows of sites that lie apart, with a class, a number and the name of its site for each."""

    x: NDArray[np.float64]
    classes: NDArray[np.int64]
    numbers: NDArray[np.float64]
    sites: NDArray[Any]


SITES = ("basel", "bern", "chur")


def made_table(rows: int = 90, width: int = 4, *, classes: int = 3, seed: int = 0) -> Table:
    """Every site has its own centre and its own slope; every class is in every site."""
    rng = np.random.default_rng(seed)
    site = np.arange(rows) % len(SITES)
    centres = rng.normal(0, 3, (len(SITES), width))
    x = centres[site] + rng.normal(0, 1, (rows, width))
    slopes = rng.normal(0, 1, (len(SITES), width))
    numbers = ((x - centres[site]) * slopes[site]).sum(1) + rng.normal(0, 0.3, rows) + 20
    ranks = numbers + rng.normal(0, 1, rows)
    codes = np.searchsorted(np.quantile(ranks, np.arange(1, classes) / classes), ranks)
    return Table(x, codes, numbers, np.array(SITES)[site])


KINDS = {kind.__name__: kind for kind in (GDUClassifier, GDURegressor, ERMClassifier, ERMRegressor)}
CLASSIFIERS = {name: kind for name, kind in KINDS.items() if name.endswith("Classifier")}


def answers(kind: type, table: Table) -> NDArray[Any]:
    """What this kind of estimator learns of a table."""
    return table.classes if kind in CLASSIFIERS.values() else table.numbers


def made(kind: type, **settings: Any) -> Any:
    """A small one, with a seed, content with what is nearly an optimum."""
    small = {"num_bases": 3, "basis_size": 3} if kind in (GDUClassifier, GDURegressor) else {}
    return kind(**{"random_state": 0, "max_iter": 500, "tol": 1e-2, **small, **settings})


def fitted(kind: type, table: Table | None = None, **settings: Any) -> Any:
    """One fitted on a table, with its sites."""
    table = made_table() if table is None else table
    return made(kind, **settings).fit(table.x, answers(kind, table), sample_domain=table.sites)
