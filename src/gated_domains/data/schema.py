"""What training data looked like: all that is needed to read new data as a model expects them. Plain JSON to keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import ColumnsEncoding, Encoding, TableEncoding, encoding_from
from gated_domains.data.encoding.table import CategoryCode
from gated_domains.data.errors import DataError, first_line
from gated_domains.data.readers.known_columns import KnownColumn
from gated_domains.data.readers.reading import Reading, option
from gated_domains.data.tables import Numbers, Table

# What new data may say otherwise than training did: names of columns.
_FREE = ("target", "domain", "metadata", "drop", "keep_together", "text", "smiles", "drop_missing_target")
# What texts and molecules are read as for an encoding of theirs.
_FORMS = {"words": "words", "tokens": "tokens", "bits": "fingerprints", "graphs": "graphs"}


@dataclass(frozen=True, eq=False, kw_only=True)
class Schema:
    """How training data were read and encoded, and the classes they had (None for a number to be predicted).

    ``dates`` are columns of days; ``words`` stood in columns of numbers and counted as missing, by column.
    """

    encoding: Encoding
    class_names: tuple[str, ...] | None
    label_names: tuple[str, ...] | None = None
    reading: Reading = field(default_factory=Reading)
    dates: tuple[str, ...] = ()
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def joined(self) -> bool:
        """Whether classes of training are several of the file's, made one."""
        return self.reading.positive is not None

    @property
    def of_texts(self) -> bool:
        """Whether the model sees texts, in whatever form."""
        return self.encoding.kind in ("words", "tokens") or self.reading.form == "embeddings"

    @property
    def of_molecules(self) -> bool:
        """Whether the model sees molecules."""
        return self.encoding.kind in ("bits", "graphs")

    def columns(self) -> list[KnownColumn]:
        """The columns that a model for tables reads."""
        if isinstance(self.encoding, ColumnsEncoding):
            return [KnownColumn(name, may_be_empty=False) for name in self.encoding.names]
        codes = self.encoding.codes if isinstance(self.encoding, TableEncoding) else ()
        return [
            KnownColumn(code.name, levels=code.levels)
            if isinstance(code, CategoryCode)
            else KnownColumn(code.name, dates=code.name in self.dates, words=self.words.get(code.name, ()))
            for code in codes
        ]

    def settle(self, said: Reading) -> Reading:
        """How new data are read: as in training, but for the names of columns; those of a table's inputs are fixed."""
        for entry in fields(Reading):
            value, trained = getattr(said, entry.name), getattr(self.reading, entry.name)
            if entry.name not in _FREE and value not in (entry.default, trained):
                raise DataError(
                    f"{option(entry.name)} was {_written(trained)} in training and cannot be {_written(value)} now; "
                    "leave it out"
                )
        return Reading(
            target=said.target or self.reading.target,
            domain=said.domain or self.reading.domain,
            positive=self.reading.positive,
            metadata=_with(said.metadata, said.keep_together),
            drop=said.drop,
            drop_missing_target=said.drop_missing_target or self.reading.drop_missing_target,
            text=said.text or self.reading.text,
            smiles=said.smiles or self.reading.smiles,
            form=_FORMS.get(self.encoding.kind, self.reading.form),
        )

    def describe(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return {
            "encoding": self.encoding.describe(),
            "class_names": None if self.class_names is None else list(self.class_names),
            "label_names": None if self.label_names is None else list(self.label_names),
            "reading": {
                key: list(said) if isinstance(said, tuple) else said for key, said in asdict(self.reading).items()
            },
            "dates": list(self.dates),
            "words": {name: list(words) for name, words in self.words.items()},
        }

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Schema:
        """The schema that ``describe`` described."""
        try:
            names, labels = description["class_names"], description["label_names"]
            entries = description["reading"].items()
            reading: dict[str, Any] = {key: tuple(said) if isinstance(said, list) else said for key, said in entries}
            return cls(
                encoding=encoding_from(description["encoding"]),
                class_names=None if names is None else tuple(names),
                label_names=None if labels is None else tuple(labels),
                reading=Reading(**reading),
                dates=tuple(description["dates"]),
                words={name: tuple(words) for name, words in description["words"].items()},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"what is kept of the training data is damaged ({first_line(error)}); train anew"
            ) from error


def schema_of(dataset: DomainDataset, encoding: Encoding) -> Schema:
    """The schema of training data and of the encoding that was fitted to them."""
    if dataset.inputs.kind != encoding.kind:
        raise DataError(
            f"an encoding for {encoding.kind} does not go with {dataset.inputs.describe()}; give the data as they were "
            "read, and the encoding that was fitted to them"
        )
    columns = dataset.inputs.columns if isinstance(dataset.inputs, Table) else ()
    numbers = [column for column in columns if isinstance(column, Numbers)]
    return Schema(
        encoding=encoding,
        class_names=dataset.answers,
        label_names=dataset.label_names,
        reading=dataset.reading or Reading(),
        dates=tuple(column.name for column in numbers if column.dates),
        words={column.name: column.words for column in numbers if column.words},
    )


def _with(metadata: tuple[str, ...], column: str | None) -> tuple[str, ...]:
    """The columns kept beside the inputs, and that of groups."""
    return metadata if column is None or column in metadata else (*metadata, column)


def _written(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else "left out" if value is None else str(value)
