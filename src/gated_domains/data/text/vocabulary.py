"""A WordPiece vocabulary of training texts, for where no pretrained tokenizer is to be had."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Rows
from gated_domains.data.text.inputs import Text

PIECES = 8_000
"""How many pieces a vocabulary has at most; the published ones have about 30,000, made of far more text."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LETTERS = 500  # the most frequent ones; rarer ones are unknown
_TOGETHER = 1 << 12  # texts


def tokenizers_package() -> Any:
    """The package ``tokenizers``; a DataError with the cure where it is not there."""
    try:
        import tokenizers
    except ImportError as error:
        raise DataError(
            "texts are cut into tokens by the package `tokenizers`, which is not here: "
            "pip install 'gated-domains[wilds]', or see texts as words (--as words)"
        ) from error
    return tokenizers


def trained_tokenizer(texts: Text, rows: Rows, *, pieces: int = PIECES) -> str:
    """The tokenizer, as the JSON that the package ``tokenizers`` reads; the same for the same texts in any order."""
    tokenizers = tokenizers_package()
    tokenizer = _untrained(tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]")))
    letters = _letters(texts, rows, tokenizer.normalizer)
    # The trainer numbers pieces inside a word (##a) as it meets them, in the order of a hash; what is numbered
    # beforehand, as if it were special, has its number, and equal pairs are merged in the same order every time.
    inside = [f"##{letter}" for letter in letters if _inside_words(letter)]
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=max(pieces, len(SPECIAL) + len(letters) + len(inside)),
        min_frequency=2,
        limit_alphabet=len(letters),
        initial_alphabet=letters,
        special_tokens=[*SPECIAL, *inside],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_parts(texts, rows), trainer=trainer)
    vocabulary = dict(sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1]))
    return wordpiece(vocabulary).to_str()


def wordpiece(vocabulary: dict[str, int], *, lowercase: bool = True) -> Any:
    """BERT's tokenizer with this vocabulary: words cut into pieces, between [CLS] and [SEP]."""
    tokenizers = tokenizers_package()
    model = tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]")
    tokenizer = _untrained(tokenizers.Tokenizer(model), lowercase=lowercase)
    tokenizer.add_special_tokens([name for name in SPECIAL if name in vocabulary])
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return tokenizer


def _untrained(tokenizer: Any, *, lowercase: bool = True) -> Any:
    tokenizers = tokenizers_package()
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return tokenizer


def _letters(texts: Text, rows: Rows, normalizer: Any) -> list[str]:
    """The most frequent letters, in the order of the alphabet; among equals, the first there."""
    counted: Counter[str] = Counter()
    for part in _parts(texts, rows):
        counted.update(normalizer.normalize_str("\n".join(part)))
    ranked = sorted((-count, letter) for letter, count in counted.items() if not letter.isspace())
    return sorted(letter for _, letter in ranked[:_LETTERS])


def _inside_words(letter: str) -> bool:
    """Whether it can stand inside a word, as punctuation cannot."""
    return letter.isalnum() or not (letter.isascii() or unicodedata.category(letter).startswith("P"))


def _parts(texts: Text, rows: Rows) -> Iterator[list[str]]:
    return (texts.texts(part) for part in np.split(rows, range(_TOGETHER, len(rows), _TOGETHER)))
