"""Early stopping: rows kept apart of every class and domain, the best weights put back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from gated_domains.estimators import ERMClassifier, GDUClassifier, GDURegressor, estimator, solving
from gated_domains.estimators.material import Material
from gated_domains.estimators.rows import RowSource
from gated_domains.estimators.solving import Solving
from gated_domains.estimators.watch import Watch
from made_estimators import KINDS, answers, fitted, made, made_table


def parted(table, *, fraction, domains=True, numbers=False, seed=0):
    sites = np.unique(table.sites, return_inverse=True)[1] if domains else None
    x = np.arange(len(table.x), dtype=np.float64)[:, None]  # each row tells which it is
    targets = torch.from_numpy(table.numbers[:, None] if numbers else table.classes)
    weights = torch.from_numpy(np.random.default_rng(0).uniform(0.5, 2, len(x)))
    how = Solving.of(ERMClassifier(validation_fraction=fraction, early_stopping=True))
    material = Material(RowSource(x, device=torch.device("cpu")), targets, weights / weights.mean(), sites)
    return solving.set_apart(material, how, seed)


def places(material):
    return material.source.take(slice(None))[:, 0].numpy().astype(int)


def named(material):
    return set(places(material).tolist())


@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.8])
def test_rows_apart_are_of_every_class_and_domain_and_no_others_are_trained_on(fraction):
    table = made_table(400)
    kept, apart = parted(table, fraction=fraction)
    assert named(kept) | named(apart) == set(range(400))
    assert not named(kept) & named(apart)
    assert len(apart) == pytest.approx(fraction * 400, abs=1)
    everywhere = set(zip(table.sites.tolist(), table.classes.tolist(), strict=True))
    for part in (kept, apart):
        own = sorted(named(part))
        assert set(zip(table.sites[own].tolist(), table.classes[own].tolist(), strict=True)) == everywhere
        assert float(part.weights.mean()) == pytest.approx(1)
        assert np.array_equal(part.targets.numpy(), table.classes[places(part)])


def test_numbers_are_kept_apart_by_domain():
    table = made_table(60)
    _, apart = parted(table, fraction=0.1, numbers=True)
    assert len(apart) == 6
    assert set(table.sites[sorted(named(apart))]) == set(table.sites)


def test_many_small_groups_give_their_share_together():
    table = made_table(90)._replace(sites=np.arange(90) // 3, classes=np.zeros(90, np.int64))
    kept, apart = parted(table, fraction=0.1)
    assert len(apart) == 9
    assert set(table.sites[sorted(named(kept))]) == set(range(30))


def test_a_row_that_is_alone_of_its_kind_is_trained_on():
    table = made_table(30)
    table.classes[4] = 7
    kept, _ = parted(table, fraction=0.9)
    assert 4 in named(kept)


def test_other_seeds_keep_other_rows_apart():
    assert named(parted(made_table(), fraction=0.2)[1]) != named(parted(made_table(), fraction=0.2, seed=1)[1])


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_training_stops_and_the_best_weights_are_put_back(name, solver, monkeypatch):
    watches, materials = [], []
    original_watch, original_apart = solving.Watch, estimator.set_apart
    monkeypatch.setattr(
        solving, "Watch", lambda *given, **settings: watches.append(original_watch(*given, **settings)) or watches[-1]
    )
    monkeypatch.setattr(
        estimator, "set_apart", lambda *given: materials.append(original_apart(*given)) or materials[-1]
    )
    table = made_table(120, seed=5)
    kind = KINDS[name]
    rng = np.random.default_rng(0)
    y = rng.permutation(answers(kind, table))  # nothing to be learned: what is learned soon does harm
    fit = made(
        kind,
        solver=solver,
        epochs=300,
        learning_rate=0.05,
        early_stopping=True,
        validation_fraction=0.3,
        n_iter_no_change=3,
        tol=1e-4,
        alpha=0.0,
    ).fit(table.x, y, sample_domain=table.sites)
    curve = fit.validation_curve_
    assert len(curve) == fit.n_iter_ == len(fit.loss_curve_) < 300
    assert min(curve) < curve[-1]
    assert watches[0].best_loss == min(curve)
    fit.network_.eval()
    assert solving._mean_loss(fit.network_, materials[0][1]) == pytest.approx(min(curve), rel=1e-6)


def test_bases_that_move_are_put_back_too():
    fit = fitted(
        GDURegressor, early_stopping=True, n_iter_no_change=1, validation_fraction=0.3, learn_bases=True, tol=0.1
    )
    assert fit.n_iter_ == len(fit.validation_curve_)
    left = np.quantile(fit.novelty(made_table().x), 0.5)
    assert np.isfinite(left)


@pytest.mark.usefixtures("without_shape_checks")
def test_too_few_rows_are_told_of():
    table = made_table(4)
    with pytest.raises(ValueError, match=r"early_stopping needs rows .* 0\.1 of 4 rows are none; give more rows"):
        made(ERMClassifier, early_stopping=True).fit(table.x, [0, 1, 0, 1])


def test_without_early_stopping_there_is_no_validation():
    assert fitted(GDUClassifier).validation_curve_ == []


def watch(losses=None, **settings) -> Watch:
    later = iter(losses or [])
    told = {"unit": "epoch", "verbose": 0, "tolerance": 0.01, "patience": 2, **settings}
    return Watch(nn.Linear(1, 1), **told, validate=None if losses is None else lambda: next(later))


def test_small_gains_do_not_count_but_the_best_is_still_the_best():
    watched = watch([1.0, 0.995, 0.991, 5.0])
    stops = []
    for number in range(1, 4):
        with torch.no_grad():
            watched.network.weight.fill_(number)
        stops.append(watched.stop_after(0.0, number=number, most=9))
    assert stops == [False, False, True]
    with torch.no_grad():
        watched.network.weight.fill_(9)
    watched.settle()
    assert watched.network.weight.item() == 3
    assert watched.best_loss == 0.991


def test_patience_starts_anew_after_a_gain():
    watched = watch([1.0, 2.0, 0.5, 2.0, 2.0])
    assert [watched.stop_after(0.0, number=n, most=9) for n in range(1, 6)] == [False, False, False, False, True]


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_with_the_cure(loss):
    with pytest.raises(ValueError, match=rf"the loss became {loss} in epoch 3; scale the inputs .* learning_rate"):
        watch().stop_after(loss, number=3, most=9)
