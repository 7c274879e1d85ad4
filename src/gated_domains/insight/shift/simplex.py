"""The nearest mixture: least squares over weights that are not negative and sum to one.

w = argmin ||mu - sum_j w_j mu_j||^2 = argmin w' gram w - 2 w' cross,   w >= 0, sum w = 1
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_RIDGE = 1e-12
_SLACK = 1e-10


def project_on_simplex(
    gram: Float[Tensor, "*grams bases bases"], cross: Float[Tensor, "*draws bases"]
) -> Float[Tensor, "*draws bases"]:
    """The weights, by active sets: exact but for rounding, all draws side by side.

    One Gram matrix for all, or one for each draw. It must be positive definite but for rounding.
    """
    lead, bases = cross.shape[:-1], cross.shape[-1]
    c = cross.reshape(-1, bases).double()
    g = gram.double().expand(*lead, bases, bases).reshape(-1, bases, bases)
    scale = g.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(torch.finfo(g.dtype).tiny)
    g, c = g / scale[:, None, None], c / scale[:, None]
    g = g + _RIDGE * torch.eye(bases, dtype=g.dtype, device=g.device)
    # From the nearest single basis on, bases come in where they lower the distance and go where their weight would be
    # negative; the distance falls with every step, so no set comes back.
    used = torch.nn.functional.one_hot((g.diagonal(dim1=-2, dim2=-1) - 2 * c).argmin(-1), bases).bool()
    w = used.to(c.dtype)
    left = torch.arange(len(c), device=c.device)
    for _ in range(20 * (bases + 1)):
        done, w[left], used[left] = _step(g[left], c[left], w[left], used[left])
        left = left[~done]
        if not len(left):
            break
    return w.reshape(cross.shape).to(cross.dtype)


def _step(g: Tensor, c: Tensor, w: Tensor, used: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Which draws are at their end; weights and bases in use after one step."""
    wanted, level = _on_face(g, c, used)
    inside = (wanted >= 0).all(-1)
    w, used = _towards(w, wanted, used)
    slope = (g @ w.unsqueeze(-1)).squeeze(-1) - c - level.unsqueeze(-1)
    least, which = slope.masked_fill(used, torch.inf).min(-1)
    enters = inside & (least < -_SLACK)
    used[enters, which[enters]] = True
    return inside & ~enters, w, used


def _on_face(g: Tensor, c: Tensor, used: Bool[Tensor, "draws bases"]) -> tuple[Tensor, Tensor]:
    """The best weights of the bases in use that sum to one, of either sign, and the slope that all of them share."""
    draws, bases = c.shape
    both = used.unsqueeze(-1) & used.unsqueeze(-2)
    system = g.new_zeros(draws, bases + 1, bases + 1)
    system[:, :bases, :bases] = torch.where(both, g, torch.eye(bases, dtype=g.dtype, device=g.device))
    system[:, :bases, bases] = used.to(g.dtype)
    system[:, bases, :bases] = used.to(g.dtype)
    side = torch.cat([c * used, c.new_ones(draws, 1)], dim=-1)
    solved = torch.linalg.solve_ex(system, side.unsqueeze(-1))[0].squeeze(-1)
    return solved[:, :bases] * used, -solved[:, bases]


def _towards(w: Tensor, wanted: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """As far towards the wanted weights as none becomes negative; a weight that becomes 0 is no longer in use."""
    falls = wanted < 0
    room = torch.where(falls, w / (w - wanted).clamp_min(torch.finfo(w.dtype).tiny), torch.inf)
    share, first = room.min(-1)
    stopped = share < 1
    moved = torch.where(stopped.unsqueeze(-1), w + share.clamp(max=1).unsqueeze(-1) * (wanted - w), wanted).clamp_min(0)
    leaves = torch.zeros_like(used)
    leaves[stopped, first[stopped]] = True
    return moved.masked_fill(leaves, 0), used & ~leaves
