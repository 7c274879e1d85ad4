"""What a person says about their data: which column is the target, which the domain."""

from __future__ import annotations

from dataclasses import dataclass, fields

from gated_domains.data.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a file or folder is to be read. What is left at its default is found out from the data.

    ``positive`` names the target values that become the one class of two. ``categorical`` columns are names even where
    they are written as numbers; ``drop`` columns are not read; ``metadata`` columns are kept beside the samples, for
    grouping, but are no inputs; ``keep_together`` is one of these (a patient), whose groups are never divided between
    training, validation and test. ``drop_missing_target`` leaves out rows of a table that have no target, which are
    refused otherwise. ``task`` is ``"classification"`` or ``"regression"``. ``image_size`` is the side of
    the square that images are fitted to. ``text`` and ``smiles`` name the column with texts or molecules; ``form`` is
    what is made of them: ``words``, ``tokens`` or ``embeddings`` of texts, ``fingerprints`` or ``graphs`` of molecules.
    ``tokens`` is the most that are read of a text, ``tokenizer`` a folder with one. ``fraction`` of the rows are taken,
    by chance, for a first try.
    """

    target: str | None = None
    domain: str | None = None
    positive: tuple[str, ...] | None = None
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    keep_together: str | None = None
    drop_missing_target: bool = False
    task: str | None = None
    image_size: int | None = None
    text: str | None = None
    smiles: str | None = None
    form: str | None = None
    tokens: int | None = None
    tokenizer: str | None = None
    fraction: float | None = None

    def refuse_all_but(self, *allowed: str, what: str) -> None:
        """Refuse settings that mean nothing for this kind of data, rather than pass over them in silence."""
        for entry in fields(self):
            if entry.name not in allowed and getattr(self, entry.name) != entry.default:
                raise DataError(f"{option(entry.name)} means nothing for {what}; leave it out")


def option(name: str) -> str:
    """What a field of a reading is called on the command line."""
    return "--as" if name == "form" else f"--{name.replace('_', '-')}"
