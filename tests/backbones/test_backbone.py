"""A backbone gives features to the experts and a standardised view to the gates."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from gated_domains.backbones import (
    GATINGS,
    MLP,
    Backbone,
    GatingView,
    Identity,
    RandomFilters,
    RawInput,
    SmallCNN,
    View,
    gate_norms,
    mixing,
)
from gated_domains.layer import GatedDomainUnits

IMAGE, VECTOR = (3, 12, 12), (6,)
CASES = {
    "filters": (SmallCNN, IMAGE),
    "style": (SmallCNN, IMAGE),
    "features": (SmallCNN, IMAGE),
    "input": (MLP, VECTOR),
}
in_every_case = pytest.mark.parametrize("name", CASES)


def backbone(name: str) -> Backbone:
    torch.manual_seed(0)
    make, shape = CASES[name]
    body = make(shape)
    return Backbone(body, GATINGS[name](body, shape))


def inputs(name: str, rows: int = 30, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, *CASES[name][1], generator=generator)
    return x * (1 + torch.arange(rows).reshape(-1, *[1] * (x.dim() - 1)) / 10) + 3


@in_every_case
def test_a_view_has_the_widths_it_promises(name):
    made, x = backbone(name), inputs(name)
    view = made(x)
    assert isinstance(view, View)
    assert view.features.shape == (30, made.features)
    assert (view.gating is None) == (name == "features")
    assert (view.features if view.gating is None else view.gating).shape == (30, made.gating_features)


@in_every_case
def test_features_are_those_of_the_body(name):
    made, x = backbone(name).eval(), inputs(name)
    assert torch.equal(made(x).features, made.body(x))


@in_every_case
def test_looking_gives_what_gates_see(name):
    made, x = backbone(name).eval(), inputs(name)
    made.fit_view(x)
    view = made(x)
    assert torch.equal(made.look(x), view.features if view.gating is None else view.gating)
    assert not made.look(x).requires_grad


@pytest.mark.parametrize("name", ["filters", "input"])
def test_looking_at_the_raw_input_does_not_run_the_body(name):
    made, runs = backbone(name), []
    made.body.register_forward_hook(lambda *_: runs.append(1))
    made.look(inputs(name))
    made.fit_view(inputs(name))
    assert runs == []
    assert made.sees_raw_input


@pytest.mark.parametrize("name", ["style", "features"])
def test_views_made_by_the_body_do_not_claim_to_see_the_raw_input(name):
    assert not backbone(name).sees_raw_input


@pytest.mark.parametrize("name", ["filters", "style", "input"])
def test_what_gates_see_is_standardised_by_training_data(name):
    made, x = backbone(name).eval(), inputs(name)
    plain = made.look(x)
    rows = made.fit_view(x)
    varies = plain.std(0) > 1e-4
    torch.testing.assert_close(rows.mean(0), torch.zeros(made.gating_features), atol=1e-3, rtol=0)
    torch.testing.assert_close(rows.std(0)[varies], torch.ones(int(varies.sum())), atol=1e-3, rtol=0)
    assert torch.equal(made.look(x), rows)
    expected = (made.look(x[:7]), (plain[:7] - plain.mean(0)) / torch.where(plain.std(0) > 1e-6, plain.std(0), 1))
    torch.testing.assert_close(*expected, atol=1e-3, rtol=1e-3)


@in_every_case
def test_fitting_twice_is_fitting_once(name):
    made, x = backbone(name).eval(), inputs(name)
    made.fit_view(inputs(name, seed=9) * 5)
    torch.testing.assert_close(made.fit_view(x), backbone(name).eval().fit_view(x))


@in_every_case
def test_batches_are_as_good_as_one_tensor(name):
    made, x = backbone(name).eval(), inputs(name)
    whole = made.fit_view(x)
    torch.testing.assert_close(made.fit_view(iter(torch.split(x, 7))), whole, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["style", "features"])
def test_fitting_runs_the_body_in_its_mode_and_keeps_its_running_statistics(name):
    made, x = backbone(name).train(), inputs(name)
    before = {key: value.clone() for key, value in made.body.state_dict().items()}
    fitted = made.fit_view(x)
    assert all(torch.equal(value, before[key]) for key, value in made.body.state_dict().items())
    view = made(x)
    torch.testing.assert_close(view.features if view.gating is None else view.gating, fitted)


def test_a_column_that_never_varies_is_harmless():
    made = Backbone(Identity((3,)), RawInput((3,)))
    x = torch.randn(20, 3)
    x[:, 1] = 4.0
    rows = made.fit_view(x)
    assert (rows[:, 1] == 0).all()
    assert rows.isfinite().all()


@pytest.mark.parametrize("name", ["filters", "style", "input"])
def test_nothing_is_back_propagated_through_what_gates_see(name):
    made, x = backbone(name), inputs(name).requires_grad_()
    view = made(x)
    assert not view.gating.requires_grad
    assert view.features.requires_grad


@pytest.mark.parametrize("name", ["filters", "style", "input"])
def test_the_state_carries_all_that_gates_need(name):
    made, x = backbone(name).eval(), inputs(name)
    made.fit_view(x)
    make, shape = CASES[name]
    body = make(shape)
    other = Backbone(body, RandomFilters(shape, seed=5) if name == "filters" else GATINGS[name](body, shape)).eval()
    other.load_state_dict(made.state_dict())
    assert torch.equal(other(x).gating, made(x).gating)
    assert torch.equal(other(x).features, made(x).features)


@in_every_case
def test_a_copy_is_a_backbone_of_its_own(name):
    made, x = backbone(name).eval(), inputs(name)
    made.fit_view(x)
    twin = copy.deepcopy(made)
    before = made.look(x).clone()
    assert torch.equal(twin.look(x), before)
    with torch.no_grad():
        for parameter in made.body.parameters():
            parameter.add_(1.0)
    assert torch.equal(twin.look(x), before)


@pytest.mark.parametrize("name", ["filters", "style", "input"])
def test_gates_see_full_precision_under_autocast(name):
    made, x = backbone(name).eval(), inputs(name)
    made.fit_view(x)
    with torch.autocast("cpu", torch.bfloat16):
        view = made(x)
    assert view.gating.dtype == torch.float32
    if name != "style":
        assert torch.equal(view.gating, made.look(x))


def test_a_view_of_one_s_own_fits_in():
    class Brightness(GatingView):
        width = 1

        def forward(self, x):
            return x.mean((1, 2, 3))[:, None]

    made = Backbone(SmallCNN(IMAGE), Brightness())
    made.fit_view(inputs("filters"))
    assert made(inputs("filters")).gating.shape == (30, 1)
    assert made.sees_raw_input


def test_one_row_is_not_enough_to_standardise():
    with pytest.raises(ValueError, match="needs at least 2 rows, got 1"):
        backbone("input").fit_view(inputs("input", rows=1))


def test_no_batch_at_all_is_refused():
    with pytest.raises(ValueError, match="no batch"):
        backbone("input").fit_view([])


def test_rows_that_are_not_finite_are_refused_and_change_nothing():
    made, x = backbone("input"), inputs("input")
    x[3, 2] = float("nan")
    with pytest.raises(ValueError, match="NaN or infinity in 1 of 30 rows"):
        made.fit_view(x)
    assert torch.equal(made.standardised.scale, torch.ones(6))


def test_a_backbone_with_gated_norms_and_a_head_runs_on_one_weighing():
    made, x = backbone("filters"), inputs("filters")
    units = GatedDomainUnits(made.features, 2, num_bases=3, gating_features=made.gating_features)
    units.fit_bases(made.fit_view(x))
    plain = copy.deepcopy(made)(x).features
    gate_norms(made.body, units.max_bases)
    weighed = units.weigh(made.look(x))
    with mixing(made.body, weighed.mixture):
        features = made.body(x)
    torch.testing.assert_close(features, plain, atol=1e-5, rtol=1e-5)
    nn.functional.cross_entropy(units.mix(features, weighed).prediction, torch.arange(30) % 2).backward()
    assert made.body.blocks[0][1].weight_deviations.grad.abs().max() > 0
