"""Molecules of a table: fingerprints, graphs and scaffolds by RDKit, what it cannot read, and what is kept on disk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gated_domains.data import Reading, fit_encoding, hold_outs, load_data, read_like, schema_of
from gated_domains.data.check import check_data
from gated_domains.data.dataset import Schema
from gated_domains.data.errors import DataError, cache_dir
from gated_domains.data.molecules import parsing
from gated_domains.data.molecules.features import graph_of
from gated_domains.data.molecules.fingerprints import Bits
from gated_domains.data.molecules.graphs import Graphs, unpacked
from gated_domains.data.molecules.inputs import read_molecules
from gated_domains.data.molecules.scaffolds import NO_RING
from gated_domains.data.show import show_data

pytestmark = pytest.mark.extras
pytest.importorskip("rdkit")

REAL = Path(__file__).parents[3] / "shared" / "data"
needs_real_data = pytest.mark.skipif(not REAL.is_dir(), reason="real data (../shared/data) are not here")

# Two benzenes, two pyridines, two indoles, two without a ring.
SMILES = [
    "Cc1ccccc1",
    "OC(=O)c1ccccc1",
    "Cc1ccncc1",
    "Nc1ccncc1",
    "c1ccc2[nH]ccc2c1",
    "Cc1ccc2[nH]ccc2c1",
    "CCO",
    "CC=O",
]
DOUBTFUL = "O=C1O[Al]23(OC1=O)(OC(=O)C(=O)O2)OC(=O)C(=O)O3"
READING = Reading(smiles="SMILES", target="active", domain="scaffold")


@pytest.fixture(autouse=True)
def an_empty_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("GATED_DOMAINS_CACHE", str(tmp_path_factory.mktemp("cache")))


def table(path: Path, smiles: list[str], *, header: str = "SMILES,active,assay") -> Path:
    path.write_text(f"{header}\n" + "".join(f"{text},{row % 2},a{row % 3}\n" for row, text in enumerate(smiles)))
    return path


def test_fingerprints_are_those_of_rdkit(tmp_path):
    from rdkit import Chem
    from rdkit.Chem import AllChem

    data = load_data(table(tmp_path / "m.csv", SMILES), READING)
    assert isinstance(data.inputs, Bits)
    assert data.inputs.values.shape == (8, 2048)
    assert data.inputs.values.dtype == np.uint8
    for row, smiles in enumerate(SMILES):
        old = AllChem.GetMorganFingerprintAsBitVect(Chem.MolFromSmiles(smiles), 2, nBits=2048)
        np.testing.assert_array_equal(data.inputs.values[row], np.array(old))


def test_graphs_are_those_of_each_smiles(tmp_path):
    data = load_data(table(tmp_path / "m.csv", SMILES), Reading(smiles="SMILES", target="active", form="graphs"))
    assert isinstance(data.inputs, Graphs)
    for row, smiles in enumerate(SMILES):
        for part, expected in zip(unpacked(data.inputs.read(np.array([row]))[0]), graph_of(smiles), strict=True):
            np.testing.assert_array_equal(part, expected)
    assert fit_encoding(data, np.arange(8)).kind == "graphs"


def test_molecules_with_one_scaffold_are_one_domain_and_those_without_a_ring_another(tmp_path):
    data = load_data(table(tmp_path / "m.csv", SMILES), READING)
    assert data.domain_names == (NO_RING, "c1ccc2[nH]ccc2c1", "c1ccccc1", "c1ccncc1")
    assert data.domains.tolist() == [2, 2, 3, 3, 1, 1, 0, 0]
    assert any("Bemis-Murcko scaffolds, computed by RDKit: 4" in note for note in data.notes)
    many = load_data(table(tmp_path / "n.csv", [f"{'C' * n}{text}" for n in range(1, 9) for text in SMILES]), READING)
    assert hold_outs(many, [NO_RING])[0].test.tolist() == many.rows_of(NO_RING).tolist()


def test_the_order_of_the_rows_does_not_change_the_domains(tmp_path):
    backwards = load_data(table(tmp_path / "m.csv", SMILES[::-1]), READING)
    assert backwards.domain_names == load_data(table(tmp_path / "n.csv", SMILES), READING).domain_names


def test_a_column_called_scaffold_wins_over_what_could_be_computed(tmp_path):
    data = load_data(table(tmp_path / "m.csv", SMILES, header="SMILES,active,scaffold"), READING)
    assert data.domain_names == ("a0", "a1", "a2")
    assay = Reading(smiles="SMILES", target="active", domain="assay")
    assert load_data(table(tmp_path / "n.csv", SMILES), assay).domain_names == ("a0", "a1", "a2")


def test_a_molecule_written_in_two_ways_is_a_copy_and_a_like_one_is_not():
    # Toluene twice; decane and undecane, which have the same fingerprint.
    found = read_molecules(["Cc1ccccc1", "c1ccccc1C", "C" * 10, "C" * 11])
    assert (found.inputs.read(np.array([2])) == found.inputs.read(np.array([3]))).all()
    first, second, third, fourth = found.inputs.digests().tolist()
    assert first == second
    assert third != fourth
    as_graphs = read_molecules(["Cc1ccccc1", "c1ccccc1C"], form="graphs").inputs.digests()
    assert as_graphs[0] == as_graphs[1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("C1CC", r"m\.csv: column 'SMILES': row 3, line 4 of the file holds 'C1CC', which RDKit cannot read.*rows: 2"),
        ("not a molecule", "holds 'not a molecule'"),
        ("", r"row 3, line 4 of the file is empty \(such rows: 2\); correct or drop those rows"),
    ],
)
def test_what_rdkit_cannot_read_is_refused_with_its_row_and_count_and_no_noise(tmp_path, wrong, message, capfd):
    with pytest.raises(DataError, match=message):
        load_data(table(tmp_path / "m.csv", [*SMILES[:2], wrong, *SMILES[2:], wrong]), READING)
    assert capfd.readouterr().err == ""


def test_more_bonds_than_rdkit_allows_are_taken_as_they_are_written_and_told(tmp_path):
    path = table(tmp_path / "m.csv", [*SMILES, DOUBTFUL])
    for form in ("fingerprints", "graphs"):
        data = load_data(path, Reading(smiles="SMILES", target="active", domain="scaffold", form=form))
        assert len(data) == 9
        assert any("more bonds at an atom than RDKit allows: 1 (the first, in row 9" in note for note in data.notes)
    assert len(data.domain_names) == 5  # it is its own scaffold


def test_molecules_are_computed_once_and_only_what_is_missing(monkeypatch):
    smiles = SMILES * 3
    first = read_molecules(smiles, scaffolds=True)
    wanted = []
    made = parsing._made
    monkeypatch.setattr(parsing, "_made", lambda texts, absent: wanted.append(list(absent)) or made(texts, absent))
    again = read_molecules(smiles, scaffolds=True)
    assert wanted == []
    np.testing.assert_array_equal(again.inputs.values, first.inputs.values)
    np.testing.assert_array_equal(again.scaffolds, first.scaffolds)
    assert again.scaffold_names == first.scaffold_names
    read_molecules(smiles, form="graphs", scaffolds=True)
    assert wanted == [["graphs"]]
    read_molecules(smiles[:-1])
    assert wanted[1:] == [["molecules", "fingerprints"]]


@pytest.mark.parametrize("broken", [b"", b"no archive", None])
def test_a_broken_entry_is_made_anew(broken):
    first = read_molecules(SMILES).inputs.values
    for file in (cache_dir() / "molecules").iterdir():
        file.write_bytes(file.read_bytes()[:-30] if broken is None else broken)
    np.testing.assert_array_equal(read_molecules(SMILES).inputs.values, first)


@pytest.mark.parametrize(
    ("reading", "message"),
    [
        (
            Reading(smiles="SMILES", target="active", form="tokens"),
            "--as tokens: molecules are seen as fingerprints or",
        ),
        (Reading(smiles="SMILES", target="active", tokens=9), "--tokens means nothing for a table of molecules"),
        (Reading(smiles="SMILE", target="active"), r"no column 'SMILE' \(--smiles\); did you mean 'SMILES'"),
        (Reading(text="SMILES", target="active", domain="scaffold"), r"no column 'scaffold' \(--domain\)"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, reading, message):
    with pytest.raises(DataError, match=message):
        load_data(table(tmp_path / "m.csv", SMILES), reading)


@pytest.mark.parametrize("form", [None, "graphs"])
def test_a_model_reads_new_molecules_as_it_was_trained(tmp_path, form):
    reading = Reading(smiles="SMILES", target="active", domain="scaffold", form=form)
    data = load_data(table(tmp_path / "m.csv", SMILES), reading)
    made = schema_of(data, fit_encoding(data, np.arange(8)))
    schema = Schema.from_description(json.loads(json.dumps(made.describe())))
    new = read_like(table(tmp_path / "new.csv", SMILES[4:]), schema, targets=True)
    assert new.domain_names == (NO_RING, "c1ccc2[nH]ccc2c1")
    assert new.targets.tolist() == [0, 1, 0, 1]
    assert new.inputs.kind == data.inputs.kind
    (tmp_path / "bare.csv").write_text("molecule\nCCO\nc1ccccc1\n")
    bare = read_like(tmp_path / "bare.csv", schema, targets=False, reading=Reading(smiles="molecule"))
    np.testing.assert_array_equal(bare.inputs.read(np.array([0])), data.inputs.read(np.array([6])))
    (tmp_path / "bad.csv").write_text("SMILES\nCCO\nC1CC\n")
    with pytest.raises(DataError, match="row 2, line 3 of the file holds 'C1CC'"):
        read_like(tmp_path / "bad.csv", schema, targets=False)


def test_molecules_are_checked_and_drawn(tmp_path):
    path = table(tmp_path / "m.csv", SMILES * 6)
    report = check_data(path, READING)
    assert any("bits set a sample" in finding.text for finding in report.findings)
    for form in ("fingerprints", "graphs"):
        data = load_data(path, Reading(smiles="SMILES", target="active", domain="scaffold", form=form))
        assert show_data(data, tmp_path / f"{form}.png").stat().st_size > 5_000


@needs_real_data
@pytest.mark.slow
def test_the_real_molecules_have_about_nineteen_thousand_scaffolds():
    data = load_data(REAL / "mol_hiv41127.csv.xz", Reading(smiles="SMILES", target="ACTIVE", domain="scaffold"))
    assert len(data) == 41_127
    assert 19_000 < len(data.domain_names) < 19_200
    assert data.targets.sum() == 1_443
