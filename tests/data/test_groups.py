"""Groups against loops: which rows fall together, by domains or by columns, and how they are numbered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gated_domains.data.batches import DomainBatch, place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import FeatureEncoding
from gated_domains.data.errors import DataError
from gated_domains.data.labels import groups_among
from gated_domains.data.sampling import DomainBlocks, InOrder

ROWS = 60
RNG = np.random.default_rng(0)
CITY, YEAR = RNG.choice(["Bern", "Oslo", "Rome"], ROWS), RNG.choice([2019, 2020], ROWS)
DATA = replace(
    DomainDataset.from_arrays(RNG.normal(size=(ROWS, 2)), np.arange(ROWS) % 2, np.arange(ROWS) % 4),
    metadata={"city": CITY, "year": YEAR},
)


def test_without_columns_groups_are_the_domains_that_have_rows():
    rows = np.flatnonzero(DATA.domains != 1)
    groups = groups_among(DATA, rows)
    assert groups.names == ("0", "2", "3")
    assert groups.sizes == (15, 15, 15)
    assert set(groups.index[DATA.domains == 1]) == {-1}
    for row in rows:
        assert groups.names[groups.index[row]] == DATA.domain_names[DATA.domains[row]]


@pytest.mark.parametrize("by", [("city",), ("city", "year"), ("domain", "class"), ("year", "domain", "class")])
def test_columns_make_a_group_of_each_combination_that_occurs(by):
    rows = np.arange(10, 50)
    columns = {
        "city": CITY,
        "year": YEAR.astype(str),
        "domain": np.array(DATA.domain_names)[DATA.domains],
        "class": np.array(DATA.class_names)[DATA.targets],
    }
    said = [", ".join(columns[name][row] for name in by) for row in range(ROWS)]
    groups = groups_among(DATA, rows, by)
    assert set(groups.names) == {said[row] for row in rows}
    assert groups.sizes == tuple(sum(said[row] == name for row in rows) for name in groups.names)
    for row in range(ROWS):
        found = groups.index[row]
        assert said[row] == groups.names[found] if found >= 0 else said[row] not in groups.names


def test_data_without_domains_have_no_groups_but_by_columns():
    bare = replace(DATA, domains=None, domain_names=())
    assert groups_among(bare, np.arange(ROWS)) is None
    assert len(groups_among(bare, np.arange(ROWS), ("city",))) == 3
    with pytest.raises(DataError, match=r"no domains to group by.*--domain"):
        groups_among(bare, np.arange(ROWS), ("domain",))


def test_a_column_that_is_not_there_is_refused_with_the_nearest_and_the_cure():
    with pytest.raises(DataError, match=r"no column 'citty' to group by.*'city'.*--metadata"):
        groups_among(DATA, np.arange(ROWS), ("citty",))


def test_numbers_to_predict_are_no_classes():
    numbers = DomainDataset.from_arrays(np.eye(20), np.linspace(0, 1, 20), np.arange(20) % 2, task="regression")
    with pytest.raises(DataError, match="no classes to group by"):
        groups_among(numbers, np.arange(20), ("class",))


def test_a_column_that_is_different_in_every_row_is_refused():
    alone = replace(DATA, metadata={"patient": np.arange(ROWS)})
    with pytest.raises(DataError, match="60 groups of 60 rows"):
        groups_among(alone, np.arange(ROWS), ("patient",))


def test_batches_carry_groups_in_place_of_domains_and_the_blocks_they_fall_into():
    rows = np.arange(ROWS)
    groups = groups_among(DATA, rows, ("city",))
    sampler = DomainBlocks(rows, groups.index, 12, blocks=3, seed=0)
    samples = place(DATA, FeatureEncoding(2))
    for batch in samples.batches(sampler, groups=torch.from_numpy(groups.index)):
        assert batch.blocks == 3
        assert [len(set(part.domains.tolist())) for part in batch.parts()] == [1, 1, 1]
        assert torch.equal(torch.cat([part.inputs for part in batch.parts()]), batch.inputs)
        assert torch.equal(torch.cat([part.targets for part in batch.parts()]), batch.targets)
        assert batch.without_domains().blocks is None


def test_without_blocks_the_parts_are_the_rows_of_each_domain():
    batch = next(iter(place(DATA, FeatureEncoding(2)).batches(InOrder(np.arange(10), 10))))
    parts = batch.parts()
    assert [part.domains.tolist() for part in parts] == [[0, 0, 0], [1, 1, 1], [2, 2], [3, 3]]
    assert parts[1].inputs.tolist() == batch.inputs[[1, 5, 9]].tolist()
    alone = DomainBatch(batch.inputs, batch.targets, None)
    assert alone.parts() == [alone]
