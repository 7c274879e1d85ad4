"""What stands under a reproduced table, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gated_domains.data.errors import listing
from gated_domains.reports.published import SLIPS
from gated_domains.reports.reproduced import COUNTS, Reproduction
from gated_domains.reports.terminal_table import BATCH_MARK, DOMAINS_MARK

MINIATURES = (
    "MINIATURES: made-up data and shrunk networks (2 layers, 64 px, 64 tokens); these numbers say that every road "
    "works, nothing about the benchmark. Set beside the paper's they mean nothing."
)


class Reasons:
    """Why cells are empty, each reason said once and numbered."""

    def __init__(self, reasons: Iterable[str]) -> None:
        self.said = list(dict.fromkeys(" ".join(reason.split()) for reason in reasons))

    def number(self, reason: str) -> int:
        return self.said.index(" ".join(reason.split())) + 1

    def __iter__(self) -> Iterator[str]:
        return (f"[{number}] {reason}" for number, reason in enumerate(self.said, 1))


def caption(found: Reproduction, reasons: Reasons) -> list[str]:
    """Sentences that a reader needs to trust the table, or not to."""
    lines = [MINIATURES] if found.miniature else []
    lines.append(
        "Each cell: our mean (standard deviation over runs) / the paper's. In percent, but for correlations. Official "
        "divisions, metrics and groups; the epoch is selected on the official out-of-distribution validation part."
    )
    lines.append("Networks: " + "; ".join(f"{c.title}: {c.body}" for c in found.columns.values()) + ".")
    lines.append(_runs(found))
    if any(row.uses_domains for row in found.rows.values()):
        lines.append(f"{DOMAINS_MARK} was told the domains of training rows; the others never see them.")
    if any(row.batchwise for row in found.rows.values()):
        lines.append(f"{BATCH_MARK} adapts by batch: it uses the test batch, which WILDS reports apart.")
    lines += [f"{mark}: {SLIPS[mark]}." for mark in _slips(found)]
    if any(not column.published for column in found.columns.values()):
        lines.append("The paper does not say which of its two set-ups of Camelyon17 its numbers are of.")
    lines += [line if line.endswith(".") else f"{line}." for line in reasons]
    lines += found.notes
    lines.append(f"Made on {found.machine}.")
    return lines


def _runs(found: Reproduction) -> str:
    said = []
    for name, column in found.columns.items():
        most = max((cell.asked for _, other, cell in found.given() if other == name), default=0)
        official = column.benchmark.runs
        what = "fold" if column.benchmark.folds else "seed"
        of = "" if most >= official else f" of the official {official}"
        said.append(f"{column.title} {most}{of} {what}{'s' * (official != 1)}")
    return f"Runs: {listing(said)}. Of one run no spread is known."


def _slips(found: Reproduction) -> list[str]:
    """The marks that published numbers in these tables carry."""
    marks = {column.benchmark.slip for column in found.columns.values()} - {""}
    for row, column, _ in found.given():
        for kind in {COUNTS, *found.kinds(column)}:
            value = found.paper(row, column, kind)
            if value is not None and value.slip:
                marks.add(value.slip)
    return sorted(marks)
