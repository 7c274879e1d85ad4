"""A recipe: everything that decides what a run computes, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SerializeAsAny

from gated_domains.common.validation import PRESETS
from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.settings import Settings, parsed, plain, value_of
from gated_domains.training.settings import TrainingSettings

Mode = Literal["end_to_end", "fine_tune"]
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
    kind: Any = Field(exclude=True, repr=False)
    """The class, a ``gated_domains.methods.Method``; workers import it by reference."""

    @property
    def label(self) -> str:
        """What stands in a table: the name of a preset, or the method, its switches, how it is trained, what is set."""
        for name in PRESETS:
            if self._is_preset(name):
                return name
        default = plain(self.kind.settings_type())
        changed = [f"{name}={_short(value)}" for name, value in plain(self.settings).items() if value != default[name]]
        changed += [f"{name}={_short(value)}" for name, value in self.training.items() if name not in SWITCHES]
        if self.mode != self.kind.modes[0]:
            changed.insert(0, "fine-tuned")
        switched = [_switch(name, value) for name in SWITCHES if (value := self.training.get(name))]
        return " + ".join([self.kind.label, *switched]) + (f" [{', '.join(changed)}]" if changed else "")

    def _is_preset(self, preset: str) -> bool:
        name, fields = split_brackets(PRESETS[preset])
        training = {key: fields.pop(key) for key in list(fields) if key in _TRAINING}
        default = self.kind.modes[0]
        if (self.name, self.mode, self.training) != (name, default, training):
            return False
        return self.settings == self.kind.settings_type(**fields)

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


class RunConfig(Settings):
    """What the runs of a comparison share: everything but the method."""

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


class Recipe(RunConfig):
    """One run. ``hold_out`` names the domains never seen (``a+b`` for two), None: all of them are trained on.

    ``hold_out: official`` is the publisher's own division; ``selection: auto`` then goes by its validation part, and
    elsewhere by the mean over source domains. ``pretrained`` is where published weights of the body come from: ``auto``
    and ``true`` the usual cache, ``false`` none, else a file. ``shrunk`` takes a few layers of it, for smoke
    tests. ``backbone`` is the folder of a run whose body is started from, or kept as it is in fine-tuning.
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

    def identity(self, *, pretrained: str | None = None, backbone: str | None = None) -> dict[str, Any]:
        """Everything that decides the result on the same data: all fields but ``data``.

        ``pretrained`` and ``backbone`` are digests of the weights that the run starts from.
        """
        fields = {name: value for name, value in self.plain().items() if name != "data"}
        if self.backbone is not None:
            fields["pretrained"] = None  # not read where a body comes from another run
            fields["backbone"] = backbone
        elif self.body != "auto":
            fields["pretrained"] = pretrained
        return fields

    @property
    def label(self) -> str:
        """What stands in a table: the method's label, with all switches that are on."""
        on = {name: value for name in SWITCHES if (value := getattr(self.training, name))}
        return self.method.model_copy(update={"training": {**on, **self.method.training}}).label

    def with_method(self, method: MethodChoice) -> Recipe:
        """The same recipe with another method, trained as that asks for."""
        return self.replace(method=method, training=method.trained(self.training))

    def relative_to(self, folder: Path, *, named: Collection[str] = ()) -> Recipe:
        """The recipe with paths relative to a folder; data that go by a name (``named``) keep it."""
        source = Path(os.path.abspath(self.data.what))
        changes: dict[str, Any] = {}
        if self.data.what not in named and source.exists():
            # Not resolved to its last part: data behind a link go by the name of the link.
            path = os.path.relpath(source.parent.resolve() / source.name, folder.resolve())
            changes["data"] = self.data.model_copy(update={"what": path})
        for name in ("backbone", "pretrained"):
            given = getattr(self, name)
            if given is not None and Path(given).exists():
                changes[name] = os.path.relpath(Path(given).resolve(), folder.resolve())
        return self.replace(**changes)

    def replace(self, **changes: Any) -> Recipe:
        """The same recipe with some fields changed."""
        return self.model_copy(update=changes)


def mixes_vectors(recipe: Recipe, kind: str) -> bool:
    """Whether styles of vectors are mixed, between domains: of inputs of this kind, or of a frozen body's features."""
    vectors = kind not in MAPS or recipe.method.mode == "fine_tune"
    return vectors and recipe.training.mixstyle is not None


def split_brackets(written: str, where: str = "") -> tuple[str, dict[str, Any]]:
    """The name and the settings of ``name[setting=value,...]``."""
    name, _, inside = written.strip().rstrip("]").partition("[")
    fields: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in inside.split(","))):
        key, equals, value = item.partition("=")
        if not equals:
            raise DataError(f"{where}: settings are written name=value, got {item!r}")
        if key.strip() in fields:
            raise DataError(f"{where}: {key.strip()} is set twice; keep one of them")
        fields[key.strip()] = value_of(value)
    return name.strip(), fields


def _switch(name: str, value: Any) -> str:
    """A switch as a label has it, with its value where that is not the usual one."""
    return SWITCHES[name] if value == _USUAL[name] else f"{SWITCHES[name]} {_short(value)}"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)  # two settings never look like one
    return str(value).lower() if isinstance(value, bool) else str(value)
