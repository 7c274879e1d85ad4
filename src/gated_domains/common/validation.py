"""What the layers refuse and what they warn of: names, numbers and sizes in settings, and gates that do nothing."""

from __future__ import annotations

import math
import operator
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, NamedTuple, SupportsFloat

PRESETS = {"recommended": "erm[ema=0.995,fourier_mix=0.9,consistency=1]"}
"""Names for a method with switches and settings; docs/results/what-helps.md has what each part is worth."""
_MAX_BASES = 12
DEAD_BETA_STD = 1e-3
SATURATED = 1e-3
DEAD_WEIGHT = 1e-3
DOUBLED = 0.999
WAKE_GATES = "call fit_bases with kappa=None to match kappa to the data, or start the bases from data"

REFIT = (
    "refit them: call renew_head (or renew, of the layer) with optimizer= at the start of every epoch, and train at "
    "least one epoch after that"
)
SIGMA_DRIFT, KAPPA_DRIFT = 2.5, 3.0
"""How many times larger or smaller than the fitted ones sigma and kappa may be before bases are refitted in training.

Well inside the limits of the doctor (5 and 10), so that gates are still healthy an epoch later.
"""
KAPPA_OUTGROWN = 100.0
"""How many times smaller than the matched kappa the one in use may be before gates count as dead."""

Kind = Literal["kernel", "input", "dead", "doubled"]

# Modules that lie between a measure and the line of the person who asked for it.
_NOT_THE_CALLER = ("gated_domains.", "torch.", "keras.")
_LISTENING: ContextVar[list[str] | None] = ContextVar("who hears of findings", default=None)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The known name that this one may be meant for, if any is near."""
    by_folded = {other.casefold(): other for other in names}
    near = get_close_matches(name.casefold(), list(by_folded), n=1, cutoff=0.6)
    return by_folded[near[0]] if near else None


def known_name(what: str, name: str, names: Iterable[str]) -> str:
    """The name, refused unless it is one of these: the message lists them, and the nearest one."""
    known = list(names)
    if name not in known:
        near = nearest(name, known)
        meant = "" if near is None else f"; did you mean {near!r}?"
        raise ValueError(f"unknown {what} {name!r}; known: {', '.join(known)}{meant}")
    return name


def positive(name: str, value: SupportsFloat) -> float:
    """The value as a float, refused unless it is finite and above zero."""
    number = _number(name, value)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be positive and finite, got {number}")
    return number


def at_least_one(name: str, value: int) -> int:
    """The value, refused unless it is a whole number of one or more."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)  # NumPy's integers too
    except TypeError:
        number = -1
    if number < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return number


def not_negative(name: str, value: SupportsFloat) -> float:
    """The value as a float, refused unless it is finite and zero or more."""
    number = _number(name, value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name} must be finite and at least 0, got {number}")
    return number


def flag(name: str, value: object) -> bool:
    """The value, refused unless it is True or False: ``"no"`` and ``None`` would pass for one of them."""
    if str(value) not in ("True", "False") or isinstance(value, str):  # NumPy's too, which are no bool
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def _number(name: str, value: SupportsFloat) -> float:
    try:
        if not isinstance(value, str):  # "1" is a slip of whoever reads a file, and counts as one
            return float(value)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{name} must be a number, got {value!r}")


def room(num_bases: int | Literal["auto", "adaptive"], max_bases: int | None) -> tuple[int, int]:
    """How many bases there is room for, and how many are in use at the start."""
    if num_bases == "adaptive":  # where a layer can be that, room_to_grow is asked
        raise ValueError("num_bases='adaptive' is there for layers in PyTorch alone; take a number or 'auto'")
    if num_bases == "auto":
        places = at_least_one("max_bases", _MAX_BASES if max_bases is None else max_bases)
        if places < 2:
            raise ValueError(f"num_bases='auto' chooses between 2 and max_bases, got max_bases={places}")
        return places, min(5, places)
    used = at_least_one("num_bases", num_bases)
    places = at_least_one("max_bases", used if max_bases is None else max_bases)
    if places < used:
        raise ValueError(f"max_bases={places} leaves no room for num_bases={used}")
    return places, used


def room_to_grow(max_bases: int | None) -> tuple[int, int]:
    """The same where bases are split in training: one is in use at the start."""
    places = at_least_one("max_bases", _MAX_BASES if max_bases is None else max_bases)
    if places < 2:
        raise ValueError(f"num_bases='adaptive' grows from 1 to max_bases, got max_bases={places}")
    return places, 1


class GateWarning(UserWarning):
    """The gates of a layer do less than they should."""


class Trouble(NamedTuple):
    """What is wrong, with its value, and what helps."""

    says: str
    cure: str


class Drift(NamedTuple):
    """Why bases, sigma and kappa no longer fit the features, and whether gates have died of it."""

    says: str
    dead: bool


@dataclass(frozen=True)
class GateHealth:
    """Measures over a sample of rows."""

    beta_std: float
    """Standard deviation of beta over the sample, largest over bases: 0 when gates ignore the input."""
    kernel_low: float
    """``<phi(x), mu_j>`` of the farthest basis, relative to k(x, x), which nine samples of ten exceed."""
    kernel_high: float
    """The same of the nearest basis, which one sample of ten exceeds."""
    dead: tuple[int, ...]
    """Bases whose weight is below 0.001 for every sample."""
    doubled: tuple[tuple[int, int], ...]
    """Pairs of bases whose embeddings point the same way (cosine above 0.999)."""

    def findings(self) -> list[str]:
        """A sentence for each trouble: the value, and the cure."""
        return [f"{trouble.says}; {trouble.cure}" for trouble in self.troubles().values()]

    def troubles(self) -> dict[Kind, Trouble]:
        """What is wrong, by what it is about."""
        found: dict[Kind, Trouble] = {}
        if self.kernel_high < SATURATED:
            found["kernel"] = Trouble(
                f"the kernel saturates: every sample is far from every basis (largest mean k {self.kernel_high:.2g})",
                "raise sigma (fit_bases with sigma=None takes the median distance) or start the bases from data",
            )
        elif self.kernel_low > 1 - SATURATED:
            found["kernel"] = Trouble(
                f"the kernel saturates: every sample is near every basis (smallest mean k {self.kernel_low:.6f})",
                "lower sigma (fit_bases with sigma=None takes the median distance)",
            )
        if self.beta_std < DEAD_BETA_STD:
            found["input"] = Trouble(
                f"gates do not depend on the input (std of beta {self.beta_std:.2g} < {DEAD_BETA_STD})", WAKE_GATES
            )
        if self.dead:
            found["dead"] = Trouble(
                f"bases {list(self.dead)} are dead (weight below {DEAD_WEIGHT} for every sample)",
                "use fewer bases or a smaller kappa",
            )
        if self.doubled:
            found["doubled"] = Trouble(
                f"bases {[list(pair) for pair in self.doubled]} are doubles of each other (cosine above {DOUBLED})",
                "use fewer bases, or add lambda_orth to push them apart",
            )
        return found

    def warn(self) -> None:
        """One warning for each finding."""
        _warn(self.findings())

    def drift(self, *, sigma_ratio: float, kappa_ratio: float) -> Drift | None:
        """How far features have moved from the bases since these were fitted; None where they still fit.

        The ratios are those of sigma and kappa that fit these rows over the ones in use; 1 where there are none. Dead
        and doubled bases are no reason: refitting bases to the same features would not change them.
        """
        dead = [trouble.says for kind, trouble in self.troubles().items() if kind in ("kernel", "input")]
        if kappa_ratio > KAPPA_OUTGROWN:
            dead.append(f"kappa is {kappa_ratio:.0f} times too small")
        if dead:
            return Drift(dead[0], dead=True)
        for name, ratio, limit in (("sigma", sigma_ratio, SIGMA_DRIFT), ("kappa", kappa_ratio, KAPPA_DRIFT)):
            if not 1 / limit <= ratio <= limit:
                off, side = (ratio, "small") if ratio > 1 else (1 / ratio, "large")
                return Drift(f"{name} is {off:.1f} times too {side}", dead=False)
        return None


def warn_of_dead_gates(drift: Drift) -> None:
    """Warn that gates have died while the network was trained."""
    _warn([f"features have moved away from the bases since these were fitted: {drift.says}; {REFIT}"])


def _warn(findings: list[str]) -> None:
    """Warnings that point at the line outside this package and the frameworks that led here."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_NOT_THE_CALLER):
        level, frame = level + 1, frame.f_back
    listening = _LISTENING.get()
    for finding in findings:
        if listening is None:
            warnings.warn(finding, GateWarning, stacklevel=level)
        elif finding not in listening:
            listening.append(finding)


@contextmanager
def findings_heard() -> Iterator[list[str]]:
    """Inside, what would be warned of is put into a list instead, each finding once.

    Of this context alone, unlike filters of warnings: several trainings may take turns in a process.
    """
    found: list[str] = []
    token = _LISTENING.set(found)
    try:
        yield found
    finally:
        _LISTENING.reset(token)
