"""Kernels, gates, activations and penalties in words, and made again from them, on either side.

``side`` is a module of ours, of the Keras layer or of the PyTorch layer: both have the same names in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, cast

from gated_domains.keras_layer.arrays import keras
from gated_domains.keras_layer.penalties import ORTHOGONALITY, Target
from gated_domains.keras_layer.transfer.pytorch import pytorch

#: A name, or "average" with its members, or "scaled" with what it scales.
DescribedKernel = str | tuple[str, Any]
#: A name, and the ridge of a projection.
DescribedGate = tuple[str, float | None]

#: Keras's name of an activation -> PyTorch's name of the function, and of the module where there is one.
ACTIVATIONS: dict[str, tuple[str, str | None]] = {
    "relu": ("relu", "ReLU"),
    "relu6": ("relu6", "ReLU6"),
    "tanh": ("tanh", "Tanh"),
    "sigmoid": ("sigmoid", "Sigmoid"),
    "hard_sigmoid": ("hardsigmoid", "Hardsigmoid"),
    "log_sigmoid": ("logsigmoid", "LogSigmoid"),
    "gelu": ("gelu", "GELU"),
    "elu": ("elu", "ELU"),
    "selu": ("selu", "SELU"),
    "silu": ("silu", "SiLU"),
    "hard_silu": ("hardswish", "Hardswish"),
    "mish": ("mish", "Mish"),
    "softplus": ("softplus", "Softplus"),
    "softsign": ("softsign", "Softsign"),
    "exponential": ("exp", None),
}


def cannot_go(part: str, value: object, known: Iterable[str]) -> TypeError:
    """The error for what has no counterpart."""
    return TypeError(f"the {part} {value!r} has no counterpart on the other side; these go over: {', '.join(known)}")


def kernel_in_words(kernel: Any, side: Any) -> DescribedKernel:
    """The kind of a kernel and of its parts; its numbers are weights."""
    names = {kind: name for name, kind in side.KERNELS.items()}
    if type(kernel) in names:
        return cast(str, names[type(kernel)])
    if type(kernel) is side.Average:
        return "average", tuple(kernel_in_words(member, side) for member in kernel.members)
    if type(kernel) is side.Scaled:
        return "scaled", kernel_in_words(kernel.kernel, side)
    raise cannot_go("kernel", kernel, (*side.KERNELS, "Average", "Scaled"))


def made_kernel(described: DescribedKernel, side: Any) -> Any:
    """A kernel of this kind, with all its numbers 1."""
    if isinstance(described, str):
        return side.KERNELS[described]()
    kind, inside = described
    if kind == "average":
        return side.Average([made_kernel(member, side) for member in inside])
    return side.Scaled(made_kernel(inside, side), 1.0)


def gate_in_words(gate: Any, side: Any) -> DescribedGate:
    """The kind of a gate; kappa is a weight."""
    names = {kind: name for name, kind in side.GATES.items()}
    if type(gate) not in names:
        raise cannot_go("gate", gate, side.GATES)
    return names[type(gate)], getattr(gate, "ridge", None)


def made_gate(described: DescribedGate, side: Any) -> Any:
    """A gate of this kind."""
    name, ridge = described
    return side.GATES[name]() if ridge is None else side.GATES[name](ridge)


def keras_activation(activation: Any) -> str | None:
    """The name of an activation of Keras, None for the linear one."""
    if activation is keras.activations.linear:
        return None
    for name in ACTIVATIONS:
        if activation is getattr(keras.activations, name):
            return name
    raise cannot_go("activation", activation, ("linear", *ACTIVATIONS))


def torch_activation(activation: Any) -> str | None:
    """Keras's name for a function or a module of PyTorch, None where there is none or an identity."""
    nn = pytorch().nn
    if activation is None or type(activation) is nn.Identity:
        return None
    for name, (_, module) in ACTIVATIONS.items():
        if any(activation is function for function in torch_functions(name)):
            return name
        if module is not None and type(activation) is getattr(nn, module) and _as_made(activation):
            return name
    raise cannot_go("activation", activation, ("linear", *ACTIVATIONS))


def torch_functions(name: str) -> list[Any]:
    """PyTorch's functions for an activation, the one to use first."""
    torch, function = pytorch(), ACTIVATIONS[name][0]
    homes = (torch, torch.nn.functional, torch.Tensor)
    return [getattr(home, function) for home in homes if hasattr(home, function)]


def torch_orthogonality(penalty: Any) -> tuple[str, Target]:
    """The name of a penalty of the PyTorch layer and its target, which ``partial`` may have set."""
    from gated_domains.layer import penalties as torch_penalties

    function, given = (penalty.func, penalty.keywords) if isinstance(penalty, partial) else (penalty, {})
    for name in ORTHOGONALITY:
        if function is getattr(torch_penalties, name) and set(given) <= {"target"}:
            return name, given.get("target", "diagonal")
    raise cannot_go("orthogonality", penalty, ORTHOGONALITY)


def _as_made(activation: Any) -> bool:
    """Whether a module has the settings that its class gives it; to work in place changes no number."""
    plain = type(activation)()
    settings = [name for name in getattr(plain, "__constants__", ()) if name != "inplace"]
    return all(getattr(activation, name) == getattr(plain, name) for name in settings)
