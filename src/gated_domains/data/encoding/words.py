"""Texts -> tf-idf of words and pairs of words, with the vocabulary and its weights from the training rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.encoding.base import Encoding
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features, Inputs, Rows
from gated_domains.data.text.inputs import Text
from gated_domains.data.text.sparse import SparseRows
from gated_domains.data.text.words import WordCounts, count_words

if TYPE_CHECKING:
    from torch import Tensor

MOST_TERMS = 5_000
FEWEST_TEXTS = 2  # a word of one text says nothing about others
_DENSE = 1 << 30  # bytes up to which all rows are kept as they are given to a model


class WordsEncoding(Encoding):
    """``(1 + ln count) * idf`` for every term of the vocabulary, as a vector of length 1.

    ``idf = 1 + ln((1 + texts) / (1 + texts with the term))``, of the training texts. Words never seen there are passed
    over.
    """

    kind = "words"

    def __init__(self, vocabulary: Sequence[str], idf: Sequence[float]) -> None:
        if not vocabulary or len(vocabulary) != len(idf):
            raise DataError(f"{len(vocabulary):,} words with {len(idf):,} weights make no vocabulary")
        self.vocabulary, self.idf = tuple(vocabulary), np.asarray(idf, np.float64)

    @classmethod
    def fit(cls, texts: Text, rows: Rows) -> WordsEncoding:
        """The terms that most of these texts have, at most 5,000, and in at least two texts each."""
        counts = count_words(texts)
        frequency = counts.document_frequency(rows)
        chosen = _most_frequent(counts, frequency)
        if len(chosen) == 0:
            raise DataError(
                f"no word is in {FEWEST_TEXTS} or more of {len(rows):,} training texts, so nothing can be learned from "
                "them; is this the right column?"
            )
        spelled = counts.spelled(chosen)
        order = sorted(range(len(chosen)), key=spelled.__getitem__)
        idf = np.log((1 + len(rows)) / (1 + frequency[chosen])) + 1
        return cls([spelled[place] for place in order], idf[order].tolist())

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.vocabulary),)

    def prepare(self, inputs: Inputs) -> Inputs:
        if not isinstance(inputs, Text):
            raise DataError(f"this encoding was made for texts, got {inputs.describe()}")
        sparse = self._weighted(count_words(inputs))
        return Features(sparse.read(np.arange(len(sparse)))) if sparse.dense_nbytes <= _DENSE else sparse

    def _weighted(self, counts: WordCounts) -> SparseRows:
        column = np.full(len(counts.codes) + 1, -1, np.int32)
        column[counts.places(self.vocabulary)] = np.arange(len(self.vocabulary))
        column[-1] = -1  # where terms that no text has were put
        columns = column[counts.terms]
        known = columns >= 0
        text = np.repeat(np.arange(len(counts.offsets) - 1), np.diff(counts.offsets))[known]
        columns = columns[known]
        weights = (1 + np.log(counts.counts[known])) * self.idf[columns]
        norms = np.sqrt(np.bincount(text, weights**2, len(counts.offsets) - 1))
        return SparseRows(
            (weights / norms[text]).astype(np.float16),
            columns,
            np.searchsorted(text, np.arange(len(counts.offsets))).astype(np.int64),
            width=len(self.vocabulary),
        )

    def tensor(self, raw: Tensor) -> Tensor:
        return raw.float()

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "vocabulary": list(self.vocabulary), "idf": self.idf.tolist()}


def _most_frequent(counts: WordCounts, frequency: NDArray[np.int64]) -> NDArray[np.int64]:
    """The terms that most texts have; among equals, those first in the alphabet, whatever order the texts come in."""
    able = np.flatnonzero(frequency >= FEWEST_TEXTS)
    if len(able) <= MOST_TERMS:
        return able
    least = np.partition(frequency[able], len(able) - MOST_TERMS)[len(able) - MOST_TERMS]
    sure, equal = able[frequency[able] > least], able[frequency[able] == least]
    spelled = counts.spelled(equal)
    order = sorted(range(len(equal)), key=spelled.__getitem__)[: MOST_TERMS - len(sure)]
    return np.concatenate([sure, equal[order]])
