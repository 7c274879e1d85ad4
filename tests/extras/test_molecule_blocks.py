"""A column of SMILES in parts: the same molecules, scaffolds and faults as at once, with rows of the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gated_domains.data import Reading, Schema, blocks, fit_encoding, load_data, read_like, schema_of
from gated_domains.data.blocks import blocks_like
from gated_domains.data.errors import DataError

pytestmark = [pytest.mark.extras, pytest.mark.usefixtures("without_shape_checks")]

SMILES = ["CCO", "c1ccccc1O", "CC(=O)O", "C1CCCCC1N", "CCN", "c1ccccc1C"] * 3


@pytest.fixture
def schema(tmp_path, monkeypatch) -> Schema:
    pytest.importorskip("rdkit")
    monkeypatch.setenv("GATED_DOMAINS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(blocks, "LARGE", 0)
    rows = [f"{smiles},{row % 2}" for row, smiles in enumerate(SMILES)]
    path = written(tmp_path / "train.csv", ["smiles,y", *rows])
    data = load_data(path, Reading(target="y", smiles="smiles", domain="scaffold"))
    return schema_of(data, fit_encoding(data, np.arange(len(data))))


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_molecules_and_scaffolds_are_the_same_in_parts(tmp_path, schema):
    path = written(tmp_path / "new.csv", ["smiles", *SMILES])
    whole, parts = read_like(path, schema, targets=False), list(blocks_like(path, schema, rows=5))
    assert [len(part) for part in parts] == [5, 5, 5, 3]
    read = [schema.encoding.prepare(data.inputs).read(np.arange(len(data))) for data in (*parts, whole)]
    np.testing.assert_array_equal(np.concatenate(read[:-1]), read[-1])
    names = [[data.domain_names[place] for place in data.domains] for data in (*parts, whole)]
    assert [name for part in names[:-1] for name in part] == names[-1]


def test_what_is_no_molecule_is_named_with_its_row_in_the_file(tmp_path, schema):
    path = written(tmp_path / "new.csv", ["smiles", *SMILES[:7], "nothing", *SMILES[7:], "nor this"])
    said = []
    for read in (lambda: read_like(path, schema, targets=False), lambda: list(blocks_like(path, schema, rows=5))):
        with pytest.raises(DataError, match=r"column 'smiles': row 8, line 9 .* .such rows: 2") as caught:
            read()
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_a_note_on_a_doubtful_molecule_names_its_row_in_the_file(tmp_path, schema):
    path = written(tmp_path / "new.csv", ["smiles", *SMILES[:7], "CN(C)(C)(C)C", *SMILES[7:]])
    notes = [note for part in blocks_like(path, schema, rows=5) for note in part.notes]
    assert len(notes) == 1
    assert "the first, in row 8, is" in notes[0]
