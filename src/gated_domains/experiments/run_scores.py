"""Predictions of validation and held-out rows, and their scores by domain and group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from lightning_fabric import Fabric
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.splits import OFFICIAL, HoldOut
from gated_domains.evaluation.calibration import fit_temperature, tempered
from gated_domains.evaluation.metrics import Metric, metric_for
from gated_domains.evaluation.scores import DomainScores, Scorer
from gated_domains.methods import Method
from gated_domains.runs.recipe import Recipe
from gated_domains.training.prediction import predict_rows
from gated_domains.training.training_data import TrainingData

VALIDATION, TEST = 0, 1  # what ``part`` says of a row of predictions.npz; the parts scored beside come after these

Arrays = Mapping[str, NDArray[Any]]


def predictions(
    method: Method, data: TrainingData, split: HoldOut, dataset: DomainDataset, fabric: Fabric
) -> dict[str, NDArray[Any]]:
    """Predictions of validation rows, held-out rows and those scored beside, with their targets."""
    parts = [split.validation, split.test, *split.also.values()]
    rows = np.concatenate(parts)
    found = predict_rows(method, data.samples, rows, fabric=fabric)
    return {
        "rows": rows,
        "part": np.repeat(np.arange(len(parts), dtype=np.uint8), [len(part) for part in parts]),
        "targets": dataset.targets[rows],
        **({} if dataset.domains is None else {"domains": dataset.domains[rows]}),
        **found.arrays(),
    }


def predict_run(
    recipe: Recipe,
    split: HoldOut,
    method: Method,
    data: TrainingData,
    view: DomainDataset,
    whole: DomainDataset,
    fabric: Fabric,
) -> tuple[dict[str, NDArray[Any]], float]:
    """The predictions of a run, and the temperature that they are calibrated to; 1 where that is not asked for.

    ``view`` has the classes of its sources, ``whole`` those of all rows.
    """
    predicted = predictions(method, data, split, view, fabric)
    predicted, temperature = calibrated(predicted) if recipe.calibrate else (predicted, 1.0)
    return in_all_classes(predicted, view, whole), temperature


def in_all_classes(predicted: Arrays, dataset: DomainDataset, whole: DomainDataset) -> dict[str, NDArray[Any]]:
    """Predictions for the classes of all rows (``whole``), in their order, from those for the classes of the sources.

    The probability of a class that no source has is 0.
    """
    if not dataset.without_output or whole.class_names is None:
        return dict(predicted)
    place = [whole.class_names.index(name) for name in dataset.answers or ()]
    output = np.zeros((len(predicted["rows"]), len(whole.class_names)), predicted["output"].dtype)
    output[:, place] = predicted["output"]
    return {**predicted, "targets": whole.targets[predicted["rows"]], "output": output}


def calibrated(predicted: Arrays) -> tuple[dict[str, NDArray[Any]], float]:
    """The predictions with all probabilities at the temperature that suits the validation rows, and that temperature.

    Nothing of the held-out rows takes part in finding it.
    """
    chosen = predicted["part"] == VALIDATION
    temperature = fit_temperature(predicted["output"][chosen], predicted["targets"][chosen])
    return {**predicted, "output": tempered(predicted["output"], temperature)}, temperature


def scorer_for(
    recipe: Recipe, split: HoldOut, dataset: DomainDataset, part: int = VALIDATION, *, metric: Metric | None = None
) -> Scorer:
    """How a part is scored: by domains and groups, all rows together, or as the publisher does."""
    name = part_names(split)[part]
    official = split.key == OFFICIAL
    pooled = official or (split.pooled and part != VALIDATION)
    return Scorer(
        dataset=dataset,
        metric=metric or metric_for(dataset.task, recipe.metric),
        score_by=recipe.score_by,
        pooled=(split.held_out[0] if part == TEST else name) if pooled else None,
        official=official and not recipe.score_by,
    )


def part_names(split: HoldOut) -> tuple[str, ...]:
    """What the parts of the predictions are called."""
    return ("validation", "test", *split.also)


def scores(
    recipe: Recipe,
    split: HoldOut,
    dataset: DomainDataset,
    predicted: Arrays,
    part: int,
    *,
    metric: Metric | None = None,
) -> DomainScores | None:
    """The scores of one part of the predictions; None where nothing was held out, or its rows have no such score.

    ``metric`` is that of the recipe unless given; in others groups are not scored.
    """
    chosen = predicted["part"] == part
    scorer = scorer_for(recipe, split, dataset, part, metric=metric)
    if metric is not None:
        scorer = replace(scorer, score_by=())
    if not scorer.has_score(predicted["rows"][chosen]):
        return None
    return scorer(predicted["output"][chosen], predicted["rows"][chosen])
