"""The linear head is the optimum, and a difference is significant exactly where there is one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression, Ridge

from gated_domains import GatedDomainUnits
from gated_domains.evaluation.metrics import METRICS
from gated_domains.insight.doctor.frozen_gates import frozen
from gated_domains.insight.doctor.linear_head import RIDGES, USUAL_RIDGE, fit_chosen, fit_linear_head
from gated_domains.insight.doctor.paired import compare_paired, varied
from gated_domains.insight.doctor.retrained import HELD_OUT, VALIDATION, Scored, beside_linear_head, linear_head

ACCURACY, RMSE = METRICS["accuracy"], METRICS["rmse"]


def problem(rows: int = 200, classes: int = 3, *, seed: int = 0):
    rng = np.random.default_rng(seed)
    x = rng.normal(2.0, 3.0, (rows, 5))
    x[:, 4] = 7.0  # a column that never varies
    y = (x[:, :classes] + rng.normal(0, 3, (rows, classes))).argmax(1)
    return torch.from_numpy(x).float(), y


def standard(x: torch.Tensor) -> np.ndarray:
    scale = x.double().std(0, correction=0)
    return ((x.double() - x.double().mean(0)) / torch.where(scale > 1e-9, scale, 1.0)).numpy()


def one_hot(answers: np.ndarray, classes: int = 2) -> np.ndarray:
    return np.eye(classes)[answers]


# -- the linear head ---------------------------------------------------------------------------------------------------


def test_of_classes_it_is_what_scikit_learn_finds():
    x, y = problem()
    head = fit_linear_head(x, y, task="classes", outputs=3, ridge=0.02)
    theirs = LogisticRegression(C=1 / (0.02 * len(y)), tol=1e-8, max_iter=5000).fit(standard(x), y)
    np.testing.assert_allclose(head.output(x), theirs.predict_proba(standard(x)), atol=1e-4)


def test_of_a_number_it_is_ridge_regression_in_the_unit_of_the_targets():
    x, _ = problem()
    y = 5_000.0 + 300.0 * x[:, 0].double().numpy() + np.random.default_rng(1).normal(0, 100, len(x))
    head = fit_linear_head(x, y, task="number", outputs=1, ridge=0.1)
    theirs = Ridge(alpha=0.1 / 2 * len(y)).fit(standard(x), y)
    np.testing.assert_allclose(head.output(x)[:, 0], theirs.predict(standard(x)), rtol=1e-4)


def test_of_labels_each_is_learned_from_the_rows_where_it_is_known():
    x, y = problem()
    labels = np.stack([y == 0, y == 1], 1).astype(float)
    labels[:50, 1] = np.nan
    head = fit_linear_head(x, labels, task="labels", outputs=2, ridge=0.02)
    known = np.sum(~np.isnan(labels))
    for label in (0, 1):
        there = ~np.isnan(labels[:, label])
        theirs = LogisticRegression(C=1 / (0.02 * known), tol=1e-8, max_iter=5000)
        theirs.fit(standard(x)[there], labels[there, label])
        np.testing.assert_allclose(head.output(x)[:, label], theirs.predict_proba(standard(x))[:, 1], atol=1e-4)


def test_no_step_from_it_lowers_the_objective():
    x, y = problem()
    head = fit_linear_head(x, y, task="classes", outputs=3, ridge=0.05)
    weight, bias = head.weight.clone().requires_grad_(), head.bias.clone().requires_grad_()
    logits = torch.from_numpy(standard(x)) @ weight.T + bias
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y)) + 0.05 / 2 * weight.square().sum()
    for gradient in torch.autograd.grad(loss, (weight, bias)):
        assert float(gradient.abs().max()) < 2e-5


def test_where_it_starts_changes_nothing():
    x, y = problem()
    strong = fit_linear_head(x, y, task="classes", outputs=3, ridge=1.0)
    cold = fit_linear_head(x, y, task="classes", outputs=3, ridge=1e-2)
    warm = fit_linear_head(x, y, task="classes", outputs=3, ridge=1e-2, start=strong)
    torch.testing.assert_close(warm.weight, cold.weight, atol=1e-3, rtol=1e-3)


def test_the_ridge_is_the_one_with_the_lowest_validation_loss():
    x, y = problem(150)
    fresh, true = problem(300, seed=5)
    x, fresh = (torch.cat([known, torch.randn(len(known), 15)], 1) for known in (x, fresh))
    head = fit_chosen(x, y, task="classes", outputs=3, validation=(fresh, true))
    losses = {
        ridge: fit_linear_head(x, y, task="classes", outputs=3, ridge=ridge).loss(fresh, true) for ridge in RIDGES
    }
    assert head.ridge == min(losses, key=losses.__getitem__)
    assert head.ridge not in (RIDGES[0], RIDGES[-1])
    assert fit_chosen(x, y, task="classes", outputs=3, validation=None).ridge == USUAL_RIDGE


# -- the difference and its interval -----------------------------------------------------------------------------------


def test_the_difference_is_gated_minus_linear_on_the_same_rows():
    true = np.array([0, 1, 1, 0, 1] * 20)
    found = compare_paired("held out", ACCURACY, one_hot(true), one_hot(np.zeros(100, int)), true)
    assert (found.first, found.second, found.difference, found.rows) == (1.0, 0.4, 0.6, 100)
    assert found.low < 0.6 < found.high
    assert found.outcome == "better"
    assert compare_paired("held out", ACCURACY, one_hot(true), one_hot(true), true).outcome == "not significant"


@pytest.mark.parametrize("values", ["few", "many"])
def test_the_interval_is_as_wide_as_the_spread_of_a_mean_says(values):
    """Both roads: counts of the few different values, and rows drawn one by one."""
    rng = np.random.default_rng(0)
    true = rng.normal(0, 1, 400) if values == "many" else rng.integers(2, size=400)
    if values == "few":
        one, other = (np.where(rng.random(400) < share, true, 1 - true) for share in (0.8, 0.7))
        found = compare_paired("a", ACCURACY, one_hot(one), one_hot(other), true)
        spread = np.std((one == true).astype(float) - (other == true)) / 20
        assert found.high - found.low == pytest.approx(2 * 1.96 * spread, rel=0.1)
    else:
        one, other = true + rng.normal(0, 1, 400), true + rng.normal(0, 1, 400)
        found = compare_paired("a", RMSE, one[:, None], other[:, None], true)
        # d sqrt(m) = dm / (2 sqrt(m))
        terms = (one - true) ** 2 / (2 * found.first) - (other - true) ** 2 / (2 * found.second)
        assert found.high - found.low == pytest.approx(2 * 1.96 * terms.std() / 20, rel=0.1)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng, covered, runs = np.random.default_rng(3), 0, 200
    for run in range(runs):
        true = rng.integers(2, size=250)
        one, other = (np.where(rng.random(250) < share, true, 1 - true) for share in (0.80, 0.72))
        found = compare_paired("a", ACCURACY, one_hot(one), one_hot(other), true, seed=run)
        covered += found.low <= 0.08 <= found.high
    assert binom.cdf(covered, runs, 0.95) > 1e-3, covered


def test_without_a_difference_a_false_one_is_told_as_rarely_as_it_says():
    rng, told, runs = np.random.default_rng(4), 0, 200
    for run in range(runs):
        true = rng.integers(2, size=250)
        one, other = (np.where(rng.random(250) < 0.75, true, 1 - true) for _ in range(2))
        told += compare_paired("a", ACCURACY, one_hot(one), one_hot(other), true, seed=run).outcome != "not significant"
    assert binom.sf(told - 1, runs, 0.05) > 1e-3, told


def test_rows_are_redrawn_within_their_groups():
    true = np.zeros(200, int)
    groups = np.repeat([0, 1], 100)
    linear = one_hot(np.where(groups == 0, 1, 0))  # wrong in the whole of one group
    within = compare_paired("a", ACCURACY, one_hot(true), linear, true, within=groups)
    assert (within.low, within.high) == (0.5, 0.5)
    across = compare_paired("a", ACCURACY, one_hot(true), linear, true)
    assert across.low < 0.45 < 0.55 < across.high


def test_rows_of_a_patient_are_redrawn_together():
    """40 patients of 10 rows each: the interval is that of 40 numbers, not of 400."""
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(40), 10)
    true = np.zeros(400, int)
    right = rng.random(40) < 0.7
    for metric in ("accuracy", "log_loss"):
        found = [
            compare_paired(
                "a", METRICS[metric], one_hot(true), one_hot(np.where(right[patient], 0, 1)), true, together=of
            )
            for of in (np.array([f"p{number}" for number in patient]), None)
        ]
        ratio = (found[0].high - found[0].low) / (found[1].high - found[1].low)
        assert ratio == pytest.approx(np.sqrt(10), rel=0.25), metric


def test_a_smaller_error_is_the_better_one():
    rng = np.random.default_rng(0)
    true = rng.normal(0, 1, 300)
    near, far = (true + rng.normal(0, noise, 300) for noise in (0.1, 1.0))
    assert compare_paired("a", RMSE, near[:, None], far[:, None], true).outcome == "better"
    worse = compare_paired("a", RMSE, far[:, None], near[:, None], true)
    assert (worse.outcome, worse.difference > 0) == ("worse", True)


def test_labels_are_scored_by_their_own_metric():
    rng = np.random.default_rng(0)
    true = rng.integers(2, size=(80, 2)).astype(float)
    true[:10, 0] = np.nan
    found = compare_paired("a", METRICS["mean_average_precision"], np.nan_to_num(true), rng.random((80, 2)), true)
    assert (found.first, found.outcome) == (1.0, "better")
    assert varied(true)
    assert not varied(np.ones((5, 2)))


# -- what is said of it ------------------------------------------------------------------------------------------------


def said(share_gated: float, share_linear: float, rows: int = 2_000):
    rng = np.random.default_rng(0)
    true = rng.integers(2, size=rows)
    one, other = (np.where(rng.random(rows) < share, true, 1 - true) for share in (share_gated, share_linear))
    return compare_paired("held out", ACCURACY, one_hot(one), one_hot(other), true)


def test_gates_must_be_better_than_a_linear_head_to_be_ok():
    def of(*parts):
        return linear_head(list(parts), how="so", about={})

    worse = of(said(0.7, 0.8), said(0.8, 0.7))
    assert (worse.level, worse.brief) == ("look", "a retrained linear head is better on held out")
    better = of(said(0.8, 0.7))
    assert (better.level, better.brief, better.cure) == ("ok", "better than a retrained linear head on held out", None)
    equal = of(said(0.8, 0.8))
    assert (equal.level, equal.brief) == ("look", "a retrained linear head is not significantly worse")
    assert "points (" in equal.says
    assert "over rows of one seed, not over seeds or domains" in equal.says
    assert equal.value["held out"]["outcome"] == "not significant"
    assert all(found.cure is not None for found in (worse, equal))


def test_frozen_gates_are_ok_only_where_freezing_costs_something():
    worse = frozen([said(0.7, 0.8), said(0.8, 0.8)])
    assert (worse.level, worse.brief) == ("ok", "the model depends on its gates")
    better = frozen([said(0.7, 0.8), said(0.8, 0.7)])
    assert (better.level, better.brief) == ("look", "frozen gates are better on held out")
    equal = frozen([said(0.8, 0.8)])
    assert (equal.level, equal.brief) == ("look", "frozen gates make no significant difference")
    true = np.zeros(1_000, int)
    one = one_hot((np.arange(1_000) == 5).astype(int))  # one row of a thousand
    same = frozen([compare_paired("held out", ACCURACY, one, one_hot(true), true)])
    assert (same.level, same.brief) == ("look", "frozen gates change nothing")


def domains(rows: int, seed: int):
    """Two groups in which one number means the opposite: no linear head can follow, gates can."""
    rng = np.random.default_rng(seed)
    group, x = rng.integers(2, size=rows), rng.normal(0, 1, (rows, 3))
    x[:, 2] = 8 * group - 4 + rng.normal(0, 0.5, rows)
    signal = np.where(group == 1, x[:, 0], -x[:, 0]) + rng.normal(0, 0.3, rows)
    return torch.from_numpy(x).float(), (signal > 0).astype(np.int64)


def trained(x: torch.Tensor, y: np.ndarray) -> GatedDomainUnits:
    head = GatedDomainUnits(3, 2, num_bases=2, basis_size=5).fit_bases(x)
    optimiser = torch.optim.LBFGS([*head.experts.parameters(), *head.shared.parameters()], max_iter=30)

    def step():
        optimiser.zero_grad()
        ridge = sum(parameter.square().sum() for parameter in head.experts.parameters())
        loss = torch.nn.functional.cross_entropy(head(x), torch.from_numpy(y)) + 0.005 * ridge
        loss.backward()
        return loss

    optimiser.step(step)
    return head


def parts(head: GatedDomainUnits, *, of=domains) -> dict[str, Scored]:
    found = {}
    for seed, name in ((1, VALIDATION), (2, HELD_OUT)):
        x, y = of(300, seed)
        with torch.no_grad():
            found[name] = Scored(x, head(x).softmax(-1).numpy(), y)
    return found


def test_gates_that_are_truly_better_are_found_to_be():
    x, y = domains(400, 0)
    found = beside_linear_head(x, y, parts(trained(x, y)), task="classes")
    assert found.says.startswith("better than a retrained linear head on validation and held out")
    assert found.value[HELD_OUT]["low"] > 0.2
    assert found.value["trained_rows"] == 400


def test_gates_that_bring_nothing_are_worth_a_look():
    def alike(rows: int, seed: int):
        x, _ = domains(rows, seed)
        return x, (x[:, 0].numpy() + np.random.default_rng(seed + 10).normal(0, 0.3, rows) > 0).astype(np.int64)

    x, y = alike(400, 0)
    found = beside_linear_head(x, y, parts(trained(x, y), of=alike), task="classes")
    assert (found.level, found.brief) == ("look", "a retrained linear head is not significantly worse")


def test_without_validation_rows_the_ridge_is_the_usual_one():
    x, y = domains(200, 0)
    only = {HELD_OUT: parts(trained(x, y))[HELD_OUT]}
    found = beside_linear_head(x, y, only, task="classes")
    assert found.value["ridge"] == USUAL_RIDGE
    assert VALIDATION not in found.value
