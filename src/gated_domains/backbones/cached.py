"""CachedBackbone: rows of a feature cache, read as if a backbone had just made them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from gated_domains.backbones.backbone import Backbone
from gated_domains.backbones.bodies import Identity
from gated_domains.backbones.view import View


class CachedBackbone(Backbone):
    """Rows ``[features | gating]`` -> ``View``. Nothing in it moves, so gates see what stands still."""

    def __init__(self, features: int, gating: int = 0) -> None:
        super().__init__(Identity((features,)))
        self.gating_features = gating or features
        self.apart = gating > 0

    @property
    def sees_raw_input(self) -> bool:
        return True

    def forward(self, inputs: Float[Tensor, "batch columns"]) -> View:
        # Through the body, which gives back what it gets unless styles are mixed there.
        return View(self.body(inputs[:, : self.features]), inputs[:, self.features :] if self.apart else None)

    def look(self, inputs: Float[Tensor, "batch columns"]) -> Float[Tensor, "batch gating"]:
        return inputs[:, self.features :] if self.apart else inputs[:, : self.features]

    def fit_view(
        self, inputs: Float[Tensor, "rows columns"] | Iterable[Float[Tensor, "_ columns"]]
    ) -> Float[Tensor, "rows gating"]:
        """What gates see of these rows; it was standardised before it was cached."""
        batches = [inputs] if isinstance(inputs, Tensor) else inputs
        return torch.cat([self.look(batch) for batch in batches])
