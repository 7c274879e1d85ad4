"""Molecules -> what a network takes: fingerprints as zeros and ones, graphs as they are packed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gated_domains.data.encoding.base import Encoding, FeatureEncoding
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Inputs
from gated_domains.data.molecules.graphs import Graphs

if TYPE_CHECKING:
    from torch import Tensor


class BitsEncoding(FeatureEncoding):
    """Zeros and ones in float32. Bytes until a batch is made: a quarter of the memory."""

    kind = "bits"


class GraphEncoding(Encoding):
    """Packed graphs as they are; a network for graphs unpacks them. There is nothing to learn from data."""

    kind = "graphs"

    @property
    def shape(self) -> tuple[int, ...]:
        return (1,)  # a molecule; how many numbers that is differs

    def prepare(self, inputs: Inputs) -> Inputs:
        if not isinstance(inputs, Graphs):
            raise DataError(f"this encoding was made for graphs, got {inputs.describe()}")
        return inputs

    def tensor(self, raw: Tensor) -> Tensor:
        return raw

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind}
