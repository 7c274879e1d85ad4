"""What calls of a layer deep in a model found, collected while somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

from gated_domains.keras_layer.arrays import Array, is_traced, ops
from gated_domains.keras_layer.output import GatedOutput


class Recorded:
    """The part of ``GatedDomainUnits`` that lets others look on; outside a block of theirs nothing is kept."""

    name: str
    gating_features: int
    _records: tuple[Callable[[Array, GatedOutput], None], ...] = ()

    @contextmanager
    def record(self) -> Iterator[list[GatedOutput]]:
        """Collect what calls found inside the block, for a head that sits deep in a model.

        >>> with head.record() as outs:
        ...     logits = model(x)
        """
        outs: list[GatedOutput] = []
        with self._noting(lambda view, out: outs.append(out)):
            yield outs

    @contextmanager
    def watch(self) -> Iterator[list[Annotated[Array, "rows gating"]]]:
        """Collect the rows that gates saw inside the block: what ``fit_bases`` and ``fit_coverage`` want."""
        seen: list[Array] = []
        with self._noting(lambda view, out: seen.append(ops.reshape(view, (-1, self.gating_features)))):
            yield seen

    def _note(self, view: Array, out: GatedOutput) -> None:
        for record in self._records:
            record(view, out)

    @contextmanager
    def _noting(self, note: Callable[[Array, GatedOutput], None]) -> Iterator[None]:
        def noted(view: Array, out: GatedOutput) -> None:
            if is_traced(out.beta):
                raise RuntimeError(
                    f"{self.name} cannot be recorded while a graph is made: call the model on a batch, model(x), "
                    "not predict, fit or evaluate"
                )
            note(view, out)

        self._records = (*self._records, noted)
        try:
            yield
        finally:
            self._records = tuple(record for record in self._records if record is not noted)
