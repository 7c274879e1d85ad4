"""The graph that is exported: raw samples in, all that a model says of them out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from gated_domains.data.encoding import TableEncoding
from gated_domains.data.errors import DataError
from gated_domains.export.feeds import Feed
from gated_domains.export.frozen import freeze
from gated_domains.export.subject import Subject
from gated_domains.export.table_front import TableFront

OUTPUTS = ("prediction", "beta", "novelty", "coverage")
"""What a graph gives, in the order of ``Prediction``; those that a method has."""

_SMALLEST = float(np.finfo(np.float32).tiny)


class Served(nn.Module):
    """``predict`` with what comes before it, encoding, and after it, the temperature; nothing to learn.

    Weights keep their precision, float64 where an estimator has it, and what comes out is float32.
    """

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        encoding = subject.schema.encoding
        self.front = TableFront(encoding) if isinstance(encoding, TableEncoding) else subject.encode
        self.network = freeze(subject.network)
        self.predict = subject.predict
        self.temperature, self.instead = subject.temperature, subject.instead

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        said = self.predict(self.network, self.front(*inputs))
        found = (_tempered(said.output, self.temperature), said.beta, said.residual, said.coverage)
        return tuple(value.float() for value in found if value is not None)


def _tempered(probabilities: Tensor, temperature: float) -> Tensor:
    """As ``evaluation.calibration.tempered``; in float64, as a low temperature multiplies what rounding leaves."""
    if temperature == 1:
        return probabilities
    return (probabilities.double().clamp_min(_SMALLEST).log() / temperature).softmax(-1)


@torch.no_grad()
def output_names(graph: Served, example: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    """The names of what a graph gives."""
    said = graph.predict(graph.network, graph.front(*tensors(example)))
    return tuple(name for name, value in zip(OUTPUTS, said, strict=True) if value is not None)


def tensors(inputs: Mapping[str, NDArray[Any]]) -> tuple[Tensor, ...]:
    """Arrays as a graph takes them in torch."""
    return tuple(torch.from_numpy(np.ascontiguousarray(value)) for value in inputs.values())


def traced(graph: Served, example: Mapping[str, NDArray[Any]], *, feeds: list[Feed]) -> ExportedProgram:
    """The graph of torch.export, for batches of any size."""
    batch = Dim("batch", min=1)
    try:
        with torch.no_grad():
            return torch.export.export(
                graph, tensors(example), dynamic_shapes=(tuple({0: batch} for _ in feeds),), strict=False
            )
    except Exception as error:  # a tracer raises whatever the code it traces does, and classes of its own
        raise DataError(
            f"torch.export cannot trace this model ({root_cause(error)}); {graph.instead}, which `gated-domains "
            "predict` takes as well"
        ) from error


def root_cause(error: BaseException) -> str:
    """The first line of what went wrong at the bottom of it."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
