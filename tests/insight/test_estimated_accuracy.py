"""The accuracy at a new site, from confidence and coverage: learned on sources left out, its error measured there."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from gated_domains.data.errors import DataError
from gated_domains.insight.shift import AccuracyCalibration, LeftOut, accuracy, calibrate_accuracy, correctness


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def domain(name, *, rows=400, offset=-1.0, unfamiliar=0.0, coverage=True, seed=0):
    """Rows whose model is too sure by ``offset`` in logits, and by more where they are unfamiliar."""
    rng = np.random.default_rng(seed)
    logit = rng.uniform(0, 4, rows)
    covered = rng.uniform(0, 1, rows)
    right = sigmoid(logit + offset + unfamiliar * (1 - covered))
    return LeftOut(
        name=name,
        confidence=sigmoid(logit),
        coverage=covered if coverage else None,
        correct=rng.random(rows) < right,
    )


def domains(count=3, **given):
    return [domain(f"site {number}", seed=number, **given) for number in range(count)]


def test_the_weights_minimise_the_log_loss_of_domains_that_weigh_the_same():
    given = [domain("large", rows=900, seed=1), domain("small", rows=60, seed=2, offset=0.5)]

    def loss(weights):
        total = 0.5 * np.sum(np.array(correctness._RIDGE) * weights**2)
        for one in given:
            logit = np.log(one.confidence / (1 - one.confidence))
            p = sigmoid(logit + weights[0] + weights[1] * logit + weights[2] * (1 - one.coverage))
            total -= np.mean(np.where(one.correct, np.log(p), np.log(1 - p)))
        return total

    best = minimize(loss, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-12, "maxiter": 5_000})
    np.testing.assert_allclose(calibrate_accuracy(given).weights, best.x, atol=1e-4)


def test_a_model_that_is_too_sure_everywhere_is_estimated_better_than_by_its_confidence():
    calibration = calibrate_accuracy(domains())
    new = domain("new", seed=99)
    found = calibration.estimate(new.confidence, new.coverage)
    true = new.correct.mean()
    assert abs(found.raw - true) < 0.05 < abs(found.confidence - true)
    assert found.low <= true <= found.high
    assert found.confidence == pytest.approx(new.confidence.mean())
    assert found.error == pytest.approx(np.mean(np.abs(list(calibration.errors.values()))))


def test_a_model_as_sure_as_it_should_be_keeps_its_confidence():
    calibration = calibrate_accuracy(domains(offset=0.0))
    new = domain("new", offset=0.0, seed=99)
    found = calibration.estimate(new.confidence, new.coverage)
    assert found.raw == pytest.approx(found.confidence, abs=0.03)


def test_with_many_domains_what_coverage_tells_is_learned():
    calibration = calibrate_accuracy(domains(30, offset=0.0, unfamiliar=-2.0))
    assert calibration.weights[2] < -0.4
    half = np.full(200, 0.9)
    familiar, unfamiliar = (calibration.estimate(half, np.full(200, covered)).raw for covered in (1.0, 0.0))
    assert unfamiliar < familiar - 0.05


def test_each_domain_is_estimated_by_what_the_others_taught():
    given = domains(3)
    calibration = calibrate_accuracy(given)
    assert list(calibration.errors) == ["site 0", "site 1", "site 2"]
    others = calibrate_accuracy(given[1:]).estimate(given[0].confidence, given[0].coverage, most=1.0)
    assert calibration.errors["site 0"] == pytest.approx(others.raw - given[0].correct.mean())
    assert calibration.confidence_errors["site 0"] == pytest.approx(
        given[0].confidence.mean() - given[0].correct.mean()
    )


def test_the_order_of_domains_changes_nothing():
    given = domains(3)
    forth, back = calibrate_accuracy(given), calibrate_accuracy(given[::-1])
    np.testing.assert_allclose(forth.weights, back.weights, atol=1e-8)


def test_the_interval_of_three_domains_holds_the_truth_nine_times_out_of_ten():
    rng = np.random.default_rng(0)
    inside, widths = [], []
    for trial in range(100):
        offsets = rng.normal(-0.8, 0.5, 4)
        *left_out, new = (
            domain(f"site {place}", rows=150, offset=offset, seed=10 * trial + place)
            for place, offset in enumerate(offsets)
        )
        found = calibrate_accuracy(left_out).estimate(new.confidence, new.coverage)
        inside.append(found.low <= new.correct.mean() <= found.high)
        widths.append(found.high - found.low)
    assert np.mean(inside) >= 0.85
    assert np.mean(widths) < 0.6


def test_there_is_no_point_estimate_where_the_interval_is_wide_or_most_rows_are_outside():
    calibration = calibrate_accuracy(domains(30))
    sure, covered = np.full(400, 0.9), np.full(400, 0.5)
    plain = calibration.estimate(sure, covered)
    assert plain.value == plain.raw
    assert plain.high - plain.low < accuracy.WIDEST
    assert plain.reason == ""
    few = calibration.estimate(sure[:3], covered[:3])
    assert (few.value, few.reason) == (None, accuracy.WIDE)
    covered[:201] = 0
    outside = calibration.estimate(sure, covered)
    assert (outside.value, outside.low, outside.high, outside.reason) == (None, 0, 1, accuracy.OUTSIDE)


def test_the_estimate_is_never_above_the_score_on_the_sources():
    calibration = calibrate_accuracy(domains(30))
    sure, covered = np.full(400, 0.9999), np.ones(400)
    assert calibration.estimate(sure, covered, most=0.7).raw == 0.7
    assert calibration.estimate(sure, covered).raw > 0.7
    assert replace(calibration, of_sources=0.8).estimate(sure, covered).raw == 0.8


def test_estimates_of_left_out_domains_are_capped_by_the_score_of_their_models_on_their_sources():
    given = domains()
    plain = calibrate_accuracy(given).estimated
    capped = calibrate_accuracy([replace(given[0], of_sources=0.4), replace(given[1], of_sources=1.0), given[2]])
    assert plain["site 0"] > 0.4
    assert capped.estimated == {**plain, "site 0": 0.4}


def test_rows_of_one_patient_count_as_one_where_they_are_kept_together():
    calibration = calibrate_accuracy(domains(30))
    sure, covered = np.full(400, 0.9), np.full(400, 0.5)
    single, by_ten, few = (
        calibration.estimate(sure, covered, groups=np.arange(400)),
        calibration.estimate(sure, covered, groups=np.arange(400) // 10),
        calibration.estimate(sure[:40], covered[:40]),
    )
    assert single == calibration.estimate(sure, covered)
    assert (by_ten.low, by_ten.high) == pytest.approx((few.low, few.high))


def test_few_rows_make_a_wider_interval():
    calibration = calibrate_accuracy(domains(6))
    few, many = (calibration.estimate(np.full(rows, 0.9), np.full(rows, 0.5)) for rows in (10, 10_000))
    assert few.raw == pytest.approx(many.raw)
    assert few.high - few.low > many.high - many.low


def test_of_one_domain_the_error_is_unknown_and_so_is_the_interval():
    calibration = calibrate_accuracy(domains(1))
    found = calibration.estimate(np.full(50, 0.9), np.full(50, 0.9))
    assert calibration.errors == {}
    assert math.isnan(found.error)
    assert (found.low, found.high) == (0, 1)
    assert 0.5 < found.raw < 0.9
    assert (found.value, found.reason) == (None, accuracy.WIDE)


def test_a_domain_without_coverage_leaves_all_without():
    calibration = calibrate_accuracy([domain("a"), domain("b", coverage=False, seed=1)])
    assert calibration.weights[2] is None
    assert calibration.estimate(np.full(5, 0.8)).raw == calibration.estimate(np.full(5, 0.8), np.zeros(5)).raw


def test_sure_answers_that_are_always_right_or_always_wrong_break_nothing():
    rows = np.ones(20)
    for correct in (True, False):
        one = LeftOut(name="a", confidence=rows, coverage=rows, correct=np.full(20, correct))
        found = calibrate_accuracy([one]).estimate(rows, rows)
        assert 0 <= found.raw <= 1
        assert not correct or found.raw > 0.99


def test_a_calibration_is_read_back_from_plain_json():
    for given, known in ((domains(3), 0.8), (domains(1), None), ([domain("a", coverage=False)], None)):
        calibration = calibrate_accuracy(given, of_sources=known)
        text = json.dumps(calibration.describe(), allow_nan=False)
        assert AccuracyCalibration.from_description(json.loads(text)) == calibration


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: kept.pop("weights"),
        lambda kept: kept.update(format=2),
        lambda kept: kept.update(weights=[0.0, "1", None]),
        lambda kept: kept.update(weights=[0.0, math.nan, None]),
        lambda kept: kept.update(weights=[0.0]),
        lambda kept: kept.update(domains=[]),
        lambda kept: kept["domains"][0].update(measured=1.5),
        lambda kept: kept["domains"][0].update(estimated=None),
        lambda kept: kept["domains"][0].update(name="site 1"),
        lambda kept: kept["domains"][0].update(name=["site"]),
        lambda kept: kept.update(domains=3),
        lambda kept: kept.update(of_sources=1.2),
    ],
)
def test_a_damaged_description_is_refused_with_the_cure(damage):
    kept = calibrate_accuracy(domains(3)).describe()
    damage(kept)
    with pytest.raises(DataError, match="calibrate the model again"):
        AccuracyCalibration.from_description(kept)


@pytest.mark.usefixtures("without_shape_checks")
def test_what_is_no_description_at_all_is_refused():
    with pytest.raises(DataError, match="calibrate the model again"):
        AccuracyCalibration.from_description([])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"confidence": None}, "a: confidence must be one probability a row, got None; a model that predicts numbers"),
        ({"confidence": np.array([0.1, 0.2, 3.5, 0.1])}, "a: confidence must lie between 0 and 1, got 3.5 in row 2"),
        ({"confidence": np.array([0.1, np.nan, 0.5, 0.1])}, "got nan in row 1"),
        ({"coverage": np.ones(3)}, "a: coverage must be one number for each of 4 rows, got shape (3,)"),
        ({"correct": np.ones(3, bool)}, "a: correct must say yes or no of each of 4 rows, got shape (3,)"),
        ({"confidence": np.ones(0), "coverage": np.ones(0), "correct": np.ones(0, bool)}, "a: there are no rows"),
    ],
)
@pytest.mark.usefixtures("without_shape_checks")
def test_rows_that_cannot_be_learned_from_are_refused_with_the_cure(change, words):
    with pytest.raises(DataError, match=re.escape(words)):
        calibrate_accuracy([LeftOut(**{**vars(domain("a", rows=4)), **change})])


def test_domains_that_are_not_there_or_share_a_name_are_refused_with_the_cure():
    with pytest.raises(DataError, match="leave at least one out, better three"):
        calibrate_accuracy([])
    with pytest.raises(DataError, match="left-out domains must have names of their own, got a, a"):
        calibrate_accuracy([domain("a"), domain("a")])


def test_new_rows_without_the_coverage_that_was_learned_with_are_refused():
    with pytest.raises(DataError, match="give the coverage of the new rows, too"):
        calibrate_accuracy(domains(2)).estimate(np.full(5, 0.8))
