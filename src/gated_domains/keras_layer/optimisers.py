"""What a Keras optimiser holds of the weights that it trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gated_domains.keras_layer.arrays import as_numpy, keras

#: Moving averages of the weights, where the optimiser keeps any: they become the weights when training ends.
AVERAGES = "_model_variables_moving_average"

_NO_MEMORY = ("_variables", "_trainable_variables")


def optimisers_in(optimiser: keras.optimizers.Optimizer) -> Iterator[keras.optimizers.Optimizer]:
    """The optimiser and those it is made of: the one whose loss is scaled, or one for each group of variables."""
    yield optimiser
    inner = [optimiser.inner_optimizer] if hasattr(optimiser, "inner_optimizer") else []
    for part in [*inner, *getattr(optimiser, "optimizers", [])]:
        yield from optimisers_in(part)


def forget(optimiser: keras.optimizers.Optimizer, variable: Any) -> None:
    """Zero what the optimiser remembers of a weight that was just rewritten, and begin its average anew."""
    built = [part for part in optimisers_in(optimiser) if part.built and part._trainable_variables]
    training = [part for part in built if any(one is variable for one in part._trainable_variables)]
    if built and not training:
        raise ValueError(f"the optimiser {optimiser.name} does not train {variable.path}; pass the one that does")
    for part in training:
        among_trained = next(place for place, one in enumerate(part._trainable_variables) if one is variable)
        for name, held in vars(part).items():
            # While some variables are hidden from the optimiser, momenta keep their places among all, averages do not.
            place = among_trained if name == AVERAGES else part._get_variable_index(variable)
            if name in _NO_MEMORY or not isinstance(held, list) or len(held) <= place:
                continue
            slot = held[place]
            if isinstance(slot, keras.Variable) and slot.shape == variable.shape:
                slot.assign(np.array(as_numpy(variable)) if name == AVERAGES else np.zeros(slot.shape, dtype="float32"))
