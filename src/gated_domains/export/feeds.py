"""Feeds: what a graph takes of each kind of data, as a person has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.encoding import Encoding, TableEncoding
from gated_domains.data.errors import DataError, listing
from gated_domains.data.inputs import Inputs, Rows
from gated_domains.data.other_encodings import ColumnsEncoding
from gated_domains.export.table_front import name_codes, number_codes, table_arrays


@dataclass(frozen=True)
class Feed:
    """One input of a graph: its name, its numpy type, the shape of one sample, and how to fill it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    how: str

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}


_PLAIN = {
    "bands": ("bands", "float32", "images of several bands, standardised as in training, channels first"),
    "features": ("features", "float32", "the vector as it is; what the model standardises, it standardises itself"),
    "columns": ("columns", "float64", "these columns, all filled in: "),
    "words": (
        "words",
        "float32",
        "the tf-idf of each term of the vocabulary, as a vector of length 1; splitting texts into words is not in the "
        "graph: the vocabulary and its weights lie in the file's schema",
    ),
    "tokens": (
        "tokens",
        "int64",
        "the numbers of the tokens, 0 where a text is shorter; cutting texts into tokens is not in the graph: the "
        "tokenizer lies in the file's schema",
    ),
    "bits": (
        "bits",
        "uint8",
        "the fingerprint, zeros and ones; making it of a molecule is not in the graph (`gated-domains predict` does)",
    ),
}


def feeds_of(encoding: Encoding, *, exact: bool = False) -> list[Feed]:
    """The inputs of a graph for data of this encoding, in order; ``exact`` takes vectors in float64.

    An estimator scales its columns itself, and what float32 rounds off a large number may be all that it varies by.
    """
    if isinstance(encoding, TableEncoding):
        return _of_table(encoding)
    if encoding.kind == "images":
        channels, height, width = encoding.shape
        how = "bytes 0 to 255, channels last; scaling is in the graph"
        return [Feed("images", "uint8", (height, width, channels), how)]
    if encoding.kind not in _PLAIN:
        raise DataError(
            f"a model for {encoding.kind} cannot be exported: its samples differ in size, and a graph takes samples of "
            "one shape; ship the run's folder, which `gated-domains predict` takes as well"
        )
    name, dtype, how = _PLAIN[encoding.kind]
    how += ", ".join(encoding.names) if isinstance(encoding, ColumnsEncoding) else ""
    if exact and encoding.kind == "features":
        dtype = "float64"
    return [Feed(name, dtype, tuple(encoding.shape), how)]


def _of_table(encoding: TableEncoding) -> list[Feed]:
    feeds = []
    if numbers := number_codes(encoding):
        how = "these columns, NaN where a value is missing: " + ", ".join(code.name for code in numbers)
        feeds.append(Feed("numbers", "float64", (len(numbers),), how))
    if names := name_codes(encoding):
        how = (
            "the place of each name among the levels of training (in the file's schema), -1 where it is missing, -2 "
            "for a name never seen; columns: " + ", ".join(code.name for code in names)
        )
        feeds.append(Feed("names", "int64", (len(names),), how))
    return feeds


def feeding(encoding: Encoding, inputs: Inputs, *, exact: bool = False) -> Callable[[Rows], dict[str, NDArray[Any]]]:
    """Rows of new data as the graph takes them, when they are asked for."""
    feeds = feeds_of(encoding, exact=exact)
    if isinstance(encoding, TableEncoding):
        arrays = table_arrays(encoding, inputs)
        return lambda rows: {feed.name: arrays[feed.name][rows] for feed in feeds}
    prepared = encoding.prepare(inputs)
    (feed,) = feeds

    def read(rows: Rows) -> dict[str, NDArray[Any]]:
        values = _shaped(prepared.read(rows), feed)
        if isinstance(encoding, ColumnsEncoding):
            _refuse_missing(values, encoding.names)
        return {feed.name: values}

    return read


def _refuse_missing(values: NDArray[Any], names: Sequence[str]) -> None:
    missing = [name for name, lacks in zip(names, np.isnan(values).any(0), strict=True) if lacks]
    if missing:
        raise DataError(f"numbers are missing in the columns {listing(missing)}; fill them in, or leave the rows out")


def _shaped(values: NDArray[Any], feed: Feed) -> NDArray[Any]:
    """In the type of the graph's input; tokens, which are read as wide as the longest text, in its width too."""
    if feed.name == "tokens":
        values = np.pad(values, ((0, 0), (0, feed.shape[0] - values.shape[1])))
    return values.astype(feed.dtype, copy=False)
