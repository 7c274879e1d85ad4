"""Runs of heads that are trained together: each in its own folder, as if it had been trained alone."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from gated_domains.common.health import findings_heard
from gated_domains.data.dataset import DomainDataset
from gated_domains.experiments.hashing import run_hash
from gated_domains.experiments.recipe import Recipe, resolved
from gated_domains.experiments.run_folder import RunFolder
from gated_domains.experiments.run_job import Made, Ready, RunJob, RunWatcher
from gated_domains.experiments.run_notes import breaks_noted
from gated_domains.experiments.runner import Runner, only_joins
from gated_domains.methods import Method
from gated_domains.settings import plain
from gated_domains.training.fine_tuning import FeatureTables
from gated_domains.training.outcome import Outcome
from gated_domains.training.population import Population, odd_one_out, why_alone
from gated_domains.training.trouble import NotFiniteError
from gated_domains.utils.locks import BusyError

#: Settings of a method that members may differ in: numbers that lie in tensors, or that weigh a term of the loss.
_OWN = ("sigma", "sigma_of_median", "kappa", "entropy")
_WEIGHTS = ("lambda_ols", "lambda_l1", "lambda_entropy", "lambda_orth", "lambda_dev")
_OWN_IN_TRAINING = ("rate", "weight_decay", "class_weights")
_SPARE = 0.5  # of a GPU's memory that features of one population leave free: one table is made of all


def stack_key(recipe: Recipe, dataset: DomainDataset) -> str | None:
    """What runs share that may be trained together; None for one that is trained alone."""
    recipe = resolved(recipe, dataset)
    kind, training = recipe.method.kind, recipe.training
    plainly = training.sampling == "plain" and training.accumulate == 1 and training.mixstyle is None
    usual = not training.swad and training.optimizer != "sgd" and training.precision != "16"
    stepped = kind.step is Method.step and not kind.uses_domains and not only_joins(recipe)
    if recipe.method.mode != "fine_tune" or not (plainly and usual and stepped):
        return None
    settings = {name: value for name, value in plain(recipe.method.settings).items() if name not in _OWN}
    settings |= {name: settings[name] > 0 for name in _WEIGHTS if settings.get(name) is not None}
    shared: dict[str, Any] = {
        "method": recipe.method.name,
        "settings": settings,
        "training": {name: value for name, value in plain(training).items() if name not in _OWN_IN_TRAINING},
        "network": [recipe.body, recipe.shrunk, recipe.backbone is None],
    }
    if dataset.num_classes is None or training.class_weights:  # the task knows the training rows
        shared["rows"] = [recipe.hold_out, recipe.validation_domain, recipe.validation, recipe.split_seed]
        shared["weighted"] = training.class_weights
    return run_hash(shared)


def run_together(
    runner: Runner, recipes: Sequence[Recipe], *, watcher: RunWatcher | None = None
) -> list[RunFolder | BusyError | NotFiniteError]:
    """The finished run of every recipe, in their order; else why there is none: somebody is at it, or it broke.

    As many as fit into a GPU's memory are trained at a time. What cannot be stepped together after all, for a reason
    that only the built network shows, is trained one after the other.
    """
    found: dict[int, RunFolder | BusyError | NotFiniteError] = {}
    left = list(enumerate(recipes))
    while left:
        with ExitStack() as held:
            group = _Group(runner, held, watcher)
            while left and not group.full:
                number, recipe = left.pop(0)
                came = group.add(number, recipe)
                if came is not None:
                    found[number] = came
            found |= group.run()
    return [found[number] for number in range(len(recipes))]


@dataclass(eq=False)
class _Member:
    number: int
    job: RunJob
    ready: Ready
    complaints: list[str]


class _Group:
    """Runs that are taken up, until they are trained together."""

    def __init__(self, runner: Runner, held: ExitStack, watcher: RunWatcher | None) -> None:
        self.runner, self.held, self.watcher = runner, held, watcher
        self.foremost = None if watcher is None else _Foremost(watcher)
        self.features = self.held.enter_context(ExitStack())
        self.tables = FeatureTables(on_device=True)
        self.members: list[_Member] = []

    @property
    def full(self) -> bool:
        """Whether the features of another would leave too little memory."""
        if self.runner.device != "cuda" or not self.members:
            return False
        free, whole = torch.cuda.mem_get_info()
        free += torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return free < _SPARE * whole

    def add(self, number: int, recipe: Recipe) -> RunFolder | BusyError | NotFiniteError | None:
        """Take up a run; what is done, held by others or broken from the start comes back."""
        try:
            job = self.runner.taken_up(recipe, self.held, watcher=self.watcher)
        except BusyError as busy:
            return busy
        if isinstance(job, RunFolder):
            return job
        self.runner.begin(job)
        try:
            with findings_heard() as complaints, self.runner.threads(job), breaks_noted(job.folder, job.fabric):
                ready = self.runner.readied(job, self.features, watcher=self.foremost, tables=self.tables)
                ready.training.start()
        except NotFiniteError as error:
            return error
        self.members.append(_Member(number, job, ready, complaints))
        return None

    def run(self) -> dict[int, RunFolder | BusyError | NotFiniteError]:
        """Train all that was taken up, and write what came of it."""
        if not self.members:
            return {}
        with self.runner.threads(self.members[0].job):
            ends = self._ends()
            made = [self._made(member, end) for member, end in zip(self.members, ends, strict=True)]
        self.features.close()  # networks have their bodies again
        self.tables = FeatureTables()
        found: dict[int, RunFolder | BusyError | NotFiniteError] = {}
        for member, one in zip(self.members, made, strict=True):
            if isinstance(one, NotFiniteError):
                found[member.number] = one
            else:
                self.runner.end(member.job, one, member.complaints)
                found[member.number] = member.job.folder
        self.members.clear()
        if self.runner.device == "cuda":
            gc.collect()  # a recorded step holds on to what it was recorded with
            torch.cuda.empty_cache()
        return found

    def _ends(self) -> list[Outcome | NotFiniteError]:
        trainings = [member.ready.training for member in self.members]
        if len(trainings) > 1 and not any(map(why_alone, trainings)) and odd_one_out(trainings) is None:
            return Population(trainings).ends()
        ends: list[Outcome | NotFiniteError] = []
        for training in trainings:
            training.count_seconds()
            try:
                ends.append(training.run())
            except NotFiniteError as error:
                ends.append(error)
        return ends

    def _made(self, member: _Member, end: Outcome | NotFiniteError) -> Made | NotFiniteError:
        try:
            with breaks_noted(member.job.folder, member.job.fabric):
                if isinstance(end, NotFiniteError):
                    raise end
                return self.runner.measured(member.job, member.ready, end)
        except NotFiniteError as error:
            return error


class _Foremost:
    """Tells how far the foremost of some trainings is: what they all have done is told once."""

    def __init__(self, watcher: RunWatcher) -> None:
        self.watcher = watcher
        self.share, self.epoch = 0.0, -1

    def stepped(self, step: int, steps: int) -> None:
        if step / steps > self.share:
            self.share = step / steps
            self.watcher.stepped(step, steps)

    def epoch_ended(self, record: dict[str, Any]) -> None:
        if record["epoch"] > self.epoch:
            self.epoch = record["epoch"]
            self.watcher.epoch_ended(record)
