"""A call without arguments as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gated_domains.training.graphs import record

_WARM_UP = 3


class Recorded:
    """``call()``, recorded at the fourth call and replayed from then on; where that fails, called as ever.

    All that it reads and writes must stay where it is in memory.
    """

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.taken = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.failed = False
        self.stream = torch.cuda.Stream()

    def __call__(self) -> None:
        self.taken += 1
        if self.taken > _WARM_UP and self.graph is None and not self.failed:
            self.graph = record(self.call, stream=self.stream, what="a step of a population")
            self.failed = self.graph is None
        if self.graph is not None:
            self.graph.replay()
        elif self.failed:
            self.call()
        else:
            self._warm_up()

    def _warm_up(self) -> None:
        """On the stream that recording will be on."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.call()
        torch.cuda.current_stream().wait_stream(self.stream)
