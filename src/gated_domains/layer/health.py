"""Whether gates do anything: measures that ``fit_bases`` checks, each with its cure."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gated_domains.layer.products import InnerProducts

DEAD_BETA_STD = 1e-3
SATURATED = 1e-3
DEAD_WEIGHT = 1e-3
DOUBLED = 0.999


class GateWarning(UserWarning):
    """The gates of a layer do less than they should."""


@dataclass(frozen=True)
class GateHealth:
    """Measures over a sample of rows."""

    beta_std: float
    """Standard deviation of beta over the sample, largest over bases: 0 when gates ignore the input."""
    kernel_low: float
    """``<phi(x), mu_j>`` of the farthest basis, relative to k(x, x), which nine samples of ten exceed."""
    kernel_high: float
    """The same of the nearest basis, which one sample of ten exceeds."""
    dead: tuple[int, ...]
    """Bases whose weight is below 0.001 for every sample."""
    doubled: tuple[tuple[int, int], ...]
    """Pairs of bases whose embeddings point the same way (cosine above 0.999)."""

    def findings(self) -> list[str]:
        """A sentence for each trouble: the value, and the cure."""
        found = []
        if self.kernel_high < SATURATED:
            found.append(
                f"the kernel saturates: every sample is far from every basis (largest mean k {self.kernel_high:.2g}); "
                "raise sigma (fit_bases with sigma=None takes the median distance) or start the bases from data"
            )
        elif self.kernel_low > 1 - SATURATED:
            found.append(
                f"the kernel saturates: every sample is near every basis (smallest mean k {self.kernel_low:.6f}); "
                "lower sigma (fit_bases with sigma=None takes the median distance)"
            )
        if self.beta_std < DEAD_BETA_STD:
            found.append(
                f"gates do not depend on the input (std of beta {self.beta_std:.2g} < {DEAD_BETA_STD}); "
                "call fit_bases with kappa=None to match kappa to the data, or start the bases from data"
            )
        if self.dead:
            found.append(
                f"bases {list(self.dead)} are dead (weight below {DEAD_WEIGHT} for every sample); "
                "use fewer bases or a smaller kappa"
            )
        if self.doubled:
            found.append(
                f"bases {[list(pair) for pair in self.doubled]} are doubles of each other (cosine above {DOUBLED}); "
                "use fewer bases, or add lambda_orth to push them apart"
            )
        return found

    def warn(self) -> None:
        """One warning for each finding, pointing at the line outside this package that led here."""
        level, frame = 1, sys._getframe()
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("gated_domains.", "torch.")):
            level, frame = level + 1, frame.f_back
        for finding in self.findings():
            warnings.warn(finding, GateWarning, stacklevel=level)


@torch.no_grad()
def gate_health(products: InnerProducts, beta: Float[Tensor, "rows bases"]) -> GateHealth:
    """Measure the gates on a sample, from what one evaluation returned."""
    used = torch.arange(beta.shape[-1], device=beta.device)
    if products.active is not None:
        used = used[products.active]
    alone = len(used) < 2  # one basis has weight 1 everywhere, and nothing is wrong with that
    relative = products.cross[:, used] / products.self_product.unsqueeze(-1)
    norms = products.norms[used]
    cosine = products.gram[used][:, used] * torch.rsqrt(norms.unsqueeze(-1) * norms)
    same = torch.nonzero(torch.triu(cosine > DOUBLED, diagonal=1)).tolist()
    weight = beta[:, used].abs()
    varied = len(beta) > 1 and not alone
    return GateHealth(
        beta_std=float(beta[:, used].std(0).max()) if varied else float("inf"),
        kernel_low=float(relative.amin(1).float().quantile(0.1)),
        kernel_high=float(relative.amax(1).float().quantile(0.9)),
        dead=tuple(int(used[j]) for j in torch.nonzero(weight.amax(0) < DEAD_WEIGHT).flatten()),
        doubled=tuple((int(used[i]), int(used[j])) for i, j in same),
    )
