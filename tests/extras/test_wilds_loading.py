"""The eight as we load them, beside the unmodified classes of the ``wilds`` package and OGB's own reader."""

from __future__ import annotations

import shutil
import socket
import sys
import threading

import numpy as np
import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("wilds")

from gated_domains.data.check import check_data  # noqa: E402
from gated_domains.data.errors import DataError  # noqa: E402
from gated_domains.data.labels import Reading  # noqa: E402
from gated_domains.data.loading import load_data  # noqa: E402
from gated_domains.data.molecules.graphs import unpacked  # noqa: E402
from gated_domains.data.wilds import WILDS, load_wilds, places  # noqa: E402
from gated_domains.data.wilds.package import open_wilds, wilds_class  # noqa: E402
from made_ogb import write_ogb  # noqa: E402
from made_wilds import loaded, small_miniature  # noqa: E402

BY_CLASS = [name for name in WILDS if name != "ogb-molpcba"]
IN_FILES = [name for name, chosen in WILDS.items() if chosen.kind in ("images", "bands")]


@pytest.fixture
def data_dir(request, tmp_path_factory):
    """Where the miniature lies whose name the test is given."""
    return small_miniature(request.getfixturevalue("name"), tmp_path_factory)


@pytest.fixture
def copy(data_dir, tmp_path):
    """The same, to be spoilt."""
    shutil.copytree(data_dir, tmp_path / "copy", copy_function=shutil.copyfile)
    return tmp_path / "copy"


def folder_of(name, data_dir):
    return places.located(WILDS[name], data_dir)


def original(name, data_dir, fold=None):
    return open_wilds(WILDS[name], folder_of(name, data_dir), fold=fold)


@pytest.mark.parametrize("name", BY_CLASS)
def test_columns_agree_with_the_class_row_by_row(name, data_dir):
    fold = "A" if name == "poverty" else None
    ours, theirs = loaded(name, data_dir), original(name, data_dir, fold)
    rows = ours.metadata["wilds_row"]
    y = theirs.y_array.numpy()[rows].reshape(-1)
    np.testing.assert_array_equal(ours.targets, y)
    numbers = np.asarray(theirs.split_array).astype(int)
    for part in ours.published.part_names:
        expected = np.flatnonzero(numbers == theirs.split_dict[part])
        np.testing.assert_array_equal(rows[ours.published.rows(part)], expected)
    assert set(ours.published.part_names) == set(theirs.split_dict)
    assert (ours.published.parts >= 0).all()
    assert ours.notes == ("a miniature, made up: no number measured on it says anything about the real data",)


@pytest.mark.parametrize("name", BY_CLASS)
def test_domains_are_those_of_wilds_own_grouper(name, data_dir):
    from wilds.common.grouper import CombinatorialGrouper

    ours, theirs = loaded(name, data_dir), original(name, data_dir)
    grouper = CombinatorialGrouper(theirs, list(WILDS[name].domain))
    rows = ours.metadata["wilds_row"]
    groups = grouper.metadata_to_group(theirs.metadata_array[rows]).numpy()
    pairs = set(zip(groups.tolist(), ours.domains.tolist(), strict=True))
    assert len(pairs) == len(set(groups.tolist())) == len(ours.domain_names)
    for group, domain in sorted(pairs)[:20]:
        told = grouper.group_str(group).rpartition("= ")[2]
        if name == "civilcomments":
            black, toxic = group % 2, group // 2
            expected = f"black {'mentioned' if black else 'not mentioned'}, {'toxic' if toxic else 'not toxic'}"
            assert ours.domain_names[domain] == expected
        else:
            assert ours.domain_names[domain].removeprefix(f"{WILDS[name].domain[0]} ") == told


@pytest.mark.parametrize("name", IN_FILES)
def test_a_sample_is_what_wilds_makes_of_its_file(name, data_dir):
    from PIL import Image

    ours, theirs = loaded(name, data_dir), original(name, data_dir)
    chosen = np.linspace(0, len(ours) - 1, 12).astype(np.int64)
    for place, sample in zip(chosen, ours.inputs.read(chosen), strict=True):
        x = theirs.get_input(int(ours.metadata["wilds_row"][place]))
        expected = x.numpy() if name == "poverty" else np.asarray(x.convert("RGB").resize((16, 16), Image.BILINEAR))
        np.testing.assert_array_equal(sample, expected)


def test_rxrx1_is_standardised_as_wilds_does_it(tmp_path_factory):
    import torch

    from gated_domains.data.encoding import fit_encoding

    data = loaded("rxrx1", small_miniature("rxrx1", tmp_path_factory))
    raw = torch.from_numpy(data.inputs.read(np.arange(3)))
    seen = fit_encoding(data, np.arange(3)).tensor(raw)
    for image, found in zip(raw, seen, strict=True):
        x = image.permute(2, 0, 1).float() / 255
        mean, deviation = x.mean(dim=(1, 2)), x.std(dim=(1, 2))
        torch.testing.assert_close(found, (x - mean[:, None, None]) / deviation[:, None, None], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["amazon", "civilcomments"])
def test_texts_are_those_of_the_class_and_cut_where_wilds_cuts_them(name, data_dir):
    ours, theirs = loaded(name, data_dir), original(name, data_dir)
    rows = ours.metadata["wilds_row"]
    assert ours.inputs.texts(np.arange(len(ours))) == [theirs.get_input(row) for row in rows]
    assert (ours.inputs.kind, ours.inputs.tokens) == ("tokens", {"amazon": 512, "civilcomments": 300}[name])
    fewer = load_data(f"wilds/{name}", Reading(tokens=64), data_dir=data_dir)
    assert fewer.inputs.tokens == 64
    assert load_data(f"wilds/{name}", Reading(form="words"), data_dir=data_dir).inputs.kind == "words"
    with pytest.raises(DataError, match="are seen as tokens or as words, not as 'embeddings'"):
        load_data(f"wilds/{name}", Reading(form="embeddings"), data_dir=data_dir)
    with pytest.raises(DataError, match="--tokens and --tokenizer are for --as tokens"):
        load_data(f"wilds/{name}", Reading(form="words", tokens=9), data_dir=data_dir)


@pytest.mark.parametrize("fold", "ABCDE")
def test_every_fold_of_poverty_tests_other_countries(fold, tmp_path_factory):
    from wilds.datasets.poverty_dataset import SURVEY_NAMES

    data = load_data(f"wilds/poverty:{fold}", data_dir=small_miniature("poverty", tmp_path_factory))
    assert data.name == f"wilds/poverty:{fold}"
    tested = {data.domain_names[index] for index in np.unique(data.domains[data.published.rows("test")])}
    assert tested == set(SURVEY_NAMES[f"2009-17{fold}"]["test"])


@pytest.mark.parametrize("made_by", ["by hand", "as a miniature"])
def test_graphs_and_answers_equal_those_of_ogbs_reader(made_by, tmp_path, tmp_path_factory, monkeypatch):
    import torch

    monkeypatch.setitem(sys.modules, "outdated", None)
    from ogb.graphproppred import PygGraphPropPredDataset

    if made_by == "by hand":
        write_ogb(tmp_path / "ogbg_molpcba", molecules=60)
    else:
        folder = folder_of("ogb-molpcba", small_miniature("ogb-molpcba", tmp_path_factory))
        shutil.copytree(folder, tmp_path / "ogbg_molpcba")
    plain = torch.load
    # OGB unpickles what it has just written itself, which torch has refused by default since 2.6.
    monkeypatch.setattr(torch, "load", lambda *args, **kwargs: plain(*args, **{"weights_only": False, **kwargs}))
    theirs = PygGraphPropPredDataset(name="ogbg-molpcba", root=str(tmp_path))
    ours = load_data("wilds/ogb-molpcba", data_dir=tmp_path)
    assert len(ours) == len(theirs)
    for row in range(len(theirs)):
        x, index, numbers = unpacked(ours.inputs.read(np.array([row]))[0])
        graph = theirs[row]
        np.testing.assert_array_equal(x, graph.x.numpy())
        np.testing.assert_array_equal(index, graph.edge_index.numpy())
        np.testing.assert_array_equal(numbers, graph.edge_attr.numpy())
        np.testing.assert_array_equal(ours.targets[row], graph.y.numpy()[0])
    split = theirs.get_idx_split()
    for part, name in (("train", "train"), ("val", "valid"), ("test", "test")):
        np.testing.assert_array_equal(ours.published.rows(part), np.sort(split[name].numpy()))


@pytest.mark.parametrize("name", IN_FILES)
def test_a_row_whose_file_is_missing_is_found_by_the_check_and_named_when_read(name, copy):
    files = load_wilds(name, data_dir=copy, at_once=False).inputs
    gone, cut = files.path(3), files.path(5)
    shutil.move(gone, f"{gone}.away")
    with open(cut, "r+b") as file:
        file.truncate(60)
    report = check_data(f"wilds/{name}", data_dir=copy)
    assert report.broken
    broken = [finding.text for finding in report.findings if finding.level == "broken"]
    assert any(f"1 are missing, the first of them {gone}" in text for text in broken)
    assert any(cut in text for text in broken)
    with pytest.raises(DataError, match="is missing, though the metadata"):
        files.read(np.array([3]))
    with pytest.raises(DataError, match="cut short"):
        files.read(np.array([5]))
    with pytest.raises(DataError):
        load_data(f"wilds/{name}", data_dir=copy)  # a small one is read whole


@pytest.mark.parametrize("name", WILDS)
def test_the_check_of_a_whole_miniature_finds_nothing_broken(name, data_dir):
    report = check_data(f"wilds/{name}", data_dir=data_dir)
    assert not report.broken
    assert any(line.startswith("  train: ") for line in report.plan)
    assert report.as_json()["rows"] == len(report.dataset)


@pytest.mark.parametrize(("name", "metadata"), [("camelyon17", "metadata.csv"), ("fmow", "rgb_metadata.csv")])
def test_metadata_that_are_no_csv_of_theirs_are_an_error_that_names_the_folder(name, metadata, copy):
    (folder_of(name, copy) / metadata).write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=rf"{WILDS[name].folder}.*damaged, or not what its name says"):
        load_data(f"wilds/{name}", data_dir=copy)


@pytest.mark.parametrize("name", ["camelyon17"])
def test_a_set_that_is_not_small_is_told_to_differ_from_the_published_one(name, copy):
    (folder_of(name, copy) / "MINIATURE.txt").unlink()
    report = check_data(f"wilds/{name}", data_dir=copy)
    assert any("published: 302,436" in finding.text for finding in report.findings if finding.level == "look")


def test_loading_the_package_starts_no_thread_and_asks_no_network(monkeypatch):
    from PIL import Image

    for name in [name for name in sys.modules if name.partition(".")[0] in ("wilds", "outdated")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(socket, "socket", None)
    before, limit = threading.active_count(), Image.MAX_IMAGE_PIXELS
    wilds_class("fmow")
    assert threading.active_count() == before
    assert limit == Image.MAX_IMAGE_PIXELS
    assert "outdated" not in sys.modules
