"""A model as one ONNX file: how it is written, and what is looked at before one is read."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram

from gated_domains.data.dataset import Schema
from gated_domains.data.errors import DataError, first_line, listing
from gated_domains.export.about import check_about
from gated_domains.export.feeds import Feed
from gated_domains.export.graph import root_cause
from gated_domains.export.sealing import ABOUT, sealed, unsealed

FORMAT = 1
"""Of what we say of a model in its file; raised whenever an older reader would misread it."""
_OPSET = 20
_DOMAINS = ("", "ai.onnx")
_LIMIT = 2**31 - 1  # bytes of a protobuf message
_LOGGERS = ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")


def onnx_packages() -> tuple[Any, Any]:
    """``onnx`` and ``onnxruntime``, refused where they or ``onnxscript`` are not installed."""
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  # torch.onnx stands on it
    except ImportError as error:
        raise DataError(
            f"ONNX needs the package {error.name}, which is not installed: pip install 'gated-domains[onnx]'; "
            "or export with --to torch"
        ) from error
    return onnx, onnxruntime


def onnx_content(
    program: ExportedProgram, *, feeds: Sequence[Feed], outputs: Sequence[str], about: Mapping[str, Any]
) -> bytes:
    """The content of a file: the program as ONNX, all we say of it, and the seal."""
    onnx, _ = onnx_packages()
    try:
        with _quiet():
            made = torch.onnx.export(
                program,
                dynamo=True,
                input_names=[feed.name for feed in feeds],
                output_names=list(outputs),
                opset_version=_OPSET,
                verbose=False,
            )
        assert made is not None
        model = made.model_proto
    except Exception as error:  # as in tracing, any class may come out
        raise DataError(f"this model has no form in ONNX ({root_cause(error)}); export it with --to torch") from error
    _tidy(model)
    entry = model.metadata_props.add()
    entry.key, entry.value = ABOUT, json.dumps({"format": FORMAT, **about}, allow_nan=False)
    if model.ByteSize() > _LIMIT - 1024:
        raise DataError(f"the model takes {model.ByteSize():,} bytes, and one ONNX file 2 GiB; export with --to torch")
    onnx.checker.check_model(model)
    return sealed(model.SerializeToString())


def _tidy(model: Any) -> None:
    """One name for the batch, and nothing of the machine that it was exported on: nodes carry stack traces."""
    model.producer_name, model.doc_string = "gated-domains", ""
    graph = model.graph
    del graph.value_info[:], graph.metadata_props[:], model.metadata_props[:]
    graph.name, graph.doc_string = "gated_domains", ""
    for node in graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    for value in (*graph.input, *graph.output):
        del value.metadata_props[:]
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    for tensor in graph.initializer:
        tensor.doc_string = ""
        del tensor.metadata_props[:]


@contextmanager
def _quiet() -> Iterator[None]:
    """What torch.onnx says on its way is for those who write it."""
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    try:
        for name in levels:
            logging.getLogger(name).setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


@dataclass(frozen=True, eq=False)
class OnnxFile:
    """A file that was looked through: its content, and what it says of itself."""

    content: bytes
    about: Mapping[str, Any]
    schema: Schema

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> OnnxFile:
        """A file that ``gated-domains export`` wrote: whole, unchanged, of a format we know, and of ONNX alone."""
        onnx, _ = onnx_packages()
        path = Path(path)
        content = path.read_bytes()
        unsealed(content, path)
        try:
            model = onnx.load_model_from_string(content)
            entries = [entry.value for entry in model.metadata_props if entry.key == ABOUT]
            about = json.loads(entries[0]) if len(entries) == 1 else None
        except Exception as error:  # protobuf has a class of its own for a message that is none
            raise DataError(f"{path} cannot be read ({first_line(error)}); export it again") from error
        if not isinstance(about, dict):
            raise DataError(f"{path} was not exported by gated-domains: nothing in it says how to read data for it")
        _check_format(about, path)
        _check_graph(model, path)
        return cls(content, about, check_about(about, model.graph, path))

    def session(self) -> Session:
        """The model, ready to be run."""
        return Session(self.content)


class Session:
    """A model in onnxruntime, on the CPU."""

    def __init__(self, content: bytes, *, threads: int | None = None) -> None:
        _, onnxruntime = onnx_packages()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if threads is not None:
            options.intra_op_num_threads = threads
        try:
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has a class for each of its status codes, and no common one of its own
            raise DataError(f"onnxruntime cannot run this model ({first_line(error)}); try a newer onnxruntime") from (
                error
            )
        self.outputs = tuple(output.name for output in self._session.get_outputs())

    def __call__(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        given = {name: np.ascontiguousarray(value) for name, value in inputs.items()}
        try:
            said = self._session.run(None, given)
        except Exception as error:  # as above
            raise DataError(f"onnxruntime could not run this model ({first_line(error)}); export it again") from error
        return dict(zip(self.outputs, said, strict=True))


def _check_format(about: Mapping[str, Any], path: Path) -> None:
    found = about.get("format")
    if type(found) is int and found == FORMAT:  # True is 1, too
        return
    newer = type(found) is int and found > FORMAT
    by = about.get("gated_domains", "another version")
    cure = "update gated-domains" if newer else "export it again"
    raise DataError(
        f"{path} was exported by gated-domains {by} in format {found!r}, and this version reads format {FORMAT}; {cure}"
    )


def _check_graph(model: Any, path: Path) -> None:
    """Refuse operators that are not ONNX's own, and weights that lie in other files: neither is ever in ours."""
    graphs = list(_graphs(model.graph))
    used = {node.domain for graph in graphs for node in graph.node}
    foreign = sorted((used | {entry.domain for entry in model.opset_import}) - set(_DOMAINS))
    if foreign or model.functions:
        named = listing(foreign) or "functions of its own"
        raise DataError(f"{path} asks for operators that are not of ONNX ({named}) and is not run; export it again")
    external = [tensor.name for graph in graphs for tensor in _tensors(graph) if _is_external(tensor)]
    if external:
        raise DataError(f"{path} keeps weights in other files ({listing(external)}) and is not run; export it again")


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _graphs(inner)


def _tensors(graph: Any) -> Iterator[Any]:
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    yield from graph.initializer
    for attribute in attributes:
        yield from (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors)
    for holder in attributes:
        for sparse in (*([holder.sparse_tensor] if holder.HasField("sparse_tensor") else []), *holder.sparse_tensors):
            yield from (sparse.values, sparse.indices)
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)


def _is_external(tensor: Any) -> bool:
    return bool(tensor.external_data) or tensor.data_location == 1
