"""What each of two processes does in ``test_domains_over_processes``: importable without pytest."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from gated_domains.backbones.bodies import MLP
from gated_domains.data.batches import DomainBatch
from gated_domains.methods import METHODS, Classes, Method, Problem
from gated_domains.methods.method import total

RANKS = 2
BLOCKS, SHARE = 3, 8
METHODS_COMPARED = {
    "coral": {"weight": 3.0},
    "irm": {"weight": 5.0, "anneal_epochs": 0},
    "group-dro": {"eta": 0.5},
    "cgd": {"eta": 0.5},
    "gdu-groups": {"eta": 0.5, "num_bases": 3},
    "gdu-groups over bases": {"over": "bases", "eta": 0.5, "supervise": 0.3},
}


def new_method(name: str) -> Method:
    torch.manual_seed(0)
    shape, kind = (5,), METHODS[name.partition(" ")[0]]
    problem = Problem(
        kind="features",
        shape=shape,
        outputs=3,
        task=Classes(),
        make_body=lambda: MLP(shape, (6,), norm=False, dropout=0),  # neither norms nor chance: rows are told apart
        domains=(100, 20, 50, 10),
    )
    return kind.build(kind.settings_type(**METHODS_COMPARED[name]), problem, mode="end_to_end")


def whole_batch(step: int) -> DomainBatch:
    """Blocks of three of the four domains."""
    generator = torch.Generator().manual_seed(step)
    domains = torch.tensor([2, 0, 3]).repeat_interleave(SHARE)
    inputs = torch.randn(BLOCKS * SHARE, 5, generator=generator) * (1 + domains.unsqueeze(1)) + domains.unsqueeze(1)
    return DomainBatch(inputs, torch.randint(3, (len(domains),), generator=generator), domains, BLOCKS)


def share(batch: DomainBatch, rank: int) -> DomainBatch:
    """A process's part of every block."""
    pick = torch.arange(len(batch)).reshape(BLOCKS, SHARE)[:, rank::RANKS].flatten()
    return DomainBatch(batch.inputs[pick], batch.targets[pick], batch.domains[pick], batch.blocks)


def two_steps(name: str, rank: int | None) -> dict[str, Tensor]:
    """Terms, gradients and state after two steps, on the whole batch or a process's share of it."""
    method, found = new_method(name), {}
    module = method if rank is None else DistributedDataParallel(method)
    optimizer = torch.optim.SGD(method.parameters(), lr=0.1)
    for step in range(2):
        batch = whole_batch(step) if rank is None else share(whole_batch(step), rank)
        optimizer.zero_grad()
        terms = module(batch.inputs, batch.targets, batch.domains, batch.blocks)
        total(terms).backward()
        optimizer.step()
        found |= {f"gradient {step} {key}": value.grad.clone() for key, value in method.named_parameters()}
    return found | {f"state {key}": value.clone() for key, value in method.state_dict().items()}


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS, timeout=timedelta(seconds=60))
    torch.save({name: two_steps(name, rank) for name in METHODS_COMPARED}, Path(folder) / f"rank{rank}.pt")
    dist.destroy_process_group()
