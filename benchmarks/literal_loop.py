"""The layer as one would write it straight from the formulas: a loop over bases with (batch, features, N) broadcasting.

It serves as the yardstick of `layer.py`; it shares no code with the package.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LiteralLoop(nn.Module):
    """Cosine-gated ensemble with its penalties; one basis after the other."""

    def __init__(self, bases: Tensor, weight: Tensor, bias: Tensor, *, sigma: float, kappa: float) -> None:
        super().__init__()
        self.bases = nn.ParameterList([nn.Parameter(basis.clone()) for basis in bases])
        self.experts = nn.ModuleList([nn.Linear(weight.shape[-1], weight.shape[-2]) for _ in weight])
        with torch.no_grad():
            for expert, own_weight, own_bias in zip(self.experts, weight, bias, strict=True):
                expert.weight.copy_(own_weight)
                expert.bias.copy_(own_bias)
        self.sigma, self.kappa = sigma, kappa

    def kernel(self, x: Tensor, z: Tensor) -> Tensor:
        difference = x.unsqueeze(-1) - z.T.unsqueeze(0)  # (rows, features, N)
        return torch.exp(-difference.square().sum(1) / (2 * self.sigma**2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        cross = torch.stack([self.kernel(x, basis).mean(1) for basis in self.bases], dim=1)
        gram = torch.stack([torch.stack([self.kernel(v, w).mean() for w in self.bases]) for v in self.bases])
        beta = torch.softmax(self.kappa * cross / gram.diagonal().sqrt(), dim=1)
        outputs = torch.stack([expert(x) for expert in self.experts], dim=1)
        return (beta.unsqueeze(-1) * outputs).sum(1), beta, cross, gram

    def penalty(self, beta: Tensor, cross: Tensor, gram: Tensor, lambdas: tuple[float, float, float, float]) -> Tensor:
        explained = (beta * cross).sum(1)
        spread = torch.stack([row @ gram @ row for row in beta])
        reconstruction = (1 - 2 * explained + spread).mean()
        sparsity = beta.abs().sum(1).mean()
        entropy = -(beta * beta.log()).sum(1).mean()
        overlap = gram - torch.diag(gram.diagonal())
        srip = torch.linalg.svdvals(overlap)[0]
        ols, l1, ent, orth = lambdas
        return ols * reconstruction + l1 * sparsity + ent * entropy + orth * srip
