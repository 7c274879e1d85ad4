"""Encodings of named columns, image bands, molecules and texts; ``encoding.py`` has those of all other inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.encoding import Encoding, FeatureEncoding, refuse_nonsense
from gated_domains.data.errors import DataError, listing
from gated_domains.data.inputs import Features, Inputs, Measurements, Numbers, Rows, Table
from gated_domains.data.molecules.graphs import Graphs
from gated_domains.data.text.inputs import Text
from gated_domains.data.text.sparse import SparseRows
from gated_domains.data.text.token_rows import TokenRows, tokens_of
from gated_domains.data.text.tokenising import USUAL, loaded, named_tokenizer, published_tokenizer
from gated_domains.data.text.vocabulary import tokenizers_package, trained_tokenizer
from gated_domains.data.text.words import WordCounts, count_words

if TYPE_CHECKING:
    from torch import Tensor

MOST_TERMS = 5_000
FEWEST_TEXTS = 2  # a word of one text says nothing about others
_DENSE = 1 << 30  # bytes up to which all rows are kept as they are given to a model


class ColumnsEncoding(Encoding):
    """Columns of numbers in the order of their names, float64 until a batch is made. A missing one stays NaN.

    Whether a missing number is refused is for the model to say.
    """

    kind = "columns"

    def __init__(self, names: Sequence[str]) -> None:
        if isinstance(names, str) or not names or not all(isinstance(name, str) for name in names):
            raise DataError(f"the columns of an encoding are one or more names, got {names!r}")
        # As a file has them: spaces around a name are none of its own there.
        self.names = tuple(name.strip() for name in names)
        repeated = sorted({name for name in self.names if self.names.count(name) > 1})
        if repeated:
            raise DataError(f"two columns of an encoding are called {repeated[0]!r}; give each its own name")

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.names),)

    def prepare(self, inputs: Inputs) -> Measurements:
        if not isinstance(inputs, Table):
            raise DataError(f"this encoding was made for a table, got {inputs.describe()}")
        columns = {column.name: column for column in inputs.columns}
        absent = [name for name in self.names if name not in columns]
        if absent:
            raise DataError(f"columns seen in training are missing here: {listing(absent)}")
        values = np.empty((len(inputs), *self.shape))
        for place, name in enumerate(self.names):
            column = columns[name]
            if not isinstance(column, Numbers):
                raise DataError(f"column {name!r} held numbers in training, and now holds names")
            values[:, place] = column.values
        return Measurements(values)

    def tensor(self, raw: Tensor) -> Tensor:
        return raw.float()

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "names": list(self.names)}


class BandsEncoding(Encoding):
    """Floats as they are, channels first, in float32."""

    kind = "bands"

    def __init__(self, channels: int, height: int, width: int) -> None:
        refuse_nonsense(channels=channels, height=height, width=width)
        self.channels, self.height, self.width = channels, height, width

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.height, self.width)

    def tensor(self, raw: Tensor) -> Tensor:
        return raw.float()

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "channels": self.channels, "height": self.height, "width": self.width}


class BitsEncoding(FeatureEncoding):
    """Zeros and ones in float32. Bytes until a batch is made: a quarter of the memory."""

    kind = "bits"


class GraphEncoding(Encoding):
    """Packed graphs as they are; a network for graphs unpacks them. There is nothing to learn from data."""

    kind = "graphs"

    @property
    def shape(self) -> tuple[int, ...]:
        return (1,)  # a molecule; how many numbers that is differs

    def prepare(self, inputs: Inputs) -> Inputs:
        if not isinstance(inputs, Graphs):
            raise DataError(f"this encoding was made for graphs, got {inputs.describe()}")
        return inputs

    def tensor(self, raw: Tensor) -> Tensor:
        return raw

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind}


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


class TokenEncoding(Encoding):
    """``[CLS] text [SEP]`` as numbers, cut after ``tokens`` of them, with 0 for padding.

    ``tokenizer`` is the whole of it, as the JSON of the package ``tokenizers``: a model carries it along.
    """

    kind = "tokens"

    def __init__(self, tokenizer: str, tokens: int, *, notes: tuple[str, ...] = ()) -> None:
        if not isinstance(tokens, int) or tokens < 3:
            raise DataError(f"the tokens of an encoding must be a whole number from 3 on, got {tokens!r}")
        self.tokenizer, self.tokens, self.notes = tokenizer, tokens, notes
        self._tokenizer = loaded(tokenizer)

    @classmethod
    def fit(cls, texts: Text, rows: Rows) -> TokenEncoding:
        """The tokenizer that the texts name, else the usual one, else one trained on these rows, which it says."""
        tokenizers_package()
        found = published_tokenizer(USUAL) if texts.tokenizer is None else named_tokenizer(texts.tokenizer)
        if found is not None:
            return cls(found, texts.tokens)
        encoding = cls(trained_tokenizer(texts, rows), texts.tokens)
        encoding.notes = (
            f"no pretrained tokenizer here: a vocabulary of {encoding.about['vocabulary']:,} word pieces was trained "
            "on the training texts; published weights do not go with it (--tokenizer names another)",
        )
        return encoding

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.tokens,)

    @property
    def about(self) -> dict[str, Any]:
        return {"vocabulary": self._tokenizer.get_vocab_size(), "pad": TokenRows.pad}

    def prepare(self, inputs: Inputs) -> TokenRows:
        if not isinstance(inputs, Text):
            raise DataError(f"this encoding was made for texts, got {inputs.describe()}")
        return tokens_of(inputs, self._tokenizer, described=self.tokenizer, tokens=self.tokens)

    def tensor(self, raw: Tensor) -> Tensor:
        return raw.long()

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "tokenizer": self.tokenizer, "tokens": self.tokens}
