"""What is worth knowing of a run beside its numbers: what processes shared, why it broke."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lightning_fabric import Fabric

from gated_domains.data.errors import listing
from gated_domains.experiments.run_folder import BROKEN, RunFolder
from gated_domains.methods import Method
from gated_domains.training.callbacks.nonfinite import NotFiniteError


def process_notes(method: Method, world: int, batch: int) -> list[str]:
    """What differs from one process with the same batch."""
    notes = []
    if world > 1 and method.per_rank():
        notes.append(f"with {world} processes, {listing(method.per_rank())} are per process")
    if batch % world:
        notes.append(
            f"with {world} processes, {batch % world} of the {batch} rows of a batch cannot be shared: left out"
        )
    return notes


@contextmanager
def breaks_noted(folder: RunFolder, fabric: Fabric) -> Iterator[None]:
    """A loss that becomes no number is noted in the folder: whoever tries many settings need not try these again."""
    try:
        yield
    except NotFiniteError as error:
        if fabric.is_global_zero:
            folder.write_json(BROKEN, {"why": str(error)})
        fabric.barrier()  # all processes are here, and all shall find the note
        raise
