"""Which rows make up each batch, and which share is drawn by domain and class for validation.

A sampler is a function of seed and epoch alone, so that resuming is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol, get_args, runtime_checkable
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, did_you_mean
from gated_domains.data.inputs import Rows

Sampling = Literal["plain", "balanced", "groups", "single"]
"""How training batches may be made up: rows as they fall, equal shares of every domain, blocks of a few, one domain."""


@runtime_checkable
class Sampler(Protocol):
    """The rows of the batches of an epoch. Asked twice for the same epoch, it gives the same."""

    @property
    def blocks(self) -> int | None:
        """Into how many blocks of one size a batch falls, the rows of each of one domain; None: into none."""
        ...

    def __len__(self) -> int:
        """Batches an epoch."""
        ...

    def batches(self, epoch: int) -> Iterator[Rows]:
        """The rows of one batch after the other."""
        ...


class InOrder:
    """Every row once, as they come; the last batch may be short. For evaluation."""

    blocks = None

    def __init__(self, rows: Rows, batch_size: int) -> None:
        _check(rows, batch_size)
        self.rows, self.batch_size = rows, batch_size

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def batches(self, epoch: int = 0) -> Iterator[Rows]:
        return _cut(self.rows, self.batch_size)


class Shuffled:
    """Every row once, in an order of its own each epoch.

    With ``drop_last`` a last batch that would be short is left out, unless it is the only one: statistics over a batch
    of one or two (batch norm, kernel means) do harm.
    """

    blocks = None

    def __init__(self, rows: Rows, batch_size: int, *, seed: int, drop_last: bool = True) -> None:
        _check(rows, batch_size, seed)
        self.rows, self.batch_size, self.seed, self.drop_last = rows, batch_size, seed, drop_last

    def __len__(self) -> int:
        whole = max(1, len(self.rows) // self.batch_size)
        return whole if self.drop_last else -(-len(self.rows) // self.batch_size)

    def batches(self, epoch: int) -> Iterator[Rows]:
        order = _random(self.seed, epoch).permutation(self.rows)
        return _cut(order[: len(self) * self.batch_size], self.batch_size)


class DomainBalanced:
    """Equal shares of every domain in every batch, in as many batches as ``Shuffled`` has.

    Where the batch size is no multiple of the number of domains, the domains with one row more (with more domains than
    places: those with a row at all) go round at random, each once before any again. So do the rows of a domain: a small
    domain is gone through several times an epoch, a large one in part.

    ``domains`` holds the domain of every row of the data set, not of the chosen ``rows`` alone.
    """

    blocks = None

    def __init__(self, rows: Rows, domains: Rows | None, batch_size: int, *, seed: int) -> None:
        _check(rows, batch_size, seed)
        self.batch_size, self.seed = min(batch_size, len(rows)), seed
        self.rows_by_domain = _by_domain(rows, domains)

    def __len__(self) -> int:
        return sum(len(rows) for rows in self.rows_by_domain) // self.batch_size

    def batches(self, epoch: int) -> Iterator[Rows]:
        rng = _random(self.seed, epoch)
        return _cut(_filled(self._places(rng), self.rows_by_domain, rng), self.batch_size)

    def _places(self, rng: np.random.Generator) -> Rows:
        """The domain of every place in every batch."""
        domains = np.arange(len(self.rows_by_domain))
        share, extra = divmod(self.batch_size, len(domains))
        everybody = np.tile(np.repeat(domains, share), (len(self), 1))
        return rng.permuted(np.concatenate([everybody, _turns(len(self), extra, domains, rng)], axis=1), axis=1)


class DomainBlocks:
    """A few domains a batch, as many rows of each, side by side: blocks of one size, each of one domain.

    Domains go round at random, each once before any again, and so do the rows of a domain. Where there are no more
    domains than ``blocks``, every batch has them all. The batch size is cut down to a multiple of the blocks. A domain
    with fewer rows than a block has some of them twice in it.
    """

    def __init__(self, rows: Rows, domains: Rows | None, batch_size: int, *, blocks: int, seed: int) -> None:
        _check(rows, batch_size, seed)
        if blocks < 1:
            raise DataError(f"a batch must have rows of one domain or more, got {blocks} domains a batch")
        self.rows_by_domain = _by_domain(rows, domains)
        self.blocks: int | None = min(blocks, len(self.rows_by_domain), batch_size)
        self.share, self.seed = max(1, min(batch_size, len(rows)) // self.blocks), seed

    def __len__(self) -> int:
        assert self.blocks is not None
        return max(1, sum(len(rows) for rows in self.rows_by_domain) // (self.blocks * self.share))

    def batches(self, epoch: int) -> Iterator[Rows]:
        assert self.blocks is not None
        rng = _random(self.seed, epoch)
        turns = _turns(len(self), self.blocks, np.arange(len(self.rows_by_domain)), rng)
        places = np.repeat(turns, self.share, axis=1)
        return _cut(_filled(places, self.rows_by_domain, rng), self.blocks * self.share)


class Shared:
    """One process's part of every batch of a sampler: row ``rank``, and every ``world``-th after it.

    The parts of all processes together are the batch, less what would make them unequal (the batch size should be a
    multiple of the processes), so that the mean of their gradients is the gradient over the batch. ``uneven``, for
    evaluation, keeps every row: parts differ by one row at most, and a process gets no batch where its part is empty.
    A batch in blocks is shared block by block.
    """

    def __init__(self, sampler: Sampler, rank: int, world: int, *, uneven: bool = False) -> None:
        if not 0 <= rank < world:
            raise DataError(f"rank must be 0 to {world - 1}, less than the {world} processes; got {rank}")
        self.sampler, self.rank, self.world, self.uneven = sampler, rank, world, uneven
        self.blocks = None if uneven else sampler.blocks

    def __len__(self) -> int:
        return sum(1 for _ in self.batches(0)) if self.uneven else len(self.sampler)

    def batches(self, epoch: int = 0) -> Iterator[Rows]:
        for rows in self.sampler.batches(epoch):
            if self.uneven:
                mine = rows[self.rank :: self.world]
                if len(mine):
                    yield mine
                continue
            part = len(rows) // (self.blocks or 1)
            if part < self.world:
                whole = "a batch" if self.blocks is None else "a domain's block"
                raise DataError(
                    f"{whole} of {part:,} rows cannot be shared by {self.world:,} processes; "
                    "choose a larger batch size, or fewer processes (--devices)"
                )
            even = rows.reshape(self.blocks or 1, part)[:, : part - part % self.world]
            yield even[:, self.rank :: self.world].reshape(-1)


def sampler_for(
    sampling: str,
    rows: Rows,
    *,
    domains: Rows | None,
    batch_size: int,
    seed: int,
    blocks: int = 4,
    repeat_rows: bool = True,
) -> Shuffled | DomainBalanced | DomainBlocks:
    """Training batches of these rows, made up as ``sampling`` says; ``domains`` are those of all rows of the data set.

    ``blocks`` is how many domains a batch of "groups" has; without ``repeat_rows`` it has more where most rows are of
    domains too small to fill a block, which would otherwise be filled with the same few rows again and again.
    """
    if sampling == "plain":
        return Shuffled(rows, batch_size, seed=seed)
    if sampling == "balanced":
        return DomainBalanced(rows, domains, batch_size, seed=seed)
    if sampling == "groups" and not repeat_rows:
        blocks = _blocks_without_repeats([len(own) for own in _by_domain(rows, domains)], batch_size, blocks)
    if sampling in ("groups", "single"):
        return DomainBlocks(rows, domains, batch_size, blocks=blocks if sampling == "groups" else 1, seed=seed)
    known = get_args(Sampling)
    raise DataError(f"there is no sampling {sampling!r}{did_you_mean(sampling, known)}")


def rows_a_domain(sampling: str, sizes: Sequence[int], *, batch_size: int, blocks: int, repeat_rows: bool) -> int:
    """Rows of one domain in a batch of ``sampler_for``, on average where it has no blocks.

    ``sizes`` are the rows of each domain.
    """
    if sampling == "groups":
        domains = blocks if repeat_rows else _blocks_without_repeats(sizes, batch_size, blocks)
    else:
        domains = 1 if sampling == "single" else len(sizes)
    return max(1, min(batch_size, sum(sizes)) // min(domains, len(sizes), batch_size))


def _blocks_without_repeats(sizes: Sequence[int], batch_size: int, blocks: int) -> int:
    """As many domains a batch as leave each no more rows than the domain of a typical row has, two at least."""
    typical = max(2, int(np.median(np.repeat(sizes, sizes))))
    return blocks if batch_size // blocks <= typical else max(blocks, min(len(sizes), batch_size // typical))


def _turns(batches: int, extra: int, domains: Rows, rng: np.random.Generator) -> Rows:
    """The domains that get one row more, for every batch: all once before any again, and none twice in a batch."""
    turns = np.empty((batches, extra), np.int64)
    waiting = domains[:0]
    for batch in turns:
        if len(waiting) < extra:
            # The new round begins with domains that this batch does not have yet; the rest of it stays at random.
            fresh = rng.permutation(domains)
            first = fresh[~np.isin(fresh, waiting)][: extra - len(waiting)]
            waiting = np.concatenate([waiting, first, fresh[~np.isin(fresh, first)]])
        batch[:], waiting = waiting[:extra], waiting[extra:]
    return turns


def _by_domain(rows: Rows, domains: Rows | None) -> list[Rows]:
    """The chosen rows of each domain that has any."""
    if domains is None:
        raise DataError(
            "batches made up by domain need domains, and the data has none; "
            "name the column that holds them (--domain), or choose plain sampling"
        )
    if rows.max() >= len(domains):
        raise DataError(f"row {rows.max()} is asked for but there are {len(domains):,} domains, one for each row")
    rows = rows[np.argsort(domains[rows], kind="stable")]
    return np.split(rows, np.flatnonzero(np.diff(domains[rows])) + 1)


def _filled(places: Rows, rows_by_domain: list[Rows], rng: np.random.Generator) -> Rows:
    """A row for every place, which says of what domain: a domain's rows, gone through as often as it takes."""
    order = np.empty(places.size, np.int64)
    by_domain = np.argsort(places, axis=None, kind="stable")
    ends = np.cumsum(np.bincount(places.ravel(), minlength=len(rows_by_domain)))[:-1]
    for rows, mine in zip(rows_by_domain, np.split(by_domain, ends), strict=True):
        order[mine] = _rounds(len(mine), rows, rng)
    return order


def _rounds(count: int, rows: Rows, rng: np.random.Generator) -> Rows:
    """This many rows: all in random order, then all in another, and so on."""
    rounds = np.tile(rows, (-(-count // len(rows)), 1))
    return rng.permuted(rounds, axis=1).ravel()[:count]


def _cut(rows: Rows, batch_size: int) -> Iterator[Rows]:
    return (rows[start : start + batch_size] for start in range(0, len(rows), batch_size))


def _random(seed: int, epoch: int) -> np.random.Generator:
    if epoch < 0:
        raise DataError(f"epoch must be 0 or more, got {epoch}")
    return np.random.default_rng([seed, epoch])


def _check(rows: Rows, batch_size: int, seed: int = 0) -> None:
    if batch_size < 1:
        raise DataError(f"the batch size must be 1 or more, got {batch_size}")
    if len(rows) == 0:
        raise DataError("there are no rows to make batches of")
    if seed < 0:
        raise DataError(f"seed must be 0 or more, got {seed}")


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
