"""Gated domain units in a Lightning module: a small CNN on digits, and a domain of them that it never saw.

    pip install lightning
    python examples/lightning_module.py                                 # some twenty seconds on a CPU

``GatedModule`` takes any model that ``replace_head`` gave units. What they need beside an ordinary module: they are
fitted to the data before the first step and whenever features have moved away, their penalty joins the loss, and what
is familiar is measured before each epoch and each validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from gated_domains import model_head, renew_head, replace_head
from gated_domains.data import hold_outs, load_data
from gated_domains.torchvision_operators import let_torchvision_import

let_torchvision_import()  # Lightning imports it where it is installed
from lightning.pytorch import LightningModule, Trainer, seed_everything  # noqa: E402


class GatedModule(LightningModule):
    """A classifier with gated domain units for a head. Validate once an epoch: what is saved after is right to use."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def on_train_epoch_start(self) -> None:
        renew_head(self.model, self.trainer.train_dataloader, optimizer=self.trainer.optimizers[0])

    def on_validation_epoch_start(self) -> None:
        if self.trainer.train_dataloader is not None:  # else the coverage is the one it was saved with
            renew_head(self.model, self.trainer.train_dataloader)  # now in eval mode, as what follows

    def training_step(self, batch: Sequence[Tensor], _: int) -> Tensor:
        with model_head(self.model).record() as outs:
            loss = F.cross_entropy(self.model(batch[0]), batch[1])
        self.log("loss", loss, prog_bar=True)
        return loss + model_head(self.model).penalty(outs[-1])

    def validation_step(self, batch: Sequence[Tensor], _: int) -> None:
        self.log("accuracy", (self.model(batch[0]).argmax(-1) == batch[1]).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def small_cnn() -> nn.Module:
    """A CNN with units for a head, whose gates see the channel statistics of its first layers: style, not digits."""
    first = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
    then = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
    model = nn.Sequential(first, then, nn.Flatten(), nn.Linear(32 * 16, 64), nn.ReLU(), nn.Linear(64, 10))
    return replace_head(model, gating=("0",), example=torch.zeros(2, 3, 16, 16), verbose=False)


def loaders(hold_out: str, *, most: int | None = None) -> list[DataLoader[Any]]:
    """What trains, what validates, and the domain held out; at most ``most`` rows of each, for a short try."""
    data, parts = load_data("digits"), []
    (split,) = hold_outs(data, [hold_out])
    for rows in (split.train, split.validation, split.test):
        kept = rows[torch.randperm(len(rows))[:most].numpy()]
        images = torch.from_numpy(data.inputs.read(kept)).permute(0, 3, 1, 2).float() / 127.5 - 1
        parts.append(TensorDataset(F.avg_pool2d(images, 2), torch.from_numpy(data.targets[kept])))
    return [DataLoader(part, batch_size=128, shuffle=part is parts[0]) for part in parts]


def main(hold_out: str = "numbers", *, epochs: int = 3, most: int | None = None) -> None:
    """Train on all domains but one, and score the model on rows of those and on the one."""
    seed_everything(0, verbose=False)
    train, seen, unseen = loaders(hold_out, most=most)
    module, trainer = GatedModule(small_cnn()), Trainer(max_epochs=epochs, logger=False, enable_checkpointing=False)
    trainer.fit(module, train, seen)
    for name, loader in (("domains seen", seen), (f"{hold_out}, never seen", unseen)):
        print(f"{name:>20}  {100 * trainer.validate(module, loader, verbose=False)[0]['accuracy']:5.1f} %")


if __name__ == "__main__":
    main()
