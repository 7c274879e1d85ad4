"""What stands under the table of Digits-5, in sentences written from its numbers."""

from __future__ import annotations

from gated_domains.evaluation.statistics import Paired
from gated_domains.reports.columns import ABSENT, p_text
from gated_domains.reports.digits_numbers import Contrast, DigitsNumbers
from gated_domains.reports.published_digits import PAPER_RUNS, REFERENCES, ROWS
from gated_domains.reports.reproduced_words import Reasons
from gated_domains.reports.words import attributed_notes

MARKS = {"same": "≈", "higher": "↑", "lower": "↓", "": ""}
_MOST_NOTES = 12
_FEWEST_TARGETS = 3  # of fewer, redrawing them says nothing


def percent(value: float) -> str:
    """``79.62``, of a share."""
    return f"{100 * value:.2f}"


def points(value: float) -> str:
    """``+1.50``, of a difference of shares; a rounded zero has no sign."""
    text = f"{100 * value:+.2f}"
    return text if text.strip("+-0.") else text[1:]


def difference(pair: Paired | None) -> str:
    """``+1.50 (+1.10 to +1.90)``; without an interval where none can be told."""
    if pair is None:
        return ABSENT
    low, high = pair.low, pair.high
    return points(pair.difference) + (
        f" ({points(low)} to {points(high)})" if low is not None and high is not None else ""
    )


def contrast_sentence(contrast: Contrast, *, tested: int) -> str:
    """``(a) GDU 79.62 against ERM 78.12: +1.50 points, 95 % interval +1.10 to +1.90 over 50 pairs ..., p <0.001.``"""
    found = contrast.found
    pair, redrawn = found.pair, found.bootstrap
    first, second = ROWS[contrast.first].label, ROWS[contrast.second].label
    means = f"{percent(contrast.first_mean)} against {second} {percent(contrast.second_mean)}"
    start = f"({contrast.letter}) {first} {means}: {points(pair.difference)} points"
    if pair.n == 1:
        return f"{start} in one pair, which allows no test."
    if pair.low is None or pair.high is None:
        return f"{start}, the same in each of {pair.n} pairs, which allows no test."
    corrected = f", {p_text(contrast.holm)} corrected for {tested} contrasts" * (tested > 1)
    record = f"{found.record.wins} won, {found.record.ties} tied, {found.record.losses} lost"
    clustered = ""
    if redrawn is not None and contrast.targets >= _FEWEST_TARGETS:
        clustered = f"; with targets redrawn {points(redrawn.low)} to {points(redrawn.high)}"
    return (
        f"{start}, 95 % interval {points(pair.low)} to {points(pair.high)} over {pair.n} pairs (target, seed; "
        f"{record}), p {p_text(pair.p_value)}{corrected}{clustered}."
    )


def contrast_sentences(numbers: DigitsNumbers) -> list[str]:
    """A sentence a contrast."""
    tested = sum(contrast.found.pair.p_value is not None for contrast in numbers.contrasts)
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
    told = [mark for mark in cells if mark]
    said = f"{told.count('same')} of {len(told)} cells do" if told else "no cell has two runs, which it takes"
    return (
        f"{MARKS['same']} reproduces: apart from the paper's by at most two standard errors of the difference (the "
        f"paper's over {PAPER_RUNS} runs); {MARKS['higher']} ours is higher, {MARKS['lower']} lower; {said}."
    )


def _ends(numbers: DigitsNumbers) -> list[str]:
    """How many trainings that may stop early did not."""
    runs = [run for row in numbers.rows if ROWS[row].block == "paper" for run in numbers.runs[row]]
    whole = sum(run.stopped == "all epochs" for run in runs)
    said = f"{whole} of {len(runs)} trainings of the paper's rows went to the last epoch without being stopped early."
    return [said] * bool(runs)


def _notes(numbers: DigitsNumbers) -> list[str]:
    """What the runs have to say, each thing once."""
    notes = [] if numbers.comparison is None else attributed_notes(numbers.comparison)
    said = [note if note.endswith((".", "!", "?")) else f"{note}." for note in notes[:_MOST_NOTES]]
    return [*said, *[f"And {len(notes) - _MOST_NOTES} notes more, in the runs."] * (len(notes) > _MOST_NOTES)]


def _references() -> str:
    named = {block: ROWS[reference].label for block, reference in REFERENCES.items()}
    return (
        f"to {named['paper']}, to {named['ours']}: mean difference with its 95 % interval, and p of the paired t-test "
        "over pairs (target, seed), corrected by Holm over the rows set against the same one. Pairs of one target are "
        "not independent: in the contrasts a second interval has targets redrawn, then seeds."
    )
