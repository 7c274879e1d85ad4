"""Runs of one method with different settings, told apart by those settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gated_domains.data.errors import listing
from gated_domains.runs.collection import Broken, RunCollection
from gated_domains.runs.result import RunResult

_OF_A_CELL = ("seed", "hold_out", "split_seed")
# What may differ between the cells of one row, and says nothing of how its method was set.
_OF_A_ROW = (*_OF_A_CELL, "validation_domain", "backbone")
_FEW = 4
Cell = tuple[str, str, str, int]
Settings = Mapping[str, str]


class ToldApart:
    """The results of one comparison: no two in one cell, copies left out, and what should be said of their settings."""

    def __init__(self, results: Sequence[RunResult], gathered: RunCollection) -> None:
        self.gathered = gathered
        self._recipes = {id(result): _flat(gathered.about(result).get("recipe")) for result in results}
        self.copies: list[Broken] = []
        self.results = self._named(self._with_one_split(self._without_copies(results)))
        self.notes = self._mixed()

    def _without_copies(self, results: Sequence[RunResult]) -> list[RunResult]:
        """One of each: a copy has the same recipe, and came to the same."""
        seen: dict[tuple[object, ...], RunResult] = {}
        for result in results:
            recipe = self._recipes[id(result)]
            key = (*_cell(result), tuple(recipe.items()), None if recipe else tuple(result.test.items()))
            if key in seen:
                self._leave_out(result, "its settings are those of {shown}, which is shown", shown=seen[key])
            else:
                seen[key] = result
        return list(seen.values())

    def _with_one_split(self, results: Sequence[RunResult]) -> list[RunResult]:
        """One of those that differ in their train/validation split alone: the split drawn last, by the seed itself."""
        kept: dict[tuple[object, ...], RunResult] = {}
        for result in sorted(results, key=self._split_seed, reverse=True):
            recipe = {name: value for name, value in self._recipes[id(result)].items() if name != "split_seed"}
            key = (*_cell(result), tuple(recipe.items())) if recipe else (*_cell(result), result.run)
            if key in kept:
                why = "it differs from {shown}, which is shown, in its train/validation split alone"
                self._leave_out(result, why, shown=kept[key])
            else:
                kept[key] = result
        chosen = {id(result) for result in kept.values()}
        return [result for result in results if id(result) in chosen]

    def _leave_out(self, result: RunResult, why: str, *, shown: RunResult) -> None:
        folder = self.gathered.folder
        self.copies.append(Broken(folder(result), why.replace("{shown}", str(folder(shown)))))

    def _split_seed(self, result: RunResult) -> int:
        written = self._recipes[id(result)].get("split_seed", "")
        return int(written) if written.isdigit() else 0

    def _named(self, results: Sequence[RunResult]) -> list[RunResult]:
        """With settings in their labels where two would stand in one cell."""
        counts = Counter(map(_cell, results))
        clashing = {cell[:2] for cell, count in counts.items() if count > 1}
        found = list(results)
        for row in clashing:
            mine = [place for place, result in enumerate(found) if _cell(result)[:2] == row]
            names = self._differing([results[place] for place in mine], _OF_A_CELL)
            for many in (_FEW, len(names)):
                renamed = [self._labelled(results[place], names[:many]) for place in mine]
                if len(set(map(_cell, renamed))) == len(mine):
                    break
            else:  # nothing that the folders say tells them apart
                renamed = [replace(results[place], label=f"{row[1]} (run {results[place].run})") for place in mine]
            for place, result in zip(mine, renamed, strict=True):
                self.gathered.stands_for(result, results[place])
                self._recipes[id(result)] = self._recipes[id(results[place])]
                found[place] = result
        return found

    def _labelled(self, result: RunResult, names: Sequence[str]) -> RunResult:
        recipe = self._recipes[id(result)]
        said = ", ".join(f"{_short(name)} {recipe.get(name, 'none')}" for name in names)
        return replace(result, label=f"{result.label} ({said})") if said else result

    def _differing(self, results: Sequence[RunResult], but: Sequence[str]) -> list[str]:
        recipes = [self._recipes[id(result)] for result in results]
        names = dict.fromkeys(name for recipe in recipes for name in recipe if name not in but)
        return [name for name in names if len({recipe.get(name) for recipe in recipes}) > 1]

    def _mixed(self) -> list[str]:
        """A sentence for each row whose cells were set differently: tuned for each hold-out, or thrown together."""
        rows: dict[tuple[str, str], list[RunResult]] = {}
        for result in self.results:
            rows.setdefault((result.method, result.label), []).append(result)
        found = {label: self._differing(mine, _OF_A_ROW) for (_, label), mine in rows.items()}
        return [
            f"The runs of {label} differ in {listing([_short(name) for name in names], _FEW)}."
            for label, names in found.items()
            if names
        ]


def _cell(result: RunResult) -> Cell:
    return result.method, result.label, result.hold_out, result.seed


def _flat(value: Any, name: str = "") -> dict[str, str]:
    """``{"training.epochs": "2"}``."""
    if not isinstance(value, Mapping):
        return {name: str(value)} if name else {}
    found: dict[str, str] = {}
    for key, inner in value.items():
        found |= _flat(inner, f"{name}.{key}" if name else str(key))
    return found


def _short(name: str) -> str:
    return name.rsplit(".", 1)[-1].replace("_", " ")
