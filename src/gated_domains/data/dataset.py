"""Data with domains: inputs, targets and the domain of each sample; the schema by which new data are read alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gated_domains.data.encoding import CategoryCode, Encoding, TableEncoding, encoding_from
from gated_domains.data.errors import DataError, did_you_mean, first_line, listing, row_name
from gated_domains.data.inputs import Features, Images, Inputs, Numbers, Rows, Table
from gated_domains.data.labels import Reading, option
from gated_domains.data.matching import KnownColumn
from gated_domains.data.other_encodings import ColumnsEncoding
from gated_domains.data.published import Published

# What new data may say otherwise than training did: names of columns.
_FREE = ("target", "domain", "metadata", "drop", "keep_together", "text", "smiles", "drop_missing_target")
# What texts and molecules are read as for an encoding of theirs.
_FORMS = {"words": "words", "tokens": "tokens", "bits": "fingerprints", "graphs": "graphs"}


@dataclass(frozen=True, eq=False, kw_only=True)
class DomainDataset:
    """Samples with a target and, where known, the domain (hospital, camera, customer) they come from.

    ``targets`` are indices into ``class_names``; with ``label_names`` a yes (1) or no (0) to each of these, NaN where
    nobody knows; numbers to be predicted where both are None.
    ``domains`` are indices into ``domain_names``. ``official_test`` marks the rows that the publisher set aside:
    then those of the sources serve for validation, those of a held-out domain are scored; of the domains in
    ``scored_whole`` the other rows are scored too. ``keep_together`` names the metadata column (a patient) whose groups
    are never divided between training, validation and test. ``notes`` are said wherever a result on this data is shown.
    ``classes_found``: the classes are those that occur in the rows; else somebody listed them. A model has no output
    for the last ``without_output`` classes, see ``decided_on``.
    ``published`` is the publisher's whole division and score, of data sets that have one. ``reading`` is how a file or
    folder was read, with what was found out about its columns; None for other data.
    """

    name: str
    inputs: Inputs
    targets: NDArray[Any]
    class_names: tuple[str, ...] | None = None
    label_names: tuple[str, ...] | None = None
    classes_found: bool = False
    without_output: int = 0
    domains: NDArray[np.int64] | None = None
    domain_names: tuple[str, ...] = ()
    metadata: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    official_test: NDArray[np.bool_] | None = None
    scored_whole: frozenset[str] = frozenset()
    keep_together: str | None = None
    published: Published | None = None
    notes: tuple[str, ...] = ()
    reading: Reading | None = None

    def __post_init__(self) -> None:
        rows = len(self.inputs)
        if rows == 0:
            raise DataError(f"{self.name}: there are no samples")
        columns = {"targets": self.targets, "domains": self.domains, "official_test": self.official_test}
        columns["published parts"] = None if self.published is None else self.published.parts
        for name, column in {**columns, **self.metadata}.items():
            if column is not None and len(column) != rows:
                raise DataError(f"{self.name}: {rows:,} inputs but {len(column):,} {name}; there must be one for each")
        self._check_targets()
        if self.domains is not None:
            _check_indices(self.domains, self.domain_names, f"{self.name}: domain")
        for names, what in ((self.domain_names, "domains"), (self.class_names or (), "classes")):
            if len(set(names)) < len(names):
                repeated = next(name for name in names if names.count(name) > 1)
                raise DataError(f"{self.name}: two {what} are called {repeated!r}; give each its own name")

    def _check_targets(self) -> None:
        if self.class_names is not None:
            _check_indices(self.targets, self.class_names, f"{self.name}: label")
        elif self.label_names is not None:
            _check_labels(self.targets, self.label_names, self.name)
        elif self.targets.dtype.kind not in "fiub" or self.targets.ndim != 1:
            found = f"{self.targets.dtype} of shape {self.targets.shape}"
            raise DataError(f"{self.name}: targets must be one number a row, got {found}; classes need class_names")
        elif not np.isfinite(self.targets).all():
            row = int(np.argmin(np.isfinite(self.targets)))
            raise DataError(
                f"{self.name}: the target of {row_name(row)} is {self.targets[row]}; drop the row or fill it in"
            )

    @classmethod
    def from_arrays(
        cls,
        inputs: ArrayLike,
        targets: ArrayLike,
        domains: ArrayLike | None = None,
        *,
        name: str = "data",
        class_names: Sequence[str] | None = None,
        domain_names: Sequence[str] | None = None,
        task: str | None = None,
    ) -> DomainDataset:
        """A data set of arrays in memory: bytes with three or four axes are images, a matrix of numbers features.

        Labels and domains may be of any kind (numbers, text); where names are given, they are indices into those.
        ``task`` is ``"classification"`` or ``"regression"``, by default what the targets look like.
        """
        from gated_domains.data.labels import as_domains, as_targets

        values = np.asarray(inputs)
        target_values, classes = as_targets(np.asarray(targets), class_names=class_names, task=task)
        index, names = (None, ()) if domains is None else as_domains(np.asarray(domains), names=domain_names)
        return cls(
            name=name,
            inputs=Images(values) if values.dtype == np.uint8 and values.ndim > 2 else Features(values),
            targets=target_values,
            class_names=classes,
            classes_found=class_names is None,
            domains=index,
            domain_names=names,
        )

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def num_classes(self) -> int | None:
        """How many classes there are; None for a number or for labels to be predicted."""
        return None if self.class_names is None else len(self.class_names)

    @property
    def task(self) -> Literal["classes", "number", "labels"]:
        """What is predicted: one of several classes, a number, or a yes or no to each of several labels."""
        if self.class_names is not None:
            return "classes"
        return "number" if self.label_names is None else "labels"

    @property
    def outputs(self) -> int:
        """How many numbers a model gives for a sample."""
        return len(self.answers or self.label_names or ("number",))

    @property
    def answers(self) -> tuple[str, ...] | None:
        """The classes that a model has an output for; None for a number or for labels to be predicted."""
        return None if self.class_names is None else self.class_names[: len(self.class_names) - self.without_output]

    def decided_on(self, rows: Rows) -> DomainDataset:
        """The same samples, with kinds of columns and the list of classes decided on these rows, the sources, alone.

        Cells of other rows that do not fit count as missing. A class that none of these rows has goes to the end of
        ``class_names`` and gets no output (``without_output``). The data set itself where that changes nothing.
        """
        if len(rows) == len(self):
            return self
        inputs = self.inputs.decided_on(rows)
        if inputs is self.inputs:
            return self.with_classes_of(rows)
        before, after = getattr(self.inputs, "about", {}).values(), getattr(inputs, "about", {}).values()
        kept = [note for note in self.notes if note not in before or note in after]
        notes = (*kept, *(note for note in after if note not in kept))
        return replace(self, inputs=inputs, notes=notes).with_classes_of(rows)

    def with_classes_of(self, rows: Rows) -> DomainDataset:
        """The same samples, with the classes of these rows first and no output for others; see ``decided_on``."""
        if self.class_names is None or not self.classes_found:
            return self
        counts = np.bincount(self.targets, minlength=len(self.class_names))
        of_sources = np.bincount(self.targets[rows], minlength=len(counts))
        if (of_sources > 0).all():
            return self
        known, unknown = np.flatnonzero(of_sources > 0), np.flatnonzero(of_sources == 0)
        order = np.array([*_in_order(known.tolist(), self.class_names), *unknown])
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        notes = (
            f"no source has class {self.class_names[number]!r} ({counts[number]:,} rows): the model has no output for "
            "it, and these rows count as wrong"
            for number in unknown
        )
        return replace(
            self,
            targets=place[self.targets],
            class_names=tuple(self.class_names[number] for number in order),
            without_output=len(unknown),
            notes=(*self.notes, *notes),
        )

    def domain_index(self, name: str) -> int:
        """The index of a domain, by name."""
        if name not in self._places:
            raise DataError(f"{self.name} has no domain {name!r}{did_you_mean(name, self.domain_names)}")
        return self._places[name]

    @cached_property
    def _places(self) -> dict[str, int]:
        """Domains by name: of thousands none has to be looked for."""
        return {name: place for place, name in enumerate(self.domain_names)}

    def rows_of(self, *names: str) -> Rows:
        """The rows of these domains, in order."""
        if self.domains is None:
            raise DataError(f"{self.name} has no domains; name the column that holds them (--domain)")
        return np.flatnonzero(np.isin(self.domains, [self.domain_index(name) for name in names]))

    def counts(self, rows: Rows | None = None) -> NDArray[np.int64]:
        """These rows, or all, by domain and class (one column where targets are numbers; one row without domains)."""
        rows = np.arange(len(self)) if rows is None else rows
        domains = np.zeros(len(rows), np.int64) if self.domains is None else self.domains[rows]
        classes = self.targets[rows] if self.class_names is not None else np.zeros(len(rows), np.int64)
        table = np.zeros((max(1, len(self.domain_names)), self.num_classes or 1), np.int64)
        np.add.at(table, (domains, classes), 1)
        return table

    def with_inputs(self, inputs: Inputs) -> DomainDataset:
        """The same samples, seen otherwise: encoded, as features of a backbone."""
        return replace(self, inputs=inputs)

    def take(self, rows: Rows) -> DomainDataset:
        """Some of the samples; domains and classes keep their numbers, even where none of their rows is left."""
        return replace(
            self,
            inputs=self.inputs.take(rows),
            targets=self.targets[rows],
            domains=None if self.domains is None else self.domains[rows],
            metadata={name: column[rows] for name, column in self.metadata.items()},
            official_test=None if self.official_test is None else self.official_test[rows],
            published=None if self.published is None else self.published.take(rows),
        )

    def __repr__(self) -> str:
        domains = (
            f"{len(self.domain_names)} domains ({listing(self.domain_names, 5)})" if self.domain_names else "no domains"
        )
        targets = {"classes": f"{self.outputs} classes", "labels": f"{self.outputs} labels"}.get(self.task)
        targets = targets or "a number to predict"
        return f"<{self.name}: {len(self):,} rows, {self.inputs.describe()}, {targets}, {domains}>"


def _in_order(classes: list[int], names: tuple[str, ...]) -> list[int]:
    """Classes in the order they would have without others: by number where all are numbers, else as they are."""
    try:
        return sorted(classes, key=lambda number: float(names[number]))
    except ValueError:
        return classes


def _check_labels(values: NDArray[Any], names: tuple[str, ...], what: str) -> None:
    if values.dtype.kind != "f" or values.shape[1:] != (len(names),):
        found = f"{values.dtype} of shape {values.shape}"
        raise DataError(f"{what}: labels must be floats of shape (rows, {len(names)}), got {found}")
    odd = ~(np.isnan(values) | (values == 0) | (values == 1))
    if odd.any():
        row, label = (int(place) for place in np.argwhere(odd)[0])
        raise DataError(
            f"{what}: label {names[label]!r} of {row_name(row)} is {values[row, label]}; "
            "a label is 0, 1, or NaN where unknown"
        )


def _check_indices(values: NDArray[Any], names: tuple[str, ...], what: str) -> None:
    if values.dtype.kind not in "iu" or values.ndim != 1:
        raise DataError(f"{what}s must be one whole number a row, got {values.dtype} of shape {values.shape}")
    outside = (values < 0) | (values >= len(names))
    if outside.any():
        row = int(np.argmax(outside))
        raise DataError(
            f"{what} {values[row]} of {row_name(row)} is outside 0 to {len(names) - 1} "
            f"(such rows: {int(outside.sum()):,}; the names are {listing(names)})"
        )


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
