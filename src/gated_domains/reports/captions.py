"""The words of a comparison: its answer, the verdict on each method, and the caption of its table.

A caption says how the table was made and how to read it: in a short form for the terminal, in full elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from gated_domains.common.validation import PRESETS
from gated_domains.data.errors import listing
from gated_domains.evaluation.metrics import significant
from gated_domains.evaluation.statistics import MIN_DOMAINS, Effect, Verdict, spread
from gated_domains.reports.summary import PERCENTILE, Against, MethodNumbers, Numbers
from gated_domains.reports.terminal_table import (
    BATCH_MARK,
    DOMAINS_MARK,
    ORACLE_MARK,
    about,
    columns,
    interval_text,
    p_text,
)

_MOST_SENTENCES = 3
_ORDER: tuple[Verdict, ...] = ("better", "practically equal", "worse", "undecided")
_MOST_NOTES, _MOST_MISSING, _MOST_JOINED, _MOST_SHORT = 12, 6, 8, 5


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


def caption(numbers: Numbers, *, machine: str | None = None, notes: Sequence[str] = ()) -> list[str]:
    """Everything that a reader needs in order to trust the table, or not to."""
    count = len({key[:2] for row in numbers.rows for key in row.scores})
    lines = [_score(numbers), *_oracle(numbers)]
    lines += [_note_sentence(note) for note in notes[:_MOST_NOTES]]
    if len(notes) > _MOST_NOTES:
        lines.append(f"And {len(notes) - _MOST_NOTES} more notes, in table.json.")
    lines.append(f"Protocol: {numbers.protocol}. Model selection: {numbers.selection}.")
    lines.append(_seeds(numbers))
    if count > 1:
        lines.append(f"mean and worst: for every seed over all {count} held-out domains, then over seeds.")
    lines += _joined(numbers)
    lines += _unscored(numbers, notes)
    lines += _groups(numbers)
    lines += _test(numbers)
    lines += [column.about for column in columns(numbers) if column.about]
    lines += _temperatures(numbers)
    lines += _marks(numbers)
    lines.append("Time is that of one training" + (f", measured on {machine}." if machine else "."))
    return lines + _missing(numbers)


def short_caption(numbers: Numbers, *, notes: int) -> list[str]:
    """At most five lines, for the terminal."""
    metric, seeds = numbers.metric, len(numbers.seeds)
    over = f"± is the standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    better = f"{' in percent' * metric.percent}, {'higher' if metric.higher_is_better else 'lower'} is better"
    lines = [*_oracle(numbers), f"{metric.label[:1].upper()}{metric.label[1:]}{better}; {over}."]
    differences = _differences(numbers)
    if differences and numbers.baseline is not None and numbers.units >= MIN_DOMAINS:
        counted = f"{'up to ' * numbers.unequal}{numbers.units} {numbers.unit}s"
        differences[0] = f"On a new domain: difference to {numbers.baseline.label}, t-test over {counted}."
    if differences and seeds > 1:
        differences[1] = "On these domains: the same, with an interval over seeds alone."
    lines += differences
    if marks := _marks(numbers):
        lines.append(" ".join(marks))
    found = [f"{notes} note{'s' * (notes != 1)} on the data and the runs"] * bool(notes)
    found += ["some runs are missing"] * bool(numbers.missing)
    lines.append(f"{'; '.join([*found, 'how to read this'])}: --explain, or the report.".capitalize())
    if len(lines) > _MOST_SHORT:  # what the column of that name explains by itself
        lines = [line for line in lines if not line.startswith("On these domains")]
    return lines


def _score(numbers: Numbers) -> str:
    metric = numbers.metric
    unit = " in percent" if metric.percent else ""
    better = "higher" if metric.higher_is_better else "lower"
    return f"{numbers.data}: {metric.label}{unit} on held-out domains, {better} is better."


def _oracle(numbers: Numbers) -> list[str]:
    if not numbers.oracle:
        return []
    return [
        f"{ORACLE_MARK} ORACLE: selected by the score on the held-out domain itself, which nobody has in practice. "
        "Such numbers bound what selection could reach; do not compare them with others."
    ]


def _marks(numbers: Numbers) -> list[str]:
    lines = [f"{row.label}: {PRESETS[row.label]}." for row in numbers.rows if row.label in PRESETS]
    if any(row.uses_domains for row in numbers.rows):
        lines.append(f"{DOMAINS_MARK} used the domain labels of the sources in training.")
    if any(row.batchwise for row in numbers.rows):
        lines.append(f"{BATCH_MARK} predictions depend on the other rows of the held-out batch and their domain.")
    return lines


def _temperatures(numbers: Numbers) -> list[str]:
    found = [run.temperature for row in numbers.rows for run in row.runs]
    if all(temperature == 1 for temperature in found):
        return []
    low, high = significant(min(found)), significant(max(found))
    return [
        f"Probabilities are calibrated: at temperatures of {low} to {high}, fitted on validation rows of the sources."
    ]


def _unscored(numbers: Numbers, notes: Sequence[str]) -> list[str]:
    """Which held-out domains have no score, where no note of a run says so."""
    label = numbers.metric.label
    missing = [name for name in numbers.unscored if not any(f"{name} has no {label}" in note for note in notes)]
    return (
        [f"Without {label}, and not part of any number here: {listing(missing)}, whose rows share one target."]
        if missing
        else []
    )


def _groups(numbers: Numbers) -> list[str]:
    if not numbers.score_by:
        return []
    count = len({(run.hold_out, name) for row in numbers.rows for run in row.runs for name in run.by_group or ()})
    return [
        f"Groups: by {listing(numbers.score_by)}, {count} of them over all held-out domains. worst group and "
        f"{PERCENTILE}th pct. (percentile, from the worst): for every seed over all groups, then over seeds."
    ]


def attributed_notes(numbers: Numbers) -> list[str]:
    """The notes of the runs, each once; a note on some hold-outs or methods only names them."""
    runs = [(row.label, run) for row in numbers.rows for run in row.runs]
    where: dict[str, list[tuple[str, str]]] = {}
    for label, run in runs:
        for note in run.notes:
            where.setdefault(note, []).append((label, run.hold_out))
    notes = []
    for note, places in where.items():
        labels, hold_outs = dict.fromkeys(label for label, _ in places), dict.fromkeys(name for _, name in places)
        who = [listing(labels, 4)] if len(labels) < len(numbers.rows) else []
        who += [f"with {listing(hold_outs, 4)} held out"] if len(hold_outs) < len(numbers.hold_outs) else []
        notes.append(": ".join([*([", ".join(who)] if who else []), note]))
    return notes


def _joined(numbers: Numbers) -> list[str]:
    """Which domains were held out together; a name such as ``fold 1`` says nothing by itself."""
    together = {run.hold_out: run.held_out for row in numbers.rows for run in row.runs if len(run.held_out) > 1}
    if not together:
        return []
    lines = [f"{name} holds out {listing(names)}." for name, names in list(together.items())[:_MOST_JOINED]]
    sizes = {len(run.held_out) for row in numbers.rows for run in row.runs}
    weights = " Differences weigh every fold equally, means every domain." * (len(sizes) > 1 and numbers.unit == "fold")
    return [*lines, f"Where several domains are held out together, a cell is the mean over them.{weights}"]


def _seeds(numbers: Numbers) -> str:
    seeds = listing(numbers.seeds)
    if len(numbers.seeds) == 1:
        return f"One seed ({seeds}): the spread over seeds is not known."
    splits = {run.split_seed for row in numbers.rows for run in row.runs}
    own = " Every seed draws its own train/validation split." * (len(splits) > 1)
    return f"Seeds: {seeds}. ± is one standard deviation over seeds.{own}"


def _test(numbers: Numbers) -> list[str]:
    if len(numbers.rows) < 2:
        return []
    if numbers.baseline is None:
        lines = ["The baseline was not run, so there are no differences to it."]
    elif not any(row.against is not None for row in numbers.rows):
        lines = [f"No run shares its hold-out and seed with one of {numbers.baseline.label}: there are no differences."]
    else:
        lines = [*_differences(numbers), *_verdicts(numbers)]
    if any(row.best for row in numbers.rows):
        lines.append(
            "Bold: the best mean." + " Grey: worse than the baseline." * any(row.worse for row in numbers.rows)
        )
    return lines


def _differences(numbers: Numbers) -> list[str]:
    """What the two columns of differences are."""
    if numbers.baseline is None or not any(row.against is not None for row in numbers.rows):
        return []
    base, unit, count = numbers.baseline.label, numbers.unit, numbers.units
    if count < MIN_DOMAINS:
        first = f"On a new domain: no statement, for want of at least {MIN_DOMAINS} held-out {unit}s."
    else:
        corrected = f", p corrected by Holm's procedure for {numbers.tested} methods" * (numbers.tested > 1)
        first = (
            f"On a new domain: difference to {base} and 95 % interval by the t-test over "
            f"{'up to ' * numbers.unequal}{count} {unit}s{corrected}."
        )
    if len(numbers.seeds) < 2:
        return [first, f"On these domains: difference to {base}; one seed allows no interval."]
    domains = f"these {count} {unit}s" if count > 1 else "the held-out rows"
    return [
        first,
        f"On these domains: the difference on {domains} alone; its interval reflects other seeds, not other domains.",
    ]


def _verdicts(numbers: Numbers) -> list[str]:
    """What the verdicts mean."""
    if numbers.units < MIN_DOMAINS:
        return []
    metric, margin = numbers.metric, numbers.margin
    lines = [
        "Verdicts refer to a new domain. Seeds of one domain are correlated, so more seeds do not replace domains. "
        "Better, worse: p < 0.05. Undecided: neither, with about how many domains would decide it if the spread stays."
    ]
    if margin is not None:
        shown = f"{100 * margin if metric.percent else margin:g}"
        lines.append(
            f"Practically equal: the 90 % interval on a new domain lies within ±{shown}{metric.unit} (--margin); this "
            "takes precedence over better and worse."
        )
    else:
        lines.append("Practically equal needs a margin (--margin), and none is set for this score.")
    if numbers.tested > 1:
        lines.append("Intervals are of one comparison each, not corrected for the number of methods.")
    return lines


def _missing(numbers: Numbers) -> list[str]:
    missing = numbers.missing
    if not missing:
        return []
    lacks = [
        f"{label} lacks "
        + listing((f"{hold_out} (seed {seed})" for hold_out, seed in cells), most=max(1, _MOST_MISSING // len(missing)))
        for label, cells in missing.items()
    ]
    return [
        f"Some runs are missing: {listing(lacks)}. A cell uses the seeds it has; mean and worst use the seeds that "
        "have every held-out domain, differences the domains and seeds that both methods have."
    ]


def _note_sentence(note: str) -> str:
    note = " ".join(note.split())
    return note if note.endswith((".", "!", "?")) else f"{note}."
