"""All weights of a layer by the names that PyTorch's ``state_dict`` has for them, read and written on either side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.keras_layer.arrays import Scalars, as_numpy
from gated_domains.keras_layer.transfer.pytorch import pytorch
from gated_domains.keras_layer.units import GatedDomainUnits

if TYPE_CHECKING:
    from gated_domains.layer import GatedDomainUnits as TorchUnits

Values = dict[str, NDArray[Any]]


def read_keras(layer: GatedDomainUnits) -> Values:
    """The weights of a Keras layer; half precision as float32, which holds it exactly and which everyone knows."""
    held = {name: as_numpy(variable) for name, variable in _variables(layer).items()}
    known = ("bool", "float32", "float64")
    weights = {name: value if value.dtype.name in known else value.astype("float32") for name, value in held.items()}
    return weights | {name: np.asarray(holder.get(number)) for name, (holder, number) in _numbers(layer).items()}


def write_keras(layer: GatedDomainUnits, values: Values) -> None:
    """Write weights into a Keras layer, in place and in its precision."""
    for name, variable in _variables(layer).items():
        variable.assign(values[name])
    write_numbers(layer, values)


def write_numbers(layer: GatedDomainUnits, values: Values) -> None:
    """Write sigma, kappa and the like, which a layer has before it is built."""
    for name, (holder, number) in _numbers(layer).items():
        holder.set(number, float(values[name]))


def read_torch(units: TorchUnits) -> Values:
    """The weights of a PyTorch layer; half precision as float32."""
    torch = pytorch()
    halves = (torch.float16, torch.bfloat16)
    # Cloned, as JAX may keep an array it is given: without that it would share its weights with PyTorch.
    state = {name: value.detach().clone().cpu() for name, value in units.state_dict().items()}
    return {name: (value.float() if value.dtype in halves else value).numpy() for name, value in state.items()}


def write_torch(units: TorchUnits, values: Values) -> None:
    """Write weights into a PyTorch layer, in place and in its precision."""
    torch = pytorch()
    units.load_state_dict({name: torch.tensor(value) for name, value in values.items()})


def _variables(layer: GatedDomainUnits) -> dict[str, Any]:
    held = {"bases": layer.bases, "active": layer.active} | _of_bank("experts", layer.experts)
    return held if layer.shared is None else held | _of_bank("shared", layer.shared)


def _of_bank(path: str, bank: Any) -> dict[str, Any]:
    found = _of_bank(f"{path}.first", bank.first) if hasattr(bank, "first") else {}
    found[f"{path}.weight"] = bank.weight
    return found if bank.bias is None else found | {f"{path}.bias": bank.bias}


def _numbers(layer: GatedDomainUnits) -> dict[str, tuple[Scalars, str]]:
    return _of_holder("kernel", layer.kernel) | _of_holder("gate", layer.gate) | _of_holder("coverage", layer.coverage)


def _of_holder(path: str, holder: Any) -> dict[str, tuple[Scalars, str]]:
    found = {f"{path}.{name}": (holder, name) for name in holder.names}
    inside = {f"members.{place}": member for place, member in enumerate(getattr(holder, "members", ()))}
    inside |= {"kernel": holder.kernel} if hasattr(holder, "kernel") else {}
    for name, part in inside.items():
        found |= _of_holder(f"{path}.{name}", part)
    return found
