"""Files of any size -> a table of predictions, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from gated_domains.applying.predictor import HasAlarm, Predictor
from gated_domains.applying.tables import prediction_table
from gated_domains.applying.writing import SUFFIXES, predictions_path, writing
from gated_domains.data.blocks import blocks_like
from gated_domains.data.errors import DataError, expanded
from gated_domains.data.labels import Reading
from gated_domains.data.loading import follow_card, is_card
from gated_domains.data.named import DATASETS
from gated_domains.data.new_data import NewData
from gated_domains.data.parts import Blocks
from gated_domains.data.progress import progress
from gated_domains.evaluation.scores import Predicted
from gated_domains.insight.alarm import Alarm

_MANY = 20  # files, from which on they are counted for whoever waits
_LONG = 4_096  # rows, from which on a slow model keeps somebody waiting


@dataclass(frozen=True)
class FileAlarm:
    """An alarm, with the file and the row of it where it was heard, counted as the table of predictions counts them."""

    file: str
    row: int
    alarm: Alarm

    def __str__(self) -> str:
        return f"row {self.row:,} of {self.file}: {self.alarm}"


@dataclass
class Summary:
    """What was predicted, in a few numbers. ``notes``: each once, of several files with the name of its own."""

    rows: int = 0
    covered: float = 0.0
    """Coverage, summed over the rows that have one."""
    with_coverage: int = 0
    unlike: int = 0
    """Rows that coverage says are unlike anything seen."""
    notes: dict[str, None] = field(default_factory=dict)
    alarms: list[FileAlarm] = field(default_factory=list)

    def add(self, data: NewData, predicted: Predicted, *, file: str | None) -> None:
        """Count a part."""
        self.rows += len(data)
        if predicted.coverage is not None:
            self.covered += float(predicted.coverage.sum(dtype="float64"))
            self.with_coverage += len(data)
            self.unlike += int((predicted.coverage == 0).sum())
        self.notes.update(dict.fromkeys(note if file is None else f"{file}: {note}" for note in data.notes))

    def few_notes(self, most: int = 10) -> list[str]:
        """The first notes, and how many there are besides."""
        said = list(self.notes)
        return said if len(said) <= most else [*said[:most], f"and {len(said) - most:,} more"]


def predict_files(
    predictor: Predictor,
    files: Sequence[str | os.PathLike[str]],
    out: Path,
    *,
    reading: Reading | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    rows: int | None = None,
) -> Summary:
    """Write the predictions of these files, one after the other, to a ``.csv`` or ``.parquet``, whole or not at all.

    ``rows``: of a part of a file, by default what a model of this size has room for. Batches that are gated together
    are of one part, and a file falls into the same parts however large it is, and in whichever form it was saved.
    """
    check_paths(files, out)
    summary = Summary()
    with writing(out) as write, _counted(files) as advance:
        for what in files:
            name = os.fspath(what) if len(files) > 1 else None
            blocks = blocks_like(what, predictor.schema, reading=reading, data_dir=data_dir, rows=rows)
            for table in _tables(predictor, blocks, summary, what=os.fspath(what), name=name):
                write(table, os.fspath(what))
            advance(1)
    return summary


def check_paths(files: Sequence[str | os.PathLike[str]], out: Path) -> None:
    """Refuse, before anything is looked at, what cannot be written to or would be written over."""
    predictions_path(out)
    if not files:
        raise DataError("no files are named to predict on")
    if out.exists() and any(_is_read(out, path) for what in files for path in _led_to(what)):
        raise DataError(f"{out} holds the data themselves; write the predictions elsewhere (--out)")


def _led_to(what: str | os.PathLike[str]) -> list[Path]:
    """The file or folder of this name, and where a card leads; none where there is none, which reading it will say."""
    path = expanded(what)
    if (isinstance(what, str) and what in DATASETS) or not path.exists():
        return []
    return [path, follow_card(path, Reading())[0]] if is_card(path) else [path]


def _is_read(out: Path, path: Path) -> bool:
    """Whether ``out``, which is there, is this file, or in this folder and no table: tables in folders are not read."""
    if not path.is_dir():
        return path.exists() and out.samefile(path)
    found = out.resolve()
    return found.is_relative_to(path.resolve()) and found.suffix.lower() not in SUFFIXES


def _tables(
    predictor: Predictor, blocks: Blocks, summary: Summary, *, what: str, name: str | None
) -> Iterator[pa.Table]:
    start = 0
    alarm = predictor.alarm if isinstance(predictor, HasAlarm) else None
    with _watched(blocks, name) as advance:
        for data in blocks:
            before, known = (0, 0) if alarm is None else (alarm.rows, len(alarm.raised))
            predicted = predictor.predict(data)
            summary.add(data, predicted, file=name)
            heard = [] if alarm is None else alarm.raised[known:]
            summary.alarms += [FileAlarm(what, start + found.row - before, found) for found in heard]
            places = None if alarm is None else [found.row - before for found in heard]
            yield prediction_table(data, predicted, start=start, file=name, alarms=places)
            start += len(data)
            advance(len(data))


def _counted(files: Sequence[Any]) -> AbstractContextManager[Any]:
    return progress("predicting files", len(files)) if len(files) >= _MANY else nullcontext(lambda steps: None)


def _watched(blocks: Blocks, name: str | None) -> AbstractContextManager[Any]:
    """A bar over the rows of what is read in parts, or has many: only that takes long."""
    if blocks.in_parts or blocks.rows >= _LONG:
        return progress(f"predicting {name or 'rows'}", blocks.rows)
    return nullcontext(lambda steps: None)
