"""A share of rows drawn by domain and class, in which rows that are bound together are never torn apart."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.inputs import Rows


def draw(
    domains: Rows, labels: Rows, *, ties: Sequence[Rows], names: Sequence[str], share: float, seed: int
) -> NDArray[np.bool_]:
    """Which rows are drawn: of every stratum (domain x label) its share, in whole units of rows bound by ``ties``.

    Strata follow each other in random order, and what rounding gives or takes in one is made up in the next, so that
    the total is right to half a unit. A stratum keeps at least one unit undrawn. The order inside a stratum depends on
    the seed, the domain's name and the label alone: a domain is divided nearly alike, whichever others stand beside it.
    """
    unit = _units(ties, len(domains))
    size = np.bincount(unit)
    classes = int(labels.max(initial=0)) + 1
    strata = [
        (stratum, units) for stratum, units in _units_by_stratum(domains * classes + labels, unit) if len(units) > 1
    ]
    rows = [int(size[units].sum()) for _, units in strata]
    wanted = round(share * len(domains)) / max(1, sum(rows))
    rng = np.random.default_rng(seed)
    offset = rng.uniform(-0.5, 0.5)  # gives every row the same chance, whatever its stratum rounds to
    taken = seen = 0
    drawn = np.zeros(len(size), np.bool_)
    for place in rng.permutation(len(strata)):
        stratum, units = strata[place]
        seen += rows[place]
        goal = wanted * seen + offset
        single = rows[place] == len(units)
        if single and (count := _nearest(taken, goal, most=len(units) - 1)) == 0:
            continue  # of many thousands of small strata most give nothing, and need no order
        domain, label = divmod(stratum, classes)
        own = np.random.default_rng([seed, crc32(names[domain].encode()), label])
        units = own.permutation(units)
        if not single:
            reached = taken + np.concatenate([[0], np.cumsum(size[units[:-1]])])
            count = int(np.argmin(np.abs(reached - goal)))
        drawn[units[:count]] = True
        taken += int(size[units[:count]].sum())
    return drawn[unit]


def _nearest(start: int, goal: float, *, most: int) -> int:
    """How many of at most so many single rows bring ``start`` nearest to the goal; of two, the fewer."""
    around = min(max(round(goal) - start, 0), most)
    return min(range(max(0, around - 1), min(most, around + 1) + 1), key=lambda count: abs(start + count - goal))


def _units(ties: Sequence[Rows], rows: int) -> Rows:
    """The index of the unit of every row: rows bound by any tie, directly or through others, are of one unit."""
    if not ties:
        return np.arange(rows)
    if len(ties) == 1:
        return np.unique(ties[0], return_inverse=True)[1].astype(np.int64)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    # A graph of rows and of what binds them: each row is joined to its value of every tie.
    starts = np.cumsum([rows, *(tie.max(initial=0) + 1 for tie in ties)])
    ends = np.concatenate([start + tie for start, tie in zip(starts, ties, strict=False)])
    edges = (np.ones(len(ends), np.int8), (np.tile(np.arange(rows), len(ties)), ends))
    _, label = connected_components(coo_array(edges, shape=(starts[-1], starts[-1])), directed=False)
    return np.unique(label[:rows], return_inverse=True)[1].astype(np.int64)


def _units_by_stratum(stratum: Rows, unit: Rows) -> list[tuple[int, Rows]]:
    """Every stratum with its units; a unit belongs to the stratum that most of its rows are in."""
    strata = int(stratum.max(initial=0)) + 1
    pairs, count = np.unique(unit * strata + stratum, return_counts=True)
    pairs = pairs[np.lexsort((-count, pairs // strata))]
    units, first = np.unique(pairs // strata, return_index=True)
    home = pairs[first] % strata
    order = np.argsort(home, kind="stable")
    found, starts = np.unique(home[order], return_index=True)
    return list(zip(found.tolist(), np.split(units[order], starts[1:]), strict=True)) if len(found) else []
