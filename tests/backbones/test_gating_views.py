"""What gates may see: fixed filters of the raw image, the raw vector, the style of early blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from gated_domains.backbones import GATINGS, MLP, Identity, RandomFilters, RawInput, SmallCNN, Style, default_gating
from gated_domains.data.errors import DataError

SHAPE = (3, 12, 14)


def images(rows: int = 5, shape: tuple[int, ...] = SHAPE, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, *shape, generator=torch.Generator().manual_seed(seed))


def slow_filters(image: np.ndarray, filters: np.ndarray, stride: int) -> np.ndarray:
    """Mean and log-std of |response| of each filter over positions, then mean and std of each channel."""
    size = filters.shape[-1]
    sizes = [
        [
            abs((kernel * image[:, top : top + size, left : left + size]).sum())
            for top in range(0, image.shape[1] - size + 1, stride)
            for left in range(0, image.shape[2] - size + 1, stride)
        ]
        for kernel in filters
    ]
    means = [np.mean(row) for row in sizes]
    spreads = [np.log(np.var(row) + 1e-6) / 2 for row in sizes]
    return np.array([*means, *spreads, *(c.mean() for c in image), *(c.std() for c in image)])


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_filters_give_the_statistics_that_a_loop_over_positions_gives(stride):
    view = RandomFilters(SHAPE, filters=6, stride=stride).double()
    x = images().double()
    expected = np.array([slow_filters(image, view.weight.numpy(), stride) for image in x.numpy()])
    np.testing.assert_allclose(view(x), expected, rtol=1e-9, atol=1e-9)
    assert view.width == expected.shape[1] == 2 * 6 + 2 * 3


def test_filters_are_sixty_four_of_five_by_five_unless_told():
    view = RandomFilters((1, 32, 32))
    assert view.weight.shape == (64, 1, 5, 5)
    assert view.width == 130
    assert 0.8 < view.weight.std() * 5 < 1.2


def test_filters_come_from_a_seed_of_their_own():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = RandomFilters(SHAPE)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(RandomFilters(SHAPE).weight, one.weight)
    assert not torch.equal(RandomFilters(SHAPE, seed=1).weight, one.weight)


def test_filters_are_saved_and_not_trained():
    view = RandomFilters(SHAPE, seed=3)
    assert list(view.parameters()) == []
    other = RandomFilters(SHAPE)
    other.load_state_dict(view.state_dict())
    assert torch.equal(other(images()), view(images()))


def test_images_of_one_colour_have_finite_statistics():
    flat = torch.stack([torch.full(SHAPE, -1.0), torch.full(SHAPE, 0.3)])
    assert RandomFilters(SHAPE)(flat).isfinite().all()


def test_filters_tell_styles_apart_that_differ_in_texture_alone():
    shape = (3, 32, 32)
    rough, smooth = images(40, shape), nn.functional.avg_pool2d(images(40, shape, seed=1), 3, stride=1, padding=1)
    rough, smooth = (x / x.std((2, 3), keepdim=True) for x in (rough, smooth))
    view = RandomFilters(shape)
    a, b = view(smooth), view(rough)
    assert ((a.mean(0) - b.mean(0)).abs() / (a.std(0) + b.std(0) + 1e-6))[:64].max() > 2


def test_filters_run_in_full_precision_under_autocast():
    view, x = RandomFilters(SHAPE), images()
    with torch.autocast("cpu", torch.bfloat16):
        seen = view(x)
    assert seen.dtype == torch.float32
    assert torch.equal(seen, view(x))


def test_a_sample_s_statistics_do_not_depend_on_its_batch():
    view, x = RandomFilters(SHAPE), images(6)
    torch.testing.assert_close(torch.cat([view(row[None]) for row in x]), view(x), rtol=1e-4, atol=1e-5)


def test_the_raw_input_is_the_vector_itself():
    x = torch.randn(4, 6)
    view = RawInput((6,))
    assert view.width == 6
    assert torch.equal(view(x), x)


def test_style_is_the_mean_and_log_std_of_the_channels_of_early_blocks():
    body = SmallCNN((3, 16, 16)).eval()
    view = Style(body)
    assert view.width == 2 * 16 + 2 * 32
    x = images(3, (3, 16, 16))
    body(x)
    first = body.blocks[0](x)
    expected = []
    for maps in (first, body.blocks[1](first)):
        flat = maps.detach().flatten(2).double().numpy()
        expected += [flat.mean(-1), np.log(flat.var(-1) + 1e-6) / 2]
    np.testing.assert_allclose(view(x), np.concatenate(expected, -1), rtol=1e-4, atol=1e-4)


def test_style_of_an_mlp_is_its_first_hidden_block():
    body = MLP((5,), hidden=(7, 3)).eval()
    view = Style(body)
    x = torch.randn(4, 5)
    body(x)
    assert view.width == 7
    assert torch.equal(view(x), body.blocks[0](x))


def test_building_a_style_view_leaves_the_body_as_it_was():
    body = SmallCNN((3, 16, 16)).train()
    before = {name: value.clone() for name, value in body.state_dict().items()}
    Style(body)
    assert body.training
    assert all(torch.equal(value, before[name]) for name, value in body.state_dict().items())


def test_views_of_the_raw_input_say_so():
    assert RandomFilters(SHAPE).sees_raw_input
    assert RawInput((4,)).sees_raw_input
    assert not Style(MLP((4,))).sees_raw_input


@pytest.mark.parametrize(
    ("name", "body", "kind"),
    [
        ("features", SmallCNN(SHAPE), type(None)),
        ("style", SmallCNN(SHAPE), Style),
        ("filters", SmallCNN(SHAPE), RandomFilters),
        ("input", MLP((4,)), RawInput),
        ("style", MLP((4,)), Style),
        ("features", Identity((4,)), type(None)),
        ("input", Identity((4,)), RawInput),
    ],
)
def test_every_view_is_made_from_its_name(name, body, kind):
    assert type(GATINGS[name](body, body.shape)) is kind


def test_every_kind_of_inputs_has_a_view():
    assert [default_gating(kind) for kind in ("images", "table", "features")] == ["filters", "input", "input"]
    with pytest.raises(DataError, match="'tables'; did you mean 'table'"):
        default_gating("tables")


def test_filters_on_a_table_are_refused_with_the_cure():
    with pytest.raises(DataError, match=r"shape \(25,\).*gates see the 'input'"):
        GATINGS["filters"](MLP((25,)), (25,))


def test_filters_on_images_smaller_than_they_are_are_refused():
    with pytest.raises(DataError, match=r"5 x 5 .*shape \(3, 4, 9\)"):
        RandomFilters((3, 4, 9))


def test_the_raw_input_of_images_is_refused_with_the_cure():
    with pytest.raises(DataError, match=r"shape \(3, 12, 14\).*'filters' and 'style'"):
        GATINGS["input"](SmallCNN(SHAPE), SHAPE)


def test_the_style_of_a_body_without_blocks_is_refused_with_the_cure():
    with pytest.raises(DataError, match=r"Identity has no early block .*'input'"):
        GATINGS["style"](Identity((4,)), (4,))
