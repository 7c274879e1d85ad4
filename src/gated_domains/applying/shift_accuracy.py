"""How well the accuracy of a model can be estimated: measured with the same training without each source in turn."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from gated_domains.applying.inside import GatedEstimator, GatedModel, GatedRun
from gated_domains.data.errors import DataError, explain, listing
from gated_domains.data.labels import Reading, is_fold
from gated_domains.data.splits import OFFICIAL
from gated_domains.estimators.gated import GDUClassifier
from gated_domains.estimators.saving import load_estimator
from gated_domains.evaluation.metrics import SELECTION_RULES
from gated_domains.experiments.model import digest_of_weights
from gated_domains.experiments.recipe_checks import identity_of
from gated_domains.experiments.run_scores import TEST, VALIDATION
from gated_domains.experiments.runner import Runner
from gated_domains.insight.shift.accuracy import AccuracyCalibration, LeftOut, calibrate_accuracy
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import Recipe
from gated_domains.runs.storage import read_json, write_json
from gated_domains.training.engine import Hardware

KEPT = "shift.json"
FORMAT = 1
CHOSEN_THERE = (
    "the epochs of the trainings without a source were chosen by that source: the accuracy estimated may be a little "
    "too high"
)
_LEAVES_OUT = "leave_one_source_out"
_UNMEASURED = "It was not measured how well its accuracy can be estimated"

Make = Callable[[Runner, Sequence[Recipe]], None]


class Foresight(NamedTuple):
    """How accuracy is estimated, and what a person should know; or why it is not."""

    calibration: AccuracyCalibration | None
    why_not: str = ""
    notes: tuple[str, ...] = ()


def foresight_of(
    model: GatedModel,
    training: str | os.PathLike[str] | None = None,
    *,
    calibrate: bool = False,
    reading: Reading | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    hardware: Hardware | None = None,
    make: Make | None = None,
) -> Foresight:
    """What is kept beside a model, or what runs that are there already tell; measured where that is asked for."""
    if model.schema.class_names is None:
        if calibrate:
            raise DataError(f"{model.name} predicts no classes: there is no accuracy to foresee; leave --calibrate out")
        return Foresight(None)
    if isinstance(model, GatedRun):
        return _of_run(model, training, calibrate, data_dir, hardware, make or _make)
    assert isinstance(model, GatedEstimator)
    return _of_estimator(model, training, calibrate, reading, data_dir)


# -- runs --------------------------------------------------------------------------------------------------------------


class _Without(NamedTuple):
    """The trainings without each source: by one more domain held out, or by one that selects."""

    recipes: dict[str, Recipe]
    part: int

    def folders(self, model: GatedRun) -> dict[str, RunFolder] | None:
        """Where they lie; None unless all are done."""
        data = model.folder.about()["data"]
        root = model.folder.path.parent
        found = {name: RunFolder.find(root, identity_of(recipe), data=data) for name, recipe in self.recipes.items()}
        done = {name: run for name, run in found.items() if run is not None and run.done}
        return done if len(done) == len(self.recipes) else None


def _of_run(
    model: GatedRun,
    training: str | os.PathLike[str] | None,
    calibrate: bool,
    data_dir: str | os.PathLike[str] | None,
    hardware: Hardware | None,
    make: Make,
) -> Foresight:
    kept = _kept(model)
    if kept is not None:
        return kept
    cannot = _why_not(model)
    if cannot:
        if calibrate:
            raise DataError(f"{model.name}: {cannot}; leave --calibrate out")
        return Foresight(None, f"{_UNMEASURED}: {cannot}.")
    ways = list(_ways(model.recipe, model.sources))
    for way in ways:
        folders = way.folders(model)
        if folders is not None:
            return _measured(model, way, folders)
    if not calibrate:
        return Foresight(
            None,
            f"{_UNMEASURED}: add --calibrate, which trains it once without each of its {len(model.sources)} sources.",
        )
    way = ways[-1] if model.recipe.selection == _LEAVES_OUT else ways[0]
    runner = model.runner(training, data_dir=data_dir, hardware=hardware)
    for recipe in way.recipes.values():
        runner.planner.plan([recipe])
    make(runner, list(way.recipes.values()))
    return _measured(model, way, {name: runner.folder(recipe) for name, recipe in way.recipes.items()})


def _make(runner: Runner, recipes: Sequence[Recipe]) -> None:
    for recipe in recipes:
        runner.run(recipe)


def _why_not(model: GatedRun) -> str:
    """Why no source can be left out; nothing where each can."""
    hold_out, result = model.recipe.hold_out, model.folder.result()
    if not model.sources:
        return "its sources are not known, or too many to leave out each"
    if len(model.sources) == 1:
        return "it was trained on one source, which cannot be left out"
    if hold_out is not None and (hold_out == OFFICIAL or is_fold(hold_out, result.domain_names)):
        return f"its division ({hold_out}) is fixed, and no source can be left out of it"
    if result.batchwise:
        return "its gates look at batches, and accuracy is estimated of rows by themselves"
    return ""


def _ways(recipe: Recipe, sources: Sequence[str]) -> Iterator[_Without]:
    """The fair way first: the source is held out, and selects nothing. The other is that of leave_one_source_out."""
    before = [] if recipe.hold_out is None else [recipe.hold_out]
    # The oracle would select by the answers of the source that is left out.
    fair = recipe.replace(selection="source_validation") if SELECTION_RULES[recipe.selection].oracle else recipe
    yield _Without({name: fair.replace(hold_out="+".join([*before, name])) for name in sources}, TEST)
    if recipe.validation_domain is None:
        whole = recipe.training.model_copy(update={"patience": None})
        left_out = recipe.replace(selection="out_of_domain", training=whole)
        yield _Without({name: left_out.replace(validation_domain=name) for name in sources}, VALIDATION)


def _measured(model: GatedRun, way: _Without, folders: dict[str, RunFolder]) -> Foresight:
    calibration = calibrate_accuracy([_left_out(name, run, way.part) for name, run in folders.items()])
    notes = (CHOSEN_THERE,) if way.part == VALIDATION else ()
    about = {
        "format": FORMAT,
        "of": digest_of_weights(model.folder.path),
        "accuracy": calibration.describe(),
        "runs": {name: run.name for name, run in folders.items()},
        "notes": list(notes),
    }
    with suppress(OSError):  # somebody else's folder, perhaps: the runs are there, and are found again
        write_json(model.folder.path / KEPT, about)
    return Foresight(calibration, notes=notes)


def _left_out(name: str, run: RunFolder, part: int) -> LeftOut:
    """What a run says of the source that it has not seen."""
    said, names = run.predictions(), run.result().domain_names
    chosen = said["part"] == part
    if part == TEST:
        chosen &= said["domains"] == names.index(name)
    if not chosen.any():
        raise DataError(f"{run.path} says nothing of {name!r}, which it was trained without; delete it to run it again")
    right = said["output"].argmax(1) == said["targets"]
    familiar = said["part"] == VALIDATION  # where the source left out is not what selects, rows of the other sources
    output = said["output"][chosen]
    coverage = said.get("coverage")
    return LeftOut(
        name=name,
        confidence=output.max(1),
        coverage=None if coverage is None else coverage[chosen],
        correct=right[chosen],
        of_sources=float(right[familiar].mean()) if part == TEST and familiar.any() else None,
    )


def _kept(model: GatedRun) -> Foresight | None:
    """What was measured before, with these weights."""
    path = model.folder.path / KEPT
    if not path.is_file():
        return None
    cure = "delete it to have it made again"
    found = read_json(path, cure=cure)
    try:
        if found["format"] != FORMAT:
            raise DataError(f"format {found['format']!r}, this version reads {FORMAT}")
        if found["of"] != digest_of_weights(model.folder.path):
            return None
        return Foresight(AccuracyCalibration.from_description(found["accuracy"]), notes=tuple(map(str, found["notes"])))
    except (KeyError, TypeError, DataError) as error:
        raise DataError(f"{path} is damaged ({error}); {cure}") from error


# -- estimators --------------------------------------------------------------------------------------------------------


def _of_estimator(
    model: GatedEstimator,
    training: str | os.PathLike[str] | None,
    calibrate: bool,
    reading: Reading | None,
    data_dir: str | os.PathLike[str] | None,
) -> Foresight:
    estimator = model.estimator
    assert isinstance(estimator, GDUClassifier)
    if hasattr(estimator, "accuracy_"):
        return Foresight(estimator.accuracy_)
    if not calibrate:
        return Foresight(
            None,
            f"{_UNMEASURED}: call calibrate_accuracy(X, y, sample_domain=...) and save it again, or add --calibrate "
            "--data FILE --target COLUMN --domain COLUMN.",
        )
    trained = model.trained_on(training, reading=reading, data_dir=data_dir).train
    if trained.domains is None or len(np.unique(trained.domains)) < 2:
        raise DataError(
            f"{trained.name} names no two domains to leave out in turn; name the column that holds them (--domain)"
        )
    sites = np.array(trained.domain_names)[trained.domains]
    try:
        estimator.calibrate_accuracy(model.table(trained), estimator.classes_[trained.targets], sample_domain=sites)
    except ValueError as error:
        raise DataError(f"{trained.name}: {error}") from error
    kept = load_estimator(model.name)  # with the settings it was saved with, not those of this asking
    assert isinstance(kept, GDUClassifier)
    kept.accuracy_ = estimator.accuracy_
    measured = f"measured on {listing(np.unique(sites))}"
    try:
        kept.save(model.name)
    except OSError as error:  # somebody else's folder, perhaps: what was measured stands
        return Foresight(estimator.accuracy_, notes=(f"{measured}; not kept: {explain(error)}",))
    return Foresight(estimator.accuracy_, notes=(f"{measured}, and kept in {model.name}",))
