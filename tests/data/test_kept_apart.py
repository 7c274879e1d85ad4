"""A source domain kept apart to select by: none of its rows trains, and nothing of the held-out domain selects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.splits import hold_outs, kept_apart

NAMES = ("a", "b", "c", "d")


def data(rows: int = 80) -> DomainDataset:
    rng = np.random.default_rng(0)
    return DomainDataset.from_arrays(
        rng.normal(size=(rows, 3)), np.arange(rows) // 4 % 2, np.arange(rows) % 4, domain_names=NAMES
    )


def split(dataset: DomainDataset, held_out: str | None, apart: str):
    return kept_apart(dataset, held_out, apart, validation=0.2, seed=0)


@pytest.mark.parametrize(("held_out", "apart"), [("a", "b"), ("a+c", "b"), ("b", "a+d"), (None, "c")])
def test_the_domain_kept_apart_selects_whole_and_all_other_source_rows_train(held_out, apart):
    dataset = data()
    found = split(dataset, held_out, apart)
    away = tuple(held_out.split("+")) if held_out else ()
    aside = tuple(apart.split("+"))
    assert found.held_out == away
    assert found.validation.tolist() == dataset.rows_of(*aside).tolist()
    assert found.test.tolist() == (dataset.rows_of(*away).tolist() if away else [])
    others = [name for name in NAMES if name not in (*away, *aside)]
    assert found.sources == tuple(others)
    assert found.train.tolist() == dataset.rows_of(*others).tolist()


def test_where_the_publisher_set_rows_aside_those_of_the_other_sources_are_used_nowhere():
    dataset = replace(data(), official_test=np.arange(80) % 5 == 0)
    found = split(dataset, "a", "b")
    assert not dataset.official_test[found.train].any()
    assert dataset.official_test[found.validation].all()
    assert found.test.tolist() == hold_outs(dataset, "a")[0].test.tolist()


def test_copies_of_rows_that_select_do_not_train():
    dataset = data()
    values = dataset.inputs.values.copy()
    values[2] = values[1]  # row 1 is of b, row 2 of c
    found = split(replace(dataset, inputs=type(dataset.inputs)(values)), "a", "b")
    assert 2 not in found.train
    assert 1 in found.validation
    assert found.left_out == 1


def test_a_domain_cannot_both_be_held_out_and_select():
    with pytest.raises(DataError, match="a cannot be held out and validated on"):
        split(data(), "a", "a+b")


def test_an_unknown_domain_is_refused_with_the_nearest_known():
    with pytest.raises(DataError, match="no domain 'e'"):
        split(data(), "a", "e")
