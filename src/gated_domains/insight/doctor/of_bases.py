"""What bases are: dead, doubled, collapsed, how far they overlap, and how their number came about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gated_domains.common.validation import DOUBLED, GateHealth
from gated_domains.insight.doctor.cures import CURES
from gated_domains.insight.doctor.findings import Finding
from gated_domains.insight.doctor.measures import gram_of, health_of_bases, spread_of_bases
from gated_domains.layer import penalties
from gated_domains.layer.gates import ProjectionGate
from gated_domains.layer.units import GatedDomainUnits

POINT = 0.01
"""Of the spread of all vectors: below, those of a basis are one."""


def dead(health: GateHealth, num_bases: int) -> Finding:
    """Bases that no row gives weight to."""
    trouble = health.troubles().get("dead")
    value = {"dead": list(health.dead)}
    if trouble is None:
        return Finding(name="dead bases", level="ok", value=value, says="none: every basis has weight somewhere")
    cures = CURES["dead bases"].given(fewer=_fewer(num_bases, len(health.dead)))
    return Finding(name="dead bases", level="look", value=value, says=trouble.says, cures=cures)


def duplicates(units: GatedDomainUnits) -> Finding:
    """Pairs of bases that stand for the same; broken where all are copies of one."""
    health = health_of_bases(units)
    trouble = health.troubles().get("doubled")
    value = {"pairs": [list(pair) for pair in health.doubled], "cosine_above": DOUBLED}
    if trouble is None:
        return Finding(name="duplicate bases", level="ok", value=value, says="none: no two bases point the same way")
    count = units.num_bases
    if len(health.doubled) == count * (count - 1) // 2:
        return Finding(
            name="duplicate bases",
            level="broken",
            value=value,
            says=f"all {count} bases are one (cosine above {DOUBLED})",
            cures=CURES["all bases alike"],
        )
    copies = {later for _, later in health.doubled}
    cures = CURES["duplicate bases"].given(fewer=_fewer(count, len(copies)))
    return Finding(name="duplicate bases", level="look", value=value, says=trouble.says, cures=cures)


def collapsed(units: GatedDomainUnits) -> Finding:
    """Bases whose vectors are all in one place, beside how far all vectors lie apart."""
    spread = spread_of_bases(units)
    norms = gram_of(units).products.norms
    used = torch.nonzero(units.active).flatten()
    points = used[spread < POINT].tolist() if units.basis_size > 1 else []
    value = {"collapsed": points, "spread": spread.tolist(), "norms": norms.tolist(), "point_below": POINT}
    numbers = f"spread {float(spread.min()):.2g} to {float(spread.max()):.2g} of that of all vectors"
    if not points:
        return Finding(name="collapsed bases", level="ok", value=value, says=f"none: {numbers}")
    return Finding(
        name="collapsed bases",
        level="look",
        value=value,
        says=f"bases {points} have collapsed to a point ({numbers})",
        cures=CURES["collapsed bases"].given(fewer=_fewer(units.num_bases, len(points))),
    )


def orthogonality(units: GatedDomainUnits) -> Finding:
    """SRIP and mutual coherence of the Gram matrix; of weight where a gate takes bases for orthogonal."""
    seen = gram_of(units)
    srip = float(penalties.srip(seen, target=units.orthogonality_target))  # as it is penalised
    overlap, coherence = float(penalties.srip(seen)), float(penalties.mutual_coherence(seen))
    smallest = float(seen.products.norms.min())
    value = {"srip": srip, "mutual_coherence": coherence, "smallest_norm": smallest}
    numbers = f"SRIP {srip:.2g}, largest cosine of two bases {coherence:.2g}"
    gate = units.gate
    if not (isinstance(gate, ProjectionGate) and gate.ridge is None):
        return Finding(
            name="orthogonality", level="ok", value=value, says=f"{numbers}; {type(gate).__name__} needs none"
        )
    if overlap < smallest:
        return Finding(name="orthogonality", level="ok", value=value, says=f"{numbers}: near enough for a projection")
    return Finding(
        name="orthogonality",
        level="look",
        value=value,
        says=f"bases overlap, and this projection takes them for orthogonal ({numbers}; ||mu||^2 {smallest:.2g})",
        cures=CURES["overlapping bases"],
    )


def history(units: GatedDomainUnits) -> Finding | None:
    """How the number of bases came about, where the layer chose it in training; None where it did not."""
    rounds = [_as_mapping(record) for record in getattr(units, "history", None) or ()]
    if not rounds:
        return None
    total = {name: sum(int(record[name]) for record in rounds) for name in ("splits", "merges", "prunes")}
    path = [int(record["num_bases"]) for record in rounds]
    steps = [count for place, count in enumerate(path) if not place or path[place - 1] != count]
    done = ", ".join(f"{count} {name}" for name, count in total.items())
    moving = "" if rounds[-1].get("settled", True) else "; it was still moving when training ended"
    return Finding(
        name="how M came about",
        level="ok",
        value={"num_bases": units.num_bases, **total, "rounds": rounds},
        says=f"{units.num_bases} bases after {len(rounds)} rounds ({done}; {' -> '.join(map(str, steps))}){moving}",
    )


def _fewer(num_bases: int, without: int) -> int:
    """How many bases are left, two at least: one would be a linear head."""
    return max(2, num_bases - without)


def _as_mapping(record: Any) -> dict[str, Any]:
    return dict(record if isinstance(record, Mapping) else record._asdict())
