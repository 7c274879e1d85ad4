"""What stands under a table, in sentences: how it was made, and how to read it."""

from __future__ import annotations

from collections.abc import Sequence

from gated_domains.data.errors import listing
from gated_domains.evaluation.metrics import significant
from gated_domains.reports.against import SIGNIFICANT
from gated_domains.reports.columns import BATCH_MARK, DOMAINS_MARK, ORACLE_MARK, columns
from gated_domains.reports.numbers import PERCENTILE, Numbers

_MOST_NOTES, _MOST_MISSING, _MOST_JOINED = 12, 6, 8


def caption(numbers: Numbers, *, machine: str | None = None, notes: Sequence[str] = ()) -> list[str]:
    """Sentences that a reader needs to trust the table, or not to."""
    metric, count = numbers.metric, len({key[:2] for row in numbers.rows for key in row.scores})
    better = "higher" if metric.higher_is_better else "lower"
    unit = " in percent" if metric.percent else ""
    lines = [f"{numbers.data}: {metric.label}{unit} on domains that were held out; {better} is better."]
    if numbers.oracle:
        lines.append(
            f"{ORACLE_MARK} ORACLE: selected by the score on the held-out domain itself, which nobody has in practice. "
            "Such numbers bound what selection could reach; do not set them beside others."
        )
    lines += [_sentence(note) for note in notes[:_MOST_NOTES]]
    if len(notes) > _MOST_NOTES:
        lines.append(f"And {len(notes) - _MOST_NOTES} notes more, in table.json.")
    lines.append(f"Protocol: {numbers.protocol}. Model selection: {numbers.selection}.")
    lines.append(_seeds(numbers))
    if count > 1:
        lines.append(f"mean and worst: for every seed over all {count} held-out domains, then over seeds.")
    lines += _joined(numbers)
    lines += _unscored(numbers, notes)
    lines += _groups(numbers)
    lines += _test(numbers)
    lines += [column.about for column in columns(numbers) if column.about and numbers.tested]
    lines += _temperatures(numbers)
    if any(row.uses_domains for row in numbers.rows):
        lines.append(f"{DOMAINS_MARK} used the domain labels of the sources in training.")
    if any(row.batchwise for row in numbers.rows):
        lines.append(f"{BATCH_MARK} adapts by batch: it uses held-out rows together, and which domain they are of.")
    lines.append("Time is that of one training" + (f", measured on {machine}." if machine else "."))
    return lines + _missing(numbers)


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
    return [f"No {label}, and no part in any number here: {listing(missing)}, of one target each."] if missing else []


def _groups(numbers: Numbers) -> list[str]:
    if not numbers.score_by:
        return []
    count = len({(run.hold_out, name) for row in numbers.rows for run in row.runs for name in run.by_group or ()})
    return [
        f"Groups: by {listing(numbers.score_by)}, {count} of them over all held-out domains. worst group and "
        f"{PERCENTILE}th pct. (percentile, from the worst): for every seed over all groups, then over seeds."
    ]


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
            f"{pairs} (held-out domain, seed)." + _correction(numbers)
        )
    if any(row.best for row in numbers.rows):
        many = ", Holm-corrected" * (len(numbers.rows) > 2)
        alike = f" and those that the paired t-test does not tell from it (p >= {SIGNIFICANT}{many})"
        lines.append("Bold: the best mean" + alike * any(len(row.scores) > 1 for row in numbers.rows) + ".")
    return lines


def _correction(numbers: Numbers) -> str:
    if numbers.tested < 2:
        return ""
    return (
        f" p is corrected by Holm's procedure for the {numbers.tested} methods compared with it; intervals are of one "
        "comparison each."
    )


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
