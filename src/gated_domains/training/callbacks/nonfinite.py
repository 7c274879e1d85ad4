"""A loss that is no number: which step, which batch, and what probably went wrong."""

from __future__ import annotations

import torch
from torch import nn

from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError, listing
from gated_domains.data.inputs import Rows
from gated_domains.methods.method import Terms
from gated_domains.training.settings import TrainingSettings


class NotFiniteError(DataError):
    """The loss or a weight became NaN or infinite; nothing was saved after the last good checkpoint."""


class FiniteWatch:
    """Notes the first step whose loss is no finite number, without making the host wait for the device."""

    def __init__(self, device: torch.device) -> None:
        self.first = torch.full((), -1, dtype=torch.int64, device=device)
        self.names: list[str] = []
        self.values = torch.zeros((), device=device)

    def see(self, terms: Terms, step: int) -> None:
        values = torch.stack([term.detach().float() for term in terms.values()])
        new = (self.first < 0) & ~torch.isfinite(values.sum())
        self.names, self.values = list(terms), torch.where(new, values, self.values)
        self.first = torch.where(new, step, self.first)

    def found(self) -> int | None:
        """The step, if there was one. Waits for the device."""
        first = int(self.first)
        return None if first < 0 else first

    def broken(self) -> str:
        """What was no number then: the loss, and which of its terms."""
        terms = dict(zip(self.names, self.values.isfinite().tolist(), strict=True))
        odd = [name for name, finite in terms.items() if not finite]
        return "the loss" + (f" (its terms: {listing(odd)})" if odd and len(terms) > 1 else "")


def all_finite(module: nn.Module) -> bool:
    """Whether every trained parameter is. Waits for the device."""
    trained = [torch.isfinite(p.detach()).all() for p in module.parameters() if p.requires_grad]
    return not trained or bool(torch.stack(trained).all())


def explain(
    broken: str,
    step: int,
    *,
    epoch: int,
    rows: Rows,
    batch: DomainBatch,
    losses: list[float],
    settings: TrainingSettings,
) -> NotFiniteError:
    """The error for what is no number: ``losses`` are the means of the epochs before."""
    shown = listing(rows[:8]) + (" ..." if len(rows) > 8 else "")
    where = f"{broken} is not a finite number at step {step} (epoch {epoch + 1}, rows {shown})"
    return NotFiniteError(f"{where}: {_cause(batch, rows, losses, settings)}")


def _cause(batch: DomainBatch, rows: Rows, losses: list[float], settings: TrainingSettings) -> str:
    for name, values in (("inputs", batch.inputs), ("targets", batch.targets)):
        odd = ~torch.isfinite(values).flatten(1).all(1) if values.dim() > 1 else ~torch.isfinite(values)
        if bool(odd.any()):
            return f"the {name} of row {rows[int(odd.nonzero()[0])]} hold NaN or infinity; clean the data"
    largest = float(batch.inputs.float().abs().amax())
    if largest > 1e4:
        return f"the inputs of this batch reach {largest:.3g}; standardise the features first"
    if settings.precision == "16":
        return "numbers of 16 bits overflow easily; use --precision bf16 or 32"
    growing = len(losses) > 1 and losses[-1] > 2 * min(losses)
    grew = f"it had grown from {min(losses):.3g} to {losses[-1]:.3g} by then; " if growing else ""
    return (
        f"{grew}the learning rate {settings.rate:g} is probably too high for {settings.optimizer}; "
        f"try --rate {settings.rate / 10:g}"
    )
