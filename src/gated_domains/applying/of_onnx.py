"""An exported ONNX file on new data: read by the schema it carries, run by onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.applying.by_domain import asked_in_parts
from gated_domains.applying.predictor import GatesBy
from gated_domains.data.dataset import Schema
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Rows
from gated_domains.data.new_data import NewData
from gated_domains.evaluation.scores import Predicted
from gated_domains.export.feeds import feeding
from gated_domains.export.onnx_file import OnnxFile
from gated_domains.training.prediction import parts_of_one_domain

_AT_ONCE = 1_024
_FIELDS = {"prediction": "output", "beta": "beta", "novelty": "residual", "coverage": "coverage"}


class OnnxPredictor:
    """A model in an ONNX file. Its gates are those it was exported with; ``gates`` None takes them as they are."""

    def __init__(self, path: Path, *, gates: GatesBy | None = None) -> None:
        file = OnnxFile.read(path)
        own = file.about["gates"]
        if gates is not None and gates != own:
            can = "a stream has a memory, and a file none" if gates == "stream" else f"export it with --gates {gates}"
            raise DataError(f"{path} was exported with gates by {own}, and they cannot be by {gates} now; {can}")
        if file.about["numbers"] > 1:
            raise DataError(
                f"{path} predicts {file.about['numbers']} numbers a row, and a file of predictions has one; run it "
                "with onnxruntime, as its model card shows"
            )
        self.gates = own
        self._schema = file.schema
        self._session = file.session()
        self._exact = file.about["kind"] == "estimator"

    @property
    def schema(self) -> Schema:
        """How new data are read."""
        return self._schema

    def predict(self, data: NewData) -> Predicted:
        """What the model says of these rows, in order; with gates by batch, in batches of one domain each."""
        read = self._reading(data)
        rows = np.arange(len(data))
        if self.gates == "batch":
            parts = parts_of_one_domain(rows, data.domains)
        else:
            parts = np.array_split(rows, -(-len(rows) // _AT_ONCE))
        said = asked_in_parts(parts, lambda part: self._session(read(part)))
        return Predicted(**{_FIELDS[name]: values for name, values in said.items()})

    def _reading(self, data: NewData) -> Callable[[Rows], dict[str, NDArray[Any]]]:
        """Rows as the graph takes them; what is wrong with them is said of the file that they are from."""

        def read(rows: Rows) -> dict[str, NDArray[Any]]:
            try:
                return found(rows)
            except DataError as error:
                raise DataError(f"{data.name}: {error}") from error

        found = feeding(self._schema.encoding, data.inputs, exact=self._exact)
        return read
