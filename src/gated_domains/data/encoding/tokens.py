"""Texts -> numbers of tokens, for a transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gated_domains.data.encoding.base import Encoding
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Inputs, Rows
from gated_domains.data.text.inputs import Text
from gated_domains.data.text.token_rows import TokenRows, tokens_of
from gated_domains.data.text.tokenising import USUAL, loaded, named_tokenizer, published_tokenizer
from gated_domains.data.text.vocabulary import tokenizers_package, trained_tokenizer

if TYPE_CHECKING:
    from torch import Tensor


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
