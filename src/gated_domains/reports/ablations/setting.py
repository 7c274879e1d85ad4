"""What the figures of the ablations are made of: settings, the grids of them, and what came of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gated_domains.evaluation.statistics import Spread, spread

Mode = Literal["FT", "E2E"]
MODES: tuple[Mode, ...] = ("FT", "E2E")
GATES = {"cosine": "CS", "mmd": "MMD", "projection": "projection"}
"""By name, as the paper calls them."""
BASES, BASIS_SIZE, OUR_BASES = 10, 10, 5
WEIGHTS = {"lambda_l1": "λ_L1", "lambda_ols": "λ_OLS", "lambda_orth": "λ_ORTH"}
PAPER_OLS, PAPER_ORTH = 1e-3, 1e-8
"""Of the paper's table for digits."""
STRONG_ORTH = 0.1


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A cell of a figure: ``paper`` is the paper's layer, whose weights of penalties are its own where None."""

    method: Literal["erm", "paper", "gdu"]
    hold_out: str
    gate: str = ""
    mode: Mode = "E2E"
    bases: int = BASES
    size: int = BASIS_SIZE
    lambda_ols: float | None = None
    lambda_l1: float | None = None
    lambda_orth: float | None = None

    @property
    def label(self) -> str:
        """What it is called in a legend."""
        if self.method == "paper":
            return f"{self.mode} {GATES[self.gate]}"
        return {"erm": "ERM", "gdu": "GDU as we recommend it"}[self.method]


@dataclass(frozen=True, kw_only=True)
class Fineness:
    """How fine the grids are, heads on frozen features (FT) and networks end to end (E2E) apart."""

    bases: Mapping[Mode, tuple[int, ...]]
    sizes: Mapping[Mode, tuple[int, ...]]
    weights: Mapping[Mode, tuple[float, ...]]
    clusters: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """What came of the runs behind a figure, by setting and seed; accuracies in percent."""

    scores: Mapping[Setting, Mapping[int, float]]
    asked: Mapping[Setting, int]
    """Runs of each setting that the figure asks for."""
    failed: Mapping[Setting, str] = field(default_factory=dict)
    curves: Mapping[Setting, Mapping[int, Sequence[Mapping[str, Any]]]] = field(default_factory=dict)
    """The records of the epochs of each run, by seed, where they are drawn."""

    def spread(self, setting: Setting) -> Spread | None:
        """Mean and standard deviation over seeds; None where there is no run."""
        values = self.scores.get(setting, {}).values()
        return spread(values) if values else None

    @property
    def runs(self) -> int:
        """How many there are."""
        return sum(map(len, self.scores.values()))

    def holes(self) -> list[str]:
        """What is missing and why, a line for each reason."""
        lacks = {setting: n - len(self.scores.get(setting, {})) for setting, n in self.asked.items()}
        reasons: dict[str, int] = {}
        for setting, missing in lacks.items():
            if missing > 0:
                why = self.failed.get(setting, "not run yet; the same command goes on")
                reasons[why] = reasons.get(why, 0) + missing
        return [f"{count} run{'s' * (count != 1)} missing: {why}" for why, count in reasons.items()]


def over_bases(mode: Mode, values: Sequence[int], hold_out: str) -> dict[str, list[Setting]]:
    """Lines over M, by name: the gates, and our layer end to end."""
    return _lines(mode, [{"bases": value} for value in values], hold_out, {})


def over_sizes(mode: Mode, values: Sequence[int], hold_out: str) -> dict[str, list[Setting]]:
    """Lines over N, likewise; our layer with the M that it has by default."""
    return _lines(mode, [{"size": value} for value in values], hold_out, {"bases": OUR_BASES})


def _lines(
    mode: Mode, places: Sequence[dict[str, Any]], hold_out: str, ours: dict[str, Any]
) -> dict[str, list[Setting]]:
    kinds = [Setting(method="paper", gate=gate, mode=mode, hold_out=hold_out) for gate in GATES]
    kinds += [Setting(method="gdu", hold_out=hold_out, **ours)] if mode == "E2E" else []
    return {kind.label: [replace(kind, **place) for place in places] for kind in kinds}


def heat_map(weight: str, gate: str, mode: Mode, values: Sequence[float], hold_out: str) -> list[list[Setting]]:
    """Settings by row (lambda_ols) and column (``weight``); the third penalty is off."""
    off: dict[str, Any] = {"lambda_l1": 0.0, "lambda_orth": 0.0}
    kind = Setting(method="paper", gate=gate, mode=mode, hold_out=hold_out)
    return [[replace(kind, lambda_ols=ols, **{**off, weight: value}) for value in values] for ols in values]


def orthogonality_runs(mode: Mode, hold_out: str) -> dict[str, Setting]:
    """The projection gate without the orthogonality penalty, with the paper's weight of it, with a strong one."""
    kind = Setting(method="paper", gate="projection", mode=mode, hold_out=hold_out, lambda_ols=PAPER_OLS, lambda_l1=0.0)
    names = {"0 (without)": 0.0, f"{PAPER_ORTH:g} (the paper's table)": PAPER_ORTH, f"{STRONG_ORTH:g}": STRONG_ORTH}
    return {f"λ_ORTH {name}": replace(kind, lambda_orth=value) for name, value in names.items()}
