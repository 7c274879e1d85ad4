"""Runner: makes the runs of one data set in one folder. Finished runs are found, interrupted ones resumed."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric

from gated_domains.common.validation import findings_heard
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, explain
from gated_domains.data.named import DATASETS
from gated_domains.evaluation.metrics import SELECTION_RULES, SelectionRule, fixed_epoch
from gated_domains.experiments.builder import Builder, BuiltRun
from gated_domains.experiments.model import load_weights
from gated_domains.experiments.planner import PlannedRun, Planner
from gated_domains.experiments.run_scores import TEST, VALIDATION, predict_run, scorer_for, scores
from gated_domains.experiments.source_data import SourceData
from gated_domains.experiments.writer import TrainedRun, write_run
from gated_domains.methods import METHODS, Ensemble
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.provenance import environment
from gated_domains.runs.recipe import Recipe
from gated_domains.runs.storage import run_hash
from gated_domains.training.callbacks.base import MetricsWriter, ProgressCallback
from gated_domains.training.callbacks.checkpoint import Checkpoint
from gated_domains.training.callbacks.stopping import NotFiniteError
from gated_domains.training.engine import Hardware, PeakMemory, threads_for
from gated_domains.training.trainer import Outcome, Trainer
from gated_domains.training.training_data import on_cached_features


class Runner:
    """Makes the runs of one data set in one folder.

    Parameters
    ----------
    dataset, root
        The data, and the folder of the runs.
    hardware, checkpoint_seconds
        Where trainings run, and the least time between two checkpoints.
    callback
        Receives progress events.
    """

    def __init__(
        self,
        dataset: DomainDataset | SourceData,
        root: str | os.PathLike[str],
        *,
        hardware: Hardware | None = None,
        callback: ProgressCallback | None = None,
        checkpoint_seconds: float = 20.0,
    ) -> None:
        self.data = dataset if isinstance(dataset, SourceData) else SourceData(dataset)
        self.dataset, self.root = self.data.dataset, Path(root)
        self.hardware = hardware or Hardware()
        self.callback, self.checkpoint_seconds = callback or ProgressCallback(), checkpoint_seconds
        self.builder = Builder(self.data)
        self.planner = Planner(self.data, self.builder.check)
        self._fabrics: dict[str, Fabric] = {}

    @property
    def device(self) -> str:
        """Where trainings run: cpu or cuda."""
        return self.hardware.accelerator

    def run(self, recipe: Recipe) -> RunFolder:
        """The finished run of a recipe; what it needs is made first."""
        plan, fabric = self.planner.plan([recipe]), self._fabric(recipe)
        # In the order of the first process: another one may see the disk otherwise.
        folders = [self.make(plan.runs[name]) for name in fabric.broadcast(plan.order(self.root))]
        return folders[-1]

    def find(self, recipe: Recipe) -> RunFolder | None:
        """The folder of a recipe; None if there is none."""
        run = self.planner.run(recipe)
        return RunFolder.find(self.root, run.identity, data=run.data)

    def folder(self, recipe: Recipe) -> RunFolder:
        """The folder of a recipe, which may not exist yet."""
        return self.planner.run(recipe).folder(self.root)

    def make(self, run: PlannedRun) -> RunFolder:
        """The finished run; the runs that it needs must be finished."""
        METHODS.setdefault(run.recipe.method.name, run.recipe.method.kind)  # a worker has not seen the user's script
        fabric = self._fabric(run.recipe)
        with ExitStack() as held:
            # The first process opens and locks; the others hear from it, or they would wait for one that was refused.
            state: tuple[str, str | DataError]
            state = self._acquire(run, held) if fabric.is_global_zero else ("", "")
            kind, where = fabric.broadcast(state)
            if isinstance(where, DataError):
                raise where
            folder = RunFolder(where)
            if kind == "make":
                parts, selecting = (
                    [RunFolder(self.root / name) for name in names] for names in (run.parts, run.selection_runs)
                )
                self._make(run, folder, fabric, parts, selecting)
        fabric.barrier()
        return folder

    def _acquire(self, run: PlannedRun, held: ExitStack) -> tuple[str, str | DataError]:
        """Whether the run is done, to be made (its folder is then locked) or refused; its folder, or the reason."""
        try:
            folder = RunFolder.open(self.root, run.identity, data=run.data)
            if not folder.done:
                held.enter_context(folder.lock())
            return ("done" if folder.done else "make"), str(folder.path)
        except DataError as error:
            return "refused", error
        except OSError as error:
            return "refused", DataError(explain(error))

    def _make(
        self, run: PlannedRun, folder: RunFolder, fabric: Fabric, parts: list[RunFolder], selecting: list[RunFolder]
    ) -> None:
        recipe = run.recipe
        if fabric.is_global_zero:
            about = {**environment(str(fabric.device)), "processes": fabric.world_size}
            folder.write_about(
                recipe.relative_to(folder.path, named=DATASETS),
                about | ({"compiled": True} if self.hardware.compile else {}),
            )
            if not run.combines:
                self.callback.on_run_start(recipe, folder, epochs=recipe.training.epochs)
        memory = PeakMemory(fabric.device)
        threads = threads_for(recipe.training.batch_size * math.prod(self.builder.encoding(run).shape))
        with findings_heard() as complaints, threads, _failure_noted(folder, fabric):
            if run.combines:
                trained = self._combined(run, folder, fabric, parts)
            else:
                trained = self._trained(run, folder, fabric, parts, selecting)
        if fabric.is_global_zero:
            notes = [*trained.notes, *complaints]
            trained = replace(trained, notes=notes, peak_memory=memory.bytes())
            result = write_run(trained, folder, self.data, [*parts, *selecting])
            if not run.combines:
                self.callback.on_run_end(recipe, folder, result.to_json())

    def _trained(
        self, run: PlannedRun, folder: RunFolder, fabric: Fabric, parts: list[RunFolder], selecting: list[RunFolder]
    ) -> TrainedRun:
        recipe = run.recipe
        torch.manual_seed(recipe.seed + fabric.global_rank)
        built = self.builder.build(run, parts, fabric)
        rule, patience = _selection(recipe, selecting)
        # The oracle alone selects by what it is scored on.
        data = replace(built.data, validation=run.split.test) if rule.oracle else built.data
        began = time.monotonic()
        with ExitStack() as held:
            if recipe.method.mode == "fine_tune":
                content = "-".join(value for name, value in run.data.items() if name != "name")
                key = run_hash({"data": content, "encoding": built.encoding.describe()})
                data = held.enter_context(on_cached_features(built.method, data, key=key, seed=recipe.seed))
            extracting = time.monotonic() - began
            trainer = Trainer(
                built.method,
                data,
                recipe.training.model_copy(update={"patience": patience}),
                fabric=fabric,
                seed=recipe.seed,
                rule=rule,
                scorer=scorer_for(recipe, run.split, built.view, TEST if rule.oracle else VALIDATION),
                callbacks=[
                    MetricsWriter(folder),
                    self.callback,
                    Checkpoint(folder.path, seconds=self.checkpoint_seconds),
                ],
                compiled=self.hardware.compile,
            )
            outcome = trainer.fit()
            outcome = replace(outcome, seconds=outcome.seconds + extracting)
            rows = min(recipe.training.batch_size, len(data.train))
            notes = [*built.process_notes(fabric.world_size, rows), *outcome.notes, *built.notes(recipe)]
            return self._predicted(run, replace(built, data=data), outcome, notes, fabric)

    def _combined(self, run: PlannedRun, folder: RunFolder, fabric: Fabric, parts: list[RunFolder]) -> TrainedRun:
        """The members of an ensemble as one model."""
        built = self.builder.build(run, parts, fabric)
        method = built.method
        assert isinstance(method, Ensemble)
        for member, part in zip(method.members, parts, strict=True):
            load_weights(member, part.path)
        method.to(fabric.device).eval()
        ends = [part.result() for part in parts]
        selected = [end.selection_score for end in ends if end.selection_score is not None]
        outcome = Outcome(
            best_epoch=max(end.best_epoch or 0 for end in ends),
            epochs=max(end.epochs for end in ends),
            stopped="each member by itself",
            seconds=0.0,
            validation=None,
            selection_score=float(np.mean(selected)) if len(selected) == len(ends) else None,
        )
        if fabric.is_global_zero:
            folder.write_members(parts)
        return self._predicted(run, built, outcome, [], fabric)

    def _predicted(
        self, run: PlannedRun, built: BuiltRun, outcome: Outcome, notes: list[str], fabric: Fabric
    ) -> TrainedRun:
        """A training with its predictions, and the validation scores of these."""
        recipe, whole = run.recipe, self.dataset
        predicted, temperature = predict_run(recipe, run.split, built.method, built.data, built.view, whole, fabric)
        validation = scores(recipe, run.split, whole, predicted, VALIDATION)
        assert validation is not None
        outcome = replace(outcome, validation=validation)
        return TrainedRun(
            run=run, built=built, outcome=outcome, predicted=predicted, temperature=temperature, notes=notes
        )

    def _fabric(self, recipe: Recipe) -> Fabric:
        precision = recipe.training.precision
        if precision not in self._fabrics or precision == "16":  # its loss scale would outlast a training
            self._fabrics[precision] = self.hardware.fabric(precision)
        return self._fabrics[precision]


def _selection(recipe: Recipe, selecting: list[RunFolder]) -> tuple[SelectionRule, int | None]:
    """The rule that selects an epoch, and how long it waits for a better one."""
    if recipe.selection != "leave_one_source_out":
        return SELECTION_RULES[recipe.selection], recipe.training.patience
    curve = np.mean([[record["selection"] for record in run.metrics()] for run in selecting], axis=0)
    return fixed_epoch(int(curve.argmax()), score=float(curve.max())), 1


@contextmanager
def _failure_noted(folder: RunFolder, fabric: Fabric) -> Iterator[None]:
    """Note in the folder that a loss became NaN or infinite: a search does not try these settings again."""
    try:
        yield
    except NotFiniteError as error:
        if fabric.is_global_zero:
            folder.write_failure(str(error))
        fabric.barrier()  # all processes are here, and all find the note
        raise
