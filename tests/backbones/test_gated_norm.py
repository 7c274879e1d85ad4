"""GatedNorm against a slow loop, the one call that swaps it in, and the models that follow their own head's gates."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
from functools import partial

import pytest
import torch
from torch import nn
from torch.export import Dim, export
from torch.optim.swa_utils import update_bn

from gated_domains import GatedDomainUnits, fit_head, model_head, renew_head, replace_head
from gated_domains.backbones import DigitsCNN, GatedNorm, Identity, SmallCNN, deviation_parameters, gate_norms, mixing
from gated_domains.data.errors import DataError
from gated_domains.layer import LinearExperts

BASES, CHANNELS = 3, 4
INPUTS = {
    "vectors": (nn.BatchNorm1d, (6, CHANNELS)),
    "signals": (nn.BatchNorm1d, (6, CHANNELS, 5)),
    "images": (nn.BatchNorm2d, (6, CHANNELS, 3, 2)),
    "volumes": (nn.BatchNorm3d, (6, CHANNELS, 2, 3, 2)),
}
on_every_input = pytest.mark.parametrize("name", INPUTS)
in_both_modes = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])


def used_norm(kind: type[nn.Module] = nn.BatchNorm2d, **settings) -> nn.Module:
    """A norm that is not fresh: weights and running statistics of its own."""
    torch.manual_seed(1)
    norm = kind(CHANNELS, **settings).double()
    with torch.no_grad():
        for tensor in (norm.weight, norm.bias, norm.running_mean):
            if tensor is not None:
                tensor.normal_()
        if norm.running_var is not None:
            norm.running_var.uniform_(0.5, 2)
    return norm


def moved(norm: GatedNorm) -> GatedNorm:
    """The same with deviations that are not zero."""
    with torch.no_grad():
        norm.weight_deviations.normal_()
        norm.bias_deviations.normal_()
    return norm


def data(shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    return 2 * torch.randn(shape).double() + 1, torch.rand(shape[0], BASES).double()


def slow_norm(x, mixture, norm: GatedNorm, mean, variance) -> torch.Tensor:
    """``y = (gamma_0 + sum_j m_j Gamma_j) xhat + (b_0 + sum_j m_j B_j)``, a sample and a channel at a time."""
    rows = []
    for i in range(len(x)):
        channels = []
        for c in range(CHANNELS):
            normal = (x[i, c] - mean[c]) / (variance[c] + norm.normalise.eps).sqrt()
            scale = norm.weight[c] if norm.weight is not None else torch.tensor(1.0).double()
            shift = norm.bias[c] if norm.bias is not None else torch.tensor(0.0).double()
            for j in range(BASES):
                scale = scale + mixture[i, j] * norm.weight_deviations[j, c]
                shift = shift + mixture[i, j] * norm.bias_deviations[j, c]
            channels.append(scale * normal + shift)
        rows.append(torch.stack(channels))
    return torch.stack(rows)


def moments(x: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    values = [x[:, c].flatten() for c in range(CHANNELS)]
    means = [sum(v) / len(v) for v in values]
    return means, [sum((v - mean) ** 2) / len(v) for v, mean in zip(values, means, strict=True)]


@in_both_modes
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "not affine"])
@on_every_input
def test_a_gated_norm_and_its_gradients_equal_a_loop(name, affine, training):
    kind, shape = INPUTS[name]
    norm = moved(GatedNorm(used_norm(kind, affine=affine), BASES)).train(training)
    statistics = norm.normalise.running_mean.clone(), norm.normalise.running_var.clone()
    x, mixture = data(shape)
    wanted = [x.requires_grad_(), mixture.requires_grad_(), *norm.parameters()]
    with mixing(norm, mixture):
        ours = norm(x)
    loop = slow_norm(x, mixture, norm, *(moments(x) if training else statistics))
    torch.testing.assert_close(ours, loop, rtol=1e-9, atol=1e-9)
    weights = torch.randn_like(ours)
    found, expected = (torch.autograd.grad((y * weights).sum(), wanted) for y in (ours, loop))
    assert len(wanted) == (6 if affine else 4)
    for mine, theirs in zip(found, expected, strict=True):
        assert theirs.abs().max() > 0
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-8)


@in_both_modes
@pytest.mark.parametrize(
    "settings", [{}, {"affine": False}, {"track_running_stats": False}, {"momentum": None}], ids=str
)
@on_every_input
def test_it_starts_as_the_norm_it_took_over(name, settings, training):
    kind, shape = INPUTS[name]
    plain = used_norm(kind, eps=1e-3, **settings).train(training)
    norm = GatedNorm(copy.deepcopy(plain), BASES)
    assert norm.training == training
    for _ in range(3):
        x, mixture = data(shape)
        with mixing(norm, mixture):
            torch.testing.assert_close(norm(x), plain(x), rtol=1e-9, atol=1e-9)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        theirs = getattr(plain, name)
        assert theirs is None or torch.equal(getattr(norm.normalise, name), theirs)


def test_one_mixture_for_all_rows_is_that_of_each():
    norm = moved(GatedNorm(used_norm(), BASES))
    x, mixture = data((6, CHANNELS, 3, 2))
    with mixing(norm, mixture[:1]):
        one = norm(x)
    with mixing(norm, mixture[:1].expand(6, -1)):
        torch.testing.assert_close(norm(x), one)


def test_channels_last_stay_last():
    norm = GatedNorm(nn.BatchNorm2d(4), 3)
    x = torch.randn(6, 4, 5, 5).contiguous(memory_format=torch.channels_last)
    with mixing(norm, torch.rand(6, 3)):
        assert norm(x).is_contiguous(memory_format=torch.channels_last)


def test_the_parameters_of_the_norm_are_kept_so_that_an_optimiser_still_holds_them():
    plain = nn.BatchNorm2d(4)
    weight, bias = plain.weight, plain.bias
    norm = GatedNorm(plain, 3)
    assert norm.weight is weight
    assert norm.bias is bias
    assert set(dict(norm.named_parameters())) == {"weight", "bias", "weight_deviations", "bias_deviations"}


def test_frozen_parameters_stay_frozen():
    plain = nn.BatchNorm2d(4).requires_grad_(False)
    assert not GatedNorm(plain, 3).weight.requires_grad


def test_a_synchronised_norm_is_taken_over_too():
    norm = GatedNorm(nn.SyncBatchNorm(4), 3).eval()
    x = torch.randn(6, 4, 5)
    with mixing(norm, torch.rand(6, 3)):
        torch.testing.assert_close(norm(x), nn.SyncBatchNorm(4).eval()(x))


def test_norms_can_be_synchronised_after_they_were_gated():
    model = nn.SyncBatchNorm.convert_sync_batchnorm(network(gated=True))
    assert [type(norm.normalise) for norm in norms_of(model)] == [nn.SyncBatchNorm] * 2
    assert len(deviation_parameters(model)) == 4


def test_statistics_can_be_renewed_by_torch_s_own_helper():
    model, x = network(gated=True), torch.randn(20, 3, 8, 8)
    with mixing(model, torch.rand(20, BASES)):
        update_bn([x], model)
    torch.testing.assert_close(model[1].normalise.running_mean, model[0](x).mean((0, 2, 3)))


# -- mixing ----------------------------------------------------------------------------------------------------------


def network(*, gated: bool = False, bases: int = BASES) -> nn.Sequential:
    torch.manual_seed(3)
    inner = nn.Sequential(nn.Conv2d(5, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), inner, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    if gated:
        gate_norms(model, bases)
    return model


def norms_of(model: nn.Module) -> list[GatedNorm]:
    return [module for module in model.modules() if isinstance(module, GatedNorm)]


def test_every_norm_of_a_model_gets_the_mixture_and_loses_it_again():
    model, mixture = network(gated=True), torch.rand(6, BASES)
    with mixing(model, mixture):
        assert [norm.mixture is mixture for norm in norms_of(model)] == [True, True]
    assert [norm.mixture for norm in norms_of(model)] == [None, None]


def test_an_exception_takes_the_mixture_away_too():
    model = network(gated=True)
    with pytest.raises(KeyError), mixing(model, torch.rand(6, BASES)):
        raise KeyError
    assert [norm.mixture for norm in norms_of(model)] == [None, None]


def test_an_inner_block_gives_way_to_the_outer_one():
    model, outer = network(gated=True), torch.rand(6, BASES)
    with mixing(model, outer):
        with mixing(model, torch.rand(6, BASES)):
            pass
        assert norms_of(model)[0].mixture is outer


def test_a_model_without_gated_norms_runs_as_it_is():
    model, x = network().eval(), torch.randn(6, 3, 8, 8)
    with mixing(model, torch.rand(6, 9)):
        inside = model(x)
    assert torch.equal(inside, model(x))


def test_without_a_mixture_a_norm_says_what_it_needs():
    with pytest.raises(
        RuntimeError, match=r"no mixture in force.*mixing\(.*view of the raw input.*replace_head\(model"
    ):
        network(gated=True)(torch.randn(6, 3, 8, 8))


def test_the_mixture_of_another_batch_is_refused():
    model = network(gated=True)
    with pytest.raises(ValueError, match="mixture has 5 rows and the norm sees 6"), mixing(model, torch.rand(5, BASES)):
        model(torch.randn(6, 3, 8, 8))


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("shape", [(6, 2), (BASES,)], ids=str)
def test_a_mixture_of_another_number_of_bases_is_refused(shape):
    with (
        pytest.raises(ValueError, match=r"3 bases has shape \(rows, 3\)"),
        mixing(network(gated=True), torch.rand(shape)),
    ):
        pass


# -- the one call ----------------------------------------------------------------------------------------------------


def test_every_batch_norm_of_a_model_is_swapped():
    model = network()
    swapped = gate_norms(model, BASES)
    assert swapped == norms_of(model) == [model[1], model[2][1]]
    assert all(norm.weight_deviations.shape == (BASES, norm.normalise.num_features) for norm in swapped)


@in_both_modes
@pytest.mark.parametrize("make", [SmallCNN, DigitsCNN])
def test_a_body_gives_the_same_features_until_trained(make, training):
    torch.manual_seed(0)
    body, x = make((3, 16, 16)).train(training), torch.randn(6, 3, 16, 16)
    for layer in body.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    expected = copy.deepcopy(body)(x)
    assert len(gate_norms(body, BASES)) == (4 if make is SmallCNN else 5)
    with mixing(body, torch.rand(6, BASES)):
        torch.testing.assert_close(body(x), expected, rtol=1e-4, atol=1e-4)


def test_a_norm_that_stands_in_two_places_stays_one():
    norm = nn.BatchNorm1d(4)
    model = nn.Sequential(norm, nn.ReLU(), norm)
    assert len(gate_norms(model, BASES)) == 1
    assert model[0] is model[2]
    assert len(deviation_parameters(model)) == 2


def test_norms_inside_experts_are_left_alone():
    class Normed(LinearExperts):
        def __init__(self, num_bases: int, in_features: int, out_features: int) -> None:
            super().__init__(num_bases, in_features, out_features)
            self.norm = nn.BatchNorm1d(in_features)

        def forward(self, features):
            return super().forward(self.norm(features))

    model = nn.Sequential(nn.BatchNorm1d(4), GatedDomainUnits(4, 2, experts=Normed))
    assert gate_norms(model, 5) == [model[0]]
    assert isinstance(model[1].experts.norm, nn.BatchNorm1d)


def test_the_deviations_are_listed_for_an_optimiser():
    model = network(gated=True)
    found = deviation_parameters(model)
    assert {id(p) for p in found} == {
        id(p) for name, p in model.named_parameters() if name.endswith(("weight_deviations", "bias_deviations"))
    }
    assert len(found) == 4
    assert deviation_parameters(network()) == []


def test_weights_from_before_the_norms_were_gated_can_be_loaded():
    plain, gated = network(), network(gated=True)
    with torch.no_grad():
        for tensor in plain.state_dict().values():
            tensor.add_(1)
    missing, unexpected = gated.load_state_dict(plain.state_dict(), strict=False)
    assert unexpected == []
    assert {name.rpartition(".")[2] for name in missing} == {"weight_deviations", "bias_deviations"}
    x = torch.randn(6, 3, 8, 8)
    with mixing(gated, torch.rand(6, BASES)):
        torch.testing.assert_close(gated.eval()(x), plain.eval()(x))


def test_a_gated_model_is_the_same_after_saving_and_loading():
    model, other = network(gated=True), network(gated=True)
    for norm in norms_of(model):
        moved(norm)
    x, mixture = torch.randn(6, 3, 8, 8), torch.rand(6, BASES)
    with mixing(model, mixture):
        model(x)
    other.load_state_dict(model.state_dict())
    with mixing(model.eval(), mixture), mixing(other.eval(), mixture):
        assert torch.equal(model(x), other(x))


def test_a_copy_made_while_a_mixture_is_in_force_has_none():
    model = network(gated=True)
    with mixing(model, torch.rand(6, BASES, requires_grad=True) * 2):
        twin = copy.deepcopy(model)
        pickle.loads(pickle.dumps(model))
    assert [norm.mixture for norm in norms_of(twin)] == [None, None]


class Activated(nn.BatchNorm2d):
    def forward(self, x):
        return torch.relu(super().forward(x))


class Renamed(nn.BatchNorm2d):
    pass


def test_a_norm_that_does_more_is_refused_and_the_model_left_as_it_was():
    model = nn.Sequential(nn.BatchNorm2d(3), Activated(3))
    with pytest.raises(DataError, match=r"Activated does more than a batch norm.*put nn\.BatchNorm"):
        gate_norms(model, BASES)
    assert [type(layer) for layer in model] == [nn.BatchNorm2d, Activated]
    assert model[0].weight is not None
    assert len(gate_norms(nn.Sequential(Renamed(3)), BASES)) == 1


def test_a_norm_that_does_not_know_its_width_is_refused_until_it_does():
    model = nn.Sequential(nn.LazyBatchNorm2d())
    with pytest.raises(DataError, match="run the model once on a batch"):
        gate_norms(model, BASES)
    model(torch.randn(2, 3, 4, 4))
    assert len(gate_norms(model, BASES)) == 1


@pytest.mark.parametrize("model", [Identity((4,)), nn.Sequential(nn.LayerNorm(4))], ids=["identity", "layer norm"])
def test_a_model_without_batch_norms_is_refused_with_the_cure(model):
    with pytest.raises(DataError, match=r"has no batch norm.*the head is gated without them"):
        gate_norms(model, BASES)


def test_norms_are_gated_once():
    with pytest.raises(DataError, match="gated already"):
        gate_norms(network(gated=True), BASES)


def test_a_bare_norm_is_refused_with_the_cure():
    with pytest.raises(DataError, match=r"build GatedNorm\(norm, num_bases\)"):
        gate_norms(nn.BatchNorm2d(3), BASES)


@pytest.mark.parametrize("num_bases", [0, -1])
def test_a_number_of_bases_below_one_is_refused_and_the_model_left_as_it_was(num_bases):
    model = network()
    with pytest.raises(ValueError, match=f"num_bases must be a whole number of at least 1, got {num_bases}"):
        gate_norms(model, num_bases)
    assert isinstance(model[1], nn.BatchNorm2d)


# -- models that follow the gates of their own head ------------------------------------------------------------------


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5)
        self.conv2, self.bn2 = nn.Conv2d(5, 6, 3), nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, 2)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.fc(torch.relu(self.bn2(self.conv2(x))).mean((2, 3)))


def images(rows: int = 40, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    brightness = 3 * torch.randint(3, (rows, 1, 1, 1), generator=generator)
    return torch.randn(rows, 3, 8, 8, generator=generator) + brightness


def colour(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x.mean((2, 3)), x.std((2, 3))], -1)


SMALL = partial(GatedDomainUnits, num_bases=BASES, basis_size=4)


def following(model: nn.Module | None = None, **settings: str) -> nn.Module:
    torch.manual_seed(4)
    model = replace_head(model or ConvNet(), SMALL, gating=colour, example=images(4), verbose=False)
    gate_norms(model, **settings)
    fit_head(model, images())
    return model


def deviating(model: nn.Module) -> nn.Module:
    for norm in norms_of(model):
        moved(norm)
    return model


def test_a_model_of_one_s_own_needs_one_call_and_gives_the_same_until_trained():
    torch.manual_seed(4)
    plain = ConvNet()
    model = following(copy.deepcopy(plain))
    assert len(norms_of(model)) == 2
    for mode in (True, False):
        x = images(6, seed=1)
        torch.testing.assert_close(model.train(mode)(x), plain.train(mode)(x), rtol=1e-4, atol=1e-4)


def test_norms_mix_by_the_gates_that_the_head_has():
    model, x, seen = deviating(following()), images(7, seed=1), []
    model.bn2.register_forward_pre_hook(lambda norm, _: seen.append(norm.mixture))
    with model_head(model).record() as outs:
        model(x)
    torch.testing.assert_close(seen[0], outs[0].beta)
    assert seen[0].std(0).max() > 1e-3
    assert [norm.mixture for norm in norms_of(model)] == [None, None]


def test_norms_pool_their_statistics_by_the_gates_that_the_head_has():
    model, x, seen = following(statistics="basis"), images(7, seed=1), []
    with torch.no_grad():
        model_head(model).active[-1] = False
    model.bn2.register_forward_pre_hook(lambda norm, _: seen.append(norm.basis_weights.weights))
    with model_head(model).record() as outs:
        model(x)
    torch.testing.assert_close(seen[0], outs[0].beta)
    assert seen[0].std(0).max() > 1e-3
    assert seen[0][:, -1].tolist() == [0.0] * 7
    assert [norm.basis_weights for norm in norms_of(model)] == [None, None]


def test_training_reaches_deviations_and_bases_through_the_norms():
    model = deviating(following())
    for parameter in model_head(model).experts.parameters():
        parameter.requires_grad_(False)
    nn.functional.cross_entropy(model(images()), torch.arange(40) % 2).backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in deviation_parameters(model))
    assert model_head(model).bases.grad.abs().max() > 0


def test_coverage_is_renewed_through_the_same_model():
    model = deviating(following())
    renew_head(model, images(seed=2))
    assert math.isfinite(float(model_head(model).coverage.q97))


def test_a_failure_inside_the_model_leaves_no_mixture_behind():
    model = following()
    model.conv2.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(images(4))
    assert [norm.mixture for norm in norms_of(model)] == [None, None]


def test_a_copy_follows_its_own_head():
    model, x = deviating(following()).eval(), images(6, seed=1)
    before = model(x).detach().clone()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        model_head(model).bases.add_(1.0)
        model.bn1.weight_deviations.zero_()
    assert torch.equal(twin(x), before)
    assert not torch.allclose(model(x), before)


def test_a_model_inside_another_follows_where_its_view_is_seen():
    torch.manual_seed(4)
    inner = replace_head(ConvNet(), SMALL, gating=colour, example=images(4), verbose=False)
    model = nn.Sequential(nn.Identity(), inner)
    gate_norms(model)
    assert model(images(4)).shape == (4, 2)


def test_a_following_model_is_exported_with_a_dynamic_batch(without_shape_checks):
    model = deviating(following()).eval()
    program = export(model, (images(5),), dynamic_shapes=({0: Dim("batch")},), strict=False).module()
    for rows in (1, 9):
        x = images(rows, seed=1)
        torch.testing.assert_close(program(x), model(x), rtol=1e-4, atol=1e-4)


def test_gates_on_the_features_are_refused_and_the_model_left_as_it_was():
    model = replace_head(ConvNet(), SMALL, verbose=False)
    with pytest.raises(
        ValueError, match=r"no head whose gates see another view.*gating=a callable of the model's inputs"
    ):
        gate_norms(model)
    assert isinstance(model.bn1, nn.BatchNorm2d)


def test_a_model_without_units_is_refused_with_the_cure():
    with pytest.raises(ValueError, match=r"view of the raw input.*replace_head\(model"):
        gate_norms(ConvNet())


def test_gates_on_layers_are_refused():
    model = replace_head(ConvNet(), SMALL, gating=["bn1"], example=images(4), verbose=False)
    with pytest.raises(ValueError, match=r"see layers of the model itself.*view of the raw input"):
        gate_norms(model)
    assert isinstance(model.bn1, nn.BatchNorm2d)


# -- half precision --------------------------------------------------------------------------------------------------


def test_under_autocast_a_gated_norm_is_near_the_plain_one_and_trains():
    model, plain = following(), ConvNet()
    x = images(16, seed=1)
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if k in plain.state_dict()}, strict=False)
    with torch.autocast("cpu", torch.bfloat16):
        maps = model.conv1(x)
        with mixing(model, torch.rand(16, BASES)):
            gated = model.bn1(maps)
        assert gated.dtype == torch.bfloat16
        torch.testing.assert_close(gated, plain.bn1(maps), rtol=0.05, atol=0.05)
        loss = nn.functional.cross_entropy(model(x), torch.arange(16) % 2)
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in deviation_parameters(model))
    assert model.bn1.weight_deviations.grad.dtype == torch.float32


# -- compiled --------------------------------------------------------------------------------------------------------

SCRIPT = """
import copy, torch
from torch import nn
from gated_domains import *
from gated_domains.backbones import *

torch.set_num_threads(1)
x = torch.randn(16, 3, 8, 8)
"""
FOLLOWING = """
model = nn.Sequential(
    nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 2)
)
model = replace_head(model, gating=lambda x: x.mean((2, 3)), example=x, verbose=False)
gate_norms(model)
fit_head(model, x)
for parameter in deviation_parameters(model):
    nn.init.normal_(parameter)
eager = copy.deepcopy(model)
compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
for _ in range(2):
    torch.testing.assert_close(compiled(x), eager(x))
compiled(x).sum().backward()
eager(x).sum().backward()
torch.testing.assert_close(model[1].weight_deviations.grad, eager[1].weight_deviations.grad)
"""
MIXING = """
backbone = Backbone(SmallCNN((3, 8, 8)), RandomFilters((3, 8, 8))).eval()
units = GatedDomainUnits(128, 2, gating_features=backbone.gating_features)
units.fit_bases(backbone.fit_view(x))
gate_norms(backbone.body, units.max_bases)
for parameter in deviation_parameters(backbone):
    nn.init.normal_(parameter)

def predict(x):
    weighed = units.weigh(backbone.look(x))
    with mixing(backbone.body, weighed.mixture):
        features = backbone.body(x)
    return units.mix(features, weighed).prediction

compiled = torch.compile(predict, fullgraph=True, backend="aot_eager")
for x in (x, torch.randn(16, 3, 8, 8)):
    torch.testing.assert_close(compiled(x), predict(x), rtol=1e-4, atol=1e-4)
"""


@pytest.mark.slow
@pytest.mark.parametrize("case", [FOLLOWING, MIXING], ids=["following", "mixing"])
def test_gated_norms_are_compiled_in_one_graph(case):
    # In a process of its own, without the run-time shape checks of the tests, which no compiler sees through.
    done = subprocess.run([sys.executable, "-c", SCRIPT + case], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-4000:]
