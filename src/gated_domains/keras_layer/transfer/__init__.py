"""From a Keras layer to the PyTorch one and back, with all settings and every weight.

>>> units = to_torch(model.get_layer("gdu"))         # gated_domains.GatedDomainUnits, with the same predictions
>>> layer = from_torch(units)                        # and back, on whichever backend Keras runs

Whatever has no counterpart on the other side (a function as kernel, ``StackedExperts``, an activation that is not in
``ACTIVATIONS``) is refused by name. torch is imported when it is needed, never before.
"""

from gated_domains.keras_layer.transfer.layers import copy_from_torch, copy_to_torch, from_torch, to_torch
from gated_domains.keras_layer.transfer.parts import ACTIVATIONS

__all__ = ["ACTIVATIONS", "copy_from_torch", "copy_to_torch", "from_torch", "to_torch"]
