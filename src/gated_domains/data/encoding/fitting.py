"""Which encoding goes with which inputs, and encodings from the plain JSON they are shipped as."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding.bands import BandsEncoding
from gated_domains.data.encoding.base import Encoding, FeatureEncoding, ImageEncoding
from gated_domains.data.encoding.columns import ColumnsEncoding
from gated_domains.data.encoding.molecules import BitsEncoding, GraphEncoding
from gated_domains.data.encoding.table import TableEncoding
from gated_domains.data.encoding.tokens import TokenEncoding
from gated_domains.data.encoding.words import WordsEncoding
from gated_domains.data.errors import DataError, did_you_mean, first_line
from gated_domains.data.inputs import Rows
from gated_domains.data.tables import Table
from gated_domains.data.text.inputs import Text


def fit_encoding(dataset: DomainDataset, rows: Rows) -> Encoding:
    """The encoding of a data set's inputs, with all that is learned from data learned from ``rows``, the training rows.

    The inputs of other rows are never looked at.
    """
    if len(rows) == 0:
        raise DataError("there are no training rows to learn an encoding from")
    inputs = dataset.inputs
    if isinstance(inputs, Table):
        return TableEncoding.fit(inputs, rows)
    if isinstance(inputs, Text):
        return WordsEncoding.fit(inputs, rows) if inputs.kind == "words" else TokenEncoding.fit(inputs, rows)
    if inputs.kind == "graphs":
        return GraphEncoding()
    shape = inputs.read(rows[:1]).shape[1:]
    if inputs.kind == "images":
        return ImageEncoding(*shape, standardise=getattr(inputs, "standardise", False))
    if inputs.kind == "bits":
        return BitsEncoding(*shape)
    return BandsEncoding(*shape) if inputs.kind == "bands" else FeatureEncoding(*shape)


def encoding_from(description: Mapping[str, Any]) -> Encoding:
    """The encoding that ``Encoding.describe`` described."""
    fields = dict(description)
    kind = str(fields.pop("kind", ""))
    makers: dict[str, Callable[..., Encoding]] = {
        "images": ImageEncoding,
        "bands": BandsEncoding,
        "features": FeatureEncoding,
        "columns": ColumnsEncoding,
        "table": TableEncoding.from_description,
        "words": WordsEncoding,
        "tokens": TokenEncoding,
        "bits": BitsEncoding,
        "graphs": GraphEncoding,
    }
    if kind not in makers:
        raise DataError(f"there is no encoding {kind!r}{did_you_mean(kind, makers)}")
    try:
        return makers[kind](**fields)
    except (KeyError, TypeError) as error:
        raise DataError(
            f"the description of the encoding {kind!r} is damaged ({first_line(error)}); fit it anew"
        ) from error
