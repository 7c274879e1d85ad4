"""Metrics: the numbers of every epoch, written as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from gated_domains.training.callbacks.base import Callback

if TYPE_CHECKING:
    from gated_domains.training.trainer import Trainer


@runtime_checkable
class MetricsLog(Protocol):
    """Where records of epochs are kept, as a `RunFolder` does."""

    def append_metrics(self, record: dict[str, Any]) -> None: ...
    def keep_metrics(self, through_step: int) -> None: ...


class MetricsWriter(Callback):
    """Appends the record of every epoch to a log.

    An interrupted training may have logged an epoch that its last checkpoint does not have. Such records are removed
    when it is resumed, because the epoch is then trained again.

    Parameters
    ----------
    log
        Anything with ``append_metrics(record)`` and ``keep_metrics(through_step)``.
    """

    rank_zero_only: ClassVar[bool] = True

    def __init__(self, log: MetricsLog) -> None:
        self.log = log

    def on_fit_start(self, trainer: Trainer) -> None:
        """Remove the records of epochs that will be trained again."""
        self.log.keep_metrics(trainer.step - trainer.batch if trainer.resumed else -1)

    def on_epoch_end(self, trainer: Trainer, record: dict[str, Any]) -> None:
        """Append the record."""
        self.log.append_metrics(record)
