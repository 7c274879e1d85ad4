"""The number of threads for the work of a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits

from gated_domains.estimators.network import Network

# Floating-point operations of a step from which a second thread is used, a third from twice as many, and so on. The
# threads of OpenMP meet at a barrier after every operation and spin there: where another process has taken a core from
# one of them, the others burn theirs for the milliseconds until it is back. Shorter steps are faster on one thread.
_FLOPS_A_THREAD = 1_000_000_000


def step_flops(network: Network, rows: int) -> int:
    """What a step on so many rows costs, forward and backward: six operations for each row and weight."""
    return 6 * rows * sum(weight.numel() for weight in network.trained())


@contextmanager
def threads_for(flops: int) -> Iterator[None]:
    """Use as many threads inside as steps of so many operations are worth, and afterwards as many as before."""
    before = torch.get_num_threads()
    count = min(before, 1 + flops // _FLOPS_A_THREAD)
    if count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        torch.set_num_threads(before)
