"""The table of the eight, their names, and what is said where their data or their package are not there."""

from __future__ import annotations

import sys

import pytest

from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.data.named import DATASETS
from gated_domains.data.wilds import WILDS, is_wilds, load_wilds, places, wilds_set
from gated_domains.evaluation.metrics import METRICS


def test_there_are_eight_and_poverty_has_five_folds():
    assert len(WILDS) == 8
    named = {name for name in DATASETS if name.startswith("wilds/")}
    assert {name for name in named if ":" in name} == {f"wilds/poverty:{fold}" for fold in "ABCDE"}
    assert len(named) == 8 + 5
    assert all(is_wilds(name) for name in named)
    assert not is_wilds("wilds/py150")
    assert not is_wilds(None)


def test_plain_poverty_is_fold_a_and_others_have_no_fold():
    assert wilds_set("wilds/poverty") == (WILDS["poverty"], "A")
    assert wilds_set("poverty:D") == (WILDS["poverty"], "D")
    assert wilds_set("wilds/fmow") == (WILDS["fmow"], None)


@pytest.mark.parametrize("name", ["wilds/camelyon", "wilds/fmow:A", "wilds/poverty:F", "camelyon-17"])
def test_an_unknown_name_is_answered_with_the_nearest(name):
    with pytest.raises(DataError, match=r"there is no WILDS data set .*; did you mean 'wilds/"):
        wilds_set(name)


@pytest.mark.parametrize("chosen", WILDS.values(), ids=lambda chosen: chosen.name)
def test_every_row_of_the_table_makes_sense(chosen):
    assert METRICS[chosen.metric]
    assert len(chosen.what) < 80  # beside a path, in a table
    assert {"train", "val", "test"} <= set(chosen.rows)
    assert (chosen.image_size is not None) == (chosen.kind in ("images", "bands"))
    assert (chosen.tokens is not None) == (chosen.kind == "text")
    assert chosen.statistic == "overall" or chosen.groups
    assert chosen.kind == "graphs" or chosen.folder.rpartition("_v")[2] in chosen.version


def test_runs_and_statistics_are_those_wilds_asks_for():
    asked = {name: (one.metric, one.statistic, one.runs) for name, one in WILDS.items()}
    assert asked == {
        "camelyon17": ("accuracy", "overall", 10),
        "fmow": ("accuracy", "worst_group", 3),
        "amazon": ("accuracy", "percentile_10", 3),
        "iwildcam": ("f1", "overall", 3),
        "rxrx1": ("accuracy", "overall", 3),
        "ogb-molpcba": ("mean_average_precision", "overall", 3),
        "civilcomments": ("accuracy", "worst_group", 5),
        "poverty": ("pearson", "worst_group", 1),
    }


@pytest.mark.parametrize("name", [name for name in DATASETS if name.startswith("wilds/")])
def test_data_that_are_not_there_are_looked_for_in_two_places(tmp_path, name):
    chosen, _ = wilds_set(name)
    with pytest.raises(DataError) as caught:
        load_data(name, data_dir=tmp_path)
    said = str(caught.value)
    assert f"{tmp_path / 'wilds' / chosen.folder} or {tmp_path / chosen.folder}" in said
    assert f"gated-domains data fetch wilds/{chosen.name}" in said
    assert f"gated-domains data miniature wilds/{chosen.name} DIR" in said


def lay_out(root, name):
    chosen = WILDS[name]
    for file in (chosen.version, *chosen.files):
        (root / chosen.folder / file).parent.mkdir(parents=True, exist_ok=True)
        (root / chosen.folder / file).write_text("")
    return root / chosen.folder


def test_a_folder_without_its_version_file_says_what_that_is_for(tmp_path):
    folder = lay_out(tmp_path, "camelyon17")
    (folder / "RELEASE_v1.0.txt").unlink()
    with pytest.raises(DataError, match=r"RELEASE_v1.0.txt is missing, by which WILDS knows .* make that file, empty"):
        load_data("wilds/camelyon17", data_dir=tmp_path)


def test_missing_metadata_are_named(tmp_path):
    folder = lay_out(tmp_path / "wilds", "fmow")
    (folder / "country_code_mapping.csv").unlink()
    with pytest.raises(DataError, match=r"fmow_v1.1: missing are country_code_mapping.csv; unpack the archive again"):
        load_data("wilds/fmow", data_dir=tmp_path)


def test_the_folder_below_wilds_is_preferred(tmp_path):
    lay_out(tmp_path, "fmow")
    assert places.located(WILDS["fmow"], tmp_path) == tmp_path / "fmow_v1.1"
    lay_out(tmp_path / "wilds", "fmow")
    assert places.located(WILDS["fmow"], tmp_path) == tmp_path / "wilds" / "fmow_v1.1"


def test_without_the_package_the_line_that_installs_it_is_given(tmp_path, monkeypatch):
    lay_out(tmp_path, "camelyon17")
    for name in [name for name in sys.modules if name.partition(".")[0] == "wilds"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "wilds", None)
    with pytest.raises(DataError, match=r"wilds is not installed; pip install 'gated-domains\[wilds\]'"):
        load_data("wilds/camelyon17", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("name", "reading", "option"),
    [
        ("wilds/fmow", Reading(tokens=64), "tokens"),
        ("wilds/amazon", Reading(image_size=64), "image-size"),
        ("wilds/poverty:B", Reading(form="tokens"), "as"),
        ("wilds/camelyon17", Reading(target="tumor"), "target"),
    ],
)
def test_options_that_mean_nothing_are_refused(name, reading, option):
    with pytest.raises(DataError, match=f"--{option} means nothing for the data set"):
        load_wilds(name, reading=reading)
