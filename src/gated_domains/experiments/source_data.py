"""A data set as the runs on it see it: decided on their source rows, and named by its content."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.inputs import fingerprint
from gated_domains.data.splits import HoldOut
from gated_domains.evaluation.metrics import SELECTION_RULES
from gated_domains.runs.recipe import Recipe


class SourceData:
    """A data set as the sources of each run have it: kinds of columns and the list of classes decided on them."""

    def __init__(
        self, dataset: DomainDataset, *, digests: NDArray[np.uint64] | None = None, known: str | None = None
    ) -> None:
        self.dataset = dataset
        self.digests = dataset.inputs.digests() if digests is None else digests
        self.fingerprint = fingerprint(dataset, self.digests) if known is None else known
        self._views: dict[str, tuple[DomainDataset, dict[str, Any]]] = {}

    def view(self, recipe: Recipe, split: HoldOut, hashed: str) -> DomainDataset:
        """The data of a run; where it selects by the rows held out, as all rows have it."""
        return self._view(recipe, split, hashed)[0]

    def identity(self, recipe: Recipe, split: HoldOut, hashed: str) -> dict[str, Any]:
        """What distinguishes the data of a run from others; where its sources decide otherwise, how they decide."""
        return self._view(recipe, split, hashed)[1]

    def _view(self, recipe: Recipe, split: HoldOut, hashed: str) -> tuple[DomainDataset, dict[str, Any]]:
        whole = {"name": self.dataset.name, "fingerprint": self.fingerprint}
        if SELECTION_RULES[recipe.selection].oracle:
            return self.dataset, whole
        if hashed not in self._views:
            view = self.dataset.decided_on(split.seen)
            if view is not self.dataset:
                same_inputs = view.inputs is self.dataset.inputs
                whole = {**whole, "decided": fingerprint(view, self.digests if same_inputs else None)}
            self._views[hashed] = view, whole
        return self._views[hashed]
