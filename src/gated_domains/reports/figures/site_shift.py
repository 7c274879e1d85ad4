"""A new site beside the sources: distances, novelty, what it draws on, the accuracy to expect."""

from __future__ import annotations

import math
from itertools import pairwise

from gated_domains.reports.charts.chart import Axis, Chart, Marks, Panel, Rule
from gated_domains.reports.charts.palette import UNKNOWN, Palette
from gated_domains.reports.shift_words import percent, stands_for, untold
from gated_domains.runs.site_shift import SiteShift

NEW = "#D55E00"
_ALL = "all sources"
_LARGE, _SMALL = 11.0, 7.0
_UP, _DOWN = -0.14, 0.14  # of a line, so that nothing lies on top of what it is compared with


def charts(shift: SiteShift) -> list[Chart]:
    """Every figure of a site, in the order of the page."""
    found = [distances(shift), novelty(shift), None if untold(shift) else mixture(shift), accuracy(shift)]
    return [chart for chart in found if chart is not None]


def distances(shift: SiteShift) -> Chart:
    """The site to every source, and the sources to each other; the first line is of all sources together."""
    palette = _palette(shift)
    beside = shift.sources if len(shift.sources) > 1 else ()
    rows = (_ALL, *(source.name for source in beside))
    near = [(0.0, shift.distance)]
    near += [(float(y), source.distance) for y, source in enumerate(beside, 1) if source.distance is not None]
    marks = [
        Marks(
            name=shift.data,
            x=tuple(value for _, value in near),
            y=tuple(y + _UP for y, _ in near),
            colour=NEW,
            marker="D",
            size=_LARGE,
            hover=tuple(f"{shift.data} to {rows[int(y)]}: {value:.3f}" for y, value in near),
        )
    ]
    for place, source in enumerate(beside):
        others = [(0.0, source.to_others)] if source.to_others is not None else []
        others += [
            (float(y), value)
            for y, row in enumerate(shift.between, 1)
            if y - 1 != place and (value := row[place]) is not None
        ]
        if others:
            marks.append(
                Marks(
                    name=source.name,
                    x=tuple(value for _, value in others),
                    y=tuple(y + _DOWN for y, _ in others),
                    colour=palette.domain(source.name),
                    size=_SMALL,
                    alpha=0.85,
                    hover=tuple(
                        f"{source.name} to {'the other sources' if y == 0 else rows[int(y)]}: {value:.3f}"
                        for y, value in others
                    ),
                )
            )
    farthest = max(value for one in marks for value in one.x)
    return Chart(
        key="shift-distances",
        title="How far from the sources",
        caption=(
            "Distance of means in the kernel's space, less what chance adds. First line: the new site to all sources "
            "together, and each source to the others. Below: to each source by itself. A site to the right of all dots "
            f"of its line is farther than sources are from each other{_place(shift)}. Detectable difference: p = "
            f"{shift.p_value:.2g}, by {shift.permutations:,} permutations."
        ),
        runs=0,
        panels=(
            Panel(
                x=Axis(label="distance", low=0.0, high=1.06 * farthest or 1.0),
                y=Axis(categories=rows),
                marks=tuple(marks),
            ),
        ),
        height=110 + 34 * len(rows),
    )


def _place(shift: SiteShift) -> str:
    return "" if shift.rank is None else f": by equal rows it has rank {shift.rank.rank} of {shift.rank.sites}"


def novelty(shift: SiteShift) -> Chart:
    """How novel the rows are, beside rows of the sources."""
    found = shift.novelty
    middles = tuple((low + high) / 2 for low, high in pairwise(found.edges))
    drawn = (("rows of the sources", found.shares_of_sources, UNKNOWN), (shift.data, found.shares, NEW))
    marks = tuple(
        Marks(
            name=name,
            x=middles,
            y=tuple(100 * share for share in shares),
            colour=colour,
            form="bars",
            alpha=0.55,
            hover=tuple(
                f"{name}: {percent(share)} of rows\nnovelty {low:.3f} to {high:.3f}"
                for share, (low, high) in zip(shares, pairwise(found.edges), strict=True)
            ),
        )
        for name, shares, colour in drawn
    )
    inside = found.edges[0] <= found.limit <= found.edges[-1]
    return Chart(
        key="shift-novelty",
        title="How novel its rows are",
        caption=(
            f"What the gates cannot express of a row. {percent(found.unlike)} of the new rows are unlike anything "
            f"seen, {percent(found.unlike_of_sources)} of the rows of the sources. AUROC {found.auroc:.2f}: 0.5 where "
            "novelty does not tell them apart."
        ),
        runs=0,
        panels=(
            Panel(
                x=Axis(label="novelty"),
                y=Axis(label="rows in percent", low=0.0),
                marks=marks,
                rules=(Rule(along="y", at=found.limit, label="unlike anything seen"),) if inside else (),
            ),
        ),
        height=300,
    )


def mixture(shift: SiteShift) -> Chart:
    """What the site draws on, with intervals, and what the sources draw on."""
    palette, names = _palette(shift), [source.name for source in shift.sources]
    rows = tuple(f"basis {basis.basis}" for basis in shift.mixture)
    places = tuple(float(place) for place in range(len(rows)))
    marks = [
        Marks(
            name=source.name,
            x=tuple(100 * share for share in source.mixture),
            y=tuple(place + _DOWN for place in places),
            colour=palette.domain(source.name),
            size=_SMALL,
            alpha=0.85,
            hover=tuple(
                f"{source.name}: {percent(share)} on {row}" for share, row in zip(source.mixture, rows, strict=True)
            ),
        )
        for source in shift.sources
    ]
    marks.append(
        Marks(
            name=shift.data,
            x=tuple(100 * basis.share for basis in shift.mixture),
            y=tuple(place + _UP for place in places),
            low=tuple(100 * basis.low for basis in shift.mixture),
            high=tuple(100 * basis.high for basis in shift.mixture),
            interval="x",
            colour=NEW,
            marker="D",
            size=_LARGE,
            hover=tuple(
                f"{shift.data}: {percent(basis.share)} on basis {basis.basis}\n{percent(shift.level)} interval "
                f"{percent(basis.low)} to {percent(basis.high)}\n{stands_for(basis, names)}".strip()
                for basis in shift.mixture
            ),
        )
    )
    return Chart(
        key="shift-mixture",
        title="What it draws on",
        caption=(
            "The mixture of bases that comes nearest to the site, and to each source by itself. Bars are "
            f"{percent(shift.level)} intervals of the site's."
        ),
        runs=0,
        panels=(
            Panel(x=Axis(label="share in percent", low=-3.0, high=103.0), y=Axis(categories=rows), marks=tuple(marks)),
        ),
        height=110 + 34 * len(rows),
    )


def accuracy(shift: SiteShift) -> Chart | None:
    """The accuracy estimated and, where it is known, the true one; of the site and of sources left out of training."""
    found = shift.accuracy
    if found is None:
        return None
    rows = (shift.data, *(f"{one.name} (left out)" for one in found.left_out))
    known = [(float(y), one.estimated) for y, one in enumerate(found.left_out, 1) if one.estimated is not None]
    own = [] if found.value is None else [(0.0, found.value)]
    estimated = [*own, *known]
    true = [(float(y), one.true) for y, one in enumerate(found.left_out, 1)]
    if shift.true_accuracy is not None:
        true.insert(0, (0.0, shift.true_accuracy))
    marks = (
        Marks(
            name="estimated",
            x=tuple(100 * value for _, value in estimated),
            y=tuple(y + _UP for y, _ in estimated),
            low=(*(100 * found.low for _ in own), *(math.nan for _ in known)),
            high=(*(100 * found.high for _ in own), *(math.nan for _ in known)),
            interval="x",
            colour=NEW,
            marker="D",
            size=_LARGE,
            hover=tuple(f"{rows[int(y)]}: {100 * value:.1f} % estimated" for y, value in estimated),
        ),
        Marks(
            name="true",
            x=tuple(100 * value for _, value in true),
            y=tuple(y + _DOWN for y, _ in true),
            colour="#0072B2",
            size=_LARGE - 2,
            hover=tuple(f"{rows[int(y)]}: {100 * value:.1f} % in truth" for y, value in true),
        ),
    )
    off = "" if found.error is None else f" Such estimates were off by {100 * found.error:.1f} points on average."
    return Chart(
        key="shift-accuracy",
        title="How accurate the model will probably be",
        caption=(
            f"First line: the new site, {'with a 90 % interval' if own else f'without an estimate: {found.reason}'}. "
            f"Below: every source, estimated by a model trained without it and what the other sources taught.{off}"
        ),
        runs=0,
        panels=(
            Panel(
                x=Axis(label="accuracy in percent"),
                y=Axis(categories=rows),
                marks=tuple(one for one in marks if one.x),
            ),
        ),
        height=110 + 34 * len(rows),
    )


def _palette(shift: SiteShift) -> Palette:
    return Palette(domains=[source.name for source in shift.sources])
