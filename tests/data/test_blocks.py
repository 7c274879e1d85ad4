"""New data in parts: what is read a few rows at a time is what would have been read at once, faults and all."""

from __future__ import annotations

import gzip
import itertools
import lzma
import threading
import weakref
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pyarrow import csv as arrow_csv

from gated_domains.data import NewData, Reading, Schema, blocks, fit_encoding, load_data, read_like, schema_of
from gated_domains.data.blocks import blocks_like, rows_at_a_time
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.parts import Blocks
from gated_domains.data.readers import table_files
from gated_domains.data.readers.table_blocks import look_through

pytestmark = pytest.mark.usefixtures("without_shape_checks", "in_parts")

TRAINED = """age,sex,seen,chol,sick,site
63,m,2020-01-01,233,no,a
67,f,2020-02-01,unknown,yes,b
37,f,2021-01-05,,no,a
41,m,2022-03-01,204.5,yes,b
""" + "".join(f"{age},m,2020-01-{age - 30},{age}.5,no,a\n" for age in range(40, 60))
SAID = Reading(target="sick", domain="site")


@pytest.fixture
def in_parts(monkeypatch) -> None:
    """All files are large, and Arrow takes in some lines at a time."""
    monkeypatch.setattr(blocks, "LARGE", 0)
    monkeypatch.setattr(table_files, "_BLOCK", 96)


def trained_on(dataset: DomainDataset) -> Schema:
    return schema_of(dataset, fit_encoding(dataset, np.arange(len(dataset))))


@pytest.fixture(scope="module")
def schema(tmp_path_factory) -> Schema:
    path = tmp_path_factory.mktemp("trained") / "train.csv"
    path.write_text(TRAINED)
    return trained_on(load_data(path, SAID))


def lines(rows: Sequence[str], header: str = "age,sex,seen,chol,site") -> bytes:
    return "\n".join([header, *rows, ""]).encode()


GOOD = [f"{30 + row},{'mf'[row % 2]},2020-01-{1 + row:02d},{row}.25,{'abc'[row % 3]}" for row in range(25)]


def domain_names(data: NewData) -> list[str] | None:
    return None if data.domains is None else [data.domain_names[place] for place in data.domains]


def same(parts: Sequence[NewData], whole: NewData, schema: Schema) -> None:
    """Inputs as they are encoded, metadata with their types, and domains by name."""
    encoded = [schema.encoding.prepare(data.inputs) for data in (*parts, whole)]
    read = [inputs.read(np.arange(len(inputs))) for inputs in encoded]
    np.testing.assert_array_equal(np.concatenate(read[:-1]), read[-1])
    assert {data.name for data in parts} == {whole.name}
    for name, values in whole.metadata.items():
        assert [part.metadata[name].dtype.kind for part in parts] == [values.dtype.kind] * len(parts)
        np.testing.assert_array_equal(np.concatenate([part.metadata[name] for part in parts]), values)
    assert {tuple(part.metadata) for part in parts} == {tuple(whole.metadata)}
    named = [domain_names(part) for part in parts]
    expected = domain_names(whole)
    assert [name for names in named for name in names or [None]] == (expected or [None] * len(parts))
    assert {(part.class_names, part.label_names, part.targets is None) for part in parts} == {
        (whole.class_names, whole.label_names, True)
    }


def either(read: Callable[[], Any]) -> tuple[Any, str]:
    """What is read, or the words it is refused with."""
    try:
        return read(), ""
    except DataError as error:
        return None, str(error)


def checked(path: Path, schema: Schema, rows: int, reading: Reading | None = None) -> Blocks | None:
    """Read both ways: the same data, or the same words. None where it is refused."""
    whole, words = either(lambda: read_like(path, schema, targets=False, reading=reading))
    if whole is None:
        assert either(lambda: list(blocks_like(path, schema, reading=reading, rows=rows))) == (None, words)
        return None
    found = blocks_like(path, schema, reading=reading, rows=rows)
    parts = list(found)
    assert found.rows == len(whole) == sum(map(len, parts))
    assert [len(part) for part in parts[:-1]] == [rows] * (len(parts) - 1)
    same(parts, whole, schema)
    return found


# -- tables ------------------------------------------------------------------------------------------------------------

CELLS = {
    "age": ["41", "41.5", "", "NA", "1e3", "true", "0", "-3", "x41", "inf", "?"],
    "sex": ["m", "f", "", "diverse", "007", "1", "1.0"],
    "seen": ["2020-01-01", "2020-01-01 10:00", "", "2020-01-01T00:00:00Z", "soon"],
    "chol": ["200", "2.5", "unknown", "", "high"],
    "site": ["a", "b", "1", "1.5", "01", "", "true", "2020-01-01"],
    "kept": ["1", "2", "", "2.5", "word", "true", "2020-01-01", "2020-01-01 10:00:00.5", "10:00"],
}


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(*map(st.sampled_from, CELLS.values())), min_size=0, max_size=12),
    places=st.lists(st.integers(0, 24), min_size=12, max_size=12),
    most=st.sampled_from([1, 3, 7, 40]),
    suffix=st.sampled_from([".csv", ".csv.gz", ".parquet"]),
)
def test_any_table_reads_in_parts_as_it_reads_whole(tmp_path_factory, schema, rows, places, most, suffix):
    path = tmp_path_factory.mktemp("any") / f"new{suffix}"
    made = [f"{line},{row}" for row, line in enumerate(GOOD)]
    for row, place in zip(rows, places, strict=False):
        made[place] = ",".join(row)
    content = lines(made, "age,sex,seen,chol,site,kept")
    if suffix == ".parquet":
        pq.write_table(pa.csv.read_csv(pa.BufferReader(content)), path, row_group_size=4)
    else:
        path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    checked(path, schema, most, Reading(metadata=("kept",)))


@pytest.mark.parametrize("cell", ["x", "41.5", "", "true"])
def test_a_column_that_turns_out_to_be_something_else_far_down_is_read_as_that_from_its_start(tmp_path, schema, cell):
    path = tmp_path / "new.csv"
    made = [f"{line},{row % 2}" for row, line in enumerate(GOOD * 8)]
    made[-2] = f"{GOOD[0]},{cell}"
    path.write_bytes(lines(made, "age,sex,seen,chol,site,kept"))
    assert checked(path, schema, 10, Reading(metadata=("kept",))) is not None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({3: "x,m,2020-01-01,1,a", 17: "y,m,2020-01-01,1,a"}, r"'x' in row 4, line 5 of the file .such rows: 2"),
        (
            {4: "1,m,soon,1,a", 20: "x,m,2020-01-01,1,a"},
            r"column 'age' .* 'x' in row 21, line 22 of the file .such rows: 1",
        ),
        ({21: "inf,m,2020-01-01,1,a", 23: "inf,m,2020-01-01,1,a"}, r"'age', row 22, line 23 .* is inf .such rows: 2"),
        ({2: "inf,m,2020-01-01,1,a", 23: "x,m,2020-01-01,1,a"}, r"'x' in row 24, line 25"),
        ({19: "1,m"}, r"Row #21: Expected 5 columns, got 2"),
    ],
)
def test_faults_count_rows_of_the_file(tmp_path, schema, changes, words):
    path = tmp_path / "new.csv"
    path.write_bytes(lines([changes.get(row, line) for row, line in enumerate(GOOD)]))
    assert checked(path, schema, 4) is None
    with pytest.raises(DataError, match=words):
        list(blocks_like(path, schema, rows=4))


def test_no_part_is_given_after_a_fault_and_all_before_it_are(tmp_path, schema):
    path = tmp_path / "new.csv"
    path.write_bytes(lines([*GOOD[:9], "x,m,2020-01-01,1,a", *GOOD[10:]]))
    given: list[int] = []
    with pytest.raises(DataError, match="row 10"):
        given.extend(len(part) for part in blocks_like(path, schema, rows=4))
    assert given == [4, 4]


@pytest.mark.parametrize(
    "content",
    [
        lines(GOOD).replace(b",", b";").replace(b".25", b",25"),  # a decimal comma
        lines([*GOOD, "50,z\xfc,2020-01-01,1,a"]).decode().encode("cp1252"),  # outside UTF-8 from far down on
        lines(GOOD).decode().encode("utf-16"),
        lines([f'{30 + row},"m\n",2020-01-01,1,a' for row in range(12)]),  # lines inside quotes
        lines(GOOD, " age ,sex, seen,chol,site"),
        lines(GOOD, "age,sex,seen,chol,chol"),
        lines(GOOD, "age,sex,seen,dosis,site"),
        lines([]),
        b"",
        lines(GOOD).replace(b"2020-01-20", b"20\x0020"),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".csv.xz", ".csv.zip"])
def test_files_of_every_form_read_in_parts_as_they_read_whole(tmp_path, schema, content, suffix):
    path = tmp_path / f"new{suffix}"
    if suffix.endswith("zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("new.csv", content)
    else:
        path.write_bytes(lzma.compress(content) if suffix.endswith("xz") else content)
    checked(path, schema, 4)


def test_a_domain_with_a_hole_anywhere_is_passed_over_everywhere_and_said_once(tmp_path, schema):
    path = tmp_path / "new.csv"
    path.write_bytes(lines([*GOOD[:-1], GOOD[-1][:-1]]))
    found = checked(path, schema, 4)
    assert found is not None
    assert {part.notes for part in found} == {
        ("column 'site', the domain, is empty in 1 of 25 rows and is passed over",)
    }


def test_a_column_that_is_empty_in_some_parts_only_is_not_called_empty(tmp_path, schema):
    path = tmp_path / "new.csv"
    path.write_bytes(lines([line if row > 7 else "," + line.split(",", 1)[1] for row, line in enumerate(GOOD)]))
    assert {part.notes for part in blocks_like(path, schema, rows=4)} == {()}
    path.write_bytes(lines(["," + line.split(",", 1)[1] for line in GOOD]))
    assert {part.notes for part in blocks_like(path, schema, rows=4)} == {
        ("column 'age' is empty; all its values count as missing",)
    }


@pytest.mark.parametrize("parts", [1, None], ids=["one part", "all parts"])
def test_no_thread_of_arrow_holds_a_python_object_once_parts_are_read(tmp_path, monkeypatch, parts):
    sources, read = [], arrow_csv.open_csv

    def released_late(source: object, **options: object) -> pa.csv.CSVStreamingReader:
        sources.append(weakref.ref(source))
        held = [source]
        del source
        threading.Timer(0.1, held.clear).start()
        return read(held[0], **options)

    monkeypatch.setattr(arrow_csv, "open_csv", released_late)
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(TRAINED.encode()))
    tables = look_through(path).tables(5)
    assert len(list(itertools.islice(tables, parts))) == (parts or 5)
    tables.close()
    assert sources
    assert all(source() is None for source in sources)


def test_packed_files_may_hold_more_than_there_is_memory(tmp_path, schema, monkeypatch):
    path = tmp_path / "new.csv.gz"
    path.write_bytes(gzip.compress(lines(GOOD)))
    monkeypatch.setattr(table_files, "available_bytes", lambda: 10)
    with pytest.raises(DataError, match="larger than the memory"):
        read_like(path, schema, targets=False)
    assert [len(part) for part in blocks_like(path, schema, rows=10)] == [10, 10, 5]


def test_a_table_is_never_in_memory_as_a_whole(tmp_path, schema):
    path = tmp_path / "new.csv"
    path.write_bytes(lines(GOOD * 4_000))
    whole = read_like(path, schema, targets=False).inputs.nbytes
    before = pa.total_allocated_bytes()
    most, file = 0, look_through(path)
    for _, table in file.tables(1_000):
        assert table.num_rows == 1_000
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < whole / 4


def test_a_card_reads_in_parts_with_its_notes(tmp_path, schema):
    (tmp_path / "new.csv").write_bytes(lines(GOOD))
    (tmp_path / "card.yaml").write_text("path: new.csv\nnotes: mind the gap\n")
    parts = list(blocks_like(tmp_path / "card.yaml", schema, rows=10))
    assert len(parts) == 3
    assert {part.notes for part in parts} == {("mind the gap",)}


# -- texts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_column_of_texts_reads_in_parts(tmp_path, suffix):
    texts = ["a good day", "a bad day", "good", "", "bad, very bad", "so good"]
    made = pa.table({"text": texts * 5, "y": ["+", "-"] * 15, "site": ["s", "t", "t"] * 10})
    for name, table in (("train.csv", made), ("new" + suffix, made)):
        (pa.csv.write_csv if name.endswith("csv") else pq.write_table)(table, tmp_path / name)
    schema = trained_on(load_data(tmp_path / "train.csv", Reading(target="y", domain="site", text="text")))
    found = checked(tmp_path / f"new{suffix}", schema, 7, Reading(metadata=("y",)))
    assert found is not None
    assert next(iter(found)).notes == ("texts that are empty: 1 of 7",)
    checked(tmp_path / f"new{suffix}", schema, 7, Reading(text="txt"))


# -- arrays ------------------------------------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory) -> Schema:
    path = tmp_path_factory.mktemp("vectors") / "train.npz"
    np.savez(path, X=X, y=np.arange(20) % 3, class_names=["cat", "dog", "owl"], domain=np.arange(20) % 2)
    return trained_on(load_data(path))


BROKEN = X.copy()
BROKEN[[7, 8, 19], 2] = np.nan


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    "arrays",
    [
        {"X": X, "domain": np.array(["s", "t"] * 10), "age": np.arange(20), "names": np.array(["ä", "b"] * 10)},
        {"features": X.astype(np.float64), "domains": np.arange(20.0) % 3, "labels": np.array([{}] * 20, object)},
        {"X": (100 * X).astype(np.int16), "subject": np.arange(20)[:, None] % 2, "domain_names": ["p", "q"]},
        {"X": X, "domain": np.arange(20), "domain_names": np.array([f"d{place}" for place in range(20)])},
        {"X": np.asfortranarray(X), "x": np.arange(20)},
        {"X": BROKEN},
        {"X": X[:, :3]},
        {"X": X[:0]},
        {"X": X[:, 0]},
        {"X": np.float32(3)},
        {"X": X, "domain": [0, 1]},
        {"X": X, "domain": np.where(np.arange(20) == 11, np.nan, 0.0)},
        {"X": X, "domain": np.array([{}] * 20, object)},
        {"X": np.zeros((20, 4, 4), np.uint8)},
        {"X": X.astype(str)},
        {"Z": X},
    ],
)
def test_arrays_read_in_parts_as_they_read_whole(tmp_path, vectors, arrays: dict[str, Any], save):
    save(tmp_path / "new.npz", **arrays)
    checked_arrays(tmp_path / "new.npz", vectors)


def checked_arrays(path: Path, schema: Schema) -> None:
    whole, words = either(lambda: read_like(path, schema, targets=False))
    if whole is None:
        assert either(lambda: list(blocks_like(path, schema, rows=6))) == (None, words)
        return
    same(list(blocks_like(path, schema, rows=6)), whole, schema)


def test_the_rows_of_arrays_come_a_few_at_a_time(tmp_path, vectors):
    np.savez(tmp_path / "new.npz", X=X)
    assert [len(part) for part in blocks_like(tmp_path / "new.npz", vectors, rows=6)] == [6, 6, 6, 2]


def test_an_array_that_was_cut_short_is_refused(tmp_path, vectors):
    np.savez(tmp_path / "new.npz", X=X)
    content = (tmp_path / "new.npz").read_bytes()
    (tmp_path / "new.npz").write_bytes(content.replace(X[15:].tobytes(), X[16:].tobytes()))
    with pytest.raises(DataError, match="cut short, damaged"):
        list(blocks_like(tmp_path / "new.npz", vectors, rows=6))


def test_a_folder_of_grey_images_as_arrays_reads_in_parts(tmp_path):
    for seed, name in enumerate("ab"):
        images = np.random.default_rng(seed).integers(0, 255, (7, 8, 8), np.uint8)
        np.savez(tmp_path / f"{name}.npz", images=images, labels=np.arange(7) % 2)
    checked_arrays(tmp_path, trained_on(load_data(tmp_path)))


@pytest.mark.parametrize("second", [X[5:], X[5:, :3], BROKEN[5:], np.asfortranarray(X[5:])])
def test_a_folder_of_arrays_reads_in_parts(tmp_path, vectors, second):
    np.savez(tmp_path / "a.npz", train_X=X[:2], test_X=X[2:5])
    np.savez(tmp_path / "b.npz", X=second)
    checked_arrays(tmp_path, vectors)


def test_images_as_arrays_read_in_parts(tmp_path):
    images = np.random.default_rng(0).integers(0, 255, (9, 8, 8), np.uint8)
    np.savez(tmp_path / "train.npz", images=images, y=np.arange(9) % 2)
    schema = trained_on(load_data(tmp_path / "train.npz"))
    checked_arrays(tmp_path / "train.npz", schema)


# -- images ------------------------------------------------------------------------------------------------------------


def test_a_folder_of_images_reads_in_parts_and_never_whole(tmp_path, monkeypatch):
    for shade, name in enumerate(["a/cat/1.png", "a/dog/2.png", "b/cat/3.png", "b/dog/4.png", "b/dog/5.png"]):
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), 10 * shade, np.uint8)).save(path)
    (tmp_path / "pets" / "notes.txt").write_text("hello")
    schema = trained_on(load_data(tmp_path / "pets"))
    found = checked(tmp_path / "pets", schema, 2)
    assert found is not None
    assert [part.inputs.nbytes for part in found] == [2 * 8 * 8 * 3, 2 * 8 * 8 * 3, 8 * 8 * 3]
    (tmp_path / "pets" / "b" / "dog" / "5.png").write_bytes(b"no image")
    checked(tmp_path / "pets", schema, 2)
    checked(tmp_path / "pets", schema, 2, Reading(target="x"))


# -- sizes -------------------------------------------------------------------------------------------------------------


def read_at_once(path: Path, schema: Schema, monkeypatch, *, large: int) -> bool:
    monkeypatch.setattr(blocks, "LARGE", large)
    return not blocks_like(path, schema, rows=4).in_parts


def test_what_is_small_is_read_at_once_and_falls_into_the_same_parts(tmp_path, schema, monkeypatch):
    path = tmp_path / "new.csv"
    path.write_bytes(lines(GOOD))
    size = path.stat().st_size
    in_parts = list(blocks_like(path, schema, rows=4))
    assert not read_at_once(path, schema, monkeypatch, large=size)
    assert read_at_once(path, schema, monkeypatch, large=size + 1)
    at_once = list(blocks_like(path, schema, rows=4))
    assert list(map(len, at_once)) == list(map(len, in_parts)) == [4] * 6 + [1]
    for one, other in zip(at_once, in_parts, strict=True):
        same([one], other, schema)


def test_a_compressed_table_counts_for_much_more_than_it_takes_up(tmp_path, schema, monkeypatch):
    path = tmp_path / "new.csv.gz"
    path.write_bytes(gzip.compress(lines(GOOD)))
    assert not read_at_once(path, schema, monkeypatch, large=64 * path.stat().st_size)
    assert read_at_once(path, schema, monkeypatch, large=64 * path.stat().st_size + 1)


def test_parquet_and_arrays_are_as_large_as_they_are_unpacked(tmp_path, schema, vectors, monkeypatch):
    table, packed = tmp_path / "new.parquet", tmp_path / "new.npz"
    rows = 5_000
    columns = {"age": [41] * rows, "sex": ["m"] * rows, "seen": ["2020-01-01"] * rows, "chol": [1.5] * rows}
    pq.write_table(pa.table(columns), table)
    np.savez_compressed(packed, X=np.zeros((rows, 4), np.float32))
    for path, trained, size in ((table, schema, rows * 4 * 8), (packed, vectors, rows * 4 * 4)):
        assert path.stat().st_size < size / 10
        assert not read_at_once(path, trained, monkeypatch, large=size)
        assert read_at_once(path, trained, monkeypatch, large=size + 1)


@pytest.mark.parametrize("in_folder", [False, True])
@pytest.mark.parametrize("shape", [(3, 1_000_000), (3, 900, 900)])
def test_samples_of_another_shape_are_refused_before_any_is_read(tmp_path, vectors, monkeypatch, shape, in_folder):
    np.savez_compressed(tmp_path / "new.npz", X=np.zeros(shape, np.uint8))
    path = tmp_path if in_folder else tmp_path / "new.npz"
    _, words = either(lambda: read_like(path, vectors, targets=False))
    assert "but the model was trained on" in words
    monkeypatch.setattr("gated_domains.data.npz._Member.next", None)
    assert either(lambda: blocks_like(path, vectors, rows=2)) == (None, words)


def test_parts_of_a_folder_of_arrays_go_from_file_to_file(tmp_path, vectors):
    for name, rows in zip("abcd", (slice(0, 5), slice(5, 6), slice(6, 7), slice(7, 20)), strict=True):
        np.savez(tmp_path / f"{name}.npz", X=X[rows])
    parts = list(blocks_like(tmp_path, vectors, rows=6))
    assert [len(part) for part in parts] == [6, 6, 6, 2]
    assert [domain_names(part) for part in parts[:2]] == [[*"aaaaab"], [*"cddddd"]]


def test_parts_are_thousands_of_rows_fewer_of_wide_ones(schema, vectors):
    narrow = rows_at_a_time(vectors)
    wide = replace(vectors, encoding=replace_width(vectors, 10_000))
    assert narrow == 1 << 16
    assert rows_at_a_time(wide) == 3 * 1024
    assert rows_at_a_time(replace(vectors, encoding=replace_width(vectors, 200_000))) == 1024
    assert rows_at_a_time(replace(vectors, encoding=replace_width(vectors, 2_000_000))) == 134  # a gibibyte
    assert rows_at_a_time(schema) % 1024 == 0


def replace_width(schema: Schema, width: int) -> Any:
    made = DomainDataset.from_arrays(np.zeros((4, width), np.float32), [0, 1, 0, 1])
    return fit_encoding(made, np.arange(4))
