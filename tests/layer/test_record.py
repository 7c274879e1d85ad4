"""``record()``: what forward found, inside the block and nowhere else."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from gated_domains.layer import GatedDomainUnits, ProjectionGate


@pytest.fixture
def head():
    return GatedDomainUnits(4, 2, lambda_l1=0.1, lambda_entropy=0.2, lambda_orth=0.3, gate=ProjectionGate())


def test_only_calls_inside_the_block_are_recorded(head):
    head(torch.randn(3, 4))
    with head.record() as outs:
        assert outs == []
        prediction = head(torch.randn(5, 4))
    head(torch.randn(7, 4))
    assert len(outs) == 1
    assert outs[0].prediction is prediction
    assert outs[0].beta.shape == (5, 5)


def test_calls_are_recorded_in_their_order(head):
    with head.record() as outs:
        for rows in (1, 2, 3):
            head(torch.randn(rows, 4))
    assert [len(out.prediction) for out in outs] == [1, 2, 3]


def test_evaluate_is_not_recorded_as_it_returns_everything_already(head):
    with head.record() as outs:
        head.evaluate(torch.randn(3, 4))
    assert outs == []


def test_a_head_deep_in_a_model_is_recorded(head):
    model = nn.Sequential(nn.Linear(6, 4), nn.Sequential(nn.ReLU(), head))
    with head.record() as outs:
        logits = model(torch.randn(3, 6))
    assert outs[0].prediction is logits


def test_an_inner_block_sees_its_own_calls_and_the_outer_one_all(head):
    with head.record() as outer:
        head(torch.randn(1, 4))
        with head.record() as inner:
            head(torch.randn(2, 4))
        head(torch.randn(3, 4))
    assert [len(out.prediction) for out in outer] == [1, 2, 3]
    assert [len(out.prediction) for out in inner] == [2]


def test_blocks_that_end_in_the_wrong_order_do_not_disturb_each_other(head):
    first, second = head.record(), head.record()
    outs, others = first.__enter__(), second.__enter__()
    first.__exit__(None, None, None)
    head(torch.randn(2, 4))
    second.__exit__(None, None, None)
    head(torch.randn(2, 4))
    assert (len(outs), len(others)) == (0, 1)


def test_an_exception_ends_the_recording_of_its_block_alone(head):
    with head.record() as outs:
        head(torch.randn(2, 4))
        with pytest.raises(ValueError, match="width 4"), head.record():
            head(torch.randn(2, 5))
        assert len(head._records) == 1
    head(torch.randn(2, 4))
    assert len(outs) == 1
    assert head._records == []


def test_a_copy_made_before_the_block_is_not_recorded(head):
    twin = copy.deepcopy(head)
    with head.record() as outs:
        twin(torch.randn(2, 4))
    assert outs == []


def test_a_copy_made_inside_the_block_works_and_records_nothing(head):
    with head.record() as outs:
        head(torch.randn(2, 4))
        twin = copy.deepcopy(head)
        twin(torch.randn(2, 4))
    assert len(outs) == 1
    assert twin._records == []


def test_a_head_can_be_pickled_after_recording(head):
    with head.record():
        head(torch.randn(2, 4))
    x = torch.randn(3, 4)
    assert torch.equal(pickle.loads(pickle.dumps(head))(x), head(x))


def test_penalties_through_a_record_are_those_through_evaluate(head):
    x = torch.randn(6, 4)
    with head.record() as outs:
        head(x)
    recorded, evaluated = head.penalty(outs[-1]), head.penalty(head.evaluate(x))
    assert recorded > 0
    assert torch.equal(recorded, evaluated)
    (ours,) = torch.autograd.grad(recorded, head.bases)
    (theirs,) = torch.autograd.grad(evaluated, head.bases)
    assert ours.abs().max() > 0
    assert torch.equal(ours, theirs)


def test_penalties_of_a_lone_row_reach_the_bases_too(head):
    with head.record() as outs:
        head(torch.randn(4))
    head.penalty(outs[-1]).backward()
    assert head.bases.grad.abs().max() > 0


def test_recording_leaves_no_trace_in_the_state_dict(head):
    names = set(head.state_dict())
    with head.record():
        head(torch.randn(2, 4))
        assert set(head.state_dict()) == names
