"""What a basis is worth: the score of the model without it, less that of the whole model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.batches import Samples
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.inputs import Rows
from gated_domains.evaluation.calibration import tempered
from gated_domains.evaluation.scores import Metric, has_score, score_by_domain
from gated_domains.layer.units import GatedDomainUnits
from gated_domains.methods.gdu import GDU
from gated_domains.training.prediction import predict_rows


@contextmanager
def without(units: GatedDomainUnits, basis: int) -> Iterator[None]:
    """The layer with one basis switched off inside the block: gates and coverage are those of the bases left."""
    before = units.active.clone()
    try:
        units.active[before.nonzero()[basis, 0]] = False
        yield
    finally:
        units.active.copy_(before)


@dataclass(frozen=True, eq=False, kw_only=True)
class Scoring:
    """How rows are scored: all together, in one metric, at the temperature that the model was calibrated to."""

    method: GDU
    samples: Samples
    data: DomainDataset
    metric: Metric
    temperature: float = 1.0

    def __call__(self, rows: Rows) -> float:
        """The score of rows; NaN where they have none."""
        targets = self.data.targets[rows]
        if not len(rows) or not has_score(self.metric, targets):
            return float("nan")
        output = predict_rows(self.method, self.samples, rows).output
        if self.temperature != 1.0:
            output = tempered(output, self.temperature)
        return score_by_domain(output, targets, domains=None, domain_names=(), metric=self.metric).overall


def dropping(score: Scoring, parts: Sequence[Rows]) -> NDArray[np.float32]:
    """(bases, parts): the score without each basis less the score with all; NaN where the only basis would go."""
    units = score.method.units
    found = np.full((units.num_bases, len(parts)), np.nan, np.float32)
    if units.num_bases == 1:
        return found
    whole = [score(rows) for rows in parts]
    for basis in range(units.num_bases):
        with without(units, basis):
            found[basis] = [score(rows) - before for rows, before in zip(parts, whole, strict=True)]
    return found
