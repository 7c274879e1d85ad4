"""What an estimator says of gates, novelty and bases is what its layer finds on standardised rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

from gated_domains.estimators import ERMClassifier, GDUClassifier, GDURegressor, estimator
from gated_domains.layer.stream import GateStream
from made_estimators import KINDS, fitted, made, made_table

pytestmark = pytest.mark.usefixtures("without_shape_checks")

GATED = {name: kind for name, kind in KINDS.items() if name.startswith("GDU")}
SETTINGS = [{}, {"gate": "mmd"}, {"gate": "projection"}, {"shared": False}, {"solver": "adam", "epochs": 2}]


@pytest.fixture(scope="module")
def table():
    return made_table()


def standard(fit, x):
    mean, scale = fit.network_.inputs.mean, fit.network_.inputs.scale
    return ((torch.from_numpy(x) - mean) / scale).to(fit.network_.dtype)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", GATED)
def test_gates_novelty_and_familiarity_are_those_of_the_layer(name, settings, table):
    fit = fitted(GATED[name], table, tol=1e-2, **settings)
    units, rows = fit.network_.units, standard(fit, table.x)
    with torch.no_grad():
        out = units.evaluate(rows)
        np.testing.assert_allclose(fit.gates(table.x), out.beta, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(fit.novelty(table.x), units.novelty(rows), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(fit.familiarity(table.x), units.familiarity(rows), rtol=1e-4, atol=1e-5)
        assert fit.gates(table.x).shape == (90, 3)
        if units.applies_coverage:
            np.testing.assert_allclose(fit.predicted(table.x).coverage, out.coverage, rtol=1e-4, atol=1e-5)
        if name == "GDUClassifier":
            np.testing.assert_allclose(fit.decision_function(table.x), out.prediction, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(fit.predict_proba(table.x), out.prediction.softmax(-1), rtol=1e-4)


def test_numbers_are_read_in_their_own_units(table):
    fit = fitted(GDURegressor, table)
    with torch.no_grad():
        raw = fit.network_.units(standard(fit, table.x))[:, 0].numpy()
    np.testing.assert_allclose(fit.predict(table.x), raw * table.numbers.std() + table.numbers.mean(), rtol=1e-9)


def test_what_came_of_the_units_is_told_in_the_units_of_the_columns(table):
    fit = fitted(GDUClassifier, table, tol=1e-2)
    assert fit.bases_.shape == (3, 3, 4)
    assert fit.num_bases_ == 3
    for vector in fit.bases_.reshape(-1, 4):  # each is a training row
        assert np.abs(table.x - vector).max(1).min() < 1e-9
    assert fit.sigma_ == pytest.approx(float(fit.network_.units.kernel.sigma))
    assert fit.kappa_ == pytest.approx(float(fit.network_.units.gate.kappa))


def test_sigma_and_kappa_are_taken_as_given(table):
    fit = fitted(GDUClassifier, table, tol=1e-2, sigma=1.5, kappa=4.0)
    assert (fit.sigma_, fit.kappa_) == pytest.approx((1.5, 4.0))
    assert fitted(GDUClassifier, table, tol=1e-2, gate="projection").kappa_ is None


def test_the_number_of_bases_is_found_in_the_data():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(centre, 0.3, (30, 2)) for centre in ((0, 0), (6, 0), (0, 6), (6, 6))])
    y = (x[:, 0] - x[:, 0].round() > 0).astype(int)
    assert made(GDUClassifier, num_bases="auto", tol=1e-2).fit(x, y).num_bases_ == 4


@pytest.mark.filterwarnings("ignore::gated_domains.layer.GateWarning")
def test_few_rows_get_one_basis():
    assert made(GDUClassifier, num_bases="auto").fit(np.arange(8.0)[:, None], [0, 1] * 4).num_bases_ == 1


def test_gates_of_a_batch_are_those_of_the_layer(table):
    fit = fitted(GDUClassifier, table, tol=1e-2)
    found = fit.predicted(table.x, gates="batch")
    with torch.no_grad():
        out = fit.network_.units.evaluate(standard(fit, table.x), gates="batch")
    np.testing.assert_allclose(found.output, out.prediction.softmax(-1), rtol=1e-6)
    assert found.beta.shape == (90, 3)
    assert (found.beta == found.beta[0]).all()
    np.testing.assert_allclose(found.beta[:1], out.beta.reshape(1, -1), rtol=1e-6)
    assert found.residual.shape == (90,)


def test_gates_of_a_stream_are_those_of_the_layer(table):
    fit = fitted(GDUClassifier, table, tol=1e-2)
    ours, own = GateStream(20), GateStream(20)
    found = fit.predicted(table.x, gates=ours)
    rows, size = standard(fit, table.x), estimator.ROWS_AT_A_TIME
    with torch.no_grad():
        expected = [fit.network_.units.evaluate(part, gates=own).prediction.softmax(-1) for part in rows.split(size)]
    np.testing.assert_allclose(found.output, torch.cat(expected), rtol=1e-6)
    assert torch.equal(ours.rows, own.rows)


def test_what_has_no_gates_has_none_of_a_batch(table):
    with pytest.raises(ValueError, match="ERMClassifier has no gates"):
        fitted(ERMClassifier, table).predicted(table.x, gates="batch")
    with pytest.raises(ValueError, match="gates must be 'sample', 'batch' or a GateStream, got 'row'"):
        fitted(GDUClassifier, table, tol=1e-2).predicted(table.x, gates="row")


@pytest.mark.parametrize("name", ["bases_", "num_bases_", "sigma_", "kappa_"])
def test_before_a_fit_there_is_nothing_to_tell(name):
    with pytest.raises(NotFittedError):
        getattr(GDUClassifier(), name)
