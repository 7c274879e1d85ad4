"""Values and gradients of a function of Keras variables and arrays, on whichever backend runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

Array = np.ndarray[Any, Any]
# From tensors to a scalar, which is differentiated, and whatever else is wanted of the same evaluation, by name.
Function = Callable[..., tuple[Any, dict[str, Any]]]


def with_gradients(
    function: Function, variables: Sequence[keras.Variable], arrays: Sequence[Array], *, compiled: str | None = None
) -> tuple[dict[str, Array], list[Array], list[Array]]:
    """What the function found, and the gradients of its scalar by the variables and by the arrays.

    ``compiled`` says how, one of ``COMPILERS`` of this backend; None goes step by step.
    """
    tensors = [ops.convert_to_tensor(array) for array in arrays]
    run = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}[keras.backend.backend()]
    found, of_variables, of_arrays = run(function, list(variables), tensors, compiled)
    return (
        {name: ops.convert_to_numpy(value) for name, value in found.items()},
        [ops.convert_to_numpy(value) for value in of_variables],
        [ops.convert_to_numpy(value) for value in of_arrays],
    )


# PyTorch's own compiler breaks its graphs at every layer of Keras: it, too, goes step by step.
COMPILERS = {"tensorflow": ["tf.function", "jit_compile"], "jax": ["jax.jit"], "torch": [None]}


def _tensorflow(
    function: Function, variables: list[keras.Variable], tensors: list[Any], compiled: str | None
) -> tuple[dict[str, Any], list[Any], list[Any]]:
    import tensorflow as tf

    def run(*now: Any) -> tuple[dict[str, Any], list[Any], list[Any]]:
        with tf.GradientTape() as tape:
            tape.watch(now)
            scalar, found = function(*now)
        places = ([variable.value for variable in variables], list(now))
        of_variables, of_arrays = tape.gradient(scalar, places, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return found, of_variables, of_arrays

    if compiled is not None:
        run = tf.function(run, jit_compile=compiled == "jit_compile")
    return run(*tensors)


def _jax(
    function: Function, variables: list[keras.Variable], tensors: list[Any], compiled: str | None
) -> tuple[dict[str, Any], list[Any], list[Any]]:
    import jax

    def run(values: list[Any], now: list[Any]) -> tuple[Any, dict[str, Any]]:
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return function(*now)

    differentiated = jax.value_and_grad(run, argnums=(0, 1), has_aux=True)
    if compiled is not None:
        differentiated = jax.jit(differentiated)
    (_, found), (of_variables, of_arrays) = differentiated([variable.value for variable in variables], tensors)
    return found, of_variables, of_arrays


def _torch(
    function: Function, variables: list[keras.Variable], tensors: list[Any], compiled: str | None
) -> tuple[dict[str, Any], list[Any], list[Any]]:
    import torch

    assert compiled is None
    leaves = [tensor.requires_grad_() for tensor in tensors]
    scalar, found = function(*leaves)
    places = [variable.value for variable in variables] + leaves
    slopes = torch.autograd.grad(scalar, places, allow_unused=True, materialize_grads=True)
    return found, list(slopes[: len(variables)]), list(slopes[len(variables) :])
