"""A basis in one line."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from gated_domains.data.errors import DataError
from gated_domains.evaluation.metrics import metric_named
from gated_domains.reports.card_words import card_line
from gated_domains.runs.insight import Insight

ACCURACY, ERROR = metric_named("accuracy"), metric_named("rmse")


def insight(**given: Any) -> Insight:
    made: dict[str, Any] = {
        "domain_names": np.array(["mnist", "street", "usps"]),
        "unseen": np.array([False, False, True]),
        "class_names": np.array(["1", "4", "7"]),
        "domain_share": np.array([[0.19, 0.81, 0.0], [0.81, 0.19, 0.0]]),
        "class_share": np.array([[0.45, 0.1, 0.45], [0.1, 0.8, 0.1]]),
        "mass": np.array([0.5, 0.5]),
        "beta": np.full((4, 2), 0.5),
        "dropping": np.array([[0.0, -0.021], [0.0, 0.003]]),
    }
    made |= given
    empty = {"rows": np.int64, "domains": np.int64, "map_basis_of": np.int64, "nearest": np.int64}
    empty |= {"nearest_domains": np.int64, "pictures": np.uint8, "nearest_pictures": np.uint8}
    arrays = {
        field.name: made.get(field.name, np.empty(0, empty.get(field.name, np.float32))) for field in fields(Insight)
    }
    return Insight(**{name: x.astype(np.float32) if x.dtype == float else x for name, x in arrays.items()})


def test_domains_classes_and_what_it_is_worth():
    assert card_line(insight(), 0, ACCURACY) == (
        "basis 1: mostly street (81 %), classes 1 and 7; dropping it costs 2.1 points on held-out rows"
    )
    assert card_line(insight(), 1, ACCURACY) == (
        "basis 2: mostly mnist (81 %), class 4; dropping it changes little on held-out rows (+0.3 points)"
    )


def test_of_an_error_more_is_worse():
    assert card_line(insight(), 1, ERROR).endswith(
        "dropping it costs 0.00300 in root mean squared error on held-out rows"
    )


def test_validation_rows_speak_where_nothing_is_held_out_and_nobody_where_nothing_is_left():
    line = card_line(insight(dropping=np.array([[-0.01, np.nan]] * 2)), 0, ACCURACY)
    assert line.endswith("dropping it costs 1.0 points on validation rows")
    assert card_line(insight(dropping=np.full((2, 2), np.nan)), 0, ACCURACY).endswith("classes 1 and 7")
    assert card_line(insight(dropping=np.zeros((2, 2))), 0, ACCURACY).endswith("changes nothing on held-out rows")


def test_a_basis_of_nobody_in_particular_says_so():
    even = insight(domain_share=np.array([[0.4, 0.3, 0.3]] * 2), class_share=np.full((2, 3), 1 / 3))
    assert card_line(even, 0, ACCURACY).startswith("basis 1: all sources alike, no class in particular;")


def test_a_basis_without_weight_is_hardly_used():
    assert card_line(insight(mass=np.array([0.001, 0.999])), 0, ACCURACY).startswith(
        "basis 1: hardly used (0 % of the weight);"
    )


def test_of_one_source_and_no_classes_nothing_is_said():
    alone = insight(unseen=np.array([False, True, True]), class_names=np.array([], str), class_share=np.empty((2, 0)))
    assert card_line(alone, 0, ACCURACY).startswith("basis 1: like the others;")


def test_a_basis_that_is_not_there_is_refused():
    with pytest.raises(DataError, match="no basis 2"):
        card_line(insight(), 2, ACCURACY)
