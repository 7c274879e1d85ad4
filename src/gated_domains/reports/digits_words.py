"""What stands under the table of Digits-5, in sentences written from its numbers."""

from __future__ import annotations

from gated_domains.evaluation.statistics import MIN_DOMAINS, Effect
from gated_domains.reports.captions import attributed_notes
from gated_domains.reports.digits_numbers import MIN_SEEDS, Contrast, DigitsNumbers
from gated_domains.reports.published_digits import PAPER_RUNS, REFERENCES, ROWS
from gated_domains.reports.reproduced_words import Reasons
from gated_domains.reports.terminal_table import ABSENT, about, p_text

MARKS = {"reproduces": "≈", "differs": "≠", "undecided": "?", "": ""}
_MOST_NOTES = 12


def percent(value: float) -> str:
    """``79.62``, of a share."""
    return f"{100 * value:.2f}"


def points(value: float) -> str:
    """``+1.50``, of a difference of shares; a rounded zero has no sign."""
    text = f"{100 * value:+.2f}"
    return text if text.strip("+-0.") else text[1:]


def difference(effect: Effect | None) -> str:
    """``+1.50 (+1.10 to +1.90)``; without an interval where there is none."""
    if effect is None:
        return ABSENT
    interval = effect.interval()
    return points(effect.difference) + (f" ({points(interval.low)} to {points(interval.high)})" if interval else "")


def contrast_sentence(contrast: Contrast, *, tested: int) -> str:
    """``(a) GDU 79.62 against ERM 78.12. On a new domain: +1.50 points (...), better. On these 5 targets: ...``"""
    found = contrast.found
    first, second = ROWS[contrast.first].label, ROWS[contrast.second].label
    means = f"{percent(contrast.first_mean)} against {second} {percent(contrast.second_mean)}"
    start = f"({contrast.letter}) {first} {means}."
    targets = f"{found.new_domain.n} target{'s' * (found.new_domain.n != 1)}"
    these = f"On {'these' if found.new_domain.n > 1 else 'this'} {targets}: {difference(found.these_domains)} points"
    if found.new_domain.error is None:
        return f"{start} {these}; no verdict on a new domain with fewer than {MIN_DOMAINS} targets."
    corrected = f" corrected for {tested} contrasts" * (tested > 1)
    needed = f" (about {about(found.domains_needed)} domains would decide it)" if found.domains_needed else ""
    return (
        f"{start} On a new domain: {difference(found.new_domain)} points, p {p_text(found.holm)}{corrected}: "
        f"{found.verdict}{needed}. {these}."
    )


def contrast_sentences(numbers: DigitsNumbers) -> list[str]:
    """One sentence per contrast."""
    tested = sum(contrast.found.holm is not None for contrast in numbers.contrasts)
    return [contrast_sentence(contrast, tested=tested) for contrast in numbers.contrasts]


def caption(numbers: DigitsNumbers, reasons: Reasons) -> list[str]:
    """Sentences that a reader needs to trust the table, or not to."""
    lines = [numbers.about] if numbers.about else []
    beside = " / the paper's" * numbers.published
    lines.append(
        f"Each cell: our accuracy in percent on the held-out domain, mean (standard deviation over seeds){beside}; the "
        "epoch is selected on the sources alone. mean: for every seed over all targets here, then over seeds."
    )
    if numbers.published:
        lines.append(_agreement(numbers))
    lines += numbers.how
    lines += _ends(numbers)
    lines.append(_references())
    lines.append(
        "time: of one training, the mean over runs; of a head on frozen features, without the network under it."
    )
    lines += [line if line.endswith(".") else f"{line}." for line in reasons]
    lines += _notes(numbers)
    lines.append(f"Made on {numbers.machine}.")
    return lines


def _agreement(numbers: DigitsNumbers) -> str:
    cells = [numbers.agreement(row, target) for row in numbers.rows for target in numbers.targets]
    found = [mark for mark in cells if mark]
    counts = ", ".join(f"{found.count(mark)} {mark}" for mark in ("reproduces", "differs", "undecided"))
    return (
        f"{MARKS['reproduces']} reproduces: level and gain over ERM are equivalent to the paper's within 1 point (2 "
        f"where its standard deviation exceeds 2), by two one-sided Welch tests over {PAPER_RUNS} runs of the paper "
        f"and at least {MIN_SEEDS} of ours; {MARKS['differs']} differs: one of the two is significantly different "
        f"and not equivalent; {MARKS['undecided']} undecided. {len(found)} cells: {counts}."
    )


def _ends(numbers: DigitsNumbers) -> list[str]:
    """How many trainings that may stop early did not."""
    runs = [run for row in numbers.rows if ROWS[row].block == "paper" for run in numbers.runs[row]]
    whole = sum(run.stopped == "all epochs" for run in runs)
    said = f"{whole} of {len(runs)} trainings of the paper's rows reached the last epoch without early stopping."
    return [said] * bool(runs)


def _notes(numbers: DigitsNumbers) -> list[str]:
    """What the runs have to say, each thing once."""
    notes = [] if numbers.comparison is None else attributed_notes(numbers.comparison)
    said = [note if note.endswith((".", "!", "?")) else f"{note}." for note in notes[:_MOST_NOTES]]
    return [*said, *[f"And {len(notes) - _MOST_NOTES} notes more, in the runs."] * (len(notes) > _MOST_NOTES)]


def _references() -> str:
    named = {block: ROWS[reference].label for block, reference in REFERENCES.items()}
    return (
        f"to {named['paper']}, to {named['ours']}: mean difference on a new domain with its 95 % interval and p, by "
        "the t-test over the targets' means, corrected by Holm over the rows compared with the same one; none with "
        f"fewer than {MIN_DOMAINS} targets. Seeds of one target are correlated and are not counted as independent."
    )
