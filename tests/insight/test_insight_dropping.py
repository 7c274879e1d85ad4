"""What dropping a basis costs, against a model written out from the formula without that basis."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from made_gates import gated, held, inputs_of

from gated_domains.data.batches import place
from gated_domains.data.encoding import fit_encoding
from gated_domains.evaluation.calibration import tempered
from gated_domains.evaluation.formulas import FORMULAS
from gated_domains.evaluation.scores import metric_for, metric_named
from gated_domains.insight.dropping import Scoring, dropping, without
from small_trainings import DATASETS, identical, vectors, weights


def scoring(dataset, metric=None, temperature=1.0, **settings):
    split = held(dataset)
    encoding = fit_encoding(dataset, split.train)
    method = gated(dataset, encoding, split.train, **settings)
    chosen = metric_for(dataset.task) if metric is None else metric_named(metric)
    samples = place(dataset, encoding)
    score = Scoring(method=method, samples=samples, data=dataset, metric=chosen, temperature=temperature)
    return score, split


@torch.no_grad()
def said_without(method, inputs, dropped):
    """``f_0(x) + c(x) sum_j beta_j d_j(x)`` over the bases left, with beta and the residual from their products."""
    seen = method.backbone(inputs)
    units, kernel = method.units, method.units.kernel
    left = [j for j in range(units.max_bases) if j != dropped]
    outputs = []
    for x, z in zip(seen.features, seen.gating, strict=True):
        cross = torch.stack([kernel(z[None], units.bases[j]).mean() for j in left])
        gram = torch.stack([torch.stack([kernel(units.bases[j], units.bases[k]).mean() for k in left]) for j in left])
        own = kernel(z[None], z[None])[0, 0]
        beta = torch.softmax(units.gate.kappa * cross / (own * gram.diagonal()).sqrt(), 0)
        residual = own - 2 * beta @ cross + beta @ gram @ beta
        c = ((units.coverage.q97 - residual) / (units.coverage.q97 - units.coverage.q50)).clamp(0, 1)
        deviations = units.experts(x[None])[0]
        mixed = sum(beta[place] * deviations[j] for place, j in enumerate(left))
        outputs.append(units.shared(x[None])[0, 0] + c * mixed)
    return torch.stack(outputs)


def test_a_dropped_basis_leaves_the_model_of_the_others():
    score, split = scoring(vectors(90), gated_norm=False, coverage=True)
    found = dropping(score, [split.validation, split.test])
    for column, rows in enumerate((split.validation, split.test)):
        inputs, targets = inputs_of(score.samples, rows), score.data.targets[rows]
        whole = np.mean(score.method.predict(inputs).output.argmax(1).numpy() == targets)
        for basis in range(3):
            less = np.mean(said_without(score.method, inputs, basis).argmax(1).numpy() == targets)
            assert found[basis, column] == pytest.approx(less - whole, abs=1e-6)
    assert np.abs(found).max() > 0.01  # or nothing was tested


def test_the_metric_and_the_temperature_of_the_run_count():
    score, split = scoring(vectors(90), metric="log_loss", temperature=3.0)
    output = score.method.predict(inputs_of(score.samples, split.test)).output.detach().numpy()
    targets = score.data.targets[split.test]
    assert score(split.test) == pytest.approx(FORMULAS["log_loss"](tempered(output, 3.0), targets))


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("settings", [{}, {"num_bases": "auto"}, {"test_gates": "batch"}, {"gate": "projection"}])
def test_the_method_stays_as_it_was(name, settings):
    score, split = scoring(DATASETS[name](90), **settings)
    before = weights(score.method)
    found = dropping(score, [split.validation, split.test])
    assert identical(before, weights(score.method))
    assert found.shape == (score.method.units.num_bases, 2)
    assert np.isfinite(found).all()


def test_a_basis_is_back_even_after_an_error():
    score, _ = scoring(vectors(90))
    units = score.method.units

    def fails() -> None:
        with without(units, 1):
            assert units.active.tolist() == [True, False, True]
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert units.active.all()


def test_nothing_is_said_of_the_only_basis_nor_of_rows_without_a_score():
    score, split = scoring(vectors(90), num_bases=1)
    assert np.isnan(dropping(score, [split.validation, split.test])).all()
    score, split = scoring(vectors(90), metric="auroc")
    one_class = split.test[score.data.targets[split.test] == 0]
    found = dropping(score, [split.validation, one_class, np.empty(0, np.int64)])
    assert np.isfinite(found[:, 0]).all()
    assert np.isnan(found[:, 1:]).all()
