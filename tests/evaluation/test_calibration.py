"""The temperature is where a fine grid finds the least log loss; no class changes by it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from gated_domains.data.errors import DataError
from gated_domains.evaluation import METRICS, fit_temperature, score_by_domain, tempered
from gated_domains.evaluation.calibration import COLDEST, HOTTEST


def overconfident(rows: int = 400, *, by: float = 3.0, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Probabilities that are right about themselves, then made surer than they are; the truth drawn from the first."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes))
    honest = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    targets = np.array([rng.choice(classes, p=row) for row in honest])
    surer = np.exp(by * logits) / np.exp(by * logits).sum(axis=1, keepdims=True)
    return surer.astype(np.float32), targets


def loss_at(temperature: float, output: np.ndarray, targets: np.ndarray) -> float:
    """A loop, from the formula."""
    total = 0.0
    for row, label in zip(output.tolist(), targets.tolist(), strict=True):
        scaled = [math.log(max(p, float(np.finfo(np.float32).tiny))) / temperature for p in row]
        top = max(scaled)
        total += top + math.log(sum(math.exp(value - top) for value in scaled)) - scaled[label]
    return total / len(targets)


@pytest.mark.parametrize("by", [0.4, 1.0, 3.0, 8.0])
def test_the_temperature_has_the_least_loss_of_a_grid(by: float) -> None:
    output, targets = overconfident(by=by)
    found = fit_temperature(output, targets)
    grid = [found * (1 + step / 100) for step in range(-30, 31)]
    assert min(grid, key=lambda t: loss_at(t, output, targets)) == pytest.approx(found)


def test_it_undoes_what_made_them_too_sure() -> None:
    output, targets = overconfident(rows=4_000, by=3.0)
    assert fit_temperature(output, targets) == pytest.approx(3.0, rel=0.1)


def test_a_second_fit_finds_nothing_to_do() -> None:
    output, targets = overconfident()
    again = tempered(output.astype(np.float64), fit_temperature(output, targets))
    assert fit_temperature(again, targets) == pytest.approx(1.0, rel=1e-4)


def test_scipy_finds_the_same_by_search() -> None:
    output, targets = overconfident()
    found = optimize.minimize_scalar(loss_at, bounds=(0.5, 10), args=(output, targets), method="bounded")
    assert fit_temperature(output, targets) == pytest.approx(found.x, rel=1e-4)


@given(temperature=st.floats(0.05, 20.0), seed=st.integers(0, 50))
def test_no_class_changes_and_rows_sum_to_one(temperature: float, seed: int) -> None:
    output = overconfident(20, seed=seed)[0].astype(np.float64)
    found = tempered(output, temperature)
    np.testing.assert_array_equal(found.argmax(axis=1), output.argmax(axis=1))
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


def test_at_temperature_one_nothing_changes_to_the_last_bit() -> None:
    output, _ = overconfident()
    assert tempered(output, 1.0) is output


def test_heat_takes_certainty_away_and_cold_gives_it() -> None:
    output, _ = overconfident(50)
    assert (tempered(output, 2.0).max(axis=1) < output.max(axis=1)).all()
    assert (tempered(output, 0.5).max(axis=1) >= output.max(axis=1)).all()


def test_the_precision_stays_that_of_the_input() -> None:
    output, _ = overconfident(5)
    assert tempered(output, 2.0).dtype == np.float32
    assert tempered(output.astype(np.float64), 2.0).dtype == np.float64


def test_probabilities_of_nothing_and_all_are_no_trouble() -> None:
    output = np.eye(3, dtype=np.float32)[[0, 1, 2, 0, 1, 2, 0, 1]]
    targets = np.array([0, 1, 2, 0, 1, 2, 0, 2])  # one sure and wrong
    found = fit_temperature(output, targets)
    assert 1 < found <= HOTTEST
    after = tempered(output, found)
    assert np.isfinite(after).all()
    assert loss_at(1.0, after, targets) < loss_at(1.0, output, targets) / 5


def test_rows_that_are_all_right_do_not_tell_how_sure_to_be() -> None:
    output, _ = overconfident(50)
    assert fit_temperature(output, output.argmax(axis=1)) == 1.0


def test_rows_that_are_all_wrong_end_at_the_hottest() -> None:
    output, _ = overconfident(50)
    assert fit_temperature(output, output.argmin(axis=1)) == HOTTEST


def test_the_coldest_is_an_end_too() -> None:
    output = np.full((200, 2), 0.5)
    output[:, 0] += 1e-4
    output[:, 1] -= 1e-4
    targets = np.zeros(200, int)
    targets[0] = 1
    assert fit_temperature(output, targets) == COLDEST


def test_calibrated_probabilities_have_the_smaller_calibration_error() -> None:
    output, targets = overconfident(rows=3_000)
    fresh, truth = overconfident(rows=3_000, seed=1)
    before, after = (
        score_by_domain(given, truth, domains=None, domain_names=(), metric=METRICS["ece"]).overall
        for given in (fresh, tempered(fresh, fit_temperature(output, targets)))
    )
    assert after < 0.2 * before


@pytest.mark.parametrize(
    ("output", "targets", "message"),
    [
        (np.ones((3, 1)), np.ones(3), "nothing to calibrate where a number is predicted"),
        (np.ones((0, 2)), np.zeros(0, int), "got 0 and 0"),
        (np.full((3, 2), 0.5), np.zeros(2, int), "got 3 and 2"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(output: np.ndarray, targets: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fit_temperature(output, targets)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_is_positive(temperature: float) -> None:
    with pytest.raises(DataError, match="must be positive"):
        tempered(np.full((1, 2), 0.5), temperature)
