"""``check_data`` finds what is wrong before anything is trained, and says what a run would do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gated_domains.data import check
from gated_domains.data.check import DataReport, check_data
from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.data.splits import hold_outs

REAL = Path(__file__).parents[3] / "shared" / "data"
needs_real_data = pytest.mark.skipif(not REAL.is_dir(), reason="real data (../shared/data) are not here")


def from_arrays(tmp_path: Path, **contents: object) -> DataReport:
    np.savez(tmp_path / "d.npz", **contents)
    return check_data(tmp_path / "d.npz")


def from_table(tmp_path: Path, header: str, rows: list[str], **said: object) -> DataReport:
    path = tmp_path / "d.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return check_data(path, Reading(**{"target": "y", "domain": "site", **said}))


def texts(report: DataReport, level: str = "look") -> list[str]:
    return [finding.text for finding in report.findings if finding.level == level]


def found(report: DataReport, words: str, level: str = "look") -> str:
    """The one finding with these words."""
    matching = [text for text in texts(report, level) if words in text]
    assert len(matching) == 1, (words, report.findings)
    return matching[0]


def clean(rows: int = 90, **change: object) -> dict[str, object]:
    """Three domains and three classes of features, with nothing to complain about."""
    rng = np.random.default_rng(0)
    contents = {
        "X": rng.normal(size=(rows, 4)),
        "y": np.arange(rows) % 3,
        "domain": np.repeat(["a", "b", "c"], rows // 3),
    }
    return {**contents, **change}


def test_clean_data_have_no_findings_and_a_plan(tmp_path):
    report = from_arrays(tmp_path, **clean())
    assert report.findings == ()
    assert not report.broken
    assert report.plan[0] == "predict one of 3 classes; always saying '0' would be right in 33% of all rows"
    assert report.plan[1] == "hold out each of 3 domains in turn"
    assert report.plan[2] == "  a: 48 rows to train, 12 to validate, 30 to score"
    assert report.plan[-1] == "see features, 4 numbers each, as arrays of shape (4,)"


# -- domains and classes ---------------------------------------------------------------------------------------------


def test_no_domains_are_noticed_and_a_run_still_said(tmp_path):
    contents = clean()
    del contents["domain"]
    report = from_arrays(tmp_path, **contents)
    assert "add an array called domain" in found(report, "no domains are known")
    assert not report.broken
    assert report.plan[-1].startswith("see features")


def test_few_rows_in_a_domain_are_noticed(tmp_path):
    report = from_arrays(tmp_path, **clean(domain=np.array(["a"] * 40 + ["b"] * 41 + ["c"] * 9)))
    assert found(report, "fewer than 20 rows") == (
        "domains with fewer than 20 rows, whose scores will be coarse: c (9)"
    )


def test_a_domain_without_rows_stops_a_run(tmp_path):
    where = np.arange(90) % 2
    report = from_arrays(tmp_path, **clean(domain=where, domain_names=["a", "b", "ghost"]))
    assert report.broken
    assert found(report, "domains without any row", "broken") == "domains without any row: ghost"


def test_a_single_domain_stops_a_run(tmp_path):
    report = from_arrays(tmp_path, **clean(domain=np.zeros(90, int)))
    assert report.broken
    assert "one domain only" in found(report, "a run would stop", "broken")


def test_a_domain_with_one_class_is_noticed(tmp_path):
    labels = np.arange(90) % 3
    labels[30:60] = 2
    report = from_arrays(tmp_path, **clean(y=labels))
    assert found(report, "one class only") == "domain 'b' has one class only, '2': a score there says little"


def test_a_class_that_a_domain_lacks_is_noticed(tmp_path):
    labels = np.arange(90) % 3
    labels[30:60] = np.arange(30) % 2
    assert found(from_arrays(tmp_path, **clean(y=labels)), "has no row") == "domain 'b' has no row of 2"


def test_a_class_in_one_domain_only_is_noticed_and_that_it_goes_unseen(tmp_path):
    labels = np.arange(90) % 2
    labels[:10] = 7
    report = from_arrays(tmp_path, **clean(y=labels))
    assert found(report, "is in domain") == ("class '7' is in domain 'a' only: nothing can be learned of it elsewhere")
    assert "classes never seen in training: 7" in report.plan[2]


def test_a_class_without_rows_is_noticed(tmp_path):
    report = from_arrays(tmp_path, **clean(class_names=["x", "y", "z", "none"]))
    assert found(report, "classes without any row") == "classes without any row: none"


def test_one_class_in_all_training_rows_stops_a_run(tmp_path):
    labels = np.zeros(90, int)
    labels[60:] = np.arange(30) % 2
    report = from_arrays(tmp_path, **clean(y=labels))
    assert report.broken
    assert "one class" in found(report, "a run would stop", "broken")


def test_very_many_findings_of_a_kind_are_summed_up(tmp_path):
    """A thousand users, each with one class only."""
    where = np.arange(3_000) // 3
    report = from_arrays(tmp_path, X=np.random.default_rng(0).normal(size=(3_000, 2)), y=where % 2, domain=where)
    assert len([text for text in texts(report) if "one class only" in text]) == 9
    assert found(report, "992 more domains have one class only")
    assert len(report.findings) < 20


# -- the same sample twice -------------------------------------------------------------------------------------------


def test_copies_across_domains_are_a_leak(tmp_path):
    values = clean()["X"]
    values[70] = values[3]
    report = from_arrays(tmp_path, **clean(X=values))
    text = found(report, "the same in two or more domains")
    assert text.startswith("samples that are the same in two or more domains: 1 (row 4 of a and row 71 of c); a leak")
    assert found(report, "same inputs as an earlier one").endswith(": 1")
    assert "left out as copies of these: 1" in report.plan[2]


def test_copies_with_two_targets_are_noticed(tmp_path):
    values = clean()["X"]
    values[1] = values[0]
    report = from_arrays(tmp_path, **clean(X=values))
    assert found(report, "different targets") == "samples that occur more than once with different targets: 1"
    assert not [text for text in texts(report) if "a leak" in text]


def test_equal_rows_of_a_table_are_no_leak_but_are_mentioned(tmp_path):
    rows = [f"{row % 7},{'ab'[row % 2]},{row % 3 % 2}" for row in range(60)]
    report = from_table(tmp_path, "x,site,y", rows)
    assert "by chance, or copied?" in found(report, "the same in two or more domains")
    assert "left out as copies" not in " ".join(report.plan)


def test_copied_images_are_named_by_their_files(tmp_path):
    root = image_folder(tmp_path)
    (root / "night" / "dog" / "copy.png").write_bytes((root / "day" / "cat" / "0.png").read_bytes())
    report = check_data(root)
    assert "(day/cat/0.png and night/dog/copy.png); a leak" in found(report, "the same in two or more domains")


# -- columns ---------------------------------------------------------------------------------------------------------


def table_rows(count: int = 60) -> list[str]:
    rng = np.random.default_rng(0)
    return [f"{rng.normal():.5f},{rng.integers(9)},{'ab'[row % 2]},{rng.integers(2)}" for row in range(count)]


def test_constant_columns_are_noticed(tmp_path):
    report = from_table(tmp_path, "same,word,x,k,site,y", [f"5,red,{row}" for row in table_rows()])
    assert found(report, "constant columns") == "constant columns, of no use: same, word"
    assert report.plan[-2] == "leave out, when a is held out: same, word, constant in the sources"


def test_constant_features_are_noticed(tmp_path):
    values = clean()["X"]
    values[:, 2] = 1
    report = from_arrays(tmp_path, **clean(X=values))
    assert found(report, "constant features") == "constant features, of no use: 1 of 4, at 2"


def test_a_column_constant_in_one_domain_is_noticed(tmp_path):
    rows = [f"{0 if ',a,' in row else number},{row}" for number, row in enumerate(table_rows())]
    report = from_table(tmp_path, "chol,x,k,site,y", rows)
    assert found(report, "'chol'") == "column 'chol' is 0 in every row of 'a' that has it"


def test_a_column_that_gives_the_target_away_is_noticed(tmp_path):
    rows = [f"{'ill' if row.endswith('1') else 'well'},{row}" for row in table_rows()]
    report = from_table(tmp_path, "verdict,x,k,site,y", rows)
    assert found(report, "alone tells the target") == (
        "column 'verdict' alone tells the target in every row: is it known beforehand?"
    )


def test_missing_values_are_noticed_over_all_and_by_domain(tmp_path):
    rows = [f"{'' if ',a,' in row else number},{row}" for number, row in enumerate(table_rows())]
    report = from_table(tmp_path, "thal,x,k,site,y", rows)
    assert found(report, "missing values") == "missing values: thal 50%"
    assert found(report, "mostly missing") == "mostly missing in 'a': thal 100%"


def test_what_the_reader_left_out_is_a_finding(tmp_path):
    report = from_table(tmp_path, "id,x,k,site,y", [f"p{row},{cells}" for row, cells in enumerate(table_rows())])
    assert "left out" in found(report, "identifier", "note")


def test_columns_constant_in_the_sources_of_any_hold_out_stop_a_run(tmp_path):
    """Whichever domain is held out last: only there does the one column vary."""
    rows = [f"{row if row % 3 == 2 else 1},{'abc'[row % 3]},{row // 3 % 2}" for row in range(60)]
    report = from_table(tmp_path, "x,site,y", rows)
    assert report.broken
    assert "every column is constant in the training rows: x" in found(report, "a run would stop", "broken")


def test_a_quantity_is_predicted_as_such(tmp_path):
    report = from_table(tmp_path, "x,k,site,y", [f"{row}.5" for row in table_rows()])
    assert report.plan[0] == "predict a number, from 0.5 to 1.5"


# -- images ----------------------------------------------------------------------------------------------------------


def image_folder(tmp_path: Path, images: int = 25) -> Path:
    rng = np.random.default_rng(0)
    root = tmp_path / "pets"
    for domain in ("day", "night"):
        for group in ("cat", "dog"):
            (root / domain / group).mkdir(parents=True)
            for number in range(images):
                pixels = rng.integers(256, size=(6, 6, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / domain / group / f"{number}.png")
    return root


def test_a_folder_of_images_is_checked(tmp_path):
    report = check_data(image_folder(tmp_path))
    assert report.findings == ()
    assert report.plan[-1] == "see images, 6 x 6, RGB, as arrays of shape (3, 6, 6)"


def test_all_unreadable_images_are_listed_and_the_rest_is_checked(tmp_path):
    root = image_folder(tmp_path)
    for bad in ("day/cat/3.png", "night/dog/7.png"):
        (root / bad).write_bytes(b"no image")
    (root / "day" / "dog" / "5.png").unlink()
    (root / "day" / "dog" / "5.png").symlink_to(root / "day" / "dog")
    report = check_data(root)
    broken = texts(report, "broken")
    assert report.broken
    assert len(broken) == 2
    assert "day/cat/3.png" in broken[0]
    assert "night/dog/7.png" in broken[1]
    assert len(report.dataset) == 97
    assert report.plan


def test_very_many_unreadable_images_are_counted(tmp_path):
    root = image_folder(tmp_path)
    for number in range(25):
        (root / "day" / "cat" / f"{number}.png").write_bytes(b"")
    report = check_data(root)
    assert found(report, "further images", "broken") == "further images that cannot be read: 5"


def test_a_folder_of_nothing_but_unreadable_images_is_refused(tmp_path):
    root = image_folder(tmp_path, images=1)
    for path in root.rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"pets: none of 4 images can be read; the first: .*day/cat/0.png"):
        check_data(root)


def test_a_number_that_parts_the_classes_is_found(tmp_path):
    chance = np.random.default_rng(0)
    rows = [
        f"{3 * (row % 2) + chance.normal() / 100},{chance.normal()},{'abc'[row % 3]},{row % 2}" for row in range(60)
    ]
    report = from_table(tmp_path, "leak,x,site,y", rows)
    assert "'leak'" in found(report, "alone tells the target")


def test_a_column_that_names_the_domain_again_is_found(tmp_path):
    chance = np.random.default_rng(0)
    rows = [f"{'ABC'[row % 3]},{chance.normal()},{'abc'[row % 3]},{row // 3 % 2}" for row in range(60)]
    assert "'site name'" in found(from_table(tmp_path, "site name,x,site,y", rows), "tells the domain")


def test_a_column_that_counts_the_rows_and_one_of_many_names_are_found(tmp_path):
    chance = np.random.default_rng(0)
    rows = [f"{row},n{row % 60},{chance.normal()},{'abc'[row % 3]},{row // 3 % 2}" for row in range(180)]
    report = from_table(tmp_path, "when,who,x,site,y", rows)
    assert "'when'" in found(report, "counts the rows")
    assert "60 different names" in found(report, "are they categories?")


def test_the_width_is_said_for_every_hold_out(tmp_path):
    """With a held out, nobody has a gap, so there is no flag for it."""
    rows = [f"{'' if row % 3 == 0 and row % 2 else row % 7},{'abc'[row % 3]},{row // 3 % 2}" for row in range(60)]
    report = from_table(tmp_path, "x,site,y", rows)
    assert "1 to 2 (by hold-out)" in report.plan[-1]


def test_groups_are_kept_together_in_the_plan(tmp_path):
    chance = np.random.default_rng(0)
    rows = [f"{chance.normal()},{row // 6},{'abc'[row % 3]},{row // 3 % 2}" for row in range(60)]
    report = from_table(tmp_path, "x,patient,site,y", rows, keep_together="patient")
    assert "no row left to train on" in found(report, "a run would stop", "broken")


@pytest.mark.parametrize(("target", "hint"), [("{}", "--task regression"), ("1{}", "--task classification")])
def test_the_other_task_is_offered_where_it_might_be_meant(tmp_path, target, hint):
    many = 12 if hint.endswith("regression") else 120
    rows = [f"{row / 7},{'ab'[row % 2]},{target.format(row % many)}" for row in range(240)]
    assert any(hint in line for line in from_table(tmp_path, "x,site,y", rows).plan)


def test_folders_called_train_and_test_and_deeper_ones_are_doubted(tmp_path):
    root = image_folder(tmp_path)
    (root / "day").rename(root / "train")
    (root / "night").rename(root / "test")
    (root / "train" / "cat" / "more").mkdir()
    (root / "train" / "cat" / "0.png").rename(root / "train" / "cat" / "more" / "0.png")
    report = check_data(root)
    assert "test, train" in found(report, "are these domains?", "note")
    assert "1 images lie deeper" in found(report, "deeper than domain/class", "note")


def test_a_card_is_followed_to_unreadable_images_and_its_notes_are_said(tmp_path):
    root = image_folder(tmp_path)
    (root / "day" / "cat" / "3.png").write_bytes(b"no image")
    (tmp_path / "pets.yaml").write_text("{path: pets, image_size: 4, notes: taken by hand}")
    report = check_data(tmp_path / "pets.yaml")
    assert found(report, "day/cat/3.png", "broken")
    assert found(report, "taken by hand", "note")
    assert report.dataset.inputs.describe() == "images, 4 x 4, RGB"


def test_sizes_that_differ_are_noticed(tmp_path):
    root = image_folder(tmp_path)
    Image.new("RGB", (40, 30)).save(root / "day" / "cat" / "0.png")
    assert "from 6 x 6 to 40 x 30" in found(check_data(root), "differ in size", "note")


# -- for machines, and what cannot be read at all --------------------------------------------------------------------


def test_a_report_is_plain_json(tmp_path):
    report = from_arrays(tmp_path, **clean(domain=np.zeros(90, int)))
    said = json.loads(json.dumps(report.as_json()))
    assert said["rows"] == 90
    assert said["domains"] == ["0"]
    assert said["classes"] == ["0", "1", "2"]
    assert said["counts"] == [[30, 30, 30]]
    assert said["broken"] is True
    assert said["findings"][-1]["level"] == "broken"


@pytest.mark.parametrize("what", ["nothing.csv", "~nobody-of-this-name/d.csv"])
def test_what_is_not_there_is_refused(tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=what):
        check_data(what)


def test_the_plan_is_drawn_with_the_seed_of_the_run(tmp_path, monkeypatch):
    seeds = []
    monkeypatch.setattr(
        check, "hold_outs", lambda dataset, *, seed: seeds.append(seed) or hold_outs(dataset, seed=seed)
    )
    np.savez(tmp_path / "d.npz", **clean())
    check_data(tmp_path / "d.npz", seed=5)
    assert seeds == [5]


# -- real data -------------------------------------------------------------------------------------------------------


@needs_real_data
def test_heart_disease_is_checked():
    report = check_data(REAL / "heart_disease_4hospitals.csv", Reading(target="num", domain="hospital"))
    assert not report.broken
    assert found(report, "'hungarian' has no row") == "domain 'hungarian' has no row of 2, 3, 4"
    assert found(report, "missing values:").startswith("missing values: ca 66%, thal 53%, slope 34%")
    assert found(report, "'chol'") == "column 'chol' is 0 in every row of 'switzerland' that has it"
    assert "hold out each of 4 domains in turn" in report.plan


@needs_real_data
def test_the_features_of_pacs_are_checked():
    report = check_data(REAL / "pacs_efflite0_feats.npz")
    assert not report.broken
    assert report.dataset.domain_names == ("art_painting", "cartoon", "photo", "sketch")
