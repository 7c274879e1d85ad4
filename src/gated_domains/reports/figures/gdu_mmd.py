"""How far domains and bases lie from each other, in the space of the kernel."""

from __future__ import annotations

from gated_domains.reports.charts import Chart, Heat, Panel
from gated_domains.runs.insight import Insight
from gated_domains.runs.result import RunResult


def chart(result: RunResult, insight: Insight) -> Chart:
    """MMD between the means of domains and bases; zero on the diagonal."""
    names = [*map(str, insight.domain_names), *(f"basis {number + 1}" for number in range(insight.bases))]
    count = len(insight.domain_names)
    nearest = []
    for place in range(count):
        if insight.unseen[place]:
            basis = int(insight.mmd[place, count:].argmin())
            nearest.append(
                f"{names[place]} lies nearest to basis {basis + 1} ({insight.mmd[place, count + basis]:.2f})"
            )
    said = f" {'; '.join(nearest)}." if nearest else ""
    return Chart(
        key=f"mmd-{result.hold_out}",
        title=f"Distances of domains and bases: {result.label}, {result.hold_out} held out",
        caption=(
            "Maximum mean discrepancy between the means of domains and of bases, by the layer's own kernel: dark is "
            f"far. A basis that is near to one domain alone stands for it.{said}"
        ),
        runs=1,
        panels=(
            Panel(
                heat=Heat(
                    rows=tuple(names),
                    columns=tuple(names),
                    values=tuple(tuple(map(float, row)) for row in insight.mmd),
                    low=0.0,
                    bold_rows=tuple(name for name, new in zip(names, insight.unseen, strict=False) if new),
                ),
                domain=result.hold_out,
            ),
        ),
        height=max(320, 28 * len(names) + 140),
    )
