"""Which settings of a method are tried: by chance, or by Optuna; the defaults always first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from gated_domains.experiments.optuna_search import OptunaSearch
from gated_domains.runs.recipe import MethodChoice, TrainingSettings
from gated_domains.settings.search import Range, drawn, search_space

Proposal = dict[str, Any]
"""Settings by name, of the method and of its training; what is not named stays as it is."""


@runtime_checkable
class Proposals(Protocol):
    """The trials of one method on one hold-out, in rounds: a round is run, and its scores told, before the next."""

    def ask(self) -> list[Proposal]:
        """The next round; nothing when it is over."""
        ...

    def tell(self, scores: Sequence[float | None]) -> None:
        """What came of the round, the higher the better; None where a training broke off."""
        ...


def declared(method: MethodChoice) -> dict[str, Range]:
    """The ranges of a method's own settings, and of those that all trainings have."""
    return {**search_space(method.kind.settings_type), **search_space(TrainingSettings)}


def searched(method: MethodChoice, fixed: Collection[str] = ()) -> dict[str, Range]:
    """The ranges that are searched: of what nobody has set, neither for this method nor (``fixed``) for all."""
    said = {*method.settings.model_fields_set, *method.training, *fixed}
    return {name: span for name, span in declared(method).items() if name not in said}


def random_proposals(method: MethodChoice, count: int, *, seed: int, fixed: Collection[str] = ()) -> list[Proposal]:
    """The defaults, then draws from the ranges, each by (seed, method, number of the trial) and by nothing else."""
    free = searched(method, fixed)
    found: list[Proposal] = [{}]
    for number in range(1, count if free else 1):
        # Drawn for all, used for some: a setting that is fixed moves no draw of another.
        draw = drawn(declared(method), np.random.default_rng([seed, *method.name.encode(), number]))
        found.append({name: draw[name] for name in free})
    return found


class RandomSearch:
    """Draws by chance, which need no scores: one round."""

    def __init__(self, method: MethodChoice, count: int, *, seed: int, fixed: Collection[str] = ()) -> None:
        self.waiting = random_proposals(method, count, seed=seed, fixed=fixed)

    def ask(self) -> list[Proposal]:
        found, self.waiting = self.waiting, []
        return found

    def tell(self, scores: Sequence[float | None]) -> None:
        pass


def _optuna(method: MethodChoice, count: int, *, seed: int, fixed: Collection[str] = ()) -> OptunaSearch:
    space = searched(method, fixed)
    settings = {**vars(TrainingSettings()), **vars(method.settings)}
    own = int(np.random.SeedSequence([seed, *method.name.encode()]).generate_state(1)[0])
    return OptunaSearch(space, {name: settings[name] for name in space}, count, seed=own)


TUNERS: dict[str, Callable[..., Proposals]] = {"random": RandomSearch, "optuna": _optuna}
