"""From a recipe to a run folder: what is done is found, what was cut goes on, the rest is trained."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from gated_domains.backbones.making import weights_note
from gated_domains.backbones.mixstyle import too_few_styles
from gated_domains.common.health import findings_heard
from gated_domains.data.batches import Samples, place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import Encoding, fit_encoding
from gated_domains.data.errors import DataError, explain
from gated_domains.data.files import written_whole
from gated_domains.data.fingerprint import fingerprint
from gated_domains.data.groups import groups_among
from gated_domains.data.inputs import Rows
from gated_domains.data.like import schema_of
from gated_domains.data.sampling import rows_a_domain
from gated_domains.data.splits import HoldOut, all_sources, hold_outs, kept_apart
from gated_domains.evaluation.scores import DomainScores
from gated_domains.evaluation.selection import SELECTION_RULES, SelectionRule, fixed_epoch
from gated_domains.experiments.checks import refuse_settings
from gated_domains.experiments.environment import environment
from gated_domains.experiments.hashing import run_hash
from gated_domains.experiments.model import Model, Shape, load_weights, task_for
from gated_domains.experiments.provenance import Seen, seen_by, split_hash
from gated_domains.experiments.recipe import MethodChoice, Recipe, choose_method, mixes_vectors, resolved
from gated_domains.experiments.result import (
    TEST,
    VALIDATION,
    calibrated,
    check_scoring,
    in_all_classes,
    predictions,
    result,
    scorer_for,
    scores,
)
from gated_domains.experiments.run_folder import ENVIRONMENT, RunFolder
from gated_domains.experiments.run_job import Made, Ready, RunJob
from gated_domains.experiments.run_notes import breaks_noted, process_notes
from gated_domains.experiments.starts import Starts, body_of
from gated_domains.layer.tasks import Task
from gated_domains.methods import Ensemble, Method, Numbers
from gated_domains.methods.erm_ensemble import MembersSettings
from gated_domains.methods.method import too_few_domains
from gated_domains.settings import plain, to_yaml
from gated_domains.training.callbacks.checkpoint import Checkpoint
from gated_domains.training.callbacks.metrics import MetricsWriter
from gated_domains.training.callbacks.progress import ProgressCallback
from gated_domains.training.engine import Hardware, PeakMemory, threads_for
from gated_domains.training.feature_cache import on_cached_features
from gated_domains.training.mixing import styles_among
from gated_domains.training.trainer import Outcome, Trainer
from gated_domains.training.training_data import TrainingData

_MEMBERS_APART = 1_000  # between the seeds of an ensemble's members, so that those of two ensembles never meet


class Runner:
    """Makes the runs of one data set in one folder."""

    def __init__(
        self,
        dataset: DomainDataset,
        root: str | os.PathLike[str],
        *,
        hardware: Hardware | None = None,
        watcher: ProgressCallback | None = None,
        checkpoint_seconds: float = 20.0,
    ) -> None:
        self.dataset, self.root = dataset, Path(root)
        self.hardware = hardware or Hardware()
        self.watcher, self.checkpoint_seconds = watcher, checkpoint_seconds
        self.digests = dataset.inputs.digests()
        self.fingerprint = fingerprint(dataset, self.digests)
        self._data = {"name": dataset.name, "fingerprint": self.fingerprint}
        self._splits: dict[tuple[str | None, str | None, float, int], HoldOut] = {}
        self._samples: tuple[DomainDataset, str, Samples] | None = None
        self._fabrics: dict[str, Fabric] = {}
        self._built: set[str] = set()
        self._prints: dict[DomainDataset, str] = {}
        self._fitted: tuple[DomainDataset, Rows, Encoding] | None = None
        self._decided: dict[HoldOut, DomainDataset] = {}
        self._hashes: dict[HoldOut, str] = {}
        self.starts = Starts(dataset, self.fingerprint, self.digests)

    def run(self, recipe: Recipe) -> RunFolder:
        """The finished run of a recipe."""
        with ExitStack() as held:
            job = self.taken_up(recipe, held)
            if isinstance(job, RunJob):
                self._make(job)
        folder = job.folder if isinstance(job, RunJob) else job
        self._fabrics[recipe.training.precision].barrier()
        return folder

    def taken_up(self, recipe: Recipe, held: ExitStack) -> RunJob | RunFolder:
        """What must be made for a recipe, in a folder that is locked while it is ``held``; the run, if it is done."""
        recipe = resolved(recipe, self.dataset)
        split = self.split(recipe)  # what cannot be held out is refused before anything is written
        refuse_settings(recipe, self.dataset, split)
        check_scoring(recipe, split, self.dataset)
        self._groups(recipe)
        fabric = self._fabric(recipe)
        # The first rank opens and locks; the others hear from it, or they would wait for one that was refused.
        told = self._opened(recipe, held) if fabric.is_global_zero else ("", "")
        told = fabric.broadcast(told)
        if isinstance(told[1], DataError):
            raise told[1]
        folder = RunFolder(told[1])
        return self._job(recipe, split, folder, fabric) if told[0] == "go" else folder

    @property
    def device(self) -> str:
        """What is trained on: cpu or cuda."""
        return self.hardware.accelerator

    def folder(self, recipe: Recipe) -> RunFolder:
        """The folder of a recipe, made where it is not there yet."""
        return RunFolder.open(self.root, resolved(recipe, self.dataset).identity(), data=self._data_of(recipe))

    def find(self, recipe: Recipe) -> RunFolder | None:
        """The folder of a recipe where there is one."""
        return RunFolder.find(self.root, resolved(recipe, self.dataset).identity(), data=self._data_of(recipe))

    def decided(self, recipe: Recipe) -> DomainDataset:
        """The data as the sources of a recipe have it; where it selects by the rows held out, as all rows have it."""
        if SELECTION_RULES[resolved(recipe, self.dataset).selection].oracle:
            return self.dataset
        split = self.split(recipe)
        if split not in self._decided:
            self._decided[split] = self.dataset.decided_on(split.seen)
        return self._decided[split]

    def known(self, recipe: Recipe) -> tuple[DomainDataset, HoldOut]:
        """The data as the sources of a recipe have it; its split, without test rows of classes that no source has."""
        dataset, split = self.decided(recipe), self.split(recipe)
        if not dataset.without_output:
            return dataset, split
        return dataset, replace(split, test=split.test[dataset.targets[split.test] < dataset.outputs])

    def _data_of(self, recipe: Recipe) -> dict[str, Any]:
        """What tells the data of a run from others; where its sources decide otherwise, how they decide."""
        dataset = self.decided(recipe)
        if dataset is self.dataset:
            return self._data
        if dataset not in self._prints:
            same_inputs = dataset.inputs is self.dataset.inputs
            self._prints[dataset] = fingerprint(dataset, self.digests if same_inputs else None)
        return {**self._data, "decided": self._prints[dataset]}

    def split(self, recipe: Recipe) -> HoldOut:
        """The rows of a recipe."""
        key = (recipe.hold_out, recipe.validation_domain, recipe.validation, recipe.split_seed)
        if key not in self._splits:
            chosen: dict[str, Any] = {"validation": recipe.validation, "seed": recipe.split_seed}
            if recipe.validation_domain is not None:
                self._splits[key] = kept_apart(self.dataset, recipe.hold_out, recipe.validation_domain, **chosen)
            elif recipe.hold_out is None:
                self._splits[key] = all_sources(self.dataset, **chosen)
            else:
                self._splits[key] = hold_outs(self.dataset, [recipe.hold_out], **chosen)[0]
        return self._splits[key]

    def know(self, split: HoldOut, recipe: Recipe) -> None:
        """Take a split that was made already, under the name it has there, for all recipes that hold out the same."""
        self._splits[recipe.hold_out, recipe.validation_domain, recipe.validation, recipe.split_seed] = split

    def check(self, recipe: Recipe) -> None:
        """Refuse a recipe that cannot be run on these data, before anything is trained."""
        recipe = resolved(recipe, self.dataset)
        split = self.split(recipe)
        refuse_settings(recipe, self.dataset, split)
        check_scoring(recipe, split, self.dataset)
        self._groups(recipe)
        for needed in self.needs(recipe):
            self.check(needed)
        chosen = {name: getattr(recipe, name) for name in ("body", "pretrained", "shrunk")}
        built = run_hash({"method": plain(recipe.method), **chosen})
        dataset = self.decided(recipe)
        if recipe.backbone is not None:
            body_of(self.starts.backbone(recipe, split, self._encoding(dataset, split)))
        if built not in self._built:  # what cannot be built, cannot be on any hold-out
            encoding = self._encoding(dataset, split)
            task = task_for(dataset, split.train, weighted=recipe.training.class_weights)
            with torch.random.fork_rng(devices=[]):
                self._shape(recipe, encoding, task).build(task=task)
            self._built.add(built)

    def stands_on(self, recipe: Recipe) -> list[Recipe]:
        """The runs that this one is made of: the network whose body is frozen, the members of an ensemble."""
        if recipe.method.mode == "fine_tune":
            activation = recipe.method.kind.frozen_activation(recipe.method.settings)
            erm = choose_method("erm", {"activation": activation})
            return [] if recipe.backbone is not None else [_under_erm(recipe, erm)]
        if isinstance(recipe.method.settings, MembersSettings):
            chosen = recipe.method.settings
            member = choose_method("erm", {"activation": chosen.activation})
            seeds = [recipe.seed + _MEMBERS_APART * number for number in range(chosen.members)]
            return [_under_erm(recipe, member).but(seed=seed) for seed in seeds]
        return []

    def selected_by(self, recipe: Recipe) -> list[Recipe]:
        """The runs that choose the epoch of this one: with one source after the other left out, and validated on."""
        if recipe.selection != "leave_one_source_out" or only_joins(recipe):
            return []
        whole = recipe.training.model_copy(update={"patience": None})  # their curves are averaged epoch by epoch
        left_out = recipe.but(selection="out_of_domain", training=whole)
        return [left_out.but(validation_domain=source) for source in self.split(recipe).sources]

    def needs(self, recipe: Recipe) -> list[Recipe]:
        """The runs that must be there first."""
        return [*self.stands_on(recipe), *self.selected_by(recipe)]

    def to_train(self, recipes: Sequence[Recipe]) -> tuple[list[Recipe], int]:
        """The trainings still to be made for these recipes, each once and after those it needs; how many are done."""
        every: dict[str, Recipe] = {}

        def add(recipe: Recipe) -> None:
            for needed in self.needs(recipe):
                add(needed)
            if not only_joins(recipe):
                every.setdefault(run_hash(resolved(recipe, self.dataset).identity()), recipe)

        for recipe in recipes:
            add(recipe)
        todo = [recipe for recipe in every.values() if (run := self.find(recipe)) is None or not run.done]
        return todo, len(every) - len(todo)

    def _opened(self, recipe: Recipe, held: ExitStack) -> tuple[str, str | DataError]:
        """Whether the run is done, to be made (its folder is then locked) or refused; its folder, or the reason."""
        try:
            folder = self.folder(recipe)
            if not folder.done:
                held.enter_context(folder.lock())
            return ("done" if folder.done else "go"), str(folder.path)
        except DataError as error:
            return "refused", error
        except OSError as error:
            return "refused", DataError(explain(error))

    def _job(self, recipe: Recipe, split: HoldOut, folder: RunFolder, fabric: Fabric) -> RunJob:
        before = [self.run(needed) for needed in self.stands_on(recipe)]
        choosing = [self.run(needed) for needed in self.selected_by(recipe)]
        dataset = self.decided(recipe)
        encoding = self._encoding(dataset, split)
        task = task_for(dataset, split.train, weighted=recipe.training.class_weights)
        return RunJob(
            recipe=recipe,
            split=split,
            dataset=dataset,
            encoding=encoding,
            material=self._material(dataset, encoding, split, fabric),
            shape=self._shape(recipe, encoding, task),
            task=task,
            folder=folder,
            fabric=fabric,
            before=before,
            choosing=choosing,
            watcher=self.watcher,
        )

    def _make(self, job: RunJob) -> None:
        self.begin(job)
        memory = PeakMemory(job.fabric.device)
        threads = threads_for(job.recipe.training.batch_size * math.prod(job.encoding.shape))
        with findings_heard() as complaints, threads, breaks_noted(job.folder, job.fabric):
            made = self._joined(job) if only_joins(job.recipe) else self._trained(job)
        self.end(job, replace(made, peak_memory=memory.bytes()), complaints)

    def begin(self, job: RunJob) -> None:
        """Say in the folder what is made there, and tell of it."""
        recipe, folder, fabric = job.recipe, job.folder, job.fabric
        if fabric.is_global_zero:
            about = {**environment(str(fabric.device)), "processes": fabric.world_size}
            about |= {"compiled": True} if self.hardware.compile else {}
            folder.write_json(ENVIRONMENT, about)
            with written_whole(folder.path / "recipe.yaml") as draft:
                draft.write_text(to_yaml(recipe.seen_from(folder.path).plain()), encoding="utf-8")
            if job.watcher is not None and not only_joins(recipe):
                job.watcher.on_run_start(recipe, folder, epochs=recipe.training.epochs)

    def end(self, job: RunJob, made: Made, complaints: Sequence[str]) -> None:
        """Put what was made into the folder, and tell of it."""
        if job.fabric.is_global_zero:
            _tell_end(job, self._written(job, made, [*made.notes, *complaints]))

    def _trained(self, job: RunJob) -> Made:
        with ExitStack() as held:
            ready = self.readied(job, held)
            return self.measured(job, ready, ready.training.fit())

    def readied(self, job: RunJob, held: ExitStack) -> Ready:
        """The training of a run before its first step; a head stands on cached features while they are ``held``."""
        recipe, fabric = job.recipe, job.fabric
        torch.manual_seed(recipe.seed + fabric.global_rank)
        method = self._built_method(job)
        data = {name: value for name, value in self._data_of(recipe).items() if name != "name"}
        key = run_hash({"data": "-".join(data.values()), "encoding": job.encoding.describe()})
        rule, patience = self._rule(job)
        # The oracle alone selects by what it is scored on.
        selecting = replace(job.material, validation=job.split.test) if rule.oracle else job.material
        began, material = time.monotonic(), selecting
        if recipe.method.mode == "fine_tune":
            cache = on_cached_features(method, selecting, key=key, seed=recipe.seed)
            material = held.enter_context(cache)
        extracting = time.monotonic() - began
        training = Trainer(
            method,
            material,
            recipe.training.model_copy(update={"patience": patience}),
            fabric=fabric,
            seed=recipe.seed,
            rule=rule,
            scorer=scorer_for(recipe, job.split, job.dataset, TEST if rule.oracle else VALIDATION),
            callbacks=[
                MetricsWriter(job.folder),
                *([] if job.watcher is None else [job.watcher]),
                Checkpoint(job.folder.path, seconds=self.checkpoint_seconds),
            ],
            compiled=self.hardware.compile,
        )
        return Ready(training=training, extracting=extracting)

    def measured(self, job: RunJob, ready: Ready, outcome: Outcome) -> Made:
        """What came of a training: predictions, scores and notes."""
        recipe, training = job.recipe, ready.training
        method, material = training.method, training.data
        outcome = replace(outcome, seconds=outcome.seconds + ready.extracting)
        predicted, temperature = self._predicted(job, method, material)
        outcome = replace(outcome, validation=self._validation(job, predicted))
        rows = min(recipe.training.batch_size, len(material.train))
        notes = process_notes(method, job.fabric.world_size, rows)
        notes += [*outcome.notes, *job.encoding.notes]
        if recipe.backbone is None and (started := weights_note(recipe.body, recipe.pretrained, shrunk=recipe.shrunk)):
            notes.append(started)
        if recipe.validation_domain is not None:
            notes.append(f"selected by {recipe.validation_domain}, a source domain that does not train")
        return Made(method=method, outcome=outcome, predicted=predicted, temperature=temperature, notes=notes)

    def _built_method(self, job: RunJob) -> Method:
        """The method before its first step, on the body that it starts from."""
        recipe, build = job.recipe, job.shape.build
        if recipe.method.mode != "fine_tune":
            return build(task=job.task, make=self.starts.maker(recipe, job.split, job.encoding))
        if recipe.backbone is not None:
            return build(task=job.task, body=body_of(self.starts.backbone(recipe, job.split, job.encoding)))
        return build(task=job.task, body=body_of(Model.load(job.before[0].path)))

    def _joined(self, job: RunJob) -> Made:
        """The members of an ensemble, put together."""
        method = job.shape.build(task=job.task)
        assert isinstance(method, Ensemble)
        for member, run in zip(method.members, job.before, strict=True):
            load_weights(member, run.path)
        method.to(job.fabric.device).eval()
        predicted, temperature = self._predicted(job, method, job.material)
        ends = [run.result() for run in job.before]
        selected: list[Any] = [end["selection_score"] for end in ends]
        outcome = Outcome(
            best_epoch=max(int(end["best_epoch"]) for end in ends),
            epochs=max(int(end["epochs"]) for end in ends),
            stopped="each member by itself",
            seconds=0.0,
            validation=self._validation(job, predicted),
            selection_score=None if None in selected else float(np.mean(selected)),
        )
        if job.fabric.is_global_zero:
            job.folder.write_json("members.json", {"members": [run.name for run in job.before]})
        return Made(method=method, outcome=outcome, predicted=predicted, temperature=temperature, notes=[])

    def _predicted(self, job: RunJob, method: Method, material: TrainingData) -> tuple[dict[str, NDArray[Any]], float]:
        """What the method says, at the temperature that it is calibrated to; 1 where that is not asked for."""
        predicted = predictions(method, material, job.split, job.dataset, job.fabric)
        predicted, temperature = calibrated(predicted) if job.recipe.calibrate else (predicted, 1.0)
        return in_all_classes(predicted, job.dataset, self.dataset), temperature

    def _validation(self, job: RunJob, predicted: dict[str, NDArray[Any]]) -> DomainScores:
        validation = scores(job.recipe, job.split, self.dataset, predicted, VALIDATION)
        assert validation is not None
        return validation

    def _written(self, job: RunJob, made: Made, notes: list[str]) -> dict[str, Any]:
        """Put the model, its predictions and last the result into the folder."""
        schema = schema_of(job.dataset, job.encoding)
        model = Model(
            method=made.method,
            shape=job.shape,
            schema=schema,
            temperature=made.temperature,
            trained_on=self._trained_on(job),
        )
        before = None if job.recipe.backbone is None else Seen.read(Path(job.recipe.backbone))
        oracle = SELECTION_RULES[job.recipe.selection].oracle
        seen = seen_by(job.split, self.fingerprint, self.digests, before=before, oracle=oracle)
        seen.write(job.folder.path)
        model.save(job.folder.path)
        job.folder.write_predictions(**made.predicted)
        needed = [run.result() for run in (*job.before, *job.choosing)]
        noted = self.dataset if job.dataset is self.dataset else replace(self.dataset, notes=job.dataset.notes)
        found = result(
            job.recipe,
            job.split,
            noted,
            method=made.method,
            outcome=made.outcome,
            predicted=made.predicted,
            temperature=made.temperature,
            seconds=made.outcome.seconds + sum(float(end["seconds"]) for end in needed),
            peak_memory=_highest([made.peak_memory, *(end["peak_memory"] for end in needed)]),
            notes=notes,
        )
        job.folder.finish(found)
        return found

    def _trained_on(self, job: RunJob) -> dict[str, Any]:
        all_classes = {"classes": list(self.dataset.class_names or ())} if job.dataset.without_output else {}
        return {
            **self._data,
            **all_classes,
            "hold_out": job.recipe.hold_out,
            "validation_domain": job.recipe.validation_domain,
            "split_seed": job.recipe.split_seed,
            "split": self._split_hash(job.split),
            "seed": job.recipe.seed,
        }

    def _split_hash(self, split: HoldOut) -> str:
        """Of a hundred thousand rows it takes a while, and many runs share a split."""
        if split not in self._hashes:
            self._hashes[split] = split_hash(split)
        return self._hashes[split]

    def _encoding(self, dataset: DomainDataset, split: HoldOut) -> Encoding:
        """Fitted once for all runs on the same training rows: a vocabulary of word pieces takes minutes."""
        kept = self._fitted
        if kept is None or kept[0] is not dataset or not np.array_equal(kept[1], split.train):
            self._fitted = kept = (dataset, split.train, fit_encoding(dataset, split.train))
        return kept[2]

    def _shape(self, recipe: Recipe, encoding: Encoding, task: Task) -> Shape:
        numbers = {"mean": task.mean, "scale": task.scale} if isinstance(task, Numbers) else {}
        domains = self._groups(recipe) if recipe.method.kind.uses_domains else ()
        return Shape(
            method=recipe.method.name,
            mode=recipe.method.mode,
            settings=plain(recipe.method.settings),
            body=recipe.body,
            kind=self.dataset.inputs.kind,
            inputs=tuple(encoding.shape),
            outputs=self.decided(recipe).outputs,
            architecture=self.starts.architecture(recipe, encoding),
            domains=domains,
            rows_a_domain=self._rows_a_domain(recipe, domains) if domains else None,
            **numbers,
        )

    def _rows_a_domain(self, recipe: Recipe, sizes: tuple[int, ...]) -> int:
        training = resolved(recipe, self.dataset).training
        return rows_a_domain(
            training.sampling,
            sizes,
            batch_size=training.batch_size,
            blocks=training.groups_per_batch,
            repeat_rows=training.repeat_rows,
        )

    def _groups(self, recipe: Recipe) -> tuple[int, ...]:
        """Training rows of each group that stands for a domain; refused where a method that needs two has fewer."""
        kind = recipe.method.kind
        groups = groups_among(self.decided(recipe), self.split(recipe).train, recipe.training.group_by)
        sizes = () if groups is None else groups.sizes
        if kind.uses_domains and len(sizes) < 2:
            raise DataError(too_few_domains(kind, len(sizes)))
        if mixes_vectors(recipe, self.dataset):
            styles = styles_among(self.dataset, self.split(recipe).train, recipe.training.group_by)
            if styles is None or len(styles) < 2:
                raise DataError(too_few_styles(0 if styles is None else len(styles)))
        return sizes

    def _rule(self, job: RunJob) -> tuple[SelectionRule, int | None]:
        """The rule that selects an epoch, and how long it waits for a better one."""
        recipe = job.recipe
        if recipe.selection != "leave_one_source_out":
            return SELECTION_RULES[recipe.selection], recipe.training.patience
        curve = np.mean([[record["selection"] for record in run.metrics()] for run in job.choosing], axis=0)
        return fixed_epoch(int(curve.argmax()), score=float(curve.max())), 1

    def _material(self, dataset: DomainDataset, encoding: Encoding, split: HoldOut, fabric: Fabric) -> TrainingData:
        """Samples are placed once for all hold-outs that encode them alike, as all of images do."""
        described = f"{fabric.device} {json.dumps(encoding.describe(), sort_keys=True)}"
        kept = self._samples
        if kept is None or kept[0] is not dataset or kept[1] != described:
            self._samples = kept = (dataset, described, place(dataset, encoding, device=fabric.device))
            if fabric.device.type == "cuda":
                torch.cuda.synchronize(fabric.device)  # others may read them on streams of their own
        return TrainingData(dataset=dataset, samples=kept[2], train=split.train, validation=split.validation)

    def _fabric(self, recipe: Recipe) -> Fabric:
        precision = recipe.training.precision
        if precision not in self._fabrics or precision == "16":  # whose scale of the loss would outlast a training
            self._fabrics[precision] = self.hardware.fabric(precision)
        return self._fabrics[precision]


def _highest(peaks: Sequence[int | None]) -> int | None:
    """Of a run and those that it needs; None where one is not known."""
    known = [peak for peak in peaks if peak is not None]
    return max(known) if len(known) == len(peaks) else None


def _tell_end(job: RunJob, found: dict[str, Any]) -> None:
    if job.watcher is not None and not only_joins(job.recipe):
        job.watcher.on_run_end(job.recipe, job.folder, found)


def _under_erm(recipe: Recipe, erm: MethodChoice) -> Recipe:
    """The same training of a plain network; batches that the method alone asked for are plain again."""
    asked = recipe.training.sampling == recipe.method.kind.sampling
    training = recipe.training.model_copy(update={"sampling": "auto"} if asked else {})
    return recipe.but(method=erm, training=training)


def only_joins(recipe: Recipe) -> bool:
    """Whether nothing is trained for this run itself: it puts others together."""
    return issubclass(recipe.method.kind, Ensemble)
