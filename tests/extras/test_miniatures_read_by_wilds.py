"""Each miniature as the unmodified class of the ``wilds`` package reads and scores it; molecules as OGB reads them."""

from __future__ import annotations

import csv
import gzip
import hashlib
import lzma
import sys
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("rdkit")  # not wilds, which would ask the network for its newest version

from gated_domains.data.errors import DataError  # noqa: E402
from gated_domains.data.miniatures import MINIATURES, write_miniature  # noqa: E402
from gated_domains.data.molecules.features import graph_of  # noqa: E402
from gated_domains.data.wilds.package import as_pandas_was, wilds_class  # noqa: E402
from made_wilds import small_miniature  # noqa: E402
from wilds_eval import wilds_eval  # noqa: E402

SPLITS = {
    "amazon": {"train", "val", "test", "id_val", "id_test"},
    "camelyon17": {"train", "val", "test", "id_val"},
    "civilcomments": {"train", "val", "test"},
    "fmow": {"train", "val", "test", "id_val", "id_test"},
    "iwildcam": {"train", "val", "test", "id_val", "id_test"},
    "poverty": {"train", "val", "test", "id_val", "id_test"},
    "rxrx1": {"train", "val", "test", "id_test"},
}
# Written for pandas 2; the other classes are read by pandas 3 without any help.
OLDER_PANDAS = ("civilcomments", "rxrx1")
MOST_LABELS = 128


@pytest.fixture
def opened(tmp_path_factory):
    """``opened(name, fold="B")``: the class of the package, on its smallest miniature."""

    def read(name, **settings):
        folder = small_miniature(name, tmp_path_factory)
        made = wilds_class(name)
        with as_pandas_was() if name in OLDER_PANDAS else nullcontext():
            return made(root_dir=str(folder), download=False, **settings)

    return read


def sizes(data):
    numbers = np.asarray(data.split_array).astype(int)
    return {name: int((numbers == number).sum()) for name, number in data.split_dict.items()}


@pytest.mark.parametrize("name", SPLITS)
def test_no_split_is_empty(opened, name):
    found = sizes(opened(name))
    assert set(found) == SPLITS[name]
    assert min(found.values()) >= 24


@pytest.mark.parametrize("name", SPLITS)
def test_every_row_has_its_input(opened, name):
    data = opened(name)
    for row in (*range(0, len(data), 7), len(data) - 1):
        x, _, _ = data[row]
        assert x is not None
        if hasattr(x, "load"):
            assert x.load() is not None


@pytest.mark.parametrize("name", SPLITS)
@pytest.mark.parametrize("split", ["val", "test"])
def test_the_official_score_of_true_answers_is_perfect(opened, name, split):
    import torch

    data = opened(name)
    rows = torch.from_numpy(np.flatnonzero(np.asarray(data.split_array).astype(int) == data.split_dict[split]))
    results = wilds_eval(data, data.y_array[rows], rows)
    score = {
        "amazon": "10th_percentile_acc",
        "camelyon17": "acc_avg",
        "civilcomments": "acc_wg",
        "fmow": "acc_worst_region",
        "iwildcam": "F1-macro_all",
        "poverty": "r_wg",
        "rxrx1": "acc_avg",
    }[name]
    assert float(results[score]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("split", ["val", "test"])
def test_every_identity_and_label_of_civilcomments_is_scored(opened, split):
    data = opened("civilcomments")
    metadata = data.get_subset(split).metadata_array.numpy()
    fields = data.metadata_fields
    for name in fields[:8]:
        for toxic in (0, 1):
            there = (metadata[:, fields.index(name)] == 1) & (metadata[:, fields.index("y")] == toxic)
            assert there.sum() >= 3


@pytest.mark.parametrize("fold", "ABCDE")
def test_every_fold_of_poverty_has_rows_of_town_and_country_in_every_split(opened, fold):
    data = opened("poverty", fold=fold)
    for split in data.split_dict:
        urban = data.get_subset(split).metadata_array[:, 0].numpy()
        assert min(urban.sum(), (1 - urban).sum()) >= 10
    assert sizes(data)["train"] >= 100


@pytest.mark.parametrize("name", ["camelyon17", "fmow", "rxrx1", "poverty"])
def test_the_second_official_division_can_be_had_too(opened, name):
    found = sizes(opened(name, split_scheme="mixed-to-test"))
    assert min(found[split] for split in ("train", "val", "test")) > 0


def test_fmow_keeps_the_numbers_of_all_62_categories(opened):
    data = opened("fmow")
    assert data.n_classes == 62
    assert len(data) < len(data.metadata)  # those that the publisher kept back
    assert len(set(data.y_array.tolist())) == 8


# Molecules


@pytest.fixture(scope="module")
def molecules(tmp_path_factory):
    """The folder of the miniature as it usually is."""
    return write_miniature("wilds/molpcba", tmp_path_factory.mktemp("ogb"))


@pytest.fixture
def as_ogb_needs(monkeypatch):
    """No question to the network, and the three classes that OGB keeps in its own file."""
    import torch

    monkeypatch.setitem(sys.modules, "outdated", None)
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    with torch.serialization.safe_globals([DataEdgeAttr, DataTensorAttr, GlobalStorage]):
        yield


def rows_of(folder):
    with gzip.open(folder / "mapping" / "mol.csv.gz", "rt") as file:
        return list(csv.DictReader(file))


def parts_of(folder):
    parts = {}
    for name in ("train", "valid", "test"):
        with gzip.open(folder / "split" / "scaffold" / f"{name}.csv.gz", "rt") as file:
            parts[name] = np.array([int(line) for line in file])
    return parts


def answers_of(folder):
    with gzip.open(folder / "raw" / "graph-label.csv.gz", "rt") as file:
        return np.array([[float(cell or "nan") for cell in row] for row in csv.reader(file)])


@pytest.mark.usefixtures("as_ogb_needs")
def test_molecules_are_read_by_ogb_as_they_were_meant(molecules):
    from ogb.graphproppred import PygGraphPropPredDataset

    theirs = PygGraphPropPredDataset(name="ogbg-molpcba", root=str(molecules.parent))
    rows, answers = rows_of(molecules), answers_of(molecules)
    assert len(theirs) == len(rows) == MINIATURES["ogb-molpcba"].rows
    for number in range(0, len(rows), 9):
        atoms, edges, bonds = graph_of(rows[number]["smiles"])
        graph = theirs[number]
        np.testing.assert_array_equal(graph.x.numpy(), atoms)
        np.testing.assert_array_equal(graph.edge_index.numpy(), edges)
        np.testing.assert_array_equal(graph.edge_attr.numpy(), bonds)
        np.testing.assert_array_equal(graph.y.numpy()[0], answers[number])
    found = theirs.get_idx_split()
    for name, part in parts_of(molecules).items():
        np.testing.assert_array_equal(found[name].numpy(), part)


@pytest.mark.usefixtures("as_ogb_needs")
def test_molecules_are_read_and_scored_by_the_class_of_wilds(molecules, monkeypatch):
    import torch
    from torch_geometric.loader.dataloader import Collater
    from wilds.datasets import ogbmolpcba_dataset

    # torch_geometric's has a first argument more than when the class was written; the class itself stays as it is.
    monkeypatch.setattr(ogbmolpcba_dataset, "PyGCollater", partial(Collater, None))
    data = ogbmolpcba_dataset.OGBPCBADataset(root_dir=str(molecules.parent))
    assert sizes(data) == {{"valid": "val"}.get(name, name): len(part) for name, part in parts_of(molecules).items()}
    truth = data.get_subset("test").y_array
    score, _ = data.eval(torch.nan_to_num(truth), truth, None)
    assert score["ap"] == pytest.approx(1)


def test_every_molecule_was_measured_and_most_answers_are_missing(molecules):
    answers = answers_of(molecules)
    assert answers.shape == (MINIATURES["ogb-molpcba"].rows, MOST_LABELS)
    assert (~np.isnan(answers)).any(axis=1).all()
    assert 0.5 < np.isnan(answers).mean() < 0.7
    for part in parts_of(molecules).values():
        scored = (np.nansum(answers[part], axis=0) > 0) & (np.nansum(1 - answers[part], axis=0) > 0)
        assert scored.mean() > 0.9


def test_scaffolds_are_in_one_part_each_and_the_common_ones_are_trained_on(molecules):
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    group = np.load(molecules / "raw" / "scaffold_group.npy")
    scaffolds = [MurckoScaffoldSmiles(row["smiles"]) for row in rows_of(molecules)]
    assert len(set(zip(group.tolist(), scaffolds, strict=True))) == len(set(scaffolds)) == group.max() + 1
    parts = {name: set(group[part].tolist()) for name, part in parts_of(molecules).items()}
    assert len(set.union(*parts.values())) == sum(len(part) for part in parts.values())
    often = np.bincount(group)
    assert min(often[list(parts["train"])]) >= max(often[list(parts["test"])])


def test_a_simple_model_learns_assays_and_does_worse_on_rare_scaffolds(molecules):
    from rdkit import Chem
    from rdkit.Chem import rdFingerprintGenerator
    from sklearn.linear_model import RidgeClassifier
    from sklearn.metrics import average_precision_score

    maker = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=512)
    inputs = np.stack([maker.GetFingerprintAsNumPy(Chem.MolFromSmiles(row["smiles"])) for row in rows_of(molecules)])
    answers, parts = answers_of(molecules), parts_of(molecules)
    mixed = np.random.default_rng(0).permutation(parts["train"])
    parts |= {"held": mixed[:100], "train": mixed[100:]}
    scores = {"held": [], "test": [], "chance": []}
    for task in range(0, MOST_LABELS, 8):
        known = {name: part[~np.isnan(answers[part, task])] for name, part in parts.items()}
        if any(len(set(answers[part, task])) < 2 for part in known.values()):
            continue
        model = RidgeClassifier(alpha=10).fit(inputs[known["train"]], answers[known["train"], task])
        for name in ("held", "test"):
            guess = model.decision_function(inputs[known[name]])
            scores[name].append(average_precision_score(answers[known[name], task], guess))
        scores["chance"].append(answers[known["held"], task].mean())
    held, test, chance = (np.mean(scores[name]) for name in ("held", "test", "chance"))
    assert held > chance + 0.3
    assert test < held - 0.05


def test_the_same_seed_gives_the_same_molecules(tmp_path):
    def bytes_of(place, seed):
        folder = write_miniature("ogb-molpcba", tmp_path / place, seed=seed, rows=250)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    first = bytes_of("first", 1)
    assert bytes_of("again", 1) == first
    assert bytes_of("other", 2)["edge.csv.gz"] != first["edge.csv.gz"]


def test_molecules_of_a_file_are_taken_where_one_is_given(tmp_path):
    made = [f"{'C' * length}{group}" for length in range(1, 60) for group in ("O", "N", "F", "Cl")]
    with lzma.open(tmp_path / "mine.csv.xz", "wt") as file:
        file.write("Smiles,active\n" + "".join(f"{smiles},0\n" for smiles in [*made, "not a molecule", "C1CC"]))
    folder = write_miniature("ogb-molpcba", tmp_path / "out", rows=210, smiles=tmp_path / "mine.csv.xz")
    found = [row["smiles"] for row in rows_of(folder)]
    assert len(set(found)) == 210
    assert all(smiles.startswith("C") for smiles in found)


@pytest.mark.parametrize(
    ("header", "rows", "said"),
    [
        ("name", 250, "no column is called SMILES; there are name"),
        ("SMILES", 250, "there are 1 different molecules to be had; ask for no more rows than that"),
    ],
)
def test_a_file_without_enough_molecules_is_refused(tmp_path, header, rows, said):
    path = tmp_path / "few.csv"
    path.write_text(f"{header}\nCCO\nOCC\n")
    with pytest.raises(DataError, match=said):
        write_miniature("ogb-molpcba", tmp_path / "out", rows=rows, smiles=path)
    assert not list((tmp_path / "out").iterdir())


# Features


@pytest.mark.usefixtures("as_ogb_needs")
@pytest.mark.parametrize(
    "smiles",
    ["C", "[H][H]", "[Na+].[Cl-]", "F/C=C/F", "C[C@H](N)C(=O)O", "[*]C", "[CH3]", "FS(F)(F)(F)(F)F", "O=[N+]([O-])C#N"],
)
def test_a_graph_is_that_of_ogb(smiles):
    from ogb.utils import smiles2graph

    theirs = smiles2graph(smiles)
    for ours, name in zip(graph_of(smiles), ("node_feat", "edge_index", "edge_feat"), strict=True):
        assert ours.dtype == np.int16
        np.testing.assert_array_equal(ours, theirs[name])


@pytest.mark.usefixtures("as_ogb_needs")
def test_graphs_of_all_molecules_are_those_of_ogb(molecules):
    from ogb.utils import smiles2graph

    for row in rows_of(molecules):
        theirs = smiles2graph(row["smiles"])
        for ours, name in zip(graph_of(row["smiles"]), ("node_feat", "edge_index", "edge_feat"), strict=True):
            np.testing.assert_array_equal(ours, theirs[name])


@pytest.mark.parametrize(
    ("smiles", "said"), [("C1CC", "'C1CC' is no molecule that RDKit can read"), ("", "'' has no atoms")]
)
def test_what_is_no_molecule_is_named(smiles, said):
    with pytest.raises(DataError, match=said):
        graph_of(smiles)
