"""The tokens of texts, made once: on disk they are found again by what they were made of."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, cache_dir, written_whole
from gated_domains.data.inputs import Rows
from gated_domains.data.progress import progress
from gated_domains.data.ragged import Ragged
from gated_domains.data.text.inputs import Text

_TOGETHER = 1 << 12  # texts
_MANY = 1 << 13  # texts, from which on it takes long enough to be told of


class TokenRows(Ragged):
    """The numbers of tokens, at most ``tokens`` a text. A batch is as wide as its longest text, in steps of 32."""

    kind = "tokens"
    pad = 0
    step = 32

    def __init__(self, values: NDArray[Any], offsets: NDArray[np.int64], *, tokens: int) -> None:
        super().__init__(values, offsets)
        self.tokens = tokens

    def width(self, longest: int) -> int:
        return min(super().width(longest), max(self.tokens, longest))

    def take(self, rows: Rows) -> TokenRows:
        return TokenRows(*self.parts(rows), tokens=self.tokens)

    def describe(self) -> str:
        return f"texts, at most {self.tokens:,} tokens each"


def tokens_of(texts: Text, tokenizer: Any, *, described: str, tokens: int) -> TokenRows:
    """The tokens of all texts by this tokenizer (``described`` as JSON); from the cache where they were made before."""
    place = cache_dir() / "tokens" / _key(texts, described, tokens)
    found = _kept(place, len(texts), tokens, vocabulary=tokenizer.get_vocab_size())
    if found is None:
        made = _made(texts, tokenizer, tokens)
        for name, values in (("values", made.values), ("offsets", made.offsets)):
            with written_whole(_file(place, name)) as draft:
                np.save(draft, values, allow_pickle=False)
        found = _kept(place, len(texts), tokens, vocabulary=tokenizer.get_vocab_size()) or made
    return found


def _made(texts: Text, tokenizer: Any, tokens: int) -> TokenRows:
    tokenizer.enable_truncation(tokens)
    values = [np.empty(0, np.int32)]
    lengths: list[int] = []
    with _told(len(texts)) as advance:
        for start in range(0, len(texts), _TOGETHER):
            rows = np.arange(start, min(start + _TOGETHER, len(texts)))
            found = [encoded.ids for encoded in tokenizer.encode_batch(texts.texts(rows))]
            lengths += map(len, found)
            values.append(np.fromiter((token for ids in found for token in ids), np.int32))
            advance(len(rows))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return TokenRows(np.concatenate(values), offsets, tokens=tokens)


def _told(texts: int) -> AbstractContextManager[Callable[[int], None]]:
    return progress("cutting texts into tokens", texts) if texts >= _MANY else nullcontext(lambda steps: None)


def _kept(place: Path, rows: int, tokens: int, *, vocabulary: int) -> TokenRows | None:
    """What lies in the cache; None where nothing does, or something broken."""
    try:
        values, offsets = (
            np.load(_file(place, name), mmap_mode="r", allow_pickle=False) for name in ("values", "offsets")
        )
        found = TokenRows(values, np.array(offsets), tokens=tokens)
    except (OSError, ValueError, EOFError, DataError):
        return None
    whole = len(found) == rows and values.dtype == np.int32 and found.lengths.max(initial=0) <= tokens
    return found if whole and (len(values) == 0 or 0 <= values.min() <= values.max() < vocabulary) else None


def _key(texts: Text, described: str, tokens: int) -> str:
    hashed = hashlib.blake2b(f"{tokens} {len(texts)} ".encode(), digest_size=16)
    for content in (described.encode(), texts.offsets.tobytes(), np.ascontiguousarray(texts.letters).data):
        hashed.update(hashlib.blake2b(content).digest())
    return hashed.hexdigest()


def _file(place: Path, name: str) -> Path:
    return place.with_name(f"{place.name}.{name}.npy")
