"""What the layer is given, made into its parts or refused with the value and the cure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gated_domains.common.validation import known_name
from gated_domains.keras_layer.arrays import Array, keras
from gated_domains.keras_layer.gates import GATES, Gate, SoftmaxGate
from gated_domains.keras_layer.kernels import KERNELS, Kernel, KernelLike, as_kernel
from gated_domains.keras_layer.output import GatedOutput
from gated_domains.keras_layer.penalties import ORTHOGONALITY
from gated_domains.keras_layer.tasks import ProbabilisticRegression

Shape = tuple[int | None, ...]
Penalty = Callable[[GatedOutput], Array]


def a_kernel(kernel: str | KernelLike | None, sigma: float | None) -> Kernel:
    """The kernel of that name and width, or a copy of the one given."""
    if kernel is None or isinstance(kernel, str):
        named = KERNELS[known_name("kernel", "gaussian" if kernel is None else kernel, KERNELS)]
        return named() if sigma is None else named(sigma)
    if not callable(kernel) or isinstance(kernel, type):
        raise TypeError(f"kernel must be a kernel or a callable k(x, z), got {kernel!r}; try kernels.Gaussian(sigma)")
    if sigma is not None:
        raise ValueError(f"sigma={sigma} belongs to the kernel when one is given: set it there, {kernel!r}")
    return as_kernel(kernel).copy()


def a_gate(gate: str | Gate, kappa: float | None) -> Gate:
    """The gate of that name and sharpness, or a copy of the one given."""
    if isinstance(gate, Gate):
        if kappa is not None:
            raise ValueError(f"kappa={kappa} belongs to the gate when one is given: set it there, {gate!r}")
        return gate.copy()
    if not isinstance(gate, str):
        raise TypeError(f"gate must be a gate or its name, got {gate!r}; try CosineGate(kappa) or 'mmd'")
    named = GATES[known_name("gate", gate, GATES)]
    if kappa is None:
        return named()
    if not issubclass(named, SoftmaxGate):
        raise ValueError(f"kappa={kappa} cannot be set: the gate {gate!r} has none; leave kappa out")
    return named(kappa)


def a_task(task: str | ProbabilisticRegression | None) -> ProbabilisticRegression | None:
    """The task, None for all that Keras has losses for."""
    if task == "probabilistic_regression":
        return ProbabilisticRegression()
    if task is None or isinstance(task, ProbabilisticRegression):
        return task
    raise ValueError(
        f"task must be None or ProbabilisticRegression(), got {task!r}; for classes, labels and plain numbers leave it "
        "out and choose the loss in compile"
    )


def an_orthogonality(orthogonality: str | Penalty) -> str | Penalty:
    """The name of the penalty, or a function of one evaluation."""
    return (
        known_name("orthogonality", orthogonality, ORTHOGONALITY) if isinstance(orthogonality, str) else orthogonality
    )


def two_views(features: Any, gating: Any) -> tuple[Any, Any]:
    """Features and gating, which may also come as one list of two."""
    if not isinstance(features, list | tuple):
        return features, gating
    if gating is not None or len(features) != 2:
        raise ValueError(f"expected features, or a list of features and gating, got {len(features)} inputs")
    return features[0], features[1]


def two_shapes(features_shape: Any, gating_shape: Any) -> tuple[Shape, Shape | None]:
    """Their shapes likewise."""
    if features_shape and isinstance(features_shape[0], list | tuple):
        features_shape, gating_shape = two_views(list(features_shape), gating_shape)
    return tuple(features_shape), None if gating_shape is None else tuple(gating_shape)


def known_width(name: str, shape: Shape) -> int:
    """The last size of a shape."""
    if not shape or shape[-1] is None:
        raise ValueError(f"{name} must have a known width in the last dimension, got shape {shape}")
    return shape[-1]


def check_input(name: str, x: Array, width: int) -> None:
    """Refuse what is no batch of that width, by shape and type."""
    if not keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype)):
        raise TypeError(f"{name} must be floating point, got {x.dtype}; convert them with ops.cast(x, 'float32')")
    if len(x.shape) < 2 or x.shape[-1] != width:
        raise ValueError(f"{name} must have shape (batch, ..., {width}), got {tuple(x.shape)}")


def check_views(features: Array, gating: Array | None, in_features: int, gating_features: int) -> None:
    """Refuse views that do not fit, by shape and type: values are not known while a graph is made."""
    check_input("features", features, in_features)
    if gating is None:
        if gating_features != in_features:
            raise ValueError(
                f"the gates of this layer see a view of width {gating_features}, the features have {in_features}: pass "
                "that view as gating="
            )
        return
    check_input("gating", gating, gating_features)
    sizes = zip(features.shape[:-1], gating.shape[:-1], strict=False)
    same = all(one == other or None in (one, other) for one, other in sizes)
    if len(features.shape) != len(gating.shape) or not same:
        raise ValueError(
            f"gating must have a row for each row of features, got shapes {tuple(gating.shape)} and "
            f"{tuple(features.shape)}"
        )
