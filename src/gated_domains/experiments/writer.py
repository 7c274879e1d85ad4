"""What a finished training leaves in its folder: the model, predictions, rows seen, and last the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import listing
from gated_domains.data.like import schema_of
from gated_domains.data.published import STATISTICS
from gated_domains.data.splits import OFFICIAL, HoldOut, draws_whole_domains
from gated_domains.evaluation.metrics import SELECTION_RULES, Metric, SelectionRule, metric_for, metrics_for
from gated_domains.evaluation.scores import DomainScores
from gated_domains.experiments.builder import BuiltRun
from gated_domains.experiments.model import Model
from gated_domains.experiments.planner import PlannedRun
from gated_domains.experiments.run_scores import TEST, Arrays, part_names, scores
from gated_domains.experiments.source_data import SourceData
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.provenance import Provenance, seen_by
from gated_domains.runs.recipe import Recipe, mixes_vectors
from gated_domains.runs.result import RunResult, Scores
from gated_domains.training.trainer import Outcome

_FEW_SCORED = 30
_SELECTS_BY_VALIDATION = ("source_validation", "source_pooled", "source_loss", "worst_class", "out_of_domain")
_ONE_SIDED = 0.8  # share of one class above which accuracy says little
_MOST_SOURCES = 200  # that are listed by name


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedRun:
    """A run before it is written: its network, how the training ended, and predictions."""

    run: PlannedRun
    built: BuiltRun
    outcome: Outcome
    predicted: dict[str, NDArray[Any]]
    temperature: float
    notes: list[str]
    peak_memory: int | None = None
    """In bytes."""


def write_run(trained: TrainedRun, folder: RunFolder, data: SourceData, needed: Sequence[RunFolder]) -> RunResult:
    """Write the model, predictions and last the result, which makes the run done.

    ``needed`` are its prerequisites: their time and memory count.
    """
    run, built = trained.run, trained.built
    recipe = run.recipe
    all_classes = {"classes": list(data.dataset.class_names or ())} if built.view.without_output else {}
    model = Model(
        method=built.method,
        spec=built.spec,
        schema=schema_of(built.view, built.encoding),
        temperature=trained.temperature,
        trained_on={
            "name": data.dataset.name,
            "fingerprint": data.fingerprint,
            **all_classes,
            "hold_out": recipe.hold_out,
            "validation_domain": recipe.validation_domain,
            "split_seed": recipe.split_seed,
            "split": run.split_hash,
            "seed": recipe.seed,
        },
    )
    before = None if recipe.backbone is None else Provenance.read(Path(recipe.backbone))
    oracle = SELECTION_RULES[recipe.selection].oracle
    seen_by(run.split, data.fingerprint, data.digests, before=before, oracle=oracle).write(folder.path)
    model.save(folder.path)
    folder.write_predictions(**trained.predicted)
    ends = [other.result() for other in needed]
    peaks = [trained.peak_memory, *(end.peak_memory for end in ends)]
    known = [peak for peak in peaks if peak is not None]
    whole = data.dataset
    found = _result(
        trained,
        whole if built.view is whole else replace(whole, notes=built.view.notes),
        folder.name,
        seconds=trained.outcome.seconds + sum(end.seconds for end in ends),
        peak_memory=max(known) if len(known) == len(peaks) else None,
    )
    folder.finish(found)
    return found


def _result(
    trained: TrainedRun, dataset: DomainDataset, name: str, *, seconds: float, peak_memory: int | None
) -> RunResult:
    recipe, split = trained.run.recipe, trained.run.split
    outcome, predicted, method = trained.outcome, trained.predicted, trained.built.method
    metric = metric_for(dataset.task, recipe.metric)
    rule = SELECTION_RULES[recipe.selection]
    test = scores(recipe, split, dataset, predicted, TEST)
    unscored = () if not split.held_out else split.held_out if test is None else test.unscored
    beside = {part: scores(recipe, split, dataset, predicted, 2 + at) for at, part in enumerate(split.also)}
    validation = outcome.validation
    assert validation is not None
    return RunResult(
        run=name,
        data=dataset.name,
        method=recipe.method.name,
        label=recipe.label,
        mode=recipe.method.mode,
        body=recipe.body,
        seed=recipe.seed,
        hold_out=split.name,
        held_out=tuple(split.held_out),
        sources=tuple(split.sources) if len(split.sources) <= _MOST_SOURCES else (),
        domain_names=tuple(dataset.domain_names) if len(dataset.domain_names) <= _MOST_SOURCES else (),
        metric=metric.name,
        higher_is_better=metric.higher_is_better,
        test={} if test is None else test.by_domain,
        test_overall=None if test is None else test.overall,
        by_group=None if test is None else test.by_group,
        unscored=tuple(unscored),
        unscored_groups=() if test is None else test.unscored_groups,
        validation=validation.by_domain,
        validation_overall=validation.overall,
        validation_by_group=validation.by_group,
        validation_unscored=validation.unscored,
        validation_unscored_groups=validation.unscored_groups,
        also={part: score.as_json() for part, score in beside.items() if score is not None},
        all_metrics={
            part: _all_metrics(recipe, split, dataset, predicted, at) for at, part in enumerate(part_names(split))
        },
        statistic=_statistic(dataset, recipe, metric),
        split_seed=recipe.split_seed,
        score_by=tuple(recipe.score_by),
        selection=rule.label(metric),
        selection_score=outcome.selection_score,
        oracle=rule.oracle,
        temperature=trained.temperature,
        protocol=_protocol(dataset, recipe),
        best_epoch=outcome.best_epoch,
        averaged=outcome.averaged,
        epochs=outcome.epochs,
        stopped=outcome.stopped,
        seconds=round(seconds, 3),
        peak_memory=peak_memory,
        parameters_trained=sum(p.numel() for p in method.parameters() if p.requires_grad),
        parameters_all=sum(p.numel() for p in method.parameters()),
        batchwise=method.batchwise,
        uses_domains=method.uses_domains or _told_domains(recipe, dataset),
        notes=(
            *dataset.notes,
            *_split_notes(split, dataset, rule, metric),
            *_score_notes(test, split, metric),
            *trained.notes,
        ),
    )


def _statistic(dataset: DomainDataset, recipe: Recipe, metric: Metric) -> str:
    """What of the metric counts: that of all rows, unless the publisher says otherwise."""
    published = dataset.published if recipe.hold_out == OFFICIAL else None
    return "overall" if published is None or metric.name != published.metric else published.statistic


def _all_metrics(
    recipe: Recipe, split: HoldOut, dataset: DomainDataset, predicted: Arrays, part: int
) -> dict[str, Scores]:
    """Scores in every metric of the task that these rows have one in."""
    found = {
        metric.name: scores(recipe, split, dataset, predicted, part, metric=metric)
        for metric in metrics_for(dataset.task)
    }
    return {name: Scores(score.by_domain, score.overall) for name, score in found.items() if score is not None}


def _told_domains(recipe: Recipe, dataset: DomainDataset) -> bool:
    """Whether its training, if not the method, knew which domain a row is of."""
    return recipe.training.sampling not in ("auto", "plain") or mixes_vectors(recipe, dataset.inputs.kind)


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
