"""What an ONNX file says of itself, looked at once against its graph: names, types and widths that go together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gated_domains.data.dataset import Schema
from gated_domains.data.errors import DataError, first_line
from gated_domains.export.feeds import Feed, feeds_of
from gated_domains.export.graph import OUTPUTS

_TYPES = {1: "float32", 2: "uint8", 7: "int64", 11: "float64"}  # of ONNX, as it numbers them


def check_about(about: Mapping[str, Any], graph: Any, path: Path) -> Schema:
    """The schema in a file; refused where what is said in it is not what its graph takes and gives."""
    try:
        schema = _checked(about, graph)
    except (DataError, KeyError, TypeError, ValueError, AttributeError) as error:
        said = f"it does not say its {error.args[0]}" if isinstance(error, KeyError) else first_line(error)
        raise DataError(f"{path} contradicts itself ({said}); export it again") from error
    return schema


def _checked(about: Mapping[str, Any], graph: Any) -> Schema:
    _one_of(about, "kind", ("run", "estimator"))
    _one_of(about, "gates", ("sample", "batch"))
    numbers = about["numbers"]
    if type(numbers) is not int or numbers < 1:
        raise DataError(f"numbers are {numbers!r}")
    schema = Schema.from_description(about["schema"])
    expected = [_entry(feed) for feed in feeds_of(schema.encoding, exact=about["kind"] == "estimator")]
    _same("inputs", expected, [_taken(value) for value in graph.input])
    _same("inputs", expected, [(entry["name"], entry["dtype"], *entry["shape"]) for entry in about["inputs"]])
    names = [value.name for value in graph.output]
    if names[:1] != list(OUTPUTS[:1]) or names != [name for name in OUTPUTS if name in names]:
        raise DataError(f"its outputs are {names}")
    _same("outputs", names, about["outputs"])
    told = schema.class_names if schema.class_names is not None else schema.label_names
    width = numbers if told is None else len(told)
    _same("prediction", ("prediction", "float32", width), _taken(graph.output[0]))
    return schema


def _one_of(about: Mapping[str, Any], name: str, known: tuple[str, ...]) -> None:
    if about[name] not in known:
        raise DataError(f"{name} is {about[name]!r}, neither {' nor '.join(known)}")


def _same(name: str, expected: Any, found: Any) -> None:
    if expected != found:
        raise DataError(f"{name}: {expected} by its schema, {found} in its graph or by what it says")


def _entry(feed: Feed) -> tuple[object, ...]:
    return (feed.name, feed.dtype, *feed.shape)


def _taken(value: Any) -> tuple[object, ...]:
    """Name, type and sizes after the batch of an input or output of a graph."""
    tensor = value.type.tensor_type
    sizes = [dim.dim_value for dim in tensor.shape.dim]
    return (value.name, _TYPES.get(tensor.elem_type, f"type {tensor.elem_type}"), *sizes[1:])
