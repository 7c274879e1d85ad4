"""Views that gates see inside a model, and fitting a head on the model's own features."""

from __future__ import annotations

import copy
import re
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from gated_domains import GatedDomainUnits, fit_head, model_head, renew_head, replace_head
from gated_domains.backbones import gating_rows
from gated_domains.backbones.gating import ViewedHead, channel_statistics
from gated_domains.layer import GateWarning, StackedExperts
from gated_domains.layer.fitting import median_sigma

SMALL = partial(GatedDomainUnits, num_bases=3, basis_size=4)


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 6, 3)
        self.fc = nn.Linear(6, 2)

    def features(self, x):
        return torch.relu(self.conv2(torch.relu(self.bn(self.conv1(x))))).mean((2, 3))

    def forward(self, x):
        return self.fc(self.features(x))


class TokenNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.encoder = nn.Embedding(20, 6), nn.TransformerEncoderLayer(6, 2, 12, batch_first=True)
        self.lstm, self.head = nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, input_ids, attention_mask=None):
        return {"logits": self.head(self.lstm(self.encoder(self.embedding(input_ids)))[0][:, -1])}


class SignalNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv1d(2, 4, 3), nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean(-1))


def images(batch: int = 40, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    brightness = 3 * torch.randint(3, (batch, 1, 1, 1), generator=generator)
    return torch.randn(batch, 3, 8, 8, generator=generator) + brightness


def colour(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x.mean((2, 3)), x.std((2, 3))], -1)


def gated(gating=colour, model: nn.Module | None = None, example=None, head=SMALL) -> nn.Module:
    example = images(4) if example is None else example
    return replace_head(model or ConvNet(), head, gating=gating, example=example, verbose=False)


def seen_by_gates(model: nn.Module, inputs) -> torch.Tensor:
    """The gating view that reaches the units, as a hook of our own sees it."""
    caught = []
    hook = model_head(model).register_forward_pre_hook(lambda _, args: caught.append(args[1]))
    with torch.no_grad():
        model(**inputs) if isinstance(inputs, dict) else model(inputs)
    hook.remove()
    return caught[0]


def slow_statistics(maps: np.ndarray) -> np.ndarray:
    """Mean and log standard deviation of each channel; maps are (batch, channels, positions)."""
    rows = [[channel.mean() for channel in one] + [np.log(channel.var() + 1e-6) / 2 for channel in one] for one in maps]
    return np.array(rows)


# -- what gates see --------------------------------------------------------------------------------------------------


def test_a_callable_shows_gates_a_view_of_the_inputs():
    model = gated(colour)
    assert model_head(model).gating_features == 6
    torch.testing.assert_close(seen_by_gates(model, images()), colour(images()))


def test_a_callable_is_given_all_arguments_of_the_model():
    example = {"input_ids": torch.randint(20, (4, 7)), "attention_mask": torch.ones(4, 7)}
    model = gated(lambda input_ids, attention_mask: attention_mask.mean(1, keepdim=True), TokenNet(), example)
    assert torch.equal(seen_by_gates(model, example), torch.ones(4, 1))


def test_a_layer_shows_gates_the_statistics_of_its_channels():
    model = gated(["conv1"])
    maps = model.conv1(images()).detach().flatten(2).double().numpy()
    np.testing.assert_allclose(seen_by_gates(model, images()), slow_statistics(maps), rtol=1e-4, atol=1e-4)


def test_several_layers_are_shown_side_by_side_in_the_order_of_their_names():
    model = gated(["conv2", "bn"])
    view = seen_by_gates(model.eval(), images())
    assert view.shape == (40, 12 + 8)
    after = model.bn(model.conv1(images()))
    torch.testing.assert_close(view[:, :12], channel_statistics(model.conv2(torch.relu(after))))
    torch.testing.assert_close(view[:, 12:], channel_statistics(after))


def test_a_layer_of_tokens_shows_statistics_over_its_tokens():
    tokens = {"input_ids": torch.randint(20, (4, 7))}
    model = gated(["encoder"], TokenNet().eval(), tokens)
    maps = model.encoder(model.embedding(tokens["input_ids"])).detach().mT.double().numpy()
    np.testing.assert_allclose(seen_by_gates(model, tokens), slow_statistics(maps), rtol=1e-4, atol=1e-4)


def test_a_layer_that_returns_a_tuple_shows_its_first_output():
    tokens = {"input_ids": torch.randint(20, (4, 7))}
    model = gated(["lstm"], TokenNet().eval(), tokens)
    maps = model.lstm(model.encoder(model.embedding(tokens["input_ids"])))[0].detach().mT.double().numpy()
    np.testing.assert_allclose(seen_by_gates(model, tokens), slow_statistics(maps), rtol=1e-4, atol=1e-4)


def test_a_layer_of_signals_shows_statistics_over_time():
    x = torch.randn(4, 2, 9)
    model = gated(["conv"], SignalNet(), x)
    maps = model.conv(x).detach().double().numpy()
    np.testing.assert_allclose(seen_by_gates(model, x), slow_statistics(maps), rtol=1e-4, atol=1e-4)


def test_a_layer_of_plain_vectors_is_shown_as_it_is():
    vectors = torch.randn(5, 3)
    assert torch.equal(channel_statistics(vectors), vectors)


def test_a_constant_channel_has_finite_statistics():
    assert channel_statistics(torch.ones(2, 3, 4, 4)).isfinite().all()


def test_gates_depend_on_the_view_and_not_on_the_features():
    model = gated(lambda x: x[:, :, 0, 0])
    units = fit_head(model, images()).eval()
    x = images()
    other = x.clone()
    other[:, :, 1:] += 5  # leaves the corner that gates see
    with units.record() as outs:
        model.eval()(x), model(other)
    torch.testing.assert_close(outs[0].beta, outs[1].beta)
    assert not torch.allclose(outs[0].prediction, outs[1].prediction)


def test_a_model_with_a_view_gives_the_output_it_gave_before():
    model = ConvNet().eval()
    before = model(images())
    torch.testing.assert_close(gated(["conv1"], model)(images()), before)


def test_replacing_says_how_wide_the_view_is(capsys):
    replace_head(ConvNet(), gating=["conv1"], example=images(4))
    assert "replaced fc: Linear(6 -> 2) by 5 gated" in (line := capsys.readouterr().out)
    assert "gates see a view of width 8" in line


def test_nothing_is_propagated_back_through_the_view():
    model = gated(["conv1"])
    x = images().requires_grad_()
    with model_head(model).record() as outs:
        model(x)
    model_head(model).penalty(outs[-1]).backward()
    assert model_head(model).bases.grad.abs().max() > 0
    assert model.conv1.weight.grad is None
    assert x.grad is None


def test_without_a_view_penalties_reach_the_backbone():
    model = replace_head(ConvNet(), SMALL, verbose=False)
    with model_head(model).record() as outs:
        model(images())
    model_head(model).penalty(outs[-1]).backward()
    assert model.conv1.weight.grad.abs().max() > 0


def test_the_view_is_let_go_once_the_head_has_taken_it():
    model = gated(["conv1", "conv2"])
    model(images())
    assert all(layer.held is None for layer in model.fc.view.layers)


def test_a_float64_model_with_a_view_stays_float64():
    model = gated(["conv1"], ConvNet().double(), images(4).double())
    fit_head(model, images().double())
    assert model(images().double()).dtype == torch.float64


def test_the_view_of_a_float64_model_is_float64():
    model = gated(["conv1"], ConvNet().double(), images(4).double())
    assert seen_by_gates(model, images().double()).dtype == torch.float64


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gating", [colour, ["conv1"]], ids=["callable", "names"])
def test_a_view_without_an_example_is_refused_with_the_cure(gating):
    with pytest.raises(ValueError, match="gating needs example="):
        replace_head(ConvNet(), gating=gating)


@pytest.mark.parametrize("names", [["conv1", "conv9"], []])
def test_layers_that_are_not_there_are_refused_by_name(names):
    unknown = [name for name in names if name == "conv9"]
    with pytest.raises(ValueError, match=re.escape(f"got {names}; unknown: {unknown}")):
        gated(names)


def test_a_view_that_is_no_matrix_is_refused_with_its_shape():
    with pytest.raises(ValueError, match=r"shape \(batch, features\), this one has \(4, 3, 8, 8\)"):
        gated(lambda x: x)


def test_a_view_that_is_refused_leaves_no_hook_behind():
    model = ConvNet()
    with pytest.raises(ValueError, match="this one has"):
        gated(lambda x: x, model)
    assert not model._forward_pre_hooks


def test_a_head_called_without_its_model_says_so():
    model = gated(["conv1"])
    with pytest.raises(RuntimeError, match="call the whole model, not its head alone"):
        model.fc(torch.randn(4, 6))


def test_a_head_called_again_without_its_model_says_so_too():
    model = gated(colour)
    model(images())
    with pytest.raises(RuntimeError, match="call the whole model"):
        model.fc(torch.randn(40, 6))


def test_a_bare_linear_layer_has_no_view_to_offer():
    with pytest.raises(ValueError, match=r"a bare nn\.Linear has no view to offer.*pass gating="):
        gated(lambda x: x[:, :2], nn.Linear(6, 2), torch.randn(4, 6))


# -- copies and checkpoints ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gating", [colour, ["conv1", "conv2"]], ids=["callable", "names"])
def test_a_copy_observes_its_own_view(gating):
    model = gated(gating).eval()
    fit_head(model, images())
    twin = copy.deepcopy(model)
    x, other = images(seed=1), images(seed=2)
    expected = model(x)
    twin(other)
    torch.testing.assert_close(model(x), expected)
    torch.testing.assert_close(twin(x), expected)
    twin.conv1.weight.data.add_(1)
    twin.fc.standardised.mean.add_(1)
    torch.testing.assert_close(model(x), expected)
    with pytest.raises(RuntimeError, match="not observed"):
        model.fc(torch.randn(40, 6))


@pytest.mark.parametrize("gating", [colour, ["conv1", "conv2"]], ids=["callable", "names"])
def test_a_model_with_a_view_is_restored_from_its_state_dict(gating):
    model = gated(gating).eval()
    units = fit_head(model, images())
    with torch.no_grad():
        units.experts.weight.normal_()
    restored = gated(gating).eval()
    assert not torch.allclose(restored(images()), model(images()))
    restored.load_state_dict(model.state_dict())
    assert torch.equal(restored(images()), model(images()))
    assert "fc.standardised.mean" in model.state_dict()


# -- standardising ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gating", [colour, ["conv1", "conv2"]], ids=["callable", "names"])
def test_after_fitting_gates_see_standardised_rows(gating):
    model = gated(gating).eval()
    fit_head(model, 50 + 9 * images())
    view = seen_by_gates(model, 50 + 9 * images())
    torch.testing.assert_close(view.mean(0), torch.zeros(view.shape[1]), rtol=0, atol=1e-3)
    torch.testing.assert_close(view.std(0), torch.ones(view.shape[1]), rtol=1e-3, atol=0)


def test_bases_are_standardised_rows_too():
    model = gated(colour)
    fit_head(model, images())
    rows = seen_by_gates(model.eval(), images())
    near = torch.cdist(model_head(model).bases.flatten(0, 1), rows).min(1).values
    assert near.max() < 1e-3


def test_fitting_twice_is_fitting_once():
    once, twice = gated(colour), gated(colour)
    twice.load_state_dict(once.state_dict())
    fit_head(once, images())
    fit_head(twice, 7 * images(seed=3))
    fit_head(twice, images())
    torch.testing.assert_close(twice.state_dict(), once.state_dict(), rtol=1e-3, atol=1e-4)


def test_a_constant_column_of_the_view_becomes_zero():
    model = gated(lambda x: torch.cat([colour(x), 5 * torch.ones(len(x), 1)], -1))
    fit_head(model, images())
    assert (seen_by_gates(model, images())[:, -1] == 0).all()


@pytest.mark.parametrize("batches", [[], torch.full((5, 3, 8, 8), torch.nan), images(2)], ids=["none", "NaN", "few"])
def test_a_fit_that_fails_leaves_the_model_as_it_was(batches):
    model = gated(colour)
    fit_head(model, images())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"empty|NaN|at least 3 rows"):
        fit_head(model, batches)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


# -- fitting on a model's own features -------------------------------------------------------------------------------


@pytest.fixture
def model():
    return replace_head(ConvNet(), SMALL, verbose=False).eval()


def own_features(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    twin = copy.deepcopy(model).eval()
    with torch.no_grad():
        return twin.features(x)


BATCHES = {
    "tensor": lambda x: x,
    "list of tensors": lambda x: list(x.split(16)),
    "loader of pairs": lambda x: DataLoader(TensorDataset(x, torch.zeros(len(x))), batch_size=16),
    "loader of triples": lambda x: DataLoader(TensorDataset(x, torch.zeros(len(x)), torch.ones(len(x))), batch_size=16),
    "loader of inputs alone": lambda x: DataLoader(TensorDataset(x), batch_size=16),
    "dicts": lambda x: [{"x": part} for part in x.split(16)],
    "pairs of a dict and targets": lambda x: [({"x": part}, torch.zeros(len(part))) for part in x.split(16)],
    "pairs of arguments and targets": lambda x: [((part,), torch.zeros(len(part))) for part in x.split(16)],
    "generator": lambda x: (part for part in x.split(16)),
}


@pytest.mark.parametrize("batches", BATCHES.values(), ids=BATCHES)
def test_a_head_is_fitted_on_the_features_of_any_kind_of_batches(model, batches):
    expected = GatedDomainUnits(6, 2, num_bases=3, basis_size=4).fit_bases(own_features(model, images()))
    units = fit_head(model, batches(images()))
    assert units is model_head(model)
    torch.testing.assert_close(units.bases, expected.bases)
    torch.testing.assert_close(units.kernel.sigma, expected.kernel.sigma)
    torch.testing.assert_close(units.gate.kappa, expected.gate.kappa, rtol=1e-4, atol=0)


def test_a_head_is_fitted_on_a_loader_of_several_inputs_and_a_target():
    class Two(ConvNet):
        def forward(self, x, brightness):
            return super().forward(x + brightness)

    pairs = [((one, torch.zeros(1, 1, 1)), 0) for one in images()]
    fit_head(replace_head(Two(), SMALL, verbose=False), DataLoader(pairs, batch_size=16))


def test_a_batch_object_is_given_to_the_model_as_it_is():
    class GraphBatch:
        """As torch_geometric's: indexing takes one graph out of the batch."""

        def __init__(self, x: torch.Tensor) -> None:
            self.x = x

        def __getitem__(self, number: int) -> GraphBatch:
            return GraphBatch(self.x[number : number + 1])

    class OfBatches(ConvNet):
        def forward(self, batch):
            return super().forward(batch.x)

    model = replace_head(OfBatches(), SMALL, verbose=False)
    assert len(gating_rows(model, [GraphBatch(part) for part in images().split(10)])) == 40


def test_only_the_first_rows_are_used_and_no_batch_more_than_needed(model):
    asked = []

    def batches():
        for number, part in enumerate(images(60).split(10)):
            asked.append(number)
            yield part

    rows = gating_rows(model, batches(), max_rows=25)
    torch.testing.assert_close(rows, own_features(model, images(60))[:25])
    assert asked == [0, 1, 2]


def test_fitting_respects_the_number_of_rows(model):
    units = fit_head(model, images(60), max_rows=15)
    features = own_features(model, images(60))
    assert torch.cdist(units.bases.flatten(0, 1), features[:15]).min(1).values.max() < 1e-4


def test_nothing_to_fit_on_is_refused(model):
    with pytest.raises(ValueError, match="batches is empty"):
        fit_head(model, [])


def test_fitting_is_the_same_for_the_same_seed_only(model):
    first, again, other = (fit_head(model, images(), seed=seed).bases.clone() for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_optimiser_forgets_the_bases_that_were_refitted(model):
    fit_head(model, images())
    optimizer = torch.optim.Adam(model.parameters())
    model(images()).sum().backward()
    optimizer.step()
    optimizer.state[model_head(model).bases]["exp_avg"].fill_(1)
    fit_head(model, images(), optimizer=optimizer)
    assert (optimizer.state[model_head(model).bases]["exp_avg"] == 0).all()
    assert optimizer.state[model.conv1.weight]["exp_avg"].abs().max() > 0


def test_fitting_leaves_batchnorm_modes_gradients_and_hooks_alone(model):
    model.train()
    model.conv2.eval()
    statistics = {name: value.clone() for name, value in model.bn.state_dict().items()}
    fit_head(model, images())
    assert all(torch.equal(value, statistics[name]) for name, value in model.bn.state_dict().items())
    assert model.bn.training
    assert model.fc.training
    assert not model.conv2.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.fc._forward_pre_hooks


def test_an_error_in_the_model_leaves_modes_and_hooks_alone(model):
    model.train()
    with pytest.raises(RuntimeError):
        fit_head(model, torch.randn(4, 5, 8, 8))
    assert model.bn.training
    assert not model.fc._forward_pre_hooks


def test_dropout_inside_experts_is_on_again_after_fitting():
    def dropping(width: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Dropout(0.5), nn.Linear(width, outputs))

    head = partial(SMALL, experts=partial(StackedExperts, factory=dropping))
    model = replace_head(ConvNet(), head, verbose=False).train()
    model.bn.eval()
    fit_head(model, images())
    assert not torch.equal(model(images()), model(images()))


def test_units_inside_a_model_are_found(model):
    assert model_head(nn.Sequential(model)) is model.fc
    assert model_head(gated(["conv1"])).gating_features == 8
    assert model_head(model.fc) is model.fc


def test_a_model_without_units_is_told_how_to_get_them():
    with pytest.raises(ValueError, match=r"ConvNet has 0 layers .* \[\], expected one; .*replace_head\(model\)"):
        model_head(ConvNet())


def test_a_model_with_several_units_lists_them():
    several = nn.ModuleDict({"one": GatedDomainUnits(2, 2), "two": GatedDomainUnits(2, 2)})
    with pytest.raises(ValueError, match=r"has 2 layers .*\['one', 'two'\], expected one; take the one you mean"):
        model_head(several)


def test_a_viewed_head_is_recorded_like_any_other():
    model = gated(colour)
    assert isinstance(model.fc, ViewedHead)
    with model_head(model).record() as outs:
        logits = model(images())
    assert torch.equal(outs[0].prediction, logits)


class Dropping(nn.Module):
    """Dropout and batch norm before the head: features in training are unlike those in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5))
        self.fc = nn.Linear(32, 2)

    def forward(self, x):
        return self.fc(self.body(x))


@pytest.mark.parametrize("training", [True, False])
def test_coverage_is_that_of_the_mode_the_model_is_in(training):
    x, model = torch.randn(400, 6), replace_head(Dropping(), verbose=False).train(training)
    fit_head(model, x)
    statistics = model.body[1].running_mean.clone()
    renew_head(model, x)
    assert torch.equal(model.body[1].running_mean, statistics)
    with torch.no_grad(), model_head(model).record() as outs:
        model(x)
    assert outs[-1].coverage.mean() > 0.5


def stepped(model: nn.Module, x: Tensor) -> torch.optim.Optimizer:
    """An optimiser that remembers something of every weight."""
    optimizer = torch.optim.AdamW(model.parameters())
    model(x).sum().backward()
    optimizer.step()
    for state in optimizer.state.values():
        state["exp_avg"].fill_(1)
    return optimizer


@pytest.mark.parametrize(
    "grown", [3.0, 6.0, 60.0], ids=["sigma too small", "kappa far too small", "far from every basis"]
)
def test_renewing_refits_when_features_have_left_the_bases_behind(grown):
    x, model = torch.randn(400, 6), replace_head(Dropping(), verbose=False).eval()
    units = fit_head(model, x)
    optimizer = stepped(model, x)
    with torch.no_grad():
        model.body[0].weight.mul_(grown)
    with warnings.catch_warnings():
        warnings.simplefilter("error", GateWarning)
        renew_head(model, x, optimizer=optimizer)
    assert units.kernel.get_sigma() == pytest.approx(median_sigma(gating_rows(model, x)), rel=1e-6)
    assert units.drift(gating_rows(model, x)) is None
    assert (optimizer.state[units.bases]["exp_avg"] == 0).all()
    assert (optimizer.state[units.experts.weight]["exp_avg"] == 1).all()


@pytest.mark.parametrize("viewed", [False, True])
def test_renewing_fits_once_and_then_leaves_bases_that_fit_alone(viewed):
    x, model = torch.randn(400, 6), Dropping()
    view = {"gating": lambda x: 50 + 9 * x[:, :4], "example": x[:2]} if viewed else {}
    model = replace_head(model, verbose=False, **view).eval()
    units, optimizer = model_head(model), torch.optim.AdamW(model.parameters())
    before = units.bases.clone()
    renew_head(model, x, optimizer=optimizer)
    assert not torch.equal(units.bases, before)
    assert gating_rows(model, x).mean().abs() < (0.01 if viewed else 10)  # a view is standardised
    optimizer, kept = stepped(model, x), {name: value.clone() for name, value in model.state_dict().items()}
    renew_head(model, x + 0.01, optimizer=optimizer)
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, kept[name])}
    assert all(name.endswith(("coverage.q50", "coverage.q97")) for name in moved)
    assert (optimizer.state[units.bases]["exp_avg"] == 1).all()


@pytest.mark.filterwarnings("ignore::gated_domains.layer.GateWarning")
@pytest.mark.parametrize("viewed", [False, True])
def test_without_refit_the_first_call_too_keeps_the_bases(viewed):
    x, model = torch.randn(400, 6), Dropping()
    view = {"gating": lambda x: 50 + 9 * x[:, :4], "example": x[:2]} if viewed else {}
    model = replace_head(model, GatedDomainUnits.paper, verbose=False, **view).eval()
    optimizer, kept = stepped(model, x), {name: value.clone() for name, value in model.state_dict().items()}
    renew_head(model, x, optimizer=optimizer, refit=False)
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, kept[name])}
    assert {name.rpartition(".")[2] for name in moved} == {"q50", "q97"}


def test_without_an_optimizer_bases_stay_and_dead_gates_are_warned_of_once():
    x, model = torch.randn(400, 6), replace_head(Dropping(), verbose=False).eval()
    units = fit_head(model, x)
    before = units.bases.clone()
    with torch.no_grad():
        model.body[0].weight.mul_(60)
    with pytest.warns(GateWarning, match="far from every basis.* renew_head .* with optimizer= at the start"):
        renew_head(model, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error", GateWarning)
        renew_head(model, x)
    assert torch.equal(units.bases, before)


def test_a_head_that_cannot_be_made_leaves_no_hook_behind():
    model = ConvNet()
    with pytest.raises(ValueError, match="num_bases"):
        replace_head(model, partial(GatedDomainUnits, num_bases=0), gating="conv1", example=images(2), verbose=False)
    assert not model.conv1._forward_hooks
