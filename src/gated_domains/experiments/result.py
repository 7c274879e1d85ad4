"""What a run comes to: predictions of validation and test rows, scores by domain, cost, and what to know about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from lightning_fabric import Fabric
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, listing
from gated_domains.data.groups import groups_among
from gated_domains.data.published import STATISTICS
from gated_domains.data.splits import OFFICIAL, HoldOut, draws_whole_domains
from gated_domains.evaluation.calibration import fit_temperature, tempered
from gated_domains.evaluation.metrics import Metric, metric_for, metrics_for
from gated_domains.evaluation.scores import DomainScores
from gated_domains.evaluation.scoring import Scorer
from gated_domains.evaluation.selection import SELECTION_RULES, SelectionRule
from gated_domains.experiments.recipe import Recipe, mixes_vectors
from gated_domains.methods import Method
from gated_domains.training.prediction import predict_rows
from gated_domains.training.trainer import Outcome
from gated_domains.training.training_data import TrainingData

_FEW_SCORED = 30
_SELECTS_BY_VALIDATION = ("source_validation", "source_pooled", "source_loss", "worst_class", "out_of_domain")
_ONE_SIDED = 0.8  # share of one class above which accuracy says little
VALIDATION, TEST = 0, 1  # what ``part`` says of a row of predictions.npz; the parts scored beside come after these
_MOST_SOURCES = 200  # that are listed by name

Arrays = Mapping[str, NDArray[Any]]


def predictions(
    method: Method, material: TrainingData, split: HoldOut, dataset: DomainDataset, fabric: Fabric
) -> dict[str, NDArray[Any]]:
    """What the method says of validation rows, of the held-out rows and of those scored beside, with the truth."""
    parts = [split.validation, split.test, *split.also.values()]
    rows = np.concatenate(parts)
    found = predict_rows(method, material.samples, rows, fabric=fabric)
    return {
        "rows": rows,
        "part": np.repeat(np.arange(len(parts), dtype=np.uint8), [len(part) for part in parts]),
        "targets": dataset.targets[rows],
        **({} if dataset.domains is None else {"domains": dataset.domains[rows]}),
        **found.arrays(),
    }


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


def check_scoring(recipe: Recipe, split: HoldOut, dataset: DomainDataset) -> None:
    """Refuse, before anything is trained, what could not be scored after it."""
    metric = metric_for(dataset.task, recipe.metric)
    if recipe.calibrate and dataset.num_classes is None:
        here = "labels are" if dataset.task == "labels" else "a number is"
        raise DataError(f"there is nothing to calibrate where {here} predicted; leave calibrate out")
    rule = SELECTION_RULES[recipe.selection]
    if rule.oracle and not len(split.test):
        raise DataError("the oracle selects by a held-out domain, and none is held out; name one, or select otherwise")
    if recipe.selection == "worst_class" and dataset.num_classes is None:
        here = "labels are" if dataset.task == "labels" else "a number is"
        raise DataError(f"there is no worst class where {here} predicted; select by source_validation")
    deciding = [("validation", VALIDATION, split.validation)]
    deciding += [("held-out", TEST, split.test)] * rule.oracle
    for what, part, rows in deciding:
        if not scorer_for(recipe, split, dataset, part).has_score(rows):
            of_groups = ", or those of each group that counts," * (split.key == OFFICIAL)
            raise DataError(
                f"the {len(rows):,} {what} rows{of_groups} share one target and have no {metric.label} to select by; "
                "choose another metric"
            )
    for rows in (split.validation, split.test):
        if recipe.score_by and len(rows):
            groups_among(dataset, rows, recipe.score_by)


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
    temperature: float = 1.0,
    peak_memory: int | None = None,
) -> dict[str, Any]:
    """The content of ``result.json``."""
    metric = metric_for(dataset.task, recipe.metric)
    rule = SELECTION_RULES[recipe.selection]
    test = scores(recipe, split, dataset, predicted, TEST)
    beside = {name: scores(recipe, split, dataset, predicted, 2 + at) for at, name in enumerate(split.also)}
    return {
        "data": dataset.name,
        "method": recipe.method.name,
        "label": recipe.label,
        "mode": recipe.method.mode,
        "body": recipe.body,
        "seed": recipe.seed,
        "hold_out": split.name,
        "held_out": list(split.held_out),
        "sources": list(split.sources) if len(split.sources) <= _MOST_SOURCES else [],
        "domain_names": list(dataset.domain_names) if len(dataset.domain_names) <= _MOST_SOURCES else [],
        "metric": metric.name,
        "higher_is_better": metric.higher_is_better,
        "test": _stored(test, split, metric),
        "validation": outcome.validation.as_json(),
        "also": {name: score.as_json() for name, score in beside.items() if score is not None},
        "all_metrics": {
            name: _all_metrics(recipe, split, dataset, predicted, part) for part, name in enumerate(part_names(split))
        },
        "statistic": _statistic(dataset, recipe, metric),
        "split_seed": recipe.split_seed,
        "score_by": list(recipe.score_by),
        "selection": rule.label(metric),
        "selection_score": outcome.selection_score,
        "oracle": rule.oracle,
        "temperature": temperature,
        "protocol": _protocol(dataset, recipe),
        "best_epoch": outcome.best_epoch,
        "averaged": None if outcome.averaged is None else list(outcome.averaged),
        "epochs": outcome.epochs,
        "stopped": outcome.stopped,
        "seconds": round(seconds, 3),
        "peak_memory": peak_memory,
        "parameters": {
            "trained": sum(p.numel() for p in method.parameters() if p.requires_grad),
            "all": sum(p.numel() for p in method.parameters()),
        },
        "batchwise": method.batchwise,
        "uses_domains": method.uses_domains or _told_domains(recipe, dataset),
        "notes": [
            *dataset.notes,
            *_split_notes(split, dataset, rule, metric),
            *_score_notes(test, split, metric),
            *notes,
        ],
    }


def _stored(test: DomainScores | None, split: HoldOut, metric: Metric) -> dict[str, Any] | None:
    """The scores of what was held out; where its rows have none, that they have none."""
    if test is not None:
        return test.as_json()
    if not split.held_out:
        return None
    return {"metric": metric.name, "by_domain": {}, "overall": None, "unscored": list(split.held_out)}


def _statistic(dataset: DomainDataset, recipe: Recipe, metric: Metric) -> str:
    """What of the metric counts: that of all rows, unless the publisher says otherwise."""
    published = dataset.published if recipe.hold_out == OFFICIAL else None
    return "overall" if published is None or metric.name != published.metric else published.statistic


def _all_metrics(
    recipe: Recipe, split: HoldOut, dataset: DomainDataset, predicted: Arrays, part: int
) -> dict[str, dict[str, Any]]:
    """Every metric of the task that these rows have a score in."""
    found = {
        metric.name: scores(recipe, split, dataset, predicted, part, metric=metric)
        for metric in metrics_for(dataset.task)
    }
    return {
        name: {"by_domain": dict(score.by_domain), "overall": score.overall}
        for name, score in found.items()
        if score is not None
    }


def _told_domains(recipe: Recipe, dataset: DomainDataset) -> bool:
    """Whether its training, if not the method, knew which domain a row is of."""
    return recipe.training.sampling not in ("auto", "plain") or mixes_vectors(recipe, dataset)


def _protocol(dataset: DomainDataset, recipe: Recipe) -> str:
    kept = (
        "the publisher's test rows of the sources"
        if dataset.official_test is not None
        else f"{recipe.validation:.0%} of the source rows, by domain" + " and class" * (dataset.num_classes is not None)
    )
    if dataset.official_test is None and draws_whole_domains(dataset):
        kept = f"whole source domains, {recipe.validation:.0%} of the source rows"
    if recipe.hold_out == OFFICIAL:
        counts = STATISTICS[_statistic(dataset, recipe, metric_for(dataset.task, recipe.metric))]
        label = metric_for(dataset.task, recipe.metric).label
        seen = "but it selects the model" if SELECTION_RULES[recipe.selection].oracle else "nor in selection"
        return f"the published division: test is never seen in training, {seen}; scored by {counts}{label}"
    if recipe.selection == "leave_one_source_out":
        kept = "each source domain in turn, by trainings that leave it out"
    elif SELECTION_RULES[recipe.selection].rows == "kept_apart":
        kept = "source domains kept apart from training"
    if recipe.hold_out is None:
        return f"trained on all {'rows' if dataset.domains is None else 'domains'}; validated on {kept}"
    if SELECTION_RULES[recipe.selection].oracle:
        return "the held-out domain is never seen in training, but it selects the model"
    return f"the held-out domain is never seen in training or selection; validated on {kept}"


def _score_notes(test: DomainScores | None, split: HoldOut, metric: Metric) -> list[str]:
    unscored = split.held_out if test is None else test.unscored
    notes = [f"{name} has no {metric.label}: all its rows share one target" for name in unscored]
    if test is not None and test.unscored_groups:
        notes.append(
            f"{len(test.unscored_groups)} of {len(test.unscored_groups) + len(test.by_group or ())} groups have no "
            f"{metric.label}, all rows of each sharing one target: {listing(test.unscored_groups, 4)}"
        )
    return notes


def _split_notes(split: HoldOut, dataset: DomainDataset, rule: SelectionRule, metric: Metric) -> list[str]:
    notes = []
    for name in split.held_out:
        rows = split.test if split.pooled else np.intersect1d(split.test, dataset.rows_of(name))
        if len(rows) < _FEW_SCORED:
            notes.append(f"only {len(rows)} rows of {name} are scored: its numbers are coarse, in every mean too")
        elif dataset.class_names is not None and metric.name == "accuracy":
            most = np.bincount(dataset.targets[rows], minlength=len(dataset.class_names))
            if most.max() > _ONE_SIDED * len(rows):
                always = dataset.class_names[int(most.argmax())]
                notes.append(
                    f"{most.max() / len(rows):.1%} of {name} is {always!r}: always answering so scores as much"
                )
    if len(split.validation) < _FEW_SCORED and rule.name in _SELECTS_BY_VALIDATION:
        notes.append(f"the epoch is selected by {len(split.validation)} validation rows alone")
    if split.left_out:
        notes.append(f"{split.left_out:,} source rows left out: copies, or of a group, of held-out rows")
    if split.unseen_classes:
        notes.append(f"classes never seen in training: {listing(split.unseen_classes)}")
    return notes
