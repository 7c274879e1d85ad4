"""One round of annealing: groups of rows without mass go, wide ones fall apart where that is real, others join.

Rose's deterministic annealing: a group of rows is stable while the temperature is above twice the largest eigenvalue of
its covariance, its critical temperature, and falls apart below. Between two critical temperatures nothing happens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gated_domains.layer.fitting import lloyd
from gated_domains.layer.modes import Gap, chance_apart, find_gap

COOLING = 0.5
"""The factor by which the temperature falls from round to round."""

# Chances that one mode would look like two: below the first a group is parted, above the second two are joined.
_PARTED, _JOINED = 0.01, 0.05
# Shares of all rows: a part has at least the first, a group with less than the second has no mass.
_PART, _NO_MASS = 0.01, 0.005
_ITERATIONS = 20
_FLAT = 1e-9  # of the largest critical temperature: rounding

Heirs = dict[int, dict[int, float]]


@dataclass
class Regrouped:
    """What came of a round: the group of every row, and what each group takes over from those before.

    ``heirs[new][old]`` are shares that sum to one; a group that is not named is what it was.
    """

    groups: Int[Tensor, " rows"]
    used: set[int]
    temperature: float
    #: Whether every group is below its critical temperature: whatever could fall apart has been looked at.
    cold: bool = False
    splits: int = 0
    merges: int = 0
    prunes: int = 0
    heirs: Heirs = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        """Whether any group is not what it was."""
        return self.splits + self.merges + self.prunes > 0

    @property
    def over(self) -> bool:
        """Whether nothing is left to do: all that could fall apart was looked at, and there are as many as before."""
        return self.cold and self.splits == self.merges and self.prunes == 0


def critical_temperature(x: Float[Tensor, "rows features"]) -> float:
    """Twice the largest eigenvalue of the covariance, by power iteration."""
    centred = x - x.mean(0)
    lengths = centred.square().sum(1)
    if float(lengths.max()) == 0:
        return 0.0
    axis = centred[int(lengths.argmax())]
    for _ in range(30):
        axis = axis / torch.linalg.vector_norm(axis)
        axis = centred.T @ (centred @ axis) / len(x)
    return 2 * float(torch.linalg.vector_norm(axis))


def regroup(
    x: Float[Tensor, "rows features"],
    groups: Int[Tensor, " rows"],
    *,
    used: set[int],
    places: int,
    temperature: float,
    least: int = 10,
    round_: int = 1,
) -> Regrouped:
    """One round at the next lower temperature; ``groups`` are numbers below ``places``, those in use ``used``.

    A part has ``least`` rows or more. The rounds before cost this one some of its trust in what it finds.
    """
    found = Regrouped(groups.clone(), set(used), temperature)
    _prune(found, x)
    critical = {group: critical_temperature(x[found.groups == group]) for group in found.used}
    _cool(found, critical)
    tried = sorted((g for g in critical if critical[g] > found.temperature), key=lambda g: -critical[g])
    smallest, level = max(least, int(_PART * len(x))), _PARTED / (max(1, len(tried)) * round_)

    def gap_in(group: int) -> Gap | None:
        gap = find_gap(x[found.groups == group], least=smallest, seed=round_)
        return None if gap is None or gap.p > level else gap

    whole = set()
    for group in tried:
        gap, free = gap_in(group), sorted(set(range(places)) - found.used)
        if gap is None:
            whole.add(group)
        elif free:
            _split(found, x, group, free[0], gap)
            whole |= {part for part in (group, free[0]) if gap_in(part) is None}
    _merge(found, x, whole, seed=round_)
    return found


def settled_groups(x: Float[Tensor, "rows features"], most: int, *, least: int = 10) -> Int[Tensor, " rows"]:
    """Rounds from one group of all rows until nothing falls apart: the group of every row, numbered from 0."""
    x = x - x.mean(0)
    groups, used, temperature = torch.zeros(len(x), dtype=torch.long, device=x.device), {0}, critical_temperature(x)
    for round_ in range(1, 64):
        found = regroup(x, groups, used=used, places=most, temperature=temperature, least=least, round_=round_)
        groups, used, temperature = found.groups, found.used, found.temperature
        if found.over:
            break
    return torch.unique(groups, return_inverse=True)[1]


def _prune(found: Regrouped, x: Tensor) -> None:
    """Let go of groups without mass, and give every row to the nearest group that is left."""
    mass = {group: int((found.groups == group).sum()) for group in found.used}
    fullest = max(mass, key=lambda group: mass[group])
    kept = sorted(g for g in found.used if g == fullest or mass[g] >= max(1, _NO_MASS * len(x)))
    found.prunes = len(found.used) - len(kept)
    found.used = set(kept)
    centres = torch.stack([x[found.groups == group].mean(0) for group in kept])
    labels = lloyd(x, x.square().sum(1), centres, _ITERATIONS)[1]
    found.groups = torch.tensor(kept, device=x.device)[labels]


def _cool(found: Regrouped, critical: dict[int, float]) -> None:
    """To the next temperature, or straight to where something can happen; there is nothing in between."""
    found.temperature = min(COOLING * found.temperature, (1 - 1e-6) * max(critical.values()))
    # A group of equal rows has none, and never falls apart.
    found.cold = all(found.temperature < own for own in critical.values() if own > _FLAT * max(critical.values()))


def _split(found: Regrouped, x: Tensor, group: int, free: int, gap: Gap) -> None:
    own = torch.nonzero(found.groups == group).squeeze(-1)
    found.groups[own[x[own] @ gap.direction > gap.cut]] = free
    found.used.add(free)
    found.splits += 1
    found.heirs[group] = found.heirs[free] = found.heirs.get(group, {group: 1.0})


def _merge(found: Regrouped, x: Tensor, whole: set[int], *, seed: int) -> None:
    """Join the two groups that look most like one, as long as any do.

    Only such as have one mode each: of what is yet to fall apart, the parts may lie on either side of another group.
    """
    chances: dict[tuple[int, int], float] = {}
    while len(whole) > 1:
        for one, other in combinations(sorted(whole), 2):
            if (one, other) not in chances:
                rows = (x[found.groups == group] for group in (one, other))
                chances[one, other] = chance_apart(*rows, seed=seed)
        (one, other), chance = max(chances.items(), key=lambda pair: pair[1])
        if chance <= _JOINED:
            return
        _join(found, one, other)
        whole = whole - {other}
        chances = {pair: old for pair, old in chances.items() if not {one, other} & set(pair)}


def _join(found: Regrouped, one: int, other: int) -> None:
    mass = {group: float((found.groups == group).sum()) for group in (one, other)}
    shares: dict[int, float] = {}
    for group, own in mass.items():
        for old, share in found.heirs.get(group, {group: 1.0}).items():
            shares[old] = shares.get(old, 0.0) + share * own / sum(mass.values())
    found.groups[found.groups == other] = one
    found.used.remove(other)
    found.heirs.pop(other, None)
    found.heirs[one] = shares
    found.merges += 1
