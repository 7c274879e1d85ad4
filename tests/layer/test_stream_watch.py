"""A stream that somebody watches: every new row is shown once, in order, and nothing else changes."""

from __future__ import annotations

import pytest
import torch

from gated_domains.layer import GatedDomainUnits, GateStream


def rows(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("size", [1, 5, 256])
def test_each_new_row_is_shown_once_in_order_whatever_the_window_forgets(size):
    shown: list[torch.Tensor] = []
    stream = GateStream(size, watch=shown.append)
    new = rows(20)
    for part in new.split([7, 1, 12]):
        stream.push(part)
    assert [len(part) for part in shown] == [7, 1, 12]
    assert torch.equal(torch.cat(shown), new)


def test_rows_are_shown_before_they_join_and_without_gradients():
    held: list[int] = []
    stream = GateStream(4, watch=lambda new: held.append(len(stream)) if not new.requires_grad else None)
    for _ in range(3):
        stream.push(rows(3).requires_grad_())
    assert held == [0, 3, 4]


def test_what_the_layer_says_is_the_same_to_the_bit():
    torch.manual_seed(0)
    head = GatedDomainUnits(3, 2, num_bases=3).fit_bases(rows(60))
    shown: list[torch.Tensor] = []
    plain, watched = GateStream(8, half_life=3.0), GateStream(8, half_life=3.0, watch=shown.append)
    for part in rows(30, 1).split(4):
        one, other = head.evaluate(part, gates=plain), head.evaluate(part, gates=watched)
        assert torch.equal(one.prediction, other.prediction)
        assert torch.equal(one.beta, other.beta)
    assert torch.equal(torch.cat(shown), rows(30, 1))


def test_rows_that_are_refused_are_not_shown():
    shown: list[torch.Tensor] = []
    stream = GateStream(watch=shown.append)
    stream.push(rows(2))
    with pytest.raises(ValueError, match="one stream serves one layer"):
        stream.push(torch.zeros(1, 4))
    assert len(shown) == 1
