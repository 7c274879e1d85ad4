"""sample_domain: remembered by name, balanced where that is asked for, refused where it cannot be."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gated_domains.estimators import ERMClassifier
from made_estimators import KINDS, answers, made, made_table

pytestmark = pytest.mark.usefixtures("without_shape_checks")


def unbalanced():
    table = made_table(90)
    keep = np.flatnonzero((table.sites != "bern") | (np.arange(90) % 4 == 0))
    return table._replace(**{name: value[keep] for name, value in table._asdict().items()})


@pytest.mark.parametrize("name", KINDS)
def test_domains_are_remembered_with_their_numbers_of_rows(name):
    table = unbalanced()
    fit = made(KINDS[name], tol=1e-2).fit(table.x, answers(KINDS[name], table), sample_domain=table.sites)
    assert fit.domains_.tolist() == ["basel", "bern", "chur"]
    assert fit.domain_counts_.tolist() == [int((table.sites == site).sum()) for site in fit.domains_]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (lambda sites: pd.Series(sites), ["basel", "bern", "chur"]),
        (lambda sites: pd.Series(sites, dtype="category"), ["basel", "bern", "chur"]),
        (lambda sites: sites.astype(object), ["basel", "bern", "chur"]),
        (lambda sites: [len(site) for site in sites], [4, 5]),
        (lambda sites: sites == "bern", [False, True]),
    ],
)
def test_domains_come_as_text_or_numbers_in_any_array(given, expected):
    table = made_table()
    fit = made(ERMClassifier).fit(table.x, table.classes, sample_domain=given(table.sites))
    assert fit.domains_.tolist() == expected
    assert fit.domain_counts_.sum() == 90


def test_without_domains_there_are_none():
    table = made_table()
    fit = made(ERMClassifier).fit(table.x, table.classes)
    assert len(fit.domains_) == len(fit.domain_counts_) == 0


@pytest.mark.parametrize("name", ["ERMClassifier", "ERMRegressor"])
def test_balanced_domains_are_weights_made_by_hand(name):
    kind, table = KINDS[name], unbalanced()
    own = np.random.default_rng(0).uniform(0.5, 2, len(table.x))
    settings = {"alpha": 0.01, "tol": 1e-8, "max_iter": 2_000}
    balanced = made(kind, domain_weight="balanced", **settings)
    balanced.fit(table.x, answers(kind, table), sample_domain=table.sites, sample_weight=own)
    by_hand = own.copy()
    for site in np.unique(table.sites):
        by_hand[table.sites == site] /= own[table.sites == site].sum()
    weighted = made(kind, **settings).fit(table.x, answers(kind, table), sample_weight=by_hand)
    np.testing.assert_allclose(
        balanced.predicted(table.x).output, weighted.predicted(table.x).output, rtol=1e-5, atol=1e-6
    )
    plain = made(kind, **settings).fit(table.x, answers(kind, table), sample_weight=own)
    assert np.abs(balanced.predicted(table.x).output - plain.predicted(table.x).output).max() > 1e-3


def test_a_row_without_weight_is_as_if_it_were_not_there():
    table = made_table()
    weights = (np.arange(90) % 3 > 0).astype(float)
    kept = weights > 0
    found = made(ERMClassifier, tol=1e-7).fit(table.x, table.classes, sample_weight=weights)
    fewer = made(ERMClassifier, tol=1e-7).fit(table.x[kept], table.classes[kept])
    np.testing.assert_allclose(found.decision_function(table.x), fewer.decision_function(table.x), rtol=1e-6)


@pytest.mark.parametrize("name", KINDS)
def test_domains_that_nobody_told_cannot_be_balanced(name):
    table = made_table()
    with pytest.raises(ValueError, match="domain_weight='balanced' needs to know the domains; pass sample_domain"):
        made(KINDS[name], domain_weight="balanced").fit(table.x, answers(KINDS[name], table))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.zeros(89), "sample_domain tells of 89 rows, and X has 90"),
        (np.zeros((90, 2)), r"sample_domain must be one name or number a row, got shape \(90, 2\)"),
        (np.full(90, np.nan), "sample_domain contains NaN"),
        (np.array([None] * 90, object), "sample_domain contains None; name the domain of every row"),
        (np.array([np.nan, *["a"] * 89], object), "contains NaN"),
    ],
)
def test_domains_that_say_nothing_are_refused_and_nothing_is_left_fitted(given, words):
    table = made_table()
    estimator = made(ERMClassifier)
    with pytest.raises(ValueError, match=words):
        estimator.fit(table.x, table.classes, sample_domain=given)
    assert vars(estimator) == vars(made(ERMClassifier))


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.ones(89), "89"),
        (-np.ones(90), "Negative values"),
        (np.full(90, np.nan), "NaN"),
        (np.zeros(90), "every row has a weight of 0.*|.*zero"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights, words):
    table = made_table()
    with pytest.raises(ValueError, match=words):
        made(ERMClassifier).fit(table.x, table.classes, sample_weight=weights)


def test_rows_of_no_weight_are_counted_in_no_domain():
    table = made_table()
    weights = np.ones(len(table.x))
    weights[table.sites == "chur"] = 0
    fit = made(ERMClassifier).fit(table.x, table.classes, sample_domain=table.sites, sample_weight=weights)
    assert fit.domains_.tolist() == ["basel", "bern"]
    assert fit.domain_counts_.tolist() == [30, 30]
