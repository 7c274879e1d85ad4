"""Scores by domain equal those of a loop over rows, and what cannot be scored is refused in words."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from gated_domains.data.errors import DataError
from gated_domains.evaluation import METRICS, DomainScores, metric_for, score_by_domain
from gated_domains.evaluation.scores import metric_named, significant

RNG = np.random.default_rng(0)
NAMES = ("north", "south", "east", "west")


def classified(rows: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    output = RNG.dirichlet(np.ones(3), rows)
    return output, RNG.integers(3, size=rows), RNG.choice([0, 1, 3], size=rows)


def test_accuracy_by_domain_is_what_a_loop_counts() -> None:
    output, targets, domains = classified()
    scores = score_by_domain(output, targets, domains=domains, domain_names=NAMES, metric=METRICS["accuracy"])
    hits: dict[str, list[bool]] = {}
    for row in range(len(targets)):
        likeliest = max(range(3), key=lambda label: output[row, label])
        hits.setdefault(NAMES[domains[row]], []).append(likeliest == targets[row])
    assert scores.by_domain == {name: pytest.approx(sum(found) / len(found)) for name, found in hits.items()}
    assert scores.overall == pytest.approx(sum(map(sum, hits.values())) / len(targets))
    assert scores.mean == pytest.approx(sum(sum(found) / len(found) for found in hits.values()) / len(hits))


def test_error_by_domain_is_the_root_of_the_mean_square() -> None:
    output, targets = RNG.normal(size=(30, 1)).astype(np.float32), RNG.normal(size=30)
    domains = np.arange(30) % 2
    scores = score_by_domain(output, targets, domains=domains, domain_names=NAMES, metric=METRICS["rmse"])
    for index in (0, 1):
        squares = [(float(output[row, 0]) - targets[row]) ** 2 for row in range(30) if domains[row] == index]
        assert scores.by_domain[NAMES[index]] == pytest.approx(math.sqrt(sum(squares) / len(squares)))


def test_only_domains_that_have_rows_are_scored() -> None:
    output, targets, domains = classified()
    scores = score_by_domain(output, targets, domains=domains, domain_names=NAMES, metric=METRICS["accuracy"])
    assert list(scores.by_domain) == ["north", "south", "west"]


def test_a_larger_domain_counts_more_overall_and_no_more_in_the_mean() -> None:
    output = np.array([[1.0, 0.0]] * 4)
    targets, domains = np.array([0, 0, 0, 1]), np.array([0, 0, 0, 1])
    scores = score_by_domain(output, targets, domains=domains, domain_names=NAMES, metric=METRICS["accuracy"])
    assert (scores.overall, scores.mean) == (0.75, 0.5)


def test_the_worst_is_the_lowest_accuracy_and_the_largest_error() -> None:
    by_domain = {"a": 0.2, "b": 0.9}
    assert DomainScores(METRICS["accuracy"], by_domain, 0.5).worst == 0.2
    assert DomainScores(METRICS["rmse"], by_domain, 0.5).worst == 0.9


def test_without_domains_all_rows_are_one_group() -> None:
    output, targets, _ = classified()
    scores = score_by_domain(output, targets, domains=None, domain_names=(), metric=METRICS["accuracy"])
    assert scores.by_domain == {"all": scores.overall}


def test_scores_survive_json_to_the_last_bit() -> None:
    output, targets, domains = classified()
    scores = score_by_domain(output, targets, domains=domains, domain_names=NAMES, metric=METRICS["accuracy"])
    assert DomainScores.from_json(json.loads(json.dumps(scores.as_json()))) == scores


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_output_that_is_no_number_is_refused_with_its_row(bad: float) -> None:
    output, targets, domains = classified()
    output[7, 1] = bad
    with pytest.raises(DataError, match=r"row 7 is .*1 such rows of 60.*diverged"):
        score_by_domain(output, targets, domains=domains, domain_names=NAMES, metric=METRICS["accuracy"])


@pytest.mark.parametrize(
    ("output", "targets", "domains", "message"),
    [
        (np.ones(3), np.zeros(3, int), None, r"\(3,\)"),
        (np.ones((3, 2)), np.zeros(4, int), None, r"\(3, 2\) and \(4,\)"),
        (np.ones((0, 2)), np.zeros(0, int), None, "no rows"),
        (np.ones((3, 2)), np.zeros(3, int), np.zeros(2, int), "3 targets but 2 domains"),
        (np.ones((3, 2)), np.zeros(3, int), np.array([0, 1, 9]), "domain 9 is outside 0 to 3"),
        (np.ones((3, 2)), np.zeros(3, int), np.array([0, 1, -1]), "domain -1 is outside 0 to 3"),
        (np.ones((3, 2)), np.array([0, 1, 2]), None, "class 2, but outputs are for 2 classes"),
    ],
)
def test_what_cannot_be_scored_is_refused(output, targets, domains, message) -> None:
    with pytest.raises(DataError, match=message):
        score_by_domain(output, targets, domains=domains, domain_names=NAMES, metric=METRICS["accuracy"])


def test_classes_get_accuracy_and_numbers_their_error() -> None:
    assert metric_for(10).name == "accuracy"
    assert metric_for(None).name == "rmse"
    with pytest.raises(DataError, match="did you mean 'accuracy'"):
        metric_named("ACCURACY")


def test_gain_and_better_follow_the_direction() -> None:
    accuracy, rmse = METRICS["accuracy"], METRICS["rmse"]
    assert accuracy.better(0.9, 0.8)
    assert not accuracy.better(0.8, 0.8)
    assert rmse.better(0.8, 0.9)
    assert accuracy.as_gain(0.3) == -rmse.as_gain(0.3) == 0.3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.500"),
        (12.345, "12.3"),
        (12345.0, "12300"),
        (0.00123, "0.00123"),
        (9.999, "10.0"),
        (-2.0, "-2.00"),
        (0.0, "0.00"),
        (1.5e-7, "1.50e-07"),
        (2e12, "2.00e+12"),
    ],
)
def test_three_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


def test_percent_has_one_decimal_and_a_rounded_zero_no_sign() -> None:
    accuracy = METRICS["accuracy"]
    assert accuracy.shown(0.71249) == "71.2"
    assert accuracy.shown_difference(0.003) == "+0.3"
    assert accuracy.shown_difference(-0.003) == "-0.3"
    assert accuracy.shown_difference(-0.0001) == accuracy.shown_difference(0.0001) == "0.0"
    assert METRICS["rmse"].shown_difference(-0.0123) == "-0.0123"
