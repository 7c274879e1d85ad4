"""The layer as one would write it straight from the formulas: a loop over bases with (batch, features, N) broadcasting.

Every term evaluates the kernels of its own formula, as published code does. The yardstick of `layer.py`; it shares no
code with the package.
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

    def cross(self, x: Tensor) -> Tensor:
        return torch.stack([self.kernel(x, basis).mean(1) for basis in self.bases], dim=1)

    def gram(self) -> Tensor:
        return torch.stack([torch.stack([self.kernel(v, w).mean() for w in self.bases]) for v in self.bases])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        norms = torch.stack([self.kernel(basis, basis).mean() for basis in self.bases]).sqrt()
        beta = torch.softmax(self.kappa * self.cross(x) / norms, dim=1)
        outputs = torch.stack([expert(x) for expert in self.experts], dim=1)
        return (beta.unsqueeze(-1) * outputs).sum(1), beta

    def penalty(self, x: Tensor, beta: Tensor, lambdas: tuple[float, float, float, float]) -> Tensor:
        ols, l1, entropy, orth = lambdas
        return (
            ols * self.reconstruction(x, beta)
            + l1 * beta.abs().sum(1).mean()
            + entropy * -(beta * beta.log()).sum(1).mean()
            + orth * self.srip()
        )

    def reconstruction(self, x: Tensor, beta: Tensor) -> Tensor:
        explained = (beta * self.cross(x)).sum(1)
        gram = self.gram()
        spread = torch.stack([row @ gram @ row for row in beta])
        return (1 - 2 * explained + spread).mean()

    def srip(self) -> Tensor:
        gram = self.gram()
        return torch.linalg.svdvals(gram - torch.diag(gram.diagonal()))[0]
