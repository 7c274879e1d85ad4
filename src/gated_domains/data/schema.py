"""What training data looked like: all that is needed to read new data as a model expects them. Plain JSON to keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import Encoding, TableEncoding, encoding_from
from gated_domains.data.encoding.table import CategoryCode
from gated_domains.data.errors import DataError, first_line
from gated_domains.data.readers.known_columns import KnownColumn
from gated_domains.data.readers.reading import Reading
from gated_domains.data.tables import Numbers, Table

# What new data may say otherwise than training did: names of columns that a model never sees.
_FREE = ("target", "domain", "metadata", "drop", "keep_together")


@dataclass(frozen=True, eq=False, kw_only=True)
class Schema:
    """How training data were read and encoded, and the classes they had (None for a number to be predicted).

    ``dates`` are columns of days; ``words`` stood in columns of numbers and counted as missing, by column.
    """

    encoding: Encoding
    class_names: tuple[str, ...] | None
    reading: Reading = field(default_factory=Reading)
    dates: tuple[str, ...] = ()
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def joined(self) -> bool:
        """Whether classes of training are several of the file's, made one."""
        return self.reading.positive is not None

    def columns(self) -> list[KnownColumn]:
        """The columns that a model for tables reads."""
        codes = self.encoding.codes if isinstance(self.encoding, TableEncoding) else ()
        return [
            KnownColumn(code.name, levels=code.levels)
            if isinstance(code, CategoryCode)
            else KnownColumn(code.name, dates=code.name in self.dates, words=self.words.get(code.name, ()))
            for code in codes
        ]

    def settle(self, said: Reading) -> Reading:
        """How new data are read: as in training, but for the names of columns that are none of the model's inputs."""
        for entry in fields(Reading):
            value, trained = getattr(said, entry.name), getattr(self.reading, entry.name)
            if entry.name not in _FREE and value not in (entry.default, trained):
                option = f"--{entry.name.replace('_', '-')}"
                raise DataError(
                    f"{option} was {_written(trained)} in training and cannot be {_written(value)} now; leave it out"
                )
        return Reading(
            target=said.target or self.reading.target,
            domain=said.domain or self.reading.domain,
            positive=self.reading.positive,
            metadata=said.metadata,
            drop=said.drop,
        )

    def describe(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return {
            "encoding": self.encoding.describe(),
            "class_names": None if self.class_names is None else list(self.class_names),
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
            names = description["class_names"]
            entries = description["reading"].items()
            reading: dict[str, Any] = {key: tuple(said) if isinstance(said, list) else said for key, said in entries}
            return cls(
                encoding=encoding_from(description["encoding"]),
                class_names=None if names is None else tuple(names),
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
        class_names=dataset.class_names,
        reading=dataset.reading or Reading(),
        dates=tuple(column.name for column in numbers if column.dates),
        words={column.name: column.words for column in numbers if column.words},
    )


def _written(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else "left out" if value is None else str(value)
