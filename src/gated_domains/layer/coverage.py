"""Coverage: how familiar a sample is, from 1 (like the training data) to 0 (unlike anything the bases express)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gated_domains.layer.scalars import Scalars, shown

# torch.quantile refuses more values than this.
_QUANTILE_LIMIT = 2**24
_UNFITTED = 2e4  # beyond any residual, so that an unfitted layer never falls back


class Coverage(Scalars):
    """``c = clip((q97 - r) / max(q97 - q50, eps), 0, 1)`` of the residual r, with quantiles of training residuals.

    Before ``fit`` every sample is covered: c = 1.
    """

    q50: Tensor
    q97: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_scalar("q50", _UNFITTED / 2)
        self.add_scalar("q97", _UNFITTED)

    @property
    def fitted(self) -> bool:
        """Whether quantiles were taken of data."""
        return float(self.q97) < 0.99 * _UNFITTED  # half precision rounds it

    def forward(self, residual: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        q50, q97 = self.q50.to(residual.dtype), self.q97.to(residual.dtype)
        width = (q97 - q50).clamp_min(torch.finfo(residual.dtype).eps)
        return ((q97 - residual) / width).clamp(0, 1)

    @torch.no_grad()
    def fit(self, residual: Float[Tensor, " rows"]) -> None:
        """Set the quantiles from the residuals of training data."""
        kept = residual.detach().flatten()
        kept = kept[:: 1 + kept.numel() // _QUANTILE_LIMIT]
        levels = torch.tensor([0.5, 0.97], dtype=kept.dtype, device=kept.device)
        q50, q97 = torch.quantile(kept, levels)
        self.q50.copy_(q50)
        self.q97.copy_(q97)

    def extra_repr(self) -> str:
        return f"q50={shown(self.q50)}, q97={shown(self.q97)}"
