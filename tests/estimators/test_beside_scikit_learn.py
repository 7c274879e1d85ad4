"""The plain estimators are logistic and ridge regression, weights and all."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.class_weight import compute_class_weight

from gated_domains.estimators import ERMClassifier, ERMRegressor
from made_estimators import made_table

EXACT = {"standardize": False, "tol": 1e-8, "max_iter": 2_000}
CLASS_WEIGHTS = {2: {0: 3.0, 1: 0.5}, 4: {0: 3.0, 1: 0.5, 3: 2.0}}


@pytest.mark.parametrize("how", ["plain", "rows weighted", "classes weighted", "both weighted"])
@pytest.mark.parametrize("classes", [2, 4])
def test_plain_classifier_is_logistic_regression(classes, how):
    table = made_table(80, classes=classes)
    penalty = 0.7
    weights = np.random.default_rng(0).uniform(0.2, 3, 80) if how in ("rows weighted", "both weighted") else np.ones(80)
    class_weight = CLASS_WEIGHTS[classes] if how in ("classes weighted", "both weighted") else None
    theirs = LogisticRegression(C=penalty, tol=1e-9, max_iter=5_000, class_weight=class_weight)
    theirs.fit(table.x, table.classes, sample_weight=weights)
    # Ours averages by the weights: their sum stands where n does.
    total = (weights * [1.0 if class_weight is None else class_weight.get(code, 1.0) for code in table.classes]).sum()
    ours = ERMClassifier(alpha=1 / (total * penalty), class_weight=class_weight, **EXACT)
    ours.fit(table.x, table.classes, sample_weight=weights)
    linear = ours.network_.linear
    np.testing.assert_allclose(linear.weight.detach(), theirs.coef_, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(table.x), theirs.predict_proba(table.x), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours.predict_log_proba(table.x), theirs.predict_log_proba(table.x), rtol=1e-3, atol=1e-4)
    if classes == 2:  # biases of several classes may all be moved together
        np.testing.assert_allclose(linear.bias.detach(), theirs.intercept_, rtol=1e-4)
        np.testing.assert_allclose(ours.decision_function(table.x), theirs.decision_function(table.x), rtol=1e-3)
    np.testing.assert_array_equal(ours.predict(table.x), theirs.predict(table.x))


def test_balanced_classes_count_the_same_by_the_weights_of_their_rows():
    table = made_table(60)
    weights = np.random.default_rng(1).integers(1, 4, 60)
    balanced = ERMClassifier(class_weight="balanced", **EXACT)
    by_weight = balanced.fit(table.x, table.classes, sample_weight=weights).decision_function(table.x)
    x, y = np.repeat(table.x, weights, 0), np.repeat(table.classes, weights)
    repeated = ERMClassifier(class_weight="balanced", **EXACT).fit(x, y).decision_function(table.x)
    named = dict(enumerate(compute_class_weight("balanced", classes=np.unique(y), y=y)))
    by_name = ERMClassifier(class_weight=named, **EXACT).fit(x, y).decision_function(table.x)
    np.testing.assert_allclose(by_weight, repeated, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(by_name, repeated, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_plain_regressor_is_ridge_regression_of_standardised_targets(columns, weighted):
    table = made_table(50)
    y = np.stack([table.numbers, 1e3 * table.x[:, 0] ** 2], 1)[:, :columns]
    y = y[:, 0] if columns == 1 else y
    weights = np.random.default_rng(0).uniform(0.2, 3, 50) if weighted else np.ones(50)
    mean = np.average(y, axis=0, weights=weights)
    scale = np.sqrt(np.average((y - mean) ** 2, axis=0, weights=weights))
    alpha = 0.1
    theirs = Ridge(alpha=alpha / 2 * columns * weights.sum()).fit(table.x, (y - mean) / scale, sample_weight=weights)
    ours = ERMRegressor(alpha=alpha, **EXACT).fit(table.x, y, sample_weight=weights)
    found = ours.network_.linear.weight.detach().numpy()
    np.testing.assert_allclose(found if columns > 1 else found[0], theirs.coef_, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(ours.predict(table.x), theirs.predict(table.x) * scale + mean, rtol=1e-5)


def test_a_very_sure_classifier_keeps_small_probabilities_apart():
    table = made_table(40, classes=2)
    x = np.where(table.classes == 1, 1.0, -1.0)[:, None]
    found = ERMClassifier(alpha=1e-9, standardize=False).fit(x, table.classes).predict_log_proba(1e3 * x)
    assert np.isfinite(found).all()
    assert found.min() < -1_000
