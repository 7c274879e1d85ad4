"""What the kernel sees: whether it saturates, and how wide it is beside the distances there are."""

from __future__ import annotations

from gated_domains.common.validation import SATURATED
from gated_domains.insight.doctor.cures import CURES
from gated_domains.insight.doctor.findings import Finding
from gated_domains.insight.doctor.measures import Seen, width_and_distance

SIGMA_OFF = 5.0
"""Times the typical distance, or one part of it."""


def saturation(seen: Seen) -> Finding:
    """Whether every row is near every basis, or far from all."""
    health = seen.health
    value = {"low": health.kernel_low, "high": health.kernel_high}
    trouble = health.troubles().get("kernel")
    if trouble is not None:
        cures = CURES["far from every basis" if health.kernel_high < SATURATED else "near every basis"]
        return Finding(name="kernel saturation", level="broken", value=value, says=trouble.says, cures=cures)
    return Finding(
        name="kernel saturation",
        level="ok",
        value=value,
        says=f"mean k is {health.kernel_low:.2g} to the farthest basis and {health.kernel_high:.2g} to the nearest",
    )


def sigma(seen: Seen) -> Finding:
    """sigma, beside the typical distance of rows."""
    measured = width_and_distance(seen)
    if measured is None:
        return Finding(name="sigma", level="ok", value={}, says="the kernel has no width of ours")
    now, typical = measured
    value = {"sigma": now, "median_distance": typical, "ratio": now / typical, "off_by": SIGMA_OFF}
    beside = f"{now:.3g}, {now / typical:.2g} times the median distance {typical:.3g}"
    if typical / SIGMA_OFF <= now <= typical * SIGMA_OFF:
        return Finding(name="sigma", level="ok", value=value, says=beside)
    far = "small: rows are alike to nothing" if now < typical else "large: all rows are alike"
    return Finding(
        name="sigma",
        level="look",
        value=value,
        says=f"sigma is too {far} ({beside})",
        cures=CURES["sigma"].given(typical=typical),
    )
