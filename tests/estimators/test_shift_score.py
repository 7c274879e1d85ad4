"""shift_score, calibrate_accuracy and estimate_accuracy: what they say, and what they refuse."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from gated_domains.data.errors import DataError
from gated_domains.estimators import ERMClassifier, GDUClassifier, GDURegressor, load_estimator, saving
from made_estimators import answers, fitted, made, made_table

pytestmark = pytest.mark.usefixtures("without_shape_checks")


@pytest.fixture(scope="module")
def table():
    return made_table(240)


@pytest.fixture(scope="module")
def fit(table):
    return fitted(GDUClassifier, table)


@pytest.mark.parametrize("kind", [GDUClassifier, GDURegressor])
def test_rows_like_those_of_training_are_no_shift_and_moved_ones_are(kind, table):
    rows = np.random.default_rng(1).permutation(240)
    half, other = rows[:120], rows[120:]
    fit = made(kind).fit(table.x[half], answers(kind, table)[half], sample_domain=table.sites[half])
    same, moved = fit.shift_score(table.x[other]), fit.shift_score(table.x[other] + 6.0)
    assert same.p_value > 0.05
    assert same.score < 0.1
    assert moved.p_value == 0.001
    assert moved.score > 0.4
    assert moved.novelty > same.novelty
    assert moved.unlike > 0.5 > same.unlike
    assert (same.rows, moved.rows) == (120, 120)


def test_the_score_is_that_of_the_formula(fit, table):
    """sqrt of <a, a> + <b, b> - 2 <a, b>, no row with itself."""
    new = table.x[:40] + 2.0
    a, b = fit.reference_.astype(float), fit.standard(new).numpy()

    def kernel(x, z):
        return np.exp(-((x[:, None] - z[None]) ** 2).sum(2) / (2 * fit.sigma_**2))

    def norm(x):
        values = kernel(x, x)
        return (values.sum() - np.trace(values)) / (len(x) * (len(x) - 1))

    expected = np.sqrt(max(0.0, norm(a) + norm(b) - 2 * kernel(a, b).mean()))
    assert fit.shift_score(new).score == pytest.approx(expected, rel=1e-4)


def test_the_rank_among_the_domains_of_training_is_told_and_groups_are_kept_together(fit, table):
    far = fit.shift_score(table.x[:60] + 6.0)
    assert (far.rank, far.sites) == (1, 4)
    assert fit.shift_score(table.x[:60]).rank > 1
    repeated = np.repeat(table.x[:8], 10, axis=0)
    alone, together = fit.shift_score(repeated), fit.shift_score(repeated, groups=np.arange(80) // 10)
    assert alone.p_value < together.p_value
    assert together.p_value > 0.05
    with pytest.raises(ValueError, match="the group of each of 80 rows"):
        fit.shift_score(repeated, groups=[1, 2])


def test_it_is_frozen_and_the_same_at_every_asking(fit, table):
    found = fit.shift_score(table.x[:50])
    assert found == fit.shift_score(table.x[:50])
    with pytest.raises(FrozenInstanceError):
        found.score = 0.0


def test_novelty_and_unlike_are_those_of_the_rows(fit, table):
    x = table.x[:60] + 3.0
    found = fit.shift_score(x)
    assert found.novelty == pytest.approx(fit.novelty(x).mean(), rel=1e-5)
    assert found.unlike == (fit.familiarity(x) == 0).mean()


def test_models_without_coverage_say_it_too(table):
    without = fitted(GDUClassifier, table, coverage=False)
    x = table.x[:60] + 3.0
    assert without.shift_score(x).unlike == (without.familiarity(x) == 0).mean()


@pytest.mark.parametrize("form", [np.float32, sparse.csr_matrix, pd.DataFrame], ids=["float32", "sparse", "frame"])
def test_rows_may_come_in_every_form(form, table):
    change = (lambda x: x.astype(np.float32)) if form is np.float32 else form
    fit = made(GDUClassifier).fit(change(table.x), table.classes)
    assert fit.shift_score(change(table.x[:60] + 6.0)).p_value == 0.001


def test_an_estimator_that_is_saved_and_loaded_says_the_same(fit, table, tmp_path):
    fit.save(tmp_path)
    expected = fit.shift_score(table.x[:30])
    assert load_estimator(tmp_path).shift_score(table.x[:30]) == expected
    assert pickle.loads(pickle.dumps(fit)).shift_score(table.x[:30]) == expected


def test_what_cannot_be_said_is_refused_with_the_cure(fit, table):
    with pytest.raises(ValueError, match="not fitted"):
        GDUClassifier().shift_score(table.x)
    with pytest.raises(ValueError, match="1 rows are too few"):
        fit.shift_score(table.x[:1])
    with pytest.raises(ValueError, match="expecting 4 features"):
        fit.shift_score(table.x[:, :3])
    without = fitted(GDUClassifier, table, reference_rows=0)
    with pytest.raises(ValueError, match=r"has kept 0 rows .*reference_rows=0.* fit it again with more"):
        without.shift_score(table.x)
    assert not hasattr(ERMClassifier(), "shift_score")


# -- accuracy ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def calibrated(table):
    fit = fitted(GDUClassifier, table)
    assert fit.calibrate_accuracy(table.x, table.classes, sample_domain=table.sites) is fit
    return fit


def test_every_domain_is_left_out_in_turn(calibrated, table):
    assert list(calibrated.accuracy_.measured) == ["basel", "bern", "chur"]
    for name, measured in calibrated.accuracy_.measured.items():
        kept, apart = table.sites != name, table.sites == name
        alike = made(GDUClassifier).fit(table.x[kept], table.classes[kept], sample_domain=table.sites[kept])
        assert measured == pytest.approx(alike.score(table.x[apart], table.classes[apart]))


def test_accuracy_is_estimated_with_an_interval_and_its_error(calibrated, table):
    found = calibrated.estimate_accuracy(table.x[:60])
    assert 0 <= found.low <= found.raw <= found.high <= 1
    assert found.raw <= calibrated.accuracy_.of_sources == calibrated.score(table.x, table.classes)
    assert found.error == pytest.approx(np.abs(list(calibrated.accuracy_.errors.values())).mean())


def test_the_calibration_travels_with_the_model(calibrated, table, tmp_path):
    calibrated.save(tmp_path)
    back = load_estimator(tmp_path)
    assert back.accuracy_ == calibrated.accuracy_
    assert back.estimate_accuracy(table.x[:60]) == calibrated.estimate_accuracy(table.x[:60])


def test_a_new_fit_and_a_new_part_forget_it(calibrated, table):
    fitted_again = pickle.loads(pickle.dumps(calibrated)).fit(table.x, table.classes)
    part = pickle.loads(pickle.dumps(calibrated)).partial_fit(table.x, table.classes)
    for one in (fitted_again, part):
        with pytest.raises(ValueError, match=r"it was not measured .* call calibrate_accuracy"):
            one.estimate_accuracy(table.x)
    kept = pickle.loads(pickle.dumps(calibrated))
    with pytest.raises(ValueError, match="solver"):
        kept.set_params(solver="none").fit(table.x, table.classes)
    assert kept.accuracy_ == calibrated.accuracy_, "a fit that is refused leaves what was there"


def test_progress_is_told_to_those_who_asked(table, capsys):
    fit = fitted(GDUClassifier, table).set_params(verbose=1000)
    fit.calibrate_accuracy(table.x.tolist(), table.classes.tolist(), sample_domain=table.sites.tolist())
    assert "bern left out (2 of 3)" in capsys.readouterr().out


def test_too_few_domains_and_classes_are_told(fit, table):
    for sites in (None, np.full(240, "one")):
        with pytest.raises(ValueError, match=r"names [01] domains, .* at least 2 are needed"):
            fit.calibrate_accuracy(table.x, table.classes, sample_domain=sites)
    two = made_table(240, classes=2)
    of_one_class_each = np.where(two.classes == 0, "zero", "others")
    with pytest.raises(ValueError, match=r"without the domain 'others' nothing can be fitted: .*2 classes"):
        fitted(GDUClassifier, two).calibrate_accuracy(two.x, two.classes, sample_domain=of_one_class_each)


def test_regressors_have_no_accuracy_and_a_card_that_says_so_is_refused(calibrated, table, tmp_path):
    assert not hasattr(GDURegressor(), "calibrate_accuracy")
    fitted(GDURegressor, table).save(tmp_path)
    card = json.loads((tmp_path / "estimator.json").read_text())
    card.pop("sha256")
    for accuracy in (calibrated.accuracy_.describe(), {"format": 1}, 3):
        card["accuracy"] = accuracy
        card["sha256"] = saving._digest(card, (tmp_path / "estimator.safetensors").read_bytes())
        (tmp_path / "estimator.json").write_text(json.dumps(card))
        card.pop("sha256")
        with pytest.raises(DataError, match="is damaged"):
            load_estimator(tmp_path)
