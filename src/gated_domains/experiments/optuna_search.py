"""Proposals by Optuna's tree-structured Parzen estimator: draws near what did well before. Needs the extra ``tune``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gated_domains.data.errors import DataError
from gated_domains.settings.search import Between, Range

ROUND = 4
"""Trials that are made together. A larger round keeps more workers busy; a smaller one learns more from each trial."""


class OptunaSearch:
    """The defaults and some draws by chance, then rounds that learn from all before; the same seed, the same trials."""

    def __init__(self, space: Mapping[str, Range], defaults: Mapping[str, Any], count: int, *, seed: int) -> None:
        try:
            import optuna
        except ImportError as error:
            raise DataError(
                "--tuner optuna needs Optuna: pip install 'gated-domains[tune]'; or take --tuner random"
            ) from error
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # it would announce every trial
        self.optuna, self.space = optuna, dict(space)
        self.distributions = {name: _distribution(optuna, span) for name, span in space.items()}
        self.defaults = {name: _nearest(space[name], value) for name, value in defaults.items()}
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=ROUND)
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        self.left = count if space else 1
        self.asked: list[Any] = []

    def ask(self) -> list[dict[str, Any]]:
        """The next round: the first begins with the defaults."""
        first = not self.study.trials
        if first:
            self.study.enqueue_trial(self.defaults)
        self.asked = [self.study.ask(self.distributions) for _ in range(min(self.left, ROUND))]
        self.left -= len(self.asked)
        return [{} if first and place == 0 else self._tidy(trial.params) for place, trial in enumerate(self.asked)]

    def tell(self, scores: Sequence[float | None]) -> None:
        """What came of the round."""
        for trial, score in zip(self.asked, scores, strict=True):
            if score is None:
                self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)
            else:
                self.study.tell(trial, score)

    def _tidy(self, params: Mapping[str, Any]) -> dict[str, Any]:
        spans = self.space.items()
        return {name: s.tidy(params[name]) if isinstance(s, Between) else s.values[params[name]] for name, s in spans}


def _distribution(optuna: Any, span: Range) -> Any:
    kinds = optuna.distributions
    if not isinstance(span, Between):
        return kinds.CategoricalDistribution(tuple(range(len(span.values))))  # by place: a value may be a list or None
    if span.whole:
        return kinds.IntDistribution(int(span.low), int(span.high), log=span.log)
    return kinds.FloatDistribution(span.low, span.high, log=span.log)


def _nearest(span: Range, value: Any) -> Any:
    """A default as Optuna takes it: one beyond its range (0, where that is in logarithms) as the end of the range."""
    return span.tidy(value) if isinstance(span, Between) else span.values.index(value)
