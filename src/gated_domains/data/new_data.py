"""Data to predict on or to score: like those a model was trained on, perhaps without targets and domains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, listing
from gated_domains.data.inputs import Inputs, Rows


@dataclass(frozen=True, eq=False, kw_only=True)
class NewData:
    """Samples of a new site. ``targets``, where known, are indices into ``class_names``, the classes of training.

    With ``label_names`` they are a yes or no to each of these labels of training, NaN where nobody knows.
    ``domains`` are indices into ``domain_names``, the new site's own. ``metadata`` tell rows apart: ``file`` for images
    in a folder, and columns that were asked for. ``notes`` say what a person should know about how it was read.
    """

    name: str
    inputs: Inputs
    class_names: tuple[str, ...] | None
    label_names: tuple[str, ...] | None = None
    targets: NDArray[Any] | None = None
    domains: NDArray[np.int64] | None = None
    domain_names: tuple[str, ...] = ()
    metadata: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self) == 0:
            raise DataError(f"{self.name}: there are no samples")
        for name, column in {"targets": self.targets, "domains": self.domains, **self.metadata}.items():
            if column is not None and len(column) != len(self):
                raise DataError(
                    f"{self.name}: {len(self):,} inputs but {len(column):,} {name}; there must be one for each"
                )

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def task(self) -> Literal["classes", "number", "labels"]:
        """What is predicted."""
        if self.class_names is not None:
            return "classes"
        return "number" if self.label_names is None else "labels"

    def with_inputs(self, inputs: Inputs) -> NewData:
        """The same samples, seen otherwise: encoded, as features of a backbone."""
        return replace(self, inputs=inputs)

    def take(self, rows: Rows) -> NewData:
        """Some of the samples; domains and classes keep their numbers."""
        return replace(
            self,
            inputs=self.inputs.take(rows),
            targets=None if self.targets is None else self.targets[rows],
            domains=None if self.domains is None else self.domains[rows],
            metadata={name: column[rows] for name, column in self.metadata.items()},
        )

    def __repr__(self) -> str:
        targets = "without targets" if self.targets is None else "with targets"
        domains = f", domains {listing(self.domain_names, 5)}" if self.domain_names else ""
        return f"<new data {self.name}: {len(self):,} rows, {self.inputs.describe()}, {targets}{domains}>"
