"""Gated methods that nobody trained, with bases from data and experts by chance: enough to look at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from gated_domains.backbones.bodies import MLP
from gated_domains.data.batches import Samples, place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import Encoding, fit_encoding
from gated_domains.data.sampling import InOrder
from gated_domains.data.splits import HoldOut, all_sources, hold_outs
from gated_domains.evaluation.scores import metric_for
from gated_domains.insight import insight_of
from gated_domains.layer.experts import MultiLabel
from gated_domains.methods import METHODS, Classes, Numbers, Problem
from gated_domains.methods.gdu import GDU
from gated_domains.runs.insight import Insight
from small_trainings import build


def gated(
    dataset: DomainDataset,
    encoding: Encoding,
    rows: Any,
    *,
    name: str = "gdu",
    mode: str = "end_to_end",
    **settings: Any,
) -> GDU:
    """A method whose bases lie among these rows, and whose experts differ."""
    mode = settings.pop("mode", "end_to_end")
    settings = {"num_bases": 3, "basis_size": 4, **settings}
    if dataset.task == "labels" or encoding.kind not in ("features", "images"):
        method = _on_vectors(dataset, encoding, settings)
    else:
        method = build(name, dataset, mode=mode, settings=settings)
    assert isinstance(method, GDU)
    samples = place(dataset, encoding)
    method.prepare(lambda: samples.input_batches(InOrder(rows, 64)))
    with torch.no_grad():
        for parameter in [*method.units.experts.parameters(), *_shared(method)]:
            parameter.add_(torch.randn_like(parameter))
    return method.eval()


def _on_vectors(dataset: DomainDataset, encoding: Encoding, settings: Mapping[str, Any]) -> GDU:
    torch.manual_seed(0)
    task = {"labels": MultiLabel(), "classes": Classes(), "number": Numbers(0.0, 1.0)}[dataset.task]
    problem = Problem(
        kind=encoding.kind,
        shape=tuple(encoding.shape),
        outputs=dataset.outputs,
        task=task,
        make_body=lambda: MLP(tuple(encoding.shape), (16, 8)),
        domains=(),
    )
    kind = METHODS["gdu"]
    return kind.build(kind.settings_type(**settings), problem, mode="end_to_end")


def _shared(method: GDU) -> list[torch.nn.Parameter]:
    return [] if method.units.shared is None else list(method.units.shared.parameters())


def held(dataset: DomainDataset) -> HoldOut:
    """The last domain held out; nothing where there are no domains."""
    if dataset.domains is None:
        return all_sources(dataset, validation=0.2, seed=0)
    return hold_outs(dataset, [dataset.domain_names[-1]], copies=False)[0]


def looked_into(dataset: DomainDataset, **settings: Any) -> tuple[Insight, GDU, HoldOut, Samples]:
    """The insight of such a method, with all that it was made from."""
    split = held(dataset)
    encoding = fit_encoding(dataset, split.train)
    method = gated(dataset, encoding, split.train, **settings)
    insight = insight_of(method, encoding, dataset, split, metric=metric_for(dataset.task))
    return insight, method, split, place(dataset, encoding)


def inputs_of(samples: Samples, rows: Any) -> torch.Tensor:
    """The inputs of rows in one batch."""
    return next(iter(samples.input_batches(InOrder(np.asarray(rows), len(rows)))))
