"""What the fallback to the shared expert is worth, inside the span and outside."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gated_domains.data.errors import DataError
from gated_domains.insight.shift.fallback import covered, fallback
from gated_domains.layer.units import GatedDomainUnits


@pytest.fixture
def units() -> GatedDomainUnits:
    made = GatedDomainUnits(3, 2, num_bases=2, coverage=True)
    made.fit_bases(torch.randn(300, 3))
    with torch.no_grad():
        for parameter in made.experts.parameters():
            parameter.normal_()
    return made


def shared_alone(units: GatedDomainUnits, x: torch.Tensor) -> torch.Tensor:
    return units.shared(x).squeeze(-2)


def test_with_coverage_0_everywhere_the_shared_expert_is_alone(units):
    x = torch.randn(20, 3)
    assert not torch.allclose(units(x), shared_alone(units, x))
    with covered(units, everywhere=False):
        torch.testing.assert_close(units(x), shared_alone(units, x))


def test_with_coverage_1_everywhere_nothing_falls_back(units):
    far = torch.randn(20, 3) + 30
    torch.testing.assert_close(units(far), shared_alone(units, far))
    with covered(units, everywhere=True):
        out = units.evaluate(far)
        assert bool((out.coverage == 1).all())
        assert not torch.allclose(out.prediction, shared_alone(units, far))


def test_outside_samples_get_what_the_shared_expert_says(units):
    x = torch.cat([torch.randn(20, 3), torch.randn(5, 3) + 30])
    out = units.evaluate(x)
    outside = out.coverage == 0
    assert 5 <= int(outside.sum()) < 15
    torch.testing.assert_close(out.prediction[outside], shared_alone(units, x)[outside])


@pytest.mark.parametrize("covers", [True, False])
def test_after_the_block_all_is_as_it_was_even_after_an_error(units, covers):
    units.applies_coverage = covers
    x = torch.randn(20, 3)
    before, state = units(x), {name: value.clone() for name, value in units.state_dict().items()}
    with pytest.raises(RuntimeError, match="in the block"), covered(units, everywhere=False):
        raise RuntimeError("in the block")
    assert units.applies_coverage is covers
    assert all(torch.equal(value, state[name]) for name, value in units.state_dict().items())
    torch.testing.assert_close(units(x), before)


def test_units_that_do_not_fall_back_can_be_asked_what_it_would_be_like(units):
    units.applies_coverage = False
    x = torch.randn(20, 3)
    with covered(units, everywhere=False):
        torch.testing.assert_close(units(x), shared_alone(units, x))


def test_without_a_shared_expert_there_is_nothing_to_fall_back_to():
    with pytest.raises(DataError, match="no shared expert"), covered(GatedDomainUnits(3, 2, shared=False), True):
        pass


def test_scores_are_those_of_each_way_inside_and_outside(units):
    x = torch.cat([torch.randn(30, 3), torch.randn(10, 3) + 30])
    outside = (units.familiarity(x) == 0).numpy()
    with covered(units, everywhere=False):
        targets = units(x).argmax(1).numpy()  # so that the shared expert is always right
    inside, beyond = fallback(units, lambda: units(x).detach().numpy(), targets, outside)
    assert (inside.rows, beyond.rows) == (int((~outside).sum()), int(outside.sum()))
    assert (inside.always, beyond.always, beyond.gated) == (1, 1, 1)
    with covered(units, everywhere=True):
        right = units(x).argmax(1).numpy() == targets
    assert inside.never == pytest.approx(right[~outside].mean())
    assert beyond.never == pytest.approx(right[outside].mean())
    assert not right.all()
    assert inside.gated == pytest.approx((units(x).argmax(1).numpy() == targets)[~outside].mean())


def test_where_nothing_is_outside_there_is_no_score(units):
    x, targets = torch.randn(10, 3), np.zeros(10, np.int64)
    inside, beyond = fallback(units, lambda: units(x).detach().numpy(), targets, np.zeros(10, bool))
    assert (inside.rows, beyond.rows) == (10, 0)
    assert np.isnan(beyond.gated)
    assert not np.isnan(inside.gated)


def test_marks_of_other_rows_are_refused(units):
    x = torch.randn(10, 3)
    with pytest.raises(DataError, match=r"10 predictions \(gated\), 10 targets and 9 marks"):
        fallback(units, lambda: units(x).detach().numpy(), np.zeros(10, np.int64), np.zeros(9, bool))
