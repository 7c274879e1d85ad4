"""ChangeAlarm without river: what is heard of a row, and how a change is told."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gated_domains.data.errors import DataError
from gated_domains.insight.alarm import Alarm, ChangeAlarm, heard_of
from gated_domains.layer import GatedDomainUnits
from gated_domains.layer.gates import ProjectionGate


class EveryTenth:
    """A detector that fires at every tenth number."""

    def __init__(self, delta: float) -> None:
        self.delta, self.count = delta, 0

    @property
    def drift_detected(self) -> bool:
        return self.count % 10 == 0

    def update(self, x: float) -> None:
        self.count += 1


def units(**settings) -> GatedDomainUnits:
    torch.manual_seed(0)
    return GatedDomainUnits(3, 2, num_bases=4, **settings).fit_bases(torch.randn(80, 3))


# -- what is heard -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"coverage": False}, {"gate": ProjectionGate()}], ids=str)
def test_weights_of_each_row_alone_and_its_coverage_are_heard_and_lie_between_0_and_1(settings):
    layer, rows = units(**settings), 3 * torch.randn(50, 3)
    found = heard_of(layer, rows)
    assert found.shape == (50, 5)
    assert found.min() >= 0
    assert found.max() <= 1
    torch.testing.assert_close(found[:, :4].sum(1), torch.ones(50))
    torch.testing.assert_close(found[:, 4], layer.familiarity(rows))
    torch.testing.assert_close(found[7:8], heard_of(layer, rows[7:8]))
    if not settings:
        torch.testing.assert_close(found[:, :4], layer.evaluate(rows).beta)


def test_a_basis_out_of_use_is_not_heard_and_the_others_keep_their_names():
    layer = units()
    layer.active[1] = False
    assert ChangeAlarm(layer, detector=EveryTenth).signals == ["gate 1", "gate 3", "gate 4", "coverage"]
    assert heard_of(layer, torch.randn(6, 3)).shape == (6, 4)


def test_delta_is_shared_among_the_detectors():
    made: list[float] = []
    ChangeAlarm(units(), delta=0.1, detector=lambda delta: made.append(delta) or EveryTenth(delta))
    assert made == pytest.approx([0.02] * 5)


# -- what is told ------------------------------------------------------------------------------------------------------


class AtRow:
    """A detector that fires at one row of its life."""

    def __init__(self, row: int) -> None:
        self.row, self.count = row, 0

    @property
    def drift_detected(self) -> bool:
        return self.count == self.row + 1

    def update(self, x: float) -> None:
        self.count += 1


def change_by_a_loop(values: np.ndarray) -> tuple[int, float, float]:
    """Where the means before and after differ most, with at least 5 rows after, among the last 256."""
    best = (-1.0, 0, 0.0, 0.0)
    for cut in range(max(1, len(values) - 256), len(values) - 4):
        before, after = values[:cut].mean(), values[cut:].mean()
        size = cut * (len(values) - cut) * (before - after) ** 2 / len(values)
        best = max(best, (size, cut, before, after))
    return best[1:]


@pytest.mark.parametrize(("at", "switch", "parts"), [(59, 40, 7), (59, 40, 60), (899, 880, 32), (299, 150, 300)])
def test_a_change_is_told_by_the_signal_that_moved_most_and_from_where_its_means_differ_most(at, switch, parts):
    rng = np.random.default_rng(at)
    values = 0.3 + 0.05 * rng.standard_normal((at + 1, 5))
    values[switch:, 2] += 0.4
    values[switch:, 1] -= 0.1
    alarm = ChangeAlarm(units(), detector=lambda delta: AtRow(at))
    for start in range(0, len(values), parts):
        alarm.hear(values[start : start + parts])
    (found,) = alarm.raised
    since, before, after = change_by_a_loop(values[:, 2])
    assert (found.row, found.signal, found.since) == (at, "gate 3", since)
    assert (found.before, found.after) == pytest.approx((before, after))
    assert since == switch
    assert alarm.rows == at + 1


def test_after_an_alarm_it_listens_anew_and_goes_on_counting():
    values = np.random.default_rng(0).random((35, 5))
    whole, parts = (ChangeAlarm(units(), detector=EveryTenth) for _ in range(2))
    whole.hear(values)
    for part in np.array_split(values, 4):
        parts.hear(part)
    assert [found.row for found in whole.raised] == [9, 19, 29]
    assert parts.raised == whole.raised
    # Told of the rows since the alarm before, and of no others.
    by_signal = [change_by_a_loop(values[10:20, signal]) for signal in range(5)]
    since, before, after = max(by_signal, key=lambda change: abs(change[2] - change[1]))
    found = whole.raised[1]
    assert (found.since, found.before, found.after) == pytest.approx((10 + since, before, after))


def test_a_change_is_a_sentence():
    assert str(Alarm(1_812, "gate 3", 0.12, 0.554, 1_790)) == "gate 3 rose from 12% to 55% in the last 23 rows"
    assert str(Alarm(9, "coverage", 0.9, 0.2, 0)) == "coverage fell from 90% to 20% in the last 10 rows"


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 3.0])
def test_a_delta_that_is_no_probability_is_refused(delta):
    with pytest.raises(DataError, match=rf"between 0 and 1, got {delta:g}"):
        ChangeAlarm(units(), delta=delta, detector=EveryTenth)
