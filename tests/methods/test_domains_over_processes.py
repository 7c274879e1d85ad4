"""Two processes with half of every block each compute what one computes on whole blocks."""

from __future__ import annotations

import time

import domain_workers
import pytest
import torch
import torch.multiprocessing as mp

DEADLINE = 120.0


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> list[dict[str, dict[str, torch.Tensor]]]:
    """What each rank found, by method."""
    folder = tmp_path_factory.mktemp("processes")
    processes = mp.spawn(domain_workers.work, args=(str(folder),), nprocs=domain_workers.RANKS, join=False)
    end = time.monotonic() + DEADLINE
    while not processes.join(timeout=1):
        if time.monotonic() > end:
            for process in processes.processes:
                process.kill()
            pytest.fail(f"the processes did not end in {DEADLINE:.0f} seconds")
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(domain_workers.RANKS)]


@pytest.mark.slow
@pytest.mark.parametrize("name", domain_workers.METHODS_COMPARED)
def test_two_processes_step_as_one_on_the_whole_batch(name, found):
    alone = domain_workers.two_steps(name, None)
    for rank in found:
        assert any(value.abs().max() > 0 for key, value in alone.items() if key.startswith("gradient 1"))
        torch.testing.assert_close(rank[name], alone, rtol=1e-4, atol=1e-6)
