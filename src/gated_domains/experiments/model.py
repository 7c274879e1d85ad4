"""A trained method with all it needs to read new data: what ``predict``, ``evaluate`` and exports start from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_of_bytes
from safetensors.torch import save as bytes_of_tensors
from torch import Tensor, nn

from gated_domains.backbones.backbone import Body
from gated_domains.backbones.bodies import BODIES
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, did_you_mean, first_line, written_whole
from gated_domains.data.inputs import Rows
from gated_domains.data.like import Schema
from gated_domains.layer.experts import MultiLabel, Task
from gated_domains.methods import METHODS, Classes, Method, Numbers, Problem
from gated_domains.runs.folder import MODEL_CARD, WEIGHTS
from gated_domains.runs.storage import read_json, write_json
from gated_domains.settings import parsed
from gated_domains.training.training_data import FrozenBody

FORMAT = 1
_AGAIN = "delete the run's folder and train it again"


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """What a network is built from: method and settings, body, inputs and outputs."""

    method: str
    mode: str
    settings: Mapping[str, Any]
    body: str
    kind: str
    inputs: tuple[int, ...]
    outputs: int
    architecture: Mapping[str, Any] = field(default_factory=dict)
    """What the body is built with besides the shape of its inputs: layers, width, vocabulary."""
    domains: tuple[int, ...] = ()
    """Training rows of each source domain, for a method that is told them."""
    rows_a_domain: int | None = None
    """Rows of one domain in a training batch, for such a method."""
    mean: float = 0.0
    scale: float = 1.0
    """Of the training targets, where a number is predicted."""

    @classmethod
    def read(cls, folder: Path) -> ModelSpec:
        """What the model in a run folder was built from."""
        return cls._parse(_card(folder / MODEL_CARD)["shape"])

    @classmethod
    def _parse(cls, stored: Mapping[str, Any]) -> ModelSpec:
        numbers = {"mean": float(stored["mean"]), "scale": float(stored["scale"])}
        lists = {"inputs": tuple(stored["inputs"]), "domains": tuple(stored["domains"])}
        return cls(**{**stored, **lists, **numbers})

    def build(self, *, task: Task, body: Body | None = None, make: Callable[[], Body] | None = None) -> Method:
        """The method, untrained; on ``body`` where one is given, which stays as it is in fine-tuning.

        ``make`` gives a body that has learned something elsewhere, a fresh copy at each call.
        """
        kind = METHODS[self.method]
        frozen = FrozenBody if self.mode == "fine_tune" else (lambda made: made)
        make = make or (lambda: BODIES[self.body](self.inputs, **self.architecture))
        problem = Problem(
            kind=self.kind,
            shape=self.inputs,
            outputs=self.outputs,
            task=task,
            make_body=lambda: frozen(make() if body is None else body),
            domains=self.domains,
            rows_a_domain=self.rows_a_domain,
        )
        settings = parsed(kind.settings_type, self.settings, f"method {self.method}")
        return kind.build(settings, problem, mode=self.mode)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False, kw_only=True)
class Model:
    """A trained method, and the schema (and with it the encoding) of data like those it was trained on."""

    method: Method
    spec: ModelSpec
    schema: Schema
    temperature: float = 1.0
    """That its probabilities are calibrated to; 1 where they are as trained."""
    trained_on: Mapping[str, Any] = field(default_factory=dict)
    """Which data, hold-out, seed and split it comes from."""

    def save(self, folder: Path) -> None:
        """Write ``model.safetensors`` and then ``model.json``, each whole."""
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.method.state_dict().items()}
        content = bytes_of_tensors({name: value.clone() for name, value in tensors.items()})
        with written_whole(folder / WEIGHTS) as draft:
            draft.write_bytes(content)
        card = {
            "format": FORMAT,
            "sha256": sha256(content).hexdigest(),
            "shape": {
                **vars(self.spec),
                "inputs": list(self.spec.inputs),
                "domains": list(self.spec.domains),
                "settings": dict(self.spec.settings),
                "architecture": dict(self.spec.architecture),
            },
            "schema": self.schema.describe(),
            "temperature": self.temperature,
            "trained_on": dict(self.trained_on),
        }
        write_json(folder / MODEL_CARD, card)

    @classmethod
    def load(cls, folder: Path) -> Model:
        """The model in a run folder."""
        card = _card(folder / MODEL_CARD)
        try:
            spec = ModelSpec._parse(card["shape"])
            _check_known(spec, folder)
            schema = Schema.from_description(card["schema"])
            temperature = float(card["temperature"])
            outputs = len(schema.class_names or schema.label_names or ("number",))
            if (tuple(schema.encoding.shape), outputs) != (spec.inputs, spec.outputs):
                raise ValueError("its shape and its schema do not go together")
            method = spec.build(task=_task_like(schema, spec.mean, spec.scale))
            trained_on = dict(card["trained_on"])
        except _UnknownPartError:
            raise
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DataError(f"{folder / MODEL_CARD} is damaged ({first_line(error)}); {_AGAIN}") from error
        load_weights(method, folder)
        return cls(method=method.eval(), spec=spec, schema=schema, temperature=temperature, trained_on=trained_on)


class _UnknownPartError(DataError):
    """A run that is whole, and names a method or a body that nothing has registered."""


def _check_known(spec: ModelSpec, folder: Path) -> None:
    """Refuse a method or a body of a module that was not imported."""
    registries: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
        ("method", spec.method, METHODS),
        ("body", spec.body, BODIES),
    )
    for what, name, known in registries:
        if name not in known:
            raise _UnknownPartError(
                f"{folder}: it was trained with the {what} {name!r}, which is not known here; import the module that "
                f"registers it, as in `python {name if what == 'method' else 'my_bodies'}.py predict ...` (see "
                f"docs/add-a-method.md){did_you_mean(name, known)}"
            )


def _task_like(schema: Schema, mean: float, scale: float) -> Task:
    if schema.label_names is not None:
        return MultiLabel()
    return Numbers(mean, scale) if schema.class_names is None else Classes()


def load_weights(method: nn.Module, folder: Path) -> None:
    """Put the weights of a run into a method of the same shape; refused where they changed since they were saved."""
    path, card = folder / WEIGHTS, _card(folder / MODEL_CARD)
    try:
        content = path.read_bytes()
        if sha256(content).hexdigest() != card.get("sha256"):
            raise ValueError(f"its SHA-256 is not the one in {MODEL_CARD}")
        method.load_state_dict(tensors_of_bytes(content))
    except FileNotFoundError as error:
        raise DataError(f"{path} is not there; {_AGAIN}") from error
    except (SafetensorError, RuntimeError, ValueError) as error:
        raise DataError(
            f"{path}: {first_line(error)}; it is cut short, damaged, or of another model: {_AGAIN}"
        ) from error


def digest_of_weights(folder: Path) -> str:
    """The SHA-256 of a run's weights, as its card has it."""
    return str(_card(folder / MODEL_CARD).get("sha256"))


def class_weights(dataset: DomainDataset, rows: Rows) -> Tensor:
    """Weights that give every class of the training rows the same say, and average 1 over those rows."""
    assert dataset.num_classes is not None
    counts = torch.bincount(torch.from_numpy(dataset.targets[rows]), minlength=dataset.outputs).double()
    present = (counts > 0).sum()
    return torch.where(counts > 0, counts.sum() / (present * counts.clamp_min(1)), 0.0).float()


def task_for(dataset: DomainDataset, rows: Rows, *, weighted: bool) -> Task:
    """What is minimised for these targets."""
    if dataset.task == "labels" and not weighted:
        return MultiLabel()
    if dataset.num_classes is not None:
        return Classes(class_weights(dataset, rows) if weighted else None)
    if weighted:
        here = "labels are" if dataset.task == "labels" else "a number is"
        raise DataError(f"class weights need classes, and here {here} predicted; leave class_weights out")
    targets = dataset.targets[rows].astype("float64")
    return Numbers(float(targets.mean()), float(targets.std()) or 1.0)


def _card(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise DataError(f"{path.parent} holds no trained model ({path.name} is not there); train it to its end first")
    card = read_json(path, cure=_AGAIN)
    if not isinstance(card, dict):
        raise DataError(f"{path} is damaged (it holds no mapping); {_AGAIN}")
    if card.get("format") != FORMAT:
        raise DataError(f"{path} is of format {card.get('format')!r}, this version reads {FORMAT}; {_AGAIN}")
    return card
