"""The loop of the README on networks that begin with random weights: gates are healthy at its end."""

from __future__ import annotations

import re
import warnings
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from gated_domains import GateWarning, model_head
from gated_domains.backbones import gating_rows
from gated_domains.data import load_data
from gated_domains.insight.doctor import examine

README = (Path(__file__).parents[2] / "README.md").read_text()
(LOOP,) = re.findall(r"```python\n([^`]*replace_head\(model\)[^`]*)```", README)
EACH = 500


@cache
def digits() -> tuple[Tensor, Tensor]:
    """Some images of each domain of the embedded digits, at half their side."""
    data = load_data("digits")
    rows = torch.cat([torch.nonzero(torch.tensor(data.domains) == domain).flatten()[:EACH] for domain in range(5)])
    images = torch.from_numpy(data.inputs.read(rows.numpy())).permute(0, 3, 1, 2).float() / 127.5 - 1
    return F.avg_pool2d(images, 2), torch.from_numpy(data.targets[rows.numpy()])


def cnn(*, normalised: bool) -> nn.Module:
    def block(before: int, after: int) -> list[nn.Module]:
        norm = [nn.BatchNorm2d(after)] if normalised else []
        return [nn.Conv2d(before, after, 3, padding=1), *norm, nn.ReLU(), nn.MaxPool2d(2)]

    blocks = [*block(3, 16), *block(16, 32), *block(32, 64)]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))


def after_the_loop(epochs: int, seed: int, *, normalised: bool, style: bool = False) -> nn.Module:
    """A model after the lines of the README, with as many epochs; a warning about gates is an error."""
    torch.manual_seed(seed)
    loader = DataLoader(TensorDataset(*digits()), batch_size=32, shuffle=True)
    by_style = "replace_head(model, gating=('2',), example=torch.zeros(2, 3, 16, 16))"
    loop = LOOP.replace("replace_head(model)", by_style) if style else LOOP
    world = {"model": cnn(normalised=normalised), "loader": loader}
    with warnings.catch_warnings():
        warnings.simplefilter("error", GateWarning)
        exec(loop.replace("range(3)", f"range({epochs})"), world)
    return world["model"]


@torch.no_grad()
def familiarity(model: nn.Module, images: Tensor) -> float:
    with model_head(model).record() as outs:
        model(images)
    return float(outs[-1].coverage.mean())


@pytest.mark.parametrize(
    ("epochs", "seed", "normalised", "style"),
    [
        (3, 0, False, False),
        (3, 1, True, True),
        pytest.param(3, 1, False, False, marks=pytest.mark.slow),
        pytest.param(3, 0, True, True, marks=pytest.mark.slow),
        *[pytest.param(8, seed, norm, norm, marks=pytest.mark.slow) for seed in (0, 1) for norm in (False, True)],
    ],
)
def test_the_loop_ends_with_healthy_gates(epochs, seed, normalised, style):
    model = after_the_loop(epochs, seed, normalised=normalised, style=style)
    images, _ = digits()
    assert examine(model_head(model), gating_rows(model, images)).level == "ok"
    assert familiarity(model, images) > 0.6
    if style:  # last features may lie in the middle of those of training, whatever is seen; the style of noise does not
        noise = torch.randn(400, 3, 16, 16, generator=torch.Generator().manual_seed(9))
        assert familiarity(model, noise) < familiarity(model, images) - 0.5


@pytest.mark.slow
def test_two_runs_with_one_seed_are_the_same():
    first, again = (after_the_loop(2, 0, normalised=True).state_dict() for _ in range(2))
    assert all(torch.equal(value, again[name]) for name, value in first.items())
