"""Samplers against loops over batches: who is in each, how often, and the same again by seed and epoch."""

from __future__ import annotations

from collections import Counter
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gated_domains.data.errors import DataError
from gated_domains.data.sampling import (
    DomainBalanced,
    DomainBlocks,
    InOrder,
    Sampler,
    Shuffled,
    rows_a_domain,
    sampler_for,
)

ROWS = np.arange(100, 143)


def epoch(sampler: Sampler, number: int = 0) -> list[list[int]]:
    batches = list(sampler.batches(number))
    assert len(batches) == len(sampler)
    for batch in batches:
        assert batch.dtype == np.int64
        assert batch.ndim == 1
        assert len(batch) > 0
    return [batch.tolist() for batch in batches]


@given(st.integers(1, 60), st.integers(1, 70))
def test_in_order_gives_every_row_once_in_order(count, batch_size):
    batches = epoch(InOrder(np.arange(count) * 3, batch_size))
    assert [row for batch in batches for row in batch] == [3 * row for row in range(count)]
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert len(batches) == ceil(count / batch_size)


def test_in_order_is_the_same_in_every_epoch():
    assert epoch(InOrder(ROWS, 8), 0) == epoch(InOrder(ROWS, 8), 5)


@given(st.integers(1, 60), st.integers(1, 70), st.booleans())
def test_shuffled_gives_every_row_at_most_once_and_drops_a_short_batch_only_beside_others(count, batch_size, drop_last):
    batches = epoch(Shuffled(np.arange(count), batch_size, seed=1, drop_last=drop_last))
    rows = [row for batch in batches for row in batch]
    assert len(set(rows)) == len(rows)
    if drop_last and count > batch_size:
        assert {len(batch) for batch in batches} == {batch_size}
        assert count - len(rows) < batch_size
    else:
        assert sorted(rows) == list(range(count))


def test_over_epochs_every_row_has_its_turn_though_each_epoch_drops_some():
    sampler = Shuffled(ROWS, 8, seed=0)
    seen = {row for number in range(10) for batch in epoch(sampler, number) for row in batch}
    assert seen == set(ROWS.tolist())


DOMAINS = np.random.default_rng(0).choice(3, size=200, p=[0.7, 0.2, 0.1])


def makers():
    return {
        "plain": lambda seed: Shuffled(ROWS, 8, seed=seed),
        "balanced": lambda seed: DomainBalanced(ROWS, DOMAINS, 8, seed=seed),
        "groups": lambda seed: DomainBlocks(ROWS, DOMAINS, 8, blocks=2, seed=seed),
        "single": lambda seed: DomainBlocks(ROWS, DOMAINS, 8, blocks=1, seed=seed),
    }


@pytest.mark.parametrize("make", makers().values(), ids=makers())
def test_seed_and_epoch_alone_decide_so_that_resuming_is_exact(make):
    straight = [epoch(make(3), number) for number in range(4)]
    resumed = make(3)
    assert [epoch(resumed, number) for number in (2, 3)] == straight[2:]
    assert straight[0] != straight[1]
    assert epoch(make(4), 0) != straight[0]


@pytest.mark.parametrize("make", makers().values(), ids=makers())
def test_the_global_random_state_is_neither_read_nor_moved(make):
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    first = epoch(make(0))
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    assert epoch(make(0)) == first


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.integers(1, 50),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_balanced_batches_hold_equal_shares_and_use_all_rows_of_a_domain_before_any_again(sizes, size, seed, number):
    domains = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)) * 2, sizes))
    rows = np.arange(len(domains))
    sampler = DomainBalanced(rows, domains, size, seed=seed)
    batches = epoch(sampler, number)
    assert [len(batch) for batch in batches] == [len(batch) for batch in epoch(Shuffled(rows, size, seed=seed))]
    of_domain: dict[int, list[int]] = {domain: [] for domain in range(0, 2 * len(sizes), 2)}
    for batch in batches:
        shares = Counter(domains[row] for row in batch)
        counts = [shares[domain] for domain in of_domain]
        assert max(counts) - min(counts) <= 1
        for row in batch:
            of_domain[int(domains[row])].append(row)
    totals = [len(used) for used in of_domain.values()]
    assert max(totals) - min(totals) <= 1
    for domain, used in of_domain.items():
        all_of_it = set(np.flatnonzero(domains == domain).tolist())
        passes = [used[start : start + len(all_of_it)] for start in range(0, len(used), len(all_of_it))]
        for one in passes:
            assert len(set(one)) == len(one)
        for one in passes[:-1]:
            assert set(one) == all_of_it


def test_a_second_pass_through_a_domain_is_shuffled_anew():
    domains = np.repeat([0, 1], [20, 400])
    used = [row for batch in epoch(DomainBalanced(np.arange(420), domains, 20, seed=0)) for row in batch if row < 20]
    assert used[:20] != used[20:40]


def test_the_extra_rows_go_round_at_random():
    domains = np.arange(600) % 3
    batches = epoch(DomainBalanced(np.arange(600), domains, 8, seed=0))
    missed = [min(range(3), key=Counter(domains[batch].tolist()).get) for batch in map(np.array, batches)]
    assert set(Counter(missed).values()) <= {len(batches) // 3, len(batches) // 3 + 1}
    assert missed[:3] * 2 != missed[3:9]


def test_with_more_domains_than_places_in_a_batch_no_domain_comes_twice_in_one():
    domains = np.arange(700) % 7
    for batch in epoch(DomainBalanced(np.arange(700), domains, 5, seed=0)):
        assert len({row % 7 for row in batch}) == 5


def test_domains_are_mixed_inside_a_batch():
    batch = epoch(DomainBalanced(np.arange(200), np.repeat([0, 1], 100), 50, seed=0))[0]
    assert batch != sorted(batch, key=lambda row: row // 100)


def test_only_the_rows_asked_for_are_used_and_their_domains_looked_up():
    rows = np.flatnonzero(DOMAINS != 1)
    used = [row for batch in epoch(DomainBalanced(rows, DOMAINS, 10, seed=0)) for row in batch]
    assert set(used) <= set(rows.tolist())
    assert Counter(DOMAINS[used].tolist())[0] == Counter(DOMAINS[used].tolist())[2]


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=9),
    st.integers(1, 50),
    st.integers(1, 6),
    st.integers(0, 3),
)
def test_blocks_are_of_one_domain_and_one_size_and_no_domain_has_two_in_a_batch(sizes, size, blocks, seed):
    domains = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)) * 2, sizes))
    sampler = DomainBlocks(np.arange(len(domains)), domains, size, blocks=blocks, seed=seed)
    assert sampler.blocks == min(blocks, len(sizes), size)
    turns = []
    for batch in epoch(sampler):
        assert len(batch) <= max(size, 1)
        found = np.array(batch).reshape(sampler.blocks, -1)
        assert all(len({int(domains[row]) for row in block}) == 1 for block in found)
        turns.append([int(domains[block[0]]) for block in found])
        assert len(set(turns[-1])) == sampler.blocks
    used = Counter(domain for batch in turns for domain in batch)
    counts = [used[2 * domain] for domain in range(len(sizes))]
    assert max(counts) - min(counts) <= 1  # each once before any again


def test_a_domain_in_blocks_goes_through_all_its_rows_before_any_again():
    domains = np.repeat([0, 1], [10, 200])
    batches = epoch(DomainBlocks(np.arange(210), domains, 8, blocks=2, seed=0))
    used = [row for batch in batches for row in batch if row < 10]
    assert len(used) > 20
    assert sorted(used[:10]) == sorted(used[10:20]) == list(range(10))


def test_which_domain_has_which_block_changes():
    domains = np.arange(300) % 3
    first = [domains[batch[0]] for batch in epoch(DomainBlocks(np.arange(300), domains, 9, blocks=3, seed=0))]
    assert len(set(first)) == 3


SAMPLINGS = {"plain": None, "balanced": None, "groups": 4, "single": 1}


@pytest.mark.parametrize("name", SAMPLINGS)
def test_every_sampling_is_made_by_its_name(name):
    sampler = sampler_for(name, np.arange(32), domains=np.arange(40) % 4, batch_size=8, seed=0)
    assert len(sampler) == len(epoch(sampler)) == 4
    assert sampler.blocks == SAMPLINGS[name]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("sizes", [(30, 30, 30), (5, 40, 3, 12, 60), (4, 4, 4, 4, 4, 4), (90, 2)])
@pytest.mark.parametrize("repeat_rows", [True, False])
@pytest.mark.parametrize(("batch_size", "blocks"), [(12, 4), (24, 2), (200, 3), (2, 4)])
def test_the_rows_of_a_domain_in_a_batch_are_known_beforehand(sampling, sizes, repeat_rows, batch_size, blocks):
    domains = np.repeat(np.arange(len(sizes)), sizes)
    drawn = {"batch_size": batch_size, "blocks": blocks, "repeat_rows": repeat_rows}
    sampler = sampler_for(sampling, np.arange(len(domains)), domains=domains, seed=0, **drawn)
    (rows, *_) = epoch(sampler)
    expected = len(rows) // (sampler.blocks or len(sizes))
    assert rows_a_domain(sampling, sizes, **drawn) == max(1, expected)


def test_an_unknown_sampling_is_refused_with_the_nearest_known():
    with pytest.raises(DataError, match=r"no sampling 'singel'.*'single'"):
        sampler_for("singel", ROWS, domains=DOMAINS, batch_size=8, seed=0)


@pytest.mark.parametrize("make", [InOrder, lambda rows, size: Shuffled(rows, size, seed=0)])
def test_nonsense_is_refused(make):
    with pytest.raises(DataError, match=r"batch size.*0"):
        make(ROWS, 0)
    with pytest.raises(DataError, match="no rows"):
        make(ROWS[:0], 4)


def test_balanced_sampling_without_domains_is_refused_with_the_cure():
    with pytest.raises(DataError, match=r"domain.*--domain.*plain"):
        DomainBalanced(ROWS, None, 8, seed=0)
    with pytest.raises(DataError, match=r"batch size.*-1"):
        DomainBalanced(ROWS, DOMAINS, -1, seed=0)
    with pytest.raises(DataError, match="no rows"):
        DomainBalanced(ROWS[:0], DOMAINS, 8, seed=0)
    with pytest.raises(DataError, match=r"row 142.*50 domains"):
        DomainBalanced(ROWS, DOMAINS[:50], 8, seed=0)
    with pytest.raises(DataError, match=r"domain.*--domain.*plain"):
        DomainBlocks(ROWS, None, 8, blocks=2, seed=0)
    with pytest.raises(DataError, match="got 0 domains a batch"):
        DomainBlocks(ROWS, DOMAINS, 8, blocks=0, seed=0)


@pytest.mark.parametrize("make", makers().values(), ids=makers())
def test_a_negative_seed_or_epoch_is_refused(make):
    with pytest.raises(DataError, match=r"seed.*-2"):
        make(-2)
    with pytest.raises(DataError, match=r"epoch.*-1"):
        next(make(0).batches(-1))
