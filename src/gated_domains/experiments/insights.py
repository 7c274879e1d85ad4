"""Insights of runs: made from the weights in a run folder and from its data, and kept beside them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from gated_domains.data.errors import DataError, explain, first_line
from gated_domains.data.loading import load_data
from gated_domains.evaluation.scores import metric_named
from gated_domains.experiments.model import Model
from gated_domains.experiments.recipe_checks import read_recipe
from gated_domains.experiments.runner import Runner
from gated_domains.insight import insight_of
from gated_domains.insight.planes import NAMES, Kind
from gated_domains.methods import METHODS
from gated_domains.methods.gdu import GDU
from gated_domains.runs.collection import gather
from gated_domains.runs.folder import RECIPE, WEIGHTS, RunFolder
from gated_domains.runs.insight import INSIGHT, Insight
from gated_domains.runs.provenance import split_hash
from gated_domains.runs.recipe import Recipe
from gated_domains.training.engine import Hardware

Say = Callable[[str], None]
MOST_HOLD_OUTS = 8  # of one data set, that a run is looked into of


class Looked:
    """The insights that are there now, and why others are not."""

    def __init__(self, say: Say = lambda line: None) -> None:
        self.say = say
        self.written: list[Path] = []
        self._without: dict[str, list[Path]] = {}

    @property
    def notes(self) -> list[str]:
        """For people: a line for every reason that runs have no insight."""
        return [
            f"no insight into {paths[0]}{f' and {len(paths) - 1} more' if len(paths) > 1 else ''}: {reason}"
            for reason, paths in self._without.items()
        ]

    def attempt(self, run: RunFolder, path: Callable[[], Path | None]) -> None:
        """Take in what comes of a look into a run; what is wrong with its data or folder becomes a note."""
        self.say(f"looking into {run.path}")
        try:
            found = path()
        except (DataError, OSError, RuntimeError, ValueError) as error:  # a comparison stands without it
            reason = explain(error) if isinstance(error, OSError) else first_line(error)
            self._without.setdefault(reason, []).append(run.path)
        else:
            self.written += [] if found is None else [found]


def look(run: RunFolder, runner: Runner, recipe: Recipe, *, kind: Kind | None = None) -> Path | None:
    """The insight of a finished run, made where it is not there yet; None where the run has no gates.

    It is not made twice, as the weights of a finished run do not change, but for a map of another ``kind``.
    """
    if not issubclass(recipe.method.kind, GDU):
        return None
    if _there(run, kind):
        return run.path / INSIGHT
    _refuse_without_weights(run)
    metric = metric_named(run.result().metric)
    model, split = Model.load(run.path), runner.planner.split(recipe)
    dataset, known = runner.planner.known_classes(recipe)
    found = {"fingerprint": runner.data.fingerprint, "split": split_hash(split)}
    if any(model.trained_on.get(name, value) != value for name, value in found.items()):
        raise DataError(f"it was trained on other rows than {runner.dataset.name} has now; train it again")
    assert isinstance(model.method, GDU)  # as its recipe says
    insight = insight_of(
        model.method,
        model.schema.encoding,
        dataset,
        known,
        metric=metric,
        temperature=model.temperature,
        device=runner.device,
        kind=kind or "tsne",
    )
    return insight.write(run.path)


def look_at(
    runs: Sequence[RunFolder], runner: Runner, recipes: Sequence[Recipe], *, say: Say = lambda line: None
) -> Looked:
    """Look into a few of the runs of a comparison, whose recipes are given beside them; see ``worth_a_look``."""
    recipe_of = {run.path: recipe for run, recipe in zip(runs, recipes, strict=True)}
    looked = Looked(say)
    for run in worth_a_look(runs):
        looked.attempt(run, partial(look, run, runner, recipe_of[run.path]))
    return looked


def missing_insights(
    folders: Iterable[str | os.PathLike[str]],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    hardware: Hardware | None = None,
    kind: Kind | None = None,
    say: Say = lambda line: None,
) -> Looked:
    """Look into a few runs of every data set in these folders, with the data that their recipes name.

    Data that cannot be found, or have changed since, and weights that were not kept are notes.
    """
    gathered = gather(folders)
    by_data: dict[str, list[RunFolder]] = {}
    for result in gathered.results:
        data = gathered.about(result).get("data")
        fingerprint = str(data.get("fingerprint") if isinstance(data, dict) else data)
        by_data.setdefault(fingerprint, []).append(RunFolder(gathered.folder(result)))
    looked = Looked(say)
    for runs in by_data.values():
        finding = _OnOneDataSet(data_dir, hardware, kind)
        for run in worth_a_look(runs):
            looked.attempt(run, partial(finding, run))
    return looked


def worth_a_look(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """Of each hold-out one gated run, of at most eight: plain GDU before other forms of it, the first seed."""
    results = {run.path: run.result() for run in runs}
    gated = [run for run in runs if issubclass(METHODS.get(results[run.path].method, object), GDU)]

    def rank(run: RunFolder) -> tuple[bool, bool, int]:
        result = results[run.path]
        return result.method != GDU.name, result.label != GDU.label, result.seed

    by_hold_out: dict[str, list[RunFolder]] = {}
    for run in gated:
        by_hold_out.setdefault(results[run.path].hold_out, []).append(run)
    return [min(own, key=rank) for own in by_hold_out.values()][:MOST_HOLD_OUTS]


class _OnOneDataSet:
    """Finds the insights of runs on the same data, which are read when the first is missing."""

    def __init__(
        self, data_dir: str | os.PathLike[str] | None, hardware: Hardware | None, kind: Kind | None = None
    ) -> None:
        self.data_dir, self.hardware, self.kind = data_dir, hardware, kind
        self.runner: Runner | None = None

    def __call__(self, run: RunFolder) -> Path | None:
        if _there(run, self.kind):
            return run.path / INSIGHT
        _refuse_without_weights(run)
        recipe = read_recipe(run.path / RECIPE)
        if self.runner is None:
            data = recipe.data
            dataset = load_data(data.what, data.reading, data_dir=self.data_dir, seed=data.seed)
            self.runner = Runner(dataset, run.path.parent, hardware=self.hardware)
        return look(run, self.runner, recipe, kind=self.kind)


def _there(run: RunFolder, kind: Kind | None) -> bool:
    """Whether a run has an insight, with a map of this kind where one is asked for."""
    if kind is None or not (run.path / INSIGHT).exists():
        return (run.path / INSIGHT).exists()
    found = Insight.read(run.path)
    return found is not None and str(found.map_kind) == NAMES[kind]


def _refuse_without_weights(run: RunFolder) -> None:
    if not (run.path / WEIGHTS).exists():
        raise DataError("its weights were not kept; train it again without --light")
