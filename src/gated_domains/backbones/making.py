"""A body by name: which architecture it has, and the weights it starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gated_domains.backbones.bodies import BODIES, Body
from gated_domains.backbones.published_weights import Weights, find_weights, load_filters
from gated_domains.backbones.torchvision_bodies import ImageNetBody
from gated_domains.backbones.transformer import DistilBERT, load_published, published_architecture
from gated_domains.data.errors import DataError, did_you_mean

_SMALL_DISTILBERT = {"layers": 2, "heads": 2, "width": 64, "hidden": 128, "positions": 64}
#: The same classes in a few layers, so that a whole comparison runs on a CPU within minutes.
_SHRUNK: dict[str, dict[str, Any]] = {
    "densenet121": {"blocks": (2, 2), "growth": 8, "stem": 16},
    "resnet50": {"blocks": (1, 1), "width": 16},
    "resnet18": {"blocks": (1, 1), "width": 32},
    "efficientnet-lite0": {"stages": 3},
    "distilbert": _SMALL_DISTILBERT,
    "distilbert-classifier": _SMALL_DISTILBERT,
    "gin": {"layers": 2, "width": 64},
}
_DEPTH = {
    "densenet121": "2 dense blocks",
    "resnet50": "2 blocks",
    "resnet18": "2 blocks",
    "efficientnet-lite0": "3 stages",
}


def make_body(
    name: str,
    shape: Sequence[int],
    *,
    pretrained: str = "auto",
    shrunk: bool = False,
    about: Mapping[str, Any] | None = None,
) -> Body:
    """The body of this name for samples of this shape, with the weights it starts from; never random unless said.

    ``pretrained`` is "auto" (published weights, where there are any for the body), "true", "false", or a path.
    ``shrunk`` makes a small network of the same classes, always from random weights. ``about`` is what an encoding says
    of its samples besides their shape: of tokens their ``vocabulary`` and ``pad``.
    """
    weights = chosen_weights(name, pretrained, shrunk=shrunk)
    kind, about = BODIES[name], dict(about or {})
    settings: dict[str, Any] = dict(_SHRUNK.get(name, {})) if shrunk else {}
    if issubclass(kind, DistilBERT):
        vocabulary = about.get("vocabulary")
        if weights is not None:
            settings = published_architecture(weights.path.parent, vocabulary=vocabulary)
            body = kind(shape, **settings)
            load_published(body, weights.path.parent)
            return body
        settings |= {key: about[key] for key in ("vocabulary", "pad") if key in about}
        if shrunk:
            settings["positions"] = max(settings["positions"], *shape)
    if issubclass(kind, ImageNetBody) and about.get("standardised"):
        settings["normalise"] = False
    made = kind(shape, **settings)
    if weights is not None:
        load_filters(made, weights)
    return made


def weights_note(name: str, pretrained: str = "auto", shrunk: bool = False) -> str | None:
    """What a table should say of the weights a body starts from; None where it is as everybody expects."""
    weights = chosen_weights(name, pretrained, shrunk=shrunk)
    if name not in _SHRUNK:
        return None
    if shrunk:
        return f"the body {name} is shrunk to {_DEPTH.get(name, '2 layers')} and trained from random weights"
    return f"the body {name} is trained from random weights" if weights is None else weights.note(name)


def weights_digest(name: str, pretrained: str = "auto", shrunk: bool = False) -> str | None:
    """The beginning of the SHA-256 of the file that a body starts from; None where its weights are random."""
    weights = chosen_weights(name, pretrained, shrunk=shrunk)
    return None if weights is None else weights.sha256()[:16]


def chosen_weights(name: str, pretrained: str, *, shrunk: bool) -> Weights | None:
    """The file that a body starts from; None: random weights."""
    if name not in BODIES:
        raise DataError(f"there is no body {name!r}{did_you_mean(name, BODIES)}")
    pretrained = pretrained.lower() if pretrained.lower() in ("auto", "true", "false") else pretrained
    if pretrained == "false" or (shrunk and pretrained == "auto"):
        return None
    if shrunk:
        raise DataError(
            f"a shrunk {name} has no published weights, so pretrained cannot be {pretrained!r}; "
            "leave pretrained out, or leave shrunk out"
        )
    return find_weights(name, pretrained)
