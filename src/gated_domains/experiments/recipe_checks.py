"""Recipes from text and files, with every ``auto`` filled in from the data and impossible combinations refused."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gated_domains.backbones.bodies import BODIES, default_body, weights_digest
from gated_domains.common.validation import PRESETS, nearest
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, did_you_mean, listing
from gated_domains.data.labels import groups_among
from gated_domains.data.named import DATASETS
from gated_domains.data.splits import OFFICIAL, HoldOut
from gated_domains.evaluation.metrics import SELECTION_RULES, metric_for
from gated_domains.evaluation.scores import metric_named
from gated_domains.experiments.model import digest_of_weights
from gated_domains.experiments.run_scores import TEST, VALIDATION, scorer_for
from gated_domains.methods import METHODS
from gated_domains.methods.method import Method
from gated_domains.runs.recipe import (
    _TRAINING,
    MAPS,
    DataSettings,
    MethodChoice,
    Recipe,
    RunConfig,
    TrainingSettings,
    split_brackets,
)
from gated_domains.runs.storage import run_hash
from gated_domains.settings import from_yaml, parsed, plain

_ARGUMENTS = {"data", "body", "training", "method", "seed", "hold_out"}
_FEW_ROWS = 3_000
_METHOD = r"[^,\[\]]+(?:\[[^\[\]]*\])?"


def choose_method(name: str, fields: Mapping[str, Any] | None = None, *, where: str = "") -> MethodChoice:
    """A method or preset by name with its settings; unknown names are refused with the nearest known ones."""
    given = dict(fields or {})
    if name in PRESETS:
        name, preset = split_brackets(PRESETS[name], where)
        given = {**preset, **given}
    if name not in METHODS:
        known = did_you_mean(name, [*METHODS, *PRESETS])
        raise DataError(f"{where + ': ' if where else ''}there is no method {name!r}{known}")
    kind = METHODS[name]
    mode = given.pop("mode", kind.modes[0])
    training = {name: given.pop(name) for name in list(given) if name in _TRAINING}
    if mode not in kind.modes:
        known = f"; it is always {kind.modes[0]}" if len(kind.modes) == 1 else did_you_mean(str(mode), kind.modes)
        raise DataError(f"{where + ': ' if where else ''}{name} has no mode {mode!r}{known}")
    said = f"{where}: method {name}" if where else f"method {name}"
    settings = parsed(kind.settings_type, given, said)
    # What goes with others is checked later, together with those of the training of all methods.
    alone = {"schedule": "constant", **training} if "patience" in training else training
    alone = {"fourier_mix": 1.0, **alone} if "consistency" in alone else alone
    checked = plain(parsed(TrainingSettings, alone, said))
    return MethodChoice(
        kind=kind, name=name, mode=mode, settings=settings, training={name: checked[name] for name in sorted(training)}
    )


def parse_methods(written: str, *, option: str = "--methods") -> list[MethodChoice]:
    """Methods as a command line has them: ``erm,gdu,gdu[coverage=false,num_bases=8]``."""
    if re.fullmatch(rf"\s*{_METHOD}\s*(?:,\s*{_METHOD}\s*)*", written) is None:
        raise DataError(f"{option} {written!r} cannot be read; write it as gdu,erm or gdu[num_bases=8,coverage=false]")
    found = []
    for item in re.findall(_METHOD, written):
        name, fields = split_brackets(item, f"{option} {item}")
        found.append(choose_method(name, fields, where=option))
    for place, choice in enumerate(found):
        if choice in found[:place]:
            raise DataError(f"{option} names {choice.label} twice; give each once, or with other settings")
    return found


def parse_recipe(fields: Mapping[str, Any], *, where: str) -> Recipe:
    """A recipe from plain fields; what is wrong is said in words, with the nearest known names."""
    given = dict(fields)
    method = given.pop("method", None)
    if isinstance(method, str):
        method = {"name": method}
    if not isinstance(method, Mapping) or not isinstance(method.get("name"), str):
        meant = None if "method" in fields else nearest("method", given)
        got = f"got {method!r}" if meant is None else f"there is {meant!r}; did you mean 'method'?"
        raise DataError(f"{where}: method must name one, as in `method: {{name: gdu}}`; {got}")
    chosen = choose_method(method["name"], {k: v for k, v in method.items() if k != "name"}, where=where)
    config = parsed(RunConfig, given, where)
    check_body(config.body, where=where)
    fields = {name: getattr(config, name) for name in RunConfig.model_fields}
    return Recipe(**{**fields, "training": chosen.trained(config.training)}, method=chosen)


def validate_config(
    protocol: Mapping[str, Any], *, data: DataSettings, body: str, training: TrainingSettings
) -> RunConfig:
    """What the runs of a comparison share; ``protocol`` has the fields of selection and scoring that were given."""
    for name in _ARGUMENTS & set(protocol):
        raise DataError(f"config names {name}, which is an argument of its own; write it there")
    config = parsed(RunConfig, {"data": data, "body": body, "training": training, **protocol}, "")
    if config.metric != "auto":
        metric_named(config.metric)
    return config


def check_body(name: str, *, where: str = "--body") -> str:
    """The name of a body, or ``auto``; others are refused with the nearest known one."""
    if name != "auto" and name not in BODIES:
        raise DataError(f"{where}: there is no body {name!r}{did_you_mean(name, BODIES)}")
    return name


def is_recipe(what: str) -> bool:
    """Whether this is a file with a recipe, not data or a card that stands for data."""
    path = Path(what)
    # Either will do: in one that lacks the other, that is what should be complained of.
    return (
        path.suffix.lower() in (".yaml", ".yml") and path.is_file() and bool({"method", "data"} & set(from_yaml(path)))
    )


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """The recipe in a YAML file; data given by a relative path lie beside it."""
    path = Path(path)
    recipe = parse_recipe(from_yaml(path), where=str(path))
    what = recipe.data.what
    if what and what not in DATASETS and (path.parent / what).exists():
        recipe = recipe.replace(data=recipe.data.model_copy(update={"what": str(path.parent / what)}))
    for name in ("backbone", "pretrained"):
        given = getattr(recipe, name)
        if given is not None and (path.parent / given).exists():
            recipe = recipe.replace(**{name: str(path.parent / given)})
    return recipe


def default_training(dataset: DomainDataset, changes: Mapping[str, Any]) -> TrainingSettings:
    """The settings for data: where rows are few, smaller batches and more epochs, or there would be too few steps."""
    if dataset.inputs.kind == "tokens":  # as transformers are usually fine-tuned
        usual = {
            "epochs": 3,
            "batch_size": 16,
            "rate": 2e-5,
            "weight_decay": 0.01,
            "schedule": "linear",
        }
        return parsed(TrainingSettings, {**usual, **changes}, "training")
    few, vectors = len(dataset) < _FEW_ROWS, dataset.inputs.kind not in (*MAPS, "graphs")
    base: dict[str, Any] = {"epochs": 20, "batch_size": 256} if vectors else {}
    if dataset.inputs.kind == "words":  # a network on words has learned them by heart after a few epochs
        base |= {"epochs": 6}
    if few:
        base = {"batch_size": 64, **({"epochs": 60} if vectors else {})}
    return parsed(TrainingSettings, {**base, **changes}, "training")


def resolve(recipe: Recipe, dataset: DomainDataset) -> Recipe:
    """The recipe with every ``auto`` filled in from the data and the method; a body for other data is refused."""
    if recipe.training.sampling == "auto":
        training = recipe.training.model_copy(update={"sampling": recipe.method.kind.sampling})
        recipe = recipe.replace(training=training)
    official = recipe.hold_out == OFFICIAL
    if recipe.selection == "auto":
        recipe = recipe.replace(selection="official" if official else "source_validation")
    if recipe.metric == "auto":
        published = dataset.published if official else None
        recipe = recipe.replace(metric=metric_for(dataset.task).name if published is None else published.metric)
    if recipe.body == "auto":
        return recipe.replace(body=default_body(dataset.inputs.kind))
    takes = BODIES[default_body(dataset.inputs.kind)].takes
    if BODIES[recipe.body].takes != takes:
        able = listing(name for name, body in BODIES.items() if body.takes == takes)
        raise DataError(
            f"the body {recipe.body!r} takes {BODIES[recipe.body].takes}, and {dataset.name} is "
            f"{dataset.inputs.describe()}; bodies for these data: {able}"
        )
    return recipe


def refuse_settings(recipe: Recipe, dataset: DomainDataset, split: HoldOut) -> None:
    """Refuse a recipe whose settings cannot be had on these data, or not all at once."""
    _refuse_training(recipe, dataset)
    _refuse_selection(recipe, split)


def _refuse_training(recipe: Recipe, dataset: DomainDataset) -> None:
    training, kind = recipe.training, dataset.inputs.kind
    if training.accumulate > 1 and recipe.method.kind.step is not Method.step:
        raise DataError(
            f"{recipe.label} has a step of its own, which cannot be cut into parts; leave accumulate out, or the method"
        )
    if training.accumulate > 1 and training.mixstyle is not None:
        raise DataError("styles are mixed over a whole batch; leave accumulate or mixstyle out")
    if training.sampling == "groups" and training.groups_per_batch % training.accumulate:
        raise DataError(
            f"a batch of {training.groups_per_batch} domains cannot be cut into {training.accumulate} parts; "
            "choose groups_per_batch as a multiple of accumulate"
        )
    if training.augment != "none" and kind not in MAPS:
        raise DataError(f"augment {training.augment} moves images, and these are {dataset.inputs.describe()}")
    if training.fourier_mix is not None and kind not in MAPS:
        described = dataset.inputs.describe()
        if recipe.label in PRESETS:
            raise DataError(f"{recipe.label} is for images, and these are {described}; choose erm or gdu")
        raise DataError(
            f"fourier_mix {training.fourier_mix:g} mixes the spectra of images, and these are {described}; "
            "leave fourier_mix out"
        )
    if training.fourier_mix is not None and recipe.backbone is not None and recipe.method.mode == "fine_tune":
        raise DataError(
            f"fourier_mix {training.fourier_mix:g} applies while a network is trained, and {recipe.label} keeps the "
            f"network of {recipe.backbone} frozen; set it for the run that trains the network"
        )
    if training.augment == "photos" and (kind != "images" or getattr(dataset.inputs, "standardise", False)):
        raise DataError(
            f"augment photos changes the brightness of pixels, and these are standardised "
            f"({dataset.inputs.describe()}); choose flips or turns"
        )
    if training.mixstyle is not None and kind in ("tokens", "graphs") and recipe.method.mode != "fine_tune":
        raise DataError(f"styles are mixed of images and of vectors, and these are {dataset.inputs.describe()}")


def _refuse_selection(recipe: Recipe, split: HoldOut) -> None:
    if recipe.hold_out == OFFICIAL and recipe.selection in ("out_of_domain", "leave_one_source_out"):
        raise DataError(
            f"the published division has its own validation rows, so {recipe.selection} has nothing to keep apart; "
            "select by official, or hold out domains by their names"
        )
    if recipe.selection == "out_of_domain" and recipe.validation_domain is None:
        raise DataError("selection out_of_domain needs validation_domain, the source domain to validate on")
    if recipe.selection != "out_of_domain" and recipe.validation_domain is not None:
        raise DataError(
            f"validation_domain {recipe.validation_domain} selects by out-of-domain validation; "
            "select by out_of_domain, or leave it out"
        )
    if recipe.training.swad and recipe.selection in ("leave_one_source_out", "last", "worst_class"):
        raise DataError(
            f"{recipe.label} averages over epochs that the validation loss chooses, so {recipe.selection} would "
            "choose for nothing; select by source_validation, or leave swad out"
        )
    if recipe.selection == "leave_one_source_out" and len(split.sources) < 2:
        raise DataError(
            f"with {recipe.hold_out} held out there is one source domain only, and leaving it out leaves none; "
            "select by source_validation"
        )
    if recipe.hold_out == OFFICIAL and recipe.score_by:
        raise DataError(
            "a published division is scored by its own groups; leave score_by out, or hold out domains by name"
        )
    if recipe.hold_out != OFFICIAL and recipe.selection == "official":
        raise DataError(f"selection official goes by a published division; hold out {OFFICIAL!r}, or select otherwise")


def check_scoring(recipe: Recipe, split: HoldOut, dataset: DomainDataset) -> None:
    """Refuse, before anything is trained, what could not be scored after it."""
    metric = metric_for(dataset.task, recipe.metric)
    if recipe.calibrate and dataset.num_classes is None:
        here = "labels are" if dataset.task == "labels" else "a number is"
        raise DataError(f"there is nothing to calibrate where {here} predicted; leave calibrate out")
    rule = SELECTION_RULES[recipe.selection]
    if rule.oracle and not len(split.test):
        raise DataError("the oracle selects by a held-out domain, and none is held out; name one, or select otherwise")
    if recipe.selection == "worst_class" and dataset.num_classes is None:
        here = "labels are" if dataset.task == "labels" else "a number is"
        raise DataError(f"there is no worst class where {here} predicted; select by source_validation")
    deciding = [("validation", VALIDATION, split.validation)]
    deciding += [("held-out", TEST, split.test)] * rule.oracle
    for what, part, rows in deciding:
        if not scorer_for(recipe, split, dataset, part).has_score(rows):
            of_groups = ", or those of each group that counts," * (split.key == OFFICIAL)
            raise DataError(
                f"the {len(rows):,} {what} rows{of_groups} share one target and have no {metric.label} to select by; "
                "choose another metric"
            )
    for rows in (split.validation, split.test):
        if recipe.score_by and len(rows):
            groups_among(dataset, rows, recipe.score_by)


def identity_of(recipe: Recipe) -> dict[str, Any]:
    """What distinguishes a run from others on the same data; weights that it starts from count by their digest.

    So does the source of a method that is not the package's own: an edited method is trained again.
    """
    known = recipe.backbone is None and recipe.body != "auto"
    identity = recipe.identity(
        pretrained=weights_digest(recipe.body, recipe.pretrained, shrunk=recipe.shrunk) if known else None,
        backbone=None if recipe.backbone is None else digest_of_weights(Path(recipe.backbone)),
    )
    kind = recipe.method.kind
    if kind.__module__.startswith("gated_domains."):
        return identity
    try:
        return {**identity, "code": run_hash({"source": inspect.getsource(kind)})}
    except (OSError, TypeError):  # typed into an interpreter
        return identity
