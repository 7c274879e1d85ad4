"""CSV and Parquet files as data sets: every way of writing the same table reads the same, and damage is named."""

from __future__ import annotations

import bz2
import csv
import datetime
import decimal
import gzip
import io
import lzma
import shlex
import tarfile
import threading
import tracemalloc
import weakref
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv as arrow_csv

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Categories, Numbers, Table
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.data.readers import table_files
from gated_domains.settings import to_yaml

REAL = Path(__file__).parents[3] / "shared" / "data"
needs_real_data = pytest.mark.skipif(not REAL.is_dir(), reason="real data (../shared/data) are not here")

HEADER = ("age", "stain", "site", "y")
ROWS = [("61.5", "H&E", "Köln", "0"), ("40", "", "Lyon", "1"), ("", "PAS", "Köln", "1"), ("33.25", "H&E", "Lyon", "0")]


def written(rows: list[tuple[str, ...]], separator: str = ",", end: str = "\n") -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=separator, lineterminator=end).writerows(rows)
    return out.getvalue()


TEXT = written([HEADER, *ROWS])


def load(path: Path, **said: object) -> DomainDataset:
    return load_data(path, Reading(**{"target": "y", "domain": "site", **said}))


def from_text(tmp_path: Path, text: str, **said: object) -> DomainDataset:
    path = tmp_path / "table.csv"
    path.write_text(text, "utf-8", newline="")
    return load(path, **said)


def from_card(tmp_path: Path, content: str, **said: object) -> DomainDataset:
    (tmp_path / "table.csv").write_text(content)
    card = tmp_path / "card.yaml"
    card.write_text(to_yaml({"path": "table.csv", **said}))
    return load_data(card)


def from_columns(tmp_path: Path, columns: dict[str, object], **said: object) -> DomainDataset:
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table(columns), path)
    return load(path, **said)


def column(dataset: DomainDataset, name: str) -> Numbers | Categories:
    assert isinstance(dataset.inputs, Table)
    return {found.name: found for found in dataset.inputs.columns}[name]


def names(dataset: DomainDataset) -> list[str]:
    assert isinstance(dataset.inputs, Table)
    return [found.name for found in dataset.inputs.columns]


def assert_is_the_table(dataset: DomainDataset) -> None:
    assert names(dataset) == ["age", "stain"]
    np.testing.assert_array_equal(column(dataset, "age").values, [61.5, 40, np.nan, 33.25])
    stain = column(dataset, "stain")
    assert stain.levels == ("H&E", "PAS")
    assert stain.values.tolist() == [0, -1, 1, 0]
    assert dataset.targets.tolist() == [0, 1, 1, 0]
    assert dataset.class_names == ("0", "1")
    assert dataset.domain_names == ("Köln", "Lyon")
    assert dataset.domains.tolist() == [0, 1, 0, 1]


# -- one table, written in many ways ---------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"], ids=["comma", "semicolon", "tab", "bar"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["unix", "windows"])
def test_separator_and_line_ends_are_found_out(tmp_path, separator, end):
    assert_is_the_table(from_text(tmp_path, written([HEADER, *ROWS], separator, end)))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt", ".CSV"])
def test_the_suffix_does_not_decide_on_the_separator(tmp_path, suffix):
    path = tmp_path / f"table{suffix}"
    path.write_text(written([HEADER, *ROWS], ";"), "utf-8")
    assert_is_the_table(load(path))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16"])
def test_the_encoding_is_found_out(tmp_path, encoding):
    path = tmp_path / "table.csv"
    path.write_bytes(TEXT.encode(encoding))
    assert_is_the_table(load(path))


def zst(content: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(content)
    return out.getvalue().to_pybytes()


def zipped(content: bytes, **more: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in {"inner.csv": content, **more}.items():
            archive.writestr(name, member)
    return out.getvalue()


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zst,
    ".zip": zipped,
}


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_a_compressed_csv_is_read(tmp_path, suffix):
    path = tmp_path / f"table.csv{suffix}"
    path.write_bytes(COMPRESSORS[suffix](TEXT.encode()))
    assert_is_the_table(load(path))


def parquet_bytes(**options: object) -> bytes:
    table = pa.table(
        {
            "age": pa.array([61.5, 40, None, 33.25]),
            "stain": pa.array(["H&E", None, "PAS", "H&E"]).dictionary_encode(),
            "site": ["Köln", "Lyon", "Köln", "Lyon"],
            "y": [0, 1, 1, 0],
        }
    )
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "brotli"])
def test_a_parquet_file_is_read(tmp_path, codec):
    path = tmp_path / "table.parquet"
    path.write_bytes(parquet_bytes(compression=codec))
    assert_is_the_table(load(path))


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_a_parquet_file_compressed_once_more_is_read(tmp_path, suffix):
    path = tmp_path / f"table.parquet{suffix}"
    path.write_bytes(COMPRESSORS[suffix](parquet_bytes()))
    assert_is_the_table(load(path))


def test_what_a_mac_adds_to_a_zip_is_passed_over(tmp_path):
    path = tmp_path / "table.csv.zip"
    path.write_bytes(zipped(TEXT.encode(), **{"__MACOSX/._inner.csv": b"\x00\x05", ".DS_Store": b"\x00"}))
    assert_is_the_table(load(path))


def test_a_zip_of_two_tables_is_refused(tmp_path):
    path = tmp_path / "table.csv.zip"
    path.write_bytes(zipped(TEXT.encode(), **{"other.csv": b"a\n1\n"}))
    with pytest.raises(DataError, match=r"table.csv.zip: a zip with one table is needed.*inner.csv, other.csv"):
        load(path)


def test_newlines_and_separators_in_quotes_stay_in_their_cell(tmp_path):
    cells = ["plain", "two\nlines", "a,b;c", 'said "no"']
    rows = [(str(place), cells[place % 4], "ab"[place % 2], str(place % 2)) for place in range(40)]
    dataset = from_text(tmp_path, written([("x", "words", "site", "y"), *rows]))
    assert column(dataset, "words").levels == tuple(sorted(cells))
    np.testing.assert_array_equal(column(dataset, "x").values, np.arange(40))


def test_a_decimal_comma_is_read_where_semicolons_separate(tmp_path):
    dataset = from_text(tmp_path, "x;site;y\n1,5;a;0\n-2,25;b;1\n3;a;1\n")
    np.testing.assert_array_equal(column(dataset, "x").values, [1.5, -2.25, 3])


def test_a_decimal_point_is_read_where_semicolons_separate(tmp_path):
    dataset = from_text(tmp_path, "x;words;site;y\n1.5;1,2;a;0\n-2.25;3,4;b;1\n3;1,2;a;1\n")
    np.testing.assert_array_equal(column(dataset, "x").values, [1.5, -2.25, 3])
    assert column(dataset, "words").levels == ("1,2", "3,4")


@pytest.fixture(params=["a short file", "a long file"])
def pieces(request, monkeypatch):
    """Files that are read in many blocks, with and without a guess from the head."""
    monkeypatch.setattr(table_files, "_BLOCK", 1 << 10)
    if request.param == "a long file":
        monkeypatch.setattr(table_files, "_HEAD", 1 << 9)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("late", ["2.5", "1e3", ""])
def test_a_column_may_change_its_kind_late_in_the_file(tmp_path, late):
    """Whole numbers, or nothing at all, over many blocks, and only then something else."""
    rows = [("1", "", str(place % 2), "ab"[place % 2]) for place in range(2_000)] + [(late, "7.5", "1", "a")]
    dataset = from_text(tmp_path, written([("x", "rare", "y", "site"), *rows]))
    expected = np.nan if late == "" else float(late)
    np.testing.assert_array_equal(column(dataset, "x").values[-2:], [1, expected])
    np.testing.assert_array_equal(column(dataset, "rare").values[-2:], [np.nan, 7.5])


@pytest.mark.usefixtures("pieces")
def test_words_late_in_a_column_of_numbers_are_missing_numbers_and_said(tmp_path):
    cells = [str(place % 5) for place in range(2_000)] + ["unknown"]
    rows = [(cell, str(place % 2), "ab"[place % 2]) for place, cell in enumerate(cells)]
    data = from_text(tmp_path, written([("x", "y", "site"), *rows]))
    np.testing.assert_array_equal(column(data, "x").values, [*(place % 5 for place in range(2_000)), np.nan])
    (note,) = data.notes
    assert "column 'x' holds numbers, but 1 cell is not a number (such as 'unknown') and counts as missing" in note
    named = from_text(tmp_path, written([("x", "y", "site"), *rows]), categorical=("x",))
    found = column(named, "x")
    assert [found.levels[code] for code in found.values] == cells


def test_a_column_with_many_words_among_its_numbers_is_one_of_names(tmp_path):
    cells = [str(place % 5) if place % 4 else "high" for place in range(200)]
    rows = [(cell, str(place % 2), "ab"[place % 2]) for place, cell in enumerate(cells)]
    found = column(from_text(tmp_path, written([("x", "y", "site"), *rows])), "x")
    assert set(found.levels) == {"0", "1", "2", "3", "4", "high"}


def test_codes_keep_their_zeros(tmp_path):
    rows = [(f"{place % 3:03}", str(place % 2), f"{place % 4 + 1:03}", f"{place}") for place in range(60)]
    data = from_text(tmp_path, written([("ward", "y", "site", "x"), *rows]))
    assert data.domain_names == ("001", "002", "003", "004")
    assert column(data, "ward").levels == ("000", "001", "002")


@pytest.mark.usefixtures("pieces")
def test_a_line_of_many_lines_is_read_wherever_pieces_end(tmp_path):
    cells = [f"line {place % 7}\nnext, line" for place in range(300)]
    rows = [(cell, str(place % 2), "ab"[place % 2]) for place, cell in enumerate(cells)]
    found = column(from_text(tmp_path, written([("x", "y", "site"), *rows])), "x")
    assert [found.levels[code] for code in found.values] == cells


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_long_files_of_every_encoding_are_read(tmp_path, encoding):
    path = tmp_path / "table.csv"
    rows = [(f"{place / 4}", "Köln" if place % 2 else "Lyon", str(place % 2)) for place in range(300)]
    path.write_bytes(written([("x", "site", "y"), *rows]).encode(encoding))
    assert load(path).domain_names == ("Köln", "Lyon")
    np.testing.assert_array_equal(column(load(path), "x").values, np.arange(300) / 4)


@pytest.mark.usefixtures("pieces")
def test_names_that_appear_in_different_blocks_get_one_list_of_levels(tmp_path):
    words = ["zebra"] * 900 + ["ant"] * 900 + ["zebra", "mole"]
    rows = [(word, str(place % 2), "ab"[place % 2]) for place, word in enumerate(words)]
    found = column(from_text(tmp_path, written([("animal", "y", "site"), *rows])), "animal")
    assert found.levels == ("ant", "mole", "zebra")
    assert [found.levels[code] for code in found.values] == words


def test_bytes_of_another_encoding_late_in_the_file_do_not_stop_it(tmp_path):
    path = tmp_path / "table.csv"
    row = b"Lyon,%d,3.5,grey\n"
    path.write_bytes(b"site,y,x,word\n" + row % 0 * 9_000 + b"K\xf6ln,1,2.5,red\n" * 30)
    dataset = load(path)
    assert len(dataset.domain_names) == 2
    assert set(dataset.domain_names) > {"Lyon"}


def test_bytes_that_are_no_letters_anywhere_are_named(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"x,site,y\n1,\x81,0\n2,b,1\n")
    with pytest.raises(
        DataError, match="byte 0x81 is no letter in UTF-8, UTF-16 or Windows-1252; save the file as UTF-8"
    ):
        load(path)


# -- which column is what --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("usual", ["target", "label", "y", "class", "Target", "LABEL"])
def test_a_target_by_a_usual_name_needs_no_option(tmp_path, usual):
    dataset = from_text(tmp_path, f"x,{usual}\n1,no\n2,yes\n3,no\n", target=None, domain=None)
    assert dataset.class_names == ("no", "yes")
    assert dataset.domains is None


@pytest.mark.parametrize("header", ["x,outcome", "y,label"], ids=["none", "two"])
def test_a_target_that_is_not_plain_to_see_is_asked_for(tmp_path, header):
    with pytest.raises(DataError, match=r"Name it with --target; there are " + header.replace(",", ", ")):
        from_text(tmp_path, f"{header}\n1,2\n2,1\n", target=None, domain=None)


@pytest.mark.parametrize(
    ("said", "option"),
    [
        ({"target": "Y_"}, "--target"),
        ({"domain": "Site"}, "--domain"),
        ({"drop": ("agee",)}, "--drop"),
        ({"categorical": ("agee",)}, "--categorical"),
        ({"metadata": ("stian",)}, "--metadata"),
    ],
    ids=str,
)
def test_a_missing_column_is_named_with_the_nearest_one(tmp_path, said, option):
    near = {"Y_": "y", "Site": "site", "agee": "age", "stian": "stain"}
    (value,) = said.values()
    wrong = value if isinstance(value, str) else value[0]
    with pytest.raises(DataError, match=rf"no column '{wrong}' \({option}\); did you mean '{near[wrong]}'\?"):
        from_text(tmp_path, TEXT, **said)


def test_a_missing_column_unlike_any_other_is_answered_with_all_names(tmp_path):
    with pytest.raises(DataError, match=r"no column 'zzzzzz' \(--domain\); there are age, site, stain, y"):
        from_text(tmp_path, TEXT, domain="zzzzzz")


def test_a_column_can_have_one_part_only(tmp_path):
    with pytest.raises(DataError, match="'site' is named by --domain and by --drop; it can have one part only"):
        from_text(tmp_path, TEXT, drop=("site",))


def test_dropped_and_metadata_columns_are_no_inputs(tmp_path):
    text = "a,b,patient,site,y\n1,2,p1,s,0\n2,3,p2,t,1\n5,4,p1,s,1\n"
    dataset = from_text(tmp_path, text, drop=("b",), metadata=("patient",))
    assert names(dataset) == ["a"]
    assert dataset.metadata["patient"].tolist() == ["p1", "p2", "p1"]


def test_a_table_of_a_target_and_a_domain_alone_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"table.csv.*no column is left to learn from"):
        from_text(tmp_path, "site,y\na,0\nb,1\n")


def test_an_option_for_images_is_refused(tmp_path):
    with pytest.raises(DataError, match="--image-size means nothing for a table"):
        from_text(tmp_path, TEXT, image_size=32)


# -- targets ---------------------------------------------------------------------------------------------------------

GRADES = "x,site,y\n" + "".join(f"{place},{'ab'[place % 2]},{place % 5}\n" for place in range(20))


def test_positive_values_become_one_class_of_two(tmp_path):
    dataset = from_text(tmp_path, GRADES, positive=("1", "2", "3", "4"))
    assert dataset.class_names == ("0", "1 or 2 or 3 or 4")
    assert dataset.targets.tolist() == [int(place % 5 > 0) for place in range(20)]


def test_positive_values_written_as_words_or_as_decimals_are_found(tmp_path):
    words = "x,site,y\n1,a,ill\n2,b,well\n3,a,dead\n"
    assert from_text(tmp_path, words, positive=("ill", "dead")).targets.tolist() == [1, 0, 1]
    decimals = "x,site,y\n1,a,0.0\n2,b,1.0\n3,a,2.0\n"
    assert from_text(tmp_path, decimals, positive=("1", "2")).targets.tolist() == [0, 1, 1]
    assert from_text(tmp_path, decimals, positive=("1.0", "2.0")).targets.tolist() == [0, 1, 1]


def test_a_positive_value_that_no_row_has_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no row has the target 'y' '7', named as positive; there are 0, 1, 2, 3, 4"):
        from_text(tmp_path, GRADES, positive=("1", "7"))


def test_values_that_are_all_positive_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"is among the positive ones.*leave at least one out"):
        from_text(tmp_path, GRADES, positive=("0", "1", "2", "3", "4"))


def test_one_class_in_all_rows_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"every row has the same target 'y', '3'; there is nothing to learn"):
        from_text(tmp_path, "x,site,y\n1,a,3\n2,b,3\n")


@pytest.mark.parametrize("spelling", [("true", "false"), ("True", "False"), ("TRUE", "FALSE")], ids=str)
def test_truth_values_are_two_classes_by_their_names(tmp_path, spelling):
    yes, no = spelling
    dataset = from_text(tmp_path, f"x,site,y\n1,a,{yes}\n2,b,{no}\n3,a,{yes}\n")
    assert [name.casefold() for name in dataset.class_names] == ["false", "true"]
    assert dataset.targets.tolist() == [1, 0, 1]


def test_few_whole_numbers_are_classes_and_many_are_a_quantity(tmp_path):
    rows = "".join(f"{place},a,{place}\n" for place in range(100))
    assert len(from_text(tmp_path, "x,site,y\n" + rows).class_names) == 100
    dataset = from_text(tmp_path, "x,site,y\n" + rows + "1,b,100\n")
    assert dataset.class_names is None
    assert dataset.targets.dtype == np.float32


def test_fractions_are_a_quantity(tmp_path):
    dataset = from_text(tmp_path, "x,site,y\n1,a,0.5\n2,b,1\n")
    assert dataset.class_names is None
    assert dataset.targets.tolist() == [0.5, 1.0]


def test_the_task_can_be_chosen(tmp_path):
    assert from_text(tmp_path, GRADES, task="regression").class_names is None
    many = "x,site,y\n" + "".join(f"{place},a,{place + 0.5}\n" for place in range(5))
    assert from_text(tmp_path, many, task="classification").num_classes == 5


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"task": "regressionn"}, "no task 'regressionn'; did you mean 'regression'"),
        ({"task": "regression", "positive": ("1",)}, "belong to classification, but the task is regression"),
    ],
)
def test_a_task_that_does_not_fit_is_refused(tmp_path, said, message):
    with pytest.raises(DataError, match=message):
        from_text(tmp_path, GRADES, **said)


def test_words_are_no_quantity(tmp_path):
    with pytest.raises(DataError, match=r"cannot be read as numbers.*'ill'.*choose --task classification"):
        from_text(tmp_path, "x,site,y\n1,a,ill\n2,b,well\n", task="regression")


@pytest.mark.parametrize("empty", ["", "NA", "nan", "?", "None"])
def test_an_empty_target_is_named_by_its_row(tmp_path, empty):
    with pytest.raises(DataError, match=r"table.csv: .*'y'.* row 3, line 4 .*such rows: 2 of .*--drop-missing-target"):
        from_text(tmp_path, f"x,site,y\n1,a,1\n2,b,0\n3,a,{empty}\n4,b,{empty}\n")


@pytest.mark.parametrize("empty", ["", "NA", "?"])
@pytest.mark.parametrize("reader", [from_text, from_card])
def test_rows_without_a_target_are_left_out_where_that_is_asked_for(tmp_path, empty, reader):
    rows = f"x,site,y\n1,a,1\n2,b,{empty}\n3,a,0\n4,b,{empty}\n5,b,1\n"
    dataset = reader(tmp_path, rows, target="y", domain="site", drop_missing_target=True)
    assert column(dataset, "x").values.tolist() == [1, 3, 5]
    assert dataset.targets.tolist() == [1, 0, 1]
    assert dataset.class_names == ("0", "1")
    assert dataset.domains.tolist() == [0, 0, 1]
    assert "2 of 5 rows have no target ('y') and are left out" in dataset.notes


def test_rows_of_texts_without_a_target_are_left_out_too(tmp_path):
    rows = "t,y\ngood,1\nfair,\nbad,0\n"
    dataset = from_card(tmp_path, rows, target="y", drop_missing_target=True, text="t")
    assert dataset.targets.tolist() == [1, 0]


def test_a_target_without_any_value_is_refused_though_rows_may_be_dropped(tmp_path):
    with pytest.raises(DataError, match="'y', the target, is empty in every row"):
        from_text(tmp_path, "x,y\n1,\n2,\n", domain=None, drop_missing_target=True)


def test_a_fault_below_dropped_rows_is_named_by_its_line_in_the_file(tmp_path):
    with pytest.raises(DataError, match="column 'x', row 4, line 5 of the file, is inf"):
        from_text(tmp_path, "x,y\n1,\n2,0\n3,\ninf,1\n5,1\n", domain=None, drop_missing_target=True)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('x,t,y\n1,"a\nb\nc",0\n2,d,1\ninf,e,1\n', 6),
        ("x,t,y\n\n1,a,0\n\n2,d,1\ninf,e,1\n", 6),
        ("x,t,y\r\n1,a,0\r\n2,d,1\r\ninf,e,1\r\n", 4),
        ("x;t;y\n1;a,b;0\n2;d;1\ninf;e;1\n", 4),
    ],
    ids=["quoted line breaks", "empty lines", "Windows", "semicolons"],
)
def test_the_line_of_a_row_is_that_of_an_editor(tmp_path, text, line):
    with pytest.raises(DataError, match=f"row 3, line {line} of the file, is inf"):
        from_text(tmp_path, text, domain=None)


def test_rows_of_a_parquet_file_have_no_lines(tmp_path):
    with pytest.raises(DataError, match=r"'x', row 2, is inf"):
        from_columns(tmp_path, {"x": [1, float("inf"), 3], "y": [0, 1, 1], "site": ["a", "b", "b"]})


@pytest.mark.parametrize(("repeats", "left_out"), [(1, True), (2, False)])
def test_long_whole_numbers_that_are_all_different_are_an_identifier_whatever_their_name(tmp_path, repeats, left_out):
    """As floats, neighbours of 18 digits are the same number."""
    rows = "".join(f"{row},{123456789012340000 + row // repeats},{row % 2}\n" for row in range(40))
    dataset = from_text(tmp_path, f"x,record,y\n{rows}", domain=None)
    assert ("record" not in names(dataset)) == left_out
    assert any("column 'record' has a new whole number for each row" in note for note in dataset.notes) == left_out


# -- columns that look like domains ------------------------------------------------------------------------------------


def sites(name: str, values: list[object], **said: object) -> tuple[str, ...]:
    """The notes of a table with such a column."""
    rows = "".join(f"{place},{value},{place % 2}\n" for place, value in enumerate(values))
    path = said.pop("folder")
    assert isinstance(path, Path)
    return from_text(path, f"x,{name},y\n{rows}", **{"domain": None, **said}).notes


@pytest.mark.parametrize(
    "name", ["hospital", "Site", "site_id", "recruiting centre", "camera", "subject no", "Clinics"]
)
@pytest.mark.parametrize("values", [["a", "b"] * 10, [1, 2] * 10])
def test_an_input_that_looks_like_a_domain_is_noted_with_both_options(tmp_path, name, values):
    (note,) = sites(name, values, folder=tmp_path)
    assert note.startswith(f"column {name!r} looks like a domain (2 values)")
    assert f"--domain {shlex.quote(name)}" in note
    assert f"--categorical {shlex.quote(name)}" in note


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("age", [30, 40] * 10, {}),
        ("websites", ["a", "b"] * 10, {}),
        ("site", ["a"] * 20, {}),
        ("site", [0.5, 1.5] * 10, {}),
        ("site", [1, 2, 3, 4] * 4, {}),
        ("site", ["a", "b"] * 10, {"domain": "site"}),
        ("site", ["a", "b"] * 10, {"categorical": ("site",)}),
        ("site", ["a", "b"] * 10, {"drop": ("site",)}),
    ],
)
def test_nothing_is_noted_of_other_columns_or_where_somebody_has_decided(tmp_path, name, values, said):
    assert not any("looks like a domain" in note for note in sites(name, values, folder=tmp_path, **said))


def test_an_infinite_target_is_named_by_its_row(tmp_path):
    with pytest.raises(DataError, match=r"target 'y' of row 2, line 3 of the file is inf"):
        from_text(tmp_path, "x,site,y\n1,a,1.5\n2,b,inf\n3,a,2.5\n")


def test_a_target_too_large_for_float32_is_named_by_its_row(tmp_path):
    with pytest.raises(DataError, match=r"target 'y' of row 2, line 3 of the file is 1e\+39"):
        from_text(tmp_path, "x,site,y\n1,a,1.5\n2,b,1e39\n3,a,2.5\n")


@pytest.mark.parametrize("sites", [("a", "", "b"), ("1", "", "2"), ("", "", "")], ids=["words", "numbers", "all"])
def test_an_empty_domain_is_named_by_its_row(tmp_path, sites):
    rows = "".join(f"{place},{site},{place % 2}\n" for place, site in enumerate(sites))
    with pytest.raises(
        DataError,
        match=r"domain 'site' of row [12], line [23] of the file is (empty|nan).*drop those rows or fill them in",
    ):
        from_text(tmp_path, "x,site,y\n" + rows)


@pytest.mark.parametrize("part", ["y", "site"])
def test_a_target_or_a_domain_that_is_really_text_is_refused(tmp_path, part):
    with pytest.raises(DataError, match=f"column '{part}' holds 2,000 letters in one cell.*is this the right column"):
        from_text(tmp_path, f"x,{part},{'site' if part == 'y' else 'y'}\n1,a,0\n2,{'long' * 500},1\n")


def test_domains_written_as_numbers_keep_their_names(tmp_path):
    assert from_text(tmp_path, "x,site,y\n1,10,0\n2,9,1\n3,9,0\n").domain_names == ("9", "10")


# -- columns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "?", "None", "<NA>", "NaT", "."])
def test_missing_values_are_known_by_all_their_names(tmp_path, missing):
    dataset = from_text(tmp_path, f"x,word,site,y\n1,red,a,0\n{missing},{missing},b,1\n3,blue,a,1\n")
    assert column(dataset, "x").missing.tolist() == [False, True, False]
    assert column(dataset, "word").missing.tolist() == [False, True, False]
    assert column(dataset, "word").levels == ("blue", "red")


@pytest.mark.parametrize("infinite", ["inf", "-inf", "Infinity", "1e999"])
def test_infinity_is_named_by_column_and_row(tmp_path, infinite):
    with pytest.raises(DataError, match=r"table.csv: column 'dose', row 2, line 3 of the file, is -?inf .*--drop dose"):
        from_text(tmp_path, f"dose,site,y\n1.5,a,0\n{infinite},b,1\n2,a,1\n")


def test_numbers_can_be_taken_for_names(tmp_path):
    dataset = from_text(tmp_path, "ward,x,site,y\n10,1,a,0\n9,2,b,1\n10,3,a,1\n", categorical=("ward",))
    assert set(column(dataset, "ward").levels) == {"10", "9"}
    assert isinstance(column(dataset, "x"), Numbers)


def test_the_order_of_rows_changes_no_column(tmp_path):
    forward, backward = (from_text(tmp_path, written([HEADER, *rows])) for rows in (ROWS, ROWS[::-1]))
    assert names(forward) == names(backward)
    assert column(forward, "stain").levels == column(backward, "stain").levels
    np.testing.assert_array_equal(column(forward, "stain").values, column(backward, "stain").values[::-1])
    assert forward.domain_names == backward.domain_names
    assert forward.class_names == backward.class_names


def test_an_identifier_is_left_out_with_a_note(tmp_path):
    rows = "".join(f"patient {place},{place},{'ab'[place % 2]},{place % 2}\n" for place in range(30))
    dataset = from_text(tmp_path, "id,x,site,y\n" + rows)
    assert names(dataset) == ["x"]
    assert any("'id' has 30 different values in 30 rows" in note for note in dataset.notes)
    assert names(from_text(tmp_path, "id,x,site,y\n" + rows, categorical=("id",))) == ["id", "x"]


def test_an_empty_column_is_left_out_with_a_note(tmp_path):
    dataset = from_text(tmp_path, "x,nothing,site,y\n1,,a,0\n2,,b,1\n")
    assert names(dataset) == ["x"]
    assert "column 'nothing' is empty and is left out" in dataset.notes


@pytest.mark.parametrize("label", ["", "Unnamed: 0", "index"])
def test_the_row_labels_that_pandas_writes_are_left_out_with_a_note(tmp_path, label):
    dataset = from_text(tmp_path, f"{label},x,site,y\n0,5,a,0\n1,6,b,1\n2,5,a,1\n")
    assert names(dataset) == ["x"]
    assert any("taken for an identifier" in note for note in dataset.notes)


def test_numbers_called_an_identifier_are_left_out_and_others_stay(tmp_path):
    rows = "".join(f"{9 * place % 31},{place},{'ab'[place % 2]},{place % 2}\n" for place in range(30))
    dataset = from_text(tmp_path, "patient_id,x,site,y\n" + rows)
    assert names(dataset) == ["x"]
    assert any("'patient_id' has a new whole number for each row" in note for note in dataset.notes)
    assert names(from_text(tmp_path, "paid,x,site,y\n" + rows)) == ["paid", "x"]


def test_where_nothing_is_left_to_learn_from_the_reasons_are_given(tmp_path):
    with pytest.raises(DataError, match=r"no column is left .*'index' has a new whole number"):
        from_text(tmp_path, "index,site,y\n0,a,0\n1,b,1\n2,a,1\n")


def test_a_guessed_target_is_said(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("x,site,label\n1.5,a,0\n2.5,b,1\n")
    assert "column 'label' is taken for the target" in load_data(path, Reading(domain="site")).notes[0]


def test_sentences_are_text_even_when_they_repeat(tmp_path):
    told = [f"the patient said number {place} of many things today" for place in range(25)]
    rows = [(told[place % 25], str(place % 2), "ab"[place % 2]) for place in range(300)]
    with pytest.raises(DataError, match="column 'said' holds text"):
        from_text(tmp_path, written([("said", "y", "site"), *rows]))


def test_no_positive_value_at_all_is_refused(tmp_path):
    with pytest.raises(DataError, match="is named as positive; there are 0, 1"):
        from_text(tmp_path, "x,site,y\n1.5,a,0\n2.5,b,1\n", positive=())


def test_a_group_column_is_kept_and_binds_rows(tmp_path):
    rows = [(f"{place / 3}", f"p{place // 2}", "ab"[place // 20], str(place % 2)) for place in range(40)]
    data = from_text(tmp_path, written([("x", "patient", "site", "y"), *rows]), keep_together="patient")
    assert (names(data), data.keep_together, list(data.metadata)) == (["x"], "patient", ["patient"])


def test_letters_outside_utf8_far_down_are_read_as_windows_1252(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "_HEAD", 64)
    path = tmp_path / "table.csv"
    lines = [f"{place},Lyon,{place % 2}" for place in range(50)] + ["1,M\xfcnchen,0"]
    path.write_bytes("\n".join(["x,site,y", *lines]).encode("latin-1"))
    assert load(path).domain_names == ("Lyon", "München")


def test_times_finer_than_a_microsecond_are_read(tmp_path):
    dataset = from_text(tmp_path, "seen,site,y\n1970-01-02 00:00:00.000000001,a,0\n1970-01-03 00:00:00,b,1\n")
    np.testing.assert_array_equal(column(dataset, "seen").values, [1, 2])


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_small_file_that_unpacks_to_more_than_there_is_memory_is_refused(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(table_files, "available_bytes", lambda: 3_000_000)
    path = tmp_path / f"table.csv{suffix}"
    opener = {".gz": gzip.open, ".xz": lzma.open}[suffix]
    with opener(path, "wb") as file:
        file.write(b"x,site,y\n" + b"1,a,0\n2,b,1\n" * 500_000)
    with pytest.raises(DataError, match="unpacked, it is larger than the memory"):
        load(path)


@pytest.mark.parametrize("fault", [False, True])
@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_no_thread_of_arrow_holds_a_python_object_once_a_table_is_read(tmp_path, monkeypatch, suffix, encoding, fault):
    """A thread that releases one after the interpreter has ended aborts the process."""
    sources, read = [], arrow_csv.read_csv

    def released_late(source: object, **options: object) -> pa.Table:
        """As by a thread of Arrow's that gets no core for a while."""
        sources.append(weakref.ref(source))
        held = [source]
        del source
        threading.Timer(0.1, held.clear).start()
        return read(held[0], **options)

    monkeypatch.setattr(arrow_csv, "read_csv", released_late)
    path = tmp_path / f"table.csv{suffix}"
    packed = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix]
    path.write_bytes(packed((TEXT + "1,2,3,4,5\n" * fault).encode(encoding)))
    with pytest.raises(DataError, match="Expected 4 columns, got 5") if fault else nullcontext():
        load(path)
    assert sources
    assert all(source() is None or isinstance(source(), pa.NativeFile) for source in sources)


def test_a_zip_whose_member_leads_out_of_it_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "table.csv.zip", "w") as archive:
        archive.writestr("../table.csv", "x,site,y\n1,a,0\n2,b,1\n")
    with pytest.raises(DataError, match=r"'\.\./table\.csv' leads out of the archive"):
        load(tmp_path / "table.csv.zip")


def test_a_column_called_index_that_counts_nothing_stays(tmp_path):
    assert names(from_text(tmp_path, "index,site,y\n3,a,0\n1,b,1\n2,a,1\n")) == ["index"]


def test_dates_are_days_with_a_note(tmp_path):
    dataset = from_text(tmp_path, "seen,site,y\n1970-01-02,a,0\n2020-02-29,b,1\n,a,1\n")
    np.testing.assert_array_equal(column(dataset, "seen").values, [1, 18321, np.nan])
    assert any("'seen' holds dates" in note for note in dataset.notes)


def test_column_names_are_stripped(tmp_path):
    assert from_text(tmp_path, " x , site , y \n1,a,0\n2,b,1\n").domain_names == ("a", "b")


# -- text and molecules, whose column must be named -----------------------------------------------------------------


def test_a_column_of_text_is_refused_with_the_cure(tmp_path):
    rows = "".join(f"this is review number {place} of many and it is long,a,{place % 2}\n" for place in range(30))
    with pytest.raises(DataError, match=r"'review' holds text.*--text review.*--drop review"):
        from_text(tmp_path, "review,site,y\n" + rows)


def test_a_column_of_molecules_is_refused_with_the_cure(tmp_path):
    rows = "".join(f"{'C' * place}C(=O)OC1CCC1,a,{place % 2}\n" for place in range(30))
    with pytest.raises(DataError, match=r"'mol' holds molecules.*--smiles mol.*--drop mol"):
        from_text(tmp_path, "mol,site,y\n" + rows)


@needs_real_data
def test_real_molecules_are_refused_with_the_cure():
    with pytest.raises(DataError, match=r"mol_hiv41127.csv.xz: column 'SMILES' holds molecules.*--drop SMILES"):
        load_data(REAL / "mol_hiv41127.csv.xz", Reading(target="ACTIVE"))


@needs_real_data
def test_real_reviews_are_refused_with_the_cure(tmp_path):
    rows = [("text", "site", "y")]
    with tarfile.open(REAL / "fdu_mtl_16domains_labelled.tar.xz") as archive:
        for name in ("fdu-mtl/magazines.task.train", "fdu-mtl/video.task.test"):
            for line in archive.extractfile(name).read().decode("utf-8", "replace").splitlines():
                label, _, text = line.partition("\t")
                rows.append((text, Path(name).stem, label))
    with pytest.raises(DataError, match="column 'text' holds text"):
        from_text(tmp_path, written(rows))


@pytest.mark.parametrize("said", [{}, {"metadata": ("text",)}], ids=["input", "metadata"])
def test_one_very_long_cell_does_not_cost_its_length_in_every_row(tmp_path, said):
    """Arrays of text have as many places in every row as the longest one needs."""
    cells = ["x" * 400_000, *(f"{place}" + " short words" * 8 for place in range(999))]
    rows = [(cell, f"{place / 2}", "ab"[place % 2], str(place % 2)) for place, cell in enumerate(cells)]
    text = written([("text", "x", "site", "y"), *rows])
    tracemalloc.start()
    try:
        dataset = from_text(tmp_path, text, **said)
        assert list(dataset.metadata["text"]) == cells
    except DataError as error:
        assert not said
        assert "column 'text' holds text" in str(error)  # noqa: PT017
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6


# -- Parquet's own kinds ---------------------------------------------------------------------------------------------


def test_every_plain_kind_of_parquet_column_is_read(tmp_path):
    when = datetime.date(1970, 1, 11)
    dataset = from_columns(
        tmp_path,
        {
            "flag": [True, None, False],
            "price": [decimal.Decimal("1.25"), decimal.Decimal("2.50"), None],
            "half": pa.array(np.array([1, 2, 3], np.float16)),
            "small": pa.array([1, None, 3], pa.uint8()),
            "day": [when, when, None],
            "moment": pa.array([0, 86_400, None], pa.timestamp("s", "UTC")),
            "raw": pa.array([b"red", b"blue", None]),
            "large": pa.array(["u", "v", None], pa.large_string()),
            "site": pa.array(["a", "b", "a"]).dictionary_encode(),
            "y": [True, False, True],
        },
    )
    np.testing.assert_array_equal(column(dataset, "flag").values, [1, np.nan, 0])
    np.testing.assert_array_equal(column(dataset, "price").values, [1.25, 2.5, np.nan])
    np.testing.assert_array_equal(column(dataset, "half").values, [1, 2, 3])
    np.testing.assert_array_equal(column(dataset, "small").values, [1, np.nan, 3])
    np.testing.assert_array_equal(column(dataset, "day").values, [10, 10, np.nan])
    np.testing.assert_array_equal(column(dataset, "moment").values, [0, 1, np.nan])
    assert column(dataset, "raw").levels == ("blue", "red")
    assert column(dataset, "large").values.tolist() == [0, 1, -1]
    assert dataset.class_names == ("false", "true")


def test_a_cell_that_holds_a_list_is_refused_with_the_cure(tmp_path):
    with pytest.raises(DataError, match=r"'spectrum' holds list.*one value a cell.*--drop spectrum"):
        from_columns(tmp_path, {"spectrum": [[1, 2], [3]], "site": ["a", "b"], "y": [0, 1]})


@pytest.mark.parametrize("part", ["y", "site"])
def test_a_list_as_target_or_domain_is_refused(tmp_path, part):
    columns = {"x": [1, 2], "site": ["a", "b"], "y": [0, 1], part: [[1, 2], [3]]}
    with pytest.raises(DataError, match=f"'{part}' holds list"):
        from_columns(tmp_path, columns)


def test_not_a_number_in_a_parquet_target_is_named(tmp_path):
    with pytest.raises(DataError, match=r"column 'y', the target, is empty .* in row 2 "):
        from_columns(tmp_path, {"x": [1, 2, 3], "site": ["a", "b", "a"], "y": [0.5, float("nan"), 1.5]})


def test_the_row_labels_of_pandas_are_no_column(tmp_path):
    columns = {"x": [1, 2], "site": ["a", "b"], "y": [0, 1], "__index_level_0__": [5, 6]}
    assert names(from_columns(tmp_path, columns)) == ["x"]


# -- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"\n\n  \n", b"\xef\xbb\xbf", b"\xff\xfe"], ids=["no", "blank", "bom", "16"])
def test_an_empty_file_is_called_empty(tmp_path, content):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"table.csv: the file is empty"):
        load(path)


def test_a_header_without_rows_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"there is a header \(x, site, y\) but no rows"):
        from_text(tmp_path, "x,site,y\n")


def test_two_columns_of_one_name_are_refused(tmp_path):
    with pytest.raises(DataError, match="two columns are called 'x'; give each its own name"):
        from_text(tmp_path, "x, x ,site,y\n1,2,a,0\n3,4,b,1\n")


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize(("row", "cells"), [("1,a", 2), ("1,a,0,9", 4)], ids=["short", "long"])
def test_a_ragged_row_is_named_by_its_number(tmp_path, row, cells):
    text = "x,site,y\n" + "1,a,0\n2,b,1\n" * 50 + row + "\n" + "1,a,0\n" * 50
    with pytest.raises(DataError, match=rf"#102.*Expected 3 columns, got {cells}.*as many cells as the header"):
        from_text(tmp_path, text)


def test_zero_bytes_are_no_text(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"PK\x03\x04\x00\x00\x00x,y\n1,2\n")
    with pytest.raises(DataError, match="holds zero bytes; this is no text file, whatever its name says"):
        load(path)


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize("keep", [0.0, 0.4, 0.9])
def test_a_compressed_file_cut_short_is_named(tmp_path, suffix, keep):
    path = tmp_path / f"table.csv{suffix}"
    rows = [(str(np.sin(place)), "w", "ab"[place % 2], str(place % 2)) for place in range(500)]
    whole = COMPRESSORS[suffix](written([HEADER, *rows]).encode())
    path.write_bytes(whole[: int(keep * len(whole))])
    with pytest.raises(DataError, match=f"table.csv{suffix}"):
        load(path)


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_a_parquet_file_cut_short_is_named(tmp_path, keep):
    path = tmp_path / "table.parquet"
    whole = parquet_bytes()
    path.write_bytes(whole[: int(keep * len(whole))])
    with pytest.raises(DataError, match=r"table.parquet: .*cut short, damaged, or not what its name says"):
        load(path)


# -- real data -------------------------------------------------------------------------------------------------------


@needs_real_data
def test_the_heart_disease_table_is_read_whole():
    heart = load_data(
        REAL / "heart_disease_4hospitals.csv",
        Reading(target="num", domain="hospital", positive=("1", "2", "3", "4")),
    )
    assert len(heart) == 920
    assert heart.domain_names == ("cleveland", "hungarian", "switzerland", "va")
    assert heart.counts().tolist() == [[164, 139], [188, 106], [8, 115], [51, 149]]
    assert len(names(heart)) == 13
    with open(REAL / "heart_disease_4hospitals.csv") as file:
        for row, cells in enumerate(csv.DictReader(file)):
            for name in names(heart):
                found = column(heart, name).values[row]
                assert np.isnan(found) if cells[name] in ("", "?") else found == float(cells[name])
