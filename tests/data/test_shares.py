"""Shares of a batch under several processes: together they are the batch, and no process waits for another."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gated_domains.data.batches import place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import FeatureEncoding
from gated_domains.data.errors import DataError
from gated_domains.data.sampling import DomainBalanced, DomainBlocks, InOrder, Sampler, Shared, Shuffled

ROWS = np.arange(100, 143)


def parts(sampler: Sampler, world: int, epoch: int = 0, *, uneven: bool = False) -> list[list[np.ndarray]]:
    """The batches of every rank; each rank says how many there are."""
    found = []
    for rank in range(world):
        share = Shared(sampler, rank, world, uneven=uneven)
        found.append(list(share.batches(epoch)))
        assert len(share) == len(found[-1])
    return found


@given(st.integers(1, 5), st.integers(0, 3), st.sampled_from([12, 60]))
def test_the_parts_of_a_batch_are_equal_and_together_the_batch(world, epoch, batch_size):
    samplers = [
        Shuffled(ROWS, batch_size, seed=3),
        DomainBalanced(ROWS, np.arange(200) % 3, batch_size, seed=3),
        InOrder(ROWS[:36], batch_size),
    ]
    for sampler in samplers:
        ranks = parts(sampler, world, epoch)
        for whole, *mine in zip(sampler.batches(epoch), *ranks, strict=True):
            assert {len(part) for part in mine} == {len(whole) // world}
            kept = len(whole) - len(whole) % world
            assert sorted(np.concatenate(mine)) == sorted(whole[:kept])


def test_blocks_are_shared_block_by_block():
    sampler = DomainBlocks(ROWS, np.arange(200) % 3, 24, blocks=3, seed=3)
    ranks = parts(sampler, 3)  # 8 rows a block: 2 for each of the three, and 2 left out
    assert Shared(sampler, 0, 3).blocks == 3
    for whole, *mine in zip(sampler.batches(0), *ranks, strict=True):
        for block in range(3):
            shares = [part.reshape(3, 2)[block] for part in mine]
            assert sorted(np.concatenate(shares)) == sorted(whole.reshape(3, 8)[block, :6])


def test_a_block_with_fewer_rows_than_processes_is_refused_with_the_cure():
    sampler = DomainBlocks(ROWS, np.arange(200) % 3, 3, blocks=3, seed=0)
    with pytest.raises(DataError, match="a domain's block of 1 rows cannot be shared by 2 processes"):
        next(Shared(sampler, 0, 2).batches())


def test_one_process_alone_has_every_batch_whole():
    sampler = Shuffled(ROWS, 8, seed=0)
    (mine,) = parts(sampler, 1, 2)
    for part, whole in zip(mine, sampler.batches(2), strict=True):
        assert part.tolist() == whole.tolist()


def test_a_batch_with_fewer_rows_than_processes_is_refused_with_the_cure():
    share = Shared(InOrder(ROWS[:9], 8), 0, 2)
    with pytest.raises(DataError, match="a batch of 1 rows cannot be shared by 2 processes; choose a larger batch"):
        list(share.batches())


@pytest.mark.parametrize(("rank", "world"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_outside_the_processes_is_refused(rank, world):
    with pytest.raises(DataError, match=f"rank must be 0 to {world - 1}.*got {rank}"):
        Shared(InOrder(ROWS, 8), rank, world)


@given(st.integers(1, 7), st.integers(1, 43), st.integers(1, 50))
def test_uneven_parts_hold_every_row_once_and_are_never_empty(world, count, batch_size):
    ranks = parts(InOrder(ROWS[:count], batch_size), world, uneven=True)
    batches = [batch for rank in ranks for batch in rank]
    assert all(len(batch) for batch in batches)
    assert sorted(np.concatenate(batches)) == ROWS[:count].tolist()
    assert max(map(len, batches)) <= -(-min(batch_size, count) // world)


SAMPLES = DomainDataset.from_arrays(np.arange(22.0).reshape(11, 2), np.arange(11) % 2, np.arange(11) % 3)


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("world", [1, 2, 4, 13])
def test_every_sample_is_evaluated_once_by_some_process(world, resident):
    samples = place(SAMPLES, FeatureEncoding(2), resident=resident)
    rows, inputs = [], []
    for rank in range(world):
        share = Shared(InOrder(np.arange(11), 5), rank, world, uneven=True)
        rows += [row for batch in share.batches() for row in batch]
        inputs += [batch.inputs for batch in samples.batches(share)]
    order = np.argsort(rows)
    assert sorted(rows) == list(range(11))
    torch.testing.assert_close(torch.cat(inputs)[torch.from_numpy(order)], torch.arange(22.0).reshape(11, 2))


def test_a_process_without_a_row_gets_no_batch():
    samples = place(SAMPLES, FeatureEncoding(2))
    share = Shared(InOrder(np.arange(3), 5), 3, 4, uneven=True)
    assert len(share) == 0
    assert list(samples.batches(share)) == []
