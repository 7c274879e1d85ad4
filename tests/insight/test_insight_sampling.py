"""The rows that are looked at: balanced over domains, few however many there are, the same each time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.splits import HoldOut, all_sources, hold_outs
from gated_domains.insight.sampling import MOST_SHOWN, OF_NO_DOMAIN, Limits, sample, shares
from small_trainings import vectors


def rows_of_sizes(sizes: list[int]) -> DomainDataset:
    domains = np.repeat(np.arange(len(sizes)), sizes)
    values = np.random.default_rng(0).normal(size=(len(domains), 2)).astype(np.float32)
    names = [f"site {number}" for number in range(len(sizes))]
    return DomainDataset.from_arrays(values, np.arange(len(domains)) % 2, domains, domain_names=names)


def split_of(dataset: DomainDataset, held_out: str) -> HoldOut:
    return hold_outs(dataset, [held_out])[0]


@pytest.mark.parametrize(
    ("sizes", "total", "wanted"),
    [([10, 10], 6, [3, 3]), ([2, 100, 100], 50, [2, 24, 24]), ([1, 2, 3], 100, [1, 2, 3]), ([5], 3, [3])],
)
def test_all_give_alike_and_what_a_small_one_lacks_others_make_up_for(sizes, total, wanted):
    assert shares(sizes, total) == wanted


def test_shown_rows_are_of_training_and_of_what_is_held_out_in_equal_numbers():
    dataset = rows_of_sizes([3_000, 2_000, 2_500])
    split = split_of(dataset, "site 1")
    found = sample(dataset, split)
    shown = found.origin[found.shown]
    assert np.bincount(found.shown_domains).tolist() == [400, 400, 400]
    assert found.domain_names == ("site 0", "site 2", "site 1")
    assert found.unseen.tolist() == [False, False, True]
    assert np.isin(shown[:800], split.train).all()
    assert np.isin(shown[800:], split.test).all()
    names = np.array(dataset.domain_names)[dataset.domains[shown]]
    assert (names == np.array(found.domain_names)[found.shown_domains]).all()


def test_never_more_rows_than_the_limits():
    found = sample(
        rows_of_sizes([3_000, 3_000]), split_of(rows_of_sizes([3_000, 3_000]), "site 1"), limits=Limits(70, 30)
    )
    assert len(found.shown) == MOST_SHOWN
    assert [len(part) for part in (found.compared, found.validation, found.held_out)] == [70, 30, 30]
    assert len(found.data) == len(found.origin) <= MOST_SHOWN + 130


def test_the_small_data_set_has_the_rows_where_it_says():
    dataset = rows_of_sizes([300, 300])
    split = split_of(dataset, "site 1")
    found = sample(dataset, split, limits=Limits(70, 30))
    for rows, part in (
        (found.compared, split.train),
        (found.validation, split.validation),
        (found.held_out, split.test),
    ):
        assert np.isin(found.origin[rows], part).all()
        np.testing.assert_array_equal(found.data.inputs.read(rows), dataset.inputs.read(found.origin[rows]))


def test_the_same_rows_are_drawn_again():
    one, other = (sample(vectors(900), split_of(vectors(900), "1"), limits=Limits(50, 20)) for _ in range(2))
    for name in ("origin", "shown", "compared", "validation", "held_out"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_of_very_many_domains_the_largest_are_shown_and_rows_of_the_others_are_of_none():
    dataset = rows_of_sizes([5 + number for number in range(40)])
    split = split_of(dataset, "+".join(f"site {number}" for number in range(0, 40, 4)))
    found = sample(dataset, split)
    sources = np.bincount(dataset.domains[split.train], minlength=40)
    assert int((~found.unseen).sum()) == 20
    assert int(found.unseen.sum()) == 5
    assert {f"site {number}" for number in np.argsort(-sources, kind="stable")[:20]} == set(found.domain_names[:20])
    assert set(found.domain_names[20:]) == {f"site {number}" for number in (36, 32, 28, 24, 20)}
    unlisted = found.compared_domains == OF_NO_DOMAIN
    assert unlisted.any()
    assert not np.isin(dataset.domains[found.origin[found.compared[unlisted]]], np.argsort(-sources)[:10]).any()


def test_without_domains_all_rows_are_of_one():
    dataset = replace(vectors(), domains=None, domain_names=())
    found = sample(dataset, all_sources(dataset, validation=0.2, seed=0))
    assert found.domain_names == ("all",)
    assert not found.unseen.any()
    assert len(found.held_out) == 0


def test_a_domain_on_both_sides_of_a_published_division_is_named_apart():
    dataset = vectors()
    split = replace(split_of(dataset, "2"), test=np.concatenate([dataset.rows_of("2"), dataset.rows_of("1")[:5]]))
    assert sample(dataset, split).domain_names == ("0", "1", "1 (held out)", "2")


def test_a_split_without_training_rows_is_refused():
    with pytest.raises(DataError, match="no training rows"):
        sample(vectors(), replace(split_of(vectors(), "2"), train=np.empty(0, np.int64)))
