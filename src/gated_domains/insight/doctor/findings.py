"""Finding and Diagnosis: what was looked at, what it came to, and what helps."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from gated_domains.insight.doctor.cures import Cure, Origin

Level = Literal["ok", "look", "broken"]
LEVELS: tuple[Level, ...] = ("ok", "look", "broken")
"""From good to bad: nothing to do, worth a look, does not do what it is there for."""

_WIDTH = max(map(len, LEVELS))


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at. ``value`` holds the numbers by name, ``cures`` what helps, by origin."""

    name: str
    level: Level
    value: Mapping[str, Any]
    says: str
    cures: Cure | None = None
    origin: Origin = "layer"

    @property
    def cure(self) -> str | None:
        """What helps where the model was made; None where nothing has to be done."""
        return None if self.cures is None else self.cures.at(self.origin)

    @property
    def brief(self) -> str:
        """The sentence up to its first number or reason."""
        return re.split(r" \(|[:;] ", self.says, maxsplit=1)[0]

    def as_json(self) -> dict[str, Any]:
        """All of it as plain JSON; what is no number there is null."""
        return {
            "name": self.name,
            "level": self.level,
            "value": _plain(self.value),
            "says": self.says,
            "cure": self.cure,
        }


@dataclass(frozen=True)
class Diagnosis:
    """All findings about one layer, in the order they were looked at; ``notes`` say what could not be looked at.

    ``of_weights_alone``: no row was at hand, and nothing is known of what gates do.
    """

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    of_weights_alone: bool = False

    @property
    def level(self) -> Level:
        """The worst of all."""
        return max((finding.level for finding in self.findings), key=LEVELS.index, default="ok")

    @property
    def verdict(self) -> str:
        """``ok``, or the worst level and what is of it: ``broken: gates do not depend on the input``."""
        if self.level == "ok":
            return "ok as far as weights alone tell" if self.of_weights_alone else "ok"
        return f"{self.level}: {'; '.join(f.brief for f in self.findings if f.level == self.level)}"

    def __getitem__(self, name: str) -> Finding:
        """The finding of this name."""
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(f"there is no finding {name!r}; there are {', '.join(f.name for f in self.findings)}")

    def joined_by(self, findings: Iterable[Finding] = (), *, notes: Iterable[str] = ()) -> Diagnosis:
        """With more findings and notes at its end."""
        return replace(self, findings=(*self.findings, *findings), notes=(*self.notes, *notes))

    def of(self, origin: Origin) -> Diagnosis:
        """The same, with cures that can be carried out there."""
        return replace(self, findings=tuple(replace(finding, origin=origin) for finding in self.findings))

    def as_json(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return {
            "level": self.level,
            "verdict": self.verdict,
            "of_weights_alone": self.of_weights_alone,
            "findings": [finding.as_json() for finding in self.findings],
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        """A line for each finding, its cure below it, notes, and the verdict last."""
        found = []
        for finding in self.findings:
            found.append(f"{finding.level:<{_WIDTH}}  {finding.name}: {finding.says}")
            if finding.cure is not None:
                found.append(f"{'':<{_WIDTH}}  -> {finding.cure}")
        return [*found, *(f"note: {note}" for note in self.notes), self.verdict]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
