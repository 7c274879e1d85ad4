"""From a planned run to the network and the data that are trained: encodings, initial bodies, methods, tasks."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric

from gated_domains.backbones.backbone import Backbone, Body
from gated_domains.backbones.bodies import BODIES, make_body, weights_note
from gated_domains.backbones.gated_norm import GatedNorm
from gated_domains.data.batches import Samples, place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import Encoding, fit_encoding
from gated_domains.data.errors import DataError, listing
from gated_domains.data.inputs import Rows
from gated_domains.experiments.model import Model, ModelSpec, task_for
from gated_domains.experiments.planner import PlannedRun
from gated_domains.experiments.source_data import SourceData
from gated_domains.layer.experts import Task
from gated_domains.methods import Method, Numbers
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.provenance import Provenance, refuse_leak
from gated_domains.runs.recipe import Recipe
from gated_domains.runs.storage import run_hash
from gated_domains.settings import plain
from gated_domains.training.training_data import FrozenBody, TrainingData


@dataclass(frozen=True, eq=False, kw_only=True)
class BuiltRun:
    """The network of a run and the data that it is trained on."""

    method: Method
    spec: ModelSpec
    view: DomainDataset
    """The data as its sources have it: kinds of columns, and which classes there are."""
    data: TrainingData
    encoding: Encoding
    task: Task

    def notes(self, recipe: Recipe) -> list[str]:
        """What a reader of the result should know of the encoding, the initial weights and the selection."""
        notes = list(self.encoding.notes)
        weights = weights_note(recipe.body, recipe.pretrained, shrunk=recipe.shrunk)
        if recipe.backbone is None and weights is not None:
            notes.append(weights)
        if recipe.validation_domain is not None:
            notes.append(f"selected by {recipe.validation_domain}, a source domain that does not train")
        return notes

    def process_notes(self, world: int, batch: int) -> list[str]:
        """What differs from one process with the same batch."""
        notes = []
        if world > 1 and self.method.per_rank():
            notes.append(f"with {world} processes, {listing(self.method.per_rank())} are per process")
        if batch % world:
            notes.append(
                f"with {world} processes, {batch % world} of the {batch} rows of a batch cannot be shared: left out"
            )
        return notes


class Builder:
    """Builds the networks of one data set, and keeps what its runs share: encodings and placed samples."""

    def __init__(self, data: SourceData) -> None:
        self.data, self.dataset = data, data.dataset
        self._samples: tuple[DomainDataset, str, Samples] | None = None
        self._encoding: tuple[DomainDataset, Rows, Encoding] | None = None

    def build(self, run: PlannedRun, parts: Sequence[RunFolder], fabric: Fabric) -> BuiltRun:
        """The network of a run, before its first step. ``parts`` are the finished runs that it is made of.

        Weights are drawn from torch's global generator.
        """
        recipe, view = run.recipe, self._view(run)
        encoding = self.encoding(run)
        task = task_for(view, run.split.train, weighted=recipe.training.class_weights)
        spec = self._spec(run, encoding, task)
        data = self._placed(run, encoding, fabric)
        if run.combines:
            spec = replace(spec, architecture=ModelSpec.read(parts[0].path).architecture)
            method = spec.build(task=task)
            return BuiltRun(method=method, spec=spec, view=view, data=data, encoding=encoding, task=task)
        bodies: list[Body] = []

        def keep(body: Body) -> Body:
            bodies.append(body)
            return body

        if recipe.method.mode == "fine_tune":
            model = self.backbone(run, encoding) if recipe.backbone is not None else Model.load(parts[0].path)
            method = spec.build(task=task, body=keep(body_of(model)))
        else:
            make = self._body_maker(run, encoding)
            method = spec.build(task=task, make=lambda: keep(make()))
        spec = replace(spec, architecture=bodies[0].architecture())
        return BuiltRun(method=method, spec=spec, view=view, data=data, encoding=encoding, task=task)

    def check(self, run: PlannedRun) -> None:
        """Refuse what cannot be built, before anything is trained: a network is built once and dropped."""
        encoding = self.encoding(run)
        if run.recipe.backbone is not None:
            body_of(self.backbone(run, encoding))
        task = task_for(self._view(run), run.split.train, weighted=run.recipe.training.class_weights)
        with torch.random.fork_rng(devices=[]):
            self._spec(run, encoding, task).build(task=task, make=lambda: self._fresh_body(run.recipe, encoding))

    def encoding(self, run: PlannedRun) -> Encoding:
        """Fitted once for all runs on the same training rows: a vocabulary of word pieces takes minutes."""
        kept, view = self._encoding, self._view(run)
        if kept is None or kept[0] is not view or not np.array_equal(kept[1], run.split.train):
            self._encoding = kept = (view, run.split.train, fit_encoding(view, run.split.train))
        return kept[2]

    def backbone(self, run: PlannedRun, encoding: Encoding) -> Model:
        """The model that a run starts from; refused if it has seen held-out rows, or is of another architecture."""
        recipe = run.recipe
        assert recipe.backbone is not None
        folder = Path(recipe.backbone)
        model = Model.load(folder)
        refuse_leak(
            folder,
            Provenance.read(folder),
            dataset=self.dataset,
            fingerprint=self.data.fingerprint,
            digests=self.data.digests,
            split=run.split,
            trained_on=model.trained_on,
        )
        ours = (recipe.body, list(encoding.shape))
        theirs = (model.spec.body, list(model.spec.inputs))
        if ours != theirs or model.schema.encoding.about != encoding.about:
            raise DataError(
                f"the backbone {folder} is a {theirs[0]} for inputs of shape {theirs[1]}, and here is a {ours[0]} for "
                f"{ours[1]}; train one on data read and encoded alike"
            )
        with torch.random.fork_rng(devices=[]):
            built = self._fresh_body(recipe, encoding).architecture()
        if run_hash(dict(model.spec.architecture)) != run_hash(built):
            raise DataError(
                f"the backbone {folder} is a {recipe.body} of {dict(model.spec.architecture)}, and here is one of "
                f"{built}; take one of the same size (shrunk or not)"
            )
        return model

    def _spec(self, run: PlannedRun, encoding: Encoding, task: Task) -> ModelSpec:
        numbers: dict[str, Any] = {"mean": task.mean, "scale": task.scale} if isinstance(task, Numbers) else {}
        return ModelSpec(
            method=run.recipe.method.name,
            mode=run.recipe.method.mode,
            settings=plain(run.recipe.method.settings),
            body=run.recipe.body,
            kind=self.dataset.inputs.kind,
            inputs=tuple(encoding.shape),
            outputs=self._view(run).outputs,
            domains=run.domain_sizes,
            rows_a_domain=run.rows_per_domain,
            **numbers,
        )

    def _body_maker(self, run: PlannedRun, encoding: Encoding) -> Callable[[], Body]:
        """What makes the body that a training starts from, a new one at each call."""
        if run.recipe.backbone is None:
            return lambda: self._fresh_body(run.recipe, encoding)
        body = body_of(self.backbone(run, encoding))
        return lambda: copy.deepcopy(body)

    def _fresh_body(self, recipe: Recipe, encoding: Encoding) -> Body:
        """A body that has seen none of these data: random, or with published weights."""
        pretrained = "false" if recipe.backbone is not None else recipe.pretrained
        return make_body(recipe.body, encoding.shape, pretrained=pretrained, shrunk=recipe.shrunk, about=encoding.about)

    def _placed(self, run: PlannedRun, encoding: Encoding, fabric: Fabric) -> TrainingData:
        """Samples are placed once for all hold-outs that encode them alike, as all of images do."""
        described = f"{fabric.device} {json.dumps(encoding.describe(), sort_keys=True)}"
        kept, view = self._samples, self._view(run)
        if kept is None or kept[0] is not view or kept[1] != described:
            self._samples = kept = (view, described, place(view, encoding, device=fabric.device))
        return TrainingData(dataset=view, samples=kept[2], train=run.split.train, validation=run.split.validation)

    def _view(self, run: PlannedRun) -> DomainDataset:
        return self.data.view(run.recipe, run.split, run.split_hash)


def body_of(model: Model) -> Body:
    """The body of a trained model, free to be trained again; of one that was fine-tuned, its frozen body."""
    backbone = model.method.backbone
    if not isinstance(backbone, Backbone):
        raise DataError(f"a {model.spec.method} has no one body that another run could start from; take that of an erm")
    body = backbone.body.frozen.module if isinstance(backbone.body, FrozenBody) else backbone.body
    if any(isinstance(part, GatedNorm) for part in body.modules()):
        raise DataError("the norms of this body follow the gates it was trained with; take the body of an erm")
    # By its weights, not itself: it may be frozen, or be hooked by the gates of its own method.
    with torch.random.fork_rng(devices=[]):
        made = BODIES[model.spec.body](model.spec.inputs, **model.spec.architecture)
    made.load_state_dict(body.state_dict())
    return made
