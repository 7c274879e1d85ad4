"""How an estimator's objective is minimised: which solver, for how long, and when it stops early."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.common.validation import at_least_one, flag, not_negative, positive
from gated_domains.estimators.full_batch import fit_full_batch
from gated_domains.estimators.material import Material
from gated_domains.estimators.mini_batch import batches_of, fit_mini_batch
from gated_domains.estimators.network import Network
from gated_domains.estimators.rows import RowSource
from gated_domains.estimators.watch import Watch

SOLVERS = ("auto", "lbfgs", "adam")
# Numbers in the training data up to which the full batch is taken: some seconds on two cores.
_FULL_BATCH = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Solving:
    """The settings of an estimator that say how it is trained, checked."""

    solver: str
    max_iter: int
    epochs: int
    tol: float
    batch_size: int | Literal["auto"]
    learning_rate: float
    early_stopping: bool
    validation_fraction: float
    n_iter_no_change: int
    verbose: int

    @classmethod
    def of(cls, estimator: Any) -> Solving:
        """Those of an estimator; refused by name and value where they make no sense."""
        if estimator.solver not in SOLVERS:
            raise ValueError(f"solver must be one of {', '.join(SOLVERS)}, got {estimator.solver!r}")
        fraction = positive("validation_fraction", estimator.validation_fraction)
        if fraction >= 1:
            raise ValueError(f"validation_fraction must lie between 0 and 1, got {fraction}")
        size = estimator.batch_size
        return cls(
            solver=estimator.solver,
            max_iter=at_least_one("max_iter", estimator.max_iter),
            epochs=at_least_one("epochs", estimator.epochs),
            tol=not_negative("tol", estimator.tol),
            batch_size="auto" if size == "auto" else at_least_one("batch_size", size),
            learning_rate=positive("learning_rate", estimator.learning_rate),
            early_stopping=flag("early_stopping", estimator.early_stopping),
            validation_fraction=fraction,
            n_iter_no_change=at_least_one("n_iter_no_change", estimator.n_iter_no_change),
            verbose=int(not_negative("verbose", estimator.verbose)),
        )

    def chosen(self, rows: int, width: int) -> Literal["lbfgs", "adam"]:
        """The solver for data of this size: the full batch where it takes some seconds."""
        if self.solver == "auto":
            return "lbfgs" if rows * width <= _FULL_BATCH else "adam"
        return "lbfgs" if self.solver == "lbfgs" else "adam"

    def rows_a_step(self, source: RowSource, solver: str) -> int:
        """How many rows a step of the solver takes in together."""
        most = source.at_once if solver == "lbfgs" else len(batches_of(np.arange(len(source)), self.batch_size)[0])
        return min(most, len(source))


@dataclass(frozen=True)
class History:
    """What a training came to."""

    solver: str
    iterations: int
    losses: list[float]
    validation_losses: list[float]


def solve(
    network: Network, material: Material, how: Solving, *, apart: Material | None, solver: str, seed: int
) -> History:
    """Train the network in place; rows that were set ``apart`` say when to stop."""
    watch = Watch(
        network,
        unit="iteration" if solver == "lbfgs" else "epoch",
        verbose=how.verbose,
        tolerance=how.tol,
        patience=how.n_iter_no_change,
        validate=None if apart is None else partial(_mean_loss, network, apart),
    )
    source, weights = material.source, material.weights.to(network.dtype)
    targets = network.standard_targets(material.targets)
    if solver == "lbfgs":
        made = fit_full_batch(network, source, targets, weights, max_iter=how.max_iter, tolerance=how.tol, watch=watch)
    else:
        made = fit_mini_batch(
            network,
            source,
            targets,
            weights,
            epochs=how.epochs,
            batch_size=how.batch_size,
            rate=how.learning_rate,
            seed=seed,
            watch=watch,
        )
    return History(solver, made, watch.losses, watch.validation_losses)


def set_apart(material: Material, how: Solving, seed: int) -> tuple[Material, Material]:
    """The rows to train on, and those of every class and domain that validate."""
    rng = np.random.default_rng(seed)
    drawn: list[NDArray[np.int64]] = []
    strata = material.strata()
    # Rounded over all of them, not each by itself: many small ones would come to nothing.
    ends = np.floor(how.validation_fraction * np.cumsum([len(own) for own in strata]) + 0.5).astype(np.int64)
    for own, count in zip(strata, np.diff(ends, prepend=0), strict=True):
        drawn.append(rng.permutation(own)[: min(int(count), len(own) - 1)])
    apart = np.sort(np.concatenate(drawn))
    if len(apart) == 0:
        raise ValueError(
            f"early_stopping needs rows to validate on, and {how.validation_fraction:g} of {len(material)} rows are "
            "none; give more rows, a larger validation_fraction, or early_stopping=False"
        )
    kept = np.setdiff1d(np.arange(len(material)), apart)
    return material.take(kept), material.take(apart)


@torch.no_grad()
def _mean_loss(network: Network, material: Material) -> float:
    targets = network.standard_targets(material.targets)
    weights = material.weights.to(network.dtype)
    parts: list[Tensor] = [
        network.loss(network.standard(x), targets[part], weights[part]).double() for part, x in material.source.parts()
    ]
    return float(torch.stack(parts).sum()) / len(material)
