"""Finding the layer inside a model, and reading inputs in whatever form a model takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import count
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.common.validation import at_least_one
from gated_domains.keras_layer.arrays import as_numpy, keras, ops
from gated_domains.keras_layer.units import GatedDomainUnits

#: Rows that a head is fitted to, of data that have more; and rows that go through a model at once.
FITTING_ROWS = 20_000
RENEWING_ROWS = 5_000
ROWS_AT_ONCE = 512

# What a model takes: an array, a list or a dict of arrays, or an iterable of batches.
Inputs = Any


def find_units(model: keras.layers.Layer) -> dict[str, GatedDomainUnits]:
    """Every GatedDomainUnits layer of a model by name, nested ones too; of two with one name the second gets ``_1``."""
    if not isinstance(model, keras.layers.Layer):
        raise TypeError(f"expected a Keras model, got {type(model).__name__}: {model!r}")
    found: dict[str, GatedDomainUnits] = {}
    for layer in model._flatten_layers():
        if isinstance(layer, GatedDomainUnits):
            names = (f"{layer.name}_{place}" if place else layer.name for place in count())
            found[next(name for name in names if name not in found)] = layer
    return found


def chosen_units(model: keras.layers.Layer, layer: str | GatedDomainUnits | None = None) -> dict[str, GatedDomainUnits]:
    """The layers that are meant, by name: the one that ``layer`` names or is, else all of them; none is refused."""
    found = find_units(model)
    if not found:
        raise ValueError(
            f"the model {model.name!r} has no GatedDomainUnits layer; put one in place of its last Dense, for instance "
            "with replace_head(model)"
        )
    if layer is None:
        return found
    meant = {name: units for name, units in found.items() if layer is units or layer == name}
    if not meant:
        wanted = repr(layer) if isinstance(layer, str) else f"the layer {getattr(layer, 'name', layer)!r}"
        raise ValueError(f"{wanted} is no GatedDomainUnits layer of the model {model.name!r}; it has {_named(found)}")
    return meant


def one_units(model: keras.layers.Layer, layer: str | GatedDomainUnits | None = None) -> GatedDomainUnits:
    """The one layer that is meant; where the model has several, ``layer`` (its name, or itself) tells which."""
    meant = chosen_units(model, layer)
    if len(meant) > 1:
        raise ValueError(
            f"the model {model.name!r} has {len(meant)} GatedDomainUnits layers, {_named(meant)}; say which with layer="
        )
    return next(iter(meant.values()))


def batches_of(inputs: Inputs, batch_size: int = 512, max_rows: int | None = None) -> Iterator[Any]:
    """Batches of what the model takes, of ``max_rows`` rows in all.

    Of arrays (one, or a list or dict of them) rows at even distances are taken, so that data sorted by domain give
    rows of each. Of an iterable of batches the first are; where one is a tuple or list, the input is its first part.
    """
    at_least_one("batch_size", batch_size)
    if max_rows is not None:
        at_least_one("max_rows", max_rows)
    return _of_arrays(inputs, batch_size, max_rows) if is_arrays(inputs) else _of_batches(inputs, max_rows)


def is_arrays(inputs: Inputs) -> bool:
    """True for an array, a list or a dict of arrays; False for an iterable of batches; anything else is refused."""
    if _is_array(inputs):
        return True
    if isinstance(inputs, tuple):
        raise TypeError(
            "inputs came as a tuple, which might be (inputs, targets) or several inputs; pass the inputs alone, "
            "several of them as a list"
        )
    parts = list(inputs.values() if isinstance(inputs, dict) else inputs) if isinstance(inputs, dict | list) else []
    if parts and all(map(_is_array, parts)):
        lengths = [len_of(part) for part in parts]
        if len(set(lengths)) > 1:
            raise ValueError(
                f"the arrays of one input must have as many rows each, got {lengths}; batches go into a list as "
                "tuples, [(batch,), (batch,)]"
            )
        return True
    if isinstance(inputs, str | bytes | dict) or not isinstance(inputs, Iterable | keras.utils.PyDataset):
        raise TypeError(
            f"inputs must be an array, a list or dict of arrays, or an iterable of batches, got {type(inputs).__name__}"
            f": {inputs!r}; convert lists of numbers with numpy.asarray"
        )
    return False


def len_of(batch: Any) -> int:
    """How many rows a batch or an array has."""
    first = keras.tree.flatten(batch)[0]
    return int(first.shape[0])


def check_built(model: keras.layers.Layer) -> None:
    """Refuse a model that has no weights yet: TensorFlow's trainer makes them in the first step only."""
    unbuilt = [layer.name for layer in model._flatten_layers() if not layer.built]
    if unbuilt:
        raise ValueError(
            f"the model {model.name!r} has no weights yet in {', '.join(map(repr, unbuilt[:3]))}; begin it with "
            "keras.Input(shape), or call it once on a batch: model(x[:1])"
        )


def spread(rows: NDArray[Any], most: int) -> NDArray[Any]:
    """Rows of whatever shape as a matrix, at even distances, so that data sorted by domain give rows of each."""
    rows = rows.reshape(-1, rows.shape[-1])
    return rows if len(rows) <= most else rows[_even(len(rows), most)]


def at_least_float32_rows(part: Any) -> NDArray[Any]:
    """What a model gave, in NumPy, which has no use for half precision."""
    values = as_numpy(part)
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float32)


def without_gradients() -> AbstractContextManager[object]:
    """PyTorch keeps no graph inside the block; the others keep none by themselves."""
    if keras.backend.backend() != "torch":
        return nullcontext()
    import torch  # here, because it is there on this backend only

    return torch.no_grad()


def _of_arrays(inputs: Inputs, batch_size: int, max_rows: int | None) -> Iterator[Any]:
    rows = len_of(inputs)
    if rows == 0:
        raise ValueError("inputs have no rows")
    taken = np.arange(rows)
    if max_rows is not None and rows > max_rows:
        taken = _even(rows, max_rows)
    for start in range(0, len(taken), batch_size):
        places = taken[start : start + batch_size]
        yield keras.tree.map_structure(partial(_at, places=places), inputs)


def _of_batches(inputs: Inputs, max_rows: int | None) -> Iterator[Any]:
    left = max_rows
    empty = True
    for given in _each(inputs):
        batch = given[0] if isinstance(given, list | tuple) and given else given
        parts = keras.tree.flatten(batch)
        if not parts or not all(map(_is_array, parts)):
            raise TypeError(f"a batch must be what the model takes, or a tuple that begins with it, got {given!r}")
        rows = len_of(batch)
        if left is not None and rows >= left:
            yield keras.tree.map_structure(itemgetter(slice(left)), batch)
            return
        yield batch
        empty = False
        left = None if left is None else left - rows
    if empty:
        raise ValueError(
            "inputs gave no batch; an iterator can be read only once: pass arrays, a dataset or a list of batches"
        )


def _each(inputs: Inputs) -> Iterator[Any]:
    if not isinstance(inputs, keras.utils.PyDataset):
        return iter(inputs)
    # Not by iterating: without __iter__ of its own that would never end.
    places = count() if inputs.num_batches is None else range(inputs.num_batches)
    return (inputs[place] for place in places)


def _even(rows: int, most: int) -> NDArray[np.int64]:
    return np.linspace(0, rows - 1, most).round().astype(np.int64)


def _at(array: Any, *, places: NDArray[np.int64]) -> Any:
    if ops.is_tensor(array):
        return ops.take(array, places, axis=0)
    return np.asarray(array.iloc[places] if hasattr(array, "iloc") else array[places])


def _is_array(x: Any) -> bool:
    return hasattr(x, "shape") and len(x.shape) > 0


def _named(units: dict[str, GatedDomainUnits]) -> str:
    return ", ".join(map(repr, units))
