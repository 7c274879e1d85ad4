"""Coverage of familiar rows, and what the head costs beside a linear one."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from gated_domains.backbones.finding import evaluating
from gated_domains.insight.doctor.findings import Finding
from gated_domains.insight.doctor.measures import Seen
from gated_domains.layer.products import residual
from gated_domains.layer.units import GatedDomainUnits

UNCOVERED = 0.8
"""The least share of familiar rows that is covered; of training rows coverage covers 0.97 by its making."""
_TIMED_ROWS, _REPEATS = 512, 5


@torch.no_grad()
def coverage(seen: Seen) -> Finding:
    """The share of rows that get anything of the deviations, where an unfamiliar one falls back."""
    units = seen.units
    if not units.covers:
        return Finding(name="coverage", level="ok", value={"covers": False}, says="switched off")
    if not units.coverage.fitted:
        return Finding(
            name="coverage",
            level="look",
            value={"covers": True, "fitted": False},
            says="coverage was never fitted: every row counts as familiar",
            cure="call fit_coverage (or fit_bases) with training rows",
        )
    products = seen.weighed.products
    covered = units.coverage(residual(products, units.gate.explaining(products)))
    share, mean = float((covered > 0).double().mean()), float(covered.double().mean())
    value = {"covers": True, "fitted": True, "covered": share, "mean": mean, "least": UNCOVERED}
    says = f"{share:.0%} of these rows are covered, {mean:.2f} on average"
    if share >= UNCOVERED:
        return Finding(name="coverage", level="ok", value=value, says=says)
    return Finding(
        name="coverage",
        level="look",
        value=value,
        says=f"familiar rows are not covered ({says})",
        cure="renew the quantiles: fit_coverage with training rows, after the bases have moved",
    )


def cost(units: GatedDomainUnits, view: Tensor | None, features: Tensor | None = None) -> Finding:
    """Parameters, and the time of one forward, beside ``nn.Linear`` on the same rows in the same call."""
    numbers = units.out_features * (units.task.numbers_an_output if units.task is not None else 1)
    own = sum(parameter.numel() for parameter in units.parameters())
    linear = (units.in_features + 1) * numbers
    value: dict[str, float] = {"parameters": own, "linear_parameters": linear}
    says = f"{own:,} parameters beside {linear:,} of a linear head"
    if view is not None:
        gated_seconds, linear_seconds, rows = _timed(units, view, features, numbers)
        value |= {"seconds": gated_seconds, "linear_seconds": linear_seconds, "rows": rows}
        says += f"; {1e3 * gated_seconds:.2f} ms beside {1e3 * linear_seconds:.2f} ms for {rows:,} rows"
    return Finding(name="cost", level="ok", value=value, says=says)


@torch.no_grad()
def _timed(units: GatedDomainUnits, view: Tensor, features: Tensor | None, numbers: int) -> tuple[float, float, int]:
    z = view[:_TIMED_ROWS].to(units.bases)
    if features is not None:
        x = features[:_TIMED_ROWS].to(units.bases)
    elif units.in_features == units.gating_features:
        x = z
    else:  # what experts see costs the same whatever it is
        x = z.new_zeros(len(z), units.in_features)
    head = nn.Linear(units.in_features, numbers).to(units.bases)
    with evaluating(units):
        return _best(lambda: units.evaluate(x, z).prediction), _best(lambda: head(x)), len(z)


def _best(run: Callable[[], Tensor]) -> float:
    """The shortest of a few runs, after one that warms up."""
    seconds = []
    for _ in range(1 + _REPEATS):
        start = time.perf_counter()
        done = run()
        if done.is_cuda:
            torch.cuda.synchronize(done.device)
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])
