"""Held: what gates find of training rows, found once where bases stand still."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.estimators.network import GatedNetwork, Network
from gated_domains.estimators.rows import RowSource
from gated_domains.layer.gates import InnerProducts, Weighed


class Held:
    """The gates of all rows with the bases as they are now.

    While bases move, gates are found anew at each asking, and of what is held there is the coverage alone: it has no
    gradient, and a line search needs a function that stays the same.
    """

    @torch.no_grad()
    def __init__(self, network: Network, source: RowSource) -> None:
        self.units = network.units if isinstance(network, GatedNetwork) else None
        if self.units is None:
            return
        parts = [self.units.weigh(network.standard(x)) for _, x in source.parts()]
        self.gram, self.active = parts[0].products.gram, parts[0].products.active
        self.self_product = torch.cat([part.products.self_product for part in parts])
        self.cross = torch.cat([part.products.cross for part in parts])
        self.beta = torch.cat([part.beta for part in parts])
        covered = [part.coverage for part in parts if part.coverage is not None]
        self.coverage = torch.cat(covered) if covered else None

    def of(self, rows: slice | NDArray[np.int64], standard: Tensor) -> Weighed | None:
        """The gates of some rows, which are ``standard``; None where there are no gates."""
        if self.units is None:
            return None
        place = rows if isinstance(rows, slice) else torch.from_numpy(rows).to(self.beta.device)
        coverage = None if self.coverage is None else self.coverage[place]
        if self.units.bases.requires_grad:
            return self.units.weigh(standard)._replace(coverage=coverage)
        products = InnerProducts(self.self_product[place], self.cross[place], self.gram, self.active)
        return Weighed(
            products=products,
            beta=self.beta[place],
            coverage=coverage,
            applies_coverage=self.units.applies_coverage,
        )
