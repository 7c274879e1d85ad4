"""Who uses which basis: mean gate weight by domain, and how much of each domain the bases cover."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.reports.charts import Axis, Chart, Heat, Marks, Panel
from gated_domains.reports.charts.palette import Palette
from gated_domains.runs.result import RunResult

_MOST_DOMAINS = 60
_ALIKE = 0.02  # of a weight: a standard deviation below this is hardly seen


def chart(result: RunResult, arrays: dict[str, NDArray[Any]], *, palette: Palette) -> Chart | None:
    """The gates of one run, sources first; None where it has none, or nobody knows the domains of its rows."""
    beta, domains = arrays.get("beta"), arrays.get("domains")
    if beta is None or domains is None or not beta.size or not np.isfinite(beta).all():
        return None
    present = np.unique(domains[domains >= 0]).tolist()  # a row without a domain is of none
    if not present or present[-1] >= len(result.domain_names):
        return None
    places = sorted(present, key=lambda place: result.domain_names[place] in result.held_out)[-_MOST_DOMAINS:]
    names = [result.domain_names[place] for place in places]
    unseen = [name for name in names if name in result.held_out]
    chosen = [domains == place for place in places]
    means = [beta[mine].mean(axis=0, dtype=np.float64) for mine in chosen]
    heat = Heat(
        rows=tuple(names),
        columns=tuple(str(number) for number in range(1, beta.shape[1] + 1)),
        values=tuple(tuple(map(float, row)) for row in means),
        signed=bool(np.min(means) < -1e-6),
        bold_rows=tuple(unseen),
    )
    panels = [Panel(title="mean gate weight", heat=heat, x=Axis(label="basis"), domain=result.hold_out, share=3.0)]
    coverage = arrays.get("coverage")
    if coverage is not None and np.isfinite(coverage).all():
        panels.append(_coverage(names, [coverage[mine] for mine in chosen], result.hold_out, palette))
    return Chart(
        key=f"gates-{result.hold_out}",
        title=f"Who uses which basis: {result.label}, {result.hold_out} held out",
        caption=_caption(np.array(means), len(present), unseen, result),
        runs=1,
        panels=tuple(panels),
        columns=len(panels),
        height=max(220, 34 * len(names) + 120),
    )


def _coverage(names: list[str], values: list[NDArray[Any]], hold_out: str, palette: Palette) -> Panel:
    quarters = [np.quantile(found, (0.25, 0.75)).tolist() for found in values]
    marks = tuple(
        Marks(
            name=name,
            x=(float(found.mean()),),
            y=(float(place),),
            low=(low,),
            high=(high,),
            interval="x",
            colour=palette.domain(name),
            hover=(f"{name}: mean coverage {found.mean():.3f}, middle half {low:.3f} to {high:.3f}",),
            legend=False,
            size=9.0,
        )
        for place, (name, found, (low, high)) in enumerate(zip(names, values, quarters, strict=True))
    )
    return Panel(
        title="coverage (mean, middle half)",
        x=Axis(low=-0.03, high=1.03),
        y=Axis(categories=tuple(names)),
        marks=marks,
        domain=hold_out,
        share=2.0,
    )


def _caption(means: NDArray[np.float64], there: int, unseen: list[str], result: RunResult) -> str:
    marked = f" {', '.join(unseen)} (bold) {_were(unseen)} never seen in training." if unseen else ""
    few = f" Of {there:,} domains, {len(means)} are shown, with as many unseen ones as fit." * (len(means) < there)
    told = f" {_differing(means)}" if len(means) > 1 else ""
    of = f"Mean weight of each basis over validation rows of the sources and held-out rows, seed {result.seed}."
    return f"{of}{told}{marked}{few}"


def _differing(means: NDArray[np.float64]) -> str:
    """How far domains differ, in a sentence."""
    deviations = means.std(axis=0, ddof=1)
    most = int(deviations.argmax())
    flat = (
        f"the weight of basis {most + 1}, which differs most between domains, has a standard deviation of "
        f"{deviations[most]:.3f} over them"
    )
    if deviations[most] < _ALIKE:
        return f"Domains use the bases alike: {flat}, so the gates tell these domains hardly apart."
    return f"Rows that differ show gates that tell domains apart: {flat}."


def _were(names: list[str]) -> str:
    return "was" if len(names) == 1 else "were"
