"""Heads on the features of a frozen body, ready to be trained: one by one, or as a population."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from gated_domains.training.trainer import Trainer
from gated_domains.training.training_data import on_cached_features
from small_trainings import build, material, training, vectors

#: Heads that are trained on features: the name of a method, and its settings.
HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "linear": ("linear", {}),
    "paper cosine": ("gdu-paper", {"gate": "cosine", "num_bases": 3, "basis_size": 4}),
    "paper mmd": ("gdu-paper", {"gate": "mmd", "num_bases": 3, "basis_size": 4}),
    "paper projection": ("gdu-paper", {"gate": "projection", "num_bases": 3, "basis_size": 4}),
    "recommended": ("gdu", {"num_bases": 3, "basis_size": 4}),
    "all penalties": (
        "gdu",
        {"num_bases": 3, "basis_size": 4, "lambda_l1": 0.01, "lambda_entropy": 0.02, "lambda_orth": 0.03},
    ),
}


@contextmanager
def heads(
    head: str, each: Iterable[Mapping[str, Any]], *, rows: int = 240, device: str = "cpu"
) -> Iterator[list[Trainer]]:
    """A training for each: ``settings`` are of its method, ``seed`` of head and batches, ``body`` of the features."""
    name, usual = HEADS[head]
    data = material(vectors(rows), train=2 * rows // 3, validation=rows // 4, device=device)
    with ExitStack() as held:
        made, placed = [], {}
        for number, given in enumerate(each):
            own = {"seed": number, "body": 0, "settings": {}, **given}
            body, settings = own.pop("body"), {**usual, **own.pop("settings")}
            method = build(name, data.dataset, mode="fine_tune", seed=100 + body, settings=settings)
            torch.manual_seed(own["seed"])
            for part in method.children():
                if part is not method.backbone:
                    part.apply(_drawn_anew)
            cached = held.enter_context(on_cached_features(method, data, key="heads", seed=0))
            cached = placed.setdefault(body, cached)  # one table for all heads on a body
            made.append(training(method, cached, **own))
        yield made


@torch.no_grad()
def _drawn_anew(module: torch.nn.Module) -> None:
    for parameter in module.parameters(recurse=False):
        if parameter.abs().sum() > 0:  # what starts at zero stays there
            parameter.add_(0.1 * torch.randn_like(parameter))
