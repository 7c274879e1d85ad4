"""Accuracy over the number of bases M, and over the vectors N of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from gated_domains.evaluation.statistics import spread
from gated_domains.reports.ablations.setting import MODES, Fineness, Found, Mode, Setting, over_bases, over_sizes
from gated_domains.reports.ablations.words import agreement, difference, mean_by_seed, mean_std, noise, typical_std
from gated_domains.reports.charts.chart import Axis, Chart, Marks, Panel, Rule
from gated_domains.reports.charts.palette import Palette

Lines = Mapping[Mode, Mapping[str, Sequence[Setting]]]
Placed = Callable[[Setting], int]
_MODES = {"FT": "heads on the frozen features of ERM (FT)", "E2E": "end to end (E2E)"}


def bases_chart(found: Found, fineness: Fineness, *, target: str, title: str) -> Chart:
    """Accuracy over M."""
    lines: Lines = {mode: over_bases(mode, fineness.bases[mode], target) for mode in MODES}
    tuned = [cell for cells in lines["FT"].values() for cell in cells]
    best = _best(found, tuned, lambda cell: cell.bases)
    claims = [
        f"The paper has its best FT near M 10 to 12: ours, over the gates, is {best}.",
        f"The paper has FT above E2E: {_tuned_less_whole(found, tuned)}.",
    ]
    return _chart(
        "bases", "number of bases M", lines, found, lambda cell: cell.bases, claims, target=target, title=title
    )


def size_chart(found: Found, fineness: Fineness, *, target: str, title: str) -> Chart:
    """Accuracy over N."""
    lines: Lines = {mode: over_sizes(mode, fineness.sizes[mode], target) for mode in MODES}
    claims = []
    for mode in MODES:
        cells = [cell for name in lines[mode] for cell in lines[mode][name] if cell.method == "paper"]
        few, many = min(cell.size for cell in cells), max(cell.size for cell in cells)
        said, sign = difference(
            *(mean_by_seed(found.scores.get(cell, {}) for cell in cells if cell.size == size) for size in (few, many))
        )
        claims.append(
            f"The paper has smaller N better; {mode}, N {few} less N {many}: {said}, which {agreement(sign, 1)}."
        )
    return _chart(
        "size", "vectors of a basis N", lines, found, lambda cell: cell.size, claims, target=target, title=title
    )


def _chart(
    key: str, axis: str, lines: Lines, found: Found, placed: Placed, claims: list[str], *, target: str, title: str
) -> Chart:
    erm = found.spread(Setting(method="erm", hold_out=target))
    rules = () if erm is None else (Rule(along="x", at=erm.mean, label=f"ERM {mean_std(erm)}"),)
    palette = Palette([("gdu", _label(lines, "gdu")), ("erm", "ERM"), *((cell, cell) for cell in _gates(lines))])
    panels, named = [], set[str]()
    for mode in MODES:
        marks = [replace(one, legend=one.name not in named) for one in _marks(found, lines[mode], placed, palette)]
        named |= {one.name for one in marks}
        y = Axis(label=f"accuracy on {title}, %")
        panels.append(Panel(title=_MODES[mode], x=Axis(label=axis), y=y, marks=tuple(marks), rules=rules))
    spreads = [one for cell in _cells(lines) if (one := found.spread(cell)) is not None]
    level = (
        f"Accuracy lies between {min(one.mean for one in spreads):.1f} and {max(one.mean for one in spreads):.1f}; "
        if spreads
        else "There is no run yet; "
    )
    beside = "" if erm is None else f"; ERM has {mean_std(erm)}"
    caption = " ".join([f"{level}{noise(typical_std(spreads))}{beside}. Bands are one standard deviation.", *claims])
    name = "M" if key == "bases" else "N"
    return Chart(
        key=key,
        title=f"Accuracy on {title} over {name}",
        caption=" ".join([caption, *(f"{line}." for line in found.holes())]),
        runs=found.runs,
        panels=tuple(panels),
        columns=2,
    )


def _marks(found: Found, lines: Mapping[str, Sequence[Setting]], placed: Placed, palette: Palette) -> Iterator[Marks]:
    for name, cells in lines.items():
        there = [(placed(cell), one) for cell in cells if (one := found.spread(cell)) is not None]
        if not there:
            continue
        reach = [one.std or 0.0 for _, one in there]
        known = any(one.std is not None for _, one in there)
        gate = name.partition(" ")[2] if cells[0].method == "paper" else name
        yield Marks(
            name=gate,
            x=tuple(float(place) for place, _ in there),
            y=tuple(one.mean for _, one in there),
            low=tuple(one.mean - far for (_, one), far in zip(there, reach, strict=True)) if known else None,
            high=tuple(one.mean + far for (_, one), far in zip(there, reach, strict=True)) if known else None,
            hover=tuple(f"{name}, {place}: {mean_std(one)} ({one.n} runs)" for place, one in there),
            colour=palette.method(gate),
            marker=palette.marker(gate),
            form="line",
        )


def _best(found: Found, cells: Sequence[Setting], placed: Placed) -> str:
    """Where the mean over gates is highest, and what cannot be told from it."""
    by_place = {
        place: mean_by_seed(found.scores.get(cell, {}) for cell in cells if placed(cell) == place)
        for place in sorted({placed(cell) for cell in cells})
    }
    there = {place: scores for place, scores in by_place.items() if scores}
    if not there:
        return "not known"
    means = {place: sum(scores.values()) / len(scores) for place, scores in there.items()}
    best = max(means, key=lambda place: means[place])
    alike = [place for place, scores in there.items() if place != best and difference(there[best], scores)[1] <= 0]
    others = f", which cannot be told from {', '.join(map(str, alike))}" if alike else ", above all others"
    return f"at {best} ({means[best]:.1f}){others}"


def _tuned_less_whole(found: Found, tuned: Sequence[Setting]) -> str:
    """FT less E2E: for each seed the mean over those cells of gate and M that it has in both modes."""
    pairs: dict[int, list[tuple[float, float]]] = {}
    cells = 0
    for cell in tuned:
        ft, e2e = (found.scores.get(replace(cell, mode=mode), {}) for mode in MODES)
        shared = ft.keys() & e2e.keys()
        cells += bool(shared)
        for seed in shared:
            pairs.setdefault(seed, []).append((ft[seed], e2e[seed]))
    said, sign = difference(
        *({seed: spread(pair[side] for pair in there).mean for seed, there in pairs.items()} for side in range(2))
    )
    return f"over {cells} cell{'s' * (cells != 1)} (gate, M) of both {said}, which {agreement(sign, 1)}"


def _cells(lines: Lines) -> list[Setting]:
    return [cell for by_name in lines.values() for cells in by_name.values() for cell in cells]


def _gates(lines: Lines) -> list[str]:
    return [name.partition(" ")[2] for name, cells in lines["FT"].items() if cells[0].method == "paper"]


def _label(lines: Lines, method: str) -> str:
    return next(name for name, cells in lines["E2E"].items() if cells[0].method == method)
