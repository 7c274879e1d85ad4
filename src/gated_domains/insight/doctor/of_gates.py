"""What gates do: whether beta depends on the input, how sharp it is, how many bases it uses, and kappa."""

from __future__ import annotations

import math

from gated_domains.insight.doctor.cures import CURES, Cure
from gated_domains.insight.doctor.findings import Finding
from gated_domains.insight.doctor.measures import (
    MATCHED_ENTROPY,
    Seen,
    effective_bases,
    entropy_share,
    information_share,
    matched_kappa,
)
from gated_domains.layer.gates import ProjectionGate, SoftmaxGate

# Of log M. Gates of the paper's start tell 0 to 0.005 on real features, those that are fitted 0.08 to 0.5.
NOTHING_TOLD, LITTLE_TOLD = 0.01, 0.05
# Of log M: below, nearly every row has one basis; above, nearly all weights are alike.
ONE_HOT, UNIFORM = 0.05, 0.95
FEW_USED = 1 / 3
"""Of M: fewer bases of equal weight than this, and most of them are not needed."""
KAPPA_OFF = 10.0
"""Times the matched kappa, or one part of it."""


def dependence(seen: Seen) -> Finding:
    """How much beta depends on the input."""
    told = information_share(seen.beta)
    value = {"beta_std": seen.health.beta_std, "information": told, "num_bases": seen.num_bases}
    name = "dependence on the input"
    if seen.num_bases < 2:
        return Finding(
            name=name,
            level="look",
            value=value,
            says="gates cannot depend on the input: one basis has all the weight",
            cures=CURES["one basis"],
        )
    numbers = f"std of beta {seen.health.beta_std:.2g}; an input tells {100 * told:.2g}% of log M of its basis"
    dead = seen.health.troubles().get("input")
    if dead is not None:
        return Finding(name=name, level="broken", value=value, says=dead.says, cures=_wake(seen))
    if told < NOTHING_TOLD:
        says = f"gates do not depend on the input ({numbers}, below {NOTHING_TOLD:.0%})"
        return Finding(name=name, level="broken", value=value, says=says, cures=_wake(seen))
    if told < LITTLE_TOLD:
        says = f"gates hardly depend on the input ({numbers}, below {LITTLE_TOLD:.0%})"
        return Finding(name=name, level="look", value=value, says=says, cures=_wake(seen))
    return Finding(name=name, level="ok", value=value, says=f"gates depend on the input ({numbers})")


def _wake(seen: Seen) -> Cure:
    gate = seen.units.gate
    return CURES["projection asleep" if isinstance(gate, ProjectionGate) and gate.ridge is None else "gates asleep"]


def sharpness(seen: Seen) -> Finding:
    """The mean entropy of the gates, as a share of log M."""
    share = entropy_share(seen.beta)
    value = {"entropy": share, "one_hot_below": ONE_HOT, "uniform_above": UNIFORM}
    if seen.num_bases < 2:
        return Finding(name="gate entropy", level="ok", value=value, says="one basis has no entropy")
    numbers = f"mean entropy {share:.2f} of log M"
    if ONE_HOT <= share <= UNIFORM:
        return Finding(name="gate entropy", level="ok", value=value, says=f"{numbers} (0: one-hot, 1: uniform)")
    kind = "one-hot" if share < ONE_HOT else "uniform"
    matched = matched_kappa(seen)
    return Finding(
        name="gate entropy",
        level="look",
        value=value,
        says=f"gates are {kind} ({numbers})",
        cures=_wake(seen) if matched is None else CURES[f"{kind} gates"].given(kappa=matched),
    )


def bases_in_use(seen: Seen) -> Finding:
    """How many bases of equal weight would be as even as the mean weights are."""
    used, count = effective_bases(seen.beta), seen.num_bases
    value = {"effective": used, "num_bases": count, "mean_weights": seen.beta.mean(0).tolist()}
    few = used < FEW_USED * count
    return Finding(
        name="bases in use",
        level="look" if few else "ok",
        value=value,
        says=f"{'few bases do all the work' if few else 'weight is spread'} (as even as {used:.1f} of {count})",
        cures=CURES["few bases in use"].given(fewer=max(2, math.ceil(used))) if few else None,
    )


def kappa(seen: Seen) -> Finding:
    """kappa, beside the one that fits these rows."""
    gate = seen.units.gate
    matched = matched_kappa(seen)
    if not isinstance(gate, SoftmaxGate) or matched is None:
        return Finding(name="kappa", level="ok", value={}, says=f"{type(gate).__name__} has none")
    now = float(gate.kappa)
    value = {"kappa": now, "matched": matched, "ratio": now / matched, "off_by": KAPPA_OFF}
    if seen.num_bases < 2:
        return Finding(name="kappa", level="ok", value=value, says=f"{now:.3g} (one basis: it changes nothing)")
    beside = f"{matched:.3g} gives gates a mean entropy of {MATCHED_ENTROPY:g} log M"
    off = max(now / matched, matched / now)
    if off <= KAPPA_OFF:
        return Finding(name="kappa", level="ok", value=value, says=f"{now:.3g} ({beside})")
    side = "large" if now > matched else "small"
    return Finding(
        name="kappa",
        level="look",
        value=value,
        says=f"kappa is {off:.0f} times too {side} ({now:.3g}, and {beside})",
        cures=CURES["kappa"].given(kappa=matched),
    )
