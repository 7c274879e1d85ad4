"""What stands under a table, in sentences: how it was made, and what can be told from it."""

from __future__ import annotations

from collections.abc import Sequence

from gated_domains.data.errors import listing
from gated_domains.evaluation.statistics import spread
from gated_domains.reports.columns import DOMAINS_MARK, interval_text
from gated_domains.reports.numbers import SIGNIFICANT, MethodNumbers, Numbers

_MOST_NOTES, _MOST_SENTENCES, _MOST_MISSING, _MOST_JOINED = 12, 3, 6, 8
_ENOUGH_PAIRS = 5  # below, a test hangs on one or two numbers, whatever its p


def caption(numbers: Numbers, *, machine: str | None = None, notes: Sequence[str] = ()) -> list[str]:
    """Sentences that a reader needs to trust the table, or not to."""
    metric, count = numbers.metric, len({key[:2] for row in numbers.rows for key in row.scores})
    better = "higher" if metric.higher_is_better else "lower"
    unit = " in percent" if metric.percent else ""
    lines = [f"{numbers.data}: {metric.label}{unit} on domains that were held out; {better} is better."]
    lines += [_sentence(note) for note in notes[:_MOST_NOTES]]
    if len(notes) > _MOST_NOTES:
        lines.append(f"And {len(notes) - _MOST_NOTES} notes more, in table.json.")
    lines.append(f"Protocol: {numbers.protocol}. Model selection: {numbers.selection}.")
    lines.append(_seeds(numbers))
    if count > 1:
        lines.append(f"mean and worst: for every seed over all {count} held-out domains, then over seeds.")
    lines += _joined(numbers)
    lines += _test(numbers)
    if any(row.uses_domains for row in numbers.rows):
        lines.append(f"{DOMAINS_MARK} used the domain labels of the sources in training.")
    lines.append("Time is that of one training" + (f", measured on {machine}." if machine else "."))
    return lines + _missing(numbers)


def attributed_notes(numbers: Numbers) -> list[str]:
    """The notes of the runs, each said once; what holds for some hold-outs or methods alone names them."""
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
    return [*lines, "Where several domains are held out together, a cell is the mean over them."]


def _seeds(numbers: Numbers) -> str:
    seeds = listing(numbers.seeds)
    if len(numbers.seeds) == 1:
        return f"One seed ({seeds}): nothing is said of how results spread over seeds."
    return f"Seeds: {seeds} (n says how many). ± is one standard deviation over seeds."


def _test(numbers: Numbers) -> list[str]:
    if len(numbers.rows) < 2:
        return []
    tested = [row.difference for row in numbers.rows if row.difference is not None]
    lines = []
    if numbers.baseline is None:
        lines.append("The baseline was not run: no difference to it can be shown.")
    elif not tested:
        lines.append(f"No pair of runs is shared with {numbers.baseline.label}: no difference can be shown.")
    elif max(pair.n for pair in tested) == 1:
        lines.append(f"to {numbers.baseline.label}: the difference in the one pair there is; one pair allows no test.")
    else:
        fewest, most = min(pair.n for pair in tested), max(pair.n for pair in tested)
        pairs = f"{fewest} pairs" if fewest == most else f"{fewest} to {most} pairs"
        lines.append(
            f"to {numbers.baseline.label}: mean difference with its 95 % interval and p, by the paired t-test over "
            f"{pairs} (held-out domain, seed)." + " p is not corrected for the number of methods." * (len(tested) > 1)
        )
    if any(row.best for row in numbers.rows):
        alike = f" and those that the paired t-test does not tell from it (p >= {SIGNIFICANT})"
        lines.append("Bold: the best mean" + alike * any(len(row.scores) > 1 for row in numbers.rows) + ".")
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
        f"Not every run is there: {listing(lacks)}. A cell takes what there is; mean and worst take the seeds that "
        "have every held-out domain, differences the pairs that both methods have."
    ]


def _sentence(note: str) -> str:
    note = " ".join(note.split())
    return note if note.endswith((".", "!", "?")) else f"{note}."


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
    return f"{start}, 95 % interval {interval_text(pair, metric)} over {pair.n} pairs: {end}."


def _outcome(row: MethodNumbers, numbers: Numbers) -> str:
    """``better``, ``worse``, or nothing where the test does not tell."""
    pair = row.difference
    if pair is None or pair.n < _ENOUGH_PAIRS or pair.p_value is None or pair.p_value >= SIGNIFICANT:
        return ""
    return "better" if numbers.metric.as_gain(pair.difference) > 0 else "worse"
