"""The M learning machines, evaluated together: features -> one output for every basis.

Experts describe, banks hold weights: a layer asks the experts it was given for one bank of M machines and, with a
shared expert, for a bank of one. Weights lie as PyTorch's layer has them.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

import numpy as np

from gated_domains.common.validation import at_least_one
from gated_domains.keras_layer.arrays import Array, as_numpy, is_traced, keras, ops, registered, uniform_of


class Bank(keras.layers.Layer):
    """M learning machines on the same features; ``zero`` makes every output 0, as deviations begin."""

    def __init__(self, num_bases: int, units: int, *, zero: bool, dtype: Any, name: str) -> None:
        super().__init__(dtype=dtype, name=name)
        self.num_bases = num_bases
        self.units = units
        self.zero = zero

    def call(self, features: Annotated[Array, "batch features"]) -> Annotated[Array, "batch bases units"]:
        raise NotImplementedError

    def squares(self) -> Annotated[Array, "bases"]:
        """``||w_j||^2`` of all that machine j learns."""
        exact = "float64" if self.variable_dtype == "float64" else "float32"
        total = ops.zeros((self.num_bases,), dtype=exact)
        for weight in self.trainable_variables:
            square = ops.square(ops.cast(ops.convert_to_tensor(weight), exact))
            total = total + ops.sum(ops.reshape(square, (self.num_bases, -1)), axis=1)
        return total


class Experts:
    """A kind of learning machines and its settings."""

    def bank(self, num_bases: int, units: int, *, zero: bool, dtype: Any, name: str) -> Bank:
        """M machines of this kind."""
        raise NotImplementedError

    def check_zero(self) -> None:
        """Refuse machines that could not start as deviations of nothing."""

    def get_config(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Experts:
        return cls(**config)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.get_config().items())})"


class LinearBank(Bank):
    """``W_j x + b_j`` for all j in one matrix product."""

    def __init__(
        self, num_bases: int, units: int, *, activation: Any, bias: bool, zero: bool, dtype: Any, name: str
    ) -> None:
        super().__init__(num_bases, units, zero=zero, dtype=dtype, name=name)
        self.activation = keras.activations.get(activation)
        self.has_bias = bias

    def build(self, features_shape: tuple[int | None, ...]) -> None:
        width = cast(int, features_shape[-1])
        start = "zeros" if self.zero else uniform_of(width)
        self.weight = self.add_weight(name="weight", shape=(self.num_bases, self.units, width), initializer=start)
        start = "zeros" if self.zero else uniform_of(width)
        bias_shape = (self.num_bases, self.units)
        self.bias = self.add_weight(name="bias", shape=bias_shape, initializer=start) if self.has_bias else None

    def call(self, features: Annotated[Array, "batch features"]) -> Annotated[Array, "batch bases units"]:
        stacked = ops.reshape(self.weight, (self.num_bases * self.units, -1))
        outputs = ops.reshape(features @ ops.transpose(stacked), (-1, self.num_bases, self.units))
        outputs = outputs if self.bias is None else outputs + self.bias
        return self.activation(outputs)


@registered
class LinearExperts(Experts):
    """``W_j x + b_j``, through an activation where one is given (the paper's digits have tanh)."""

    def __init__(self, activation: Any = None, *, bias: bool = True) -> None:
        self.activation = keras.activations.get(activation)
        self.bias = bias

    def bank(self, num_bases: int, units: int, *, zero: bool, dtype: Any, name: str) -> LinearBank:
        return LinearBank(
            num_bases, units, activation=self.activation, bias=self.bias, zero=zero, dtype=dtype, name=name
        )

    def check_zero(self) -> None:
        _check_activation(self.activation)

    def get_config(self) -> dict[str, Any]:
        return {"activation": keras.activations.serialize(self.activation), "bias": self.bias}


class MLPBank(Bank):
    """One hidden layer for each basis: ``W_j act(U_j x + a_j) + b_j``."""

    def __init__(
        self, num_bases: int, units: int, *, hidden: int, activation: Any, bias: bool, zero: bool, dtype: Any, name: str
    ) -> None:
        super().__init__(num_bases, units, zero=zero, dtype=dtype, name=name)
        self.has_bias = bias
        self.first = LinearBank(
            num_bases, hidden, activation=activation, bias=bias, zero=False, dtype=dtype, name="first"
        )

    def build(self, features_shape: tuple[int | None, ...]) -> None:
        self.first.build(features_shape)
        hidden = self.first.units
        start = "zeros" if self.zero else uniform_of(hidden)
        self.weight = self.add_weight(name="weight", shape=(self.num_bases, hidden, self.units), initializer=start)
        start = "zeros" if self.zero else uniform_of(hidden)
        bias_shape = (self.num_bases, self.units)
        self.bias = self.add_weight(name="bias", shape=bias_shape, initializer=start) if self.has_bias else None

    def call(self, features: Annotated[Array, "batch features"]) -> Annotated[Array, "batch bases units"]:
        outputs = ops.einsum("bjh,jho->bjo", self.first(features), self.weight)
        return outputs if self.bias is None else outputs + self.bias


@registered
class MLPExperts(Experts):
    """One hidden layer for each basis: ``W_j act(U_j x + a_j) + b_j``."""

    def __init__(self, *, hidden: int = 64, activation: Any = "relu", bias: bool = True) -> None:
        self.hidden = at_least_one("hidden", hidden)
        self.activation = keras.activations.get(activation)
        self.bias = bias

    def bank(self, num_bases: int, units: int, *, zero: bool, dtype: Any, name: str) -> MLPBank:
        return MLPBank(
            num_bases,
            units,
            hidden=self.hidden,
            activation=self.activation,
            bias=self.bias,
            zero=zero,
            dtype=dtype,
            name=name,
        )

    def get_config(self) -> dict[str, Any]:
        activation = keras.activations.serialize(self.activation)
        return {"hidden": self.hidden, "activation": activation, "bias": self.bias}


class StackedBank(Bank):
    """Copies of one layer or model, each with weights of its own, one after the other."""

    def __init__(
        self, num_bases: int, units: int, *, template: keras.layers.Layer, zero: bool, dtype: Any, name: str
    ) -> None:
        super().__init__(num_bases, units, zero=zero, dtype=dtype, name=name)
        kind, config = type(template), template.get_config()
        self.members = []
        for place in range(num_bases):
            # Under a name of its own: weights of one name are one parameter to PyTorch. A template that knows its
            # input builds its copies here, the others are built with the bank.
            with keras.name_scope(f"{name}_{place}"):
                self.members.append(kind.from_config({**config, "name": f"{template.name}_{place}"}))

    def build(self, features_shape: tuple[int | None, ...]) -> None:
        for member in self.members:
            if not member.built:
                member.build(features_shape)
            given = member.compute_output_shape(features_shape)
            if tuple(given[1:]) != (self.units,):
                raise ValueError(
                    f"an expert must give {self.units} numbers a row, {member.name} gives shape {tuple(given)} for "
                    f"features of shape {tuple(features_shape)}; change the width of its last layer"
                )
            if self.zero:
                for variable in _last_with_weights(member).weights:
                    variable.assign(np.zeros(variable.shape, dtype="float32"))
                _check_silent(member, cast(int, features_shape[-1]))

    def call(
        self, features: Annotated[Array, "batch features"], training: bool | None = None
    ) -> Annotated[Array, "batch bases units"]:
        takes = [{"training": training} if member._call_has_training_arg else {} for member in self.members]
        return ops.stack([member(features, **more) for member, more in zip(self.members, takes, strict=True)], axis=1)

    def squares(self) -> Annotated[Array, "bases"]:
        exact = "float64" if self.variable_dtype == "float64" else "float32"
        squares = [ops.zeros((), dtype=exact) for _ in self.members]
        for j, member in enumerate(self.members):
            for weight in member.trainable_variables:
                squares[j] = squares[j] + ops.sum(ops.square(ops.cast(ops.convert_to_tensor(weight), exact)))
        return ops.stack(squares)


@registered
class StackedExperts(Experts):
    """Any Keras layer or model as expert: M copies of ``template``, each with weights of its own.

    >>> StackedExperts(keras.Sequential([keras.layers.Dense(32, "relu"), keras.layers.Dense(10)]))  # for 10 units
    """

    def __init__(self, template: keras.layers.Layer) -> None:
        if not isinstance(template, keras.layers.Layer):
            raise TypeError(f"template must be a Keras layer or model, got {template!r}")
        self.template = template

    def bank(self, num_bases: int, units: int, *, zero: bool, dtype: Any, name: str) -> StackedBank:
        return StackedBank(num_bases, units, template=self.template, zero=zero, dtype=dtype, name=name)

    def get_config(self) -> dict[str, Any]:
        return {"template": keras.saving.serialize_keras_object(self.template)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> StackedExperts:
        return cls(keras.saving.deserialize_keras_object(config["template"]))

    def __repr__(self) -> str:
        return f"StackedExperts({self.template.name})"


def _last_with_weights(member: keras.layers.Layer) -> keras.layers.Layer:
    leaves = [layer for layer in member._flatten_layers() if layer.weights and not layer._layers]
    if not leaves:
        raise ValueError(f"{member.name} has no weights that could start at zero; use shared=False")
    return leaves[-1]


def _check_silent(member: keras.layers.Layer, width: int) -> None:
    """Refuse a member that does not begin as nothing; while a graph is made nothing can be said."""
    said = member(ops.ones((2, width)))
    largest = 0.0 if is_traced(said) else float(np.abs(as_numpy(said)).max())
    if largest > 0:
        raise ValueError(
            f"deviations from a shared expert must start at zero, {member.name} with its last layer's weights at 0 "
            f"gives {largest:.3g}: end the template with a layer that has weights, and one path to it; or use "
            "shared=False"
        )


def _check_activation(activation: Any) -> None:
    """Refuse a last activation under which deviations would not start at zero."""
    at_zero = float(as_numpy(activation(ops.zeros((1, 2), dtype="float32"))).max())
    if at_zero != 0:
        raise ValueError(
            f"deviations from a shared expert must start at zero, {activation.__name__} makes them {at_zero:.3g}; "
            "choose an activation that maps 0 to 0, or use shared=False"
        )
