"""A new site: data read as a model expects them, whatever they look like now, and refused where they cannot be."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from gated_domains.data import InOrder, NewData, Reading, Schema, fit_encoding, load_data, place, read_like, schema_of
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Categories, Table
from gated_domains.data.matching import places_of, targets_like
from gated_domains.data.readers import folders

REAL = Path(__file__).parents[3] / "shared" / "data"
needs_real_data = pytest.mark.skipif(not REAL.is_dir(), reason="real data (../shared/data) are not here")

HEART = Reading(target="num", domain="hospital", positive=("1", "2"), categorical=("cp",))
COLUMNS = ("age", "cp", "sex", "chol", "num", "hospital")
ROWS = [
    (63, 1.0, "male", 233, 0, "basel"), (67, 4.0, "male", 286, 2, "basel"), (37, 3.0, "female", "", 1, "basel"),
    (41, 2.0, "female", 204, 0, "zürich"), (56, "", "male", 236, 0, "zürich"), (62, 4.0, "", 268, 2, "zürich"),
    (57, 4.0, "female", 354, 0, "basel"), (63, 4.0, "male", 254, 1, "zürich"),
]  # fmt: skip


def write(path: Path, rows: Sequence[Sequence[object]], header: Sequence[str] = COLUMNS) -> Path:
    path.write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]) + "\n", "utf-8")
    return path


def without(*names: str) -> tuple[list[list[object]], list[str]]:
    """The rows less these columns, and the header that goes with them."""
    kept = [place for place, name in enumerate(COLUMNS) if name not in names]
    return [[row[place] for place in kept] for row in ROWS], [COLUMNS[place] for place in kept]


def with_cell(row: int, name: str, value: object) -> list[list[object]]:
    rows = [list(entry) for entry in ROWS]
    rows[row][COLUMNS.index(name)] = value
    return rows


def with_column(name: str, values: Sequence[object]) -> list[list[object]]:
    rows = [list(entry) for entry in ROWS]
    for row, value in zip(rows, values, strict=True):
        row[COLUMNS.index(name)] = value
    return rows


def kept(schema: Schema) -> Schema:
    """As it comes back from a file."""
    return Schema.from_description(json.loads(json.dumps(schema.describe())))


def trained_on(dataset: DomainDataset) -> Schema:
    return kept(schema_of(dataset, fit_encoding(dataset, np.arange(len(dataset)))))


@pytest.fixture
def heart(tmp_path) -> DomainDataset:
    return load_data(write(tmp_path / "heart.csv", ROWS), HEART)


@pytest.fixture
def schema(heart) -> Schema:
    return trained_on(heart)


def encoded(data: NewData | DomainDataset, schema: Schema) -> np.ndarray:
    return schema.encoding.prepare(data.inputs).read(np.arange(len(data)))


def category(data: NewData, name: str) -> list[str | None]:
    """The names in a column, by row."""
    assert isinstance(data.inputs, Table)
    found = {column.name: column for column in data.inputs.columns}[name]
    assert isinstance(found, Categories)
    return [None if code < 0 else found.levels[code] for code in found.values]


# -- a table and its schema ------------------------------------------------------------------------------------------


def test_the_table_of_training_reads_as_it_did_in_training(tmp_path, heart, schema):
    new = read_like(tmp_path / "heart.csv", schema, targets=True)
    np.testing.assert_array_equal(encoded(new, schema), encoded(heart, schema))
    assert new.targets.tolist() == heart.targets.tolist()
    assert new.class_names == heart.class_names == ("0", "1 or 2")
    assert (new.domains.tolist(), new.domain_names) == (heart.domains.tolist(), ("basel", "zürich"))
    assert (new.name, new.notes) == ("heart.csv", ())


def test_a_schema_knows_the_target_that_training_found_by_its_name(tmp_path):
    table = load_data(write(tmp_path / "t.csv", [(1, 0), (2, 1), (3, 0)], ("x", "Label")))
    assert trained_on(table).reading.target == "Label"


def test_a_schema_of_a_card_knows_what_the_card_said(tmp_path, heart):
    (tmp_path / "heart.yaml").write_text(
        "path: heart.csv\ntarget: num\ndomain: hospital\npositive: [1, 2]\ncategorical: cp\nnotes: mind the gap\n"
    )
    schema = trained_on(load_data(tmp_path / "heart.yaml"))
    assert schema.reading == HEART
    new = read_like(tmp_path / "heart.yaml", schema, targets=True)
    assert new.targets.tolist() == heart.targets.tolist()
    assert new.notes == ("mind the gap",)


def test_the_target_and_the_domain_may_be_absent_where_nothing_is_scored(tmp_path, heart, schema):
    new = read_like(write(tmp_path / "new.csv", *without("num", "hospital")), schema, targets=False)
    assert (new.targets, new.domains, new.domain_names) == (None, None, ())
    np.testing.assert_array_equal(encoded(new, schema), encoded(heart, schema))


def test_targets_are_not_looked_at_where_nothing_is_scored(tmp_path, schema):
    new = read_like(write(tmp_path / "new.csv", with_column("num", ["?"] * 4 + ["what"] * 4)), schema, targets=False)
    assert new.targets is None


def test_extra_columns_and_another_order_change_nothing(tmp_path, heart, schema):
    rows = [[f"a long story, no {place}".replace(",", ";"), *row[::-1]] for place, row in enumerate(ROWS)]
    new = read_like(write(tmp_path / "new.csv", rows, ["story", *COLUMNS[::-1]]), schema, targets=True)
    np.testing.assert_array_equal(encoded(new, schema), encoded(heart, schema))


def test_a_name_never_seen_is_zero_in_all_places_and_a_note_says_so(tmp_path, schema):
    new = read_like(write(tmp_path / "new.csv", with_cell(2, "sex", "diverse")), schema, targets=False)
    places = [place for place, name in enumerate(schema.encoding.names) if name.startswith("sex")]
    assert encoded(new, schema)[2, places].tolist() == [0.0, 0.0, 0.0]
    assert encoded(new, schema)[3, places].tolist() == [1.0, 0.0, 0.0]
    assert new.notes == ("column 'sex' holds names that the model does not know, in 1 of 8 rows: diverse",)


@pytest.mark.parametrize("name", ["age", "sex", "cp"])
def test_an_empty_column_counts_as_missing(tmp_path, schema, name):
    new = read_like(write(tmp_path / "new.csv", with_column(name, [""] * 8)), schema, targets=True)
    column = next(column for column in new.inputs.columns if column.name == name)
    assert column.missing.all()
    assert np.isfinite(encoded(new, schema)).all()
    assert new.notes == (f"column {name!r} is empty; all its values count as missing",)


def test_one_row_is_enough(tmp_path, heart, schema):
    new = read_like(write(tmp_path / "new.csv", ROWS[1:2]), schema, targets=True)
    np.testing.assert_array_equal(encoded(new, schema), encoded(heart, schema)[1:2])
    assert new.targets.tolist() == [1]


def test_a_missing_column_is_named_with_what_is_there(tmp_path, schema):
    rows, header = without("age", "chol")
    path = write(tmp_path / "new.csv", [[*row, 1] for row in rows], [*header, "Age"])
    with pytest.raises(DataError) as caught:
        read_like(path, schema, targets=False)
    said = str(caught.value)
    assert said.startswith(f"{path}: columns that the model was trained on are missing: age, chol")
    assert "is 'Age' meant for 'age'?" in said
    assert "there are cp, sex, num, hospital, Age" in said


@pytest.mark.parametrize("targets", [True, False])
def test_text_among_numbers_is_named_with_its_row(tmp_path, schema, targets):
    path = write(tmp_path / "new.csv", with_cell(5, "chol", "abc"))
    with pytest.raises(DataError, match="column 'chol' held numbers in training, but holds 'abc' in row 6, line 7"):
        read_like(path, schema, targets=targets)


def test_text_among_numbers_is_found_however_long_the_table(tmp_path, schema):
    rows = [*ROWS * 50, with_cell(0, "age", "abc")[0]]
    with pytest.raises(DataError, match=r"column 'age' .* 'abc' in row 401"):
        read_like(write(tmp_path / "new.csv", rows), schema, targets=False)


def test_words_that_counted_as_missing_in_training_do_so_again(tmp_path):
    rows = [(place, place % 2) for place in range(40)]
    table = load_data(write(tmp_path / "t.csv", [*rows, ("unknown", 1)], ("x", "y")))
    schema = trained_on(table)
    new = read_like(tmp_path / "t.csv", schema, targets=True)
    np.testing.assert_array_equal(encoded(new, schema), encoded(table, schema))
    np.testing.assert_array_equal(
        encoded(read_like(write(tmp_path / "new.csv", [("unknown", 1)], ("x", "y")), schema, targets=False), schema),
        encoded(table, schema)[-1:],
    )
    with pytest.raises(DataError, match="'x' held numbers in training, but holds 'unknwon' in row 2"):
        read_like(write(tmp_path / "new.csv", [(1, 1), ("unknwon", 1)], ("x", "y")), schema, targets=False)


@pytest.mark.parametrize("bad", ["inf", "1e999"])
def test_an_infinite_number_is_refused_as_in_training(tmp_path, schema, bad):
    with pytest.raises(DataError, match=r"column 'age', row 4, line 5 of the file, is inf"):
        read_like(write(tmp_path / "new.csv", with_cell(3, "age", bad)), schema, targets=False)


def test_numbers_that_are_written_as_codes_stay_numbers(tmp_path, heart, schema):
    new = read_like(
        write(tmp_path / "new.csv", with_column("age", [f"0{row[0]}" for row in ROWS])), schema, targets=False
    )
    np.testing.assert_array_equal(encoded(new, schema), encoded(heart, schema))


# -- names, however they are written ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["{:.0f}", "{:.1f}", "{:.2f}"])
def test_names_written_as_numbers_are_known_in_every_form(tmp_path, schema, form):
    cells = [form.format(row[1]) if row[1] != "" else "" for row in ROWS]
    new = read_like(write(tmp_path / "new.csv", with_column("cp", cells)), schema, targets=False)
    assert category(new, "cp") == ["1", "4", "3", "2", None, "4", "4", "4"]


def test_names_are_kept_as_they_are_written_though_all_of_a_file_look_like_numbers(tmp_path):
    rows = [("1.10", 0), ("1.1", 1), ("beta", 0), ("007", 1)] * 5
    schema = trained_on(load_data(write(tmp_path / "t.csv", rows, ("version", "y"))))
    new = read_like(write(tmp_path / "new.csv", [("1.10",), ("1.1",), ("7",)], ("version",)), schema, targets=False)
    assert category(new, "version") == ["1.10", "1.1", "7"]
    assert "7" in new.notes[0]


def test_a_parquet_file_with_other_types_reads_alike(tmp_path, heart, schema):
    columns: dict[str, Any] = {
        "age": pa.array([str(row[0]) for row in ROWS]).dictionary_encode(),
        "cp": pa.array([int(row[1]) if row[1] != "" else None for row in ROWS], "int8"),
        "sex": pa.array([row[2] or None for row in ROWS]).dictionary_encode(),
        "chol": pa.array([row[3] or None for row in ROWS], "float32"),
        "num": pa.array([float(row[4]) for row in ROWS]),
    }
    pq.write_table(pa.table(columns), tmp_path / "new.parquet")
    new = read_like(tmp_path / "new.parquet", schema, targets=True)
    np.testing.assert_array_equal(encoded(new, schema), encoded(heart, schema))
    assert new.targets.tolist() == heart.targets.tolist()


def test_a_compressed_file_with_semicolons_reads_alike(tmp_path, heart, schema):
    text = (tmp_path / "heart.csv").read_text("utf-8").replace(",", ";")
    (tmp_path / "new.csv.gz").write_bytes(gzip.compress(text.encode()))
    new = read_like(tmp_path / "new.csv.gz", schema, targets=True)
    np.testing.assert_array_equal(encoded(new, schema), encoded(heart, schema))


def test_letters_outside_utf8_far_down_in_a_column_of_names_are_read(tmp_path, heart, schema):
    lines = [",".join(map(str, row)) for row in ROWS * 8_000]
    text = "\n".join([",".join(COLUMNS), *lines, "50,4.0,männlich,200,0,basel"])
    assert len(text) > 1 << 20
    (tmp_path / "new.csv").write_bytes(text.replace("zürich", "zurich").encode("cp1252"))
    new = read_like(tmp_path / "new.csv", schema, targets=False)
    assert category(new, "sex")[-1] == "männlich"


def test_dates_are_dates_again(tmp_path):
    days = [("2024-01-02", 0), ("2024-02-03", 1), ("2024-03-04", 0)]
    table = load_data(write(tmp_path / "t.csv", days, ("seen", "y")))
    schema = trained_on(table)
    pq.write_table(pa.table({"seen": [day for day, _ in days]}), tmp_path / "text.parquet")
    for path in (tmp_path / "t.csv", tmp_path / "text.parquet"):
        np.testing.assert_array_equal(encoded(read_like(path, schema, targets=False), schema), encoded(table, schema))
    empty = read_like(write(tmp_path / "new.csv", [("", 1), ("", 0)], ("seen", "y")), schema, targets=False)
    assert empty.inputs.columns[0].missing.all()
    with pytest.raises(DataError, match="column 'seen' held dates in training, but holds '19724' in row 1"):
        read_like(write(tmp_path / "new.csv", [(19724, 1), (19725, 0)], ("seen", "y")), schema, targets=False)
    for wrong in ("19724", "May"):
        path = write(tmp_path / "new.csv", [("2024-01-02", 1), (wrong, 0)], ("seen", "y"))
        with pytest.raises(DataError, match=f"column 'seen' held dates in training, but holds '{wrong}' in row 2"):
            read_like(path, schema, targets=False)


def test_numbers_do_not_become_dates(tmp_path, schema):
    with pytest.raises(DataError, match="'age' held numbers in training, but holds '2024-01-02' in row 1"):
        read_like(write(tmp_path / "new.csv", with_column("age", ["2024-01-02"] * 8)), schema, targets=False)


@pytest.mark.parametrize(
    ("written", "known", "expected"),
    [
        (["1", "1.0", "1.00", "2"], ["1", "3"], [0, 0, 0, -1]),
        (["1", "1.0"], ["1.0", "x"], [0, 0]),
        (["1", "1.00", "1.0"], ["1", "1.0"], [0, -1, 1]),
        (["7", "007"], ["007", "x"], [-1, 0]),
        (["True", "TRUE", "1"], ["false", "true"], [1, 1, -1]),
        (["cat", "Cat", ""], ["cat", "nan"], [0, -1, -1]),
        (["nan", "x"], ["y", "z"], [-1, -1]),
        ([], ["a"], []),
    ],
)
def test_a_name_is_known_by_its_form_first_and_then_by_its_value(written, known, expected):
    assert places_of(written, known) == expected


# -- targets and domains of a table ----------------------------------------------------------------------------------


def test_a_class_that_training_never_had_is_named_with_its_row(tmp_path, schema):
    path = write(tmp_path / "new.csv", with_cell(6, "num", 3))
    with pytest.raises(DataError, match=r"row 7, line 8 of the file is '3', which training never had \(such rows: 1\)"):
        read_like(path, schema, targets=True)
    assert read_like(path, schema, targets=False).targets is None


def test_one_class_is_enough_to_score(tmp_path, schema):
    new = read_like(write(tmp_path / "new.csv", with_column("num", ["2.0"] * 8)), schema, targets=True)
    assert new.targets.tolist() == [1] * 8
    assert new.targets.dtype == np.int64


def test_a_class_may_have_an_or_in_its_name():
    names = ("left or right", "no or yes or so")
    values = np.array(["left or right", "yes or so", "no"])
    assert targets_like(values, names, joined=True).tolist() == [0, 1, 1]
    with pytest.raises(DataError, match="of row 2 is 'no'"):
        targets_like(values[[0, 2]], names)


def test_an_empty_target_is_named_where_the_model_is_scored(tmp_path, schema):
    path = write(tmp_path / "new.csv", with_cell(4, "num", "?"))
    with pytest.raises(DataError, match=r"column 'num', the target, is empty .* in row 5, line 6 of the file"):
        read_like(path, schema, targets=True)


def test_a_target_that_is_not_there_is_asked_for(tmp_path, schema):
    rows, header = without("num")
    path = write(tmp_path / "new.csv", [[*row, 0] for row in rows], [*header, "Num"])
    with pytest.raises(DataError, match=r"no column 'num', the target in training; did you mean 'Num'\?.*--target"):
        read_like(path, schema, targets=True)
    assert read_like(path, schema, targets=True, reading=Reading(target="Num")).targets.tolist() == [0] * 8


def test_columns_may_have_other_names_and_be_kept(tmp_path, heart, schema):
    header = ["age", "cp", "sex", "chol", "outcome", "clinic"]
    path = write(tmp_path / "new.csv", [[*row, f"p{place}"] for place, row in enumerate(ROWS)], [*header, "patient"])
    said = Reading(target="outcome", domain="clinic", metadata=("patient", "age"))
    new = read_like(path, schema, targets=True, reading=said)
    assert new.targets.tolist() == heart.targets.tolist()
    assert new.domain_names == ("basel", "zürich")
    assert new.metadata["patient"].tolist() == [f"p{place}" for place in range(8)]
    assert new.metadata["age"].tolist() == [row[0] for row in ROWS]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (Reading(target="numm"), r"no column 'numm' \(--target\); did you mean 'num'"),
        (Reading(domain="hospitl"), r"no column 'hospitl' \(--domain\); did you mean 'hospital'"),
        (Reading(metadata=("patient",)), r"no column 'patient' \(--metadata\)"),
        (Reading(target="age"), "'age' .--target. is an input of the model"),
        (Reading(positive=("2",)), "--positive was 1,2 in training and cannot be 2 now; leave it out"),
        (Reading(categorical=("sex",)), "--categorical was cp in training and cannot be sex now"),
        (Reading(task="regression"), "--task was left out in training and cannot be regression now"),
        (Reading(image_size=3), "--image-size means nothing for a table"),
        (Reading(drop=("age",)), "missing: age"),
    ],
)
def test_what_is_said_must_fit_the_model(tmp_path, heart, schema, said, message):
    with pytest.raises(DataError, match=message):
        read_like(tmp_path / "heart.csv", schema, targets=True, reading=said)


def test_what_was_said_in_training_may_be_said_again(tmp_path, heart, schema):
    assert read_like(tmp_path / "heart.csv", schema, targets=True, reading=HEART).targets is not None


def test_a_domain_with_holes_is_passed_over_to_predict_and_refused_to_score(tmp_path, schema):
    path = write(tmp_path / "new.csv", with_cell(0, "hospital", ""))
    new = read_like(path, schema, targets=False)
    assert new.domains is None
    assert "'hospital', the domain, is empty in 1 of 8 rows" in new.notes[0]
    with pytest.raises(DataError, match="domain 'hospital' of row 1"):
        read_like(path, schema, targets=True)
    empty = read_like(write(path, with_column("hospital", [""] * 8)), schema, targets=True)
    assert empty.domains is None


def test_a_number_to_predict_is_read_as_a_number(tmp_path):
    rows = [(place, place / 4) for place in range(20)]
    schema = trained_on(load_data(write(tmp_path / "t.csv", rows, ("x", "y"))))
    assert schema.class_names is None
    new = read_like(write(tmp_path / "new.csv", [(1, 3), (2, 4)], ("x", "y")), schema, targets=True)
    assert new.targets.tolist() == [3.0, 4.0]
    assert new.targets.dtype == np.float32
    with pytest.raises(DataError, match="'y' held numbers in training, but holds 'much' in row 2"):
        read_like(write(tmp_path / "new.csv", [(1, 3), (2, "much")], ("x", "y")), schema, targets=True)
    with pytest.raises(DataError, match="'y', the target, is empty"):
        read_like(write(tmp_path / "new.csv", [(1, 3), (2, "")], ("x", "y")), schema, targets=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "the file is empty"), ("age,cp,sex,chol\n", "there is a header .* but no rows"), ("a\x00b", "zero bytes")],
)
def test_empty_and_damaged_files_are_refused_as_in_training(tmp_path, schema, text, message):
    (tmp_path / "new.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_like(tmp_path / "new.csv", schema, targets=False)


# -- batches ---------------------------------------------------------------------------------------------------------


def test_inputs_without_targets_are_batched_and_targets_are_not_made_up(tmp_path, heart, schema):
    new = read_like(write(tmp_path / "new.csv", *without("num", "hospital")), schema, targets=False)
    samples = place(new, schema.encoding)
    parts = list(samples.input_batches(InOrder(np.arange(8), 3)))
    assert [len(part) for part in parts] == [3, 3, 2]
    torch.testing.assert_close(torch.cat(parts), torch.from_numpy(encoded(heart, schema)))
    with pytest.raises(DataError, match=r"new.csv was read without targets"):
        list(samples.batches(InOrder(np.arange(8), 3)))


def test_new_data_with_targets_are_batched_like_those_of_training(tmp_path, heart, schema):
    new = place(read_like(tmp_path / "heart.csv", schema, targets=True), schema.encoding)
    old = place(heart, schema.encoding)
    for mine, theirs in zip(new.batches(InOrder(np.arange(8), 5)), old.batches(InOrder(np.arange(8), 5)), strict=True):
        torch.testing.assert_close(mine.inputs, theirs.inputs)
        assert mine.targets.tolist() == theirs.targets.tolist()
        assert mine.domains.tolist() == theirs.domains.tolist()


def test_new_data_of_different_lengths_are_refused():
    inputs = DomainDataset.from_arrays(np.zeros((3, 2)), [0, 1, 0]).inputs
    with pytest.raises(DataError, match="site: 3 inputs but 2 targets"):
        NewData(name="site", inputs=inputs, class_names=("a", "b"), targets=np.array([0, 1]))


# -- arrays ----------------------------------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


@pytest.fixture
def vectors(tmp_path) -> Schema:
    np.savez(
        tmp_path / "train.npz", X=X, y=np.arange(6) % 3, class_names=["cat", "dog", "owl"], domain=np.arange(6) % 2
    )
    return trained_on(load_data(tmp_path / "train.npz"))


def test_features_alone_are_enough_to_predict(tmp_path, vectors):
    np.savez(tmp_path / "new.npz", X=X[:2].astype(np.float64), patient=np.array(["a", "b"]))
    new = read_like(tmp_path / "new.npz", vectors, targets=False)
    assert (new.targets, new.domains, new.class_names) == (None, None, ("cat", "dog", "owl"))
    np.testing.assert_allclose(encoded(new, vectors), X[:2])
    assert new.metadata["patient"].tolist() == ["a", "b"]


def test_labels_are_told_by_the_names_of_classes_not_by_their_places(tmp_path, vectors):
    np.savez(tmp_path / "new.npz", X=X[:3], y=[0, 1, 1], class_names=["owl", "cat"], domain=["s", "s", "t"])
    new = read_like(tmp_path / "new.npz", vectors, targets=True)
    assert new.targets.tolist() == [2, 0, 0]
    assert (new.domains.tolist(), new.domain_names) == ([0, 0, 1], ("s", "t"))
    np.savez(tmp_path / "text.npz", X=X[:2], y=["dog", "dog"])
    assert read_like(tmp_path / "text.npz", vectors, targets=True).targets.tolist() == [1, 1]


def test_the_arrays_of_training_read_as_they_did_in_training(tmp_path, vectors):
    assert read_like(tmp_path / "train.npz", vectors, targets=True).targets.tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("arrays", "targets", "message"),
    [
        ({"X": X[:, :3]}, False, "features, 3 numbers each, but the model was trained on features, 4 numbers each"),
        ({"X": np.zeros((2, 4, 4), np.uint8)}, False, "holds images, but the model was trained on vectors"),
        ({"X": np.full((2, 4), np.nan)}, False, "row 1, column 0 holds nan: not a finite number"),
        ({"X": X[:0]}, False, "there are no samples"),
        ({"Z": X}, False, "no inputs among"),
        ({"X": X}, True, "no labels among X"),
        ({"X": X, "y": ["cat"] * 5}, True, "6 inputs but 5 targets"),
        ({"X": X, "y": np.zeros(6)}, True, "the target of row 1 is '0', which training never had"),
        ({"X": X, "y": ["cat"] * 5 + ["cow"]}, True, "the target of row 6 is 'cow', which training never had"),
        ({"X": X, "y": ["cat"] * 5 + ["d0g"]}, True, "did you mean 'dog'"),
        ({"X": X, "domain": [0, 1]}, False, "6 inputs but 2 domains"),
    ],
)
def test_arrays_that_do_not_fit_the_model_are_refused(tmp_path, vectors, arrays, targets, message):
    np.savez(tmp_path / "new.npz", **arrays)
    with pytest.raises(DataError, match=message):
        read_like(tmp_path / "new.npz", vectors, targets=targets)


def test_labels_that_nobody_needs_are_not_even_read(tmp_path, vectors):
    np.savez(tmp_path / "new.npz", X=X, y=np.array([{}] * 6, object), labels=np.zeros(6))
    assert dict(read_like(tmp_path / "new.npz", vectors, targets=False).metadata) == {}


def test_a_folder_of_arrays_is_one_domain_a_file(tmp_path, vectors):
    (tmp_path / "sites").mkdir()
    np.savez(tmp_path / "sites" / "a.npz", X=X[:2])
    np.savez(tmp_path / "sites" / "b.npz", X=X[2:], y=np.array(["owl"] * 4))
    new = read_like(tmp_path / "sites", vectors, targets=False)
    assert (new.domain_names, new.domains.tolist()) == (("a", "b"), [0, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(encoded(new, vectors), X)
    with pytest.raises(DataError, match=r"a.npz: no labels among X"):
        read_like(tmp_path / "sites", vectors, targets=True)


def test_a_number_to_predict_needs_numbers(tmp_path):
    np.savez(tmp_path / "train.npz", X=X, y=np.arange(6) / 4)
    schema = trained_on(load_data(tmp_path / "train.npz"))
    assert read_like(tmp_path / "train.npz", schema, targets=True).targets.tolist() == [0, 0.25, 0.5, 0.75, 1, 1.25]
    np.savez(tmp_path / "new.npz", X=X, y=["much"] * 6)
    with pytest.raises(DataError, match="the target of row 1 is 'much', but the model predicts a number"):
        read_like(tmp_path / "new.npz", schema, targets=True)


# -- images ----------------------------------------------------------------------------------------------------------


def save(path: Path, shade: int, size: tuple[int, int] = (8, 8)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((*size[::-1], 3), shade, np.uint8)).save(path)
    return path


@pytest.fixture
def pets(tmp_path) -> Schema:
    for shade, folder in enumerate(("a/cat", "a/dog", "b/cat", "b/dog")):
        save(tmp_path / "pets" / folder / "1.png", shade)
    return trained_on(load_data(tmp_path / "pets"))


def test_a_folder_of_domains_and_classes_is_scored_at_the_size_of_training(tmp_path, pets):
    save(tmp_path / "new" / "c" / "dog" / "x.jpg", 100, size=(20, 30))
    save(tmp_path / "new" / "d" / "dog" / "y.png", 200)
    new = read_like(tmp_path / "new", pets, targets=True)
    assert (new.targets.tolist(), new.class_names) == ([1, 1], ("cat", "dog"))
    assert (new.domains.tolist(), new.domain_names) == ([0, 1], ("c", "d"))
    assert new.metadata["file"].tolist() == ["c/dog/x.jpg", "d/dog/y.png"]
    assert next(place(new, pets.encoding).batches(InOrder(np.arange(2), 2))).inputs.shape == (2, 3, 8, 8)


def test_any_folder_of_images_can_be_predicted_on(tmp_path, pets):
    files = ["a.png", "deep/b.png", "deep/er/c.png", "deep/er/still/d.png", "e/f.png"]
    for shade, file in enumerate(files):
        save(tmp_path / "new" / file, 10 * shade, size=(8 + shade, 9))
    (tmp_path / "new" / "deep" / "notes.txt").write_text("hello")
    new = read_like(tmp_path / "new", pets, targets=False)
    assert new.metadata["file"].tolist() == files
    assert (new.targets, new.domains, new.name) == (None, None, "new")
    assert new.notes == ("1 file is not an image and was skipped: deep/notes.txt",)
    (batch,) = place(new, pets.encoding).input_batches(InOrder(np.arange(5), 5))
    assert batch.shape == (5, 3, 8, 8)
    assert ((batch[:, 0, 0, 0] + 1) * 127.5).tolist() == pytest.approx([0, 10, 20, 30, 40], abs=1e-3)


def test_without_targets_rows_come_in_the_order_they_have_with_them(tmp_path, pets):
    for file in ("b-c/cat/1.png", "b/cat/2.png", "b/cat/1/z.png", "b/cat/1.png"):
        save(tmp_path / "new" / file, 7)
    with_targets, without_targets = (read_like(tmp_path / "new", pets, targets=asked) for asked in (True, False))
    assert with_targets.metadata["file"].tolist() == without_targets.metadata["file"].tolist()


def test_one_image_can_be_predicted_on_but_not_scored(tmp_path, pets):
    path = save(tmp_path / "new" / "x.png", 50, size=(16, 16))
    new = read_like(path, pets, targets=False)
    assert (len(new), new.metadata["file"].tolist()) == (1, ["x.png"])
    with pytest.raises(DataError, match=r"x.png: nothing says of which class one image is"):
        read_like(path, pets, targets=True)


def test_images_too_many_for_memory_stay_on_disk(tmp_path, pets, monkeypatch):
    save(tmp_path / "new" / "x.png", 50)
    monkeypatch.setattr(folders, "available_bytes", lambda: 0)
    new = read_like(tmp_path / "new", pets, targets=False)
    assert isinstance(new.inputs, folders.ImageFiles)
    (batch,) = place(new, pets.encoding, resident=False, workers=0).input_batches(InOrder(np.arange(1), 5))
    assert batch.shape == (1, 3, 8, 8)


def test_a_class_that_training_never_had_is_named_with_its_file(tmp_path, pets):
    save(tmp_path / "new" / "c" / "cat" / "x.png", 1)
    save(tmp_path / "new" / "c" / "cow" / "y.png", 1)
    with pytest.raises(DataError, match=r"the class of c/cow/y.png is 'cow', which training never had"):
        read_like(tmp_path / "new", pets, targets=True)


def test_classes_that_were_made_one_stay_one(tmp_path, pets):
    save(tmp_path / "pets" / "a" / "owl" / "1.png", 9)
    schema = trained_on(load_data(tmp_path / "pets", Reading(positive=("dog", "owl"))))
    assert read_like(tmp_path / "pets", schema, targets=True).targets.tolist() == [0, 1, 1, 0, 1]


@pytest.mark.parametrize("targets", [True, False])
def test_a_folder_without_images_and_a_broken_image_are_refused(tmp_path, pets, targets):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no images in this folder|none was found"):
        read_like(tmp_path / "empty", pets, targets=targets)
    write(tmp_path / "empty" / "t.csv", ROWS)
    with pytest.raises(DataError, match=r"holds tables \(t.csv\)"):
        read_like(tmp_path / "empty", pets, targets=targets)
    (tmp_path / "bad" / "c" / "cat").mkdir(parents=True)
    (tmp_path / "bad" / "c" / "cat" / "x.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"x.png: no image"):
        read_like(tmp_path / "bad", pets, targets=targets)


def test_images_as_arrays_must_have_the_size_of_training(tmp_path, pets):
    np.savez(tmp_path / "new.npz", images=np.zeros((2, 8, 8, 3), np.uint8))
    assert len(read_like(tmp_path / "new.npz", pets, targets=False)) == 2
    np.savez(tmp_path / "new.npz", images=np.zeros((2, 9, 8), np.uint8))
    with pytest.raises(DataError, match="images, 8 x 9, grey, but the model was trained on images, 8 x 8, RGB"):
        read_like(tmp_path / "new.npz", pets, targets=False)


def test_files_are_in_colour_and_a_model_of_grey_images_says_so(tmp_path, pets):
    np.savez(tmp_path / "grey.npz", X=np.zeros((4, 8, 8), np.uint8), y=[0, 1, 0, 1])
    schema = trained_on(load_data(tmp_path / "grey.npz"))
    with pytest.raises(DataError, match=r"trained on images, 8 x 8, grey; give an \.npz"):
        read_like(tmp_path / "pets", schema, targets=False)


# -- other kinds, other places ---------------------------------------------------------------------------------------


def test_data_of_another_kind_are_refused(tmp_path, schema, vectors, pets):
    few = write(tmp_path / "few.csv", *without("age"))
    for what, asked, message in (
        (few, vectors, "holds a table, but the model was trained on vectors of features"),
        (tmp_path / "pets", schema, "holds images, but the model was trained on a table"),
        (tmp_path / "train.npz", pets, "holds vectors of features, but the model was trained on images"),
        ("synthetic", pets, "synthetic holds vectors of features"),
    ):
        with pytest.raises(DataError, match=message):
            read_like(what, asked, targets=False)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("", "no data are named"),
        ("nowhere.csv", "nowhere.csv is neither a file or folder here nor the name of a data set"),
        ("digit", "did you mean 'digits'"),
    ],
)
def test_data_that_are_not_there_are_refused(schema, what, message):
    with pytest.raises(DataError, match=message):
        read_like(what, schema, targets=False)


def test_files_of_unknown_kinds_are_refused_as_in_training(tmp_path, schema):
    (tmp_path / "x.doc").write_text("?")
    with pytest.raises(DataError, match="files of this kind cannot be read"):
        read_like(tmp_path / "x.doc", schema, targets=False)


def test_a_data_set_that_goes_by_a_name_works_too():
    synthetic = load_data("synthetic", seed=1)
    schema = trained_on(synthetic)
    new = read_like("synthetic", schema, targets=True, seed=2)
    assert new.class_names == synthetic.class_names
    assert new.domain_names == synthetic.domain_names
    assert not np.array_equal(encoded(new, schema), encoded(synthetic, schema))
    again = read_like("synthetic", schema, targets=True, seed=1)
    assert again.targets.tolist() == synthetic.targets.tolist()
    assert read_like("synthetic", schema, targets=False).targets is None
    with pytest.raises(DataError, match="--target means nothing for the data set 'synthetic'"):
        read_like("synthetic", schema, targets=True, reading=Reading(target="y"))


# -- what is kept ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["encoding", "class_names", "reading", "dates", "words"])
def test_a_damaged_description_is_refused(schema, damage):
    description = schema.describe()
    del description[damage]
    with pytest.raises(DataError, match=r"what is kept of the training data is damaged .*train anew"):
        Schema.from_description(description)


def test_a_description_with_an_unknown_setting_is_refused(schema):
    description = schema.describe()
    description["reading"]["colour"] = "red"
    with pytest.raises(DataError, match=r"damaged .*colour"):
        Schema.from_description(description)


def test_a_schema_describes_itself_the_same_after_it_was_kept(schema, heart):
    assert schema.describe() == kept(schema).describe()
    assert schema.reading == heart.reading == HEART


def test_a_schema_needs_the_data_as_they_were_read(heart, schema):
    with pytest.raises(DataError, match="an encoding for table does not go with features"):
        schema_of(heart.with_inputs(schema.encoding.prepare(heart.inputs)), schema.encoding)


# -- real data -------------------------------------------------------------------------------------------------------


@needs_real_data
def test_a_hospital_of_the_real_table_is_predicted_on_without_its_outcome(tmp_path):
    said = Reading(target="num", domain="hospital", positive=("1", "2", "3", "4"))
    heart = load_data(REAL / "heart_disease_4hospitals.csv", said)
    schema = trained_on(heart)
    np.testing.assert_array_equal(
        encoded(read_like(REAL / "heart_disease_4hospitals.csv", schema, targets=True), schema), encoded(heart, schema)
    )
    lines = (REAL / "heart_disease_4hospitals.csv").read_text().splitlines()
    swiss = [line.rsplit(",", 2)[0] for line in lines if line.startswith("age") or line.endswith("switzerland")]
    (tmp_path / "swiss.csv").write_text("\n".join(swiss))
    new = read_like(tmp_path / "swiss.csv", schema, targets=False)
    rows = heart.rows_of("switzerland")
    np.testing.assert_array_equal(encoded(new, schema), encoded(heart, schema)[rows])


@needs_real_data
def test_the_real_features_are_read_again_as_they_were():
    pacs = load_data(REAL / "pacs_efflite0_feats.npz")
    schema = trained_on(pacs)
    new = read_like(REAL / "pacs_efflite0_feats.npz", schema, targets=True)
    assert new.targets.tolist() == pacs.targets.tolist()
    assert new.domain_names == pacs.domain_names
