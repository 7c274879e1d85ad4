"""Are new rows drawn from what the reference rows are drawn from? A permutation test on their mean embeddings.

    squared = ||mu_new - mu_reference||^2

Gretton, Borgwardt, Rasch, Schoelkopf and Smola (2012), A kernel two-sample test. Under no shift the p-value is at most
0.05 in at most 5 % of all batches, whatever the kernel, the sizes or the distribution, as long as rows are independent;
rows that are not (of one patient) are permuted together. No single source passes this test either: it says whether a
difference is detectable, and ``site_rank`` whether that is more than sources differ by.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.data.errors import DataError
from gated_domains.insight.shift.mean_difference import ByLandmarks, ByPairs, MeanDifference
from gated_domains.insight.shift.rows import checked_rows
from gated_domains.layer.kernels import KernelLike

FEWEST_PERMUTATIONS = 19
"""With fewer no p-value reaches 0.05."""
PAIRS_UP_TO = 4_000
"""Pooled rows up to which "auto" takes all pairs."""
MOST_PAIRED = 20_000
"""Pooled rows beyond which the values of all pairs (8 bytes each) are refused."""
_LABELS_AT_ONCE = 4 * 2**20  # numbers in a block of labellings


@dataclass(frozen=True, kw_only=True)
class TwoSample:
    """How far new rows are from reference rows in the kernel's space, and how often chance alone does that.

    ``squared`` is ``||mu_new - mu_reference||^2`` over all pairs of rows (``by="pairs"``), or its part in the span of
    the landmarks. ``p_value`` is ``(1 + permutations with at least as large a value) / (1 + permutations)``. ``rows``
    are those of the reference and the new ones.
    """

    squared: float
    p_value: float
    permutations: int
    by: Literal["pairs", "landmarks"]
    rows: tuple[int, int]

    @property
    def distance(self) -> float:
        """``||mu_new - mu_reference||``."""
        return math.sqrt(max(0.0, self.squared))


@torch.no_grad()
def two_sample_test(
    kernel: KernelLike,
    reference: Tensor,
    new: Tensor,
    *,
    by: Literal["auto", "pairs", "landmarks"] = "auto",
    permutations: int = 999,
    landmarks: int = 512,
    groups: tuple[NDArray[Any], NDArray[Any]] | None = None,
    seed: int = 0,
) -> TwoSample:
    """Compare new rows with reference rows, and that with the same rows assigned to the two sides at random.

    - ``pairs``: every kernel value of the pooled rows; exact, for some thousands of rows
    - ``landmarks``: in linear time, for any number. Some rows of either side are drawn, and the difference of the means
      is seen in the span of these (Nystroem)
    - ``auto``: pairs up to 4,000 rows

    ``groups`` are labels of the reference rows and of the new rows: those that share one on their side (a patient) are
    permuted together.
    The same seed gives the same answer on every device.
    """
    by = _checked(reference, new, by, permutations, landmarks)
    total = len(reference) + len(new)
    generator = torch.Generator().manual_seed(seed)
    member, is_new = _members(reference, new, groups)
    difference = (
        ByPairs(kernel, reference, new, len(is_new))
        if by == "pairs"
        else ByLandmarks(kernel, reference, new, min(landmarks, total), generator, member)
    )
    picked = is_new if 2 * len(new) <= total else ~is_new  # the fewer
    labellings = _labellings(picked, difference.strata, permutations, generator)
    found = torch.cat([_squared(difference, some[:, member], reference.device) for some in labellings])
    observed = float(found[0])
    # What differs from it by rounding alone is as large.
    as_large = int((found[1:] >= observed - difference.rounding.slack(observed)).sum())
    return TwoSample(
        squared=observed,
        p_value=(1 + as_large) / (1 + permutations),
        permutations=permutations,
        by=by,
        rows=(len(reference), len(new)),
    )


def _checked(
    reference: Tensor, new: Tensor, by: Literal["auto", "pairs", "landmarks"], permutations: int, landmarks: int
) -> Literal["pairs", "landmarks"]:
    """Refuse what cannot be tested; the way that is taken."""
    if by not in ("auto", "pairs", "landmarks"):
        raise DataError(f"by must be 'auto', 'pairs' or 'landmarks', got {by!r}")
    if permutations < FEWEST_PERMUTATIONS:
        raise DataError(
            f"permutations={permutations} can give no p-value below {1 / (1 + max(0, permutations)):.2g}; take "
            f"{FEWEST_PERMUTATIONS} or more"
        )
    if landmarks < 1:
        raise DataError(f"landmarks must be 1 or more, got {landmarks}")
    checked_rows(reference, "reference", at_least=2)
    checked_rows(new, "new", at_least=2, like=reference)
    total = len(reference) + len(new)
    if by == "pairs" and total > MOST_PAIRED:
        raise DataError(f"{total:,} rows have too many pairs to be held; take by='landmarks'")
    if by == "auto":
        return "pairs" if total <= PAIRS_UP_TO else "landmarks"
    return by


def _members(
    reference: Tensor, new: Tensor, groups: tuple[NDArray[Any], NDArray[Any]] | None
) -> tuple[Int[Tensor, " rows"], Bool[Tensor, " groups"]]:
    """The group that every pooled row is a member of, and which groups are new."""
    numbers, counts = [], []
    for name, rows, labels in zip(("reference", "new"), (reference, new), groups or (None, None), strict=True):
        if labels is None:
            numbers.append(torch.arange(len(rows)))
            counts.append(len(rows))
            continue
        if np.shape(labels) != (len(rows),):
            raise DataError(f"groups: expected a label for each of {len(rows):,} {name} rows, got {np.shape(labels)}")
        known, member = np.unique(labels, return_inverse=True)
        numbers.append(torch.from_numpy(member))
        counts.append(len(known))
    return torch.cat([numbers[0], counts[0] + numbers[1]]), torch.arange(sum(counts)) >= counts[0]


def _squared(
    difference: MeanDifference, labels: Float[Tensor, "labellings rows"], device: torch.device
) -> Float[Tensor, " labellings"]:
    """``||mu_a - mu_b||^2`` of every labelling; of groups of unequal sizes the sides vary in rows."""
    some = labels.sum(1).double()
    return (1 / some + 1 / (labels.shape[1] - some)) ** 2 * difference(labels.to(device)).cpu()


def _labellings(
    picked: Bool[Tensor, " groups"], strata: list[Int[Tensor, " _"]], permutations: int, generator: torch.Generator
) -> Iterator[Float[Tensor, "labellings groups"]]:
    """The labels of groups as they are, then permuted inside every stratum, in blocks."""
    counts = [int(picked[places].sum()) for places in strata]
    at_once = max(1, _LABELS_AT_ONCE // len(picked))
    for start in range(0, 1 + permutations, at_once):
        labels = torch.zeros(min(at_once, 1 + permutations - start), len(picked))
        for number, row in enumerate(labels, start):
            if number == 0:
                row[picked] = 1
                continue
            for places, count in zip(strata, counts, strict=True):
                row[places[torch.randperm(len(places), generator=generator)[:count]]] = 1
        yield labels
