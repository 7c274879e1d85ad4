"""A linear head and a gated head on real digits, side by side, on shifts that neither has seen.

    python examples/first_head.py        # about twenty seconds on a CPU

Sources: scikit-learn's handwritten digits, half of them light on dark, half dark on light. Unseen: the same two with
every digit *moved* by one pixel, and the same two *faded* to half the contrast. One small network is trained end to end
under either head; the gates see the style of a picture (brightness, contrast, edges), not its features.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn

from gated_domains import GatedDomainUnits

SEEDS = range(5)
EPOCHS = 30
PICTURE = Path("out/first_head_gates.png")

Domain = Callable[[Tensor], Tensor]
SEEN: dict[str, Domain] = {"light on dark": lambda x: x, "dark on light": lambda x: 1 - x}
UNSEEN: dict[str, Domain] = {
    "moved, light on dark": lambda x: x.roll(1, dims=-1),
    "moved, dark on light": lambda x: 1 - x.roll(1, dims=-1),
    "faded, light on dark": lambda x: 0.25 + 0.5 * x,
    "faded, dark on light": lambda x: 0.75 - 0.5 * x,
}


def style(images: Tensor) -> Tensor:
    """What a picture looks like, whatever digit it shows: brightness, contrast, border, edges."""
    down = (images[:, 1:] - images[:, :-1]).abs().mean((1, 2))
    across = (images[:, :, 1:] - images[:, :, :-1]).abs().mean((1, 2))
    return torch.stack([images.mean((1, 2)), images.std((1, 2)), images[:, 0].mean(1), down, across], dim=1)


class Network(nn.Module):
    """A small backbone under a linear head, or under gated domain units whose gates see standardised style."""

    def __init__(self, images: Tensor, *, gated: bool) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU())
        seen = style(images)
        self.centre, self.scale = seen.mean(0), seen.std(0)
        self.head: nn.Module = nn.Linear(64, 10)
        if gated:
            self.head = GatedDomainUnits(64, 10, gating_features=seen.shape[1])
            self.head.fit_bases(self.view(images))

    def view(self, images: Tensor) -> Tensor:
        return (style(images) - self.centre) / self.scale

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        features = self.backbone(images)
        if isinstance(self.head, GatedDomainUnits):
            out = self.head.evaluate(features, gating=self.view(images))
            return F.cross_entropy(out.prediction, labels) + self.head.penalty(out)
        return F.cross_entropy(self.head(features), labels)

    def forward(self, images: Tensor) -> Tensor:
        features = self.backbone(images)
        gated = isinstance(self.head, GatedDomainUnits)
        return self.head(features, gating=self.view(images)) if gated else self.head(features)


def train(images: Tensor, labels: Tensor, *, gated: bool, seed: int) -> Network:
    """The network after training with AdamW; nothing but the head differs between the two."""
    torch.manual_seed(seed)
    network = Network(images, gated=gated)
    optimizer = torch.optim.AdamW(network.parameters(), lr=5e-3, weight_decay=1e-2)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(128):
            loss = network.loss(images[batch], labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if isinstance(network.head, GatedDomainUnits):
        network.head.renew(network.view(images))  # the bases have moved since they were fitted
    return network.eval()


@torch.no_grad()
def accuracy(network: Network, images: Tensor, labels: Tensor) -> float:
    """Per cent of right answers."""
    return 100 * float((network(images).argmax(-1) == labels).float().mean())


def draw_gates(network: Network, images: Tensor) -> None:
    """Mean weight of each basis in every domain, beside an example of the domain."""
    domains = SEEN | UNSEEN
    with torch.no_grad():
        rows = [
            network.head.evaluate(network.backbone(d(images)), gating=network.view(d(images))) for d in domains.values()
        ]
    beta = torch.stack([out.beta.mean(0) for out in rows])
    covered = [float(out.coverage.mean()) for out in rows]
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), width_ratios=[1, 7], layout="constrained")
    strip = torch.cat([F.pad(domain(images[3:4])[0], (0, 0, 0, 1), value=1.0) for domain in domains.values()])
    axes[0].imshow(strip, cmap="gray", vmin=0, vmax=1, aspect="auto")
    axes[0].axis("off")
    drawn = axes[1].imshow(beta, cmap="viridis", vmin=0, aspect="auto")
    axes[1].set_yticks(range(len(domains)), [f"{'seen' if n in SEEN else 'unseen'}: {n}" for n in domains])
    axes[1].set_xticks(range(beta.shape[1]), [f"basis {j + 1}" for j in range(beta.shape[1])])
    axes[1].axhline(len(SEEN) - 0.5, color="white", linewidth=2)
    for i, row in enumerate(beta.tolist()):
        for j, weight in enumerate(row):
            colour = "black" if weight > 0.6 * float(beta.max()) else "white"
            axes[1].text(j, i, f"{weight:.2f}", ha="center", va="center", color=colour)
    right = axes[1].secondary_yaxis("right")
    right.set_yticks(range(len(domains)), [f"{c:.0%}" for c in covered])
    right.set_ylabel("familiarity")
    right.tick_params(length=0)
    axes[1].set_title("Which bases each domain draws on (mean gate weight)")
    figure.colorbar(drawn, ax=axes[1], pad=0.12)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=150)


def main() -> None:
    """Train both heads with every seed, score all domains, draw the gates of the last network."""
    torch.set_num_threads(1)  # the matrices are so small that threads only get in each other's way
    digits = load_digits()
    images, labels = torch.tensor(digits.images / 16, dtype=torch.float32), torch.tensor(digits.target)
    scores: dict[tuple[str, str], list[float]] = {}
    for seed in track(SEEDS, description="training both heads", disable=not sys.stderr.isatty()):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
        train_rows, test_rows = order[:1200].chunk(len(SEEN)), order[1200:]
        sources = torch.cat([domain(images[rows]) for domain, rows in zip(SEEN.values(), train_rows, strict=True)])
        targets = torch.cat([labels[rows] for rows in train_rows])
        for head in ("linear", "gated"):
            network = train(sources, targets, gated=head == "gated", seed=seed)
            for name, domain in (SEEN | UNSEEN).items():
                got = accuracy(network, domain(images[test_rows]), labels[test_rows])
                scores.setdefault((head, name), []).append(got)
    draw_gates(network, images[test_rows])
    report(scores)


def report(scores: dict[tuple[str, str], list[float]]) -> None:
    """The table, and what it says."""
    console = Console(width=110)
    table = Table(title=f"Accuracy on held-out digits, mean ± std of {len(SEEDS)} seeds", title_justify="left")
    for heading in ("domain", "linear head", "gated head", "difference"):
        table.add_column(heading, justify="left" if heading == "domain" else "right")
    for name in SEEN | UNSEEN:
        linear, gated = scores["linear", name], scores["gated", name]
        gains = [b - a for a, b in zip(linear, gated, strict=True)]
        shown = [f"{mean(values):.1f} ± {stdev(values):.1f}" for values in (linear, gated)]
        kind = "seen" if name in SEEN else "unseen"
        table.add_row(f"{kind}: {name}", *shown, f"{mean(gains):+.1f} ± {stdev(gains):.1f}")
    console.print(table)
    for shift, meaning in (
        ("moved", "the style is familiar, the gates ask the experts that know it"),
        ("faded", "the style is new, and experts that never saw it mislead the shared one"),
    ):
        names = [name for name in UNSEEN if name.startswith(shift)]
        gain = mean(mean(scores["gated", name]) - mean(scores["linear", name]) for name in names)
        console.print(f"{shift}: the gated head {'gains' if gain > 0 else 'loses'} {abs(gain):.1f} points; {meaning}")
    console.print("Measure on a shift of your own before you believe in either.")
    console.print(f"picture of the gates: {PICTURE}")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()
