"""How often each word, and each pair of words, occurs in each text: counted once, for all hold-outs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.inputs import Rows
from gated_domains.data.progress import progress
from gated_domains.data.text.inputs import Text

WORD = re.compile(r"\w+(?:'\w+)*")
"""A word: letters and digits, with apostrophes inside it (don't, and n't where texts were cut up before)."""
_TOGETHER = 1 << 14  # texts
_MANY = 1 << 16  # texts, from which on it takes long enough to be told of


_PAIR = 32  # bits below those of the first word of a pair


@dataclass(frozen=True, eq=False)
class WordCounts:
    """Text i has term ``terms[place]`` ``counts[place]`` times, for the places ``offsets[i]`` to ``offsets[i + 1]``.

    A term is a place among ``codes``, which are sorted: the number of a word, or for a pair of neighbours
    ``2^32 (first + 1) + second``.
    """

    words: tuple[str, ...]
    codes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    terms: NDArray[np.int32]
    counts: NDArray[np.uint16]

    def document_frequency(self, rows: Rows) -> NDArray[np.int64]:
        """In how many of these texts each term occurs."""
        chosen = np.zeros(len(self.offsets) - 1, np.bool_)
        chosen[rows] = True
        return np.bincount(self.terms[np.repeat(chosen, np.diff(self.offsets))], minlength=len(self.codes))

    def spelled(self, terms: NDArray[np.int64]) -> list[str]:
        """Terms as they are written: ``good``, ``not good``."""
        pairs = (divmod(code, 1 << _PAIR) for code in self.codes[terms].tolist())
        return [f"{self.words[i - 1]} {self.words[j]}" if i else self.words[j] for i, j in pairs]

    def places(self, spelled: Sequence[str]) -> NDArray[np.int64]:
        """The term that each of these is; -1 for what occurs in no text."""
        index = {word: number for number, word in enumerate(self.words)}
        wanted = np.full(len(spelled), -1, np.int64)
        for place, term in enumerate(spelled):
            first, _, second = term.partition(" ")
            if first in index and (not second or second in index):
                wanted[place] = _pair(index[first], index[second]) if second else index[first]
        if len(self.codes) == 0:
            return wanted
        found = np.minimum(np.searchsorted(self.codes, wanted), len(self.codes) - 1)
        return np.where(self.codes[found] == wanted, found, -1)


def words_of(text: str) -> list[str]:
    """The words of a text, in order, in small letters."""
    return WORD.findall(text.lower().replace("\u2019", "'"))


def count_words(texts: Text) -> WordCounts:
    """The counts of all texts; made once and kept with them."""
    if texts.word_counts is None:
        texts.word_counts = _counted(texts)
    return texts.word_counts


def _counted(texts: Text) -> WordCounts:
    index: dict[str, int] = {}
    parts: list[_Part] = []
    waiting = progress("counting words", len(texts)) if len(texts) >= _MANY else nullcontext(lambda steps: None)
    with waiting as advance:
        for start in range(0, len(texts), _TOGETHER):
            rows = np.arange(start, min(start + _TOGETHER, len(texts)))
            parts.append(_part([words_of(text) for text in texts.texts(rows)], index))
            advance(len(rows))
    codes = np.unique(np.concatenate([part.codes for part in parts]))
    lengths = np.concatenate([part.lengths for part in parts])
    return WordCounts(
        words=tuple(index),
        codes=codes,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        terms=np.concatenate([np.searchsorted(codes, part.codes).astype(np.int32)[part.terms] for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
    )


@dataclass(frozen=True, eq=False)
class _Part:
    """The counts of some texts: terms are places among the part's own codes, ``lengths`` how many each text has."""

    codes: NDArray[np.int64]
    lengths: NDArray[np.int64]
    terms: NDArray[np.int32]
    counts: NDArray[np.uint16]


def _part(texts: Sequence[Sequence[str]], index: dict[str, int]) -> _Part:
    """The counts of some texts. Their words are numbered as they come, by way of ``index``."""
    numbers = np.fromiter((index.setdefault(word, len(index)) for words in texts for word in words), np.int64)
    text = np.repeat(np.arange(len(texts)), [len(words) for words in texts])
    neighbours = text[:-1] == text[1:]
    pairs = _pair(numbers[:-1][neighbours], numbers[1:][neighbours])
    codes, terms = np.unique(np.concatenate([numbers, pairs]), return_inverse=True)
    owner = np.concatenate([text, text[:-1][neighbours]])
    key, counts = np.unique(owner * max(1, len(codes)) + terms, return_counts=True)
    owner, terms = np.divmod(key, max(1, len(codes)))
    most = np.iinfo(np.uint16).max
    return _Part(
        codes=codes,
        lengths=np.bincount(owner, minlength=len(texts)),
        terms=terms.astype(np.int32),
        counts=np.minimum(counts, most).astype(np.uint16),
    )


def _pair(first: Any, second: Any) -> Any:
    return ((first + 1) << _PAIR) + second
