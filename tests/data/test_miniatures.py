"""Miniatures of WILDS: the layout of the originals, the same bytes for the same seed, something to learn, a shift."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, RidgeClassifier, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gated_domains.data.errors import DataError
from gated_domains.data.miniatures import MARK, MINIATURES, is_miniature, write_miniature
from gated_domains.data.miniatures.drawing import Pen, as_bytes, field, steps
from gated_domains.data.miniatures.fmow_shapes import SHAPES
from gated_domains.data.miniatures.iwildcam_animals import ANIMALS
from gated_domains.data.miniatures.whole import written_folder

SIDES = {"camelyon17": 48, "fmow": 48, "iwildcam": 48, "rxrx1": 64, "poverty": 16}
ROWS = {"camelyon17": 500, "fmow": 600, "iwildcam": 600, "rxrx1": 352, "poverty": 3_500}
DRAWN = ("camelyon17", "fmow", "iwildcam", "rxrx1")
WITHOUT_RDKIT = [name for name in MINIATURES if name != "ogb-molpcba"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """``written(name)``: the folder of a miniature with small pictures, made once."""
    made: dict[str, Path] = {}

    def write(name: str) -> Path:
        if name not in made:
            place = tmp_path_factory.mktemp("wilds")
            made[name] = write_miniature(f"wilds/{name}", place, side=SIDES.get(name), rows=ROWS.get(name))
        return made[name]

    return write


@pytest.fixture
def few_pictures(monkeypatch):
    """Writers of miniatures draw their first thirty pictures only: whatever each is like, they are all drawn alike."""
    for name in (*DRAWN, "poverty"):
        module = importlib.import_module(f"gated_domains.data.miniatures.{name}")
        draw_all = module.write_all
        monkeypatch.setattr(
            module, "write_all", lambda what, paths, write, draw_all=draw_all: draw_all(what, paths[:30], write)
        )


def table(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def patch_of(row: dict[str, str]) -> str:
    name = f"patient_{row['patient']}_node_{row['node']}"
    return f"patches/{name}/patch_{name}_x_{row['x_coord']}_y_{row['y_coord']}.png"


# What is written


def test_all_eight_are_there_under_the_names_of_the_wilds_package():
    assert list(MINIATURES) == [
        "amazon", "camelyon17", "civilcomments", "fmow", "iwildcam", "ogb-molpcba", "poverty", "rxrx1",
    ]  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_RDKIT)
def test_a_miniature_says_that_it_is_one_and_has_the_version_file(written, name):
    folder = written(name)
    assert folder.name == MINIATURES[name].folder
    assert is_miniature(folder)
    assert "Not the real data" in (folder / MARK).read_text()
    assert (folder / MINIATURES[name].release).is_file()
    assert not [path for path in folder.parent.iterdir() if path != folder]


def test_camelyon17_has_a_patch_for_every_row_and_ten_slides_a_hospital(written):
    folder = written("camelyon17")
    rows = table(folder / "metadata.csv")
    assert list(rows[0]) == ["", "patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split"]
    assert {str(path.relative_to(folder)) for path in folder.glob("patches/*/*.png")} == set(map(patch_of, rows))
    for row in rows:
        assert int(row["center"]) == int(row["slide"]) // 10 == int(row["patient"]) // 20
    for slide in range(50):
        tumors = [row["tumor"] for row in rows if row["slide"] == str(slide)]
        assert tumors.count("0") == tumors.count("1")


def test_fmow_has_a_picture_for_every_row_that_the_publisher_did_not_keep_back(written):
    folder = written("fmow")
    rows = table(folder / "rgb_metadata.csv")
    shown = {f"rgb_img_{number}.png" for number, row in enumerate(rows) if row["split"] != "seq"}
    assert {path.name for path in (folder / "images").iterdir()} == shown
    assert 0 < len(shown) < len(rows)
    regions = {row["alpha-3"]: row["region"] for row in table(folder / "country_code_mapping.csv")}
    assert {regions.get(row["country_code"], "Other") for row in rows} == {
        "Asia", "Europe", "Africa", "Americas", "Oceania", "Other",
    }  # fmt: skip
    for row in rows:
        assert regions.get(row["country_code"], "Other") == row["region"]


@pytest.mark.parametrize(("split", "years"), [("val", (2013, 2015)), ("test", (2016, 2017))])
def test_fmow_shows_every_region_and_category_in_its_later_years(written, split, years):
    rows = [
        row
        for row in table(written("fmow") / "rgb_metadata.csv")
        if row["split"] == split and years[0] <= int(row["timestamp"][:4]) <= years[1]
    ]
    regions = [row["region"] for row in rows]
    assert min(regions.count(name) for name in ("Asia", "Europe", "Africa", "Americas", "Oceania")) >= 10
    assert {row["category"] for row in rows} == set(SHAPES)


def test_iwildcam_has_a_picture_for_every_row_and_every_kind_in_every_split(written):
    folder = written("iwildcam")
    rows = table(folder / "metadata.csv")
    assert {path.name for path in (folder / "train").iterdir()} == {row["filename"] for row in rows}
    assert [row["name"] for row in table(folder / "categories.csv")] == list(ANIMALS)
    for split in ("train", "val", "test", "id_val", "id_test"):
        assert {int(row["y"]) for row in rows if row["split"] == split} == set(range(len(ANIMALS)))
    for column in ("location_remapped", "sequence_remapped"):
        numbers = {int(row[column]) for row in rows}
        assert numbers == set(range(len(numbers)))


def test_iwildcam_keeps_its_cameras_apart_and_its_days(written):
    rows = table(written("iwildcam") / "metadata.csv")

    def of(column, *splits):
        return {row[column] for row in rows if row["split"] in splits}

    assert not of("location", "train", "id_val", "id_test") & of("location", "val", "test")
    assert not of("location", "val") & of("location", "test")
    assert of("location", "id_val", "id_test") <= of("location", "train")
    days = {split: {row["datetime"][:10] for row in rows if row["split"] == split} for split in ("train", "id_test")}
    assert not days["train"] & days["id_test"]
    for sequence in of("seq_id", "train", "val", "test", "id_val", "id_test"):
        frames = [row for row in rows if row["seq_id"] == sequence]
        assert len({(row["split"], row["location"], row["y"]) for row in frames}) == 1


def test_iwildcam_is_grey_by_night(written):
    folder = written("iwildcam")
    for row in table(folder / "metadata.csv")[:40]:
        night = not 5 <= int(row["datetime"][11:13]) < 21
        picture = np.asarray(Image.open(folder / "train" / row["filename"]).convert("RGB"), int)
        assert (np.ptp(picture, axis=2).max() <= 3) == night


def test_rxrx1_has_a_picture_for_every_site_and_every_sirna_on_every_plate(written):
    folder = written("rxrx1")
    rows = table(folder / "metadata.csv")
    paths = {f"images/{row['experiment']}/Plate{row['plate']}/{row['well']}_s{row['site']}.png" for row in rows}
    assert {str(path.relative_to(folder)) for path in folder.glob("images/*/*/*.png")} == paths
    assert len(paths) == len(rows)
    plates = {(row["experiment"], row["plate"], row["site"]) for row in rows}
    for plate in plates:
        there = [row["sirna_id"] for row in rows if (row["experiment"], row["plate"], row["site"]) == plate]
        assert sorted(there) == list("01234567")
    for split in ("train", "val", "test"):
        assert {row["cell_type"] for row in rows if row["dataset"] == split} == {"HEPG2", "HUVEC", "RPE", "U2OS"}


def test_amazon_tells_users_of_every_split_apart(written):
    folder = written("amazon")
    reviews, splits = table(folder / "reviews.csv"), table(folder / "splits" / "user.csv")
    assert len(reviews) == len(splits)
    users: dict[str, set[str]] = {}
    for review, split in zip(reviews, splits, strict=True):
        users.setdefault(split["split"], set()).add(review["reviewerID"])
    train, val, id_val, test, id_test, unused = (users[f"{number}.0"] for number in (0, 1, 2, 3, 4, -1))
    assert id_val | id_test == train
    assert len(train | val | test | unused) == len(train) + len(val) + len(test) + len(unused)
    assert {review["overall"] for review in reviews} == {f"{stars}.0" for stars in range(1, 6)}
    assert all(int(review["reviewTime"][-4:]) == int(review["reviewYear"]) for review in reviews)


def test_civilcomments_has_both_labels_of_every_identity_where_it_is_scored(written):
    rows = table(written("civilcomments") / "all_data_with_identities.csv")
    scored = ("male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white")
    for split in ("val", "test"):
        for name in scored:
            toxic = [float(row["toxicity"]) >= 0.5 for row in rows if row["split"] == split and float(row[name]) >= 0.5]
            assert min(sum(toxic), len(toxic) - sum(toxic)) >= 10
    assert len({row["id"] for row in rows}) == len(rows)
    articles = {split: {row["article_id"] for row in rows if row["split"] == split} for split in ("train", "test")}
    assert not articles["train"] & articles["test"]


def test_poverty_has_an_array_of_eight_bands_for_every_row_of_23_countries(written):
    folder = written("poverty")
    rows = table(folder / "dhs_metadata.csv")
    names = {path.name for path in (folder / "images").iterdir()}
    assert names == {f"landsat_poverty_img_{row}.npz" for row in range(len(rows))}
    assert len({row["country"] for row in rows}) == 23
    with np.load(folder / "images" / "landsat_poverty_img_0.npz") as arrays:
        assert list(arrays) == ["x"]
        assert arrays["x"].shape == (8, 16, 16)
        assert arrays["x"].dtype == np.float32


@pytest.mark.parametrize(
    ("name", "first", "size"),
    [
        ("camelyon17", "patches/patient_000_node_0/patch_patient_000_node_0_x_3000_y_2000.png", (96, 96)),
        ("fmow", None, (224, 224)),
        ("rxrx1", None, (256, 256)),
    ],
)
@pytest.mark.usefixtures("few_pictures")
def test_pictures_are_as_large_as_those_of_the_original(tmp_path, name, first, size):
    folder = write_miniature(name, tmp_path)
    picture = folder / first if first else next(path for path in sorted(folder.rglob("*.png")))
    assert Image.open(picture).size == size


def test_molecules_without_rdkit_are_refused_with_the_cure(tmp_path):
    if importlib.util.find_spec("rdkit"):
        pytest.skip("RDKit is here")
    with pytest.raises(DataError, match=r"RDKit, which is not installed; pip install 'gated-domains\[wilds\]'"):
        write_miniature("wilds/ogb-molpcba", tmp_path)
    assert not list(tmp_path.iterdir())


# The same, again


@pytest.mark.usefixtures("few_pictures")
@pytest.mark.parametrize("name", WITHOUT_RDKIT)
def test_the_same_seed_gives_the_same_bytes_at_any_time_and_another_other_ones(tmp_path, monkeypatch, name):
    side = 32 if MINIATURES[name].side else None
    first = digests(write_miniature(name, tmp_path / "first", seed=3, side=side))
    other = digests(write_miniature(name, tmp_path / "other", seed=4, side=side))
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert digests(write_miniature(name, tmp_path / "again", seed=3, side=side)) == first
    same = {path for path in first if first[path] == other.get(path)}
    # Lists of countries and kinds, and of Camelyon17's slides, are what they are.
    assert same <= {"country_code_mapping.csv", "categories.csv", "metadata.csv"}


def test_what_was_made_by_the_same_arguments_is_left_as_it_is(tmp_path):
    folder = write_miniature("amazon", tmp_path)
    (folder / "mine.txt").write_text("kept")
    assert write_miniature("wilds/amazon", tmp_path) == folder
    assert (folder / "mine.txt").read_text() == "kept"


def test_another_miniature_in_the_way_is_named_and_left_alone(tmp_path):
    folder = write_miniature("amazon", tmp_path)
    before = digests(folder)
    with pytest.raises(DataError, match=r"amazon_v2\.1 holds another miniature \(.*seed 0.*Choose another place"):
        write_miniature("amazon", tmp_path, seed=1)
    assert digests(folder) == before


def test_real_data_in_the_way_are_left_alone(tmp_path):
    real = tmp_path / "amazon_v2.1"
    real.mkdir()
    (real / "reviews.csv").write_text("mine")
    with pytest.raises(DataError, match=r"amazon_v2\.1 exists and is not empty; nothing was written"):
        write_miniature("amazon", tmp_path)
    assert digests(tmp_path).keys() == {"amazon_v2.1/reviews.csv"}


def test_an_empty_folder_is_filled_and_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "amazon_v2.1").mkdir()
    assert (write_miniature("amazon", tmp_path) / "reviews.csv").is_file()
    (tmp_path / "civilcomments_v1.0").write_text("a file")
    with pytest.raises(DataError, match=r"civilcomments_v1\.0 is in the way; remove it"):
        write_miniature("civilcomments", tmp_path)


def test_nothing_is_left_of_a_folder_that_could_not_be_filled(tmp_path):
    def fill():
        with written_folder(tmp_path / "set", mark="MARK", text="it") as draft:
            (draft / "half").write_text("half")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        fill()
    assert not list(tmp_path.iterdir())


# What is asked for


def test_an_unknown_name_is_answered_with_the_near_one(tmp_path):
    with pytest.raises(DataError, match="did you mean 'camelyon17'"):
        write_miniature("wilds/camelyon", tmp_path)


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        ("poverty", {"rows": 1000}, r"poverty needs at least 3,500 rows.*got 1,000"),
        ("amazon", {"rows": 10}, r"amazon needs at least 600 rows.*got 10"),
        ("amazon", {"seed": -1}, "seed must be 0 or more, got -1"),
        ("amazon", {"side": 64}, "amazon has no pictures, so that side=64 means nothing"),
        ("fmow", {"side": 4}, "side must lie between 16 and 1,024 pixels, got 4"),
        ("fmow", {"smiles": "a.csv"}, r"fmow has no molecules, so that smiles='a\.csv' means nothing"),
    ],
)
def test_what_cannot_be_had_is_refused(tmp_path, name, asked, said):
    with pytest.raises(DataError, match=said):
        write_miniature(name, tmp_path, **asked)
    assert not list(tmp_path.iterdir())


def test_rows_can_be_more_or_fewer(tmp_path):
    few = table(write_miniature("civilcomments", tmp_path / "few", rows=400) / "all_data_with_identities.csv")
    many = table(write_miniature("civilcomments", tmp_path / "many", rows=2000) / "all_data_with_identities.csv")
    assert (len(few), len(many)) == (400, 2000)


# Drawing


def test_a_field_changes_slowly_and_by_chance():
    made = field(np.random.default_rng(0), 4, height=80, width=60)
    assert made.shape == (80, 60)
    assert np.abs(np.diff(made, axis=0)).max() < 0.2 * np.ptp(made)
    assert made.std() == pytest.approx(1, abs=0.5)
    assert not np.allclose(made, field(np.random.default_rng(1), 4, height=80, width=60))


def test_steps_are_multiples_and_bytes_are_cut_off():
    np.testing.assert_allclose(steps(np.array([0.26, -0.7], np.float32), 0.5), [0.5, -0.5])
    assert as_bytes(np.array([-5.0, 1.4, 1.6, 300.0])).tolist() == [0, 1, 2, 255]


def test_a_pen_draws_where_it_is_placed():
    pen = Pen(np.zeros((100, 100), np.uint8))
    pen.place(0.5, -0.5, scale=0.5)
    pen.ellipse(0.0, 0.0, 0.4, 0.4, 200.0)
    rows, columns = np.nonzero(pen.picture)
    assert (round(columns.mean()), round(rows.mean())) == (75, 25)
    assert np.ptp(columns) == pytest.approx(20, abs=2)


def test_a_mirrored_pen_draws_the_other_way_round():
    sides = []
    for mirrored in (False, True):
        pen = Pen(np.zeros((100, 100), np.uint8))
        pen.place(mirrored=mirrored)
        pen.box(0.2, -0.1, 0.6, 0.1, 255.0)
        sides.append(np.nonzero(pen.picture)[1].mean())
    assert sides[0] > 50 > sides[1]


def test_a_tone_changes_what_is_drawn_by_channel_and_drawing_goes_on():
    pen = Pen(np.full((4, 4, 3), 100, np.uint8))
    pen.tone(gain=np.array([0.5, 1.0, 2.0]), lift=10.0)
    assert pen.picture[0, 0].tolist() == [60, 110, 210]
    pen.box(-1.0, -1.0, 1.0, 1.0, (1.0, 2.0, 3.0))
    assert pen.picture[1, 1].tolist() == [1, 2, 3]


# What is learned, and what is lost elsewhere


def seen(path: Path) -> np.ndarray:
    """A picture as few numbers: its pixels, small, and how often which colours and which edges occur."""
    image = Image.open(path).convert("RGB")
    pixels = np.asarray(image.resize((24, 24)), float) / 255
    colours = [np.histogram(pixels[..., channel], 12, (0, 1))[0] for channel in range(3)]
    edges = [np.histogram(np.abs(np.diff(pixels.mean(2), axis=axis)), 8, (0, 0.4))[0] for axis in (0, 1)]
    return np.concatenate([(np.asarray(image.resize((12, 12)), float) / 255).ravel(), *colours, *edges])


def as_samples(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers, classes and splits of a drawn miniature."""
    if folder.name.startswith("camelyon17"):
        rows = table(folder / "metadata.csv")
        split = np.array([{"1": "val", "2": "test"}.get(row["center"], "id" * int(row["split"])) for row in rows])
        return np.stack([seen(folder / patch_of(row)) for row in rows]), np.array([row["tumor"] for row in rows]), split
    if folder.name.startswith("fmow"):
        rows = table(folder / "rgb_metadata.csv")
        places = [number for number, row in enumerate(rows) if row["split"] != "seq"]
        inputs = np.stack([seen(folder / "images" / f"rgb_img_{number}.png") for number in places])
        rows = [rows[number] for number in places]
        late = [np.searchsorted(["2013", "2016"], row["timestamp"][:4], side="right") for row in rows]
        names = {("train", 0): "", ("val", 0): "id", ("test", 0): "id", ("val", 1): "val", ("test", 2): "test"}
        split = [names.get((row["split"], when), "none") for row, when in zip(rows, late, strict=True)]
        return inputs, np.array([row["category"] for row in rows]), np.array(split)
    rows = table(folder / "metadata.csv")
    if folder.name.startswith("iwildcam"):
        names = {"train": "", "id_val": "id", "id_test": "id"}
        split = np.array([names.get(row["split"], row["split"]) for row in rows])
        return (
            np.stack([seen(folder / "train" / row["filename"]) for row in rows]),
            np.array([row["y"] for row in rows]),
            split,
        )
    paths = [
        folder / "images" / row["experiment"] / f"Plate{row['plate']}" / f"{row['well']}_s{row['site']}.png"
        for row in rows
    ]
    split = [row["dataset"] if row["dataset"] != "train" else "id" * (int(row["site"]) - 1) for row in rows]
    return np.stack([seen(path) for path in paths]), np.array([row["sirna_id"] for row in rows]), np.array(split)


@pytest.mark.parametrize("name", DRAWN)
def test_a_simple_model_learns_from_the_pictures_and_does_worse_where_it_was_not_trained(written, name):
    inputs, classes, split = as_samples(written(name))
    model = make_pipeline(StandardScaler(), RidgeClassifier(alpha=300))
    model.fit(inputs[split == ""], classes[split == ""])
    score = {part: model.score(inputs[split == part], classes[split == part]) for part in ("id", "val", "test")}
    commonest = np.unique(classes[split == "id"], return_counts=True)[1].max() / (split == "id").sum()
    assert score["id"] > commonest + 0.2
    assert score["test"] < score["id"] - 0.08
    assert score["val"] < score["id"]


def test_a_simple_model_learns_stars_and_does_worse_on_users_it_has_not_met(written):
    folder = written("amazon")
    reviews = table(folder / "reviews.csv")
    texts = np.array([review["reviewText"] for review in reviews])
    stars = np.array([review["overall"] for review in reviews])
    split = np.array([row["split"] for row in table(folder / "splits" / "user.csv")])
    model = make_pipeline(TfidfVectorizer(), LogisticRegression(C=10, max_iter=200))
    model.fit(texts[split == "0.0"], stars[split == "0.0"])
    score = {part: model.score(texts[split == part], stars[split == part]) for part in ("2.0", "3.0", "4.0")}
    assert min(score["2.0"], score["4.0"]) > 0.5
    assert score["3.0"] < min(score["2.0"], score["4.0"]) - 0.1


def test_a_simple_model_learns_toxicity_and_holds_on_to_identities(written):
    rows = table(written("civilcomments") / "all_data_with_identities.csv")
    texts = np.array([row["comment_text"] for row in rows])
    toxic = np.array([float(row["toxicity"]) >= 0.5 for row in rows])
    split = np.array([row["split"] for row in rows])
    train = np.flatnonzero(split == "train")
    held, train = train[::5], np.delete(train, np.s_[::5])
    model = make_pipeline(TfidfVectorizer(), LogisticRegression(C=5, max_iter=200)).fit(texts[train], toxic[train])
    right = model.predict(texts) == toxic
    assert right[held].mean() > 0.8
    assert right[split == "test"].mean() < right[held].mean() - 0.04
    muslim = np.array([float(row["muslim"]) >= 0.5 for row in rows])
    groups = [right[(split == "test") & muslim & (toxic == label)].mean() for label in (True, False)]
    assert groups[0] > 0.85 > 0.65 > groups[1]


def test_a_simple_model_learns_wealth_and_does_worse_in_other_countries(written):
    folder = written("poverty")
    rows = table(folder / "dhs_metadata.csv")
    bands = np.stack(
        [np.load(folder / "images" / f"landsat_poverty_img_{row}.npz")["x"].reshape(8, -1) for row in range(len(rows))]
    )
    inputs = np.concatenate([bands.mean(2), bands.std(2), bands.max(2), bands.min(2)], axis=1)
    wealth = np.array([float(row["wealthpooled"]) for row in rows])
    away = np.isin([row["country"] for row in rows], ("angola", "cote_d_ivoire", "ethiopia", "mali", "rwanda"))
    home = np.flatnonzero(~away)
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-1, 3, 9))).fit(inputs[home[:400]], wealth[home[:400]])
    guess = model.predict(inputs)
    for urban in (True, False):
        kind = np.array([row["urban"] == str(urban) for row in rows])
        here = home[400:][kind[home[400:]]]
        known = np.corrcoef(guess[here], wealth[here])[0, 1]
        unknown = np.corrcoef(guess[away & kind], wealth[away & kind])[0, 1]
        assert known > 0.75
        assert 0.2 < unknown < known - 0.05
