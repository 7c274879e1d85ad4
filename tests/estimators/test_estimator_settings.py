"""Settings: kept by the constructor as they are, refused by name and value when fitted, and nothing is left then."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from gated_domains.estimators import ERMClassifier, GDUClassifier, GDURegressor
from made_estimators import KINDS, answers, fitted, made_table

pytestmark = pytest.mark.usefixtures("without_shape_checks")

OF_ALL = {
    "alpha": [-1.0, float("nan"), "much", None],
    "standardize": ["no", None, 1],
    "solver": ["sgd", None],
    "max_iter": [0, 1.5, "many"],
    "epochs": [0, True],
    "tol": [-1e-3, "small"],
    "batch_size": [0, "big", 2.5],
    "learning_rate": [0.0, float("inf"), "fast"],
    "early_stopping": ["yes", None],
    "validation_fraction": [0.0, 1.0, -0.1, "some"],
    "n_iter_no_change": [0, "few"],
    "device": ["tpu", None],
    "domain_weight": ["equal"],
    "verbose": [-1, "loud"],
}
OF_GATES = {
    "num_bases": [0, "many", 2.5, 91],
    "basis_size": [0, "auto"],
    "gate": ["euclid", None],
    "sigma": [0.0, "mean", None],
    "kappa": [-1.0, "sharp", None],
    "shared": ["no", 0],
    "coverage": ["no", None],
    "learn_bases": ["yes", 2],
    "deviation_alpha": [-1.0, "much"],
    "lambda_ols": [-1.0, float("nan")],
    "lambda_l1": [-1.0],
    "lambda_entropy": ["x"],
    "lambda_orth": [float("inf")],
    "reference_rows": [-1, 2.5, "many", True],
}
WRONG = [
    (kind, name, value)
    for kind in KINDS.values()
    for name, values in {**OF_ALL, **(OF_GATES if issubclass(kind, (GDUClassifier, GDURegressor)) else {})}.items()
    for value in values
]


@pytest.mark.parametrize(
    ("kind", "name", "value"), WRONG, ids=[f"{kind.__name__}-{name}={value}" for kind, name, value in WRONG]
)
def test_a_wrong_value_is_refused_when_fitted_and_nothing_is_left(kind, name, value):
    table = made_table()
    estimator = kind(**{name: value})
    given = dict(vars(estimator))
    with pytest.raises(ValueError, match=name.removeprefix("num_")) as refused:
        estimator.fit(table.x, answers(kind, table), sample_domain=table.sites)
    assert str(value) in str(refused.value)
    assert vars(estimator) == given
    with pytest.raises(NotFittedError):
        estimator.predict(table.x)


def test_every_setting_is_tried_above():
    tried = {*OF_ALL, *OF_GATES, "random_state", "class_weight"}
    assert set(GDUClassifier().get_params()) == tried


def test_a_class_weight_that_is_none_is_refused():
    table = made_table()
    for wrong in ("even", {9: 1.0}, 3):
        with pytest.raises(ValueError, match=r"class"):
            ERMClassifier(class_weight=wrong).fit(table.x, table.classes)


def test_a_gate_without_kappa_is_told_so():
    table = made_table()
    with pytest.raises(ValueError, match=r"kappa=2\.0 cannot be set: the gate 'projection' has none; leave it at"):
        GDUClassifier(gate="projection", kappa=2.0).fit(table.x, table.classes)


def test_a_gpu_that_is_not_there_is_told_of(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    table = made_table()
    with pytest.raises(ValueError, match="device='cuda', and there is no GPU"):
        ERMClassifier(device="cuda").fit(table.x, table.classes)


@pytest.mark.parametrize("kind", KINDS.values())
def test_what_is_given_is_kept_and_cloned(kind):
    for name, default in kind().get_params().items():
        assert getattr(kind(**{name: "anything"}), name) == "anything"
        assert clone(kind(**{name: "anything"})).get_params()[name] == "anything"
        assert kind().set_params(**{name: 7}).get_params()[name] == 7
        assert repr(default)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"sample_weight": -np.ones(90)}, "Negative"), ({"sample_domain": np.zeros(3)}, "3 rows")],
    ids=["weights", "domains"],
)
def test_a_fit_that_fails_leaves_the_one_before(wrong, words):
    table = made_table()
    fit = fitted(GDUClassifier, table, tol=1e-2)
    before, known = fit.predict_proba(table.x), dict(vars(fit))
    with pytest.raises(ValueError, match=words):
        fit.fit(table.x[:, :2], table.classes[::-1] * 2, **wrong)
    assert vars(fit).keys() == known.keys()
    assert fit.classes_ is known["classes_"]
    np.testing.assert_array_equal(fit.predict_proba(table.x), before)
