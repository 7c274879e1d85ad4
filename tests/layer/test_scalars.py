"""Scalar buffers keep their precision, follow the device and are never lost."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gated_domains.layer import CosineGate, GatedDomainUnits
from gated_domains.layer.kernels import Average, Gaussian, RationalQuadratic, Scalars

SIGMA = 0.7 + 1e-13  # no float32, let alone float16, holds it


class OnlyFloat32:
    """Moves tensors as a device without float64 would."""

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype == torch.float64:
            raise TypeError("this device knows no float64")
        return tensor.clone()


@pytest.mark.parametrize("cast", ["half", "bfloat16", "float", "double"])
def test_sigma_survives_a_change_of_precision_exactly(cast):
    head = GatedDomainUnits(4, 2, kernel=Gaussian(SIGMA))
    getattr(head, cast)()
    assert head.kernel.sigma.item() == SIGMA
    assert head.bases.dtype == getattr(torch, cast)


def test_sigma_survives_half_and_back():
    kernel = Gaussian(SIGMA).half().bfloat16().float().to(torch.float16).double()
    assert kernel.sigma.item() == SIGMA


def test_every_scalar_survives_not_only_sigma():
    head = GatedDomainUnits(4, 2, kernel=RationalQuadratic(SIGMA, alpha=SIGMA), gate=CosineGate(SIGMA))
    head.coverage.q50.fill_(SIGMA)
    head.half()
    kept = (head.kernel.sigma, head.kernel.alpha, head.gate.kappa, head.coverage.q50)
    assert [scalar.item() for scalar in kept] == [SIGMA] * 4


def test_scalars_inside_other_modules_survive_too():
    model = nn.Sequential(nn.Linear(4, 4), nn.ModuleDict({"kernel": Average([Gaussian(SIGMA)])})).half()
    assert model[0].weight.dtype == torch.half
    assert model[1]["kernel"].members[0].sigma.item() == SIGMA


MOVES = {
    "to": lambda module: module.to("meta"),
    "half and to": lambda module: module.half().to("meta"),
    "to_empty": lambda module: module.to_empty(device="meta"),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_scalars_follow_to_another_device(move):
    kernel = move(Gaussian(SIGMA))
    assert kernel.sigma.device.type == "meta"
    assert kernel.sigma.dtype == torch.float64


def test_scalars_are_loaded_from_a_state_dict():
    saved = GatedDomainUnits(4, 2, kernel=Gaussian(SIGMA), gate=CosineGate(3.3))
    saved.coverage.q97.fill_(0.123)
    loaded = GatedDomainUnits(4, 2).half()
    loaded.load_state_dict(saved.state_dict())
    assert loaded.kernel.sigma.item() == SIGMA
    assert loaded.gate.kappa.item() == 3.3
    assert loaded.coverage.q97.item() == 0.123


def test_scalars_are_buffers_and_no_parameters():
    head = GatedDomainUnits(4, 2)
    buffers, parameters = dict(head.named_buffers()), dict(head.named_parameters())
    assert {"kernel.sigma", "gate.kappa", "coverage.q50", "coverage.q97"} <= set(buffers)
    assert not set(buffers) & set(parameters)


def test_a_device_that_knows_no_float64_gets_float32():
    kernel = Gaussian(0.7)._apply(OnlyFloat32())
    assert kernel.sigma.dtype == torch.float32
    assert kernel.sigma.item() == pytest.approx(0.7, rel=1e-7)


def test_a_scalar_does_not_decide_the_precision_of_the_result():
    x = torch.randn(3, 4)
    assert Gaussian(0.7)(x, x).dtype == torch.float32
    assert Gaussian(0.7)(x.double(), x.double()).dtype == torch.float64


def test_buffers_that_are_no_scalars_are_cast_as_usual():
    module = Scalars()
    module.add_scalar("width", 0.7)
    module.register_buffer("table", torch.ones(3))
    module.half()
    assert module.table.dtype == torch.half
    assert module.width.dtype == torch.float64


def test_scalars_are_still_there_after_a_move_that_failed():
    def refuses(_: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no such device")

    head = GatedDomainUnits(4, 2, kernel=Gaussian(SIGMA))
    with pytest.raises(RuntimeError, match="no such device"):
        head._apply(refuses)
    assert head.kernel.sigma.item() == SIGMA
    assert head(torch.randn(3, 4)).shape == (3, 2)
