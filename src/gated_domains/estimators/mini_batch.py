"""The mini-batch solver: Adam over shuffled rows, for data that a full batch would take too long over."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.estimators.holding import Held
from gated_domains.estimators.network import Network
from gated_domains.estimators.rows import RowSource
from gated_domains.estimators.watch import Watch

# Rows, by chance, that coverage is renewed on after an epoch.
_COVERED = 2_048


def batches_of(order: NDArray[np.int64], size: int | Literal["auto"]) -> list[NDArray[np.int64]]:
    """The rows of an order in batches of nearly one size.

    ``"auto"``: some hundred batches where there are rows for them, of 32 rows at least and 512 at most.
    """
    rows = max(32, min(512, len(order) // 64)) if size == "auto" else size
    return np.array_split(order, -(-len(order) // rows))


def fit_mini_batch(
    network: Network,
    source: RowSource,
    targets: Tensor,
    weights: Tensor,
    *,
    epochs: int,
    batch_size: int | Literal["auto"],
    rate: float,
    seed: int,
    watch: Watch,
) -> int:
    """Minimise the same objective as the full batch does; returns the epochs that were made.

    The learning rate falls to 0 along half a cosine, so that the end does not depend on the last batches.
    """
    rng = np.random.default_rng(seed)
    moves = network.units is not None and network.units.bases.requires_grad
    held = None if moves else Held(network, source)
    optimizer = torch.optim.Adam(network.trained(), lr=rate)
    steps = epochs * len(batches_of(np.arange(len(source)), batch_size))
    step, epoch = 0, 0
    for epoch in range(1, epochs + 1):
        total = torch.zeros((), dtype=torch.float64, device=source.device)
        order = rng.permutation(len(source))
        for rows in batches_of(order, batch_size):
            for group in optimizer.param_groups:
                group["lr"] = rate * (1 + math.cos(math.pi * step / steps)) / 2
            total += len(rows) * one_step(network, optimizer, source, rows, targets, weights, held)
            step += 1
        if moves:
            _renew_coverage(network, source, order)
        if watch.stop_after(float(total) / len(source), number=epoch, most=epochs):
            break
    watch.settle()
    return epoch


def one_step(
    network: Network,
    optimizer: torch.optim.Optimizer,
    source: RowSource,
    rows: NDArray[np.int64],
    targets: Tensor,
    weights: Tensor,
    held: Held | None = None,
) -> Tensor:
    """One update by these rows; returns the objective on them."""
    picked = torch.from_numpy(rows).to(source.device)
    optimizer.zero_grad(set_to_none=True)
    standard = network.standard(source.take(rows))
    weighed = None if held is None else held.of(rows, standard)
    loss = network.loss(standard, targets[picked], weights[picked], weighed) / len(rows) + network.ridge()
    loss.backward()
    optimizer.step()
    return loss.detach().double()


@torch.no_grad()
def _renew_coverage(network: Network, source: RowSource, order: NDArray[np.int64]) -> None:
    """Measure coverage with the bases as they are now, on the first rows of an order by chance."""
    if network.units is not None:
        network.units.fit_coverage(network.standard(source.take(np.sort(order[:_COVERED]))))
