"""The valley of a validation loss: from where it has arrived to where it rises again."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Valley:
    """Validation losses, counted from 0, and the valley that they go through.

    It begins with the first loss that none of the ``converged - 1`` after it undercuts. The mean of these
    ``converged`` losses times ``ratio`` is its rim. It is over once ``tolerated`` losses in a row lie above the rim,
    and ends with the one before those.
    """

    converged: int = 3
    tolerated: int = 6
    ratio: float = 1.3
    losses: list[float] = field(default_factory=list)

    def see(self, loss: float) -> None:
        """One more loss; what follows the valley is not looked at."""
        if not self.over:
            self.losses.append(loss)

    @property
    def start(self) -> int | None:
        """The index of its first loss, as soon as there is one."""
        windows = zip(*(self.losses[ahead:] for ahead in range(self.converged)), strict=False)
        return next((index for index, window in enumerate(windows) if window[0] == min(window)), None)

    @property
    def rim(self) -> float | None:
        """The loss above which it has been left."""
        start = self.start
        return None if start is None else self.ratio * float(np.mean(self.losses[start : start + self.converged]))

    @property
    def above(self) -> int:
        """How many losses in a row, up to the last one, lie above the rim."""
        rim = self.rim
        within = [] if rim is None else [index for index, loss in enumerate(self.losses) if loss <= rim]
        return len(self.losses) - 1 - within[-1] if within else 0

    @property
    def over(self) -> bool:
        """Whether it has been left for good."""
        return self.above >= self.tolerated

    @property
    def interval(self) -> tuple[int, int]:
        """The indices of its first and last loss; where it has not begun, of the last ``converged`` of all."""
        last, start = len(self.losses) - 1, self.start
        if start is None:
            return max(0, last + 1 - self.converged), last
        return start, last - self.above if self.over else last
