"""What a basis stands for, in one line."""

from __future__ import annotations

import math
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError
from gated_domains.evaluation.metrics import Metric
from gated_domains.runs.insight import Insight

_UNUSED = 0.01  # mean weight below which nothing can be said of whose a basis is
_MOST = 0.5  # share from which on one domain is what a basis mostly sees
_MORE_OFTEN = 1.5  # times its share in all rows, from which on a class or domain stands out
_FEW = 3
_LITTLE = 0.005  # of the rows: of some thousand, a change that chance makes as well


def card_line(insight: Insight, basis: int, metric: Metric) -> str:
    """``basis 3: mostly street (81 %), classes 1 and 7; dropping it costs 2.1 points on held-out rows``.

    ``basis`` counts from 0, the line from 1, as gates do wherever people read of them.
    """
    if not 0 <= basis < insight.bases:
        raise DataError(f"there is no basis {basis}: there are {insight.bases}, counted from 0")
    if insight.mass[basis] < _UNUSED:
        said = [f"hardly used ({_percent(insight.mass[basis])} of the weight)"]
    else:
        said = [words for words in (_domains(insight, basis), _classes(insight, basis)) if words]
    parts = [", ".join(said) or "like the others", _worth(insight.dropping[basis], metric)]
    return f"basis {basis + 1}: " + "; ".join(part for part in parts if part)


def _domains(insight: Insight, basis: int) -> str:
    share, names = insight.domain_share[basis], insight.domain_names
    if np.count_nonzero(~insight.unseen) < 2:
        return ""
    top = int(share.argmax())
    if share[top] >= _MOST:
        return f"mostly {names[top]} ({_percent(share[top])})"
    usual = _usual(insight.domain_share, insight.mass)
    standing = _standing_out(share, usual)
    if not len(standing):
        return "all sources alike"
    return _joined([f"{names[place]} ({_percent(share[place])})" for place in standing])


def _classes(insight: Insight, basis: int) -> str:
    if not len(insight.class_names):
        return ""
    share = insight.class_share[basis]
    standing = _standing_out(share, _usual(insight.class_share, insight.mass))
    if not len(standing):
        return "no class in particular"
    named = [str(insight.class_names[place]) for place in standing]
    return ("class " if len(named) == 1 else "classes ") + _joined(named)


def _usual(shares: NDArray[Any], mass: NDArray[Any]) -> NDArray[Any]:
    """The share of each over all bases together: that in the rows themselves, where weights add up to one."""
    total = mass.sum()
    return mass @ shares / total if total > 0 else shares.mean(axis=0)


def _standing_out(share: NDArray[Any], usual: NDArray[Any]) -> NDArray[np.int64]:
    """Those that are there much more often than usual, the most frequent first."""
    more = np.flatnonzero((share > 0) & (share >= _MORE_OFTEN * usual))
    return more[np.argsort(-share[more], kind="stable")][:_FEW]


def _worth(dropped: NDArray[Any], metric: Metric) -> str:
    parts = zip(reversed(dropped.tolist()), ("held-out rows", "validation rows"), strict=True)
    for difference, rows in parts:
        if math.isfinite(difference):
            shown = metric.shown(abs(difference))
            if not shown.strip("0."):
                return f"dropping it changes nothing on {rows}"
            if metric.percent and abs(difference) < _LITTLE:
                return f"dropping it changes little on {rows} ({metric.shown_difference(difference)}{metric.unit})"
            verb = "costs" if metric.as_gain(difference) < 0 else "gains"
            return f"dropping it {verb} {shown}{metric.unit or f' in {metric.label}'} on {rows}"
    return ""


def _percent(share: SupportsFloat) -> str:
    return f"{100 * float(share):.0f} %"


def _joined(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
