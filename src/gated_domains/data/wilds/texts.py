"""Texts of WILDS: reviews and comments, as tokens for a transformer or as counted words."""

from __future__ import annotations

from collections.abc import Iterable

from gated_domains.data.errors import DataError, did_you_mean
from gated_domains.data.labels import Reading
from gated_domains.data.text.inputs import Text
from gated_domains.data.wilds.sets import WildsSet


def texts_of(chosen: WildsSet, texts: Iterable[object], reading: Reading) -> Text:
    """The texts as they are to be seen: tokens, unless words are asked for; cut where WILDS cuts them."""
    form = reading.form or "tokens"
    if form not in ("tokens", "words"):
        raise DataError(
            f"the texts of {chosen.title} are seen as tokens or as words, not as {form!r}"
            f"{did_you_mean(form, ['tokens', 'words'])}"
        )
    if form == "words" and (reading.tokens is not None or reading.tokenizer is not None):
        raise DataError("--tokens and --tokenizer are for --as tokens; leave them out, or --as words")
    most = reading.tokens if reading.tokens is not None else chosen.tokens
    assert most is not None
    # A comment that is empty, or the word "null", comes out of its CSV file as a missing number.
    known = [text if isinstance(text, str) else "" for text in texts]
    return Text(known, form="words" if form == "words" else "tokens", tokens=most, tokenizer=reading.tokenizer)
