"""A chapter of the page is one comparison: runs on the same data, divided, selected and scored alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from gated_domains.data.errors import DataError, listing
from gated_domains.reports.charts import Chart
from gated_domains.reports.page.telling_apart import ToldApart
from gated_domains.reports.table import Comparison
from gated_domains.runs.collection import Broken, RunCollection
from gated_domains.runs.result import RunResult

MOST_CHAPTERS = 12


@dataclass(frozen=True, kw_only=True)
class Words:
    """A piece of a section that is no figure: a table, cards. ``domain`` is the hold-out that it is of."""

    html: Markup
    domain: str | None = None


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading, and what stands below it."""

    key: str
    title: str
    items: tuple[Chart | Words, ...]
    words: str = ""


@dataclass(frozen=True, eq=False)
class Chapter:
    """One comparison and the runs behind it."""

    key: str
    comparison: Comparison
    results: Sequence[RunResult]
    sections: list[Section] = field(default_factory=list)

    def rows_of(self, gathered: RunCollection) -> str:
        """What identifies the rows of its data; their name, where no run says."""
        return _on_what(gathered.about(self.results[0]))[0] or self.comparison.numbers.data

    def asked(self, gathered: RunCollection) -> list[tuple[str, str]]:
        """What was asked, name by name."""
        numbers = self.comparison.numbers
        rows = [row.label for row in numbers.rows]
        about = gathered.about(self.results[0]).get("recipe", {})
        found = [
            ("data", numbers.data),
            ("held out", f"{listing(numbers.hold_outs, 12)} ({_counted(len(numbers.hold_outs), 'hold-out')})"),
            ("methods", listing(rows, 12)),
            ("score", f"{numbers.metric.label}, {'higher' if numbers.metric.higher_is_better else 'lower'} is better"),
            ("protocol", numbers.protocol),
            ("selection", numbers.selection),
            ("seeds", f"{listing(numbers.seeds, 12)} ({_counted(len(self.results), 'run')})"),
        ]
        if isinstance(about, dict) and isinstance(about.get("body"), str):
            found.append(("network", about["body"]))
        return [*found, *self._made_on(gathered)]

    def _made_on(self, gathered: RunCollection) -> list[tuple[str, str]]:
        """Machine and command, of the first run and the last."""
        ends = [gathered.environment(result) for result in (self.results[0], self.results[-1])]
        machines = dict.fromkeys(words for kept in ends if (words := _machine(kept)))
        commands = dict.fromkeys(
            " ".join(map(str, kept["command"])) for kept in ends if isinstance(kept.get("command"), list)
        )
        return [("machine", "; ".join(machines))] * bool(machines) + [("command", "; ".join(commands))] * bool(commands)


def chapters(
    gathered: RunCollection, *, baseline: str, margin: float | None = None, machine: str | None = None
) -> list[Chapter]:
    """The comparisons that these runs make; what takes no part in any is added to what is left out."""
    groups: dict[tuple[str, ...], list[RunResult]] = {}
    for result in gathered.results:
        if not result.test:
            why = "its held-out rows have no such score" if result.held_out else "no domain was held out"
            gathered.broken.append(Broken(gathered.folder(result), f"{why}: there is nothing to compare"))
            continue
        key = (result.data, result.protocol, result.selection, result.metric, *_on_what(gathered.about(result)))
        groups.setdefault(key, []).append(result)
    largest = sorted(groups.values(), key=len, reverse=True)[:MOST_CHAPTERS]
    shown = [group for group in groups.values() if any(group is other for other in largest)]
    for group in groups.values():
        if not any(group is other for other in shown):
            gathered.broken += [
                Broken(gathered.folder(result), f"one of the smaller of {len(groups)} comparisons; report it by itself")
                for result in group
            ]
    if not shown:
        raise DataError(
            "there is no finished run with a domain held out to report"
            + (f" ({len(gathered.broken)} folders are unfinished or damaged)" if gathered.broken else "")
            + "; train some, or name another folder"
        )
    found = []
    for number, group in enumerate(shown):
        apart = ToldApart(group, gathered)
        gathered.broken += apart.copies
        comparison = Comparison(apart.results, baseline, margin=margin, machine=machine)
        comparison.caption.extend(apart.notes)
        found.append(Chapter(f"c{number + 1}", comparison, apart.results))
    return found


def _on_what(about: dict[str, Any]) -> tuple[str, str]:
    """The rows and the network of a run: numbers on others do not stand in one table."""
    data, recipe = (found if isinstance(found := about.get(name), dict) else {} for name in ("data", "recipe"))
    return str(data.get("fingerprint", "")), str(recipe.get("body", ""))


def _machine(kept: dict[str, Any]) -> str:
    if not kept.get("cores"):
        return ""
    cores = f"{kept['cores']} CPU core{'s' * (kept['cores'] != 1)} ({kept.get('cpu', 'unknown')})"
    return f"{kept.get('gpu') or cores}, torch {str(kept.get('torch', '')).split('+')[0]}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
