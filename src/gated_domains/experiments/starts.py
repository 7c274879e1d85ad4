"""Where a training starts: a fresh body, published weights, or the body of a run that never met what is held out."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gated_domains.backbones.backbone import Backbone
from gated_domains.backbones.bodies import BODIES, Body
from gated_domains.backbones.gated_norm import GatedNorm
from gated_domains.backbones.making import make_body
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import Encoding
from gated_domains.data.errors import DataError
from gated_domains.data.splits import HoldOut
from gated_domains.experiments.hashing import run_hash
from gated_domains.experiments.model import Model
from gated_domains.experiments.provenance import Seen, refuse_leak
from gated_domains.experiments.recipe import Recipe
from gated_domains.training.training_data import FrozenBody


class Starts:
    """The bodies that runs on one data set start from."""

    def __init__(self, dataset: DomainDataset, fingerprint: str, digests: NDArray[np.uint64]) -> None:
        self.dataset, self.fingerprint, self.digests = dataset, fingerprint, digests
        self._architectures: dict[str, dict[str, Any]] = {}

    def architecture(self, recipe: Recipe, encoding: Encoding) -> dict[str, Any]:
        """What the body is built with; published weights that are not to be had are refused here."""
        if recipe.backbone is not None:  # published weights are then not looked at
            recipe = recipe.but(pretrained="false")
        chosen = {name: getattr(recipe, name) for name in ("body", "pretrained", "shrunk")}
        key = run_hash({**chosen, "shape": list(encoding.shape), "about": encoding.about})
        if key not in self._architectures:
            with torch.random.fork_rng(devices=[]):
                self._architectures[key] = self.fresh(recipe, encoding).architecture()
        return self._architectures[key]

    def fresh(self, recipe: Recipe, encoding: Encoding) -> Body:
        """A body that has seen none of these data: random, or with published weights."""
        return make_body(
            recipe.body, encoding.shape, pretrained=recipe.pretrained, shrunk=recipe.shrunk, about=encoding.about
        )

    def maker(self, recipe: Recipe, split: HoldOut, encoding: Encoding) -> Callable[[], Body]:
        """What makes the body that a training starts from, a new one at each call."""
        if recipe.backbone is None:
            return lambda: self.fresh(recipe, encoding)
        body = body_of(self.backbone(recipe, split, encoding))
        return lambda: copy.deepcopy(body)

    def backbone(self, recipe: Recipe, split: HoldOut, encoding: Encoding) -> Model:
        """The model of another run; refused where it has met rows that are held out here, or is of another make."""
        assert recipe.backbone is not None
        place = Path(recipe.backbone)
        model = Model.load(place)
        refuse_leak(
            place,
            Seen.read(place),
            dataset=self.dataset,
            fingerprint=self.fingerprint,
            digests=self.digests,
            split=split,
            trained_on=model.trained_on,
        )
        ours = (recipe.body, list(encoding.shape))
        theirs = (model.shape.body, list(model.shape.inputs))
        if ours != theirs or model.schema.encoding.about != encoding.about:
            raise DataError(
                f"the backbone {place} is a {theirs[0]} for inputs of shape {theirs[1]}, and here is a {ours[0]} for "
                f"{ours[1]}; train one on data read and encoded alike"
            )
        built = self.architecture(recipe, encoding)
        if run_hash(dict(model.shape.architecture)) != run_hash(built):
            raise DataError(
                f"the backbone {place} is a {recipe.body} of {dict(model.shape.architecture)}, and here is one of "
                f"{built}; take one of the same size (shrunk or not)"
            )
        return model


def body_of(model: Model) -> Body:
    """The body of a trained model, free to be trained again; of one that was fine-tuned, the body that stood still."""
    backbone = model.method.backbone
    if not isinstance(backbone, Backbone):
        raise DataError(
            f"a {model.shape.method} has no one body that another run could start from; take that of an erm"
        )
    body = backbone.body.frozen.module if isinstance(backbone.body, FrozenBody) else backbone.body
    if any(isinstance(part, GatedNorm) for part in body.modules()):
        raise DataError("the norms of this body follow the gates it was trained with; take the body of an erm")
    # By its weights, not itself: it may be frozen, or be looked into by the gates of its own method.
    with torch.random.fork_rng(devices=[]):
        made = BODIES[model.shape.body](model.shape.inputs, **model.shape.architecture)
    made.load_state_dict(body.state_dict())
    return made
