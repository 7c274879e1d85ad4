"""A recipe: everything that decides what a run computes, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SerializeAsAny, model_validator

from gated_domains.common.validation import PRESETS
from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.data.sampling import rows_a_domain
from gated_domains.settings import Settings, parsed, plain, value_of
from gated_domains.settings.search import Between

Precision = Literal["32", "bf16", "16", "64"]
ANNEALING = ("cosine", "linear")
"""Schedules that take the learning rate to 0."""
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


class TrainingSettings(Settings):
    """``patience`` epochs without a better validation score end a training, None: never.

    ``schedule`` "cosine" and "linear" take the learning rate to 0 over all epochs, so they take no patience: a
    training that stopped early would never anneal. "step" multiplies it by ``decay`` after every epoch, "plateau"
    after ``drop_after`` epochs without a better validation score. Before, it rises from 0 over ``warmup`` epochs.
    ``accumulate`` splits a batch into this number of parts, whose gradients are added up: less memory for the same
    update (penalties, and means over known labels, are then of each part). ``checkpoint_activations`` computes those of
    a large body twice rather than keep them. ``augment`` mirrors images ("flips"), turns them by right angles too
    ("turns"), or crops and mirrors them and changes brightness and contrast ("photos"). ``weight_decay`` is for all
    weights. Switches that go with every method: ``ema`` is the decay of a moving average of the weights, ``swad``
    averages them over the flat valley of the validation loss, which is evaluated ``swad_segments`` times an epoch,
    ``mixstyle`` is the probability of mixing styles in a batch, ``fourier_mix`` that of mixing the amplitude spectrum
    of an image with another's, ``consistency`` the weight of a loss between predictions on plain and mixed images.
    ``sampling`` "auto" is what the method asks for. A batch of "groups" has ``groups_per_batch`` domains, more where
    they are too small to fill it, unless ``repeat_rows`` allows rows twice. ``group_by`` names what stands for the
    domains in training: metadata columns, ``domain``, ``class``; nothing: the domains. With ``plateau_on`` "loss", the
    schedule "plateau" waits for a lower validation loss instead of a better score.
    """

    epochs: int = Field(default=30, ge=1)
    batch_size: int = Field(default=128, ge=1)
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    rate: Annotated[float, Between(1e-4, 1e-2, log=True)] = Field(default=1e-3, gt=0)
    weight_decay: Annotated[float, Between(1e-6, 1e-2, log=True)] = Field(default=0.0, ge=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    schedule: Literal["cosine", "constant", "linear", "step", "plateau"] = "cosine"
    decay: float = Field(default=0.96, gt=0, le=1)
    drop_after: int = Field(default=10, ge=1)
    plateau_on: Literal["score", "loss"] = "score"
    warmup: float = Field(default=0.0, ge=0)
    accumulate: int = Field(default=1, ge=1)
    checkpoint_activations: bool = False
    augment: Literal["none", "flips", "turns", "photos"] = "none"
    patience: int | None = Field(default=None, ge=1)
    ema: float | None = Field(default=None, gt=0, lt=1)
    swad: bool = False
    swad_segments: int = Field(default=4, ge=1)
    mixstyle: float | None = Field(default=None, gt=0, le=1)
    fourier_mix: float | None = Field(default=None, gt=0, le=1)
    consistency: float | None = Field(default=None, gt=0)
    class_weights: bool = False
    sampling: Literal["auto", "plain", "balanced", "groups", "single"] = "auto"
    group_by: tuple[str, ...] = ()
    groups_per_batch: int = Field(default=4, ge=1)
    repeat_rows: bool = False
    precision: Precision = "32"

    def rows_per_domain(self, sizes: Sequence[int]) -> int | None:
        """Rows of one domain in a training batch, for domains of these sizes."""
        return rows_a_domain(
            self.sampling,
            sizes,
            batch_size=self.batch_size,
            blocks=self.groups_per_batch,
            repeat_rows=self.repeat_rows,
        )

    @model_validator(mode="after")
    def _check_together(self) -> TrainingSettings:
        if self.swad and self.ema is not None:
            raise ValueError("swad and ema are two averages of the same weights; choose one of them")
        if self.patience is not None and self.schedule in ANNEALING:
            raise ValueError(
                f"patience {self.patience} may stop a training before the schedule {self.schedule} has taken the "
                "learning rate to 0; choose the schedule constant, step or plateau, or leave patience out"
            )
        if self.consistency is not None and self.fourier_mix is None:
            raise ValueError(
                f"consistency {self.consistency:g} compares plain with mixed images, and no images are mixed; set "
                "fourier_mix as well, for example 0.9"
            )
        if self.warmup >= self.epochs and self.warmup > 0:
            raise ValueError(f"warmup of {self.warmup:g} epochs leaves none of {self.epochs}; choose fewer")
        if self.accumulate > self.batch_size:
            raise ValueError(f"a batch of {self.batch_size} cannot be cut into {self.accumulate} parts")
        return self


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

    @property
    def split_key(self) -> tuple[str | None, str | None, float, int]:
        """What decides which rows are held out, validate and train."""
        return self.hold_out, self.validation_domain, self.validation, self.split_seed

    @property
    def description(self) -> str:
        """``ERM, north held out, seed 0``."""
        held_out = "all domains" if self.hold_out is None else f"{self.hold_out} held out"
        left_out = "" if self.validation_domain is None else f", validated on {self.validation_domain}"
        return f"{self.label}, {held_out}{left_out}, seed {self.seed}"

    def with_method(self, method: MethodChoice) -> Recipe:
        """The same recipe with another method, trained as that asks for."""
        return self.replace(method=method, training=method.trained(self.training))

    def relative_to(self, folder: Path, *, named: Collection[str] = ()) -> Recipe:
        """The recipe with paths relative to a folder; data that go by a name (``named``) keep it."""
        source = Path(os.path.abspath(self.data.what))
        changes: dict[str, Any] = {}
        if self.data.what and self.data.what not in named and source.exists():
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
