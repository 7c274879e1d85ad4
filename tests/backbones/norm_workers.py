"""What processes of their own do in ``test_basis_statistics``: importable without pytest."""

from __future__ import annotations

import copy
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gated_domains.backbones import gate_norms, mixing

BASES, ROWS, FIRST = 3, 12, 8


def new_model(statistics: str | None) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))
    model.append(nn.BatchNorm1d(5))
    if statistics is not None:
        gate_norms(model, BASES, statistics=statistics)  # type: ignore[arg-type]
    return model.double()


def whole_batch(step: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(ROWS, 3, 6, 6, generator=generator).double() + torch.arange(ROWS).reshape(-1, 1, 1, 1) / 4
    return x, torch.randn(ROWS, BASES, generator=generator).double().softmax(-1)


def two_steps(rank: int | None) -> dict[str, Tensor]:
    """The state after two steps, on the whole batch or on a process's share of it."""
    model = new_model("basis")
    wrapped = model if rank is None else DistributedDataParallel(model, broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    share = slice(None) if rank is None else (slice(0, FIRST), slice(FIRST, None))[rank]
    for step in range(2):
        x, mixture = (part[share] for part in whole_batch(step))
        optimizer.zero_grad()
        with mixing(model, mixture):
            # Gradients are averaged over processes, so a sum is as many times too small.
            loss = (wrapped(x) ** 3).sum() * (1 if rank is None else 2)
        loss.backward()
        optimizer.step()
    return {name: value.clone() for name, value in model.state_dict().items()}


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    torch.save(two_steps(rank), Path(folder) / f"rank{rank}.pt")
    dist.destroy_process_group()


def compare_compiled() -> None:
    torch.set_num_threads(1)
    eager = new_model("basis")
    twin = copy.deepcopy(eager)

    def step(model: nn.Module, x: Tensor, mixture: Tensor) -> Tensor:
        with mixing(model, mixture):
            return (model(x) ** 3).sum()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for number in range(2):
        for call, model in ((step, eager), (compiled, twin)):
            call(model, *whole_batch(number)).backward()
    for (name, mine), theirs in zip(twin.named_parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, msg=name)
    torch.testing.assert_close(twin.state_dict(), eager.state_dict())
