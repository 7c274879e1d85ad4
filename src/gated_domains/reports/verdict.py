"""What can be told from a table, in sentences written from its numbers."""

from __future__ import annotations

from gated_domains.data.errors import listing
from gated_domains.evaluation.statistics import Interval, spread
from gated_domains.reports.against import SIGNIFICANT
from gated_domains.reports.columns import interval_text, p_text
from gated_domains.reports.numbers import MethodNumbers, Numbers

_MOST_SENTENCES = 3
_ENOUGH_PAIRS = 5  # below, a test hangs on one or two numbers, whatever its p


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
