"""How many threads are used: on small matrices they only get in each other's way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits

from gated_domains.estimators.rows import AT_ONCE, RowSource

# Numbers that are looked at together, from which more than one thread pays.
_SMALL = 1 << 17


@contextmanager
def threads_for(source: RowSource) -> Iterator[None]:
    """One thread inside for few numbers, where cores that others use too would make more of them wait in vain."""
    before = torch.get_num_threads()
    if min(len(source), AT_ONCE) * source.width > _SMALL:
        yield
        return
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
