"""Bodies: the layers they are made of, the shapes they take, and what they say to those they do not."""

from __future__ import annotations

import copy
from itertools import chain

import pytest
import torch
from torch import nn

from gated_domains.backbones import BODIES, MLP, Body, DigitsCNN, Identity, SmallCNN, default_body
from gated_domains.data.errors import DataError

IMAGES = [(3, 32, 32), (1, 28, 28), (3, 8, 8), (4, 33, 20), (3, 48, 64), (2, 9, 40)]
CNNS = [SmallCNN, pytest.param(DigitsCNN, id="DigitsCNN")]


def layers(module: nn.Module) -> list[nn.Module]:
    return [part for part in module.modules() if not list(part.children()) and not isinstance(part, nn.Identity)]


def example(shape: tuple[int, ...], rows: int = 2) -> torch.Tensor:
    return torch.randn(rows, *shape, generator=torch.Generator().manual_seed(0))


def test_the_digits_network_is_that_of_the_paper_layer_by_layer():
    found = [(kind(layer), *sizes(layer)) for layer in layers(DigitsCNN((3, 32, 32)))]
    assert found == [
        *[("Conv2d", 3, 64, (5, 5), (1, 1), (2, 2)), ("BatchNorm2d", 64), ("ReLU",), ("MaxPool2d", 2)],
        *[("Conv2d", 64, 64, (5, 5), (1, 1), (2, 2)), ("BatchNorm2d", 64), ("ReLU",), ("MaxPool2d", 2)],
        *[("Conv2d", 64, 128, (5, 5), (1, 1), (2, 2)), ("BatchNorm2d", 128), ("ReLU",), ("MaxPool2d", 2)],
        *[("Flatten",), ("Linear", 2048, 3072), ("BatchNorm1d", 3072), ("ReLU",), ("Dropout", 0.5)],
        *[("Linear", 3072, 2048), ("BatchNorm1d", 2048), ("ReLU",)],
    ]


def test_the_small_network_is_small():
    body = SmallCNN((3, 32, 32))
    found = [(kind(layer), *sizes(layer)) for layer in layers(body)]
    assert found == [
        *[("Conv2d", 3, 16, (5, 5), (2, 2), (2, 2)), ("BatchNorm2d", 16), ("ReLU",)],
        *[("Conv2d", 16, 32, (3, 3), (2, 2), (1, 1)), ("BatchNorm2d", 32), ("ReLU",)],
        *[("Conv2d", 32, 64, (3, 3), (2, 2), (1, 1)), ("BatchNorm2d", 64), ("ReLU",)],
        *[("Flatten",), ("Linear", 1024, 128), ("BatchNorm1d", 128), ("ReLU",)],
    ]
    assert sum(parameter.numel() for parameter in body.parameters()) < 200_000


def kind(layer: nn.Module) -> str:
    """What it computes: a convolution of few channels is one."""
    return "Conv2d" if isinstance(layer, nn.Conv2d) else type(layer).__name__


def sizes(layer: nn.Module) -> tuple:
    names = {
        nn.Conv2d: ("in_channels", "out_channels", "kernel_size", "stride", "padding"),
        nn.BatchNorm2d: ("num_features",),
        nn.BatchNorm1d: ("num_features",),
        nn.MaxPool2d: ("kernel_size",),
        nn.Linear: ("in_features", "out_features"),
        nn.Dropout: ("p",),
    }
    of = next((own for known, own in names.items() if isinstance(layer, known)), ())
    return tuple(getattr(layer, name) for name in of)


@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_a_small_network_takes_images_of_any_size(shape):
    assert_gives_features(SmallCNN(shape), shape)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 8, 17)], ids=str)
def test_the_digits_network_takes_images_of_any_size(shape):
    assert_gives_features(DigitsCNN(shape), shape)


@pytest.mark.parametrize("shape", [(1,), (25,)], ids=str)
@pytest.mark.parametrize("make", [MLP, Identity])
def test_bodies_for_vectors_take_any_width(make, shape):
    assert_gives_features(make(shape), shape)


def assert_gives_features(body: Body, shape: tuple[int, ...]) -> None:
    features = body(example(shape))
    assert features.shape == (2, body.features)
    assert features.isfinite().all()
    known = dict(body.named_modules())
    assert all(name in known for name in body.early)


def test_large_images_do_not_make_a_large_network():
    small, large = (sum(p.numel() for p in SmallCNN((3, side, side)).parameters()) for side in (32, 256))
    assert small == large


@pytest.mark.parametrize("make", CNNS)
def test_images_run_with_channels_last_whatever_they_come_in(make):
    body = make((3, 16, 16)).eval()
    seen = []
    for block in body.blocks:
        block.register_forward_hook(lambda _, args, output: seen.append(args[0]))
    plain = example((3, 16, 16))
    expected = body(plain.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(body(plain), expected)
    assert all(maps.is_contiguous(memory_format=torch.channels_last) for maps in seen)
    weights = [layer.weight for layer in layers(copy.deepcopy(body)) if isinstance(layer, nn.Conv2d)]
    assert len(weights) == 3
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)


def test_an_mlp_is_made_of_the_widths_it_is_given():
    body = MLP((7,), hidden=(9, 5, 4), dropout=0.25)
    found = [(kind(layer), *sizes(layer)) for layer in layers(body)]
    expected = [
        [("Linear", i, o), ("BatchNorm1d", o), ("ReLU",), ("Dropout", 0.25)] for i, o in ((7, 9), (9, 5), (5, 4))
    ]
    assert found == list(chain.from_iterable(expected))
    assert body.features == 4


def test_an_mlp_without_norm_and_dropout_gives_each_row_an_output_of_its_own():
    body = MLP((7,), norm=False, dropout=0).train()
    x = example((7,), rows=6)
    assert {type(layer) for layer in layers(body)} == {nn.Linear, nn.ReLU}
    assert all(layer.bias is not None for layer in layers(body) if isinstance(layer, nn.Linear))
    torch.testing.assert_close(torch.cat([body(row[None]) for row in x]), body(x))


def test_identity_gives_the_vector_as_it_is():
    x = example((6,))
    assert Identity((6,))(x) is x
    assert Identity((6,)).early == ()


def test_early_blocks_come_first():
    assert DigitsCNN((3, 8, 8)).early == SmallCNN((3, 8, 8)).early == ("blocks.0", "blocks.1")
    assert MLP((3,)).early == ("blocks.0",)


@pytest.mark.parametrize("name", ["small", "mlp", "identity"])
def test_gradients_reach_every_parameter(name):
    shape = (3, 16, 16) if BODIES[name].takes == "images" else (5,)
    body = BODIES[name](shape)
    x = example(shape, rows=8).requires_grad_()
    body(x).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in (x, *body.parameters()))


@pytest.mark.parametrize("kind", ["images", "table", "features"])
def test_every_kind_of_inputs_has_a_body(kind):
    body = BODIES[default_body(kind)]
    assert body is (SmallCNN if kind == "images" else MLP)


def test_a_kind_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(DataError, match="'imges'; did you mean 'images'"):
        default_body("imges")


@pytest.mark.parametrize("name", ["digits", "small"])
def test_vectors_are_refused_by_networks_for_images_which_name_those_that_take_them(name):
    with pytest.raises(DataError, match=r"takes images, and these are vectors of shape \(25,\).*mlp, identity"):
        BODIES[name]((25,))


@pytest.mark.parametrize("name", ["mlp", "identity"])
def test_images_are_refused_by_bodies_for_vectors_which_name_those_that_take_them(name):
    with pytest.raises(DataError, match=r"takes vectors, and these are images .*digits, small"):
        BODIES[name]((3, 32, 32))


def test_samples_that_no_body_takes_are_refused():
    with pytest.raises(DataError, match=r"samples of 2 dimensions of shape \(4, 5\); .*subclass Body"):
        MLP((4, 5))


@pytest.mark.parametrize("make", CNNS)
def test_images_that_are_too_small_are_refused_with_the_cure(make):
    with pytest.raises(DataError, match=r"7 x 32 pixels are too small .* enlarge them to 8 x 8"):
        make((3, 7, 32))


def test_an_mlp_without_a_layer_is_refused():
    with pytest.raises(DataError, match="Identity"):
        MLP((4,), hidden=())
    with pytest.raises(ValueError, match="each hidden width must be a whole number"):
        MLP((4,), hidden=(3, 0))
    with pytest.raises(DataError, match=r"dropout is a share .* got 1\.0"):
        MLP((4,), dropout=1.0)
