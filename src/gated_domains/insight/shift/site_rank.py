"""Is a new site farther from the sources than they are from one another? A rank test whose units are sites, not rows.

    T_k = ||mu_k - mean_{b != k} mu_b||^2

over the S sources and the new site, unbiased and with as many rows of every site. Were the new site one of the same
population of sites as the sources, every rank of its T among the S + 1 would be equally likely: p = rank / (S + 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.insight.sampling import groups_for, whole_groups
from gated_domains.insight.shift.rows import checked_rows, kernel_blocks
from gated_domains.layer.kernels import KernelLike
from gated_domains.reports.site_shift import SiteRank

FEWEST_ROWS = 10
"""A source with fewer is not ranked, where the usual source has more: every site is seen by as few rows as it has."""
_MOST_ROWS = 1_000  # of a site
_DRAWS = 9


@torch.no_grad()
def site_rank(
    kernel: KernelLike,
    sources: Sequence[Tensor],
    new: Tensor,
    *,
    groups: Sequence[NDArray[Any]] | None = None,
    draws: int = _DRAWS,
    seed: int = 0,
) -> SiteRank | None:
    """The rank of a new site's T, 1 for the largest; None where fewer than two sources have two groups of rows.

    ``groups`` hold a label for every row, of every source and of the new site, last: rows with the same label (a
    patient) are drawn together, and never form a pair with one another. Sites with more rows than the smallest are
    drawn from ``draws`` times; rank and T are medians over the draws. Sources with too few rows are left out.
    """
    sites = [*sources, new]
    labels = [np.arange(len(site)) for site in sites] if groups is None else list(groups)
    counts = np.array([len(site) for site in sources])
    if not len(counts):
        return None
    enough = [
        place
        for place, own in enumerate(labels)
        if len(np.unique(own)) > 1
        and (place == len(sources) or counts[place] >= min(FEWEST_ROWS, float(np.median(counts))))
    ]
    if len(enough) < 3 or enough[-1] != len(sources):
        return None
    rng = np.random.default_rng(seed)
    sums = _GroupSums(kernel, [sites[place] for place in enough], [labels[place] for place in enough], rng)
    each = int(sums.rows.min())
    draws = draws if sums.rows.max() > each else 1  # all rows of every site, at every draw
    found = np.stack([site_distances(*sums.products(sums.draw(each, rng))) for _ in range(draws)])
    ranks = (found >= found[:, -1:]).sum(1)
    rank = int(np.ceil(np.median(ranks)))
    squared = np.median(found, axis=0)
    return SiteRank(
        rank=rank,
        sites=len(enough),
        p_value=rank / len(enough),
        squared=float(squared[-1]),
        squared_of_sources=tuple(map(float, squared[:-1])),
        rows=each,
    )


def site_distances(
    products: Float[np.ndarray, "sites sites"], norms: Float[np.ndarray, " sites"]
) -> Float[np.ndarray, " sites"]:
    """T of every site, from ``<mu_a, mu_b>`` of different sites and unbiased ``||mu_a||^2``."""
    among = products.copy()
    np.fill_diagonal(among, norms)
    others = len(among) - 1
    to_others = (among.sum(1) - norms) / others
    of_others = (among.sum() - 2 * among.sum(1) + norms) / others**2
    return np.asarray(norms - 2 * to_others + of_others)


class _GroupSums:
    """Sums of kernel values over all pairs of two groups of rows; a row without a group is a group of its own."""

    def __init__(
        self, kernel: KernelLike, sites: Sequence[Tensor], labels: Sequence[NDArray[Any]], rng: np.random.Generator
    ) -> None:
        kept, sizes, of_site = [], [], []
        for number, (site, own) in enumerate(zip(sites, labels, strict=True)):
            checked_rows(site, f"site {number}", like=sites[0])
            rows = whole_groups(own, _MOST_ROWS, rng)
            _, member, size = np.unique(own[rows], return_inverse=True, return_counts=True)
            kept.append(site[torch.from_numpy(rows[np.argsort(member, kind="stable")]).to(site.device)])
            sizes.append(size)
            of_site.append(np.full(len(size), number))
        self.sizes, self.of_site = np.concatenate(sizes), np.concatenate(of_site)
        pooled, starts = torch.cat(kept), np.concatenate([[0], self.sizes.cumsum()[:-1]])
        # Rows of a group lie together.
        by_column = [
            np.add.reduceat(block.cpu().numpy(), starts, 1, dtype=np.float64)
            for block in kernel_blocks(kernel, pooled, pooled)
        ]
        self.total = np.add.reduceat(np.concatenate(by_column), starts, 0)

    @property
    def rows(self) -> NDArray[np.int64]:
        """Rows of every site."""
        return np.bincount(self.of_site, self.sizes).astype(np.int64)

    def draw(self, rows: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """(sites, groups): which groups of every site are taken, so many rows as near as whole groups come to it."""
        taken = np.zeros((int(self.of_site[-1]) + 1, len(self.sizes)))
        for site, chosen in enumerate(taken):
            own = np.flatnonzero(self.of_site == site)
            order = rng.permutation(own)
            chosen[order[: groups_for(self.sizes[order], rows)]] = 1
        return taken

    def products(self, taken: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """``<mu_a, mu_b>`` of the groups taken of every site, and ``||mu_a||^2`` over pairs of different groups."""
        pairs, counts = taken @ self.total @ taken.T, taken @ self.sizes
        own, own_pairs = taken @ np.diag(self.total), taken @ self.sizes**2
        return pairs / np.outer(counts, counts), (np.diag(pairs) - own) / (counts**2 - own_pairs)
