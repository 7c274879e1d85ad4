"""Sums and means of a batch by domain, over all processes. Shapes never depend on which domains a batch has."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.distributed as dist
from jaxtyping import Float, Int64
from torch import Tensor

from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.layer.kernels import at_least_float32, autocast_off


class DomainMeans(NamedTuple):
    """The mean of each domain, 0 where the batch has none of its rows; and how many rows each has."""

    means: Float[Tensor, "domains *value"]
    counts: Float[Tensor, " domains"]

    @property
    def present(self) -> Float[Tensor, " domains"]:
        """1 for a domain that has rows in the batch, else 0."""
        return (self.counts > 0).to(self.means.dtype)

    def average(self, values: Float[Tensor, " domains"] | None = None) -> Float[Tensor, ""]:
        """The mean over the domains that the batch has: of the means, or of other ``values`` by domain."""
        return average(self.means if values is None else values, self.present)


def domains_of(batch: DomainBatch) -> Int64[Tensor, " batch"]:
    """The domains of a batch; refused where they are not known."""
    if batch.domains is None:
        raise DataError("a batch for a method that compares domains has none; train it on rows whose domains are known")
    return batch.domains


def told_apart(batch: DomainBatch, count: int) -> tuple[Int64[Tensor, " batch"], int]:
    """Numbers that tell the domains in a batch apart, and how many there may be: its blocks, or all ``count`` domains.

    A batch in blocks has a few domains of perhaps thousands, and what is squared in their number stays small.
    """
    domains = domains_of(batch)
    if batch.blocks is None or batch.blocks > count:
        return domains, count
    places = torch.arange(len(domains), device=domains.device)
    return places // (len(domains) // batch.blocks), batch.blocks


def domain_means(values: Float[Tensor, "batch *value"], domains: Int64[Tensor, " batch"], count: int) -> DomainMeans:
    """The means of a batch's rows by domain, of which there are ``count``; over all processes, differentiable."""
    values = at_least_float32(values)
    which = membership(domains, count, like=values)
    counts = over_processes(which.sum(0))
    with autocast_off(values):  # else the sums would be of numbers with three digits
        sums = over_processes(which.T @ values.reshape(len(values), -1))
    means = sums / counts.clamp_min(1).unsqueeze(1)
    return DomainMeans(means.reshape(count, *values.shape[1:]), counts)


def membership(domains: Int64[Tensor, " batch"], count: int, *, like: Tensor) -> Float[Tensor, "batch domains"]:
    """1 where a row is of a domain, else 0. Not ``F.one_hot``, which makes the host wait for the GPU."""
    return (domains.unsqueeze(1) == torch.arange(count, device=domains.device)).to(like.dtype)


def average(values: Float[Tensor, " domains"], among: Float[Tensor, " domains"]) -> Float[Tensor, ""]:
    """The mean over those domains for which ``among`` is 1, and not 0; 0 if it is none."""
    return (values * among).sum() / among.sum().clamp_min(1)


def over_processes(values: Tensor) -> Tensor:
    """The sum over all processes, through which gradients flow; one process alone has it already.

    A loss of such sums is the same on every process, and its gradient on each is as many times too large as there are
    processes: just what taking the mean of gradients, as training does, makes right.
    """
    if _alone():
        return values
    from torch.distributed.nn.functional import all_reduce  # differentiable, unlike the one in torch.distributed

    return all_reduce(values)


def rows_of_all(values: Tensor) -> Tensor:
    """The rows of all processes, one process's after the other's, as many of each; gradients as in ``over_processes``.

    For what no sum of each process's own can give, such as products of rows with rows.
    """
    if _alone():
        return values
    from torch.distributed.nn.functional import all_gather

    return torch.cat(all_gather(values.contiguous()))


def _alone() -> bool:
    return not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1
