"""Networks for data: standardised by them, with bases, their number, sigma and kappa from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from gated_domains.common.paper import GateName
from gated_domains.common.validation import at_least_one, flag, not_negative, positive
from gated_domains.estimators.network import GatedNetwork
from gated_domains.estimators.scaling import Scaling
from gated_domains.layer.experts import Task
from gated_domains.layer.fitting import (
    check_rows,
    choose_num_bases,
    drawn_from_clusters,
    exact,
    kmeans,
    subsample,
    typical_distance,
)
from gated_domains.layer.gates import GATES, SoftmaxGate
from gated_domains.layer.kernels import Gaussian
from gated_domains.layer.regrouping import settled_groups
from gated_domains.layer.units import GatedDomainUnits

# Rows that the number of bases is chosen by; and those whose distances are measured, of which there are their square.
_CHOSEN_BY, _MEASURED = 2_000, 1_000
_ANNEALED = 10_000  # that modes are counted in
# Columns from which on clusters are looked for in a random projection: distances stay, and the work falls by a lot.
_WIDE = 256
# For num_bases="auto" and "adaptive": at most so many, and at least so many rows for each.
_MOST_BASES, _ROWS_A_BASIS = 10, 5
_WORDS = ("auto", "adaptive")


@dataclass(frozen=True, kw_only=True)
class Units:
    """The settings of an estimator that say what its units are, checked."""

    num_bases: int | Literal["auto", "adaptive"]
    basis_size: int
    gate: GateName
    sigma: float | Literal["median"]
    kappa: float | Literal["auto"]
    shared: bool
    coverage: bool
    learn_bases: bool
    deviation_alpha: float
    lambda_ols: float
    lambda_l1: float
    lambda_entropy: float
    lambda_orth: float

    @classmethod
    def of(cls, estimator: Any) -> Units:
        """Those of an estimator; refused by name and value where they make no sense."""
        if estimator.gate not in get_args(GateName):
            raise ValueError(f"gate must be one of {', '.join(get_args(GateName))}, got {estimator.gate!r}")
        num_bases, sigma, kappa = estimator.num_bases, estimator.sigma, estimator.kappa
        if kappa != "auto" and not issubclass(GATES[estimator.gate], SoftmaxGate):
            raise ValueError(f"kappa={kappa!r} cannot be set: the gate {estimator.gate!r} has none; leave it at 'auto'")
        for name, value, words in (
            ("num_bases", num_bases, _WORDS),
            ("sigma", sigma, ("median",)),
            ("kappa", kappa, ("auto",)),
        ):
            if isinstance(value, str) and value not in words:
                raise ValueError(f"{name} must be a number or {' or '.join(map(repr, words))}, got {value!r}")
        return cls(
            num_bases=num_bases if num_bases in _WORDS else at_least_one("num_bases", num_bases),
            basis_size=at_least_one("basis_size", estimator.basis_size),
            gate=estimator.gate,
            sigma="median" if sigma == "median" else positive("sigma", sigma),
            kappa="auto" if kappa == "auto" else positive("kappa", kappa),
            shared=flag("shared", estimator.shared),
            coverage=flag("coverage", estimator.coverage),
            learn_bases=flag("learn_bases", estimator.learn_bases),
            **{
                name: not_negative(name, getattr(estimator, name))
                for name in ("deviation_alpha", "lambda_ols", "lambda_l1", "lambda_entropy", "lambda_orth")
            },
        )


def gated_network(
    inputs: Scaling, outputs: Scaling, task: Task, *, chosen: Units, num_bases: int, alpha: float
) -> GatedNetwork:
    """A network with units of this shape, not yet fitted to anything. Drawn from torch's global generator."""
    units = GatedDomainUnits(
        len(inputs.mean),
        len(outputs.mean),
        num_bases=num_bases,
        basis_size=chosen.basis_size,
        kernel=Gaussian(),
        gate=GATES[chosen.gate](),
        shared=chosen.shared,
        coverage=chosen.coverage,
        lambda_ols=chosen.lambda_ols,
        lambda_l1=chosen.lambda_l1,
        lambda_entropy=chosen.lambda_entropy,
        lambda_orth=chosen.lambda_orth,
        lambda_dev=0.0,  # the ridge of estimators is deviation_alpha
    )
    units.bases.requires_grad_(chosen.learn_bases)
    if units.shared is not None:
        units.shared.start_at_zero()  # as a linear model does: where it starts by chance, few steps do not end alike
    return GatedNetwork(inputs, outputs, task, units=units, alpha=alpha, deviation_alpha=chosen.deviation_alpha)


def num_bases_for(rows: Tensor, chosen: Units, *, seed: int) -> int:
    """As many as are asked for, or as are found in standardised rows; one where there are few rows.

    "auto" is by Davies-Bouldin; "adaptive" is how many modes the rows have, by annealing.
    """
    if not isinstance(chosen.num_bases, str):
        return chosen.num_bases
    most = min(_MOST_BASES, len(rows) // _ROWS_A_BASIS)
    if most < 2 or bool((rows == rows[0]).all()):
        return 1
    if chosen.num_bases == "adaptive":
        return int(settled_groups(subsample(exact(rows), _ANNEALED, seed), most).max()) + 1
    return choose_num_bases(_narrow(rows[:_CHOSEN_BY], seed), range(2, most + 1), seed=seed)[0]


def fit_units(network: GatedNetwork, rows: Tensor, chosen: Units, *, seed: int) -> None:
    """Bases, sigma, kappa and coverage from standardised rows."""
    network.units.fit_bases(
        rows,
        initialiser=_bases,
        sigma=typical_distance(rows[:_MEASURED]) if chosen.sigma == "median" else chosen.sigma,
        kappa=None if chosen.kappa == "auto" else chosen.kappa,
        seed=seed,
    )


def _bases(rows: Tensor, num_bases: int, basis_size: int, seed: int) -> Tensor:
    """Each basis some rows of one k-means cluster."""
    check_rows(rows, at_least=num_bases, purpose=f"{num_bases} bases")
    return drawn_from_clusters(rows, kmeans(_narrow(rows, seed), num_bases, seed=seed)[1], basis_size, seed)


def _narrow(rows: Tensor, seed: int) -> Tensor:
    """Wide rows in a random projection, which keeps their distances to a few hundredths."""
    if rows.shape[1] <= _WIDE:
        return rows
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(rows.shape[1], _WIDE, generator=generator, dtype=rows.dtype) / _WIDE**0.5
    return rows @ directions.to(rows.device)
