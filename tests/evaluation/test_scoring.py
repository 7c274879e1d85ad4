"""Scores as a run asks for them: by domain, all rows as one, or what of the publisher's groups counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features
from gated_domains.data.published import Grouping, Published
from gated_domains.evaluation.metrics import METRICS, metric_for
from gated_domains.evaluation.scores import MOST_DOMAINS, Scorer, official_scores, score_by_domain
from made_published import LABELS, divided, labelled

ACCURACY = METRICS["accuracy"]


def said_of(targets: np.ndarray, *, seed: int = 0, right: float = 0.7) -> np.ndarray:
    """Probabilities of two classes that are right in about this share of the rows."""
    rng = np.random.default_rng(seed)
    yes = np.where(rng.random(len(targets)) < right, targets, 1 - targets) * 0.8 + 0.1
    return np.stack([1 - yes, yes], 1)


def right(output: np.ndarray, targets: np.ndarray, rows) -> float:
    """The accuracy of some rows, one by one."""
    return sum(output[row].argmax() == targets[row] for row in rows) / len(rows)


def published(rows: int, *groupings: Grouping, **others) -> Published:
    parts = np.array([0, 1, 2], np.int8)[np.arange(rows) % 3]
    given = {"name": "made", "parts": parts, "part_names": ("train", "val", "test"), "metric": "accuracy"}
    return Published(**{**given, "groupings": groupings, **others})


# -- as the publisher scores -------------------------------------------------------------------------------------------


@given(st.integers(0, 50))
def test_the_worst_group_is_looked_for_over_all_groupings_even_where_they_overlap(seed: int):
    rng = np.random.default_rng(seed)
    targets = rng.integers(2, size=60)
    output = said_of(targets, seed=seed)
    identity, tone = rng.integers(-1, 2, size=60), rng.integers(-1, 3, size=60)
    division = published(
        60, Grouping(("female", "male"), identity), Grouping(("calm", "rude", "odd"), tone), statistic="worst_group"
    )
    found = official_scores(division, output, targets, np.arange(60))
    expected = {
        name: right(output, targets, [row for row in range(60) if index[row] == place])
        for names, index in ((("female", "male"), identity), (("calm", "rude", "odd"), tone))
        for place, name in enumerate(names)
    }
    assert found.by_group == pytest.approx(expected)
    assert found.by_domain == {"test": pytest.approx(min(expected.values()))}
    assert found.overall == pytest.approx(right(output, targets, range(60)))
    assert (found.mean, found.worst) == (found.by_domain["test"], found.by_domain["test"])


def test_the_tenth_percentile_is_numpys_over_groups_that_have_rows():
    rng = np.random.default_rng(0)
    targets, users = rng.integers(2, size=400), rng.integers(25, size=400)
    output = said_of(targets)
    names = tuple(f"user {place}" for place in range(40))  # of the last fifteen there is no row
    found = official_scores(
        published(400, Grouping(names, users), statistic="percentile_10"), output, targets, np.arange(400)
    )
    each = [right(output, targets, np.flatnonzero(users == user)) for user in range(25)]
    assert list(found.by_group) == [f"user {place}" for place in range(25)]
    assert found.by_domain["test"] == pytest.approx(np.percentile(each, 10))


def test_for_an_error_the_worst_group_has_the_largest():
    targets, output = np.zeros(6), np.array([[1.0], [1], [3], [3], [2], [2]])
    division = published(
        6, Grouping(("a", "b", "c"), np.arange(6) // 2), metric="rmse", statistic="worst_group"
    )  # fmt: skip
    found = official_scores(division, output, targets, np.arange(6))
    assert found.by_domain == {"test": 3.0}


def test_of_some_rows_their_own_groups_count():
    targets = np.array([0, 1, 0, 1, 0, 1])
    output = np.eye(2)[[0, 1, 1, 1, 0, 0]]
    division = published(6, Grouping(("a", "b"), np.array([0, 0, 1, 1, 0, 1])), statistic="worst_group")
    rows = np.array([4, 0, 3])  # two of a, one of b
    found = official_scores(division, output[rows], targets[rows], rows, name="validation")
    assert found.by_group == {"a": 1.0, "b": 1.0}
    assert found.by_domain == {"validation": 1.0}
    rows = np.array([2, 3, 0])
    assert official_scores(division, output[rows], targets[rows], rows).by_domain == {"test": 0.5}


def test_in_another_metric_than_the_published_one_that_of_all_rows_counts():
    data = divided()
    rows, output = np.arange(len(data)), said_of(data.targets)
    found = official_scores(data.published, output, data.targets, rows, metric=METRICS["f1"])
    whole = score_by_domain(output, data.targets, domains=None, domain_names=(), metric=METRICS["f1"])
    assert found.by_domain == {"test": whole.overall}
    assert found.by_group is None  # groups are scored in the metric that counts alone


def test_where_all_rows_count_there_need_be_no_groups():
    targets = np.array([0, 1, 1])
    found = official_scores(published(3), np.eye(2)[[0, 1, 0]], targets, np.arange(3))
    assert found.by_domain == {"test": pytest.approx(2 / 3)}
    assert found.by_group is None


def test_a_group_that_has_no_such_score_is_named_and_left_out():
    targets = np.array([0.0, 1, 2, 5, 5, 5])
    output = np.array([[0.0], [2], [1], [1], [2], [3]])
    division = published(
        6, Grouping(("urban", "rural"), np.arange(6) // 3), metric="pearson", statistic="worst_group"
    )  # fmt: skip
    found = official_scores(division, output, targets, np.arange(6))
    assert found.unscored_groups == ("rural",)
    assert found.by_group == {"urban": pytest.approx(0.5)}
    assert found.by_domain == {"test": pytest.approx(0.5)}


def test_where_no_group_has_rows_there_is_no_worst():
    division = published(6, Grouping(("a",), np.full(6, -1)), statistic="worst_group")
    with pytest.raises(
        DataError, match=r"none of the groups that made is scored by has a score \(accuracy\) in these 6 rows"
    ):
        official_scores(division, np.eye(2)[[0] * 6], np.zeros(6, np.int64), np.arange(6))


# -- the scorer --------------------------------------------------------------------------------------------------------


def test_a_scorer_scores_by_the_domains_of_the_rows():
    data = divided()
    rows = np.arange(3, 90)
    output = said_of(data.targets[rows])
    found = Scorer(dataset=data, metric=ACCURACY)(output, rows)
    assert found.by_domain == pytest.approx({
        name: right(output, data.targets[rows], np.flatnonzero(data.domains[rows] == place))
        for place, name in enumerate(data.domain_names)
    })  # fmt: skip
    assert found.by_group is None


def test_pooled_rows_are_one_domain_of_that_name():
    data = divided()
    rows = np.arange(50)
    output = said_of(data.targets[rows])
    found = Scorer(dataset=data, metric=ACCURACY, pooled="fold 2")(output, rows)
    assert found.by_domain == {"fold 2": found.overall}
    assert found.overall == pytest.approx(right(output, data.targets[rows], range(50)))


def test_an_official_scorer_says_what_counts_for_the_publisher():
    data = divided()
    rows = data.published.rows("test")
    output = said_of(data.targets[rows])
    found = Scorer(dataset=data, metric=ACCURACY, official=True, pooled="test")(output, rows)
    expected = official_scores(data.published, output, data.targets[rows], rows)
    assert found == expected
    assert found.by_domain["test"] < found.overall
    plain = Scorer(dataset=replace(data, published=None), metric=ACCURACY, official=True)(output, rows)
    assert set(plain.by_domain) == set(data.domain_names)


def test_a_scorer_knows_before_which_rows_have_a_score():
    data = divided(metric="auroc")
    targets = data.targets.copy()
    asia = data.published.groupings[0].index == 0
    targets[asia] = 1
    targets[~asia] = 0
    data = replace(data, targets=targets)
    rows = np.arange(len(data))
    assert Scorer(dataset=data, metric=METRICS["auroc"]).has_score(rows)
    assert not Scorer(dataset=data, metric=METRICS["auroc"], official=True).has_score(rows)  # no group by itself has
    assert Scorer(dataset=data, metric=ACCURACY, official=True).has_score(rows)
    assert Scorer(dataset=divided(metric="auroc"), metric=METRICS["auroc"], official=True).has_score(rows)
    assert not Scorer(dataset=data, metric=ACCURACY).has_score(rows[:0])
    assert not Scorer(dataset=data, metric=METRICS["auroc"]).has_score(np.flatnonzero(asia))


def test_groups_that_are_asked_for_are_scored_beside():
    data = divided()
    rows = np.arange(60)
    output = said_of(data.targets[rows])
    found = Scorer(dataset=data, metric=ACCURACY, score_by=("class",), pooled="test")(output, rows)
    assert found.by_group == pytest.approx({
        name: right(output, data.targets[rows], np.flatnonzero(data.targets[rows] == place))
        for place, name in enumerate(data.class_names)
    })  # fmt: skip


def scaffolds(domains: int) -> DomainDataset:
    rows = 2 * domains
    return DomainDataset(
        name="scaffolds",
        inputs=Features(np.zeros((rows, 1))),
        targets=np.arange(rows) % 2,
        class_names=("no", "yes"),
        domains=np.arange(rows) // 2,
        domain_names=tuple(map(str, range(domains))),
    )


@pytest.mark.parametrize(("domains", "scored"), [(MOST_DOMAINS, MOST_DOMAINS), (MOST_DOMAINS + 1, 1)])
def test_rows_of_more_than_a_thousand_domains_are_scored_together(domains: int, scored: int):
    data = scaffolds(domains)
    found = Scorer(dataset=data, metric=ACCURACY)(said_of(data.targets), np.arange(len(data)))
    assert len(found.by_domain) == scored
    if scored == 1:
        assert found.by_domain == {"all": found.overall}


def test_data_without_domains_are_one():
    data = replace(divided(), domains=None, domain_names=(), published=None)
    assert set(Scorer(dataset=data, metric=ACCURACY)(said_of(data.targets), np.arange(len(data))).by_domain) == {"all"}


# -- labels ------------------------------------------------------------------------------------------------------------


def said_labels(data: DomainDataset) -> np.ndarray:
    return np.random.default_rng(3).random((len(data), len(LABELS))).astype(np.float32)


@pytest.mark.parametrize("name", ["mean_average_precision", "mean_auroc"])
def test_labels_are_scored_by_domain(name: str):
    from gated_domains.evaluation.formulas import FORMULAS

    data = labelled()
    output = said_labels(data)
    found = Scorer(dataset=data, metric=METRICS[name])(output, np.arange(len(data)))
    assert found.overall == FORMULAS[name](output, data.targets)
    assert found.by_domain == {
        domain: FORMULAS[name](output[data.domains == place], data.targets[data.domains == place])
        for place, domain in enumerate(data.domain_names)
    }


def test_a_domain_where_no_label_is_both_has_no_score_and_is_named():
    data = labelled()
    targets = data.targets.copy()
    targets[data.domains == 1] = 1
    found = score_by_domain(
        said_labels(data), targets, domains=data.domains, domain_names=data.domain_names, metric=metric_for("labels")
    )
    assert found.unscored == ("south",)
    assert set(found.by_domain) == {"north", "west"}
    with pytest.raises(DataError, match="no label is known to be both yes and no among them"):
        score_by_domain(
            said_labels(data), np.ones_like(targets), domains=None, domain_names=(), metric=metric_for("labels")
        )


@pytest.mark.parametrize(
    ("metric", "output", "targets", "message"),
    [
        ("accuracy", np.ones((4, 3)), np.ones((4, 3)), "'accuracy' scores classes, and here labels are predicted"),
        ("mean_auroc", np.ones((4, 2)), np.array([0, 1, 0, 1]), "scores labels, and here classes are predicted"),
        ("mean_auroc", np.ones((4, 1)), np.arange(4.0), "scores labels, and here a number is predicted"),
        ("mean_auroc", np.ones((4, 2)), np.ones((4, 3)), r"got \(4, 2\) and \(4, 3\)"),
        ("mean_auroc", np.full((4, 2), np.nan), np.ones((4, 2)), "the model has diverged"),
    ],
)
def test_what_does_not_go_together_is_refused(metric: str, output: np.ndarray, targets: np.ndarray, message: str):
    with pytest.raises(DataError, match=message):
        score_by_domain(output, targets, domains=None, domain_names=(), metric=METRICS[metric])
