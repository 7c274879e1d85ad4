"""Is a new site farther from the sources than they are from one another? A rank test whose units are sites, not rows.

    T_k = ||mu_k - mean_{b != k} mu_b||^2

over the S sources and the new site, unbiased and with as many groups of rows (patients) of every site and as many rows
of every group. Were the new site one of the same population of sites as the sources, every rank of its T among the
S + 1 would be equally likely: p = rank / (S + 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.insight.shift.rows import checked_rows, kernel_blocks
from gated_domains.layer.kernels import KernelLike
from gated_domains.runs.site_shift import SiteRank

FEWEST_ROWS = 10
"""A source with fewer rows (groups) is not ranked, where the usual source has more: every site is seen by as few."""
_MOST_ROWS = 1_000  # of a site
_DRAWS = 9


@torch.no_grad()
def site_rank(
    kernel: KernelLike,
    sources: Sequence[Tensor],
    new: Tensor,
    *,
    groups: Sequence[NDArray[Any] | None] | None = None,
    draws: int = _DRAWS,
    seed: int = 0,
) -> SiteRank | None:
    """The rank of a new site's T, 1 for the largest; None where fewer than two sources have two groups of rows.

    ``groups`` hold a label for every row, of every source and of the new site, last: rows with the same label (a
    patient) never form a pair with one another. Every site is seen by as many groups as the smallest has and as many
    rows of each as the smallest group has, drawn ``draws`` times; rank and T are medians over the draws. None stands
    for labels that are not known: where some sites have labels and others none, there is no p-value. Sources with too
    few groups are left out.
    """
    sites = [*sources, new]
    given = [None] * len(sites) if groups is None else list(groups)
    labels = [np.arange(len(site)) if own is None else own for site, own in zip(sites, given, strict=True)]
    counts = np.array([len(np.unique(own)) for own in labels])
    if len(sites) < 2:
        return None
    fewest = max(2.0, min(FEWEST_ROWS, float(np.median(counts[:-1]))))
    enough = [place for place, count in enumerate(counts[:-1]) if count >= fewest]
    if len(enough) < 2 or counts[-1] < 2:
        return None
    left_out = tuple(place for place in range(len(sources)) if place not in enough)
    enough.append(len(sources))
    drawn = _Draws([sites[place] for place in enough], [labels[place] for place in enough])
    rng = np.random.default_rng(seed)
    found = np.stack([site_distances(*drawn.products(kernel, rng)) for _ in range(draws if drawn.vary else 1)])
    rank = int(np.ceil(np.median((found >= found[:, -1:]).sum(1))))
    squared = np.median(found, axis=0)
    known = [given[place] is not None for place in enough]
    return SiteRank(
        rank=rank,
        sites=len(enough),
        p_value=rank / len(enough) if all(known) or not any(known) else None,
        squared=float(squared[-1]),
        squared_of_sources=tuple(map(float, squared[:-1])),
        rows=drawn.groups * drawn.rows,
        groups=drawn.groups if any(known) else None,
        left_out=left_out,
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


class _Draws:
    """As many ``groups`` of every site and ``rows`` of every group, at random; all of them where none has more."""

    def __init__(self, sites: Sequence[Tensor], labels: Sequence[NDArray[Any]]) -> None:
        for number, site in enumerate(sites):
            checked_rows(site, f"site {number}", like=sites[0])
        self.sites = sites
        self.members = [np.unique(own, return_inverse=True)[1] for own in labels]
        sizes = [np.bincount(member) for member in self.members]
        self.rows = min(int(min(size.min() for size in sizes)), _MOST_ROWS // 2)
        self.groups = min(min(map(len, sizes)), _MOST_ROWS // self.rows)
        self.vary = any(len(member) > self.groups * self.rows for member in self.members)

    def _drawn(self, member: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Rows of a site, those of a group together."""
        order = rng.permutation(len(member))
        order = order[np.argsort(member[order], kind="stable")]
        sizes = np.bincount(member)
        starts = np.concatenate([[0], sizes.cumsum()[:-1]])
        chosen = rng.permutation(len(sizes))[: self.groups]
        return np.asarray(order[(starts[chosen][:, None] + np.arange(self.rows)).ravel()])

    def products(
        self, kernel: KernelLike, rng: np.random.Generator
    ) -> tuple[Float[np.ndarray, "sites sites"], Float[np.ndarray, " sites"]]:
        """``<mu_a, mu_b>`` of the rows drawn of every site, and ``||mu_a||^2`` over pairs of different groups."""
        device, each = self.sites[0].device, self.groups * self.rows
        taken = [torch.from_numpy(self._drawn(member, rng)).to(device) for member in self.members]
        pooled = torch.cat([site[rows] for site, rows in zip(self.sites, taken, strict=True)])
        of_group = torch.arange(len(pooled), device=device) // self.rows * self.rows
        in_group = of_group[:, None] + torch.arange(self.rows, device=device)
        by_site, own, start = [], [], 0
        for block in kernel_blocks(kernel, pooled, pooled):
            block = block.double()
            by_site.append(block.unflatten(1, (len(self.sites), each)).sum(2))
            own.append(block.gather(1, in_group[start : start + len(block)]).sum(1))
            start += len(block)
        pairs = torch.cat(by_site).unflatten(0, (len(self.sites), each)).sum(1).cpu().numpy()
        inside = torch.cat(own).unflatten(0, (len(self.sites), each)).sum(1).cpu().numpy()
        return pairs / each**2, (np.diag(pairs) - inside) / (each * (each - self.rows))
