"""What the Keras layer takes from data, what it refuses, and what it tells."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("keras")

import keras  # noqa: E402

from gated_domains.choose import random_bases, suggest_sigma  # noqa: E402
from gated_domains.keras_layer import (  # noqa: E402
    GatedDomainUnits,
    GateWarning,
    LinearExperts,
    MMDGate,
    ProbabilisticRegression,
    StackedExperts,
    kernels,
)
from gated_domains.keras_layer.arrays import as_numpy  # noqa: E402

RNG = np.random.default_rng(0)


def clusters(count: int = 3, rows: int = 60, width: int = 5) -> np.ndarray:
    centres = 6 * np.random.default_rng(1).standard_normal((count, width))
    return np.concatenate([centre + RNG.standard_normal((rows, width)) for centre in centres]).astype("float32")


def numbers(x: Any) -> np.ndarray:
    return as_numpy(x)


@pytest.mark.one_backend
def test_fitted_bases_are_rows_of_one_cluster_each_and_gates_tell_clusters_apart():
    x = clusters()
    head = GatedDomainUnits(2, num_bases=3, basis_size=4)
    assert head.fit_bases(x) is head
    bases = numbers(head.bases)
    places = [{int(np.abs(x - vector).sum(1).argmin()) // 60 for vector in basis} for basis in bases]
    assert sorted(place.pop() for place in places) == [0, 1, 2]
    assert all(not place for place in places)
    leading = numbers(head.evaluate(x).beta).argmax(1)
    assert len({int(part[0]) for part in np.split(leading, 3)}) == 3
    assert all((part == part[0]).all() for part in np.split(leading, 3))


@pytest.mark.one_backend
def test_sigma_is_the_median_distance_and_kappa_gives_half_the_entropy():
    x = RNG.standard_normal((300, 5)).astype("float32")
    head = GatedDomainUnits(2).fit_bases(x)
    np.testing.assert_allclose(head.kernel.get_sigma(), suggest_sigma(x).sigma, rtol=1e-6)
    beta = numbers(head.evaluate(x).beta).astype("float64")
    np.testing.assert_allclose(-(beta * np.log(beta)).sum(1).mean(), 0.5 * np.log(5), rtol=1e-2)


@pytest.mark.one_backend
def test_given_values_stand():
    head = GatedDomainUnits(2, gate="mmd").fit_bases(clusters(), sigma=3.0, kappa=7.0, initialiser=random_bases)
    assert head.kernel.get_sigma() == 3.0
    assert head.gate.get_kappa() == 7.0


@pytest.mark.one_backend
def test_the_number_of_bases_follows_the_clusters():
    head = GatedDomainUnits(2, num_bases="auto", max_bases=6, **{"lambda_orth": 0.1})
    head.fit_bases(clusters(3))
    assert head.num_bases == 3
    assert tuple(head.active_bases.shape) == (3, 10, 5)
    out = head.evaluate(clusters(3))
    assert tuple(out.beta.shape) == (180, 6)
    assert (numbers(out.beta)[:, 3:] == 0).all()
    np.testing.assert_allclose(numbers(out.beta).sum(1), 1, rtol=1e-5)


@pytest.mark.one_backend
def test_what_lies_in_unused_places_disturbs_no_number():
    head = GatedDomainUnits(2, num_bases=3, max_bases=5, lambda_orth=0.1, lambda_entropy=0.1)
    x = clusters()
    head.fit_bases(x)
    before = head.evaluate(x)
    places = numbers(head.bases).copy()
    places[3:] = 1e6
    head.bases.assign(places)
    after = head.evaluate(x)
    np.testing.assert_array_equal(numbers(after.prediction), numbers(before.prediction))
    for name, value in head.penalty_terms(after).items():
        assert float(value) == float(head.penalty_terms(before)[name])


def test_coverage_is_one_for_half_of_the_training_rows_and_nought_for_strangers():
    x = clusters()
    head = GatedDomainUnits(2, num_bases=3)
    assert (numbers(head.evaluate(x).coverage) == 1).all()
    head.fit_bases(x)
    covered = numbers(head.evaluate(x).coverage)
    np.testing.assert_allclose((covered == 1).mean(), 0.5, atol=0.02)
    np.testing.assert_allclose((covered == 0).mean(), 0.03, atol=0.02)
    strangers = (x + 100).astype("float32")
    assert numbers(head.evaluate(strangers).coverage).max() == 0
    np.testing.assert_array_equal(numbers(head.familiarity(strangers)), 0)
    assert numbers(head.novelty(strangers)).min() > numbers(head.novelty(x)).mean()


def test_with_coverage_a_stranger_gets_the_shared_expert_alone():
    x = clusters()
    head = GatedDomainUnits(2, num_bases=3, coverage=True).fit_bases(x)
    for weight in head.experts.weights:
        weight.assign(RNG.standard_normal(weight.shape).astype("float32"))
    strangers = (x[:5] + 100).astype("float32")
    np.testing.assert_array_equal(numbers(head(strangers)), numbers(head.shared(strangers))[:, 0])
    assert np.abs(numbers(head(x)) - numbers(head.shared(x))[:, 0]).max() > 0.1


def test_deviations_start_at_zero():
    head = GatedDomainUnits(2, experts=LinearExperts("tanh"))
    x = clusters()
    np.testing.assert_array_equal(numbers(head(x)), numbers(head.shared(x))[:, 0])


def test_bases_of_one_seed_are_the_same_and_of_another_are_not():
    x = clusters()
    one, same, other = (GatedDomainUnits(2, num_bases=3).fit_bases(x, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(numbers(one.bases), numbers(same.bases))
    assert np.abs(numbers(one.bases) - numbers(other.bases)).max() > 0


def test_what_an_optimiser_remembers_of_rewritten_bases_is_cleared_and_nothing_else():
    x = clusters()
    head = GatedDomainUnits(2, num_bases=3)
    model = keras.Sequential([keras.Input((5,)), head])
    model.compile(keras.optimizers.Adam(0.1), "mse")
    model.fit(x, np.ones((len(x), 2), "float32"), epochs=1, verbose=0)
    slots = {slot.path: slot for slot in model.optimizer.variables if slot.shape == head.bases.shape}
    others = [slot for slot in model.optimizer.variables if slot.shape == head.experts.weight.shape]
    assert len(slots) == 2
    assert all(np.abs(numbers(slot)).max() > 0 for slot in slots.values())
    held = [numbers(slot).copy() for slot in others]
    head.fit_bases(x, optimizer=model.optimizer)
    assert all((numbers(slot) == 0).all() for slot in slots.values())
    for slot, before in zip(others, held, strict=True):
        np.testing.assert_array_equal(numbers(slot), before)
    with pytest.raises(ValueError, match="does not train"):
        GatedDomainUnits(2, num_bases=3).fit_bases(x, optimizer=model.optimizer)


def test_dead_gates_are_told():
    x = clusters()
    head = GatedDomainUnits.paper(2, num_bases=5)
    head.build((None, 5))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", GateWarning)
        head.fit_bases(x, sigma=1e-3)
    found = [warning for warning in told if warning.category is GateWarning]
    assert any("the kernel saturates" in str(warning.message) for warning in found)
    assert not any("gated_domains/" in warning.filename or "keras/src" in warning.filename for warning in found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GateWarning)
        head.fit_bases(x, sigma=1e3)
    assert any("near every basis" in finding for finding in head.health(x).findings())


def test_the_paper_preset_has_the_papers_numbers():
    head = GatedDomainUnits.paper(10, gate="projection", setting="wilds")
    assert head.kernel.get_sigma() == 16
    assert (head.lambda_ols, head.lambda_l1, head.lambda_orth) == (1e-3, 0, 1e-3)
    assert head.orthogonality_target == "identity"
    assert not head.has_shared
    assert "deviations" not in head.penalties_in_use
    assert (head.num_bases, head.kind_of_experts.bias) == (10, False)
    digits = GatedDomainUnits.paper(10, num_bases=4, basis_size=50)
    digits.build((None, 200))
    assert (digits.kernel.get_sigma(), digits.gate.get_kappa()) == (7.5, 2.0)
    assert digits.kind_of_experts.activation is keras.activations.tanh
    bases = numbers(digits.bases)
    np.testing.assert_allclose(bases.mean((1, 2)), [0, -0.5, 1, -1.5], atol=0.02)
    np.testing.assert_allclose(bases.std((1, 2)), [0.1, 0.2, 0.3, 0.4], rtol=0.05)


def test_records_hold_what_calls_found_and_end_with_the_block():
    x = clusters()
    head = GatedDomainUnits(2, num_bases=3)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Rescaling(2.0), head])
    with head.record() as outs, head.watch() as seen:
        model(x)
        model(x[:7])
    model(x)
    assert [len(out.beta) for out in outs] == [180, 7]
    np.testing.assert_allclose(numbers(seen[1]), 2 * x[:7])
    if keras.backend.backend() != "torch":  # which traces nothing
        with head.record(), pytest.raises(RuntimeError, match=r"model\(x\)"):
            model.predict(x, verbose=0)


def test_gates_of_a_batch_are_one_for_all():
    x = clusters()
    head = GatedDomainUnits(2, num_bases=3).fit_bases(x)
    out = head.evaluate(x[:60], gates="batch")
    assert tuple(out.beta.shape) == (1, 3)
    assert tuple(out.products.self_product.shape) == (1,)
    each = head.evaluate(x[:60]).products
    np.testing.assert_allclose(numbers(out.products.cross)[0], numbers(each.cross).mean(0), rtol=1e-5)


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"units": 0}, "units must be a whole number of at least 1, got 0"),
        ({"num_bases": 0}, "num_bases must be"),
        ({"num_bases": 4, "max_bases": 3}, "leaves no room"),
        ({"gate": "cosin"}, "unknown gate 'cosin'; known: cosine, mmd, projection; did you mean 'cosine'"),
        ({"gate": "projection", "kappa": 2.0}, "kappa=2.0 cannot be set"),
        ({"gate": MMDGate(1.0), "kappa": 2.0}, "belongs to the gate"),
        ({"kernel": "gausssian"}, "unknown kernel 'gausssian'; known: gaussian, laplacian"),
        ({"kernel": kernels.Gaussian(1.0), "sigma": 2.0}, "belongs to the kernel"),
        ({"kernel": kernels.Gaussian}, "kernel must be a kernel"),
        ({"sigma": -1.0}, "sigma must be positive and finite, got -1.0"),
        ({"kappa": float("nan")}, "kappa must be positive"),
        ({"lambda_ols": -0.1}, "lambda_ols must be finite and at least 0, got -0.1"),
        ({"orthogonality": "srp"}, "unknown orthogonality 'srp'"),
        ({"orthogonality_target": "diag"}, "'diagonal' or 'identity', got 'diag'"),
        ({"experts": "linear"}, "experts must be a kind of experts"),
        ({"experts": LinearExperts("sigmoid")}, "sigmoid makes them 0.5"),
        ({"task": "multi_class"}, "choose the loss in compile"),
        ({"task": ProbabilisticRegression(), "activation": "softmax"}, "would distort mean and variance"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_the_value(settings, said):
    with pytest.raises((ValueError, TypeError), match=said.replace("(", r"\(")):
        GatedDomainUnits(**{"units": 2, **settings})


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda head: head.fit_bases(np.full((9, 5), np.nan, "float32")), "NaN or infinity in 9 of 9 rows"),
        (lambda head: head.fit_bases(np.ones((2, 5), "float32")), "at least 3 rows"),
        (lambda head: head.fit_bases(clusters(width=4)), "width 5"),
        (lambda head: head.fit_bases(clusters(), kappa=-1.0), "kappa must be positive"),
        (lambda head: head.fit_bases(clusters(), entropy=2.0), "between 0 and 1, got 2.0"),
        (
            lambda head: head.fit_bases(clusters(), initialiser=lambda *_: np.ones((1, 2))),
            r"gave bases of shape \(1, 2\)",
        ),
        (lambda head: head.evaluate(clusters(width=4)), "4"),
        (lambda head: head.evaluate(np.ones((3, 5), "int32")), "floating point"),
        (lambda head: head.evaluate(clusters(), clusters()[:7]), "a row for each row"),
        (lambda head: head.evaluate(clusters(), gates="stream"), "'sample' or 'batch', got 'stream'"),
        (lambda head: head.evaluate([clusters()] * 3), "got 3 inputs"),
    ],
)
def test_bad_input_is_refused_and_loses_nothing(call, said):
    head = GatedDomainUnits(2, num_bases=3).fit_bases(clusters())
    before = [numbers(weight).copy() for weight in head.weights]
    with pytest.raises((ValueError, TypeError), match=said):
        call(head)
    for weight, held in zip(head.weights, before, strict=True):
        np.testing.assert_array_equal(numbers(weight), held)


def test_a_layer_that_expects_a_view_says_so():
    head = GatedDomainUnits(2)
    head.build((None, 5), (None, 3))
    with pytest.raises(ValueError, match="pass that view as gating="):
        head.evaluate(clusters())


def test_an_expert_of_the_wrong_width_is_refused():
    head = GatedDomainUnits(2, experts=StackedExperts(keras.layers.Dense(3)))
    with pytest.raises(ValueError, match="must give 2 numbers a row"):
        head.build((None, 5))


def test_a_kernel_given_to_two_layers_belongs_to_neither():
    kernel = kernels.Gaussian(2.0)
    one, two = GatedDomainUnits(2, kernel=kernel), GatedDomainUnits(2, kernel=kernel)
    one.fit_bases(clusters())
    assert kernel.get_sigma() == two.kernel.get_sigma() == 2.0
    assert one.kernel.get_sigma() != 2.0
