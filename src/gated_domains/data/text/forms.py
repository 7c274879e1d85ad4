"""What texts are seen as: words, tokens, or sentence embeddings."""

from __future__ import annotations

from dataclasses import replace

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, did_you_mean
from gated_domains.data.inputs import Features, Inputs
from gated_domains.data.labels import Reading
from gated_domains.data.text.inputs import DEFAULT_TOKENS, Text

FORMS = ("words", "tokens", "embeddings")


def check_form(reading: Reading) -> None:
    """Refuse a form that texts do not have, and settings of tokens for other forms, before anything is read."""
    form = reading.form or FORMS[0]
    if form not in FORMS:
        raise DataError(f"--as {form}: texts are seen as words, tokens or embeddings{did_you_mean(form, FORMS)}")
    for option, value in (("--tokens", reading.tokens), ("--tokenizer", reading.tokenizer)):
        if value is not None and form != "tokens":
            raise DataError(f"{option} is for texts as tokens, and these are seen as {form}; add --as tokens")


def seen_as(texts: Text, reading: Reading) -> Inputs:
    """The texts as they are to be seen."""
    check_form(reading)
    if reading.form == "embeddings":
        from gated_domains.data.text.embeddings import embeddings_of

        return Features(embeddings_of(texts))
    if reading.form == "tokens":
        return Text.of_letters(
            texts.letters,
            texts.offsets,
            form="tokens",
            tokens=reading.tokens or DEFAULT_TOKENS,
            tokenizer=reading.tokenizer,
        )
    return texts


def words_first(reading: Reading) -> Reading:
    """How data are read of which a share is to be taken: embeddings, which cost much, only of that share."""
    return replace(reading, form=None) if reading.form == "embeddings" else reading


def embedded(dataset: DomainDataset, reading: Reading) -> DomainDataset:
    """The data set with its texts embedded, where embeddings were asked for and left for later."""
    if reading.form != "embeddings" or not isinstance(dataset.inputs, Text):
        return dataset
    said = None if dataset.reading is None else replace(dataset.reading, form=reading.form)
    return replace(dataset, inputs=seen_as(dataset.inputs, reading), reading=said)


def notes_on(texts: Text) -> list[str]:
    """What a person should know of texts, whatever they are seen as."""
    empty = int((texts.lengths == 0).sum())
    return [f"texts that are empty: {empty:,} of {len(texts):,}"] if empty else []
