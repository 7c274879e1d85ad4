"""Means by domain against a slow loop, whichever domains a batch has and whatever precision surrounds them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

import oracles
from domain_problems import whole
from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.methods.by_domain import (
    average,
    domain_means,
    domains_of,
    membership,
    over_processes,
    rows_of_all,
)
from gated_domains.methods.method import total
from small_trainings import build, vectors


@given(domains=st.lists(st.integers(0, 3), min_size=1, max_size=12), seed=st.integers(0, 1_000))
def test_means_are_those_of_each_domain_and_zero_where_it_has_no_rows(domains, seed):
    values = torch.randn(len(domains), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = domain_means(values, torch.tensor(domains), 5)
    slow = oracles.domain_risks(values.tolist(), domains)
    oracles.assert_matches(found.means, [slow.get(domain, 0.0) for domain in range(5)])
    assert found.counts.tolist() == [domains.count(domain) for domain in range(5)]
    assert found.present.tolist() == [float(domain in domains) for domain in range(5)]


def test_values_of_any_shape_keep_it():
    values, domains = torch.randn(7, 2, 3), torch.tensor([0, 1, 0, 0, 1, 1, 0])
    found = domain_means(values, domains, 3)
    assert found.means.shape == (3, 2, 3)
    torch.testing.assert_close(found.means[1], values[domains == 1].mean(0))
    assert found.means[2].abs().max() == 0


def test_gradients_flow_to_every_row_as_its_share_of_the_mean():
    values, domains = torch.randn(5, requires_grad=True), torch.tensor([2, 0, 2, 2, 0])
    (domain_means(values, domains, 3).means @ torch.tensor([1.0, 5.0, 6.0])).backward()
    assert values.grad.tolist() == pytest.approx([2, 0.5, 2, 2, 0.5])


def test_half_precision_around_them_does_not_touch_means():
    values, domains = 1 + torch.rand(600) / 100, torch.arange(600) % 2
    with torch.autocast("cpu", torch.bfloat16):
        found = domain_means(values, domains, 2)
    assert found.means.dtype == torch.float32
    torch.testing.assert_close(found.means, torch.stack([values[::2].mean(), values[1::2].mean()]))


def test_numbers_in_half_precision_are_summed_in_full():
    values, domains = torch.full((2000,), 1.0, dtype=torch.bfloat16), torch.zeros(2000, dtype=torch.int64)
    found = domain_means(values, domains, 1)
    assert (found.means.tolist(), found.counts.tolist()) == ([1.0], [2000.0])


def test_the_average_leaves_out_the_domains_it_is_told_to():
    values = torch.tensor([1.0, 2.0, 6.0])
    assert float(average(values, torch.tensor([1.0, 0.0, 1.0]))) == 3.5
    assert float(average(values, torch.zeros(3))) == 0


def test_membership_is_one_in_a_row_s_own_column():
    found = membership(torch.tensor([1, 0, 2]), 3, like=torch.zeros((), dtype=torch.float64))
    assert found.dtype == torch.float64
    assert found.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]


def test_one_process_alone_has_all_sums_and_rows_already():
    values = torch.randn(3, 2)
    assert over_processes(values) is values
    assert rows_of_all(values) is values


def test_a_batch_without_domains_is_refused():
    batch = whole(vectors(30))
    assert domains_of(batch) is batch.domains
    with pytest.raises(DataError, match="whose domains are known"):
        domains_of(batch.without_domains())


@pytest.mark.parametrize("blocks", [None, 2])
@pytest.mark.parametrize("name", ["coral", "irm", "group-dro", "cgd"])
def test_no_step_asks_for_a_value_so_that_a_gpu_can_record_it(name, blocks):
    """Tensors without values: whatever asks for one, or for a shape that hangs on one, raises."""
    dataset = vectors(60)
    with FakeTensorMode():
        method = build(name, dataset)
        domains = torch.empty(8, dtype=torch.int64)
        batch = DomainBatch(torch.empty(8, 6), torch.empty(8, dtype=torch.int64), domains, blocks)
        total(method.objective(batch)).backward()
    assert all(parameter.grad is not None for parameter in method.parameters())
