"""A recipe: all that decides what a run computes, and nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gated_domains.backbones.bodies import BODIES
from gated_domains.common.validation import PRESETS, nearest
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, did_you_mean
from gated_domains.data.loading import DATASETS
from gated_domains.evaluation.scores import metric_named
from gated_domains.methods import METHODS
from gated_domains.runs.recipe import _TRAINING, MAPS, DataSettings, MethodChoice, Recipe, RunConfig, split_brackets
from gated_domains.settings import from_yaml, parsed, plain
from gated_domains.training.settings import TrainingSettings

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
