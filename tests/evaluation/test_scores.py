"""Scores by domain equal those of a loop over rows, and what cannot be scored is refused in words."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from gated_domains.data.errors import DataError
from gated_domains.evaluation import METRICS, DomainScores, score_by_domain

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
        (np.ones((3, 2)), np.array([0, -1, 1]), None, "class -1, but outputs are for 2 classes"),
        (np.ones((3, 1)), np.array([0.5, 0.1, 1.0]), None, "'accuracy' scores classes, and here a number"),
    ],
)
def test_what_cannot_be_scored_is_refused(output, targets, domains, message) -> None:
    with pytest.raises(DataError, match=message):
        score_by_domain(output, targets, domains=domains, domain_names=NAMES, metric=METRICS["accuracy"])


def test_numbers_have_no_score_where_classes_are_predicted() -> None:
    output, targets, _ = classified()
    with pytest.raises(DataError, match="'mse' scores numbers, and here classes"):
        score_by_domain(output, targets, domains=None, domain_names=(), metric=METRICS["mse"])


# --- domains without a score ---


def test_a_domain_of_one_class_has_no_auroc_and_poisons_no_mean() -> None:
    output, targets, domains = classified()
    targets[domains == 1] = 2
    scores = score_by_domain(output, targets, domains=domains, domain_names=NAMES, metric=METRICS["auroc"])
    assert list(scores.by_domain) == ["north", "west"]
    assert scores.unscored == ("south",)
    assert scores.mean == pytest.approx(sum(scores.by_domain.values()) / 2)
    assert math.isfinite(scores.overall)
    assert DomainScores.from_json(json.loads(json.dumps(scores.as_json()))) == scores


def test_where_no_row_together_has_a_score_it_is_refused_with_the_reason() -> None:
    output, _, domains = classified()
    with pytest.raises(DataError, match="60 rows have no AUROC: their targets are all of one class; choose another"):
        score_by_domain(output, np.zeros(60, int), domains=domains, domain_names=NAMES, metric=METRICS["auroc"])
    with pytest.raises(DataError, match="have no Pearson correlation: their targets are all the same"):
        score_by_domain(output[:, :1], np.zeros(60), domains=None, domain_names=(), metric=METRICS["pearson"])


def test_where_no_domain_by_itself_has_a_score_there_is_one_over_all_and_no_mean() -> None:
    output, _, domains = classified()
    targets = np.where(domains == 0, 0, 1)
    scores = score_by_domain(output, targets, domains=domains, domain_names=NAMES, metric=METRICS["auroc"])
    assert (scores.by_domain, scores.unscored) == ({}, ("north", "south", "west"))
    for number in (lambda: scores.mean, lambda: scores.worst, lambda: scores.worst_group):
        with pytest.raises(DataError, match="no domain or group by itself has a score"):
            number()


# --- groups ---


def grouped() -> DomainScores:
    output, targets, domains = classified(90)
    return score_by_domain(
        output,
        targets,
        domains=domains,
        domain_names=NAMES,
        metric=METRICS["accuracy"],
        groups=np.arange(90) % 5 - 1,
        group_names=("a", "b", "c", "d"),
    )


def test_groups_are_scored_beside_domains_and_a_row_of_none_is_left_out() -> None:
    scores = grouped()
    assert scores.by_group is not None
    assert list(scores.by_group) == ["a", "b", "c", "d"]
    assert list(scores.by_domain) == ["north", "south", "west"]
    assert DomainScores.from_json(json.loads(json.dumps(scores.as_json()))) == scores


def test_groups_without_a_score_are_named() -> None:
    output, targets, _ = classified()
    scores = score_by_domain(
        output, targets, domains=None, domain_names=(), metric=METRICS["auroc"],
        groups=np.minimum(np.arange(60), 1), group_names=("one row", "the rest"),
    )  # fmt: skip
    assert scores.by_group is not None
    assert list(scores.by_group) == ["the rest"]
    assert (scores.unscored_groups, scores.unscored) == (("one row",), ())


def test_a_group_without_a_name_is_refused() -> None:
    output, targets, _ = classified(3)
    with pytest.raises(DataError, match="group 2 is outside 0 to 1, the groups that have names"):
        score_by_domain(
            output, targets, domains=None, domain_names=(), metric=METRICS["accuracy"],
            groups=np.arange(3), group_names=("a", "b"),
        )  # fmt: skip


@pytest.mark.parametrize(("metric", "worst", "tenth"), [("accuracy", 0.0, 0.1), ("rmse", 1.0, 0.9)])
def test_percentiles_count_from_the_bad_end(metric: str, worst: float, tenth: float) -> None:
    groups = {str(place): place / 100 for place in range(101)}
    scores = DomainScores(METRICS[metric], {"all": 0.5}, 0.5, groups)
    assert (scores.worst_group, scores.percentile(10)) == (worst, pytest.approx(tenth))
    # So many percent fall short of it.
    short = sum(METRICS[metric].better(scores.percentile(10), value) for value in groups.values())
    assert short == 10


def test_between_two_groups_a_percentile_lies_on_the_line_that_joins_them() -> None:
    scores = DomainScores(METRICS["accuracy"], {"all": 0.5}, 0.5, {"a": 0.2, "b": 0.6})
    assert scores.percentile(25) == pytest.approx(0.3)


def test_without_groups_domains_are_the_groups() -> None:
    scores = DomainScores(METRICS["accuracy"], {"a": 0.2, "b": 0.9}, 0.5)
    assert (scores.worst_group, scores.percentile(100)) == (0.2, 0.9)


def test_scores_without_groups_are_read() -> None:
    stored = {"metric": "accuracy", "by_domain": {"a": 0.2}, "overall": 0.5}
    scores = DomainScores.from_json(stored)
    assert (scores.by_group, scores.unscored) == (None, ())
    assert scores.as_json() == stored
