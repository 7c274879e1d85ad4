"""partial_fit: part after part, as if it had never stopped; a bad part costs nothing."""

from __future__ import annotations

import pickle
from copy import deepcopy

import numpy as np
import pytest
import torch

from gated_domains.estimators import ERMClassifier, ERMRegressor, GDUClassifier, load_estimator, parts
from gated_domains.estimators.network import PlainNetwork
from gated_domains.estimators.parts import Parts
from gated_domains.estimators.rows import RowSource
from gated_domains.estimators.scaling import Scaling
from gated_domains.layer.experts import Regression
from made_estimators import CLASSIFIERS, KINDS, answers, fitted, made, made_table

pytestmark = pytest.mark.usefixtures("without_shape_checks")

FAST = {"learning_rate": 0.02, "batch_size": 16}


def learned(estimator, table, times=1):
    classes = {"classes": np.unique(table.classes)} if type(estimator) in CLASSIFIERS.values() else {}
    for _ in range(times):
        estimator.partial_fit(table.x, answers(type(estimator), table), sample_domain=table.sites, **classes)
    return estimator


def same(first, second) -> bool:
    one, other = first.network_.state_dict(), second.network_.state_dict()
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("name", KINDS)
def test_the_loss_falls_from_part_to_part(name):
    table = made_table()
    fit = learned(made(KINDS[name], **FAST), table, 15)
    assert fit.n_iter_ == len(fit.loss_curve_) == 15
    assert fit.loss_curve_[-1] < 0.97 * fit.loss_curve_[0]
    assert fit.solver_ == "adam"
    assert fit.domain_counts_.tolist() == [450, 450, 450]


@pytest.mark.parametrize("name", KINDS)
def test_a_pickled_estimator_goes_on_as_if_nothing_had_been(name):
    table = made_table()
    fit = learned(made(KINDS[name], **FAST), table, 2)
    copied = pickle.loads(pickle.dumps(fit))
    assert same(learned(copied, table, 2), learned(fit, table, 2))


def test_a_new_learning_rate_is_taken_for_the_next_part():
    table = made_table()
    slow = learned(made(ERMClassifier, **FAST), table)
    fast = deepcopy(slow).set_params(learning_rate=0.2)
    assert not same(learned(slow, table), learned(fast, table))


@pytest.mark.parametrize("name", KINDS)
def test_parts_may_follow_a_fit_and_a_load(name, tmp_path):
    table = made_table()
    fit = fitted(KINDS[name], table, tol=1e-3)
    fit.save(tmp_path)
    loaded = load_estimator(tmp_path)
    before = fit.predicted(table.x).output
    score = fit.score(table.x, answers(KINDS[name], table))
    assert same(learned(fit, table), learned(loaded, table))
    assert not np.array_equal(before, fit.predicted(table.x).output)
    assert fit.score(table.x, answers(KINDS[name], table)) > score - 0.1
    assert fit.domain_counts_.tolist() == [60, 60, 60]


def test_a_fit_forgets_the_parts():
    table = made_table()
    fit = learned(made(ERMClassifier, **FAST), table, 2)
    fit.fit(table.x, table.classes)
    assert same(fit, made(ERMClassifier, **FAST).fit(table.x, table.classes))
    assert len(fit.domains_) == 0


def test_new_domains_are_added_to_those_known():
    table = made_table()
    fit = learned(made(ERMRegressor), table)
    fit.partial_fit(table.x[:5], table.numbers[:5], sample_domain=["zug"] * 5)
    assert dict(zip(fit.domains_.tolist(), fit.domain_counts_.tolist(), strict=True)) == {
        "basel": 30,
        "bern": 30,
        "chur": 30,
        "zug": 5,
    }


def test_a_later_part_may_be_of_one_row_and_one_class():
    table = made_table()
    fit = learned(made(GDUClassifier), table)
    fit.partial_fit(table.x[:1], table.classes[:1])
    assert fit.n_iter_ == 2


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_first_part_names_all_classes(name):
    table = made_table()
    estimator = made(KINDS[name])
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        estimator.partial_fit(table.x, table.classes)
    estimator.partial_fit(table.x, table.classes, classes=[2, 1, 0, 9])
    assert estimator.classes_.tolist() == [0, 1, 2, 9]
    assert estimator.predict_proba(table.x).shape == (90, 4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y: {"X": x, "y": y, "classes": [0, 1]}, r"classes=\[0, 1\] is not what the first call .* \[0 1 2\]"),
        (lambda x, y: {"X": x, "y": y + 1}, r"y holds classes that were not named at first: \[3\]"),
        (lambda x, y: {"X": x[:, :2], "y": y}, "2 features"),
        (lambda x, y: {"X": x, "y": y, "sample_domain": ["a"]}, "sample_domain tells of 1 rows"),
        (lambda x, y: {"X": np.where(x > 3, np.nan, x), "y": y}, "NaN"),
        (lambda x, y: {"X": x, "y": y, "sample_weight": -np.ones(90)}, "Negative"),
    ],
)
def test_a_bad_part_is_refused_and_what_was_learned_stays(change, words):
    table = made_table()
    fit = learned(made(GDUClassifier, **FAST), table, 2)
    kept, known = deepcopy(fit), set(vars(fit))
    with pytest.raises(ValueError, match=words):
        fit.partial_fit(**change(table.x, table.classes))
    assert set(vars(fit)) == known
    assert fit.domain_counts_.tolist() == kept.domain_counts_.tolist()
    assert same(learned(fit, table), learned(kept, table))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_part_that_blows_up_is_refused_and_what_was_learned_stays():
    table = made_table()
    fit = learned(made(ERMRegressor, **FAST), table, 2)
    kept = deepcopy(fit)
    with pytest.raises(ValueError, match=r"the loss became (nan|inf) in this part; scale the inputs"):
        fit.partial_fit(1e30 * table.x, table.numbers)
    assert same(fit, kept)
    assert np.isfinite(fit.predict(table.x)).all()
    assert same(learned(fit, table), learned(kept, table))


def test_other_numbers_of_targets_are_refused():
    table = made_table()
    fit = learned(made(ERMRegressor), table)
    with pytest.raises(ValueError, match="y has 2 columns, and 1 in the parts before"):
        fit.partial_fit(table.x, np.stack([table.numbers] * 2, 1))
    assert fit.predict(table.x).shape == (90,)


def test_balanced_classes_cannot_be_known_from_a_part():
    table = made_table()
    with pytest.raises(ValueError, match=r"class_weight='balanced' needs all rows at once; give .* as a dict"):
        made(ERMClassifier, class_weight="balanced").partial_fit(table.x, table.classes, classes=[0, 1, 2])


def test_every_row_has_the_same_chance_to_be_kept(monkeypatch):
    monkeypatch.setattr(parts, "_KEPT", 6)
    sizes, runs = (3, 5, 1, 11, 4), 2_000
    network = PlainNetwork(Scaling(1), Scaling(1), Regression(), alpha=0.0)
    counts = np.zeros(sum(sizes))
    together = 0
    for seed in range(runs):
        reservoir, start = Parts(network, fitted=False, seed=seed), 0
        for size in sizes:
            values = np.arange(start, start + size, dtype=np.float64)[:, None]
            reservoir._keep(RowSource(values, device=torch.device("cpu")))
            start += size
            assert len(reservoir.kept) == min(6, start)
        kept = reservoir.kept[:, 0].astype(int)
        assert len(set(kept.tolist())) == 6
        counts[kept] += 1
        together += {0, 23} <= set(kept.tolist())
    # Each with chance 6/24; pairs with 6/24 * 5/23. Within four and a half deviations.
    assert np.abs(counts - runs / 4).max() < 4.5 * np.sqrt(runs * 0.25 * 0.75)
    pair = 6 / 24 * 5 / 23
    assert abs(together - runs * pair) < 4.5 * np.sqrt(runs * pair * (1 - pair))


def test_coverage_is_that_of_the_rows_kept():
    table = made_table()
    fit = learned(made(GDUClassifier, learn_bases=True, **FAST), table, 3)
    left = fit.novelty(fit._parts.kept)
    assert float(fit.network_.units.coverage.q97) == pytest.approx(np.quantile(left, 0.97), rel=1e-4)


@pytest.mark.parametrize("how", ["fitted", "loaded"])
def test_a_few_rows_more_leave_the_coverage_that_was_measured_on_many(how, tmp_path):
    table = made_table(300)
    fit = fitted(GDUClassifier, table)
    if how == "loaded":
        fit.save(tmp_path)
        fit = load_estimator(tmp_path)
    before = fit.familiarity(table.x)
    fit.partial_fit(table.x[:1], table.classes[:1])
    np.testing.assert_array_equal(fit.familiarity(table.x), before)


def test_enough_rows_more_measure_coverage_anew(monkeypatch):
    monkeypatch.setattr(parts, "_ENOUGH", 20)
    table = made_table()
    fit = fitted(GDUClassifier, table)
    before = float(fit.network_.units.coverage.q97)
    fit.partial_fit(table.x[:10] + 5, table.classes[:10])
    assert float(fit.network_.units.coverage.q97) == before
    fit.partial_fit(table.x[:10] + 5, table.classes[:10])
    assert float(fit.network_.units.coverage.q97) != before
