"""What has to be trained for some recipes: settings resolved once, prerequisites in one graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gated_domains.backbones.mixstyle import too_few_styles
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.labels import groups_among
from gated_domains.data.splits import HoldOut, all_sources, hold_outs, kept_apart
from gated_domains.experiments.recipe_checks import check_scoring, choose_method, identity_of, refuse_settings, resolve
from gated_domains.experiments.source_data import SourceData
from gated_domains.methods import Ensemble
from gated_domains.methods.erm_ensemble import MembersSettings
from gated_domains.methods.method import too_few_domains
from gated_domains.runs.folder import RunFolder, run_name
from gated_domains.runs.provenance import split_hash
from gated_domains.runs.recipe import MethodChoice, Recipe, mixes_vectors
from gated_domains.runs.storage import run_hash
from gated_domains.settings import plain
from gated_domains.training.mixing import styles_among

_MEMBER_SEEDS = 1_000  # between the seeds of an ensemble's members, so that two ensembles share none


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedRun:
    """One run with every setting resolved, as it is sent to workers. ``identity`` and ``data`` name its folder.

    ``parts`` are the runs that it is made of: the network whose body is frozen, the members of an ensemble.
    ``selection_runs`` choose its epoch: trainings that leave one source out.
    """

    name: str
    recipe: Recipe
    identity: Mapping[str, Any]
    data: Mapping[str, Any]
    split: HoldOut
    split_hash: str
    parts: tuple[str, ...]
    selection_runs: tuple[str, ...]
    domain_sizes: tuple[int, ...]
    """Training rows of each source domain, for a method that is told them."""
    rows_per_domain: int | None
    """Rows of one domain in a training batch, for such a method."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The runs that must be finished first."""
        return (*self.parts, *self.selection_runs)

    @property
    def combines(self) -> bool:
        """Whether nothing is trained for this run itself: it combines others."""
        return issubclass(self.recipe.method.kind, Ensemble)

    def folder(self, root: Path) -> RunFolder:
        """Its folder, which may not exist yet."""
        return RunFolder(root / self.name)

    def __str__(self) -> str:
        return self.recipe.description


@dataclass(frozen=True, eq=False)
class Plan:
    """The runs of some recipes with their prerequisites, those first; ``asked`` names the runs of the recipes."""

    runs: Mapping[str, PlannedRun]
    asked: tuple[str, ...]

    def order(self, root: Path) -> list[str]:
        """The runs to make, in order: what a run needs comes before it, and is left out where the run is done."""
        wanted, order = set(self.asked), []
        for name, run in reversed(list(self.runs.items())):
            if name in wanted:
                order.append(name)
                wanted.update(() if run.folder(root).done else run.needs)
        return order[::-1]

    def missing(self, root: Path) -> tuple[list[PlannedRun], int]:
        """The trainings that are still to be made, and how many are done."""
        trainings = [run for run in self.runs.values() if not run.combines]
        todo = [run for run in trainings if not run.folder(root).done]
        return todo, len(trainings) - len(todo)

    def failed(self, name: str, root: Path) -> bool:
        """Whether this run, or one that it needs, broke off because its loss was NaN or infinite."""
        folder = self.runs[name].folder(root)
        if folder.done or folder.broken:
            return not folder.done
        return any(self.failed(needed, root) for needed in self.runs[name].needs)


@dataclass(eq=False)
class Planner:
    """Plans the runs of one data set. ``check_build`` refuses what cannot be built, once per method and body."""

    data: SourceData
    check_build: Callable[[PlannedRun], None] = lambda run: None
    _splits: dict[Any, tuple[HoldOut, str]] = field(default_factory=dict)
    _planned: dict[str, PlannedRun] = field(default_factory=dict)
    _checked: set[str] = field(default_factory=set)

    @property
    def dataset(self) -> DomainDataset:
        return self.data.dataset

    def plan(self, recipes: Iterable[Recipe], *, check: bool = True) -> Plan:
        """The runs of these recipes; with ``check``, a recipe that cannot be run on these data is refused."""
        runs: dict[str, PlannedRun] = {}
        asked = [self._add(self.resolve(recipe), runs, check) for recipe in recipes]
        return Plan(runs, tuple(asked))

    def run(self, recipe: Recipe) -> PlannedRun:
        """One run without its prerequisites, and without checks."""
        return self._run(self.resolve(recipe))

    def resolve(self, recipe: Recipe) -> Recipe:
        return resolve(recipe, self.dataset)

    def split(self, recipe: Recipe) -> HoldOut:
        """The rows of a recipe."""
        return self._split(recipe)[0]

    def use_split(self, split: HoldOut, recipe: Recipe) -> None:
        """Take a split that exists already, under its name there, for all recipes that hold out the same."""
        self._splits[recipe.split_key] = split, split_hash(split)

    def view(self, recipe: Recipe) -> DomainDataset:
        """The data as the sources of a recipe have it."""
        return self.data.view(self.resolve(recipe), *self._split(recipe))

    def known_classes(self, recipe: Recipe) -> tuple[DomainDataset, HoldOut]:
        """The data as the sources have it; the split, without test rows of classes that no source has."""
        dataset, split = self.view(recipe), self.split(recipe)
        if not dataset.without_output:
            return dataset, split
        return dataset, replace(split, test=split.test[dataset.targets[split.test] < dataset.outputs])

    def _add(self, recipe: Recipe, runs: dict[str, PlannedRun], check: bool) -> str:
        if check:
            self._check(recipe)
        run = self._run(recipe)
        if run.name not in runs:
            for needed in (*self._parts(recipe), *self._selection_runs(recipe)):
                self._add(needed, runs, check)
            if check:
                self._check_build_once(run)
            runs[run.name] = run
        return run.name

    def _run(self, recipe: Recipe) -> PlannedRun:
        identity = identity_of(recipe)
        key = run_hash(identity)
        if key not in self._planned:
            split, hashed = self._split(recipe)
            data = self.data.identity(recipe, split, hashed)
            sizes = self._domain_sizes(recipe) if recipe.method.kind.uses_domains else ()
            self._planned[key] = PlannedRun(
                name=run_name(identity, data),
                recipe=recipe,
                identity=identity,
                data=data,
                split=split,
                split_hash=hashed,
                parts=tuple(self._run(part).name for part in self._parts(recipe)),
                selection_runs=tuple(self._run(other).name for other in self._selection_runs(recipe)),
                domain_sizes=sizes,
                rows_per_domain=recipe.training.rows_per_domain(sizes) if sizes else None,
            )
        return self._planned[key]

    def _check(self, recipe: Recipe) -> None:
        """Refuse a recipe that is impossible on these data; runs that differ in their seed alone are checked once."""
        checked = run_hash(identity_of(recipe.replace(seed=0)))
        if checked not in self._checked:
            split = self.split(recipe)
            refuse_settings(recipe, self.dataset, split)
            check_scoring(recipe, split, self.dataset)
            self._domain_sizes(recipe)
            self._checked.add(checked)

    def _check_build_once(self, run: PlannedRun) -> None:
        chosen = run.recipe.model_dump(include={"body", "pretrained", "shrunk", "backbone"})
        built = run_hash({"method": plain(run.recipe.method), **chosen})
        if built not in self._checked or run.recipe.backbone is not None:
            self.check_build(run)
            self._checked.add(built)

    def _split(self, recipe: Recipe) -> tuple[HoldOut, str]:
        key = recipe.split_key
        if key not in self._splits:
            chosen: dict[str, Any] = {"validation": recipe.validation, "seed": recipe.split_seed}
            if recipe.validation_domain is not None:
                split = kept_apart(self.dataset, recipe.hold_out, recipe.validation_domain, **chosen)
            elif recipe.hold_out is None:
                split = all_sources(self.dataset, **chosen)
            else:
                split = hold_outs(self.dataset, [recipe.hold_out], **chosen)[0]
            self._splits[key] = split, split_hash(split)
        return self._splits[key]

    def _parts(self, recipe: Recipe) -> list[Recipe]:
        """The runs that this one is made of."""
        if recipe.method.mode == "fine_tune":
            activation = recipe.method.kind.frozen_activation(recipe.method.settings)
            erm = choose_method("erm", {"activation": activation})
            return [] if recipe.backbone is not None else [self.resolve(_under_erm(recipe, erm))]
        if isinstance(recipe.method.settings, MembersSettings):
            chosen = recipe.method.settings
            member = choose_method("erm", {"activation": chosen.activation})
            seeds = [recipe.seed + _MEMBER_SEEDS * number for number in range(chosen.members)]
            return [self.resolve(_under_erm(recipe, member).replace(seed=seed)) for seed in seeds]
        return []

    def _selection_runs(self, recipe: Recipe) -> list[Recipe]:
        """The runs that choose the epoch of this one: with one source after the other left out, and validated on."""
        if recipe.selection != "leave_one_source_out" or issubclass(recipe.method.kind, Ensemble):
            return []
        whole = recipe.training.model_copy(update={"patience": None})  # their curves are averaged epoch by epoch
        left_out = recipe.replace(selection="out_of_domain", training=whole)
        return [self.resolve(left_out.replace(validation_domain=name)) for name in self.split(recipe).sources]

    def _domain_sizes(self, recipe: Recipe) -> tuple[int, ...]:
        """Training rows of each group that stands for a domain; refused where a method that needs two has fewer."""
        kind, by = recipe.method.kind, recipe.training.group_by
        groups = groups_among(self.view(recipe), self.split(recipe).train, by)
        sizes = () if groups is None else groups.sizes
        if kind.uses_domains and len(sizes) < 2:
            raise DataError(too_few_domains(kind, len(sizes)))
        if mixes_vectors(recipe, self.dataset.inputs.kind):
            styles = styles_among(self.dataset, self.split(recipe).train, by)
            if styles is None or len(styles) < 2:
                raise DataError(too_few_styles(0 if styles is None else len(styles)))
        return sizes


def _under_erm(recipe: Recipe, erm: MethodChoice) -> Recipe:
    """The same training of a plain network; batches that the method alone asked for are plain again."""
    asked = recipe.training.sampling == recipe.method.kind.sampling
    training = recipe.training.model_copy(update={"sampling": "auto"} if asked else {})
    return recipe.replace(method=erm, training=training)
