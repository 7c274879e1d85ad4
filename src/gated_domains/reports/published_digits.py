"""The table of Digits-5: its rows in three blocks, the paper's numbers as they were printed, and named contrasts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gated_domains.reports.published import Value

PAPER_RUNS = 10
"""Runs behind each published number."""

TARGETS: dict[str, str] = {"mnist": "MNIST", "mnistm": "MNIST-M", "svhn": "SVHN", "usps": "USPS", "syn": "SYN"}
"""The domains, each held out in turn, and what the paper calls them."""


@dataclass(frozen=True)
class DigitsRow:
    """A row: what it is called, and its block."""

    label: str
    block: str


BLOCKS: dict[str, str] = {
    "paper": "The paper's settings, to the letter",
    "ours": "Our settings",
    "controls": "Controls",
}
REFERENCES: dict[str, str] = {"paper": "erm", "ours": "erm_linear", "controls": "erm_linear"}
"""What the rows of each block are set against: the ERM that was trained as they were."""

ROWS: dict[str, DigitsRow] = {
    "erm": DigitsRow("ERM (tanh)", "paper"),
    "erm_ensemble": DigitsRow("ERM ensemble", "paper"),
    "ft_cosine": DigitsRow("GDU FT cosine", "paper"),
    "ft_mmd": DigitsRow("GDU FT MMD", "paper"),
    "ft_projection": DigitsRow("GDU FT projection", "paper"),
    "e2e_cosine": DigitsRow("GDU E2E cosine", "paper"),
    "e2e_mmd": DigitsRow("GDU E2E MMD", "paper"),
    "e2e_projection": DigitsRow("GDU E2E projection", "paper"),
    "gdu": DigitsRow("GDU", "ours"),
    "gdu_mixstyle_ema": DigitsRow("GDU + MixStyle + EMA", "ours"),
    "erm_linear": DigitsRow("ERM", "controls"),
    "linear": DigitsRow("linear head on ERM", "controls"),
    "linear_tanh": DigitsRow("tanh head on ERM (tanh)", "controls"),
    "erm_mixstyle": DigitsRow("ERM + MixStyle", "controls"),
    "erm_ema": DigitsRow("ERM + EMA", "controls"),
    "erm_mixstyle_ema": DigitsRow("ERM + MixStyle + EMA", "controls"),
    "ensemble": DigitsRow("ensemble of 2 networks", "controls"),
}

CONTRASTS: tuple[tuple[str, str, str], ...] = (
    ("a", "gdu", "erm_linear"),
    ("b", "gdu", "linear"),
    ("c", "gdu_mixstyle_ema", "erm_mixstyle_ema"),
    ("d", "ft_cosine", "linear_tanh"),
    ("d", "ft_mmd", "linear_tanh"),
    ("d", "ft_projection", "linear_tanh"),
    ("e", "gdu", "ensemble"),
)
"""Pairs of rows that answer a question each; (d) is the control that the paper lacks, (e) one of equal cost."""

_TABLE = """
row             mnist        mnistm       svhn         usps         syn
erm             97.98(0.34)  63.00(3.20)  70.18(2.74)  93.70(1.74)  83.62(1.47)
erm_ensemble    98.21(0.39)  62.87(1.50)  72.01(3.59)  95.16(0.89)  83.80(1.22)
ft_cosine       98.75(0.09)  69.44(0.57)  79.65(0.89)  96.43(0.35)  87.94(0.61)
ft_mmd          98.74(0.12)  69.32(0.46)  79.50(1.19)  96.54(0.27)  87.78(0.60)
ft_projection   98.71(0.11)  69.44(0.33)  79.40(1.15)  96.37(0.36)  87.68(0.62)
e2e_cosine      98.50(0.09)  67.78(2.25)  76.76(1.63)  95.54(0.45)  87.41(1.03)
e2e_mmd         98.52(0.11)  68.80(0.69)  78.24(1.09)  95.22(0.91)  87.78(0.94)
e2e_projection  98.13(0.41)  63.15(4.32)  75.04(1.71)  95.49(0.79)  86.04(1.27)
"""


def _read(table: str) -> dict[str, Mapping[str, Value]]:
    heading, *lines = (line.split() for line in table.strip().splitlines())
    found: dict[str, Mapping[str, Value]] = {}
    for row, *cells in lines:
        numbers = [re.findall(r"[\d.]+", cell) for cell in cells]
        values = [Value(float(mean), float(std), f"{mean} ({std})") for mean, std in numbers]
        found[row] = dict(zip(heading[1:], values, strict=True))
    return found


TABLE: dict[str, Mapping[str, Value]] = _read(_TABLE)
"""Accuracy in percent by row and held-out domain, with the standard deviation over ten runs."""
