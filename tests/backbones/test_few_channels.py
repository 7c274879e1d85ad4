"""A convolution of few channels by patches is the convolution."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gated_domains.backbones import few_channels
from gated_domains.backbones.bodies import DigitsCNN, SmallCNN
from gated_domains.backbones.few_channels import FewChannels


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "bias"),
    [(5, 1, 2, False), (5, 2, 2, True), (3, 2, 1, False), ((3, 5), (2, 1), (1, 0), True), (1, 1, 0, True)],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_patches_times_a_matrix_are_the_convolution(channels, kernel, stride, padding, bias):
    torch.manual_seed(0)
    few = FewChannels(channels, 16, kernel, stride=stride, padding=padding, bias=bias).double()
    images = torch.randn(4, channels, 17, 19, dtype=torch.float64)
    expected = nn.Conv2d.forward(few, images)
    found = few.by_patches(images)
    torch.testing.assert_close(found, expected)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_so_are_its_gradients():
    torch.manual_seed(0)
    few, images = FewChannels(3, 8, 5, padding=2, bias=True).double(), torch.randn(2, 3, 9, 9, dtype=torch.float64)
    weights = torch.randn(2, 8, 9, 9, dtype=torch.float64)
    by_patches = torch.autograd.grad((few.by_patches(images) * weights).sum(), [few.weight, few.bias])
    expected = torch.autograd.grad((nn.Conv2d.forward(few, images) * weights).sum(), [few.weight, few.bias])
    torch.testing.assert_close(by_patches, expected)


def test_under_autocast_it_has_the_precision_of_a_convolution():
    few, images = FewChannels(3, 8, 5, padding=2, bias=False), torch.randn(2, 3, 9, 9)
    with torch.autocast("cpu", torch.bfloat16):
        assert few.by_patches(images).dtype == nn.Conv2d.forward(few, images).dtype == torch.bfloat16


@pytest.mark.parametrize(("dtype", "numbers"), [(torch.float32, 75), (torch.bfloat16, 80), (torch.float16, 80)])
def test_patches_are_padded_where_matrix_units_ask_for_it_alone(dtype, numbers, monkeypatch):
    few, images = FewChannels(3, 8, 5, padding=2, bias=False).to(dtype), torch.randn(2, 3, 9, 9).to(dtype)
    expected, linear, widths = nn.Conv2d.forward(few, images), few_channels.F.linear, []

    def watched(flat, weight, bias):
        widths.extend([flat.shape[-1], weight.shape[-1]])
        return linear(flat, weight, bias)

    monkeypatch.setattr(few_channels.F, "linear", watched)
    torch.testing.assert_close(few.by_patches(images), expected, rtol=0.02, atol=0.02)
    assert widths == [numbers, numbers]


def test_weights_of_a_plain_convolution_fit():
    plain, few = nn.Conv2d(3, 8, 5), FewChannels(3, 8, 5)
    few.load_state_dict(plain.state_dict())
    assert list(few.state_dict()) == ["weight", "bias"]


@pytest.mark.parametrize("body", [DigitsCNN, SmallCNN])
def test_on_a_cpu_a_body_stays_as_it_was(body, monkeypatch):
    monkeypatch.setattr(FewChannels, "by_patches", lambda *_: pytest.fail("patches are for GPUs"))
    assert body((3, 32, 32)).eval()(torch.zeros(2, 3, 32, 32)).shape[0] == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_it_is_the_convolution_in_half_precision_too():
    torch.manual_seed(0)
    few, images = FewChannels(3, 64, 5, padding=2, bias=False).cuda(), torch.randn(64, 3, 32, 32, device="cuda")
    expected = nn.Conv2d.forward(few, images)
    torch.testing.assert_close(few(images), expected, rtol=1e-4, atol=1e-4)
    with torch.autocast("cuda", torch.bfloat16):
        half = few(images)
    assert (half.float() - expected).norm() < 1e-2 * expected.norm()
