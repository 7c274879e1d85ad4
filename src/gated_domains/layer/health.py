"""Whether gates do anything: the measures that ``fit_bases`` checks, in torch."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gated_domains.common.health import DEAD_WEIGHT, DOUBLED, GateHealth
from gated_domains.layer.products import InnerProducts


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
