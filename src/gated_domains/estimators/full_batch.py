"""The full-batch solver: L-BFGS on the whole objective, in float64, the same to the bit in every run."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits
from torch import Tensor

from gated_domains.estimators.holding import Held
from gated_domains.estimators.network import GatedNetwork, Network
from gated_domains.estimators.rows import RowSource
from gated_domains.estimators.watch import Watch

# How much of the past the curvature is read from; more than the usual ten, for few rows cost little.
_CORRECTIONS = 20
# Bases move what coverage is measured with: taken anew after the first round, it is the objective of the second.
_ROUNDS = 2


def fit_full_batch(
    network: Network,
    source: RowSource,
    targets: Tensor,
    weights: Tensor,
    *,
    max_iter: int,
    tolerance: float,
    watch: Watch,
) -> int:
    """Minimise ``mean_i w_i loss_i + penalties + ridge``; returns the iterations that were made.

    While bases stand still, gates are constants, and what is left is convex. While they move, coverage is held as it
    was at the start of the round.
    """
    if not (isinstance(network, GatedNetwork) and network.units.bases.requires_grad):
        done, left = _minimise(network, source, targets, weights, most=max_iter, tolerance=tolerance, watch=watch)
        watch.settle()
        _warn(done, left, tolerance)
        return done
    done, left = 0, math.inf
    for number in range(_ROUNDS):
        most = max_iter * (number + 1) // _ROUNDS  # a round that does not come to its end leaves room for the next
        if done < most and not watch.stopped:
            _renew_coverage(network, source)
            made, left = _minimise(
                network, source, targets, weights, done=done, most=most, tolerance=tolerance, watch=watch
            )
            done += made
    watch.settle()
    _renew_coverage(network, source)
    _warn(done, left, tolerance)
    return done


def _minimise(
    network: Network,
    source: RowSource,
    targets: Tensor,
    weights: Tensor,
    *,
    most: int,
    tolerance: float,
    watch: Watch,
    done: int = 0,
) -> tuple[int, float]:
    """The iterations made, and the largest gradient that is left; 0 where early stopping ended it."""
    parameters, held = network.trained(), Held(network, source)
    made = 0

    def value_and_gradient(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        _write(parameters, flat)
        network.zero_grad()
        total = torch.zeros((), dtype=torch.float64, device=source.device)
        for part, x in source.parts():
            standard = network.standard(x)
            loss = network.loss(standard, targets[part], weights[part], held.of(part, standard)) / len(source)
            loss.backward()
            total += loss.detach()
        ridge = network.ridge()
        ridge.backward()
        # A single basis has all the weight wherever it lies, and then no gradient.
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        return float(total + ridge.detach()), _read(gradients)

    def after(intermediate_result: Any) -> None:
        nonlocal made
        made += 1
        _write(parameters, intermediate_result.x)
        if watch.stop_after(float(intermediate_result.fun), number=done + made, most=most):
            raise StopIteration

    with threadpool_limits(1, user_api="blas"):  # the solver's own algebra is of tiny matrices
        found = minimize(
            value_and_gradient,
            _read(parameters),
            jac=True,
            method="L-BFGS-B",
            callback=after,
            # ftol 0: the gradient alone says when it is done.
            options={
                "maxiter": most - done,
                "maxfun": 20 * most,
                "gtol": tolerance,
                "ftol": 0.0,
                "maxcor": _CORRECTIONS,
            },
        )
    _write(parameters, found.x)
    network.zero_grad()
    if not (np.isfinite(found.fun) and np.isfinite(found.jac).all()):
        raise ValueError(f"the loss became {found.fun}; scale the inputs (standardize=True)")
    return max(made, 1), 0.0 if watch.stopped else float(np.abs(found.jac).max())


def _warn(done: int, left: float, tolerance: float) -> None:
    if left > tolerance:
        warnings.warn(
            f"L-BFGS stopped after {done} iterations with a gradient of {left:.2g}, above tol={tolerance:g}; raise "
            "max_iter or tol, or regularise more (alpha)",
            ConvergenceWarning,
            stacklevel=2,
        )


@torch.no_grad()
def _renew_coverage(network: GatedNetwork, source: RowSource) -> None:
    network.units.fit_coverage(torch.cat([network.standard(x) for _, x in source.parts()]))


def _read(tensors: Sequence[Tensor]) -> NDArray[np.float64]:
    return torch.cat([tensor.detach().flatten().double().cpu() for tensor in tensors]).numpy()


@torch.no_grad()
def _write(parameters: Sequence[Tensor], flat: NDArray[np.float64]) -> None:
    pieces = torch.from_numpy(np.array(flat)).split([parameter.numel() for parameter in parameters])
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.copy_(piece.view_as(parameter))
