"""Rows in the plane: classes under two networks, and domains with the bases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gated_domains.evaluation.statistics import spread
from gated_domains.reports.ablations.kept_arrays import ClassPlane, DomainPlane
from gated_domains.reports.ablations.words import agreement, difference, mean_std
from gated_domains.reports.charts.chart import Axis, Chart, Marks, Panel
from gated_domains.reports.charts.palette import DOMAIN_COLOURS, MARKERS, METHOD_COLOURS, Palette

_GREY = "#B0B0B0"
_COLOURS = (*DOMAIN_COLOURS[:-1], METHOD_COLOURS[-1])  # of classes: the last two domains are too near each other
_ALIKE = 5  # classes with one marker
_HIDDEN = Axis(hidden=True)
_NARROW, _NEAR = 0.5, 0.5  # of the spread of the source rows
_NOTHING = "There is no network yet; the same command goes on."


def features_chart(planes: Mapping[str, Mapping[int, ClassPlane]], *, title: str) -> Chart:
    """A panel a network, held-out rows by true label: the first seed's; the numbers are over all seeds."""
    there = {name: by_seed for name, by_seed in planes.items() if by_seed}
    panels = tuple(
        _classes(name, by_seed[min(by_seed)], legend=not n) for n, (name, by_seed) in enumerate(there.items())
    )
    return Chart(
        key="features",
        title=f"The body's output on {title}, held out, by true label (t-SNE)",
        caption=_concentrated(there) if there else _NOTHING,
        runs=sum(map(len, there.values())),
        panels=panels or (Panel(),),
        columns=2,
        square=True,
        height=420,
    )


def _classes(name: str, plane: ClassPlane, *, legend: bool) -> Panel:
    marks = []
    for number, label in enumerate(plane.classes.tolist()):
        points = plane.rows[plane.labels == number]
        said = f"{label}: silhouette {plane.in_features[number]:.2f} in features, {plane.in_plane[number]:.2f} here"
        marks.append(_dots(label, points, _COLOURS[number % len(_COLOURS)], said=said, legend=legend))
        marks[-1] = replace(marks[-1], marker=MARKERS[number // _ALIKE % len(MARKERS)], size=4.0)
    return Panel(title=name, marks=tuple(marks), x=_HIDDEN, y=_HIDDEN)


def _concentrated(there: Mapping[str, Mapping[int, ClassPlane]]) -> str:
    parts = [
        "Silhouette of the classes (1: each far from the others and tight, 0: they overlap), mean over classes, "
        f"then over {max(map(len, there.values()))} seeds. The paper sees GDU more concentrated."
    ]
    for where, attribute in (("in the space of the features", "in_features"), ("in the plane", "in_plane")):
        means = {
            name: {seed: float(np.mean(getattr(plane, attribute))) for seed, plane in by_seed.items()}
            for name, by_seed in there.items()
        }
        each = ", ".join(f"{name} {mean_std(spread(values.values()), 2)}" for name, values in means.items())
        told = ""
        if len(means) == 2:
            first, second = means.values()
            said, sign = difference(second, first, unit="", digits=2)
            told = f"; the second less the first {said}, which {agreement(sign, 1)}"
        parts.append(f"{where.capitalize()}: {each}{told}.")
    return " ".join(parts)


def domains_chart(planes: Sequence[DomainPlane], *, title: str) -> Chart:
    """Two panels: the sources by domain; the unseen domain and the bases over the sources in grey."""
    return Chart(
        key="domains",
        title=f"Sources, {title} (held out) and bases of FT MMD (t-SNE)",
        caption=_around(planes) if planes else _NOTHING,
        runs=len(planes),
        panels=_domains(planes[0]) if planes else (Panel(),),
        columns=2,
        square=True,
        height=420,
    )


def _domains(plane: DomainPlane) -> tuple[Panel, Panel]:
    palette = Palette(domains=plane.names.tolist())
    sources = [number for number in range(len(plane.names)) if not plane.unseen[number]]
    of = {number: plane.rows[plane.domains == number] for number in range(len(plane.names))}
    left = [_dots(str(plane.names[n]), of[n], palette.domain(str(plane.names[n])), legend=True) for n in sources]
    right = [_dots("sources", plane.rows[np.isin(plane.domains, sources)], _GREY, legend=True)]
    right += [
        _dots(f"{plane.names[n]} (unseen)", of[n], palette.domain(str(plane.names[n])), legend=True)
        for n in of
        if n not in sources
    ]
    right.append(
        Marks(
            name="bases",
            x=tuple(map(float, plane.bases[:, 0])),
            y=tuple(map(float, plane.bases[:, 1])),
            hover=tuple(f"basis {number + 1}" for number in plane.basis_of.tolist()),
            colour=METHOD_COLOURS[1],
            marker="D",
            size=5.0,
        )
    )
    return (
        Panel(title="sources by domain", marks=tuple(left), x=_HIDDEN, y=_HIDDEN),
        Panel(title="unseen domain and bases", marks=tuple(right), x=_HIDDEN, y=_HIDDEN),
    )


def _around(planes: Sequence[DomainPlane]) -> str:
    dense, near = (
        [float((getattr(p, name) < at).sum()) for p in planes] for name, at in (("width", _NARROW), ("away", _NEAR))
    )
    both = [float(((p.width < _NARROW) & (p.away < _NEAR)).sum()) for p in planes]
    count = len(planes[0].width)
    widths, gaps = (np.concatenate([getattr(plane, name) for plane in planes]) for name in ("width", "away"))
    return (
        f"The plane of the first seed. In the space of the features, of {count} bases {mean_std(spread(dense))} are "
        f"dense (narrower than {_NARROW:g} times the spread of the sources; median {np.median(widths):.2f}) and "
        f"{mean_std(spread(near))} lie among the sources (their mean nearer to a source row than {_NEAR:g} times that "
        f"spread; median {np.median(gaps):.2f}). The paper sees nine of ten as dense clusters around the sources; "
        f"here {mean_std(spread(both))} are both. Distances in the plane mean little, those in the features say more."
    )


def _dots(name: str, points: NDArray[np.float32], colour: str, *, said: str = "", legend: bool) -> Marks:
    return Marks(
        name=name,
        x=tuple(map(float, points[:, 0])),
        y=tuple(map(float, points[:, 1])),
        hover=(said or name,) * len(points),
        colour=colour,
        size=3.0,
        alpha=0.7,
        legend=legend,
    )
