"""What can be told from a table, in sentences written from its numbers."""

from __future__ import annotations

from gated_domains.data.errors import listing
from gated_domains.evaluation.statistics import Interval, spread
from gated_domains.reports.against import SIGNIFICANT
from gated_domains.reports.columns import interval_text, p_text
from gated_domains.reports.numbers import MethodNumbers, Numbers

_MOST_SENTENCES = 3
_ENOUGH_PAIRS = 5  # below, a test hangs on one or two numbers, whatever its p


def headline(numbers: Numbers) -> str:
    """The answer in one sentence."""
    base, metric = numbers.baseline, numbers.metric
    rivals = [row for row in numbers.rows if row.difference is not None]
    if base is None or not rivals:
        found = [row for row in numbers.rows if row.mean is not None]
        best = max(found, key=lambda row: metric.as_gain(row.mean.mean), default=None)  # type: ignore[union-attr]
        if best is None or best.mean is None:
            return "No method has been run on all hold-outs yet, and there is nothing to compare."
        shown = f"{best.label} scores {metric.shown(best.mean.mean)} on held-out domains"
        return f"{shown}; there is no baseline to compare it with."
    if len(rivals) == 1:
        return _against(rivals[0], base, numbers)
    groups: dict[str, list[MethodNumbers]] = {"better": [], "": [], "worse": []}
    for row in rivals:
        groups[_outcome(row, numbers)].append(row)
    better, untold, worse = groups["better"], groups[""], groups["worse"]
    at = f"{base.label} ({metric.shown(base.mean.mean)})" if base.mean is not None else base.label
    if better:
        most = max(better, key=lambda row: metric.as_gain(_gap(row)))
        others = [row.label for row in better if row is not most]
        also = f"; so {'is' if len(others) == 1 else 'are'} {listing(others, 6)}" if others else ""
        gain = f"{metric.shown_difference(_gap(most))}{metric.unit}"
        return f"{most.label} is better than {at} on held-out domains, by {gain}{also}."
    if max(row.difference.n for row in rivals if row.difference is not None) < _ENOUGH_PAIRS:
        return f"Too few pairs to tell any method from {at} on held-out domains: hold out more, or take more seeds."
    if not worse:
        return f"No method can be told from {at} on held-out domains: no difference is larger than chance makes."
    rest = f"; {listing([row.label for row in untold], 6)} cannot be told from it" if untold else ""
    lost = f"{listing([row.label for row in worse], 6)} {'is' if len(worse) == 1 else 'are'} worse"
    return f"No method is better than {at} on held-out domains: {lost}{rest}."


def _gap(row: MethodNumbers) -> float:
    assert row.difference is not None
    return row.difference.difference


def verdict(numbers: Numbers) -> str:
    """What the paired tests against the baseline tell: a sentence a method; of many, the best and a summary."""
    base = numbers.baseline
    rivals = [row for row in numbers.rows if row.difference is not None]
    if base is None or not rivals:
        return "There is nothing to compare with the baseline."
    if len(rivals) <= _MOST_SENTENCES:
        return "\n".join(_against(row, base, numbers) for row in rivals)
    ranked = sorted((row for row in rivals if row.mean), key=lambda row: -numbers.metric.as_gain(row.mean.mean))  # type: ignore[union-attr]
    groups: dict[str, list[str]] = {}
    for row in rivals:
        groups.setdefault(_outcome(row, numbers), []).append(row.label)
    told = {"better": f"Better than {base.label}", "worse": f"Worse than {base.label}"}
    lines = [_against(ranked[0], base, numbers)] if ranked else []
    for outcome in ("better", "", "worse"):
        if outcome in groups:
            lines.append(f"{told.get(outcome, f'Not told apart from {base.label}')}: {listing(groups[outcome], 20)}.")
    return "\n".join(lines)


def _against(row: MethodNumbers, base: MethodNumbers, numbers: Numbers) -> str:
    """``GDU 71.2 against ERM 70.9: a difference of +0.3 points, 95 % interval ... : no difference can be told.``"""
    metric, pair = numbers.metric, row.difference
    assert pair is not None
    shared = [key for key in row.scores if key in base.scores]
    mine, theirs = (metric.shown(spread(found.scores[key] for key in shared).mean) for found in (row, base))
    gap = f"{metric.shown_difference(pair.difference)}{metric.unit}"
    start = f"{row.label} {mine} against {base.label} {theirs}: a difference of {gap}"
    if pair.n == 1:
        return f"{start} in one pair, which allows no test: hold out more domains, or take more seeds."
    if pair.std == 0:
        how = "no difference at all" if pair.difference == 0 else "the same in every one, which allows no test"
        return f"{start} over {pair.n} pairs, {how}."
    outcome = _outcome(row, numbers)
    end = f"{row.label} is {outcome}" if outcome else "no difference can be told"
    if pair.n < _ENOUGH_PAIRS:
        end = "so few pairs tell nothing; hold out more domains, or take more seeds"
    assert pair.low is not None
    assert pair.high is not None
    interval = interval_text(Interval(pair.low, pair.high), metric)
    assert row.against is not None
    p = f", p {p_text(row.against.holm)} corrected for {numbers.tested} methods" * (numbers.tested > 1)
    return f"{start}, 95 % interval {interval} over {pair.n} pairs{p}: {end}."


def _outcome(row: MethodNumbers, numbers: Numbers) -> str:
    """``better``, ``worse``, or nothing where the test does not tell."""
    found = row.against
    if found is None or found.pair.n < _ENOUGH_PAIRS or found.holm is None or found.holm >= SIGNIFICANT:
        return ""
    return "better" if numbers.metric.as_gain(found.pair.difference) > 0 else "worse"
