"""What a plain CNN loses on a domain of `digits` that it has not seen.

    python benchmarks/digits_shift.py                      # five domains, one seed, some minutes on two CPU cores
    python benchmarks/digits_shift.py --seeds 5 --device cuda

For each domain: trained on the training rows of the four others, tested on their official test rows (source) and on
those of the domain itself (held out). No tricks: no augmentation, no weights by domain, no choice among epochs.
"""

from __future__ import annotations

import argparse
import os
import platform

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import Progress
from torch import nn

from gated_domains.data import InOrder, Shuffled, fit_encoding, hold_outs, load_data, place
from gated_domains.data.batches import Samples
from gated_domains.data.inputs import Rows

EPOCHS = 8
BATCH = 128
RATE = 2e-3


def network() -> nn.Sequential:
    """Three convolutional blocks, each halving the picture, and a linear layer: 72,042 parameters."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 24), (24, 48), (48, 128)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.MaxPool2d(2), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4 * 128, 10))


def train(samples: Samples, rows: Rows, *, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = network().to(samples.device)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    sampler = Shuffled(rows, BATCH, seed=seed)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(sampler))
    for epoch in range(EPOCHS):
        for batch in samples.batches(sampler, epoch):
            loss = F.cross_entropy(model(batch.inputs), batch.targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


@torch.no_grad()
def accuracy(model: nn.Module, samples: Samples, rows: Rows) -> float:
    right = [model(batch.inputs).argmax(1) == batch.targets for batch in samples.batches(InOrder(rows, 500))]
    return 100 * float(torch.cat(right).float().mean())


def row(name: str, source: list[float], held_out: list[float]) -> str:
    def cell(values: list[float]) -> str:
        return f"{np.mean(values):.1f}" + (f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else "")

    return f"| {name} | {cell(source)} | {cell(held_out)} | {np.mean(held_out) - np.mean(source):+.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    data = load_data("digits")
    samples = place(data, fit_encoding(data, np.arange(len(data))), device=chosen.device)  # bytes: nothing is learned
    lines = ["| held out | source accuracy | held-out accuracy | difference |", "|---|---|---|---|"]
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training", total=chosen.seeds * len(data.domain_names))
        for split in hold_outs(data):
            source, held_out = [], []
            for seed in range(chosen.seeds):
                model = train(samples, split.train, seed=seed)
                source.append(accuracy(model, samples, split.validation))
                held_out.append(accuracy(model, samples, split.test))
                bar.advance(task)
            lines.append(row(split.name, source, held_out))
    on_gpu = samples.device.type == "cuda"
    machine = torch.cuda.get_device_name() if on_gpu else f"{os.cpu_count()} CPUs ({platform.machine()})"
    spread = f"mean and standard deviation over {chosen.seeds} seeds" if chosen.seeds > 1 else "one seed"
    print("\n".join([*lines, "", f"Accuracy in percent, {spread}; {machine}, torch {torch.__version__}."]))


if __name__ == "__main__":
    main()
