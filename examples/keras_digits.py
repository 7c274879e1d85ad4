"""One network in Keras and in PyTorch, side by side, on a domain of digits that neither has seen.

    KERAS_BACKEND=jax python examples/keras_digits.py                  # or tensorflow, or torch: about two minutes
    python examples/keras_digits.py --hold-out numbers --seeds 5       # on the backend that Keras takes by itself

Four domains of the embedded digits train, the fifth is held out. A small CNN under gated domain units, and the same CNN
under a linear head, are trained once with ``model.fit`` and once by a plain loop in PyTorch. Both begin with the same
weights and see the same batches, so that nothing but rounding and the layers themselves could set them apart. The gates
see the style of a picture (what fixed random filters find in it) as a second input.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev, variance
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow has much to say about this machine's CPU
try:
    import keras
    import torch
    import torch.nn.functional as F
    from keras import layers
    from torch import nn
except (ImportError, ValueError) as missing:  # a backend of an unknown name is the latter
    sys.exit(
        f"this example needs Keras, a backend for it, and PyTorch to compare with ({missing}): pip install "
        "'gated-domains[keras]' and tensorflow-cpu or jax, or choose a backend you have: KERAS_BACKEND=torch"
    )

from gated_domains import GatedDomainUnits as TorchUnits
from gated_domains.data import hold_outs, load_data
from gated_domains.data.digits import DOMAINS
from gated_domains.keras_layer import GatedDomainUnits as KerasUnits
from gated_domains.keras_layer.transfer import to_torch

SIDE = 16
CHANNELS = (16, 32)
WIDTH = 64
BATCH = 128
RATE = 2e-3
EPSILON = 1e-12  # of Adam: Keras adds it to a root that is not yet corrected for its bias, so it must not matter
HEADS = ("gated", "linear")

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Samples:
    """Images, the view that gates have of them, and which digits they show."""

    images: Array
    view: Array
    labels: Array


def prepare(hold_out: str) -> dict[str, Samples]:
    """What trains; the test rows of the four sources; those of the domain held out. Scales come from what trains."""
    data = load_data("digits")
    (split,) = hold_outs(data, [hold_out])
    rows = {"train": split.train, "source": split.validation, "held out": split.test}
    images = {name: shrunk(data.inputs.read(these)) for name, these in rows.items()}
    views = {name: style(these) for name, these in images.items()}
    centre, scale = views["train"].mean(0), views["train"].std(0)
    return {
        name: Samples(images[name], (views[name] - centre) / scale, data.targets[these]) for name, these in rows.items()
    }


def shrunk(images: Array) -> Array:
    """Bytes of 32 x 32 as numbers from -1 to 1 of half the side: enough to tell digits, and four times as fast."""
    each = images.shape[1] // SIDE
    return (images.reshape(-1, SIDE, each, SIDE, each, 3).mean((2, 4)) / 127.5 - 1).astype("float32")


def style(images: Array) -> Array:
    """How a picture looks, whatever it shows: mean and spread of what 16 random filters find, and of its colours."""
    filters = np.random.default_rng(0).normal(size=(75, 16)).astype("float32") / 75**0.5
    windows = np.lib.stride_tricks.sliding_window_view(images, (5, 5), axis=(1, 2))[:, ::2, ::2]
    found = np.abs(windows.reshape(len(images), -1, 75) @ filters)
    colours = images.reshape(len(images), -1, 3)
    return np.concatenate([found.mean(1), np.log(found.std(1) + 1e-3), colours.mean(1), colours.std(1)], axis=1)


class Batches(keras.utils.PyDataset):
    """The batches of all epochs in a row, each epoch in an order of its own; what fills no batch is left out."""

    def __init__(self, samples: Samples, *, epochs: int, seed: int) -> None:
        super().__init__()
        self.samples = samples
        self.an_epoch = len(samples.labels) // BATCH
        rng = np.random.default_rng(seed)
        orders = [rng.permutation(len(samples.labels))[: self.an_epoch * BATCH] for _ in range(epochs)]
        self.rows = np.concatenate(orders).reshape(-1, BATCH)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, step: int) -> tuple[tuple[Array, Array], Array]:
        rows = self.rows[step]
        return (self.samples.images[rows], self.samples.view[rows]), self.samples.labels[rows]


def keras_model(train: Samples, *, gated: bool, seed: int) -> keras.Model:
    """The network in Keras, with the settings of PyTorch where the two have different defaults."""
    keras.utils.set_random_seed(seed)
    images, view = keras.Input(train.images.shape[1:]), keras.Input(train.view.shape[1:])
    features = images
    for channels in CHANNELS:
        features = layers.Conv2D(channels, 3, padding="same", use_bias=False)(features)
        features = layers.MaxPooling2D(2)(features)
        features = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(features)
        features = layers.ReLU()(features)
    features = layers.Dense(WIDTH, activation="relu")(layers.Flatten()(features))
    if gated:
        head = KerasUnits(10, name="head")
        model = keras.Model((images, view), head(features, view))
        head.fit_bases(train.view, seed=seed)
    else:
        model = keras.Model((images, view), layers.Dense(10, name="head")(features))
    adam = keras.optimizers.Adam(RATE, epsilon=EPSILON)
    model.compile(adam, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def train_keras(model: keras.Model, batches: Batches, *, epochs: int, after_epoch: Callable[[], None]) -> None:
    """``model.fit``; what is familiar to the gates is measured again after each epoch."""
    head = model.get_layer("head")

    def renew(epoch: int, logs: object) -> None:
        if isinstance(head, KerasUnits):
            head.fit_coverage(batches.samples.view)
        after_epoch()

    renewing = keras.callbacks.LambdaCallback(on_epoch_end=renew)
    more = {"steps_per_epoch": batches.an_epoch, "shuffle": False, "verbose": 0}
    model.fit(batches, epochs=epochs, callbacks=[renewing], **more)


def keras_answers(model: keras.Model, samples: Samples) -> Array:
    """The digit that the model takes each picture for."""
    return model.predict((samples.images, samples.view), batch_size=500, verbose=0).argmax(-1)


class Network(nn.Module):
    """The network in PyTorch, begun with the weights of a Keras model."""

    def __init__(self, model: keras.Model) -> None:
        super().__init__()
        blocks: list[nn.Module] = []
        for inputs, outputs in zip((3, *CHANNELS), CHANNELS, strict=False):
            # Without a bias, which the batch norm would take away again: its gradient is rounding noise, and Adam turns
            # that into steps.
            blocks += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.MaxPool2d(2)]
            blocks += [nn.BatchNorm2d(outputs), nn.ReLU()]
        self.blocks = nn.Sequential(*blocks)
        self.dense = nn.Linear((SIDE // 2 ** len(CHANNELS)) ** 2 * CHANNELS[-1], WIDTH)
        head = model.get_layer("head")
        self.head: nn.Module = to_torch(head) if isinstance(head, KerasUnits) else nn.Linear(WIDTH, 10)
        theirs = [layer for layer in model.layers if layer.weights and not isinstance(layer, KerasUnits)]
        own = [module for module in self.modules() if isinstance(module, nn.Conv2d | nn.BatchNorm2d | nn.Linear)]
        for layer, module in zip(theirs, own, strict=True):
            module.load_state_dict(torch_state(layer), strict=False)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.blocks(images.permute(0, 3, 1, 2))
        # Channels last before they become one row, as Keras has it.
        return F.relu(self.dense(maps.permute(0, 2, 3, 1).flatten(1)))

    def forward(self, images: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
        features = self.features(images)
        return self.head(features, view) if isinstance(self.head, TorchUnits) else self.head(features)

    def loss(self, images: torch.Tensor, view: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if not isinstance(self.head, TorchUnits):
            return F.cross_entropy(self(images, view), labels)
        out = self.head.evaluate(self.features(images), view)
        return F.cross_entropy(out.prediction, labels) + self.head.penalty(out)


def torch_state(layer: keras.layers.Layer) -> dict[str, torch.Tensor]:
    """The weights of a Keras layer as the PyTorch module of the same kind has them."""
    weights = layer.get_weights()
    if isinstance(layer, layers.BatchNormalization):
        names = ("weight", "bias", "running_mean", "running_var")
        return {name: torch.tensor(value) for name, value in zip(names, weights, strict=True)}
    if isinstance(layer, layers.Conv2D):
        return {"weight": torch.tensor(weights[0].transpose(3, 2, 0, 1))}
    kernel, bias = weights
    return {"weight": torch.tensor(kernel.T), "bias": torch.tensor(bias)}


def train_torch(network: Network, batches: Batches, *, after_epoch: Callable[[], None]) -> None:
    """A plain loop over the same batches."""
    optimizer = torch.optim.Adam(network.parameters(), RATE, eps=EPSILON)
    view = torch.from_numpy(batches.samples.view)
    network.train()
    for step in range(len(batches)):
        (images, seen), labels = batches[step]
        loss = network.loss(*map(torch.from_numpy, (images, seen, labels)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % batches.an_epoch == 0:
            if isinstance(network.head, TorchUnits):
                network.head.fit_coverage(view)
            after_epoch()


@torch.no_grad()
def torch_answers(network: Network, samples: Samples) -> Array:
    """The digit that the network takes each picture for."""
    network.eval()
    return network(torch.from_numpy(samples.images), torch.from_numpy(samples.view)).argmax(-1).numpy()


Scores = dict[tuple[str, str, str], list[float]]


def compare(parts: dict[str, Samples], *, seeds: int, epochs: int, console: Console) -> Scores:
    """Per cent of right answers, by head, by who trained it, and by the rows that were scored."""
    scores: Scores = {}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        done = bar.add_task("training", total=seeds * len(HEADS) * 2 * epochs)

        def finished(head: str, who: str, seed: int, began: float, answers: Callable[[Samples], Array]) -> None:
            took = perf_counter() - began
            for rows in ("source", "held out"):
                right = 100 * float((answers(parts[rows]) == parts[rows].labels).mean())
                scores.setdefault((head, who, rows), []).append(right)
            found = ", ".join(f"{rows} {scores[head, who, rows][-1]:.1f}" for rows in ("source", "held out"))
            console.print(f"seed {seed}, {head} head, {who}: {found} (trained in {took:.0f} s)", highlight=False)

        for seed in range(seeds):
            for head in HEADS:
                batches = Batches(parts["train"], epochs=epochs, seed=seed)
                began = perf_counter()
                model = keras_model(parts["train"], gated=head == "gated", seed=seed)
                network = Network(model)
                train_keras(model, batches, epochs=epochs, after_epoch=lambda: bar.advance(done))
                finished(head, in_keras(), seed, began, lambda samples: keras_answers(model, samples))  # noqa: B023
                began = perf_counter()
                train_torch(network, batches, after_epoch=lambda: bar.advance(done))
                finished(head, "PyTorch", seed, began, lambda samples: torch_answers(network, samples))  # noqa: B023
    return scores


def in_keras() -> str:
    """What is compared with PyTorch, in words."""
    return f"Keras on {keras.backend.backend()}"


def report(scores: Scores, hold_out: str, console: Console) -> None:
    """The table, and what it says."""
    seeds = len(scores["gated", "PyTorch", "source"])
    rows = {"source": "the four sources", "held out": f"{hold_out}, unseen"}
    title = f"Accuracy in per cent, mean ± std of {seeds} seeds" if seeds > 1 else "Accuracy in per cent, one seed"
    table = Table(title=title, title_justify="left")
    for heading in ("head", "test rows", in_keras(), "PyTorch", "difference"):
        table.add_column(heading, justify="left" if heading in ("head", "test rows") else "right")
    for head in HEADS:
        for part, name in rows.items():
            ours, theirs = scores[head, in_keras(), part], scores[head, "PyTorch", part]
            apart = [one - other for one, other in zip(ours, theirs, strict=True)]
            table.add_row(head, name, shown(ours), shown(theirs), shown(apart, "+"))
    console.print(table)
    for head in HEADS:
        ours, theirs = both_sides(scores, head)
        console.print(f"{hold_out}, {head} head: {in_keras()} {against('PyTorch', ours, theirs)}.", highlight=False)
    # One number a seed: the two sides of a seed are no two observations.
    gated, linear = ([mean(pair) for pair in zip(*both_sides(scores, head), strict=True)] for head in HEADS)
    told = against("the linear one", gated, linear)
    console.print(f"{hold_out}, mean of both sides: the gated head {told}.", highlight=False)


def both_sides(scores: Scores, head: str) -> list[list[float]]:
    """The held-out scores of a head, in Keras and in PyTorch."""
    return [scores[head, who, "held out"] for who in (in_keras(), "PyTorch")]


def shown(values: Sequence[float], sign: str = "") -> str:
    """Mean and spread."""
    return f"{mean(values):{sign}.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def against(other: str, ours: Sequence[float], theirs: Sequence[float]) -> str:
    """How far apart two means are, and whether seeds alone could do that."""
    apart = mean(ours) - mean(theirs)
    said = f"is {abs(apart):.1f} points {'above' if apart > 0 else 'below'} {other}"
    if len(ours) < 3:
        return f"{said}; three seeds or more would tell whether that is noise"
    noise = 2 * ((variance(ours) + variance(theirs)) / len(ours)) ** 0.5
    verdict = "within" if abs(apart) <= noise else "beyond"
    return f"{said}, {verdict} seed noise (two standard errors of the difference are {noise:.1f})"


def main() -> None:
    """Train both heads on both sides with every seed, and say how far apart they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hold-out", choices=DOMAINS, default="street", help="the domain that nobody trains on")
    parser.add_argument("--seeds", type=int, default=3, help="how often everything is trained (3)")
    parser.add_argument("--epochs", type=int, default=4, help="for how long (4)")
    chosen = parser.parse_args()
    if chosen.seeds < 1 or chosen.epochs < 1:
        parser.error(f"--seeds and --epochs must be 1 or more, got {chosen.seeds} and {chosen.epochs}")
    torch.set_num_threads(1)  # the network is so small that threads only get in each other's way
    console = Console(width=None if sys.stdout.isatty() else 110)
    parts = prepare(chosen.hold_out)
    sizes = ", ".join(f"{len(part.labels):,} {name}" for name, part in parts.items())
    console.print(f"{in_keras()} beside PyTorch; {chosen.hold_out} held out; rows: {sizes}", highlight=False)
    report(compare(parts, seeds=chosen.seeds, epochs=chosen.epochs, console=console), chosen.hold_out, console)


if __name__ == "__main__":
    main()
