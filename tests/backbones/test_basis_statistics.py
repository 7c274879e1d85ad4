"""Statistics by basis: against slow loops, against batch norm, and wherever else a gated norm is used."""

from __future__ import annotations

import copy
import time

import norm_workers
import pytest
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.export import Dim, export

from gated_domains.backbones import GatedNorm, gate_norms, mixing
from gated_domains.backbones.basis_statistics import BasisWeights, normalise_by_batch
from gated_domains.backbones.checkpointing import checkpointed

BASES, CHANNELS, ROWS = 3, 4, 6
K = 16
INPUTS = {
    "vectors": (nn.BatchNorm1d, (ROWS, CHANNELS)),
    "signals": (nn.BatchNorm1d, (ROWS, CHANNELS, 5)),
    "images": (nn.BatchNorm2d, (ROWS, CHANNELS, 3, 2)),
}
on_every_input = pytest.mark.parametrize("name", INPUTS)


def norm_by_basis(kind=nn.BatchNorm2d, bases=BASES, **settings) -> GatedNorm:
    torch.manual_seed(1)
    norm = GatedNorm(kind(CHANNELS, **settings).double(), bases, statistics="basis")
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.normal_()
        if norm.normalise.running_mean is not None:
            norm.normalise.running_mean.normal_()
            norm.normalise.running_var.uniform_(0.5, 2)
    return norm


def batch(shape, *, projection=False) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs, and a mixture: of softmax gates, or one with negative weights and a row without positive ones."""
    torch.manual_seed(2)
    x, mixture = 2 * torch.randn(shape).double() + 1, torch.randn(shape[0], BASES).double()
    if not projection:
        return x, mixture.softmax(-1)
    mixture[1], mixture[2] = -1, 1e-3 * mixture[2]
    return x, mixture


def slow_weights(mixture, active) -> list[list[float]]:
    rows = []
    for row in mixture.tolist():
        positive = [max(value, 0) if used else 0 for value, used in zip(row, active, strict=True)]
        short = max(0.01 - sum(positive), 0)
        filled = [value + short * used / sum(active) for value, used in zip(positive, active, strict=True)]
        rows.append([value / sum(filled) for value in filled])
    return rows


def slow_pooled(x, weights) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The first and second moment of each basis, channel by channel, shrunk to those of the batch."""
    flat = x.reshape(len(x), CHANNELS, -1)
    found = []
    for power in (1, 2):
        moments = [sum(values**power for values in sample.unbind(-1)) / flat.shape[-1] for sample in flat]
        mean = sum(moments) / len(moments)
        found.append(
            [
                (sum(row[j] * moment for row, moment in zip(weights, moments, strict=True)) + K * mean)
                / (sum(row[j] for row in weights) + K)
                for j in range(BASES)
            ]
        )
    return found[0], found[1]


def slow_norm(x, mixture, weights, norm, means, seconds) -> torch.Tensor:
    rows, ones = [], (1,) * (x.dim() - 2)
    for i, row in enumerate(weights):
        mean = sum(row[j] * means[j] for j in range(BASES))
        second = sum(row[j] * seconds[j] for j in range(BASES))
        scale = norm.weight + sum(mixture[i, j] * norm.weight_deviations[j] for j in range(BASES))
        shift = norm.bias + sum(mixture[i, j] * norm.bias_deviations[j] for j in range(BASES))
        mean, std, scale, shift = (
            part.reshape(-1, *ones) for part in (mean, (second - mean**2 + norm.normalise.eps).sqrt(), scale, shift)
        )
        rows.append(scale * (x[i] - mean) / std + shift)
    return torch.stack(rows)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("projection", [False, True], ids=["softmax", "projection"])
@on_every_input
def test_a_norm_its_gradients_and_running_moments_equal_a_loop(name, projection, training):
    kind, shape = INPUTS[name]
    norm, (x, mixture) = norm_by_basis(kind).train(training), batch(shape, projection=projection)
    active = torch.tensor([True, True, not projection])
    mixture = mixture * active
    running = [buffer.clone() for buffer in (norm.normalise.running_mean, norm.normalise.running_var)]
    wanted = [x.requires_grad_(), mixture.requires_grad_(), *norm.parameters()]
    with mixing(norm, mixture, active=active):
        ours = norm(x)
    weights = slow_weights(mixture, active.tolist())
    means, seconds = slow_pooled(x, weights) if training else (running[0], running[1] + running[0] ** 2)
    loop = slow_norm(x, mixture, weights, norm, means, seconds)
    torch.testing.assert_close(ours, loop, rtol=1e-9, atol=1e-9)
    outer = torch.randn_like(ours)
    found, expected = (torch.autograd.grad((y * outer).sum(), wanted) for y in (ours, loop))
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    if training:
        count = x.numel() / CHANNELS
        for j in range(BASES):
            unbiased = (seconds[j] - means[j] ** 2) * count / (count - 1)
            torch.testing.assert_close(norm.normalise.running_mean[j], 0.9 * running[0][j] + 0.1 * means[j].detach())
            torch.testing.assert_close(norm.normalise.running_var[j], 0.9 * running[1][j] + 0.1 * unbiased.detach())


@pytest.mark.parametrize(
    "settings", [{}, {"affine": False}, {"track_running_stats": False}, {"momentum": None}, {"momentum": 1}], ids=str
)
@on_every_input
def test_with_one_basis_it_is_batch_norm(name, settings):
    kind, shape = INPUTS[name]
    plain = kind(CHANNELS, **settings)
    norm = GatedNorm(copy.deepcopy(plain), 1, statistics="basis")
    for step in range(6):
        for model in (plain, norm):
            model.train(step < 4)
        x = (2 * torch.randn(shape) + 1).requires_grad_()
        with mixing(norm, torch.rand(ROWS, 1) + 0.1):
            pair = norm(x), plain(x)
        torch.testing.assert_close(*pair, rtol=1e-6, atol=1e-6)
        outer = torch.randn(shape)
        torch.testing.assert_close(*(torch.autograd.grad((y * outer).sum(), x)[0] for y in pair), rtol=1e-5, atol=1e-6)
    if plain.running_mean is not None:
        torch.testing.assert_close(norm.normalise.running_mean[0], plain.running_mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(norm.normalise.running_var[0], plain.running_var, rtol=1e-6, atol=1e-6)
        assert norm.normalise.num_batches_tracked == plain.num_batches_tracked == 4


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@on_every_input
def test_float32_is_exact_where_means_are_large_beside_standard_deviations(name, training):
    norm, (x, mixture) = norm_by_basis(INPUTS[name][0]), batch(INPUTS[name][1])
    norm.normalise.running_mean.add_(1_000)
    single = copy.deepcopy(norm).float()
    x, mixture = (1_000 + x).float(), mixture.float()
    found = []
    for model in (single, norm):
        dtype = model.weight.dtype
        given = x.to(dtype).requires_grad_()
        with mixing(model.train(training), mixture.to(dtype)):
            y = model(given)
        (grad,) = torch.autograd.grad(y.sin().sum(), given)
        found.append([part.double() for part in (y, grad, model.normalise.running_var)])
    for near, exact in zip(*found, strict=True):
        torch.testing.assert_close(near, exact, rtol=1e-3, atol=1e-3)


def test_half_precision_gradients_do_not_overflow():
    norm, (x, mixture) = norm_by_basis().float(), batch((ROWS, CHANNELS, 3, 2))
    given = (100 * x).half().requires_grad_()
    with mixing(norm, mixture.float()):
        y = norm(given)
    (grad,) = torch.autograd.grad(y, given, torch.full_like(y, 1_000.0))
    assert grad.isfinite().all()


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"beta": torch.ones(ROWS, 2)}, r"beta for norms with 3 bases .* got \(6, 2\)"),
        ({"active": torch.ones(2, dtype=torch.bool)}, r"active must have shape \(3,\), .* got \(2,\)"),
    ],
)
def test_weights_of_another_number_of_bases_are_refused(given, named):
    norm = norm_by_basis()
    with pytest.raises(ValueError, match=named), mixing(norm, torch.ones(ROWS, BASES), **given):
        pass


@pytest.mark.parametrize("projection", [False, True], ids=["softmax", "projection"])
@on_every_input
def test_gradients_are_those_of_finite_differences(name, projection):
    x, mixture = batch(INPUTS[name][1], projection=projection)
    gates = BasisWeights(mixture)
    scale, shift = (torch.randn(ROWS, CHANNELS).double().requires_grad_() for _ in range(2))

    def normalised(x, scale, shift):
        return normalise_by_batch(x, scale, shift, gates.of(x), gates.pooling(x, None), eps=1e-5)[0]

    assert torch.autograd.gradcheck(normalised, (x.requires_grad_(), scale, shift))


def test_one_mixture_for_all_rows_is_that_of_each():
    norm = norm_by_basis()
    x, mixture = batch((ROWS, CHANNELS, 3, 2))
    for mode in (True, False):
        norm.train(mode)
        found = []
        for rows in (mixture[:1], mixture[:1].expand(ROWS, -1)):
            twin = copy.deepcopy(norm)
            with mixing(twin, rows):
                found.append(twin(x))
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_channels_last_stay_last_and_half_precision_is_near(dtype):
    norm, (x, mixture) = norm_by_basis().float(), batch((ROWS, CHANNELS, 5, 7))
    x, mixture, outer = x.float(), mixture.float(), torch.randn(ROWS, CHANNELS, 5, 7)
    found = []
    for given in (x, x.to(dtype).contiguous(memory_format=torch.channels_last)):
        twin, given = copy.deepcopy(norm), given.requires_grad_()
        with mixing(twin, mixture), torch.autocast("cpu", torch.bfloat16, enabled=given.dtype != torch.float32):
            y = twin(given)
        # A leaf's .grad has the layout of the leaf, whatever an operator gave.
        of_x, of_deviations = torch.autograd.grad((y * outer).sum(), (given, twin.weight_deviations))
        assert y.dtype == given.dtype
        found.append((y.float(), of_x.float(), of_deviations, twin.normalise.running_var))
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert of_x.is_contiguous(memory_format=torch.channels_last)
    far = 1e-5 if dtype == torch.float32 else 0.05
    for mine, exact in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(mine, exact, rtol=far, atol=far * float(exact.detach().abs().max()))


def test_a_batch_of_one_value_a_channel_is_refused():
    norm = GatedNorm(nn.BatchNorm1d(4), BASES, statistics="basis")
    why = r"at least two values per channel in training, got 1 .*model\.eval"
    with mixing(norm, torch.ones(1, BASES)), pytest.raises(ValueError, match=why):
        norm(torch.randn(1, 4))


def test_moments_are_weighted_by_beta_where_the_mixture_is_another():
    norm, (x, beta) = norm_by_basis().train(), batch(INPUTS["images"][1])
    mixture = 0 * beta  # where coverage is 0, scale and shift are the shared ones
    with mixing(norm, mixture, beta=beta):
        ours = norm(x)
    weights = slow_weights(beta, [True] * BASES)
    torch.testing.assert_close(ours, slow_norm(x, mixture, weights, norm, *slow_pooled(x, weights)))


@pytest.mark.usefixtures("without_shape_checks")
def test_a_beta_of_another_batch_is_refused():
    norm, (x, mixture) = norm_by_basis(), batch(INPUTS["images"][1])
    with (
        pytest.raises(ValueError, match="a row for each of the 6 rows of the mixture, or one for all of them, got 2"),
        mixing(norm, mixture, beta=mixture[:2]),
    ):
        norm(x)


@pytest.mark.parametrize(("dtype", "largest"), [(torch.float16, 1000.0), (torch.bfloat16, 100.0)], ids=str)
def test_in_half_precision_variances_are_those_of_the_rounded_values(dtype, largest):
    torch.manual_seed(0)
    means = torch.tensor([0.0, 1.0, 10.0, largest])
    x = (torch.randn(8, CHANNELS, 16, 16) + means.reshape(-1, 1, 1)).to(dtype)
    norm = GatedNorm(nn.BatchNorm2d(CHANNELS, momentum=1.0), 1, statistics="basis").train()
    with mixing(norm, torch.ones(8, 1)):
        norm(x)
    exact = x.double().transpose(0, 1).flatten(1).var(1)
    torch.testing.assert_close(norm.normalise.running_var[0].double(), exact, rtol=0.02, atol=0.0)


@pytest.mark.usefixtures("without_shape_checks")
def test_other_statistics_are_refused():
    with pytest.raises(ValueError, match="statistics must be 'batch' or 'basis', got 'domain'"):
        norm_workers.new_model("domain")


@pytest.mark.parametrize("before", [None, "batch"], ids=["plain", "gated by batch"])
def test_statistics_of_batches_are_loaded_as_those_of_every_basis(before):
    plain, model = norm_workers.new_model(before), norm_workers.new_model("basis")
    with torch.no_grad():
        for tensor in plain.state_dict().values():
            tensor.add_(1)
    missing, unexpected = model.load_state_dict(plain.state_dict(), strict=False)
    assert unexpected == []
    assert all(name.endswith("_deviations") for name in missing)
    x, mixture = norm_workers.whole_batch()
    with mixing(plain, mixture), mixing(model, mixture):
        torch.testing.assert_close(model.eval()(x), plain.eval()(x))


def test_a_model_is_the_same_after_saving_and_loading():
    model, other = (norm_workers.new_model("basis") for _ in range(2))
    x, mixture = norm_workers.whole_batch()
    with mixing(model, mixture):
        model(x)
        copied = copy.deepcopy(model)
    other.load_state_dict(model.state_dict())
    assert copied[1].basis_weights is None
    for twin in (other, copied):
        with mixing(model.eval(), mixture), mixing(twin.eval(), mixture):
            assert torch.equal(model(x), twin(x))


def test_checkpointed_activations_give_the_same_gradients_and_count_a_batch_once():
    x, mixture = norm_workers.whole_batch()
    found = []
    for call in (lambda model: model(x), lambda model: checkpointed(model, x)):
        model = norm_workers.new_model("basis")
        with mixing(model, mixture):
            y = call(model)
        y.square().sum().backward()
        found.append([*(p.grad for p in model.parameters()), *model.buffers()])
    torch.testing.assert_close(*found)


def test_a_model_is_exported_for_any_batch():
    model = norm_workers.new_model("basis").eval()

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x, mixture):
            with mixing(self.model, mixture):
                return self.model(x)

    x, mixture = norm_workers.whole_batch()
    rows = {0: Dim("rows")}
    program = export(Mixed(), (x, mixture), dynamic_shapes=(rows, rows), strict=False).module()
    with mixing(model, mixture[:5]):
        torch.testing.assert_close(program(x[:5], mixture[:5]), model(x[:5]))


@pytest.mark.slow
def test_a_compiled_step_is_the_eager_one():
    # In a process of its own, without the run-time shape checks of the tests, which no compiler sees through.
    context = mp.get_context("spawn")
    process = context.Process(target=norm_workers.compare_compiled)
    process.start()
    process.join(300)
    assert process.exitcode == 0


@pytest.mark.slow
def test_two_processes_with_unequal_shares_step_as_one(tmp_path):
    processes = mp.spawn(norm_workers.work, args=(str(tmp_path),), nprocs=2, join=False)
    end = time.monotonic() + 120
    while not processes.join(timeout=1):
        if time.monotonic() > end:
            for process in processes.processes:
                process.kill()
            pytest.fail("the processes did not end in 120 seconds")
    alone = norm_workers.two_steps(None)
    for rank in range(2):
        torch.testing.assert_close(torch.load(tmp_path / f"rank{rank}.pt"), alone, rtol=1e-8, atol=1e-9)


def test_norms_can_be_synchronised_after_they_were_gated():
    model = norm_workers.new_model("basis")
    x, mixture = norm_workers.whole_batch()
    twin = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(model))
    with mixing(model, mixture), mixing(twin, mixture):
        torch.testing.assert_close(twin(x), model(x))
    torch.testing.assert_close(twin.state_dict(), model.state_dict())


def test_gate_norms_makes_statistics_by_basis_only_when_asked():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4, track_running_stats=False))
    assert [norm.statistics for norm in gate_norms(copy.deepcopy(model), BASES)] == ["batch", "batch"]
    by_basis = gate_norms(model, BASES, statistics="basis")
    assert by_basis[0].normalise.running_mean.shape == (BASES, 4)
    assert by_basis[1].normalise.running_mean is None
    assert "statistics by basis" in repr(model)
