"""What a layer is made of, in words and numbers that belong to neither side."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from gated_domains.keras_layer import experts, gates, kernels
from gated_domains.keras_layer.arrays import keras
from gated_domains.keras_layer.penalties import ORTHOGONALITY, Target
from gated_domains.keras_layer.tasks import ProbabilisticRegression
from gated_domains.keras_layer.transfer import parts
from gated_domains.keras_layer.transfer.pytorch import pytorch
from gated_domains.keras_layer.units import GatedDomainUnits

if TYPE_CHECKING:
    from gated_domains.layer import GatedDomainUnits as TorchUnits

_LAMBDAS = tuple(GatedDomainUnits.LAMBDAS.values())


@dataclass(frozen=True, kw_only=True)
class DescribedExperts:
    """The class of experts and its settings; ``hidden`` for those that have a hidden layer."""

    kind: str
    activation: str | None
    bias: bool
    hidden: int | None

    def settings(self, activation: Any) -> dict[str, Any]:
        """What the class takes, with the activation as the one side or the other has it."""
        return {"activation": activation, "bias": self.bias} | ({} if self.hidden is None else {"hidden": self.hidden})


@dataclass(frozen=True, kw_only=True)
class Described:
    """The make of a layer, and the settings that a copy of weights leaves alone (those that are not compared)."""

    in_features: int
    gating_features: int
    out_features: int
    max_bases: int
    basis_size: int
    kernel: parts.DescribedKernel
    gate: parts.DescribedGate
    experts: DescribedExperts
    shared: bool
    coverage: bool
    #: Of a probabilistic regression; None for layers that give one number an output.
    min_scale: float | None
    num_bases: int | Literal["auto"] = field(compare=False)
    lambdas: dict[str, Any] = field(compare=False)
    orthogonality: str = field(compare=False)
    target: Target = field(compare=False)
    dtype: str = field(compare=False)


def check_alike(in_keras: Described, in_torch: Described) -> None:
    """Refuse two layers that are not of the same make."""
    pairs = {
        one.name: (getattr(in_keras, one.name), getattr(in_torch, one.name)) for one in fields(Described) if one.compare
    }
    told = [
        f"{name} is {one!r} in Keras and {other!r} in PyTorch" for name, (one, other) in pairs.items() if one != other
    ]
    if told:
        raise ValueError(
            f"nothing was copied, the layers differ: {'; '.join(told)}. Make them alike, or make a new layer with "
            "to_torch or from_torch"
        )


def of_keras(layer: GatedDomainUnits) -> Described:
    """The make of a Keras layer that has been built."""
    if not isinstance(layer, GatedDomainUnits):
        raise TypeError(f"expected the Keras layer GatedDomainUnits, got {layer!r}; take it out of its model first")
    if not layer.built:
        raise ValueError(f"{layer.name} has no weights yet: call it on a batch, or build its model, first")
    if layer.activation is not keras.activations.linear:
        raise TypeError(
            f"activation={getattr(layer.activation, '__name__', layer.activation)!r} of the mixed prediction has no "
            f"counterpart in the PyTorch layer; make {layer.name} without it and apply it to the prediction instead"
        )
    if layer.task is not None and type(layer.task) is not ProbabilisticRegression:
        raise parts.cannot_go("task", layer.task, ("None", "ProbabilisticRegression"))
    if not isinstance(layer.orthogonality, str):
        raise parts.cannot_go("orthogonality", layer.orthogonality, ORTHOGONALITY)
    targeted = layer.orthogonality != "mutual_coherence"
    return Described(
        in_features=layer.in_features,
        out_features=layer.units,
        shared=layer.has_shared,
        kernel=parts.kernel_in_words(layer.kernel, kernels),
        gate=parts.gate_in_words(layer.gate, gates),
        experts=_keras_experts(layer.kind_of_experts),
        min_scale=None if layer.task is None else layer.task.min_scale,
        orthogonality=layer.orthogonality,
        target=layer.orthogonality_target if targeted else "diagonal",
        dtype=keras.backend.standardize_dtype(layer.variable_dtype),
        **_in_common(layer),
    )


def keras_layer(described: Described, name: str | None) -> GatedDomainUnits:
    """A Keras layer of this make, not built."""
    held = described.experts
    return GatedDomainUnits(
        described.out_features,
        num_bases=described.num_bases,
        max_bases=described.max_bases,
        basis_size=described.basis_size,
        kernel=parts.made_kernel(described.kernel, kernels),
        gate=parts.made_gate(described.gate, gates),
        experts=getattr(experts, held.kind)(**held.settings(held.activation)),
        shared=described.shared,
        coverage=described.coverage,
        task=None if described.min_scale is None else ProbabilisticRegression(described.min_scale),
        orthogonality=described.orthogonality,
        orthogonality_target=described.target,
        dtype=described.dtype,
        name=name,
        **described.lambdas,
    )


def of_torch(units: TorchUnits) -> Described:
    """The make of a PyTorch layer."""
    pytorch()
    from gated_domains.layer import GatedDomainUnits as TorchUnits
    from gated_domains.layer import gates as torch_gates
    from gated_domains.layer import kernels as torch_kernels

    if not isinstance(units, TorchUnits):
        raise TypeError(f"expected the PyTorch layer GatedDomainUnits, got {units!r}; take it out of its model first")
    precisions = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in units.parameters()})
    if len(precisions) > 1:
        raise TypeError(
            f"a layer goes over in one precision, and the weights of this one are {' and '.join(precisions)}: bring "
            "them to one with .float()"
        )
    orthogonality, target = parts.torch_orthogonality(units.orthogonality)
    return Described(
        in_features=units.in_features,
        out_features=units.out_features,
        shared=units.shared is not None,
        kernel=parts.kernel_in_words(units.kernel, torch_kernels),
        gate=parts.gate_in_words(units.gate, torch_gates),
        experts=_torch_experts(units.experts),
        min_scale=_torch_min_scale(units.task),
        orthogonality=orthogonality,
        target=target,
        dtype=precisions[0],
        **_in_common(units),
    )


def torch_layer(described: Described) -> TorchUnits:
    """A PyTorch layer of this make, in float32."""
    from gated_domains.layer import GatedDomainUnits as TorchUnits
    from gated_domains.layer import experts as torch_experts
    from gated_domains.layer import gates as torch_gates
    from gated_domains.layer import kernels as torch_kernels
    from gated_domains.layer import penalties as torch_penalties
    from gated_domains.layer.experts import ProbabilisticRegression as TorchRegression

    held = described.experts
    activation = None if held.activation is None else parts.torch_functions(held.activation)[0]
    penalty = getattr(torch_penalties, described.orthogonality)
    return TorchUnits(
        described.in_features,
        described.out_features,
        gating_features=described.gating_features,
        num_bases=described.num_bases,
        max_bases=described.max_bases,
        basis_size=described.basis_size,
        kernel=parts.made_kernel(described.kernel, torch_kernels),
        gate=parts.made_gate(described.gate, torch_gates),
        experts=partial(getattr(torch_experts, held.kind), **held.settings(activation)),
        shared=described.shared,
        coverage=described.coverage,
        task=None if described.min_scale is None else TorchRegression(described.min_scale),
        orthogonality=penalty if described.target == "diagonal" else partial(penalty, target=described.target),
        **described.lambdas,
    )


def _in_common(layer: Any) -> dict[str, Any]:
    """What both layers have under the same name."""
    return {
        "gating_features": layer.gating_features,
        "max_bases": layer.max_bases,
        "basis_size": layer.basis_size,
        "num_bases": "auto" if layer.auto else layer.num_bases,
        "coverage": layer.applies_coverage,
        "lambdas": {name: getattr(layer, name) for name in _LAMBDAS},
    }


def _keras_experts(held: Any) -> DescribedExperts:
    if type(held) not in (experts.LinearExperts, experts.MLPExperts):
        raise parts.cannot_go("experts", held, ("LinearExperts", "MLPExperts"))
    activation = parts.keras_activation(held.activation)
    hidden = getattr(held, "hidden", None)
    return DescribedExperts(kind=type(held).__name__, activation=activation, bias=held.bias, hidden=hidden)


def _torch_experts(held: Any) -> DescribedExperts:
    from gated_domains.layer import experts as torch_experts

    if type(held) not in (torch_experts.LinearExperts, torch_experts.MLPExperts):
        raise parts.cannot_go("experts", held, ("LinearExperts", "MLPExperts"))
    first = getattr(held, "first", held)
    return DescribedExperts(
        kind=type(held).__name__,
        activation=parts.torch_activation(first.activation),
        bias=held.bias is not None,
        hidden=None if first is held else first.weight.shape[1],
    )


def _torch_min_scale(task: Any) -> float | None:
    """Of a probabilistic regression; None for a task that is no more than a loss, or where there is none."""
    from gated_domains.layer.experts import ProbabilisticRegression as TorchRegression

    if type(task) is TorchRegression:
        return task.min_scale
    if task is not None and task.numbers_an_output != 1:
        raise parts.cannot_go("task", task, ("None", "ProbabilisticRegression"))
    return None
