"""The runs of a comparison: every method on every hold-out with every seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.splits import OFFICIAL, HoldOut, hold_outs
from gated_domains.experiments.planner import Plan, Planner
from gated_domains.experiments.recipe_checks import choose_method, parse_methods
from gated_domains.methods import METHODS
from gated_domains.methods.method import Method
from gated_domains.runs.recipe import MAPS, MethodChoice, Recipe, RunConfig
from gated_domains.runs.result import RunResult

BASELINE = "erm"
SMALL_ROWS = 5_000
"""Below, every seed draws its own train/validation split: the choice of rows matters as much as the initial weights."""
_MANY_SEEDS, _FEW_SEEDS = 5, 2
MIXED_ERM = "erm[ema=0.995,fourier_mix=0.9]"
"""Plain training with the mixing and the averaging of ``recommended``: what gates and consistency are compared with."""
_SWITCHED = "erm[mixstyle=0.5],erm[ema=0.999],erm[swad=true],gdu[mixstyle=0.5]"
MethodLike = str | MethodChoice | type[Method]


@dataclass(frozen=True, eq=False, kw_only=True)
class Grid:
    """What a comparison trains. ``left_out`` says of default methods why they cannot be run on the data."""

    dataset: DomainDataset
    hold_out: str
    splits: Sequence[HoldOut]
    methods: Sequence[MethodChoice]
    seeds: int
    config: RunConfig
    recipes: Sequence[Recipe]
    plan: Plan
    left_out: Mapping[str, str]

    def summary(self, root: Path, trials: int | None = None) -> str:
        """What is going to be trained, in a few lines."""
        dataset, splits = self.dataset, self.splits
        official = splits[0].key == OFFICIAL
        in_folds = self.hold_out == "default" and len(splits) < len(dataset.domain_names) and not official
        todo, done = self.plan.missing(root)
        count = len(todo) + done
        counted = (("hold-out", len(splits)), ("method", len(self.methods)), ("seed", self.seeds))
        grid = " x ".join(f"{number} {what}{'s' * (number != 1)}" for what, number in counted)
        return (
            f"{dataset.name}: {len(dataset):,} rows, {dataset.inputs.describe()}, {len(dataset.domain_names)} domains\n"
            f"{count} training{'s' * (count != 1)} ({grid}"
            + ", and their prerequisites" * (count > len(self.recipes))
            + ")"
            + f", {done} of them done already" * bool(done)
            + "; every seed draws its own train/validation split"
            * (self.seeds > 1 and split_varies(dataset, splits[0], self.config))
            + f"; before them, {trials} trials of settings for each method and hold-out" * (trials is not None)
            + f"\n{len(dataset.domain_names)} domains are many: they are held out in folds" * in_folds
            + "\nheld out as published: train trains, val selects, test is scored" * official
            + "".join(f"\nleft out: {why}" for why in self.left_out.values())
        )


def plan_grid(
    planner: Planner,
    methods: str | Sequence[MethodLike] | None,
    *,
    hold_out: str = "default",
    seeds: int | None = None,
    config: RunConfig,
) -> Grid:
    """One recipe per run, a whole seed before the next: what is finished early makes a table.

    ``config`` is what all runs share; on small data the seed of a run also draws its train/validation split. What
    cannot be run on these data is refused here, before the first training.
    """
    dataset = planner.dataset
    seeds = default_seeds(dataset) if seeds is None else seeds
    if seeds < 1:
        raise DataError(f"there must be at least one seed, got {seeds}")
    splits = hold_outs(dataset, hold_out, validation=config.validation, seed=config.split_seed)
    left_out: dict[str, str] = {}
    if methods is None:
        choices, left_out = default_methods(planner, splits, config=config)
    elif isinstance(methods, str) and methods.strip() == "all":
        choices, left_out = every_method(planner, splits, config=config)
    else:
        choices = chosen_methods(methods)
    recipes = [
        _recipe(planner, split, method, seed, config) for seed in range(seeds) for split in splits for method in choices
    ]
    _refuse_repeated(recipes[: len(choices)], choices)
    return Grid(
        dataset=dataset,
        hold_out=hold_out,
        splits=splits,
        methods=choices,
        seeds=seeds,
        config=config,
        recipes=recipes,
        plan=planner.plan(recipes),
        left_out=left_out,
    )


def chosen_methods(methods: str | Sequence[MethodLike]) -> list[MethodChoice]:
    """Methods by name, as choices, or as classes; a class that is not registered yet is registered by its name."""
    if isinstance(methods, str):
        return parse_methods(methods)
    chosen: list[MethodChoice] = []
    for method in methods:
        if isinstance(method, type):
            chosen.append(choose_method(_registered(method)))
        elif isinstance(method, str | MethodChoice):
            chosen += parse_methods(method, option="methods") if isinstance(method, str) else [method]
        else:
            raise DataError(f"methods holds {method!r}; give names, such as 'gdu', or subclasses of Method")
    if not chosen:
        raise DataError("methods names none; give one, such as 'gdu', or leave it out")
    return chosen


def _registered(method: type[Method]) -> str:
    """The name of a method class, registered where it is new or defined again."""
    if not issubclass(method, Method):
        raise DataError(f"methods holds the class {method.__name__}, which is no subclass of gated_domains.Method")
    known = METHODS.setdefault(method.name, method)
    if (known.__module__, known.__qualname__) != (method.__module__, method.__qualname__):
        raise DataError(f"{method.__name__}: there is another method {method.name!r}; give it another name")
    METHODS[method.name] = method
    return method.name


def default_seeds(dataset: DomainDataset) -> int:
    """Five where a training takes about a second, on fewer than 5,000 rows of numbers or words; else two."""
    short = len(dataset) < SMALL_ROWS and dataset.inputs.kind not in (*MAPS, "graphs", "tokens")
    return _MANY_SEEDS if short else _FEW_SEEDS


def default_methods(
    planner: Planner, splits: Sequence[HoldOut], *, config: RunConfig
) -> tuple[list[MethodChoice], dict[str, str]]:
    """GDU, plain training and a linear head; on images also Fourier mixing alone, and the recommended recipe.

    Methods that cannot be run on the data, or with the options for all, are left out with the reason, and so are
    duplicates.
    """
    images = planner.dataset.inputs.kind in MAPS
    written = f"recommended,gdu,{MIXED_ERM},erm,linear" if images else "gdu,erm,linear"
    plainest_first = parse_methods(written)[::-1]  # of duplicates the plainest is kept
    able, unable = _usable(plainest_first, planner, splits, config)
    return able[::-1], unable


def every_method(
    planner: Planner, splits: Sequence[HoldOut], *, config: RunConfig
) -> tuple[list[MethodChoice], dict[str, str]]:
    """All methods, and the switches on ERM and GDU, without duplicates; of those that cannot be run here, why."""
    switched = parse_methods(_SWITCHED)
    if planner.dataset.inputs.kind in MAPS:
        switched += parse_methods(f"{MIXED_ERM},recommended")
    return _usable([*(choose_method(name) for name in METHODS), *switched], planner, splits, config)


def _usable(
    choices: Sequence[MethodChoice], planner: Planner, splits: Sequence[HoldOut], config: RunConfig
) -> tuple[list[MethodChoice], dict[str, str]]:
    """Methods that can be run here, without duplicates under the options for all; by label why others cannot."""
    able: dict[str, MethodChoice] = {}
    unable: dict[str, str] = {}
    errors: list[DataError] = []
    for choice in choices:
        try:
            key = repr((choice.name, choice.mode, choice.settings, choice.trained(config.training)))
            if key not in able:
                planner.plan([_recipe(planner, split, choice, 0, config) for split in splits])
        except DataError as error:
            errors.append(error)
            why = str(error)
            unable[choice.label] = why if why.startswith(choice.kind.label) else f"{choice.label}: {why}"
        else:
            able.setdefault(key, choice)
    if not able:
        raise errors[0]
    return list(able.values()), unable


def split_varies(dataset: DomainDataset, split: HoldOut, config: RunConfig) -> bool:
    """Whether every seed draws its own validation rows: on small data, unless they are given or make up a domain."""
    drawn = dataset.official_test is None and not split.pooled and config.selection != "out_of_domain"
    return len(dataset) < SMALL_ROWS and drawn


def _refuse_repeated(recipes: Sequence[Recipe], methods: Sequence[MethodChoice]) -> None:
    """Refuse two methods that have one label in a table, once the settings of all methods are put into each."""
    known: dict[str, MethodChoice] = {}
    for recipe, method in zip(recipes, methods, strict=True):
        if recipe.label in known:
            raise DataError(
                f"{known[recipe.label].label} and {method.label} are the same training with the options for all "
                "methods; leave one of them out, or put the options into brackets"
            )
        known[recipe.label] = method


def _recipe(planner: Planner, split: HoldOut, method: MethodChoice, seed: int, config: RunConfig) -> Recipe:
    shared = {name: getattr(config, name) for name in RunConfig.model_fields}
    shared |= {"hold_out": split.key, "seed": seed, "training": method.trained(config.training)}
    if config.selection == "out_of_domain":
        shared["validation_domain"] = _selecting_domain(split, planner.dataset.domain_names, config.validation_domain)
    if split_varies(planner.dataset, split, config):
        shared["split_seed"] = config.split_seed + seed
    recipe = Recipe(**shared, method=method)
    if recipe.validation_domain is None:
        # Under the name it has here: a fold is otherwise called by its domains.
        planner.use_split(
            split if recipe.split_seed == config.split_seed else replace(planner.split(recipe), name=split.name),
            recipe,
        )
    return recipe


def _selecting_domain(split: HoldOut, names: Sequence[str], wanted: str | None) -> str:
    """The source domain to validate on: the one asked for, or where that is held out the next one after it."""
    left = [] if wanted is None else [name for name in wanted.split("+") if name not in split.held_out]
    if left:
        return "+".join(left)
    start = -1 if split.pooled else max(names.index(name) for name in split.held_out)
    return next(name for name in [*names[start + 1 :], *names] if name in split.sources)


def named_as_asked(
    results: Sequence[RunResult], recipes: Sequence[Recipe], splits: Sequence[HoldOut]
) -> list[RunResult]:
    """The results of recipes under the names asked for here: a run that was found may be called otherwise."""
    names = {frozenset(split.held_out): split.name for split in splits}
    return [
        replace(result, hold_out=names[frozenset(result.held_out)], label=recipe.label)
        for result, recipe in zip(results, recipes, strict=True)
    ]
