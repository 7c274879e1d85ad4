"""What the README tells people to type works."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gated_domains import GatedDomainUnits, model_head

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


class Block(nn.Module):
    """A residual block."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(x + self.norm(self.conv(x)))


class ResNet(nn.Module):
    """A ResNet in small: stem, two stages, pooling, a final linear layer called fc."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.layer1, self.layer2 = Block(8), Block(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(self.stem(x))).mean((2, 3)))


@pytest.fixture
def world():
    """Four classes by colour; loader and model as a reader has them."""
    labels = torch.arange(1024) % 4
    images = torch.randn(1024, 3, 8, 8) + 2 * torch.eye(4)[:, :3][labels][:, :, None, None]
    loader = DataLoader(TensorDataset(images, labels), batch_size=16)
    return {"model": ResNet(), "loader": loader, "images": images, "labels": labels}


def test_the_first_lines_replace_the_head_of_a_resnet_and_train_it(world):
    lines = [line for line in BLOCKS[0].splitlines() if line and not line.startswith(("import", "from"))]
    assert len(lines) <= 12
    exec(BLOCKS[0], world)
    model, head = world["model"], world["head"]
    assert isinstance(model.fc, GatedDomainUnits)
    assert model_head(model) is head
    with torch.no_grad(), head.record() as outs:
        right = (model(world["images"]).argmax(-1) == world["labels"]).float().mean()
    assert right > 0.8
    # The gates had a part in it: deviations were learned, and training data are familiar.
    assert head.experts.weight.abs().max() > 1e-3
    assert outs[-1].coverage.mean() > 0.3


def test_the_other_blocks_run(world, monkeypatch):
    mpl.use("Agg")
    exec(BLOCKS[0], world)
    world |= {"features": torch.randn(60, 2048), "style": torch.randn(60, 2048), "y": torch.arange(60) % 10}
    for block in BLOCKS[1:]:
        exec(block, world)
    assert world["out"].prediction.shape == (60, 10)
    assert world["loss"].requires_grad
    assert world["batch"].inputs.shape == (128, 3, 32, 32)
