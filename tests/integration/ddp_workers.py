"""What each of two processes does in ``test_ddp``: importable without pytest, so that shape checks stay out of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gated_domains import GatedDomainUnits, fit_head, model_head, replace_head

RANKS = 2
ROWS = 24
SETTINGS = {"num_bases": 3, "basis_size": 4, "lambda_l1": 0.1, "lambda_entropy": 0.1, "lambda_orth": 0.1}


def whole_batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(ROWS, 6, generator=generator), torch.randn(ROWS, 2, generator=generator)


def rank_features(rank: int) -> Tensor:
    """Rows that differ from rank to rank, in place and in number."""
    generator = torch.Generator().manual_seed(10 + rank)
    return torch.randn(50 + 7 * rank, 4, generator=generator) + rank


def new_head(**settings: object) -> GatedDomainUnits:
    torch.manual_seed(0)
    return GatedDomainUnits(4, 2, **{**SETTINGS, **settings})  # type: ignore[arg-type]


def new_model() -> nn.Module:
    head = new_head()
    with torch.no_grad():
        head.experts.weight.normal_()
    return nn.Sequential(nn.Linear(6, 4), nn.ReLU(), head)


def step(model: nn.Module, x: Tensor, y: Tensor) -> int:
    """Backward through the task's loss and the penalties, which come by way of a record."""
    head = model_head(model)
    with head.record() as outs:
        prediction = model(x)
    (F.mse_loss(prediction, y) + head.penalty(outs[-1])).backward()
    return len(outs)


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS, timeout=timedelta(seconds=60)
    )
    try:
        found = {name: task(rank) for name, task in TASKS.items()}
        torch.save(found, Path(folder) / f"rank{rank}.pt")
    finally:
        dist.destroy_process_group()


def gradients(rank: int) -> dict[str, object]:
    model = DistributedDataParallel(new_model())
    x, y = (part.chunk(RANKS)[rank] for part in whole_batch())
    recorded = step(model, x, y)
    names = dict(model.module.named_parameters())
    return {"recorded": recorded, "gradients": {name: parameter.grad for name, parameter in names.items()}}


def trained(rank: int) -> dict[str, Tensor]:
    """A few steps, a refit in between."""
    model = DistributedDataParallel(new_model())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = (part.chunk(RANKS)[rank] for part in whole_batch())
    for turn in range(4):
        if turn == 2:
            model_head(model).fit_bases(rank_features(rank), optimizer=optimizer)
        optimizer.zero_grad()
        step(model, x, y)
        optimizer.step()
    return model.module.state_dict()


def fitted(rank: int) -> dict[str, Tensor]:
    return new_head().fit_bases(rank_features(rank)).state_dict()


def fitted_with_their_number(rank: int) -> dict[str, Tensor]:
    blobs = torch.cat([rank_features(rank) + 20 * j for j in range(2 + rank)])
    return new_head(num_bases="auto", max_bases=6).fit_bases(blobs).state_dict()


def adapted(rank: int) -> dict[str, Tensor]:
    """Rounds on rows that fall apart into more blobs on the second rank than on the first, with steps in between."""
    blobs = torch.cat([rank_features(rank) + 20 * j for j in range(2 + rank)])
    head = new_head(num_bases="adaptive", max_bases=6)
    model = DistributedDataParallel(head)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    head.fit_bases(blobs)
    for _ in range(3):
        optimizer.zero_grad()
        model(blobs[:8]).square().mean().backward()
        optimizer.step()
        head.adapt_bases(blobs, optimizer=optimizer)
    moments = optimizer.state[head.experts.weight]["exp_avg"]
    return {**head.state_dict(), "moments": moments}


def refitted_in_part(rank: int) -> dict[str, Tensor]:
    head = new_head().fit_bases(rank_features(0))
    head.fit_sigma(rank_features(rank))
    head.fit_coverage(rank_features(rank))
    return head.state_dict()


def failed(rank: int) -> dict[str, object]:
    """Rank 0 has bad rows, rank 1 good ones."""
    head = new_head()
    before = {name: value.clone() for name, value in head.state_dict().items()}
    features = rank_features(rank)
    if rank == 0:
        features[3] = torch.nan
    try:
        head.fit_bases(features)
    except Exception as error:
        together = torch.ones(1)
        dist.all_reduce(together)  # the processes still understand each other
        same = all(torch.equal(value, before[name]) for name, value in head.state_dict().items())
        return {"error": type(error).__name__, "message": str(error), "unchanged": same, "ranks": together.item()}
    return {"error": None}


def failed_elsewhere(rank: int) -> dict[str, Tensor]:
    """Rank 1 has bad rows, which nobody asks for."""
    features = rank_features(rank)
    if rank == 1:
        features[3] = torch.nan
    return new_head().fit_bases(features).state_dict()


def fitted_inside_a_model(rank: int) -> dict[str, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    model = DistributedDataParallel(replace_head(model, verbose=False))
    fit_head(model, rank_features(rank)[:50])
    return model.module.state_dict()


def fitted_with_a_view(rank: int) -> dict[str, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    model = replace_head(model, gating=lambda x: x[:, :3], example=torch.randn(4, 4), verbose=False)
    fit_head(model, rank_features(rank))
    return model.state_dict()


def renewed(rank: int) -> dict[str, Tensor]:
    """Rank 1 sees features that have moved, rank 0 does not: nobody refits; then the other way round: everyone does."""
    head = new_head().fit_bases(rank_features(0))
    optimizer = torch.optim.Adam(head.parameters())
    head.renew(rank_features(0) * (1 + 9 * rank), optimizer=optimizer)
    still = head.bases.detach().clone()
    head.renew(rank_features(0) * (10 - 9 * rank), optimizer=optimizer)
    return {**head.state_dict(), "still": still}


TASKS = {
    task.__name__: task
    for task in (
        gradients,
        trained,
        fitted,
        fitted_with_their_number,
        adapted,
        refitted_in_part,
        failed,
        failed_elsewhere,
        fitted_inside_a_model,
        fitted_with_a_view,
        renewed,
    )
}
