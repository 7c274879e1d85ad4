"""Tables of predictions on disk: CSV or Parquet, a part after the other, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from gated_domains.applying.tables import fitted
from gated_domains.data.errors import DataError, written_whole

SUFFIXES = (".csv", ".parquet")
_ROW_GROUP = 1 << 16  # rows of Parquet that are written together


def predictions_path(path: Path) -> Path:
    """A path that predictions can be written to; refused before anything is computed."""
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(
            f"{path}: predictions are written as .csv or .parquet, not {path.suffix or 'without a suffix'!r}"
        )
    return path


@contextmanager
def writing(path: Path) -> Iterator[Callable[[pa.Table, str], None]]:
    """Yield ``write(table, where)``, for one table after the other; the first says which columns there are.

    What ``path`` held before is replaced at the end, when all are written, or not at all.
    """
    with written_whole(predictions_path(path)) as draft:
        writer = _Writer(draft)
        try:
            yield writer.add
            writer.flush()
        finally:
            writer.close()


def write_table(table: pa.Table, path: Path) -> None:
    """Write one table as its suffix says, whole or not at all."""
    with writing(path) as write:
        write(table, str(path))


class _Writer:
    """Tables as they come, written when there are rows enough for a group."""

    def __init__(self, draft: Path) -> None:
        self.draft = draft
        self.file: pyarrow.csv.CSVWriter | pyarrow.parquet.ParquetWriter | None = None
        self.schema: pa.Schema | None = None
        self.held: list[pa.Table] = []

    def add(self, table: pa.Table, where: str) -> None:
        if self.schema is None:
            self.schema = table.schema
        self.held.append(fitted(table, self.schema, where=where))
        if sum(part.num_rows for part in self.held) >= _ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        if not self.held:
            return
        if self.file is None:
            is_csv = self.draft.suffix.lower() == ".csv"
            kind = pyarrow.csv.CSVWriter if is_csv else pyarrow.parquet.ParquetWriter
            self.file = kind(self.draft, self.schema)
        self.file.write_table(pa.concat_tables(self.held))
        self.held = []

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
