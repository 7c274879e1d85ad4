"""What the README tells people to type works."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gated_domains import GatedDomainUnits, GateWarning, model_head

README = (Path(__file__).parent.parent / "README.md").read_text()
PYTHON, SKLEARN, HEAD, *OTHERS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
REAL_PACS = Path(__file__).parents[2] / "shared" / "data" / "pacs_efflite0_feats.npz"


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


@pytest.fixture
def pacs(tmp_path, monkeypatch) -> Path:
    """A folder with the file that the README reads: a part of the real features, else made ones."""
    rng = np.random.default_rng(0)
    if REAL_PACS.is_file():
        with np.load(REAL_PACS) as arrays:
            kept = {name: arrays[name][::20] for name in ("features", "labels", "domains")}
        kept["features"] = kept["features"][:, :40]
    else:
        labels, domains = np.arange(400) % 7, np.arange(400) // 100
        kept = {"features": rng.normal(size=(400, 32)) + 2 * np.eye(32)[labels], "labels": labels, "domains": domains}
    np.savez(tmp_path / REAL_PACS.name, **kept)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def scores_printed(words: str) -> np.ndarray:
    """A row a model, a column a domain left out."""
    return np.array([[float(number) for number in re.findall(r"\d\.\d*", line)] for line in words.splitlines()])


@pytest.mark.usefixtures("without_shape_checks")
def test_the_comparison_in_python_runs_to_a_model_that_predicts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = [f"{rng.normal() + row % 5},{rng.normal()},{row % 5},{'abcd'[row % 4]}" for row in range(200)]
    for name in ("heart.csv", "new_site.csv"):
        Path(name).write_text("\n".join(["age,chol,num,hospital", *lines]))
    short = PYTHON.replace("seeds=5)", 'seeds=1, workers=1, training={"epochs": 1})').replace(
        'method="gdu")', 'method="gdu", training={"epochs": 1})'
    )
    assert short.count("epochs") == 2
    found: dict[str, object] = {}
    exec(short, found)
    assert "accuracy on held-out domains" in capsys.readouterr().out
    assert Path("heart.html").is_file()
    assert set(found["result"].verdicts) == {"GDU"}


@pytest.mark.filterwarnings("ignore::gated_domains.layer.GateWarning")
def test_ten_lines_of_scikit_learn_leave_every_domain_out(pacs, capsys):
    lines = [line for line in SKLEARN.splitlines() if line]
    assert len(lines) <= 10
    exec(SKLEARN, {})
    found = scores_printed(capsys.readouterr().out)
    assert found.shape == (3, 4)
    assert (found.mean(1) > 1.5 / 7).all()  # better than chance


@pytest.mark.slow
@pytest.mark.skipif(not REAL_PACS.is_file(), reason="real data (../shared/data) are not here")
def test_the_table_of_the_readme_is_what_these_lines_print(monkeypatch, capsys):
    monkeypatch.chdir(REAL_PACS.parent)
    exec(SKLEARN, {})
    rows = re.findall(r"^\| `(?:Logistic|ERM|GDU)[^|]*\|([^\n]*)\|$", README, flags=re.MULTILINE)
    table = np.array([[float(cell) for cell in row.split("|")[:4]] for row in rows])
    assert table.shape == (3, 4)
    np.testing.assert_allclose(100 * scores_printed(capsys.readouterr().out), table, atol=0.6)


def test_the_first_lines_replace_the_head_of_a_resnet_and_train_it(world):
    lines = [line for line in HEAD.splitlines() if line and not line.startswith(("import", "from"))]
    assert len(lines) <= 12
    with warnings.catch_warnings():
        warnings.simplefilter("error", GateWarning)  # bases that were fitted to random weights would no longer fit
        exec(HEAD, world)
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
    exec(HEAD, world)
    world |= {"features": torch.randn(60, 2048), "style": torch.randn(60, 32), "y": torch.arange(60) % 10}
    for block in OTHERS:
        exec(block, world)
    assert world["out"].prediction.shape == (60, 10)
    assert world["loss"].requires_grad
    assert world["by_style"].gating_features == 32
    assert world["batch"].inputs.shape == (128, 3, 32, 32)
