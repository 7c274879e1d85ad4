"""Columns of numbers for a model that was fitted on a table by itself: by name, or in their order where it has none."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from gated_domains.data import Reading, Schema, encoding_from, read_like
from gated_domains.data.blocks import blocks_like
from gated_domains.data.encoding import FeatureEncoding
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Categories, Features, Measurements, Numbers, Table
from gated_domains.data.other_encodings import ColumnsEncoding

HEADER = ("chol", "site", "age", "sex")
ROWS = [(233, "basel", 63, 1), ("", "basel", 67.5, 0), (204, "zürich", 41, 1)]


def write(path: Path, rows: Sequence[Sequence[object]] = ROWS, header: Sequence[str] = HEADER) -> Path:
    path.write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]) + "\n", "utf-8")
    return path


def of_columns(*names: str, classes: tuple[str, ...] | None = ("no", "yes")) -> Schema:
    schema = Schema(encoding=ColumnsEncoding(names), class_names=classes)
    return Schema.from_description(json.loads(json.dumps(schema.describe())))


def of_width(width: int) -> Schema:
    return Schema(encoding=FeatureEncoding(width), class_names=None)


def taken(data, schema: Schema) -> np.ndarray:
    return schema.encoding.prepare(data.inputs).read(np.arange(len(data)))


# -- the encoding ----------------------------------------------------------------------------------------------------


def test_columns_come_in_the_order_of_fit_and_a_missing_number_stays_missing():
    table = Table([Numbers("b", np.array([1.0, np.nan])), Numbers("a", np.array([2.0, 1e300]))])
    found = ColumnsEncoding(("a", "b")).prepare(table)
    assert isinstance(found, Measurements)
    assert found.values.dtype == np.float64
    np.testing.assert_array_equal(found.values, [[2.0, 1.0], [1e300, np.nan]])
    assert found.take(np.array([1])).describe() == "2 columns of numbers"
    batch = ColumnsEncoding(("a", "b")).tensor(torch.from_numpy(found.read(np.array([0]))))
    assert (batch.dtype, batch.tolist()) == (torch.float32, [[2.0, 1.0]])


def test_an_encoding_of_columns_comes_back_from_json():
    encoding = encoding_from(json.loads(json.dumps(ColumnsEncoding((" a ", "b")).describe())))
    assert isinstance(encoding, ColumnsEncoding)
    assert (encoding.kind, encoding.names, encoding.shape) == ("columns", ("a", "b"), (2,))


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("names", [[], "age", [1, 2]])
def test_what_names_no_columns_is_refused(names):
    with pytest.raises(DataError, match="one or more names, got"):
        encoding_from({"kind": "columns", "names": names})


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(DataError, match="two columns of an encoding are called 'age'"):
        ColumnsEncoding(("age", "age "))


def test_inputs_without_the_columns_are_refused_by_name():
    names = Table([Numbers("a", np.ones(1)), Categories("b", np.zeros(1, np.int32), ("x",))])
    for wanted, message in (
        (("a", "c", "d"), "missing here: c, d"),
        (("a", "b"), "column 'b' held numbers in training, and now holds names"),
    ):
        with pytest.raises(DataError, match=message):
            ColumnsEncoding(wanted).prepare(names)
    with pytest.raises(DataError, match="made for a table, got features, 2 numbers each"):
        ColumnsEncoding(("a",)).prepare(Features(np.ones((1, 2), np.float32)))


# -- files by the names of columns -----------------------------------------------------------------------------------


def test_a_file_gives_the_columns_by_name_and_others_are_let_be(tmp_path):
    schema = of_columns("age", "chol", "sex")
    data = read_like(write(tmp_path / "new.csv"), schema, targets=False)
    np.testing.assert_array_equal(taken(data, schema), [[63, 233, 1], [67.5, np.nan, 0], [41, 204, 1]])
    assert (data.class_names, data.notes) == (("no", "yes"), ())


def test_parquet_and_compressed_files_read_alike(tmp_path):
    schema = of_columns("age", "sex")
    expected = taken(read_like(write(tmp_path / "new.csv"), schema, targets=False), schema)
    (tmp_path / "new.csv.gz").write_bytes(gzip.compress((tmp_path / "new.csv").read_bytes()))
    columns = {"sex": pa.array([True, False, True]), "age": pa.array([63.0, 67.5, 41.0], "float32")}
    pq.write_table(pa.table(columns), tmp_path / "new.parquet")
    for name in ("new.csv.gz", "new.parquet"):
        found = taken(read_like(tmp_path / name, schema, targets=False), schema)
        np.testing.assert_array_equal(found, expected)


def test_spaces_around_a_name_are_none_of_it(tmp_path):
    schema = of_columns(" age", "sex ")
    assert taken(read_like(write(tmp_path / "new.csv"), schema, targets=False), schema).shape == (3, 2)


def test_columns_that_are_missing_are_named(tmp_path):
    with pytest.raises(DataError, match=r"columns that the model was trained on are missing: Age, weight.*'age' meant"):
        read_like(write(tmp_path / "new.csv"), of_columns("Age", "weight"), targets=False)


def test_names_in_a_column_of_numbers_are_refused_with_their_row(tmp_path):
    with pytest.raises(DataError, match="column 'site' held numbers in training, but holds 'basel' in row 1"):
        read_like(write(tmp_path / "new.csv"), of_columns("age", "site"), targets=False)


def test_a_site_and_classes_are_read_where_they_are_named(tmp_path):
    rows = [(1, "no", "basel"), (2, "yes", "basel"), (3, "no", "bern")]
    path = write(tmp_path / "new.csv", rows, ("x", "ill", "site"))
    data = read_like(path, of_columns("x"), targets=True, reading=Reading(target="ill", domain="site"))
    assert (data.targets.tolist(), data.domain_names) == ([0, 1, 0], ("basel", "bern"))


def test_other_inputs_than_a_table_are_refused(tmp_path):
    np.savez(tmp_path / "new.npz", X=np.ones((2, 1), np.float32))
    with pytest.raises(DataError, match="vectors of features, but the model was trained on columns of a table"):
        read_like(tmp_path / "new.npz", of_columns("x"), targets=False)


# -- files by the order of columns -----------------------------------------------------------------------------------


def test_a_model_without_names_takes_as_many_columns_in_their_order_and_says_so(tmp_path):
    rows = [(1, "basel", 2.5, 3), (4, "bern", 5, 6)]
    data = read_like(write(tmp_path / "new.csv", rows), of_width(3), targets=False)
    np.testing.assert_array_equal(taken(data, of_width(3)), [[1, 2.5, 3], [4, 5, 6]])
    (note,) = data.notes
    assert "columns are taken in their order, chol, age, sex" in note


@pytest.mark.parametrize("width", [2, 4])
def test_other_counts_of_columns_are_refused_with_both(tmp_path, width):
    with pytest.raises(DataError, match=rf"{width} numbers each .* there are 3 \(chol, age, sex\); leave out .*--drop"):
        read_like(write(tmp_path / "new.csv"), of_width(width), targets=False)


def test_columns_that_are_named_otherwise_are_no_inputs(tmp_path):
    rows = [(1, 10, 2.5, 0), (4, 20, 5, 1)]
    path = write(tmp_path / "new.csv", rows, ("id", "a", "b", "hospital"))
    for reading in (
        Reading(drop=("id", "hospital")),
        Reading(metadata=("id",), domain="hospital"),
        Reading(target="id", drop=("hospital",)),
    ):
        data = read_like(path, of_width(2), targets=False, reading=reading)
        assert taken(data, of_width(2)).tolist() == [[10, 2.5], [20, 5]]


def test_a_number_that_is_missing_among_features_is_refused_by_name(tmp_path):
    with pytest.raises(DataError, match="row 2, line 3 of the file, column 'chol' holds nan: not a finite number"):
        read_like(write(tmp_path / "new.csv"), of_width(3), targets=False)


@pytest.mark.parametrize("schema", [of_columns("age", "sex"), of_width(3)], ids=["named", "in order"])
def test_a_file_in_parts_reads_as_it_does_whole(tmp_path, schema, monkeypatch):
    path = write(tmp_path / "new.csv", [(place, "x", place + 0.5, place % 2) for place in range(50)])
    whole = taken(read_like(path, schema, targets=False), schema)
    monkeypatch.setattr("gated_domains.data.blocks.LARGE", 1)
    parts = list(blocks_like(path, schema, rows=16))
    assert len(parts) > 1
    np.testing.assert_array_equal(np.concatenate([taken(part, schema) for part in parts]), whole)
