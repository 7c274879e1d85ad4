"""Parts: what ``partial_fit`` keeps from one call to the next."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.estimators.material import Material
from gated_domains.estimators.mini_batch import batches_of, one_step
from gated_domains.estimators.network import GatedNetwork, Network
from gated_domains.estimators.rows import RowSource

# Rows kept of all that have gone by, for coverage.
_KEPT = 2_048
_ENOUGH = 512


class Parts:
    """The optimiser, an order drawn by chance, and some of the rows seen: each had the same chance to be among them.

    Coverage is measured on those. A network that ``fitted`` other rows before keeps the coverage it has until there are
    enough to measure it anew.
    """

    def __init__(self, network: Network, *, fitted: bool, seed: int) -> None:
        self.enough = _ENOUGH if fitted else 0
        self.optimizer = torch.optim.Adam(network.trained())
        self.rng = np.random.default_rng(seed)
        self.kept: NDArray[Any] | None = None
        self._lots = np.empty(0)

    def learn(self, network: Network, material: Material, *, batch_size: int | Literal["auto"], rate: float) -> float:
        """One pass over these rows; returns the mean of its losses."""
        source = material.source
        self._move(source.device)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        targets, weights = network.standard_targets(material.targets), material.weights.to(network.dtype)
        total = torch.zeros((), dtype=torch.float64, device=source.device)
        for rows in batches_of(self.rng.permutation(len(source)), batch_size):
            total += len(rows) * one_step(network, self.optimizer, source, rows, targets, weights)
        self._keep(source)
        loss = float(total) / len(source)
        if not math.isfinite(loss):
            raise ValueError(
                f"the loss became {loss} in this part; scale the inputs (standardize=True) or lower learning_rate"
            )
        if isinstance(network, GatedNetwork) and len(self._lots) >= self.enough:
            with torch.no_grad():
                network.units.fit_coverage(network.standard(torch.from_numpy(self.kept).to(source.device)))
        self._move(torch.device("cpu"))
        return loss

    def _keep(self, source: RowSource) -> None:
        """Every row draws a lot when it comes by; the rows with the smallest lots of all so far are kept."""
        lots = np.concatenate([self._lots, self.rng.random(len(source))])
        stay = np.sort(np.argsort(lots)[:_KEPT])
        old = len(self._lots)
        new = source.take(stay[stay >= old] - old).cpu().numpy()
        held = new[:0] if self.kept is None else self.kept
        self.kept, self._lots = np.concatenate([held[stay[stay < old]], new.astype(held.dtype)]), lots[stay]

    def _move(self, device: torch.device) -> None:
        for state in self.optimizer.state.values():
            for name, value in state.items():
                if isinstance(value, Tensor) and value.dim():
                    state[name] = value.to(device)
