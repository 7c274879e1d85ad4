"""Cards: YAML that says how data are to be read. Strict, and harmless whoever wrote it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.data.readers.card import read_card

TABLE = "age,ward,patient,site,num\n" + "".join(
    f"{40 + row},{row % 3},p{row // 2},{'ab'[row % 2]},{row % 5}\n" for row in range(20)
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "heart.csv").write_text(TABLE)
    return tmp_path


def card(folder: Path, text: str, name: str = "heart.yaml") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_a_card_says_all_that_the_options_say(folder):
    path = card(
        folder,
        """
        path: data/heart.csv
        target: num
        domain: site
        positive: [1, 2, "3", 4.0]
        categorical: ward
        drop: []
        metadata: [patient]
        notes: [one, two]
        """,
    )
    options = Reading(
        target="num", domain="site", positive=("1", "2", "3", "4"), categorical=("ward",), metadata=("patient",)
    )
    by_card, by_options = load_data(path), load_data(folder / "data" / "heart.csv", options)
    assert by_card.class_names == by_options.class_names == ("0", "1 or 2 or 3 or 4")
    np.testing.assert_array_equal(by_card.targets, by_options.targets)
    np.testing.assert_array_equal(by_card.inputs.read(np.arange(20)), by_options.inputs.read(np.arange(20)))
    assert list(by_card.metadata["patient"]) == list(by_options.metadata["patient"])
    assert by_card.notes[:2] == ("one", "two")


@pytest.mark.parametrize("name", ["card.yaml", "card.yml", "CARD.YAML"])
def test_a_card_is_known_by_its_suffix(folder, name):
    assert len(load_data(card(folder, "{path: data/heart.csv, target: num}", name))) == 20


def test_paths_are_relative_to_the_card_wherever_one_stands(folder, monkeypatch, tmp_path_factory):
    path = card(folder, "{path: data/heart.csv, target: num}")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert len(load_data(path)) == 20


def test_an_absolute_path_stays_one(folder, tmp_path_factory):
    path = card(tmp_path_factory.mktemp("cards"), f"{{path: {folder / 'data' / 'heart.csv'}, target: num}}")
    assert len(load_data(path)) == 20


def test_a_path_may_start_at_home(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    assert len(load_data(card(folder / "data", "{path: ~/data/heart.csv, target: num}"))) == 20


def test_a_card_for_images_gives_their_size(folder):
    for domain in "ab":
        for group in "xy":
            (folder / "pets" / domain / group).mkdir(parents=True)
            Image.new("RGB", (9, 9)).save(folder / "pets" / domain / group / "i.png")
    assert load_data(card(folder, "{path: pets, image_size: 4}")).inputs.describe() == "images, 4 x 4, RGB"


def test_a_single_note_needs_no_list(folder):
    assert load_data(card(folder, "path: data/heart.csv\ntarget: num\nnotes: beware")).notes[0] == "beware"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{path: data/heart.csv, targett: num}", "no setting 'targett'; did you mean 'target'"),
        ("{target: num}", "path: Field required"),
        ("{path: 3.5, target: [num]}", "target: Input should be a valid string"),
        ("{path: data/heart.csv, target: {a: b}}", "target: Input should be a valid string"),
        ("{path: data/heart.csv, target: num, image_size: large}", "image_size: Input should be a valid integer"),
        ("{path: data/heart.csv, target: num, drop: {a: 1}}", "drop: Input should be a valid list"),
        ("{path: data/heart.csv, target: 2020-01-01}", "target: Input should be a valid string"),
        ("{path: ~, target: num}", "path: Input should be a valid string"),
        ("{path: data/heart.csv, target: num, task: regressionn}", "no task 'regressionn'; did you mean 'regression'"),
        ("{path: data/heart.csv, target: nun}", "heart.csv: there is no column 'nun' .*did you mean 'num'"),
        ("{path: data/hearts.csv, target: num}", "hearts.csv is neither a file or folder here"),
        ("{path: other.yaml}", "a card must name data, not another card"),
        ("{path: heart.yaml}", "a card must name data, not another card"),
        ("{path: ~nobody-of-this-name/heart.csv}", "~nobody-of-this-name/heart.csv: .*home"),
        ('{path: "a\\0b.csv"}', "neither a file or folder"),
        ("- path", "a card is a list of settings such as"),
        ("just words", "a card is a list of settings such as"),
        ("", "a card is a list of settings such as"),
        ("{1: 2}", "a card is a list of settings such as"),
        ("target: x\n{path: a.csv", "heart.yaml, line 2: .*a card is written in YAML"),
        ("path: a\npath: b", "'path' is there twice"),
        ("\tpath: a", "line 1: found character .*a card is written in YAML"),
        ("path: !!python/object/apply:os.system ['true']", "line 1: could not determine a constructor"),
        ("path: !!binary 'ä'", "line 1: failed to convert base64"),
        ("{image_size: " + "9" * 5_000 + "}", "damaged, or not what its name says"),
        ("[" * 20_000, "damaged, or not what its name says"),
    ],
    ids=lambda value: value[:24],
)
def test_a_card_that_says_nonsense_is_refused(folder, text, message):
    with pytest.raises(DataError, match=message):
        load_data(card(folder, text))


def test_truth_values_where_names_belong_are_explained(folder):
    """YAML takes no, off and n for false."""
    path = card(folder, "{path: data/heart.csv, target: num, domain: no}")
    with pytest.raises(DataError, match=r"domain: .*valid string, got False; put it in quotes"):
        load_data(path)


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
        "path: &p data/heart.csv\ntarget: *p",
        "base: &base {path: a}\n<<: *base",
    ],
)
def test_aliases_are_refused_before_they_can_multiply(folder, text):
    with pytest.raises(DataError, match=r"anchors and aliases .* are not read; write the value out"):
        load_data(card(folder, text))


def test_an_alias_bomb_takes_no_time(folder):
    lines = ["a0: &a0 [" + ", ".join(["boom"] * 10) + "]"]
    lines += [f"a{level}: &a{level} [" + ", ".join([f"*a{level - 1}"] * 10) + "]" for level in range(1, 30)]
    with pytest.raises(DataError, match="aliases"):
        load_data(card(folder, "\n".join(lines)))


def test_a_card_as_large_as_data_is_refused(folder):
    with pytest.raises(DataError, match="are too many for a card; is this the data itself"):
        load_data(card(folder, "notes: " + "x" * 70_000))


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"path: \xe4", b"\x00\x01\x02"])
def test_a_card_that_is_no_text_is_named(folder, content):
    path = folder / "heart.yaml"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"heart.yaml: .*damaged, or not what its name says"):
        load_data(path)


def test_options_beside_a_card_are_refused(folder):
    path = card(folder, "{path: data/heart.csv, target: num}")
    with pytest.raises(DataError, match=r"heart.yaml already says how its data are to be read; change it there"):
        load_data(path, Reading(domain="site"))


def test_a_card_is_read_without_opening_the_data(folder):
    what, reading, notes = read_card(card(folder, "{path: nowhere/x.csv, target: num, notes: hm}"))
    assert what == str(folder / "nowhere" / "x.csv")
    assert reading == Reading(target="num")
    assert notes == ("hm",)
