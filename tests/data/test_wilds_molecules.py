"""OGB's molecules, read from CSV files written here, beside a reader that goes molecule by molecule."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.data.molecules.graphs import unpacked
from gated_domains.data.wilds import molecules
from gated_domains.data.wilds.molecules import read_molecules
from made_ogb import read_rows, write_ogb, write_rows


@pytest.fixture
def folder(tmp_path):
    return write_ogb(tmp_path / "wilds" / "ogbg_molpcba")


def one_by_one(folder):
    """Atoms, edges and their numbers of every molecule, in plain loops."""
    raw = folder / "raw"
    atoms, ends, numbers = (
        [[int(cell) for cell in row] for row in read_rows(raw / f"{name}.csv.gz")]
        for name in ("node-feat", "edge", "edge-feat")
    )
    nodes, bonds = ([int(row[0]) for row in read_rows(raw / f"num-{name}-list.csv.gz")] for name in ("node", "edge"))
    found = []
    for count, some in zip(nodes, bonds, strict=True):
        own_atoms, atoms = atoms[:count], atoms[count:]
        own_ends, ends = ends[:some], ends[some:]
        own_numbers, numbers = numbers[:some], numbers[some:]
        sources, targets, attributes = [], [], []
        for (start, end), bond in zip(own_ends, own_numbers, strict=True):
            sources += [start, end]
            targets += [end, start]
            attributes += [bond, bond]
        found.append((own_atoms, [sources, targets], attributes))
    return found


@pytest.mark.parametrize("at_once", [1, 7, 1_000])
def test_every_molecule_is_packed_as_a_loop_would_pack_it(folder, monkeypatch, at_once):
    monkeypatch.setattr(molecules, "_AT_ONCE", at_once)
    found = read_molecules(folder)
    expected = one_by_one(folder)
    assert len(found.graphs) == len(expected) == 40
    for row, (atoms, edges, attributes) in enumerate(expected):
        x, index, numbers = unpacked(found.graphs.read(np.array([row]))[0])
        assert x.tolist() == atoms
        assert index.tolist() == edges
        assert numbers.tolist() == attributes


def test_an_empty_answer_and_a_nan_are_unknown(folder):
    rows = read_rows(folder / "raw" / "graph-label.csv.gz")
    rows[3][5] = "nan"
    write_rows(folder / "raw" / "graph-label.csv.gz", rows)
    labels = read_molecules(folder).labels
    assert labels.dtype == np.float32
    assert labels.shape == (40, 128)
    assert np.isnan(labels[3, 5])
    for (row, task), answer in np.ndenumerate(labels):
        said = rows[row][task]
        assert np.isnan(answer) if said in ("", "nan") else answer == float(said)


def test_the_data_set_has_the_published_parts_and_scaffolds_for_domains(folder, tmp_path):
    data = load_data("wilds/ogb-molpcba", data_dir=tmp_path)
    assert data.task == "labels"
    assert data.outputs == 128
    assert data.label_names[0] == "assay 1"
    assert data.published.metric == "mean_average_precision"
    assert (data.published.statistic, data.published.runs) == ("overall", 3)
    for part, name in (("train", "train"), ("val", "valid"), ("test", "test")):
        listed = sorted(int(row[0]) for row in read_rows(folder / "split" / "scaffold" / f"{name}.csv.gz"))
        assert data.metadata["wilds_row"][data.published.rows(part)].tolist() == listed
    scaffolds = np.load(folder / "raw" / "scaffold_group.npy")
    assert [data.domain_names[index] for index in data.domains] == [f"scaffold {number}" for number in scaffolds]


def test_a_molecule_of_no_part_is_left_out(folder, tmp_path):
    path = folder / "split" / "scaffold" / "train.csv.gz"
    rows = read_rows(path)
    write_rows(path, rows[1:])
    data, whole = load_data("wilds/ogb-molpcba", data_dir=tmp_path), read_molecules(folder)
    left_out = int(rows[0][0])
    kept = np.setdiff1d(np.arange(40), [left_out])
    assert data.metadata["wilds_row"].tolist() == kept.tolist()
    np.testing.assert_array_equal(data.inputs.read(np.arange(39)), whole.graphs.read(kept))
    np.testing.assert_array_equal(data.targets, whole.labels[kept])


def test_the_assays_go_by_their_names_where_those_are_there(folder):
    (folder / "mapping").mkdir()
    names = [f"PCBA-{number}" for number in range(128)]
    with gzip.open(folder / "mapping" / "mol.csv.gz", "wt") as file:
        file.write(",".join([*names, "smiles", "mol_id"]) + "\n0,1,C,x\n")
    assert read_molecules(folder).label_names == tuple(names)


def cut_rows(folder, name):
    path = folder / "raw" / name
    write_rows(path, read_rows(path)[:-1])


def spoil_cell(folder, name, value):
    path = folder / "raw" / name
    rows = read_rows(path)
    rows[5][0] = value
    write_rows(path, rows)


def half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: cut_rows(folder, "node-feat.csv.gz"), r"node-feat.csv.gz has .* rows instead of .* cut short"),
        (lambda folder: cut_rows(folder, "num-node-list.csv.gz"), r"has 39 molecules and num-edge-list.csv.gz 40"),
        (lambda folder: cut_rows(folder, "graph-label.csv.gz"), r"graph-label.csv.gz has 39 rows instead of 40"),
        (lambda folder: spoil_cell(folder, "edge.csv.gz", "99"), r"edge.csv.gz: row 6 joins atoms that its molecule"),
        (lambda folder: spoil_cell(folder, "edge-feat.csv.gz", ""), r"edge-feat.csv.gz has a cell without a number"),
        (lambda folder: spoil_cell(folder, "edge-feat.csv.gz", "x"), r"edge-feat.csv.gz: .*damaged"),
        (lambda folder: half(folder / "raw" / "node-feat.csv.gz"), r"node-feat.csv.gz.* cut short"),
        (
            lambda folder: np.save(folder / "raw" / "scaffold_group.npy", np.arange(3)),
            r"scaffold_group.npy must hold one",
        ),
        (
            lambda folder: write_rows(folder / "split" / "scaffold" / "test.csv.gz", [[40]]),
            r"test.csv.gz names molecule 40, and there are 40",
        ),
        (
            lambda folder: write_rows(folder / "split" / "scaffold" / "test.csv.gz", [[0], [0]]),
            r"test.csv.gz names a molecule that it or another part already has",
        ),
    ],
)
def test_a_damaged_file_is_named(folder, spoil, message):
    spoil(folder)
    with pytest.raises(DataError, match=message):
        read_molecules(folder)


def test_a_pickled_scaffold_file_is_refused(folder):
    np.save(folder / "raw" / "scaffold_group.npy", np.array([{}] * 40, object), allow_pickle=True)
    with pytest.raises(DataError, match=r"scaffold_group.npy: .*allow_pickle"):
        read_molecules(folder)


def test_a_missing_file_is_named_with_the_way_to_get_it(folder, tmp_path):
    (folder / "raw" / "edge.csv.gz").unlink()
    with pytest.raises(DataError, match=r"ogbg_molpcba: missing are raw/edge.csv.gz; .*data fetch wilds/ogb-molpcba"):
        load_data("wilds/ogb-molpcba", data_dir=tmp_path)


def test_options_of_other_data_are_refused(folder, tmp_path):
    with pytest.raises(DataError, match="--image-size means nothing for the data set 'wilds/ogb-molpcba'"):
        load_data("wilds/ogb-molpcba", Reading(image_size=64), data_dir=tmp_path)


def test_a_fraction_is_drawn_from_every_part(tmp_path):
    write_ogb(tmp_path / "ogbg_molpcba", molecules=200)
    data = load_data("wilds/ogb-molpcba", Reading(fraction=0.5), data_dir=tmp_path)
    assert [len(data.published.rows(part)) for part in ("train", "val", "test")] == [80, 10, 10]
