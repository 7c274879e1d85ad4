"""A recipe: all that decides what a run computes, and nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SerializeAsAny

from gated_domains.backbones.bodies import BODIES, default_body
from gated_domains.backbones.making import weights_digest
from gated_domains.common.names import PRESETS, nearest
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, did_you_mean, listing
from gated_domains.data.loading import DATASETS
from gated_domains.data.readers.reading import Reading
from gated_domains.data.splits import OFFICIAL
from gated_domains.evaluation.scores import metric_for, metric_named
from gated_domains.experiments.model import digest_of_weights
from gated_domains.methods import METHODS
from gated_domains.methods.method import Method, Mode
from gated_domains.settings import Settings, from_yaml, parsed, plain
from gated_domains.settings.plain_yaml import value_of
from gated_domains.training.settings import TrainingSettings

Selection = Literal[
    "auto",
    "official",
    "source_validation",
    "source_pooled",
    "source_loss",
    "worst_class",
    "out_of_domain",
    "leave_one_source_out",
    "last",
    "oracle",
]
MAPS = ("images", "bands")
"""Kinds of inputs that have height and width."""
SWITCHES = {
    "ema": "EMA",
    "swad": "SWAD",
    "mixstyle": "MixStyle",
    "fourier_mix": "Fourier",
    "consistency": "consistency",
}
"""Settings of a training that go with every method, and what they are called in a table."""
_TRAINING = frozenset(TrainingSettings.model_fields)
_USUAL = {"ema": 0.999, "mixstyle": 0.5, "swad": True, "fourier_mix": 0.9, "consistency": 1.0}
_FEW_ROWS = 3_000
_METHOD = r"[^,\[\]]+(?:\[[^\[\]]*\])?"


class DataSettings(Settings):
    """Which data, and how they are read; ``seed`` is for data made in code."""

    what: str
    target: str | None = None
    domain: str | None = None
    positive: tuple[str, ...] | None = None
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    keep_together: str | None = None
    drop_missing_target: bool = False
    task: str | None = None
    image_size: int | None = None
    text: str | None = None
    smiles: str | None = None
    form: str | None = None
    tokens: int | None = Field(default=None, ge=1)
    tokenizer: str | None = None
    fraction: float | None = Field(default=None, gt=0, lt=1)
    seed: int = Field(default=0, ge=0)

    @classmethod
    def of(cls, what: str | os.PathLike[str], reading: Reading, seed: int = 0) -> DataSettings:
        """The settings for data named on a command line."""
        return cls(what=os.fspath(what), seed=seed, **vars(reading))

    @property
    def reading(self) -> Reading:
        """How the data are read."""
        return Reading(**{name: getattr(self, name) for name in Reading.__dataclass_fields__})


class MethodChoice(Settings):
    """A method by name, with its settings and the way it is trained."""

    name: str
    mode: Mode = "end_to_end"
    settings: SerializeAsAny[Settings]
    training: dict[str, Any] = Field(default_factory=dict)
    """Settings of its training that differ from those of the other methods beside it."""

    @property
    def kind(self) -> type[Method]:
        """The class."""
        if self.name not in METHODS:  # a worker of another machine, which has not run the script that put it there
            raise DataError(f"{self.name} is not known to a worker; keep it in a module that workers can import")
        return METHODS[self.name]

    @property
    def label(self) -> str:
        """What stands in a table: the name of a preset, or the method, its switches, how it is trained, what is set."""
        for name in PRESETS:
            if self == choose_method(name):
                return name
        default = plain(self.kind.settings_type())
        changed = [f"{name}={_short(value)}" for name, value in plain(self.settings).items() if value != default[name]]
        changed += [f"{name}={_short(value)}" for name, value in self.training.items() if name not in SWITCHES]
        if self.mode != self.kind.modes[0]:
            changed.insert(0, "fine-tuned")
        switched = [_switch(name, value) for name in SWITCHES if (value := self.training.get(name))]
        return " + ".join([self.kind.label, *switched]) + (f" [{', '.join(changed)}]" if changed else "")

    def trained(self, training: TrainingSettings) -> TrainingSettings:
        """The settings of its training, where these are those of all methods."""
        fields = {**plain(training), **self.training}
        return parsed(TrainingSettings, fields, f"method {self.name}") if self.training else training

    def refuse_contradiction(self, training: Mapping[str, Any]) -> None:
        """Refuse options for a training of this method alone that differ from the settings it is written with."""
        for name, value in training.items():
            own = self.training.get(name, value)
            if own != value:
                raise DataError(
                    f"{name} {value} is asked for, and {self.label} has {name} {own}; leave the option out, or write "
                    f"{name}={value} in the brackets of the method"
                )


class Frame(Settings):
    """A run but for its method, whose settings are known only once its name is."""

    data: DataSettings
    hold_out: str | None = None
    validation: float = Field(default=0.2, gt=0, lt=1)
    split_seed: int = Field(default=0, ge=0)
    validation_domain: str | None = None
    body: str = "auto"
    pretrained: str = "auto"
    shrunk: bool = False
    backbone: str | None = None
    training: TrainingSettings = TrainingSettings()
    selection: Selection = "auto"
    metric: str = "auto"
    score_by: tuple[str, ...] = ()
    calibrate: bool = False
    seed: int = Field(default=0, ge=0)


class Recipe(Frame):
    """One run. ``hold_out`` names the domains never seen (``a+b`` for two), None: all of them are trained on.

    ``hold_out: official`` is the publisher's own division; ``selection: auto`` then goes by its validation part, and
    elsewhere by the mean over source domains. ``pretrained`` is where published weights of the body come from: ``auto``
    and ``true`` the usual cache, ``false`` none, else a file. ``shrunk`` takes a few layers of it, to see that a road
    works. ``backbone`` is the folder of a run whose body is started from, or kept as it is in fine-tuning.
    ``validation_domain`` names source domains (``a+b``) that select rather than train, for out-of-domain validation.
    ``training`` has what the method changes in it put in. ``score_by`` names what groups are scored beside domains:
    metadata columns, ``domain``, ``class``. ``calibrate`` fits a temperature to probabilities on validation rows.
    """

    method: MethodChoice

    def plain(self) -> dict[str, Any]:
        """The recipe as it is written in YAML; what the method changes in its training stands there alone."""
        fields = plain(self)
        chosen = fields["method"]
        fields["method"] = {"name": chosen["name"], "mode": chosen["mode"], **chosen["settings"]}
        return fields

    def identity(self) -> dict[str, Any]:
        """All that decides the result on the same data: every field but ``data``, with weights by their digest."""
        fields = {name: value for name, value in self.plain().items() if name != "data"}
        if self.backbone is not None:
            fields["pretrained"] = None  # published weights are not looked at where a body is started from
            fields["backbone"] = digest_of_weights(Path(self.backbone))
        elif self.body != "auto":
            fields["pretrained"] = weights_digest(self.body, self.pretrained, shrunk=self.shrunk)
        return fields

    @property
    def label(self) -> str:
        """What stands in a table: the method's label, with all switches that are on."""
        on = {name: value for name in SWITCHES if (value := getattr(self.training, name))}
        return self.method.model_copy(update={"training": {**on, **self.method.training}}).label

    def with_method(self, method: MethodChoice) -> Recipe:
        """The same recipe with another method, trained as that asks for."""
        return self.but(method=method, training=method.trained(self.training))

    def seen_from(self, folder: Path) -> Recipe:
        """The recipe as it is written there: data in files are named by the way to them, which ``read_recipe`` goes."""
        place = Path(os.path.abspath(self.data.what))
        changes: dict[str, Any] = {}
        if self.data.what not in DATASETS and place.exists():
            # Not resolved to its last part: data behind a link go by the name of the link.
            way = os.path.relpath(place.parent.resolve() / place.name, folder.resolve())
            changes["data"] = self.data.model_copy(update={"what": way})
        for name in ("backbone", "pretrained"):
            given = getattr(self, name)
            if given is not None and Path(given).exists():
                changes[name] = os.path.relpath(Path(given).resolve(), folder.resolve())
        return self.but(**changes)

    def but(self, **changes: Any) -> Recipe:
        """The same recipe with some fields changed."""
        return self.model_copy(update=changes)


def choose_method(name: str, fields: Mapping[str, Any] | None = None, *, where: str = "") -> MethodChoice:
    """A method or preset by name with its settings; unknown names are refused with the nearest known ones."""
    given = dict(fields or {})
    if name in PRESETS:
        name, _, inside = PRESETS[name].rstrip("]").partition("[")
        given = {**_fields_written(inside, where), **given}
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
        name=name, mode=mode, settings=settings, training={name: checked[name] for name in sorted(training)}
    )


def methods_written(written: str, *, option: str = "--methods") -> list[MethodChoice]:
    """Methods as a command line has them: ``erm,gdu,gdu[coverage=false,num_bases=8]``."""
    if re.fullmatch(rf"\s*{_METHOD}\s*(?:,\s*{_METHOD}\s*)*", written) is None:
        raise DataError(f"{option} {written!r} cannot be read; write it as gdu,erm or gdu[num_bases=8,coverage=false]")
    found = []
    for item in re.findall(_METHOD, written):
        name, _, inside = item.rstrip("]").partition("[")
        found.append(choose_method(name.strip(), _fields_written(inside, f"{option} {item}"), where=option))
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
    frame = parsed(Frame, given, where)
    checked_body(frame.body, where=where)
    fields = {name: getattr(frame, name) for name in Frame.model_fields}
    return Recipe(**{**fields, "training": chosen.trained(frame.training)}, method=chosen)


def checked_frame(protocol: Mapping[str, Any], *, data: DataSettings, body: str, training: TrainingSettings) -> Frame:
    """What the runs of a comparison share; ``protocol`` has the fields of selection and scoring that were given."""
    frame = parsed(Frame, {"data": data, "body": body, "training": training, **protocol}, "")
    if frame.metric != "auto":
        metric_named(frame.metric)
    return frame


def checked_body(name: str, *, where: str = "--body") -> str:
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
        recipe = recipe.but(data=recipe.data.model_copy(update={"what": str(path.parent / what)}))
    for name in ("backbone", "pretrained"):
        given = getattr(recipe, name)
        if given is not None and (path.parent / given).exists():
            recipe = recipe.but(**{name: str(path.parent / given)})
    return recipe


def resolved(recipe: Recipe, dataset: DomainDataset) -> Recipe:
    """The recipe with every ``auto`` filled in from the data and the method; a body for other data is refused."""
    if recipe.training.sampling == "auto":
        training = recipe.training.model_copy(update={"sampling": recipe.method.kind.sampling})
        recipe = recipe.but(training=training)
    official = recipe.hold_out == OFFICIAL
    if recipe.selection == "auto":
        recipe = recipe.but(selection="official" if official else "source_validation")
    if recipe.metric == "auto":
        published = dataset.published if official else None
        recipe = recipe.but(metric=metric_for(dataset.task).name if published is None else published.metric)
    if recipe.body == "auto":
        return recipe.but(body=default_body(dataset.inputs.kind))
    takes = BODIES[default_body(dataset.inputs.kind)].takes
    if BODIES[recipe.body].takes != takes:
        able = listing(name for name, body in BODIES.items() if body.takes == takes)
        raise DataError(
            f"the body {recipe.body!r} takes {BODIES[recipe.body].takes}, and {dataset.name} is "
            f"{dataset.inputs.describe()}; bodies for these data: {able}"
        )
    return recipe


def mixes_vectors(recipe: Recipe, dataset: DomainDataset) -> bool:
    """Whether styles of vectors are mixed, which goes by their domains: of inputs, or of a frozen body's features."""
    vectors = dataset.inputs.kind not in MAPS or recipe.method.mode == "fine_tune"
    return vectors and recipe.training.mixstyle is not None


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


def _fields_written(written: str, where: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in written.split(","))):
        key, equals, value = item.partition("=")
        if not equals:
            raise DataError(f"{where}: settings are written name=value, got {item!r}")
        if key.strip() in fields:
            raise DataError(f"{where}: {key.strip()} is there twice; which is meant?")
        fields[key.strip()] = value_of(value)
    return fields


def _switch(name: str, value: Any) -> str:
    """A switch as a label has it, with its value where that is not the usual one."""
    return SWITCHES[name] if value == _USUAL[name] else f"{SWITCHES[name]} {_short(value)}"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)  # two settings never look like one
    return str(value).lower() if isinstance(value, bool) else str(value)
