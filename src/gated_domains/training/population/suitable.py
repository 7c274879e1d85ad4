"""Which trainings can be stepped together: what a stack cannot do, and what members must share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gated_domains.backbones.cached import CachedBackbone
from gated_domains.data.encoding import FeatureEncoding
from gated_domains.data.sampling import Shuffled
from gated_domains.layer.units import GatedDomainUnits
from gated_domains.methods.method import Method
from gated_domains.training.loop import Training

# Terms of the loss, and where the weights of them stand.
_WEIGHTS = {
    "reconstruction": "lambda_ols",
    "sparsity": "lambda_l1",
    "entropy": "lambda_entropy",
    "orthogonality": "lambda_orth",
    "deviations": "lambda_dev",
}
_FREE = {*_WEIGHTS.values(), "training"}  # attributes that members may differ in


def why_alone(member: Training) -> str | None:
    """Why a training cannot be stepped together with others; None where it can."""
    settings, method = member.settings, member.method
    reasons = {
        "its body is trained too, or its features are not cached": not isinstance(method.backbone, CachedBackbone),
        "its features do not all lie on the device": not _resident(member),
        "styles are mixed": member.mixing is not None,
        f"{method.name} steps in a way of its own": type(method).step is not Method.step,
        f"{method.name} is told the domains": method.uses_domains or member.groups is not None,
        "its batches are not drawn plainly": not isinstance(member.sampler, Shuffled),
        "batches are cut into parts": settings.accumulate > 1,
        "weights are averaged over a valley": settings.swad,
        "sgd is not stacked": settings.optimizer == "sgd",
        "the loss is scaled in 16 bits": settings.precision == "16",
        "several processes train it": member.fabric.world_size > 1,
        "its step draws random numbers or keeps statistics": any(map(_restless, method.modules())),
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def odd_one_out(members: list[Training]) -> str | None:
    """What some members do not share with the first, and must; None where they share it all."""
    first = _shared(members[0])
    for number, member in enumerate(members[1:], start=1):
        own = _shared(member)
        odd = [name for name in first if not _same(own[name], first[name])]
        if odd:
            return f"{odd[0]} of member {number} is not that of member 0"
    return None


def term_weights(method: Method) -> dict[str, float]:
    """The weights of the loss's terms that have one, by name."""
    units = getattr(method, "units", None)
    if not isinstance(units, GatedDomainUnits):
        return {}
    return {name: float(getattr(units, attribute)) for name, attribute in _WEIGHTS.items()}


def _shared(member: Training) -> dict[str, Any]:
    method, settings = member.method, member.settings
    tensors = {**dict(method.named_parameters()), **dict(method.named_buffers())}
    fields = ("optimizer", "ema", "precision")
    return {
        "the method": type(method),
        "the shape of weights": {name: (t.shape, t.dtype, t.requires_grad) for name, t in tensors.items()},
        "the make-up": [(name, type(part), _plain(part)) for name, part in method.named_modules()],
        "the task": (type(method.task), vars(method.task)),
        "the set of penalties": [name for name, weight in term_weights(method).items() if weight > 0],
        "the batch size": len(next(member.sampler.batches(0))),
        "the width of features": member.material.samples.encoding.shape,
        "the device": member.device,
        **{f"the setting {name}": getattr(settings, name) for name in fields},
    }


def _plain(part: nn.Module) -> dict[str, Any]:
    """Attributes of a module that its output may depend on, beside its tensors."""
    kept = {name: value for name, value in vars(part).items() if not name.startswith("_") and name not in _FREE}
    return {name: value for name, value in kept.items() if isinstance(value, bool | int | float | str) or value is None}


def _same(one: Any, other: Any) -> bool:
    """Equality that goes into tensors."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and torch.equal(one.to(other.device), other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and type(one) is type(other):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _resident(member: Training) -> bool:
    samples = member.material.samples
    return samples.resident and isinstance(samples.encoding, FeatureEncoding)


def _restless(part: nn.Module) -> bool:
    if isinstance(part, nn.modules.dropout._DropoutNd):
        return part.p > 0
    return isinstance(part, nn.modules.batchnorm._NormBase)
