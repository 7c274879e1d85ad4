"""Familiarity of rows, and what the head costs beside a linear one."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from gated_domains.backbones.backbone import evaluating
from gated_domains.insight.doctor.cures import CURES
from gated_domains.insight.doctor.findings import Finding
from gated_domains.insight.doctor.measures import Seen
from gated_domains.layer.gates import residual
from gated_domains.layer.units import GatedDomainUnits

FAMILIAR = 0.8
"""The least share of validation rows with a familiarity above 0; of training rows 0.97 have, by its construction."""
_TIMED_ROWS, _REPEATS = 512, 5


@torch.no_grad()
def familiarity(seen: Seen) -> Finding:
    """The share of rows that are familiar at all; with coverage on, the others fall back to the shared expert."""
    units = seen.units
    value: dict[str, float | bool] = {"applies_coverage": units.applies_coverage, "fitted": units.coverage.fitted}
    if not units.coverage.fitted:
        return Finding(
            name="familiarity",
            level="look" if units.applies_coverage else "ok",
            value=value,
            says="familiarity was never fitted: every row counts as familiar",
            cures=CURES["familiarity never fitted"] if units.applies_coverage else None,
        )
    products = seen.weighed.products
    found = units.coverage(residual(products, units.gate.explaining(products)))
    share, mean = float((found > 0).double().mean()), float(found.double().mean())
    value |= {"familiar": share, "mean": mean, "least": FAMILIAR}
    used = "deviations are multiplied by it" if units.applies_coverage else "it is reported and multiplies nothing"
    says = f"{share:.0%} of these rows are familiar, {mean:.2f} on average; {used}"
    if share >= FAMILIAR:
        return Finding(name="familiarity", level="ok", value=value, says=says)
    return Finding(
        name="familiarity",
        level="look",
        value=value,
        says=f"rows of the training domains count as unfamiliar ({says})",
        cures=CURES["familiarity out of date"],
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
