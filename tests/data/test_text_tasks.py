"""Task files: a label, a tab and a text a line, in a folder or an archive, one pair of files a domain."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gated_domains.data import Reading, fit_encoding, hold_outs, load_data, read_like, schema_of
from gated_domains.data.archives import UnsafeArchiveError, read_members
from gated_domains.data.check import check_data
from gated_domains.data.errors import DataError
from gated_domains.data.text.inputs import Text

REAL = Path(__file__).parents[3] / "shared" / "data"
needs_real_data = pytest.mark.skipif(not REAL.is_dir(), reason="real data (../shared/data) are not here")

FILES = {
    "books.task.train": "1\ta good book\n0\ta bad book\n1\tgood again\n",
    "books.task.test": "0\tbad again\n1\tgood to read\n",
    "MR.task.train": "1\ta good film\n0\ta bad film\n0\tnever again\n",
    "MR.task.test": "0\tbad to see\n1\tgood, good\n",
}


def folder(place: Path, files: dict[str, str | bytes] | None = None) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    for name, content in (FILES if files is None else files).items():
        (place / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return place


def archive(path: Path, files: dict[str, str]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as pack:
            for name, content in files.items():
                pack.writestr(name, content)
    else:
        with tarfile.open(path, f"w:{path.suffix[1:].replace('tar', '')}") as pack:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content.encode())
                pack.addfile(entry, io.BytesIO(content.encode()))
    return path


def all_of(data) -> tuple[object, ...]:
    texts = data.inputs.texts(np.arange(len(data)))
    return texts, data.targets.tolist(), data.domains.tolist(), data.domain_names, data.official_test.tolist()


def test_a_folder_is_read_with_its_domains_and_test_rows(tmp_path):
    data = load_data(folder(tmp_path / "reviews"))
    assert isinstance(data.inputs, Text)
    assert data.domain_names == ("MR", "books")
    assert data.class_names == ("0", "1")
    assert len(data) == 10
    texts = data.inputs.texts(data.rows_of("books"))
    assert texts == ["bad again", "good to read", "a good book", "a bad book", "good again"]
    assert data.official_test[data.rows_of("books")].tolist() == [True, True, False, False, False]
    assert data.targets[data.rows_of("books")].tolist() == [0, 1, 1, 0, 1]


def test_a_held_out_domain_is_scored_on_its_test_rows(tmp_path):
    data = load_data(folder(tmp_path / "reviews"))
    split = hold_outs(data, "MR")[0]
    assert data.inputs.texts(split.test) == ["bad to see", "good, good"]
    assert data.inputs.texts(split.validation) == ["bad again", "good to read"]


@pytest.mark.parametrize("name", ["r.tar", "r.tar.gz", "r.tar.xz", "r.zip"])
@pytest.mark.parametrize("inside", ["", "fdu-mtl/"])
def test_an_archive_is_read_like_the_folder_and_nothing_is_unpacked(tmp_path, name, inside):
    files = {f"{inside}{file}": content for file, content in reversed(FILES.items())}
    path = archive(tmp_path / name, {"README": "nothing", **files})
    data = load_data(path)
    assert all_of(data) == all_of(load_data(folder(tmp_path / "reviews")))
    assert data.name == name
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [name, "reviews"]


def test_a_folder_one_above_the_files_will_do(tmp_path):
    folder(tmp_path / "all" / "fdu-mtl")
    assert len(load_data(tmp_path / "all")) == 10


def test_without_test_files_nothing_is_set_aside(tmp_path):
    files = {name: content for name, content in FILES.items() if name.endswith("train")}
    assert load_data(folder(tmp_path / "r", files)).official_test is None


def test_a_domain_without_a_test_file_is_scored_whole(tmp_path):
    files = {name: content for name, content in FILES.items() if name != "MR.task.test"}
    data = load_data(folder(tmp_path / "r", files))
    assert data.scored_whole == {"MR"}
    assert len(hold_outs(data, "MR")[0].test) == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no tab in here", r"books\.task\.train, line 3: no tab in b'no tab in here'; a line must be a label, a tab"),
        ("\tno label", r"books\.task\.train, line 3: no label"),
    ],
)
def test_a_line_that_is_none_is_refused_with_its_file_and_number(tmp_path, line, message):
    files = {**FILES, "books.task.train": f"1\tfine\n\n{line}\n"}
    with pytest.raises(DataError, match=message):
        load_data(folder(tmp_path / "r", files))


def test_lines_end_at_line_ends_alone_and_empty_texts_are_told(tmp_path):
    files = {**FILES, "MR.task.train": "\ufeff1\tone \u2028 text\x85 with a\ttab\r\n0\t\r\n"}
    data = load_data(folder(tmp_path / "r", files))
    assert data.inputs.texts(data.rows_of("MR"))[2:] == ["one \u2028 text\x85 with a\ttab", ""]
    assert "texts that are empty: 1 of 9" in data.notes


def test_letters_outside_utf8_are_read_and_told_with_their_line(tmp_path):
    files = {**FILES, "MR.task.train": b"1\tfine\n0\tcaf\xe9 \x93so-so\x94\n1\todd \x81 byte\n"}
    data = load_data(folder(tmp_path / "r", files))
    assert data.inputs.texts(data.rows_of("MR"))[3:] == ["café “so-so”", "odd \x81 byte"]
    assert any("Windows-1252: 2 (first MR.task.train, line 2)" in note for note in data.notes)


def test_labels_may_be_words_or_numbers_to_be_predicted(tmp_path):
    words = {"a.task.train": "good\tx\nbad\ty\n", "b.task.train": "good\tz\nbad\tw\n"}
    assert load_data(folder(tmp_path / "w", words)).class_names == ("bad", "good")
    stars = {"a.task.train": "4.5\tx\n1\ty\n", "b.task.train": "2\tz\n3\tw\n"}
    numbers = load_data(folder(tmp_path / "n", stars))
    assert numbers.class_names is None
    assert numbers.targets.tolist() == [4.5, 1, 2, 3]


def test_the_same_file_twice_is_refused(tmp_path):
    place = folder(tmp_path / "r")
    folder(place / "again", {"books.task.train": "1\tx\n"})
    with pytest.raises(DataError, match=r"are both called books\.task\.train"):
        load_data(place)


def test_empty_files_alone_are_refused(tmp_path):
    with pytest.raises(DataError, match="all task files are empty"):
        load_data(folder(tmp_path / "r", {"a.task.train": "\n\n"}))


def test_options_that_mean_nothing_for_task_files_are_refused(tmp_path):
    place = folder(tmp_path / "r")
    with pytest.raises(DataError, match="--text means nothing for task files"):
        load_data(place, Reading(text="review"))
    with pytest.raises(DataError, match="--as word: texts are seen as words, tokens or embeddings; did you mean"):
        load_data(place, Reading(form="word"))
    with pytest.raises(DataError, match=r"--tokens is for texts as tokens.*add --as tokens"):
        load_data(place, Reading(tokens=64))


def test_an_archive_without_task_files_is_refused_with_the_cure(tmp_path):
    with pytest.raises(DataError, match=r"unpack the archive first.*\*\.task\.train"):
        load_data(archive(tmp_path / "r.tar", {"notes.txt": "x"}))


def test_a_member_that_leads_out_of_the_archive_is_refused(tmp_path):
    path = archive(tmp_path / "r.tar", {"../books.task.train": "1\tx\n"})
    with pytest.raises(UnsafeArchiveError, match="outside"):
        load_data(path)


def test_a_member_that_swells_beyond_the_memory_is_refused(tmp_path, monkeypatch):
    path = archive(tmp_path / "r.tar.gz", {"books.task.train": "1\tx\n" * 1000})
    monkeypatch.setattr("gated_domains.data.archives.available_bytes", lambda: 100)
    with pytest.raises(UnsafeArchiveError, match="swells to more than 100 bytes"):
        list(read_members(path, lambda name: True))


def test_a_truncated_archive_is_refused_by_name(tmp_path):
    path = archive(tmp_path / "r.tar.gz", FILES)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"r\.tar\.gz.*damaged or cut short"):
        load_data(path)


# -- looked at, and applied ------------------------------------------------------------------------------------------


def test_a_check_tells_copies_and_lengths(tmp_path):
    more = {f"{name}.task.train": "1\tgood, so good\n0\tbad, so bad\n" for name in ("a", "b")}
    files = {**FILES, "MR.task.train": FILES["MR.task.train"] + "1\ta good book\n", **more}
    report = check_data(folder(tmp_path / "r", files))
    found = [finding.text for finding in report.findings]
    assert any("the same in two or more domains: 3" in text for text in found)
    assert any("letters a sample: 9 to 13" in text for text in found)
    assert not report.broken


def test_a_model_for_texts_reads_task_files_with_and_without_targets(tmp_path):
    data = load_data(folder(tmp_path / "r"))
    schema = schema_of(data, fit_encoding(data, np.arange(len(data))))
    new = folder(tmp_path / "new", {"toys.task.test": "1\ta good toy\n0\tbad\n"})
    scored = read_like(new, schema, targets=True)
    assert scored.targets.tolist() == [1, 0]
    assert scored.domain_names == ("toys",)
    assert read_like(new, schema, targets=False).targets is None
    strange = folder(tmp_path / "strange", {"toys.task.test": "2\ta good toy\n"})
    with pytest.raises(DataError, match="'2', which training never had"):
        read_like(strange, schema, targets=True)


def test_a_model_for_texts_asks_which_column_holds_them(tmp_path):
    data = load_data(folder(tmp_path / "r"))
    schema = schema_of(data, fit_encoding(data, np.arange(len(data))))
    (tmp_path / "new.csv").write_text("review,site\ngood book,a\nbad,b\n")
    with pytest.raises(DataError, match=r"which column holds the texts.*--text.*review, site"):
        read_like(tmp_path / "new.csv", schema, targets=False)
    found = read_like(tmp_path / "new.csv", schema, targets=False, reading=Reading(text="review"))
    assert found.inputs.texts(np.arange(2)) == ["good book", "bad"]


@needs_real_data
def test_the_real_sentiment_texts_are_read_as_they_are():
    data = load_data(REAL / "fdu_mtl_16domains_labelled.tar.xz")
    assert len(data) == 31_780
    assert len(data.domain_names) == 16
    assert int(data.official_test.sum()) == 16 * 400
    assert any("Windows-1252: 38" in note for note in data.notes)
