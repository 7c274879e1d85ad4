"""Solvers: the same optimum from every start, the same bits in every run, and words where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from gated_domains.estimators import ERMClassifier, ERMRegressor, GDUClassifier, GDURegressor, full_batch, threads
from gated_domains.estimators.mini_batch import batches_of
from gated_domains.estimators.network import PlainNetwork
from gated_domains.estimators.scaling import Scaling
from made_estimators import KINDS, answers, fitted, made, made_table

STRONG = {"alpha": 0.05, "deviation_alpha": 0.1}


@pytest.fixture
def starts(monkeypatch):
    """Networks begin with other weights, by a seed that the test sets; bases and gates stay the same."""
    seed = {"value": 0}

    def otherwise(self, *given, look, dtype, seed_of=seed, **settings):
        network = original(self, *given, look=look, dtype=dtype, **settings)
        generator = torch.Generator().manual_seed(seed_of["value"])
        with torch.no_grad():
            for module in (network.units.experts, network.units.shared):
                for parameter in module.parameters():
                    parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        return network

    original = GDUClassifier._build
    monkeypatch.setattr(GDUClassifier, "_build", otherwise)
    return seed


def test_every_start_comes_to_the_same_optimum_while_bases_stand_still(starts):
    table = made_table()
    found = []
    for starts["value"] in (1, 2):
        fit = fitted(GDUClassifier, table, **STRONG, tol=1e-7, max_iter=3_000)
        found.append((fit.loss_curve_[-1], fit.predict_proba(table.x), fit.loss_curve_[0]))
    assert found[0][2] != found[1][2]
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-9)
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_the_gradient_at_the_end_is_below_tol(name, monkeypatch):
    results = []
    original = full_batch.minimize
    monkeypatch.setattr(
        full_batch, "minimize", lambda *given, **settings: results.append(original(*given, **settings)) or results[-1]
    )
    settings = STRONG if name.startswith("GDU") else {"alpha": 0.05}
    fit = fitted(KINDS[name], **settings, tol=1e-5)
    assert np.abs(results[-1].jac).max() <= 1e-5
    assert fit.loss_curve_ == sorted(fit.loss_curve_, reverse=True)
    assert fit.n_iter_ == len(fit.loss_curve_)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_a_fit_is_the_same_to_the_bit_whatever_the_global_generators_are_at(name, solver):
    found = []
    for seed in (0, 123):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        found.append(fitted(KINDS[name], solver=solver, epochs=2))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    first, second = (one.network_.state_dict() for one in found)
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_other_seeds_draw_other_bases():
    first, second = (fitted(GDUClassifier, random_state=seed) for seed in (0, 1))
    assert not np.array_equal(first.bases_, second.bases_)


@pytest.mark.parametrize("name", ["GDUClassifier", "GDURegressor", "ERMClassifier", "ERMRegressor"])
def test_mini_batches_come_near_the_optimum_of_the_full_batch(name):
    kind = KINDS[name]
    strong = STRONG if name.startswith("GDU") else {"alpha": 0.05}
    table = made_table()
    full = fitted(kind, table, **strong, solver="lbfgs", tol=1e-4)
    mini = fitted(kind, table, **strong, solver="adam", epochs=100, learning_rate=0.08)
    assert mini.solver_ == "adam"
    assert mini.n_iter_ == len(mini.loss_curve_) == 100
    # The loss of an epoch is a mean along the way, with the penalties in it.
    assert mini.loss_curve_[-1] == pytest.approx(full.loss_curve_[-1], rel=0.02)
    assert mini.score(table.x, answers(kind, table)) == pytest.approx(
        full.score(table.x, answers(kind, table)), abs=0.05
    )


def test_mini_batches_move_bases_and_renew_coverage():
    still, moved = (
        fitted(GDUClassifier, solver="adam", epochs=5, learn_bases=learn, coverage=False) for learn in (False, True)
    )
    assert not np.array_equal(still.bases_, moved.bases_)
    x = made_table().x
    assert float(moved.network_.units.coverage.q50) == pytest.approx(np.quantile(moved.novelty(x), 0.5), rel=1e-4)


def test_the_full_batch_is_taken_for_few_numbers_alone(monkeypatch):
    assert fitted(ERMClassifier).solver_ == "lbfgs"
    monkeypatch.setattr("gated_domains.estimators.solving._FULL_BATCH", 90 * 4 - 1)
    assert fitted(ERMClassifier).solver_ == "adam"
    assert fitted(ERMClassifier, solver="lbfgs").solver_ == "lbfgs"


@pytest.mark.parametrize(("rows", "size", "expected"), [(100, 30, [25] * 4), (7, 10, [7]), (40, "auto", [20, 20])])
def test_batches_are_of_nearly_one_size_and_take_every_row_once(rows, size, expected):
    found = batches_of(np.random.default_rng(0).permutation(rows), size)
    assert [len(one) for one in found] == expected
    assert sorted(np.concatenate(found)) == list(range(rows))


def test_too_few_iterations_are_warned_of_with_the_cure():
    with pytest.warns(ConvergenceWarning, match=r"stopped after 3 iterations .* above tol=0\.0001; raise max_iter"):
        fit = fitted(GDUClassifier, max_iter=3, tol=1e-4)
    assert fit.n_iter_ == 3


def test_enough_iterations_are_not_warned_of(recwarn):
    fitted(ERMClassifier)
    assert not [one for one in recwarn if issubclass(one.category, ConvergenceWarning)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_a_loss_that_is_no_number_is_told_and_nothing_is_left_fitted(solver):
    table = made_table()
    broken = ERMRegressor(standardize=False, solver=solver)
    with pytest.raises(ValueError, match=r"the loss became (nan|inf).*scale the inputs \(standardize=True\)"):
        broken.fit(1e200 * table.x, table.numbers)
    assert not hasattr(broken, "network_")


def test_progress_is_printed_for_those_who_ask(capsys):
    fitted(ERMClassifier)
    assert capsys.readouterr().out == ""
    fit = fitted(ERMClassifier, solver="adam", epochs=5, verbose=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["epoch 2/5", "epoch 4/5", "epoch 5/5"]
    assert lines[-1].endswith(f"loss {fit.loss_curve_[-1]:.5f}")


def test_a_single_basis_that_may_move_is_no_trouble():
    table = made_table()
    fit = made(GDURegressor, num_bases=1, learn_bases=True, lambda_ols=0.0).fit(table.x, table.numbers)
    assert np.isfinite(fit.predict(table.x)).all()


# 6 operations for each of 100 rows and (5 + 1) x 3 weights: 10,800.
@pytest.mark.parametrize(("flops", "used"), [(10_801, 1), (10_800, 2), (5_400, 3), (1_000, 4)])
@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_steps_use_as_many_threads_as_they_are_worth_and_the_caller_keeps_his(monkeypatch, solver, flops, used):
    table, seen, original = made_table(100, width=5), [], PlainNetwork.loss

    def loss(*given: Any, **settings: Any) -> Tensor:
        seen.append(torch.get_num_threads())
        return original(*given, **settings)

    monkeypatch.setattr(PlainNetwork, "loss", loss)
    monkeypatch.setattr(threads, "_FLOPS_A_THREAD", flops)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        made(ERMClassifier, solver=solver, batch_size=100).fit(table.x, table.classes)
        assert (set(seen), torch.get_num_threads()) == ({used}, 4)
        with pytest.raises(ValueError, match="loss became"):
            made(ERMRegressor, standardize=False, solver=solver).fit(1e200 * table.x, table.numbers)
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("ask", ["predict", "partial_fit"])
def test_asking_and_parts_use_few_threads_too(monkeypatch, ask):
    table, fit, seen = made_table(), fitted(ERMClassifier), []
    part = {"predict": (table.x,), "partial_fit": (table.x, table.classes)}[ask]
    monkeypatch.setattr(Scaling, "forward", lambda self, x: seen.append(torch.get_num_threads()) or x)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        getattr(fit, ask)(*part)
        assert (set(seen), torch.get_num_threads()) == ({1}, 2)
    finally:
        torch.set_num_threads(before)
