"""The caption of a table: how it was made, and how to read it. A short form for the terminal, the whole elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from gated_domains.common.names import PRESETS
from gated_domains.data.errors import listing
from gated_domains.evaluation.metrics import significant
from gated_domains.evaluation.statistics import MIN_DOMAINS
from gated_domains.reports.columns import BATCH_MARK, DOMAINS_MARK, ORACLE_MARK, columns
from gated_domains.reports.numbers import PERCENTILE, Numbers

_MOST_NOTES, _MOST_MISSING, _MOST_JOINED, _MOST_SHORT = 12, 6, 8, 5


def caption(numbers: Numbers, *, machine: str | None = None, notes: Sequence[str] = ()) -> list[str]:
    """Everything that a reader needs in order to trust the table, or not to."""
    count = len({key[:2] for row in numbers.rows for key in row.scores})
    lines = [_score(numbers), *_oracle(numbers)]
    lines += [_sentence(note) for note in notes[:_MOST_NOTES]]
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


def _sentence(note: str) -> str:
    note = " ".join(note.split())
    return note if note.endswith((".", "!", "?")) else f"{note}."
