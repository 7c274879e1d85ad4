"""Whether rows have one mode or more: a valley in their density that other rows than those it was found in show too.

Along any line a density with one mode is, between two places, nowhere lower than at the lower of the two. So of three
windows of equal width, one after the other, the middle one has at least as much mass as the emptier of its neighbours,
and counts in them make a test that knows no other shape: skewed, flat and heavy-tailed rows have one mode too. The line
and the windows are chosen on some rows and counted on others, in turns: in many dimensions there is always a line along
which the rows it was chosen by fall apart.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gated_domains.layer.fitting import kmeans

#: What counts as a valley: the middle window holds at most this share of what its emptier neighbour does.
DEEP = 0.5

_TURNS = 5  # parts of the rows, each of which is counted once
_CLUSTERS = (2, 3, 4, 6, 8)  # k-means with so many says which rows may lie on the two sides of a valley
_WINDOWS = (6, 10, 16, 24)  # how many windows fit between the ends of a line
_STEPS = 4  # places a window is tried at before it has moved by its own width
_ENDS = 0.005  # of the rows on either side do not count for where a line ends
_ITERATIONS = 8
_AXES = 16  # of wide rows clusters are looked for along so many main axes: the others add noise, and work


class Gap(NamedTuple):
    """The plane ``direction . x = cut`` that parts rows, and the chance that one mode shows such a valley there."""

    direction: Float[Tensor, " features"]
    cut: float
    p: float


class _Windows(NamedTuple):
    """On each line, where the middle window and its emptier neighbour begin, and how wide they are; 0 for none."""

    starts: Float[Tensor, "lines 2"]
    width: Float[Tensor, " lines"]


def find_gap(x: Float[Tensor, "rows features"], *, least: int, seed: int = 0) -> Gap | None:
    """The valley that is least likely by chance, with ``least`` rows or more on either side; None where there is none.

    p is honest: multiplied by the number of lines that were looked along.
    """
    if len(x) < 2 * max(least, _TURNS):
        return None
    sides = _sides(x, seed)
    chances = chances_of_valleys(x, sides, seed=seed)
    for p, line in sorted((p, line) for line, p in enumerate(chances)):
        direction = _directions(x, sides[line : line + 1])[:, 0]
        along = x @ direction
        windows = _deepest(along[None].cpu())
        cut = float(windows.starts[0, 0] + windows.width[0] / 2)
        if p < 1 and least <= int((along > cut).sum()) <= len(x) - least:
            return Gap(direction, cut, min(1.0, p * len(chances)))
    return None


def chance_apart(
    one: Float[Tensor, "rows features"], other: Float[Tensor, "others features"], *, seed: int = 0
) -> float:
    """The chance that two sets of rows which are one mode show such a valley on the line between their means."""
    side = torch.arange(len(one) + len(other), device=one.device) < len(one)
    return chances_of_valleys(torch.cat([one, other]), side[None], seed=seed)[0]


def chances_of_valleys(
    x: Float[Tensor, "rows features"], sides: Bool[Tensor, "lines rows"], *, seed: int = 0
) -> list[float]:
    """For each line, from the mean of the rows on one side to that of the others, the chance of what is counted there.

    1 where the valley is not even ``DEEP``. Counts of the middle window and of its neighbour, the one that was emptier
    where the windows were chosen, are added up over the turns.
    """
    turn = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed)).to(x.device) % _TURNS
    counts = torch.zeros(len(sides), 2, dtype=torch.long)
    for now in range(_TURNS):
        chosen_by, counted = x[turn != now], x[turn == now]
        directions = _directions(chosen_by, sides[:, turn != now])
        along, beside = (chosen_by @ directions).T.cpu(), (counted @ directions).T.cpu()
        counts += _counted(beside, _deepest(along))
    return [1.0 if middle > DEEP * side else chance_at_most(middle, middle + side) for middle, side in counts.tolist()]


def chance_at_most(heads: int, tosses: int) -> float:
    """The chance of at most so many heads in tosses of a fair coin."""
    if heads >= tosses:
        return 1.0
    k = torch.arange(heads + 1, dtype=torch.float64)
    all_of_them = torch.tensor(float(tosses), dtype=torch.float64)
    ways = torch.lgamma(all_of_them + 1) - torch.lgamma(k + 1) - torch.lgamma(all_of_them - k + 1)
    return min(1.0, math.exp(float(ways.logsumexp(0)) - tosses * math.log(2)))


def _deepest(values: Float[Tensor, "lines rows"]) -> _Windows:
    """Three windows of equal width: of all places and some widths those where the middle one is emptiest of all.

    Judged by the difference in counts in its standard deviations, so that a deep valley of a few rows gives way to a
    broad one.
    """
    ordered = values.double().contiguous().sort(dim=1).values
    outside = int(_ENDS * ordered.shape[1])
    low, high = ordered[:, outside, None], ordered[:, ordered.shape[1] - 1 - outside, None]
    found: list[Tensor] = []
    for count in _WINDOWS:
        width = (high - low) / count
        starts = low - width / 2 + width / _STEPS * torch.arange(_STEPS * count + 2, dtype=low.dtype)
        inside = _below(ordered, starts + width) - _below(ordered, starts)
        left, left_place = inside[:, : -2 * _STEPS].cummax(1)
        right, from_the_end = inside[:, 2 * _STEPS :].flip(1).cummax(1)
        right, right_place = right.flip(1), inside.shape[1] - 1 - from_the_end.flip(1)
        side, middle = torch.minimum(left, right), inside[:, _STEPS:-_STEPS]
        score, place = ((side - middle) / (side + middle + 1).sqrt()).max(1, keepdim=True)
        emptier = torch.where(left < right, left_place, right_place).gather(1, place)
        begins = [starts.gather(1, where) for where in (place + _STEPS, emptier)]
        found.append(torch.cat([score, *begins, width], dim=1))
    every = torch.stack(found, dim=1)
    best = every[torch.arange(len(every)), every[:, :, 0].argmax(1)]
    return _Windows(best[:, 1:3], torch.where(best[:, 0] > 0, best[:, 3], 0.0))


def _below(ordered: Tensor, places: Tensor) -> Tensor:
    return torch.searchsorted(ordered, places.contiguous()).double()


def _counted(values: Float[Tensor, "lines rows"], windows: _Windows) -> Int[Tensor, "lines 2"]:
    """How many values lie in the middle window and in its neighbour."""
    away = values.double()[:, None] - windows.starts[:, :, None]
    return ((away >= 0) & (away < windows.width[:, None, None])).sum(2)


def _directions(x: Tensor, sides: Tensor) -> Float[Tensor, "features lines"]:
    """Of length 1, from the mean of the rows that are not on a side to that of those which are."""
    on = sides.to(x.dtype)
    means = [part @ x / part.sum(1, keepdim=True).clamp_min(1) for part in (on, 1 - on)]
    return torch.nn.functional.normalize(means[0] - means[1], dim=1).T


def _sides(x: Tensor, seed: int) -> Bool[Tensor, "lines rows"]:
    """Rows that may lie on one side of a valley: each cluster against all others."""
    seen = _main_axes(x, seed) if x.shape[1] > _AXES else x
    found = []
    for clusters in _CLUSTERS:
        if len(x) >= 2 * clusters:
            labels = kmeans(seen, clusters, seed=seed, restarts=2, max_iterations=30)[1]
            found += [labels == cluster for cluster in range(1 if clusters == 2 else clusters)]
    return torch.stack(found)


def _main_axes(x: Tensor, seed: int) -> Tensor:
    """The rows along their main axes, near enough, by subspace iteration from a random start."""
    generator = torch.Generator().manual_seed(seed)
    axes = torch.randn(x.shape[1], _AXES, generator=generator, dtype=x.dtype).to(x.device)
    centred = x - x.mean(0)
    for _ in range(_ITERATIONS):
        axes = torch.linalg.qr(centred.T @ (centred @ axes))[0]
    return centred @ axes
