"""The paper's numbers on WILDS, table by table as they were printed, and what is wrong with some of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A data set of WILDS: how it is called, what counts, and how often it is run.

    ``statistic`` is what counts, ``average`` the same on all rows where that is something else, ``beside`` another
    metric that WILDS reports with it.
    """

    title: str
    statistic: str
    runs: int
    average: str = ""
    beside: str = ""
    folds: str = ""
    """The letters of its folds; a run is a fold then."""
    slip: str = ""
    """A mark in ``SLIPS``, of what the paper calls the score."""


BENCHMARKS: dict[str, Benchmark] = {
    "camelyon17": Benchmark(title="Camelyon17", statistic="accuracy", runs=10),
    "fmow": Benchmark(title="FMoW", statistic="worst-region accuracy", average="accuracy", runs=3),
    "amazon": Benchmark(title="Amazon", statistic="10th-percentile accuracy", average="accuracy", runs=3),
    "iwildcam": Benchmark(title="iWildCam", statistic="macro F1", beside="accuracy", runs=3),
    "rxrx1": Benchmark(title="RxRx1", statistic="accuracy", runs=3),
    "ogb-molpcba": Benchmark(title="OGB-MolPCBA", statistic="average precision", runs=3, slip="e"),
    "civilcomments": Benchmark(title="CivilComments", statistic="worst-group accuracy", average="accuracy", runs=5),
    "poverty": Benchmark(
        title="PovertyMap", statistic="worst-U/R Pearson r", average="Pearson r", runs=5, folds="ABCDE"
    ),
}

ROWS: dict[str, str] = {
    "erm": "ERM",
    "erm_ensemble": "ERM ensemble",
    "coral": "CORAL",
    "fish": "Fish",
    "irm": "IRM",
    "group_dro": "Group DRO",
    "lisa": "LISA",
    "cgd": "CGD",
    "arm_bn": "ARM-BN",
    "ft_cosine": "GDU FT cosine",
    "ft_mmd": "GDU FT MMD",
    "ft_projection": "GDU FT projection",
    "e2e_cosine": "GDU E2E cosine",
    "e2e_mmd": "GDU E2E MMD",
    "e2e_projection": "GDU E2E projection",
    "gdu": "GDU (ours)",
}
"""The rows of the table, as the paper has them, and below them the form that we recommend."""

SLIPS: dict[str, str] = {
    "a": "repeats the number of Camelyon17; its table of worst and average cases has the right one",
    "b": "the rows of ARM-BN for FMoW and iWildCam have slipped by some columns in the paper's fuller tables",
    "c": "the rows FT and E2E of RxRx1 stand in two tables of the paper, each where the other has the other",
    "d": "probably a leak between folds: the frozen body had seen the held-out countries; never a target",
    "e": "the paper's heading says average worst-region accuracy; it is average precision",
    "f": "another of the paper's tables has another number",
}
"""What is wrong with numbers that carry these marks."""


@dataclass(frozen=True)
class Value:
    """A mean and a standard deviation as printed: percent, but for correlations. ``slip`` is a mark in ``SLIPS``.

    ``right`` is the number that should stand there, where that is known.
    """

    mean: float
    std: float
    text: str
    slip: str = ""
    right: Value | None = None

    def __str__(self) -> str:
        return self.text


_MAIN = """
row             camelyon17  fmow         amazon     iwildcam    rxrx1       ogb-molpcba  civilcomments  poverty
erm             70.3(6.4)   31.3(0.17)   53.8(0.8)  31.0(1.3)f  29.9(0.4)   27.2(0.3)    56.0(3.6)      0.45(0.06)
erm_ensemble    70.0(9.4)   34.3(0.18)f  54.0(0.5)  29.5(0.4)   29.6(0.3)f  26.9(0.3)    55.6(0.8)      0.52(0.08)
coral           59.3(7.7)   32.8(0.66)   52.9(0.8)  32.8(0.1)f  28.4(0.3)   17.9(0.5)    65.6(1.3)      0.44(0.07)
fish            74.7(7.1)   34.6(0.18)   53.3(0.0)  22.0(1.8)   -           -            75.3(0.6)      -
irm             64.2(8.1)   32.8(2.09)   52.4(0.8)  15.1(4.9)   8.2(1.1)    15.6(0.3)    64.2(8.1)a     0.43(0.07)
group_dro       68.4(7.3)   31.1(1.66)   53.3(0.0)  23.9(2.1)f  22.5(0.3)   22.4(0.6)    68.4(7.3)a     0.39(0.06)
lisa            77.1(6.9)   35.5(0.81)   54.7(0.0)  -           31.9(1.0)   -            72.9(1.0)      -
cgd             69.4(7.9)   32.0(2.26)   -          -           -           -            69.1(1.9)      0.43(0.04)
arm_bn          -           24.4(0.54)b  -          23.3(2.8)b  31.2(0.1)   -            -              -
ft_cosine       68.5(8.3)   31.8(1.2)    54.2(0.8)  31.2(0.8)   29.9(0.3)c  27.5(0.2)    56.0(3.7)      0.62(0.13)d
ft_mmd          67.9(8.0)   31.9(1.2)    54.2(0.8)  31.2(0.8)   29.9(0.3)c  27.5(0.2)    55.9(3.7)f     0.62(0.13)d
ft_projection   66.7(8.9)   31.8(1.0)f   54.2(0.8)  30.4(1.0)f  29.8(0.3)c  27.4(0.2)    56.5(2.9)      0.62(0.12)d
e2e_cosine      66.7(8.9)   34.0(1.9)f   53.9(0.7)  27.8(2.1)f  29.7(0.4)c  26.9(0.1)    55.9(0.8)      0.46(0.07)
e2e_mmd         65.7(6.7)   34.4(0.7)    54.2(0.8)  27.4(1.6)   29.6(0.2)c  27.0(0.5)    55.8(0.7)f     0.50(0.06)
e2e_projection  72.3(9.5)   32.9(0.8)    53.8(0.8)  30.1(1.2)f  29.0(0.2)c  26.6(0.3)    56.4(2.1)      0.49(0.07)
"""

_WORST = """
row             poverty.average  poverty.test  civilcomments.average  civilcomments.test  fmow.average  fmow.test
erm             0.78(0.04)       0.45(0.06)    92.1(0.1)              56.0(3.6)           52.7(0.23)    31.3(0.17)
erm_ensemble    0.80(0.04)       0.52(0.08)    92.1(0.0)              55.6(0.8)           53.6(0.06)    34.3(1.85)f
coral           0.78(0.05)       0.44(0.07)    88.7(0.5)              65.6(1.3)           50.1(0.07)    32.8(0.66)
fish            -                -             89.3(0.3)              75.3(0.6)           51.8(0.32)    34.6(0.18)
irm             0.77(0.05)       0.43(0.07)    88.8(0.7)              66.3(2.1)           50.4(0.75)    32.8(2.09)
group_dro       0.75(0.07)       0.39(0.06)    89.9(0.5)              70.0(2.0)           52.8(1.15)    31.1(1.66)
lisa            -                -             90.1(0.3)              72.9(1.0)           52.8(1.15)    35.5(0.81)
cgd             0.77(0.04)       0.43(0.04)    89.6(0.4)              69.1(1.9)           50.6(1.39)    32.0(2.26)
arm_bn          -                -             -                      -                   23.8(2.0)b    72.7(2.0)b
ft_cosine       0.85(0.04)d      0.62(0.13)d   92.3(0.2)              56.0(3.7)           53.1(0.22)    31.8(1.24)
ft_mmd          0.85(0.04)d      0.62(0.13)d   92.3(0.2)              56.0(3.7)f          53.1(0.22)    31.9(1.17)
ft_projection   0.84(0.04)d      0.62(0.12)d   92.3(0.3)              56.5(2.9)           52.7(0.14)    31.8(1.08)f
e2e_cosine      0.78(0.06)       0.46(0.07)    92.3(0.2)              55.9(0.8)           53.4(0.25)    34.4(1.86)f
e2e_mmd         0.80(0.05)       0.50(0.06)    92.3(0.2)              55.9(0.7)f          52.7(0.45)    34.4(0.71)
e2e_projection  0.78(0.04)       0.49(0.07)    92.2(0.3)              56.4(2.1)           52.7(0.68)    32.9(0.78)
"""

_INSIDE = """
row             rxrx1.inside  rxrx1.test  iwildcam.inside  iwildcam.inside_beside  iwildcam.test  iwildcam.beside
erm             35.9(0.4)     29.9(0.4)   47.1(1.5)        75.7(0.4)               30.8(1.3)f     71.5(2.6)
erm_ensemble    35.6(0.4)     29.9(0.4)f  45.3(2.1)        74.6(0.2)               29.5(0.4)      69.6(3.2)
coral           34.0(0.3)     28.4(0.3)   43.6(3.3)        73.8(0.3)               32.7(0.2)f     73.3(4.3)
fish            -             -           40.3(0.6)        73.8(0.1)               22.0(1.8)      64.7(2.6)
irm             9.9(1.4)      8.2(1.1)    22.4(7.7)        59.8(8.2)               15.1(4.9)      59.7(3.8)
group_dro       28.1(0.3)     22.5(0.3)   37.5(1.9)        71.6(2.7)               23.8(2.0)f     72.7(2.0)
lisa            41.1(1.3)     31.9(1.0)   -                -                       -              -
cgd             -             -           -                -                       -              -
arm_bn          34.9(0.2)     31.2(0.1)   62.0(4.0)b       23.8(2.0)b              72.7(2.0)b     -
ft_cosine       36.0(0.4)c    29.7(0.4)c  47.7(0.1)        76.6(0.3)               31.2(0.8)      72.7(1.8)
ft_mmd          36.0(0.2)c    29.6(0.2)c  47.7(0.1)        76.6(0.3)               31.2(0.8)      72.7(1.8)
ft_projection   35.1(0.3)c    29.0(0.2)c  48.2(0.5)        76.3(0.4)               30.5(1.0)f     72.5(1.8)
e2e_cosine      36.2(0.4)c    29.9(0.3)c  44.2(2.0)        74.9(0.5)               27.8(2.2)f     69.7(0.3)
e2e_mmd         36.2(0.4)c    29.9(0.3)c  43.4(1.6)        75.3(0.2)               27.4(1.6)      68.3(2.6)
e2e_projection  36.0(0.5)c    29.8(0.3)c  45.4(3.2)        75.0(1.4)               30.1(1.3)f     71.6(4.7)
"""

_VALUE = re.compile(r"(\d+\.\d+)\((\d+\.\d+)\)([a-f]?)")


def _read(table: str) -> dict[str, dict[str, Value]]:
    """A table as columns of rows; a dash is nothing."""
    heading, *lines = table.strip().splitlines()
    columns: dict[str, dict[str, Value]] = {name: {} for name in heading.split()[1:]}
    for line in lines:
        row, *cells = line.split()
        for column, cell in zip(columns, cells, strict=True):
            if (found := _VALUE.fullmatch(cell)) is not None:
                mean, std, slip = found.groups()
                columns[column][row] = Value(float(mean), float(std), f"{mean} ({std})", slip)
            elif cell != "-":
                raise ValueError(f"{row}, {column}: {cell!r} is no number of a table")
    return columns


def _put_right(main: Mapping[str, dict[str, Value]]) -> dict[str, dict[str, Value]]:
    """The main table, with the right number beside a wrong one where another table has it."""
    right = _read(_WORST)["civilcomments.test"]
    mended = {
        row: replace(value, right=right[row]) if value.slip == "a" else value
        for row, value in main["civilcomments"].items()
    }
    return {**main, "civilcomments": mended}


MAIN: dict[str, dict[str, Value]] = _put_right(_read(_MAIN))
"""The main table: data set, then row. What counts for each data set, on its test part."""

DETAILS: dict[str, dict[str, Value]] = {**_read(_WORST), **_read(_INSIDE)}
"""The two fuller tables, by ``"fmow.average"`` and so on, then row.

``test`` is what counts and ``average`` the average case; ``inside`` is what counts on the in-distribution part;
``beside`` is another metric.
"""
