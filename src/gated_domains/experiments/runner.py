"""From a recipe to a run folder: what is done is found, what was cut goes on, the rest is trained."""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from gated_domains.backbones.backbone import Backbone
from gated_domains.data.batches import Samples, place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import Encoding, fit_encoding
from gated_domains.data.errors import DataError, explain, listing
from gated_domains.data.files import written_whole
from gated_domains.data.fingerprint import fingerprint
from gated_domains.data.like import schema_of
from gated_domains.data.splits import HoldOut, all_sources, hold_outs
from gated_domains.evaluation.selection import SELECTION_RULES
from gated_domains.experiments.environment import environment
from gated_domains.experiments.hashing import run_hash
from gated_domains.experiments.model import Model, Shape, load_weights, task_for
from gated_domains.experiments.recipe import Recipe, choose_method, resolved
from gated_domains.experiments.result import VALIDATION, predictions, result, scores
from gated_domains.experiments.run_folder import RunFolder
from gated_domains.layer import GateWarning
from gated_domains.layer.tasks import Task
from gated_domains.methods import Ensemble, Method, Numbers
from gated_domains.methods.erm_ensemble import MembersSettings
from gated_domains.settings import plain, to_yaml
from gated_domains.training.engine import Hardware, threads_for
from gated_domains.training.fine_tuning import on_cached_features
from gated_domains.training.loop import Keeping, Material, Outcome, Training, Watcher

_MEMBERS_APART = 1_000  # between the seeds of an ensemble's members, so that those of two ensembles never meet


@runtime_checkable
class RunWatcher(Watcher, Protocol):
    """Who is told which run begins and ends, and how far it is."""

    def run_began(self, recipe: Recipe, folder: RunFolder, *, epochs: int) -> None: ...
    def run_ended(self, recipe: Recipe, folder: RunFolder, result: dict[str, Any]) -> None: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class _Job:
    """A run that must be made: its recipe, what it reads and where it writes."""

    recipe: Recipe
    split: HoldOut
    encoding: Encoding
    material: Material
    shape: Shape
    task: Task
    folder: RunFolder
    fabric: Fabric
    before: Sequence[RunFolder]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Made:
    method: Method
    outcome: Outcome
    predicted: dict[str, NDArray[Any]]
    notes: list[str]


class Runner:
    """Makes the runs of one data set in one folder."""

    def __init__(
        self,
        dataset: DomainDataset,
        root: str | os.PathLike[str],
        *,
        hardware: Hardware | None = None,
        watcher: RunWatcher | None = None,
        checkpoint_seconds: float = 20.0,
    ) -> None:
        self.dataset, self.root = dataset, Path(root)
        self.hardware = hardware or Hardware()
        self.watcher, self.checkpoint_seconds = watcher, checkpoint_seconds
        self.fingerprint = fingerprint(dataset)
        self._data = {"name": dataset.name, "fingerprint": self.fingerprint}
        self._splits: dict[tuple[str | None, float, int], HoldOut] = {}
        self._samples: tuple[str, Samples] | None = None
        self._fabrics: dict[str, Fabric] = {}

    def run(self, recipe: Recipe) -> RunFolder:
        """The finished run of a recipe."""
        recipe = resolved(recipe, self.dataset)
        split = self.split(recipe)  # what cannot be held out is refused before anything is written
        fabric = self._fabric(recipe)
        with ExitStack() as held:
            # The first rank opens and locks; the others hear from it, or they would wait for one that was refused.
            told = self._opened(recipe, held) if fabric.is_global_zero else ("", "")
            told = fabric.broadcast(told)
            if told[0] == "refused":
                raise DataError(told[1])
            folder = RunFolder(told[1])
            if told[0] == "go":
                self._make(recipe, split, folder, fabric)
        fabric.barrier()
        return folder

    @property
    def device(self) -> str:
        """What is trained on: cpu or cuda."""
        return self.hardware.accelerator

    def folder(self, recipe: Recipe) -> RunFolder:
        """The folder of a recipe, made where it is not there yet."""
        return RunFolder.open(self.root, resolved(recipe, self.dataset).identity(), data=self._data)

    def find(self, recipe: Recipe) -> RunFolder | None:
        """The folder of a recipe where there is one."""
        return RunFolder.find(self.root, resolved(recipe, self.dataset).identity(), data=self._data)

    def split(self, recipe: Recipe) -> HoldOut:
        """The rows of a recipe."""
        key = (recipe.hold_out, recipe.validation, recipe.split_seed)
        if key not in self._splits:
            chosen: dict[str, Any] = {"validation": recipe.validation, "seed": recipe.split_seed}
            if recipe.hold_out is None:
                self._splits[key] = all_sources(self.dataset, **chosen)
            else:
                self._splits[key] = hold_outs(self.dataset, [recipe.hold_out], **chosen)[0]
        return self._splits[key]

    def know(self, split: HoldOut, recipe: Recipe) -> None:
        """Take a split that was made already, under the name it has there, for all recipes that hold out the same."""
        self._splits[recipe.hold_out, recipe.validation, recipe.split_seed] = split

    def needs(self, recipe: Recipe) -> list[Recipe]:
        """The runs that must be there first: the network whose body is frozen, the members of an ensemble."""
        if recipe.method.mode == "fine_tune":
            return [recipe.but(method=choose_method("erm"))]
        if isinstance(recipe.method.settings, MembersSettings):
            chosen = recipe.method.settings
            member = choose_method("erm", {"activation": chosen.activation})
            seeds = [recipe.seed + _MEMBERS_APART * number for number in range(chosen.members)]
            return [recipe.but(method=member, seed=seed) for seed in seeds]
        return []

    def to_train(self, recipes: Sequence[Recipe]) -> tuple[list[Recipe], int]:
        """The trainings still to be made for these recipes, each once and in their order, and how many are done."""
        every: dict[str, Recipe] = {}
        for recipe in recipes:
            for needed in [*self.needs(recipe), *([] if _only_joins(recipe) else [recipe])]:
                every.setdefault(run_hash(resolved(needed, self.dataset).identity()), needed)
        todo = [recipe for recipe in every.values() if (run := self.find(recipe)) is None or not run.done]
        return todo, len(every) - len(todo)

    def _opened(self, recipe: Recipe, held: ExitStack) -> tuple[str, str]:
        """Whether the run is done, to be made (its folder is then locked) or refused; its folder, or the reason."""
        try:
            folder = self.folder(recipe)
            if not folder.done:
                held.enter_context(folder.lock())
            return ("done" if folder.done else "go"), str(folder.path)
        except (DataError, OSError) as error:
            return "refused", explain(error) if isinstance(error, OSError) else str(error)

    def _make(self, recipe: Recipe, split: HoldOut, folder: RunFolder, fabric: Fabric) -> None:
        before = [self.run(needed) for needed in self.needs(recipe)]
        encoding = fit_encoding(self.dataset, split.train)
        task = task_for(self.dataset, split.train, weighted=recipe.training.class_weights)
        job = _Job(
            recipe=recipe,
            split=split,
            encoding=encoding,
            material=self._material(encoding, split, fabric),
            shape=self._shape(recipe, encoding, task),
            task=task,
            folder=folder,
            fabric=fabric,
            before=before,
        )
        watched = fabric.is_global_zero and not _only_joins(recipe)
        if fabric.is_global_zero:
            about = {**environment(str(fabric.device)), "processes": fabric.world_size}
            folder.write_json("environment.json", about)
            with written_whole(folder.path / "recipe.yaml") as draft:
                draft.write_text(to_yaml(recipe.seen_from(folder.path).plain()), encoding="utf-8")
        if self.watcher is not None and watched:
            self.watcher.run_began(recipe, folder, epochs=recipe.training.epochs)
        with _gate_warnings() as complaints, threads_for(recipe.training.batch_size * math.prod(encoding.shape)):
            made = self._joined(job) if _only_joins(recipe) else self._trained(job)
        if fabric.is_global_zero:
            found = self._written(job, made, [*made.notes, *complaints])
            if self.watcher is not None and watched:
                self.watcher.run_ended(recipe, folder, found)

    def _trained(self, job: _Job) -> _Made:
        recipe, fabric = job.recipe, job.fabric
        torch.manual_seed(recipe.seed + fabric.global_rank)
        body = None
        if recipe.method.mode == "fine_tune":
            source = Model.load(job.before[0].path).method.backbone
            assert isinstance(source, Backbone)
            body = source.body
        method = job.shape.build(task=job.task, body=body)
        key = run_hash({"data": self.fingerprint, "encoding": job.encoding.describe()})
        on_cache = recipe.method.mode == "fine_tune"
        cache = on_cached_features(method, job.material, key=key, seed=recipe.seed)
        began = time.monotonic()
        with cache if on_cache else nullcontext(job.material) as material:
            extracting = time.monotonic() - began
            training = Training(
                method,
                material,
                recipe.training,
                fabric=fabric,
                seed=recipe.seed,
                rule=SELECTION_RULES[recipe.selection],
                keeping=Keeping(folder=job.folder.path, seconds=self.checkpoint_seconds),
                journal=job.folder,
                watcher=self.watcher,
            )
            outcome = training.run()
            outcome = replace(outcome, seconds=outcome.seconds + extracting)
            predicted = predictions(method, material, job.split, self.dataset, fabric)
            notes = _process_notes(method, fabric.world_size, min(recipe.training.batch_size, len(material.train)))
        return _Made(method=method, outcome=outcome, predicted=predicted, notes=notes)

    def _joined(self, job: _Job) -> _Made:
        """The members of an ensemble, put together."""
        method = job.shape.build(task=job.task)
        assert isinstance(method, Ensemble)
        for member, run in zip(method.members, job.before, strict=True):
            load_weights(member, run.path)
        method.to(job.fabric.device).eval()
        predicted = predictions(method, job.material, job.split, self.dataset, job.fabric)
        validation = scores(self.dataset, predicted, VALIDATION)
        assert validation is not None
        ends = [run.result() for run in job.before]
        outcome = Outcome(
            best_epoch=max(int(end["best_epoch"]) for end in ends),
            epochs=max(int(end["epochs"]) for end in ends),
            stopped="each member by itself",
            seconds=0.0,
            validation=validation,
        )
        if job.fabric.is_global_zero:
            job.folder.write_json("members.json", {"members": [run.name for run in job.before]})
        return _Made(method=method, outcome=outcome, predicted=predicted, notes=[])

    def _written(self, job: _Job, made: _Made, notes: list[str]) -> dict[str, Any]:
        """Put the model, its predictions and last the result into the folder."""
        schema = schema_of(self.dataset, job.encoding)
        Model(method=made.method, shape=job.shape, schema=schema).save(job.folder.path)
        job.folder.write_predictions(**made.predicted)
        found = result(
            job.recipe,
            job.split,
            self.dataset,
            method=made.method,
            outcome=made.outcome,
            predicted=made.predicted,
            seconds=made.outcome.seconds + sum(float(run.result()["seconds"]) for run in job.before),
            notes=notes,
        )
        job.folder.finish(found)
        return found

    def _shape(self, recipe: Recipe, encoding: Encoding, task: Task) -> Shape:
        numbers = {"mean": task.mean, "scale": task.scale} if isinstance(task, Numbers) else {}
        return Shape(
            method=recipe.method.name,
            mode=recipe.method.mode,
            settings=plain(recipe.method.settings),
            body=recipe.body,
            kind=self.dataset.inputs.kind,
            inputs=tuple(encoding.shape),
            outputs=self.dataset.num_classes or 1,
            **numbers,
        )

    def _material(self, encoding: Encoding, split: HoldOut, fabric: Fabric) -> Material:
        """Samples are placed once for all hold-outs that encode them alike, as all of images do."""
        described = f"{fabric.device} {json.dumps(encoding.describe(), sort_keys=True)}"
        if self._samples is None or self._samples[0] != described:
            self._samples = (described, place(self.dataset, encoding, device=fabric.device))
        return Material(dataset=self.dataset, samples=self._samples[1], train=split.train, validation=split.validation)

    def _fabric(self, recipe: Recipe) -> Fabric:
        precision = recipe.training.precision
        if precision not in self._fabrics or precision == "16":  # whose scale of the loss would outlast a training
            self._fabrics[precision] = self.hardware.fabric(precision)
        return self._fabrics[precision]


def _only_joins(recipe: Recipe) -> bool:
    """Whether nothing is trained for this run itself: it puts others together."""
    return issubclass(recipe.method.kind, Ensemble)


def _process_notes(method: Method, world: int, batch: int) -> list[str]:
    """What differs from one process with the same batch."""
    notes = []
    if world > 1 and method.per_rank():
        notes.append(f"with {world} processes, {listing(method.per_rank())} are per process")
    if batch % world:
        notes.append(
            f"with {world} processes, {batch % world} of the {batch} rows of a batch cannot be shared: left out"
        )
    return notes


@contextmanager
def _gate_warnings() -> Iterator[list[str]]:
    """What gates complain of inside, as notes for the run; other warnings are passed on."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GateWarning)
        try:
            yield found
        finally:
            texts = [str(warning.message) for warning in caught if issubclass(warning.category, GateWarning)]
            found.extend(dict.fromkeys(texts))
    for warning in caught:
        if not issubclass(warning.category, GateWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
