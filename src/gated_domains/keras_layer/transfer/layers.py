"""A layer of one side made or filled from one of the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gated_domains.keras_layer.arrays import as_numpy, keras
from gated_domains.keras_layer.transfer.described import check_alike, keras_layer, of_keras, of_torch, torch_layer
from gated_domains.keras_layer.transfer.pytorch import pytorch
from gated_domains.keras_layer.transfer.weights import read_keras, read_torch, write_keras, write_numbers, write_torch
from gated_domains.keras_layer.units import GatedDomainUnits

if TYPE_CHECKING:
    from gated_domains.layer import GatedDomainUnits as TorchUnits


def to_torch(layer: GatedDomainUnits) -> TorchUnits:
    """A PyTorch layer with the settings and weights of a Keras layer that has been built, on the CPU.

    Its precision is that of the layer's weights, so a layer of mixed precision gives one of float32. Where a
    ``PenaltyRamp`` stands in its ramp is no setting of the layer: the lambdas come over as they were given.
    """
    torch = pytorch()
    described = of_keras(layer)
    units = torch_layer(described).to(getattr(torch, described.dtype))
    write_torch(units, read_keras(layer))
    return units


def from_torch(units: TorchUnits, *, name: str | None = None) -> GatedDomainUnits:
    """A Keras layer, already built, with the settings, weights and precision of a PyTorch layer.

    A task that is no more than a loss (``MultiClass``, ``Binary``, ``MultiLabel``, ``Regression``) stays behind: Keras
    has the loss in ``compile``. sigma, kappa and the like, which PyTorch keeps in float64, are float32 in a Keras layer
    that is not float64 itself.
    """
    described, values = of_torch(units), read_torch(units)
    layer = keras_layer(described, name)
    write_numbers(layer, values)  # before it is built too: now they are not rounded, and go into the layer's config
    layer.build((None, described.in_features), (None, described.gating_features))
    if as_numpy(layer.bases).dtype.name != described.dtype:  # Keras on JAX says float64 and computes in float32
        raise ValueError(
            f"the units are {described.dtype}, which {keras.backend.backend()} does not compute in as it is set up: "
            "call jax.config.update('jax_enable_x64', True) first, or bring the units to float32 with .float()"
        )
    write_keras(layer, values)
    return layer


def copy_to_torch(layer: GatedDomainUnits, units: TorchUnits) -> None:
    """Write the weights of a Keras layer into a PyTorch layer of the same make, in place and in its precision."""
    check_alike(of_keras(layer), of_torch(units))
    write_torch(units, read_keras(layer))


def copy_from_torch(units: TorchUnits, layer: GatedDomainUnits) -> None:
    """Write the weights of a PyTorch layer into a Keras layer of the same make, in place and in its precision."""
    check_alike(of_keras(layer), of_torch(units))
    if not layer.spare and units.num_bases < units.max_bases:
        raise ValueError(
            f"nothing was copied: the PyTorch layer has {units.num_bases} of its {units.max_bases} bases in use, the "
            f"Keras layer always all of them; build it with num_bases={units.num_bases}, max_bases={units.max_bases}"
        )
    write_keras(layer, read_torch(units))
