"""The results of finished runs: ``result.json``, written last in a run folder, and how they are found again."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gated_domains.data.errors import DataError, decoding, listing
from gated_domains.evaluation.metrics import Metric

FORMAT = 1
"""Of run folders and their ``result.json``; raised whenever an older reader would misread one."""
RESULT_FILE = "result.json"


@dataclass(frozen=True)
class Scores:
    """Scores of some rows in one metric: by domain, and over all of them."""

    by_domain: Mapping[str, float]
    overall: float

    def to_json(self) -> dict[str, Any]:
        return {"by_domain": dict(self.by_domain), "overall": self.overall}


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The result of one run: one method, one hold-out, one seed.

    ``test`` has a score for each held-out domain but those in ``unscored``, whose rows have none in this metric; it is
    empty where nothing was held out. ``by_group`` has the scores of the groups that ``score_by`` makes of the held-out
    rows, None where that names nothing. ``all_metrics`` has, by part and metric, the scores in every metric there is.
    """

    run: str
    data: str
    method: str
    label: str
    seed: int
    hold_out: str
    held_out: tuple[str, ...]
    sources: tuple[str, ...]
    metric: str
    higher_is_better: bool
    test: Mapping[str, float]
    validation: Mapping[str, float]
    validation_overall: float | None
    selection: str
    protocol: str
    best_epoch: int | None
    epochs: int
    stopped: str
    seconds: float
    parameters_trained: int
    parameters_all: int
    uses_domains: bool
    notes: tuple[str, ...] = ()
    unscored: tuple[str, ...] = ()
    by_group: Mapping[str, float] | None = None
    score_by: tuple[str, ...] = ()
    all_metrics: Mapping[str, Mapping[str, Scores]] = field(default_factory=dict)
    oracle: bool = False
    temperature: float = 1.0
    batchwise: bool = False
    """Whether predictions depend on the other rows of the batch."""
    domain_names: tuple[str, ...] = ()
    """All of the data, as rows of predictions count them; none where there are very many."""
    peak_memory: int | None = None
    """The most bytes that it and the runs it needs took, on a GPU or else in memory; None where that is not known."""
    split_seed: int | None = None
    """The random seed of the train/validation split; None where it is not known."""
    statistic: str = "overall"
    """What of the metric counts, where a publisher says so: that of the worst group, of a percentile of groups."""
    mode: str = "end_to_end"
    body: str = ""
    test_overall: float | None = None
    """The score over all held-out rows together; None where they have none, or it is not known."""
    unscored_groups: tuple[str, ...] = ()
    validation_by_group: Mapping[str, float] | None = None
    validation_unscored: tuple[str, ...] = ()
    validation_unscored_groups: tuple[str, ...] = ()
    also: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By part, the scores of rows that a publisher scores beside the held-out ones."""
    averaged: tuple[int, int] | None = None
    """The first and the last step whose weights were averaged, from 0; None where one epoch was kept."""
    selection_score: float | None = None
    """What the selection rule made of the weights that are kept; the higher, the better."""

    def under(self, metric: Metric) -> RunResult:
        """The same run scored by another metric; groups are kept for the one that it was scored by alone."""
        if metric.name == self.metric:
            return self
        validation, test = (self.all_metrics.get(part, {}).get(metric.name) for part in ("validation", "test"))
        if validation is None:
            kept = listing(self.all_metrics.get("validation", {})) or "none but its own"
            raise DataError(f"the run {self.run} has no {metric.label}; metrics it was scored by: {kept}")
        scores = {} if test is None else test.by_domain
        return replace(
            self,
            metric=metric.name,
            higher_is_better=metric.higher_is_better,
            test=scores,
            unscored=tuple(name for name in self.held_out if name not in scores),
            validation=validation.by_domain,
            validation_overall=validation.overall,
            by_group=None,
            score_by=(),
            statistic="overall",
        )

    def to_json(self) -> dict[str, Any]:
        """The content of ``result.json``."""
        validation = _part(self.metric, self.validation, self.validation_overall, self.validation_by_group)
        return {
            "format": FORMAT,
            "run": self.run,
            "data": self.data,
            "method": self.method,
            "label": self.label,
            "mode": self.mode,
            "body": self.body,
            "seed": self.seed,
            "hold_out": self.hold_out,
            "held_out": list(self.held_out),
            "sources": list(self.sources),
            "domain_names": list(self.domain_names),
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "test": self._test(),
            "validation": validation | _unscored(self.validation_unscored, self.validation_unscored_groups),
            "also": {part: dict(scores) for part, scores in self.also.items()},
            "all_metrics": {
                part: {name: scores.to_json() for name, scores in metrics.items()}
                for part, metrics in self.all_metrics.items()
            },
            "statistic": self.statistic,
            "split_seed": self.split_seed,
            "score_by": list(self.score_by),
            "selection": self.selection,
            "selection_score": self.selection_score,
            "oracle": self.oracle,
            "temperature": self.temperature,
            "protocol": self.protocol,
            "best_epoch": self.best_epoch,
            "averaged": None if self.averaged is None else list(self.averaged),
            "epochs": self.epochs,
            "stopped": self.stopped,
            "seconds": self.seconds,
            "peak_memory": self.peak_memory,
            "parameters": {"trained": self.parameters_trained, "all": self.parameters_all},
            "batchwise": self.batchwise,
            "uses_domains": self.uses_domains,
            "notes": list(self.notes),
        }

    def _test(self) -> dict[str, Any] | None:
        if not self.held_out:
            return None
        stored = _part(self.metric, self.test, self.test_overall, self.by_group)
        return stored | _unscored(self.unscored, self.unscored_groups)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], where: str | os.PathLike[str] = RESULT_FILE) -> RunResult:
        """A result as it was stored; ``where`` names the file to those who have to mend it."""
        _check_format(stored.get("format"), where)
        try:
            return _parsed(stored)
        except KeyError as error:
            raise _damaged(where, f"it lacks {error.args[0]!r}") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise _damaged(where, str(error)) from error


def read_results(folders: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[RunResult]:
    """The results of all finished runs in these folders and below.

    Folders keep their order; what is found below one comes by hold-out, method and seed. A run without a
    ``result.json`` is not finished and is passed over.
    """
    results: dict[Path, RunResult] = {}
    for folder in [folders] if isinstance(folders, str | os.PathLike) else folders:
        if not Path(folder).is_dir():
            raise DataError(f"{folder}: there is no such folder of runs; check the spelling")
        found = {path.resolve(): read_result(path) for path in _result_files(Path(folder))}
        for path in sorted(found, key=lambda path: reading_order(found[path])):
            results.setdefault(path, found[path])
    return list(results.values())


def _result_files(folder: Path) -> Iterator[Path]:
    for place, below, names in os.walk(folder):
        below.sort()
        if RESULT_FILE in names:
            below.clear()  # a run holds no other run
            yield Path(place, RESULT_FILE)


def read_result(path: Path) -> RunResult:
    """The result in one file."""
    with decoding(path):
        text = path.read_text(encoding="utf-8")
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is no JSON ({error})") from error
    if not isinstance(stored, dict):
        raise _damaged(path, f"a {type(stored).__name__} where a JSON object should be")
    return RunResult.from_json(stored, path)


def _parsed(stored: Mapping[str, Any]) -> RunResult:
    parameters, validation = stored["parameters"], stored["validation"]
    best_epoch, averaged = stored["best_epoch"], stored["averaged"]
    held_out = _texts(stored, "held_out")
    found = stored["test"] or {"by_domain": {}, "overall": None}
    test, unscored = _scores(found["by_domain"]), _texts(found, "unscored", missing=())
    if sorted([*test, *unscored]) != sorted(held_out):
        raise ValueError(f"{list(held_out)} were held out, but there are scores for {list(test)}")
    return RunResult(
        run=_text(stored, "run"),
        data=_text(stored, "data"),
        method=_text(stored, "method"),
        label=_text(stored, "label"),
        hold_out=_text(stored, "hold_out"),
        metric=_text(stored, "metric"),
        selection=_text(stored, "selection"),
        protocol=_text(stored, "protocol"),
        stopped=_text(stored, "stopped"),
        held_out=held_out,
        sources=_texts(stored, "sources"),
        notes=_texts(stored, "notes"),
        seed=int(stored["seed"]),
        higher_is_better=bool(stored["higher_is_better"]),
        test=test,
        validation=_scores(validation["by_domain"]),
        validation_overall=_number(validation, "overall"),
        validation_by_group=_groups(validation),
        validation_unscored=_texts(validation, "unscored", missing=()),
        validation_unscored_groups=_texts(validation, "unscored_groups", missing=()),
        best_epoch=None if best_epoch is None else int(best_epoch),
        epochs=int(stored["epochs"]),
        seconds=float(stored["seconds"]),
        parameters_trained=int(parameters["trained"]),
        parameters_all=int(parameters["all"]),
        uses_domains=bool(stored["uses_domains"]),
        unscored=unscored,
        by_group=_groups(found),
        test_overall=_number(found, "overall"),
        unscored_groups=_texts(found, "unscored_groups", missing=()),
        mode=_text(stored, "mode"),
        body=_text(stored, "body"),
        also={str(part): dict(scores) for part, scores in stored["also"].items()},
        averaged=None if averaged is None else (int(averaged[0]), int(averaged[1])),
        selection_score=_number(stored, "selection_score"),
        score_by=_texts(stored, "score_by"),
        all_metrics={
            part: {name: Scores(_scores(kept["by_domain"]), float(kept["overall"])) for name, kept in metrics.items()}
            for part, metrics in stored["all_metrics"].items()
        },
        oracle=bool(stored["oracle"]),
        temperature=float(stored["temperature"]),
        domain_names=_texts(stored, "domain_names"),
        peak_memory=None if stored["peak_memory"] is None else int(stored["peak_memory"]),
        statistic=_text(stored, "statistic"),
        split_seed=None if stored["split_seed"] is None else int(stored["split_seed"]),
        batchwise=bool(stored["batchwise"]),
    )


def _text(stored: Mapping[str, Any], name: str) -> str:
    if not isinstance(stored[name], str):
        raise ValueError(f"{name} should be text and is {stored[name]!r}")
    return stored[name]


def _part(
    metric: str, by_domain: Mapping[str, float], overall: float | None, by_group: Mapping[str, float] | None
) -> dict[str, Any]:
    """The scores of validation or held-out rows as they are stored."""
    stored: dict[str, Any] = {"metric": metric, "by_domain": dict(by_domain), "overall": overall}
    return stored if by_group is None else {**stored, "by_group": dict(by_group)}


def _unscored(domains: tuple[str, ...], groups: tuple[str, ...]) -> dict[str, list[str]]:
    """What has no score, as it is stored: nothing where all have one."""
    return {name: list(names) for name, names in (("unscored", domains), ("unscored_groups", groups)) if names}


def _groups(stored: Mapping[str, Any]) -> dict[str, float] | None:
    return None if stored.get("by_group") is None else _scores(stored["by_group"])


def _number(stored: Mapping[str, Any], name: str) -> float | None:
    return None if stored[name] is None else float(stored[name])


def _texts(stored: Mapping[str, Any], name: str, missing: tuple[str, ...] | None = None) -> tuple[str, ...]:
    if name not in stored and missing is not None:
        return missing
    if not isinstance(stored[name], list):
        raise ValueError(f"{name} should be a list and is {stored[name]!r}")
    return tuple(map(str, stored[name]))


def _scores(by_domain: Mapping[str, Any]) -> dict[str, float]:
    scores = {str(name): float(score) for name, score in by_domain.items()}
    for name, score in scores.items():
        if not math.isfinite(score):
            raise ValueError(f"the score of {name!r} is {score}")
    return scores


def _check_format(found: object, where: str | os.PathLike[str]) -> None:
    if found == FORMAT:
        return
    if found is None:
        raise _damaged(where, "it does not say which format it has")
    newer = isinstance(found, int) and found > FORMAT
    cure = "update gated-domains" if newer else "train it again into another folder"
    raise DataError(
        f"{Path(where).parent}: this run was written in format {found!r}, and this version reads format {FORMAT}; "
        f"{cure}, or leave this folder out"
    )


def _damaged(where: str | os.PathLike[str], what: str) -> DataError:
    return DataError(f"{where}: not the result of a run: {what}; delete its folder and run it again")


def reading_order(result: RunResult) -> tuple[list[tuple[str, int]], str, str, int]:
    """By hold-out, method, label and seed."""
    return _natural(result.hold_out), result.method, result.label, result.seed


def _natural(text: str) -> list[tuple[str, int]]:
    """Sorts ``fold 2`` before ``fold 10``."""
    pieces = re.findall(r"([^0-9]*)([0-9]*)", text)
    return [(words.casefold(), int(number or -1)) for words, number in pieces]
