"""What gates would see of a data set before anything is trained: rows of a view that needs no trained body."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.backbones.backbone import Backbone, default_gating
from gated_domains.backbones.bodies import default_body, make_body
from gated_domains.backbones.gating import GATINGS
from gated_domains.data.batches import Samples, place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import Encoding, fit_encoding
from gated_domains.data.errors import DataError, did_you_mean
from gated_domains.data.inputs import Rows
from gated_domains.data.progress import progress
from gated_domains.data.sampling import InOrder

_TOGETHER = 512
_CONSTANT = 1e-6  # below it a standardised column holds nothing but rounding


def gating_rows_of(
    dataset: DomainDataset,
    rows: Rows | None = None,
    *,
    gating: str | None = None,
    max_rows: int = 25_000,
    seed: int = 0,
) -> NDArray[np.float32]:
    """At most ``max_rows`` of these rows (of all by default), at random, as gates see them: encoded and standardised.

    ``gating`` names a view of the raw input, by default the one that gates get. The encoding learns from all of
    ``rows``, the standardisation from those drawn; other rows teach it nothing.
    """
    kind = dataset.inputs.kind
    gating = default_gating(kind) if gating is None else gating
    if gating not in GATINGS:
        raise DataError(f"there is no view {gating!r} for gates{did_you_mean(gating, GATINGS)}")
    rows = np.arange(len(dataset)) if rows is None else rows
    encoding = fit_encoding(dataset, rows)
    backbone = _untrained(gating, kind, encoding)
    if len(rows) > max_rows:
        rows = np.sort(np.random.default_rng(seed).choice(rows, max_rows, replace=False))
    if len(rows) < 2:
        raise DataError(f"gates tell rows apart, and {dataset.name} has {len(rows)} to look at; give more data")
    seen = backbone.fit_view(_batches(place(dataset, encoding, resident=False), rows)).numpy()
    if not (seen.std(axis=0) > _CONSTANT).any():
        raise DataError(
            f"all {len(seen):,} rows of {dataset.name} look the same to gates: every number they see is constant; "
            "there is nothing to choose by: use inputs that differ"
        )
    return seen


def _untrained(gating: str, kind: str, encoding: Encoding) -> Backbone:
    """A backbone whose gates can look although its body is not trained."""
    # Its weights are never looked at: a small one will do.
    body = make_body(default_body(kind), encoding.shape, pretrained="false", shrunk=True, about=encoding.about)
    backbone = Backbone(body, GATINGS[gating](body, encoding.shape))
    if not backbone.sees_raw_input:
        raise DataError(
            f"the view {gating!r} is made by a trained body, and nothing is trained yet; "
            f"leave it out for {default_gating(kind)!r}, which is made of the raw input"
        )
    return backbone


def _batches(samples: Samples, rows: Rows) -> Iterator[Tensor]:
    with progress("looking at rows as gates do", -(-len(rows) // _TOGETHER)) as advance:
        for batch in samples.batches(InOrder(rows, _TOGETHER)):
            yield batch.inputs
            advance(1)
