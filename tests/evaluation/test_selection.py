"""The best epoch is kept, the earlier among equals; stopping and resuming are exact."""

from __future__ import annotations

import json
import math
from typing import get_args

import numpy as np
import pytest

from gated_domains.data.errors import DataError
from gated_domains.evaluation import METRICS, SELECTION_RULES, DomainScores, Selector
from gated_domains.evaluation.metrics import Evidence, fixed_epoch
from gated_domains.runs.recipe import Selection

# Three classes told by four rows each; domains a and b of different sizes.
TARGETS = np.repeat([0, 1, 2], 4)
SAID = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0])


def evidence(metric: str = "accuracy", by_domain: dict[str, float] | None = None, overall: float = 0.75) -> Evidence:
    scores = DomainScores(METRICS[metric], by_domain or {"a": 1.0, "b": 0.4}, overall)
    return Evidence(epoch=3, output=np.eye(3)[SAID], targets=TARGETS, scores=scores)


def test_there_is_a_rule_for_every_name_that_a_recipe_may_give() -> None:
    assert {*SELECTION_RULES, "auto"} == set(get_args(Selection))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("source_validation", 0.7),
        ("source_pooled", 0.75),
        ("source_loss", 3 * math.log(1e-12) / 12),
        ("worst_class", 0.5),
        ("out_of_domain", 0.7),
        ("leave_one_source_out", 0.7),
        ("last", 3.0),
        ("oracle", 0.7),
    ],
)
def test_what_each_rule_makes_of_an_epoch(name: str, number: float) -> None:
    assert SELECTION_RULES[name](evidence()) == pytest.approx(number)


def test_where_no_domain_has_a_score_all_rows_together_decide() -> None:
    scores = DomainScores(METRICS["auroc"], {}, 0.9, unscored=("a", "b"))
    found = Evidence(epoch=0, output=np.eye(3)[SAID], targets=TARGETS, scores=scores)
    assert SELECTION_RULES["source_validation"](found) == 0.9


@pytest.mark.parametrize(
    "name", ["source_validation", "source_pooled", "out_of_domain", "leave_one_source_out", "oracle"]
)
def test_a_smaller_error_is_the_larger_number(name: str) -> None:
    small, large = (SELECTION_RULES[name](evidence("rmse", {"a": value}, value)) for value in (0.5, 0.7))
    assert small > large


def test_there_is_no_worst_class_of_numbers() -> None:
    scores = DomainScores(METRICS["rmse"], {"a": 1.0}, 1.0)
    numbers = Evidence(epoch=0, output=np.zeros((3, 1)), targets=np.zeros(3), scores=scores)
    with pytest.raises(DataError, match="no worst class where a number is predicted"):
        SELECTION_RULES["worst_class"](numbers)


def test_an_epoch_that_was_chosen_elsewhere_is_the_best_and_carries_the_score_it_was_chosen_by() -> None:
    rule, selector = fixed_epoch(2, score=0.8), Selector(patience=1)
    for epoch in range(9):
        scores = DomainScores(METRICS["accuracy"], {"a": epoch / 10}, epoch / 10)
        selector.update(epoch, rule(Evidence(epoch=epoch, output=np.eye(3)[SAID], targets=TARGETS, scores=scores)))
        if selector.stop:
            break
    assert (selector.best_epoch, selector.best, epoch) == (2, 0.8, 3)


def test_a_rule_is_named_as_it_stands_under_a_table() -> None:
    said = {name: rule.label(METRICS["accuracy"]) for name, rule in SELECTION_RULES.items()}
    assert said == {
        "source_validation": "mean source validation accuracy",
        "source_pooled": "pooled source validation accuracy",
        "source_loss": "source validation loss",
        "worst_class": "worst class on source validation",
        "official": "published out-of-distribution validation accuracy",
        "out_of_domain": "out-of-domain validation accuracy",
        "leave_one_source_out": "leave-one-source-out accuracy",
        "last": "the last epoch",
        "oracle": "ORACLE, by the held-out domain itself: accuracy",
    }


def test_the_oracle_alone_looks_at_held_out_rows() -> None:
    assert [name for name, rule in SELECTION_RULES.items() if rule.oracle] == ["oracle"]


def test_the_best_epoch_is_kept_and_among_equals_the_earlier() -> None:
    selector = Selector()
    assert [selector.update(epoch, score) for epoch, score in enumerate([0.5, 0.7, 0.7, 0.6])] == [
        True,
        True,
        False,
        False,
    ]
    assert (selector.best_epoch, selector.best, selector.wait) == (1, 0.7, 2)


def test_it_stops_after_as_many_epochs_without_a_better_one() -> None:
    selector = Selector(patience=2)
    stops = []
    for epoch, score in enumerate([0.5, 0.4, 0.6, 0.6, 0.5]):
        selector.update(epoch, score)
        stops.append(selector.stop)
    assert stops == [False, False, False, False, True]


def test_without_patience_it_never_stops() -> None:
    selector = Selector()
    for epoch in range(100):
        selector.update(epoch, -float(epoch))
    assert not selector.stop


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_is_never_the_best(bad: float) -> None:
    selector = Selector(patience=2)
    assert not selector.update(0, bad)
    assert selector.best_epoch is None
    assert selector.update(1, 0.1)
    assert not selector.update(2, bad)
    assert (selector.best_epoch, selector.wait) == (1, 1)


def test_resumed_at_any_point_it_goes_on_as_if_uninterrupted() -> None:
    scores = [0.1, 0.3 + 1e-16, 0.3, 1 / 3, math.nan, 0.2, 0.1]
    whole = Selector(patience=3)
    for epoch, score in enumerate(scores):
        whole.update(epoch, score)
    for cut in range(len(scores)):
        first, second = Selector(patience=3), Selector(patience=3)
        for epoch in range(cut):
            first.update(epoch, scores[epoch])
        second.load_state(json.loads(json.dumps(first.state())))
        for epoch in range(cut, len(scores)):
            second.update(epoch, scores[epoch])
        assert second == whole
        assert second.stop == whole.stop


def test_no_patience_at_all_is_refused() -> None:
    with pytest.raises(DataError, match="patience must be 1 epoch or more, got 0"):
        Selector(patience=0)
