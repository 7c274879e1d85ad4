"""Watch: losses by iteration, progress for those who asked, and the best state by validation loss."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn


class Watch:
    """Told of every iteration; says when to stop.

    With ``validate``, the network's loss on rows kept apart, training ends after ``patience`` iterations without one
    better by ``tolerance``, and ``settle`` puts the best weights back.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        unit: str,
        verbose: int,
        tolerance: float,
        patience: int,
        validate: Callable[[], float] | None = None,
    ) -> None:
        self.network, self.unit, self.verbose = network, unit, verbose
        self.tolerance, self.patience, self.validate = tolerance, patience, validate
        self.losses: list[float] = []
        self.validation_losses: list[float] = []
        self.best_loss, self._since, self.stopped = math.inf, 0, False
        self._best: dict[str, Tensor] | None = None

    def stop_after(self, loss: float, *, number: int, most: int) -> bool:
        """Note an iteration; True where it should be the last."""
        if not math.isfinite(loss):
            raise ValueError(
                f"the loss became {loss} in {self.unit} {number}; scale the inputs (standardize=True) or lower "
                "learning_rate"
            )
        self.losses.append(loss)
        words = f"{self.unit} {number}/{most}: loss {loss:.5f}"
        if self.validate is not None:
            found = self.validate()
            self.validation_losses.append(found)
            words += f", validation loss {found:.5f}"
            self._since = 0 if found < self.best_loss - self.tolerance else self._since + 1
            if found < self.best_loss:
                self.best_loss = found
                self._best = {name: value.detach().clone() for name, value in self.network.state_dict().items()}
        if self.verbose and (number % self.verbose == 0 or number == most):
            print(words, flush=True)
        self.stopped = self.validate is not None and self._since >= self.patience
        return self.stopped

    def settle(self) -> None:
        """Put the best weights back, where there is a best."""
        if self._best is not None:
            self.network.load_state_dict(self._best)
