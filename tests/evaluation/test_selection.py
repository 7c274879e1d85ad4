"""The best epoch is kept, the earlier among equals; stopping and resuming are exact."""

from __future__ import annotations

import inspect
import json
import math

import pytest

from gated_domains.data.errors import DataError
from gated_domains.evaluation import METRICS, SELECTION_RULES, DomainScores, Selector

RULE = SELECTION_RULES["source_validation"]


def test_the_rule_takes_the_score_over_all_validation_rows() -> None:
    assert RULE(DomainScores(METRICS["accuracy"], {"a": 0.1, "b": 0.2}, 0.19)) == 0.19


def test_a_smaller_error_is_the_larger_number() -> None:
    small, large = (RULE(DomainScores(METRICS["rmse"], {"a": value}, value)) for value in (0.5, 0.7))
    assert small > large


def test_the_rule_is_named_as_it_stands_under_a_table() -> None:
    assert RULE.label(METRICS["accuracy"]) == "source validation accuracy"
    assert RULE.label(METRICS["rmse"]) == "source validation root mean squared error"


def test_a_rule_is_given_validation_scores_and_nothing_else() -> None:
    for rule in SELECTION_RULES.values():
        assert list(inspect.signature(rule).parameters) == ["validation"]


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
