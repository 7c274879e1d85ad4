"""Texts in memory: the letters of all of them in one array, not a Python object each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, did_you_mean
from gated_domains.data.inputs import Inputs, Rows, digest
from gated_domains.data.ragged import taken

if TYPE_CHECKING:
    from gated_domains.data.text.words import WordCounts

Form = Literal["words", "tokens"]
DEFAULT_TOKENS = 256


class Text(Inputs):
    """Texts, to be seen as ``words`` (how often each occurs) or as ``tokens`` (in order, for a transformer).

    ``tokens`` is the most that are read of a text, and ``tokenizer`` a folder, a file or a name, both for tokens alone.
    """

    in_memory = True

    def __init__(
        self,
        texts: Sequence[str],
        *,
        form: Form = "words",
        tokens: int = DEFAULT_TOKENS,
        tokenizer: str | None = None,
    ) -> None:
        letters = [text.encode("utf-8", "replace") for text in texts]
        lengths = np.fromiter(map(len, letters), np.int64, len(letters))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self._keep(np.frombuffer(b"".join(letters), np.uint8), offsets, form, tokens, tokenizer)

    @classmethod
    def of_letters(
        cls,
        letters: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        *,
        form: str = "words",
        tokens: int = DEFAULT_TOKENS,
        tokenizer: str | None = None,
    ) -> Text:
        """Texts that lie in memory already, in UTF-8: the i-th from ``offsets[i]`` to ``offsets[i + 1]``."""
        texts = cls.__new__(cls)
        texts._keep(letters, offsets, form, tokens, tokenizer)
        return texts

    def _keep(
        self, letters: NDArray[np.uint8], offsets: NDArray[np.int64], form: str, tokens: int, tokenizer: str | None
    ) -> None:
        if form not in ("words", "tokens"):
            raise DataError(
                f"texts are seen as words or as tokens, not as {form!r}{did_you_mean(form, ['words', 'tokens'])}"
            )
        if tokens < 3:
            raise DataError(f"tokens must be at least 3 (two of them mark the ends of a text), got {tokens}")
        self.letters, self.offsets = letters, offsets
        self.kind, self.tokens, self.tokenizer = form, tokens, tokenizer
        self.word_counts: WordCounts | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "word_counts": None}  # counted anew sooner than sent to another process

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        return self.letters.nbytes + self.offsets.nbytes

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each text: its letters, where they are those of English."""
        return np.diff(self.offsets)

    def texts(self, rows: Rows) -> list[str]:
        """These texts."""
        cut = zip(self.offsets[rows].tolist(), self.offsets[rows + 1].tolist(), strict=True)
        return [self.letters[start:stop].tobytes().decode() for start, stop in cut]

    def read(self, rows: Rows) -> NDArray[Any]:
        found = np.empty(len(rows), object)
        found[:] = self.texts(rows)
        return found

    def digests(self) -> NDArray[np.uint64]:
        cut = zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True)
        return np.fromiter((digest(self.letters[start:stop]) for start, stop in cut), np.uint64, len(self))

    def take(self, rows: Rows) -> Text:
        letters, offsets = taken(self.letters, self.offsets, rows)
        return Text.of_letters(letters, offsets, form=self.kind, tokens=self.tokens, tokenizer=self.tokenizer)

    def form(self) -> list[Any]:
        return [self.kind, *([self.tokens, self.tokenizer] if self.kind == "tokens" else [])]

    def describe(self) -> str:
        seen = "words" if self.kind == "words" else f"at most {self.tokens:,} tokens each"
        return f"texts, {seen}"
