"""What a run comes to: predictions of validation and test rows, scores by domain, cost, and what to know about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from lightning_fabric import Fabric
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import listing
from gated_domains.data.splits import HoldOut
from gated_domains.evaluation.scores import DomainScores, metric_for, score_by_domain
from gated_domains.evaluation.selection import SELECTION_RULES
from gated_domains.experiments.recipe import Recipe
from gated_domains.methods import Method
from gated_domains.training.loop import Material, Outcome
from gated_domains.training.predicting import predict_rows

_FEW_SCORED = 30
_ONE_SIDED = 0.8  # share of one class above which accuracy says little
VALIDATION, TEST = 0, 1  # what ``part`` says of a row of predictions.npz

Arrays = Mapping[str, NDArray[Any]]


def predictions(
    method: Method, material: Material, split: HoldOut, dataset: DomainDataset, fabric: Fabric
) -> dict[str, NDArray[Any]]:
    """What the method says of the sources' validation rows and of the held-out rows, beside the truth."""
    rows = np.concatenate([split.validation, split.test])
    found = predict_rows(method, material.samples, rows, fabric=fabric)
    return {
        "rows": rows,
        "part": np.repeat(np.array([VALIDATION, TEST], np.uint8), [len(split.validation), len(split.test)]),
        "targets": dataset.targets[rows],
        **({} if dataset.domains is None else {"domains": dataset.domains[rows]}),
        **found.arrays(),
    }


def scores(dataset: DomainDataset, predicted: Arrays, part: int) -> DomainScores | None:
    """The scores of one part of the predictions; None where nothing was held out."""
    chosen = predicted["part"] == part
    if not chosen.any():
        return None
    return score_by_domain(
        predicted["output"][chosen],
        predicted["targets"][chosen],
        domains=predicted["domains"][chosen] if "domains" in predicted else None,
        domain_names=dataset.domain_names,
        metric=metric_for(dataset.num_classes),
    )


def result(
    recipe: Recipe,
    split: HoldOut,
    dataset: DomainDataset,
    *,
    method: Method,
    outcome: Outcome,
    predicted: Arrays,
    seconds: float,
    notes: Sequence[str],
) -> dict[str, Any]:
    """The content of ``result.json``."""
    metric = metric_for(dataset.num_classes)
    test = scores(dataset, predicted, TEST)
    return {
        "data": dataset.name,
        "method": recipe.method.name,
        "label": recipe.method.label,
        "mode": recipe.method.mode,
        "body": recipe.body,
        "seed": recipe.seed,
        "hold_out": split.name,
        "held_out": list(split.held_out),
        "sources": list(split.sources),
        "metric": metric.name,
        "higher_is_better": metric.higher_is_better,
        "test": None if test is None else test.as_json(),
        "validation": outcome.validation.as_json(),
        "selection": SELECTION_RULES[recipe.selection].label(metric),
        "protocol": _protocol(dataset, recipe),
        "best_epoch": outcome.best_epoch,
        "epochs": outcome.epochs,
        "stopped": outcome.stopped,
        "seconds": round(seconds, 3),
        "parameters": {
            "trained": sum(p.numel() for p in method.parameters() if p.requires_grad),
            "all": sum(p.numel() for p in method.parameters()),
        },
        "uses_domains": method.uses_domains or recipe.training.sampling == "balanced",
        "notes": [*dataset.notes, *_split_notes(split, dataset), *notes],
    }


def _protocol(dataset: DomainDataset, recipe: Recipe) -> str:
    kept = (
        "the publisher's test rows of the sources"
        if dataset.official_test is not None
        else f"{recipe.validation:.0%} of the source rows, by domain" + " and class" * (dataset.num_classes is not None)
    )
    if recipe.hold_out is None:
        return f"trained on all {'rows' if dataset.domains is None else 'domains'}; validated on {kept}"
    return f"the held-out domain is never seen in training or selection; validated on {kept}"


def _split_notes(split: HoldOut, dataset: DomainDataset) -> list[str]:
    notes = []
    for name in split.held_out:
        rows = np.intersect1d(split.test, dataset.rows_of(name))
        if len(rows) < _FEW_SCORED:
            notes.append(f"only {len(rows)} rows of {name} are scored: its numbers are coarse, in every mean too")
        elif dataset.class_names is not None:
            most = np.bincount(dataset.targets[rows], minlength=len(dataset.class_names))
            if most.max() > _ONE_SIDED * len(rows):
                always = dataset.class_names[int(most.argmax())]
                notes.append(
                    f"{most.max() / len(rows):.1%} of {name} is {always!r}: always answering so scores as much"
                )
    if len(split.validation) < _FEW_SCORED:
        notes.append(f"the epoch is selected by {len(split.validation)} validation rows alone")
    if split.left_out:
        notes.append(f"{split.left_out:,} source rows left out: copies, or of a group, of held-out rows")
    if split.unseen_classes:
        notes.append(f"classes never seen in training: {listing(split.unseen_classes)}")
    return notes
