"""A table with a column of texts: read, learned from by words, and a trained model on new texts. No extra is needed."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from gated_domains.cli import app
from gated_domains.data import Reading, fit_encoding, load_data, read_like, schema_of
from gated_domains.data.dataset import Schema
from gated_domains.data.errors import DataError
from gated_domains.data.labels import option
from gated_domains.data.other_encodings import WordsEncoding
from gated_domains.data.show import show_data

READING = Reading(text="review", target="stars", domain="shop")
GOOD, BAD = ("lovely", "fine", "great"), ("awful", "poor", "broken")


def rows(count: int = 120) -> list[tuple[str, str, str, str]]:
    rng = np.random.default_rng(1)
    found = []
    for number in range(count):
        good = bool(rng.integers(2))
        said = [*rng.choice(GOOD if good else BAD, 2), *rng.choice(["it", "was", "a", "thing", "and"], 4)]
        shop = ("north", "south", "west")[number % 3]
        found.append((" ".join(rng.permutation(said)) + f" no{number}", "good" if good else "bad", shop, str(number)))
    return found


def write(path: Path, lines: list[tuple[str, ...]], header: tuple[str, ...] = ("review", "stars", "shop", "n")) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *lines])
    return path


def test_texts_are_read_whatever_stands_in_them(tmp_path):
    written = ['two\nlines, and "quotes"', "", "007", "zürich", "NA", "1.5"]
    lines = [(text, str(number % 2), "ab"[number // 3], "x") for number, text in enumerate(written)]
    data = load_data(write(tmp_path / "t.csv", lines), READING)
    assert data.inputs.texts(np.arange(6)) == ['two\nlines, and "quotes"', "", "007", "zürich", "", "1.5"]
    assert data.domain_names == ("a", "b")
    assert any("texts that are empty: 2 of 6" in note for note in data.notes)
    assert any("columns beside 'review' that are left out: n" in note for note in data.notes)


def test_parquet_with_pieces_gives_the_same_texts(tmp_path):
    plain = write(tmp_path / "t.csv", rows())
    table = pyarrow.csv.read_csv(plain)
    pieces = pa.concat_tables([table.slice(0, 50), table.slice(50)])
    pq.write_table(pieces, tmp_path / "t.parquet", row_group_size=17)
    one, other = load_data(plain, READING), load_data(tmp_path / "t.parquet", READING)
    assert one.inputs.texts(np.arange(120)) == other.inputs.texts(np.arange(120))
    np.testing.assert_array_equal(one.inputs.digests(), other.inputs.digests())


def test_other_columns_keep_their_parts(tmp_path):
    reading = Reading(text="review", target="stars", domain="shop", metadata=("n",), keep_together="n")
    data = load_data(write(tmp_path / "t.csv", rows()), reading)
    assert data.metadata["n"].tolist() == list(range(120))
    assert data.keep_together == "n"
    assert not any("left out" in note for note in data.notes)
    assert data.class_names == ("bad", "good")


@pytest.mark.parametrize(
    ("reading", "message"),
    [
        (Reading(text="revue", target="stars"), r"no column 'revue' \(--text\); did you mean 'review'"),
        (Reading(text="review", target="review"), "'review' is named by --target and by --text"),
        (Reading(text="review", smiles="n", target="stars"), "--text and --smiles name two inputs"),
        (
            Reading(text="review", target="stars", categorical=("n",)),
            "--categorical means nothing for a table of texts",
        ),
        (Reading(text="review", target="stars", form="graphs"), "--as graphs: texts are seen as words"),
        (Reading(text="review", target="stars", tokenizer="x"), "--tokenizer is for texts as tokens"),
        (Reading(target="stars", form="tokens"), "--as means nothing for a table"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, reading, message):
    with pytest.raises(DataError, match=message):
        load_data(write(tmp_path / "t.csv", rows()), reading)


def test_options_are_called_what_they_are_on_the_command_line():
    assert (option("form"), option("keep_together"), option("text")) == ("--as", "--keep-together", "--text")


def test_a_picture_of_texts_is_drawn_without_encoding_them(tmp_path, monkeypatch):
    monkeypatch.setattr(WordsEncoding, "fit", None)
    data = load_data(write(tmp_path / "t.csv", rows()), READING)
    assert show_data(data, tmp_path / "t.png").stat().st_size > 5_000


# -- new data --------------------------------------------------------------------------------------------------------


def trained(tmp_path: Path, reading: Reading = READING) -> Schema:
    data = load_data(write(tmp_path / "t.csv", rows()), reading)
    made = schema_of(data, fit_encoding(data, np.arange(len(data))))
    return Schema.from_description(made.describe())


def test_new_texts_are_read_by_the_same_column_and_encoded_the_same(tmp_path):
    schema = trained(tmp_path)
    new = read_like(write(tmp_path / "new.csv", rows(9)), schema, targets=True)
    assert new.targets.tolist() == [int(row[1] == "good") for row in rows(9)]
    assert new.domain_names == ("north", "south", "west")
    encoded = schema.encoding.prepare(new.inputs).read(np.arange(9))
    whole = schema.encoding.prepare(load_data(tmp_path / "t.csv", READING).inputs).read(np.arange(9))
    np.testing.assert_array_equal(encoded, whole)


def test_new_texts_may_stand_in_another_column_and_without_targets(tmp_path):
    path = write(tmp_path / "new.csv", [("a lovely thing",), ("12",)], ("words",))
    with pytest.raises(DataError, match=r"no column 'review', which held the texts in training.*--text names another"):
        read_like(path, trained(tmp_path), targets=False)
    found = read_like(path, trained(tmp_path), targets=False, reading=Reading(text="words"))
    assert found.inputs.texts(np.arange(2)) == ["a lovely thing", "12"]
    assert found.domains is None


def test_new_texts_cannot_be_seen_in_another_form(tmp_path):
    path = write(tmp_path / "new.csv", rows(9))
    with pytest.raises(DataError, match="--as was left out in training and cannot be tokens now"):
        read_like(path, trained(tmp_path), targets=False, reading=Reading(form="tokens"))
    with pytest.raises(DataError, match="--smiles means nothing for a model that sees texts"):
        read_like(path, trained(tmp_path), targets=False, reading=Reading(smiles="review"))


def test_other_data_than_texts_are_refused(tmp_path):
    np.savez(tmp_path / "f.npz", X=np.zeros((4, 3)), y=np.arange(4) % 2)
    with pytest.raises(DataError, match="holds vectors of features, but the model was trained on texts"):
        read_like(tmp_path / "f.npz", trained(tmp_path), targets=False)


# -- from the table to predictions, on the command line --------------------------------------------------------------


def command(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def test_texts_are_trained_on_predicted_and_scored(tmp_path):
    table = write(tmp_path / "t.csv", rows())
    said = ("--text", "review", "--target", "stars", "--domain", "shop")
    runs = tmp_path / "runs"
    command("train", table, *said, "--method", "erm", "--epochs", 60, "--out", runs)
    run = next(place.parent for place in runs.glob("*/model.json"))
    new = write(tmp_path / "new.csv", [("what a lovely great thing",), ("awful and broken",)], ("review",))
    command("predict", run, new, "--out", tmp_path / "p.csv")
    with open(tmp_path / "p.csv", newline="") as file:
        assert [line["prediction"] for line in csv.DictReader(file)] == ["good", "bad"]
    assert "over all" in command("evaluate", run, table)
