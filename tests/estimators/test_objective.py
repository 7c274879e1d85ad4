"""The full-batch objective and its gradient are those of the formula, written as a slow loop."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest

import oracles
from gated_domains.estimators import full_batch
from gated_domains.estimators.holding import Held
from made_estimators import KINDS, made, made_table

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    # A dozen rows tell gates little.
    pytest.mark.filterwarnings("ignore::gated_domains.layer.GateWarning"),
]

PENALTIES = {"lambda_ols": 0.3, "lambda_l1": 0.2, "lambda_entropy": 0.4, "lambda_orth": 0.1}
RIDGES = {"alpha": 0.05, "deviation_alpha": 0.2}
CASES = {
    "two classes": ("GDUClassifier", 2, {**RIDGES, **PENALTIES}),
    "three classes": ("GDUClassifier", 3, RIDGES),
    "bases that move": ("GDUClassifier", 3, {**RIDGES, **PENALTIES, "learn_bases": True}),
    "two classes, bases that move": ("GDUClassifier", 2, {**RIDGES, **PENALTIES, "learn_bases": True, "gate": "mmd"}),
    "the paper's form": ("GDUClassifier", 3, {**RIDGES, "shared": False, "learn_bases": True}),
    "no coverage": ("GDUClassifier", 3, {**RIDGES, "coverage": False, "learn_bases": True}),
    "numbers": ("GDURegressor", 0, {**RIDGES, **PENALTIES}),
    "numbers, bases that move": ("GDURegressor", 0, {**RIDGES, **PENALTIES, "learn_bases": True}),
    "plain, two classes": ("ERMClassifier", 2, {"alpha": 0.05}),
    "plain, three classes": ("ERMClassifier", 3, {"alpha": 0.05}),
    "plain numbers": ("ERMRegressor", 0, {"alpha": 0.05}),
}


class Round:
    """One minimisation: the function it is of, where it starts, and the network at the start."""

    def __init__(self, function, start, network):
        self.function, self.start, self.network = function, start, network


@pytest.fixture
def rounds(monkeypatch) -> list[Round]:
    """What the full-batch solver minimised, for each of its rounds."""
    seen: list[Round] = []
    networks = []

    class Seen(Held):
        def __init__(self, network, source):
            super().__init__(network, source)
            networks.append(deepcopy(network))

    original = full_batch.minimize

    def minimize(function, start, **settings):
        seen.append(Round(function, start.copy(), networks[-1]))
        return original(function, start, **settings)

    monkeypatch.setattr(full_batch, "Held", Seen)
    monkeypatch.setattr(full_batch, "minimize", minimize)
    return seen


def standardised(values, weights):
    share = weights / weights.sum()
    mean = share @ values
    return (values - mean) / np.sqrt(share @ (values - mean) ** 2)


def by_name(network, flat):
    """The parameters that a flat vector stands for, and those that stay what they are."""
    found, start = {}, 0
    for name, value in network.named_parameters():
        if value.requires_grad:
            found[name] = flat[start : start + value.numel()].reshape(value.shape)
            start += value.numel()
        else:
            found[name] = value.detach().numpy()
    assert start == len(flat)
    return found


def found_by_gates(estimator, x, bases, gate):
    k = oracles.radial_kernel("gaussian", estimator.sigma_)
    own, cross, gram = oracles.self_product(k, x), oracles.cross(k, x, bases), oracles.gram(k, bases)
    weigh = {"cosine": oracles.cosine_gate, "mmd": oracles.mmd_gate}[gate]
    return own, cross, gram, weigh(own, cross, gram, estimator.kappa_)


def row_loss(logits, target, kind):
    if kind == "numbers":
        return sum((said - wanted) ** 2 for said, wanted in zip(logits, target, strict=True)) / len(logits)
    return oracles.cross_entropy([0.0, logits[0]] if len(logits) == 1 else logits, int(target))


def objective(flat, estimator, network, x, targets, weights, kind):
    """mean_i w_i loss_i + alpha/2 ||W||^2 + deviation_alpha/2 ||d||^2 + penalties where bases move."""
    own = by_name(network, flat)
    if network.units is None:
        weight, bias = own["linear.weight"], own["linear.bias"]
        logits = [oracles.linear(row, weight, bias) for row in x]
        total = estimator.alpha / 2 * (weight**2).sum()
    else:
        products = found_by_gates(estimator, x, own["units.bases"], estimator.gate)
        beta = products[3]
        experts = [
            [
                oracles.linear(row, *one)
                for one in zip(own["units.experts.weight"], own["units.experts.bias"], strict=True)
            ]
            for row in x
        ]
        deviations = (own["units.experts.weight"] ** 2).sum()
        if estimator.shared:
            # Coverage as it was at the start: it is held while bases move.
            at_start = network.units.bases.detach().numpy()
            left = oracles.residual(*found_by_gates(estimator, x, at_start, estimator.gate))
            ends = oracles.quantile(left, 0.5), oracles.quantile(left, 0.97)
            covered = oracles.coverage(left, *ends) if estimator.coverage else [1.0] * len(x)
            weight, bias = own["units.shared.weight"][0], own["units.shared.bias"][0]
            logits = oracles.shared_mixture(beta, [oracles.linear(row, weight, bias) for row in x], experts, covered)
            total = estimator.alpha / 2 * (weight**2).sum() + estimator.deviation_alpha / 2 * deviations
        else:
            logits = oracles.mixture(beta, experts)
            total = estimator.alpha / 2 * deviations
        if estimator.learn_bases:
            total += estimator.lambda_ols * oracles.reconstruction(*products)
            total += estimator.lambda_l1 * oracles.sparsity(beta) + estimator.lambda_entropy * oracles.entropy(beta)
            total += estimator.lambda_orth * oracles.srip(products[2], "diagonal")
    losses = [row_loss(said, target, kind) for said, target in zip(logits, targets, strict=True)]
    return total + sum(w * loss for w, loss in zip(weights, losses, strict=True)) / weights.sum()


@pytest.mark.parametrize("case", CASES)
def test_objective_and_gradient_are_those_of_the_formula(case, rounds):
    name, classes, settings = CASES[case]
    table = made_table(12, 2, classes=max(classes, 2), seed=3)
    gated = {"num_bases": 2, "basis_size": 2} if name.startswith("GDU") else {}
    estimator = made(KINDS[name], tol=0.02, **gated, **settings)
    weights = np.random.default_rng(0).uniform(0.5, 2, 12)
    y = np.stack([table.numbers, table.x[:, 0] ** 2], 1) if classes == 0 else table.classes
    estimator.fit(table.x, y, sample_weight=weights)

    x = standardised(table.x, weights)
    targets, kind = (standardised(y, weights), "numbers") if classes == 0 else (y, "classes")
    assert len(rounds) == (2 if settings.get("learn_bases") else 1)
    for made_round in rounds:
        point = made_round.start + np.random.default_rng(1).normal(0, 0.3, made_round.start.shape)
        value, gradient = made_round.function(point)

        def slow(flat, network=made_round.network):
            return objective(flat, estimator, network, x, targets, weights, kind)

        assert value == pytest.approx(slow(point), rel=1e-9)
        step = 1e-5
        moved = step * np.eye(len(point))
        numeric = [(slow(point + one) - slow(point - one)) / (2 * step) for one in moved]
        np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("learn_bases", [False, True])
def test_bases_move_only_where_they_are_to(learn_bases, rounds):
    table = made_table(24, 3)
    estimator = made(KINDS["GDUClassifier"], learn_bases=learn_bases, max_iter=10).fit(table.x, table.classes)
    before, after = rounds[0].network.units.bases, estimator.network_.units.bases
    assert (before != after).any() == learn_bases


def test_a_later_round_starts_with_coverage_taken_anew(rounds):
    table = made_table(24, 3)
    estimator = made(KINDS["GDUClassifier"], learn_bases=True, tol=0.02).fit(table.x, table.classes)
    quantiles = [float(one.network.units.coverage.q50) for one in rounds]
    assert quantiles[0] != quantiles[1]
    left = estimator.novelty(table.x)
    assert float(estimator.network_.units.coverage.q50) == pytest.approx(np.quantile(left, 0.5), rel=1e-9)
