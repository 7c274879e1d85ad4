"""Estimators at work in scikit-learn: pipelines, searches, routing of sample_domain, tables, pickles."""

from __future__ import annotations

import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from gated_domains.estimators import ERMClassifier, GDUClassifier
from made_estimators import CLASSIFIERS, KINDS, answers, fitted, made, made_table

pytestmark = pytest.mark.usefixtures("without_shape_checks")

LOOSE = {"tol": 3e-2, "alpha": 0.1}


@pytest.fixture
def table():
    return made_table()


@pytest.mark.parametrize("name", KINDS)
def test_kinds_are_what_scikit_learn_takes_them_for(name):
    assert is_classifier(KINDS[name]()) == (name in CLASSIFIERS)
    assert is_regressor(KINDS[name]()) == (name not in CLASSIFIERS)


@pytest.mark.parametrize("name", KINDS)
def test_a_clone_is_not_fitted_and_fits_alike(name, table):
    fit = fitted(KINDS[name], table, **LOOSE)
    copied = clone(fit)
    assert copied.get_params() == fit.get_params()
    assert not hasattr(copied, "network_")
    copied.fit(table.x, answers(KINDS[name], table), sample_domain=table.sites)
    np.testing.assert_array_equal(copied.predict(table.x), fit.predict(table.x))


@pytest.mark.parametrize("name", ["GDUClassifier", "ERMRegressor"])
def test_a_scaler_before_it_changes_nothing(name, table):
    y = answers(KINDS[name], table)
    piped = make_pipeline(StandardScaler(), made(KINDS[name], **LOOSE)).fit(table.x, y)
    np.testing.assert_allclose(
        piped.predict(table.x).astype(float), made(KINDS[name], **LOOSE).fit(table.x, y).predict(table.x), rtol=1e-6
    )


@pytest.mark.parametrize("name", ["GDUClassifier", "ERMRegressor"])
def test_a_search_leaves_one_site_out_at_a_time(name, table):
    y = answers(KINDS[name], table)
    search = GridSearchCV(made(KINDS[name], **LOOSE), {"alpha": [1e-2, 100.0]}, cv=LeaveOneGroupOut())
    search.fit(table.x, y, groups=table.sites, sample_domain=table.sites)
    assert search.n_splits_ == 3
    assert search.best_estimator_.domains_.tolist() == ["basel", "bern", "chur"]
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_domains_are_routed_through_a_pipeline_and_a_search(table):
    with sklearn.config_context(enable_metadata_routing=True):
        last = made(GDUClassifier, domain_weight="balanced", **LOOSE).set_fit_request(sample_domain=True)
        piped = Pipeline([("scale", StandardScaler()), ("gated", last)])
        piped.fit(table.x, table.classes, sample_domain=table.sites)
        assert piped[-1].domain_counts_.tolist() == [30, 30, 30]
        search = GridSearchCV(piped, {"gated__alpha": [0.1]}, cv=LeaveOneGroupOut())
        search.fit(table.x, table.classes, sample_domain=table.sites, groups=table.sites)
        assert search.best_estimator_[-1].domains_.tolist() == ["basel", "bern", "chur"]
        scores = cross_val_score(
            piped, table.x, table.classes, cv=2, params={"sample_domain": table.sites}, error_score="raise"
        )
        assert len(scores) == 2


def test_domains_that_nobody_asked_for_are_not_routed(table):
    piped = make_pipeline(StandardScaler(), made(ERMClassifier))
    with (
        sklearn.config_context(enable_metadata_routing=True),
        pytest.raises(UnsetMetadataPassedError, match="sample_domain"),
    ):
        piped.fit(table.x, table.classes, sample_domain=table.sites)


def test_parts_take_routed_domains_too():
    with sklearn.config_context(enable_metadata_routing=True):
        asking = made(GDUClassifier).set_partial_fit_request(sample_domain=True, classes=True)
        assert asking.get_metadata_routing().partial_fit.requests["sample_domain"] is True


@pytest.mark.parametrize("method", ["fit", "partial_fit", "calibrate_accuracy"])
@pytest.mark.parametrize("name", KINDS)
def test_weights_and_domains_are_passed_by_name_only(name, method, table):
    estimator = made(KINDS[name])
    if not hasattr(estimator, method):
        pytest.skip("classifiers with gates alone forecast their accuracy")
    with pytest.raises(TypeError, match=rf"{method}\(\) takes 3 positional arguments but 4 were given"):
        getattr(estimator, method)(table.x, answers(KINDS[name], table), np.ones(90))


@pytest.mark.parametrize("name", ["GDUClassifier", "ERMRegressor"])
def test_names_of_columns_are_remembered_and_asked_for(name, table):
    x = pd.DataFrame(table.x, columns=["age", "chol", "weight", "height"])
    fit = made(KINDS[name], **LOOSE).fit(x, pd.Series(answers(KINDS[name], table)))
    assert fit.feature_names_in_.tolist() == ["age", "chol", "weight", "height"]
    np.testing.assert_allclose(
        fit.predict(x), made(KINDS[name], **LOOSE).fit(table.x, answers(KINDS[name], table)).predict(table.x), rtol=1e-6
    )
    with pytest.raises(ValueError, match=r"(?s)unseen at fit time.*- size.*seen at fit time, yet now missing.*- chol"):
        fit.predict(x.rename(columns={"chol": "size"}))
    with pytest.raises(ValueError, match="must be in the same order"):
        fit.predict(x[["chol", "age", "weight", "height"]])
    with pytest.raises(ValueError, match=r"(?s)yet now missing.*- height"):
        fit.predict(x[["age", "chol", "weight"]])
    with pytest.raises(ValueError, match=r"3 features, but .* is expecting 4"):
        fit.predict(table.x[:, :3])


def test_what_is_asked_about_must_be_numbers(table):
    fit = fitted(ERMClassifier, table)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        fit.predict(np.full((2, 4), np.nan))
    with pytest.raises(ValueError, match="could not convert string"):
        fit.predict([["a"] * 4])


@pytest.mark.parametrize("name", ["GDUClassifier", "GDURegressor"])
def test_cross_validation_predicts_every_row(name, table):
    method = "predict_proba" if name in CLASSIFIERS else "predict"
    found = cross_val_predict(
        made(KINDS[name], **LOOSE),
        table.x,
        answers(KINDS[name], table),
        cv=LeaveOneGroupOut(),
        groups=table.sites,
        method=method,
    )
    assert len(found) == 90
    assert np.isfinite(found).all()


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_can_be_calibrated(name, table):
    found = CalibratedClassifierCV(made(KINDS[name], **LOOSE), cv=2).fit(table.x, table.classes).predict_proba(table.x)
    np.testing.assert_allclose(found.sum(1), 1)
    assert (found.argmax(1) == table.classes).mean() > 0.4


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_answers_of_a_classifier_agree(name, classes):
    table = made_table(classes=classes)
    labels = np.array(["low", "mid", "up"])[table.classes]
    fit = made(KINDS[name], **LOOSE).fit(table.x, labels)
    probabilities, scores = fit.predict_proba(table.x), fit.decision_function(table.x)
    assert fit.classes_.tolist() == ["low", "mid", "up"][:classes]
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)
    np.testing.assert_array_equal(fit.classes_[probabilities.argmax(1)], fit.predict(table.x))
    np.testing.assert_allclose(np.exp(fit.predict_log_proba(table.x)), probabilities, rtol=1e-5)
    assert scores.shape == ((90,) if classes == 2 else (90, 3))


@pytest.mark.parametrize("name", KINDS)
def test_pickles_and_joblib_bring_it_back(name, table, tmp_path):
    fit = fitted(KINDS[name], table, **LOOSE)
    joblib.dump(fit, tmp_path / "fit.joblib")
    for back in (pickle.loads(pickle.dumps(fit)), joblib.load(tmp_path / "fit.joblib")):
        for answer, values in fit.predicted(table.x).arrays().items():
            np.testing.assert_array_equal(getattr(back.predicted(table.x), answer), values)
        assert back.get_params() == fit.get_params()
