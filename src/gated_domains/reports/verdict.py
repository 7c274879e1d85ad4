"""The answer that a comparison gives, in sentences written from its numbers."""

from __future__ import annotations

from gated_domains.data.errors import listing
from gated_domains.evaluation.statistics import MIN_DOMAINS, Effect, Verdict, spread
from gated_domains.reports.against import Against
from gated_domains.reports.columns import about, interval_text, p_text
from gated_domains.reports.numbers import MethodNumbers, Numbers

_MOST_SENTENCES = 3
_ORDER: tuple[Verdict, ...] = ("better", "practically equal", "worse", "undecided")


def headline(numbers: Numbers) -> str:
    """The answer: what helped on the domains that were held out, then what that says of a new domain."""
    base, metric = numbers.baseline, numbers.metric
    rivals = _rivals(numbers)
    if base is None or not rivals:
        found = [row for row in numbers.rows if row.mean is not None]
        best = max(found, key=lambda row: metric.as_gain(row.mean.mean), default=None)  # type: ignore[union-attr]
        if best is None or best.mean is None:
            return "No method has been run on all hold-outs yet, so there is nothing to compare."
        shown = f"{best.label} scores {metric.shown(best.mean.mean)} on held-out domains"
        return f"{shown}; there is {'no baseline' if base is None else 'nothing'} to compare it with."
    if len(rivals) == 1:
        return _sentence(*rivals[0], base, numbers)
    at = f"{base.label} ({metric.shown(base.mean.mean)})" if base.mean is not None else base.label
    if all(against.verdict is None for _, against in rivals):
        count = max(against.new_domain.n for _, against in rivals)
        return _no_verdict(count, numbers, f"No verdict on how any method compares with {at}")
    return f"{_what_helped(rivals, at, numbers)} {_on_a_new_domain(rivals, at, numbers)}"


def _what_helped(rivals: list[tuple[MethodNumbers, Against]], at: str, numbers: Numbers) -> str:
    """``On these 5 domains, compared with ERM (69.8): GDU (+1.2) helped; CORAL (-0.1) made no significant ...``."""
    metric = numbers.metric
    groups: dict[str, list[str]] = {}
    for row, against in sorted(rivals, key=lambda pair: -metric.as_gain(pair[1].these_domains.difference)):
        effect = against.these_domains
        interval, gained = effect.interval(), metric.as_gain(effect.difference) > 0
        if interval is None:  # one seed
            none = metric.shown_difference(effect.difference) == metric.shown_difference(0.0)
            group = "made no difference" if none else "did better" if gained else "did worse"
        elif interval.low <= 0 <= interval.high:
            group = "made no significant difference"
        else:
            group = "helped" if gained else "hurt"
        groups.setdefault(group, []).append(f"{row.label} ({metric.shown_difference(effect.difference)})")
    found = [f"{listing(labels, 6)} {group}" for group, labels in groups.items()]
    count = max(against.new_domain.n for _, against in rivals)
    tested = any(against.these_domains.interval() for _, against in rivals)
    by = "95 % intervals over seeds, not corrected for the number of methods" if tested else "one seed"
    return f"On these {count} {numbers.unit}s, compared with {at}: {'; '.join(found)} ({by})."


def _on_a_new_domain(rivals: list[tuple[MethodNumbers, Against]], at: str, numbers: Numbers) -> str:
    metric = numbers.metric
    groups = {verdict: [pair for pair in rivals if pair[1].verdict == verdict] for verdict in _ORDER}
    if groups["better"]:
        best, against = max(groups["better"], key=lambda pair: metric.as_gain(pair[1].new_domain.difference))
        others = [row.label for row, _ in groups["better"] if row is not best]
        also = f" Also better: {listing(others, 6)}." if others else ""
        return f"{best.label} is better than {at}: {_difference(against, numbers)}.{also}"
    if len(groups["undecided"]) == len(rivals):
        return f"On a new domain no method is shown to be better than {at}: all are undecided."
    rest = [
        f"{verdict.capitalize()}: {listing([row.label for row, _ in groups[verdict]], 6)}."
        for verdict in _ORDER
        if groups[verdict]
    ]
    return " ".join([f"No method is shown to be better than {at} on a new domain.", *rest, *_without_verdict(rivals)])


def verdict(numbers: Numbers) -> str:
    """A sentence for each method against the baseline; of many methods, for the best, and a summary of the others."""
    base = numbers.baseline
    rivals = _rivals(numbers)
    if base is None or not rivals:
        return "There is nothing to compare with the baseline."
    if len(rivals) <= _MOST_SENTENCES:
        return "\n".join(_sentence(row, against, base, numbers) for row, against in rivals)
    best, against = max(rivals, key=lambda pair: numbers.metric.as_gain(pair[1].these_domains.difference))
    lines = [_sentence(best, against, base, numbers)]
    for kind in _ORDER:
        labels = [_with_needed(row, other) for row, other in rivals if other.verdict == kind]
        if labels:
            lines.append(f"{kind.capitalize()} on a new domain, compared with {base.label}: {listing(labels, 20)}.")
    if any("(" in line for line in lines[1:]):
        lines.append(f"In brackets: about how many {numbers.unit}s would decide it.")
    return "\n".join([*lines, *_without_verdict(rivals)])


def _with_needed(row: MethodNumbers, against: Against) -> str:
    """``GDU (40)``: the label, with about how many domains would decide an undecided difference."""
    return row.label if against.domains_needed is None else f"{row.label} ({about(against.domains_needed)})"


def _without_verdict(rivals: list[tuple[MethodNumbers, Against]]) -> list[str]:
    """A sentence on the methods that share too few domains with the baseline."""
    labels = [row.label for row, against in rivals if against.verdict is None]
    return [f"No verdict, for want of {MIN_DOMAINS} shared domains: {listing(labels, 6)}."] if labels else []


def _rivals(numbers: Numbers) -> list[tuple[MethodNumbers, Against]]:
    return [(row, row.against) for row in numbers.rows if row.against is not None]


def _sentence(row: MethodNumbers, against: Against, base: MethodNumbers, numbers: Numbers) -> str:
    """``GDU 71.2, ERM 70.9: +0.3 points on a new domain (95 % interval -0.8 to +1.4, p 0.57): undecided; ...``."""
    metric = numbers.metric
    levels = f"{row.label} {_level(row, base, numbers)}, {base.label} {_level(base, row, numbers)}"
    if against.verdict is None:
        on_these = _interval_words(against.these_domains, numbers)
        gap = f"{metric.shown_difference(against.these_domains.difference)}{metric.unit}{on_these}"
        count = against.new_domain.n
        these = f"these {count} {numbers.unit}s" if count > 1 else "the held-out rows"
        return f"{levels}: {gap} on {these}. {_no_verdict(count, numbers, 'No verdict')}"
    words = f"{levels}: {_difference(against, numbers)}: {against.verdict}"
    if against.domains_needed is not None:
        words += f"; about {about(against.domains_needed)} {numbers.unit}s would decide it"
    return f"{words}."


def _level(row: MethodNumbers, other: MethodNumbers, numbers: Numbers) -> str:
    """The mean of the table; where one of the two has no complete seed, the mean over the runs that both have."""
    if row.mean is not None and other.mean is not None:
        return numbers.metric.shown(row.mean.mean)
    return numbers.metric.shown(spread(score for key, score in row.scores.items() if key in other.scores).mean)


def _difference(against: Against, numbers: Numbers) -> str:
    """``+0.3 points on a new domain (95 % interval -0.8 to +1.4, Holm p 0.57)``."""
    effect, metric = against.new_domain, numbers.metric
    p = f"{'Holm ' * (numbers.tested > 1)}p {p_text(against.holm)}"
    test = p if against.holm is not None else f"the same on every {numbers.unit}, so there is no test"
    gap = f"{metric.shown_difference(effect.difference)}{metric.unit}"
    return f"{gap} on a new domain{_interval_words(effect, numbers, test)}"


def _interval_words(effect: Effect, numbers: Numbers, *others: str) -> str:
    interval = effect.interval()
    words = [f"95 % interval {interval_text(interval, numbers.metric)}"] if interval is not None else []
    return f" ({', '.join([*words, *others])})" if words or others else ""


def _no_verdict(count: int, numbers: Numbers, start: str) -> str:
    return (
        f"{start} on a new domain: that needs at least {MIN_DOMAINS} held-out {numbers.unit}s, and there "
        f"{'is' if count == 1 else 'are'} {count}."
    )
