"""How a publisher divides a data set and scores it: the parts, the metric, and the groups that are looked at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.errors import DataError, listing
from gated_domains.data.inputs import Rows

Statistic = Literal["overall", "worst_group", "percentile_10"]
STATISTICS: dict[str, str] = {"overall": "", "worst_group": "worst-group ", "percentile_10": "10th-percentile "}
"""What is made of a metric: that of all rows, of the worst group, of the group that a tenth falls short of."""
TRAIN, VALIDATION, TEST = "train", "val", "test"
IN_DISTRIBUTION = ("id_val", "id_test")


@dataclass(frozen=True, eq=False)
class Grouping:
    """Groups by one thing. ``index`` is that of every row into ``names``, -1 for a row of no group."""

    names: tuple[str, ...]
    index: Rows


@dataclass(frozen=True, eq=False, kw_only=True)
class Published:
    """A division into parts and the score that counts.

    ``parts`` are indices into ``part_names``, -1 for a row that no part has. ``train``, ``val`` (out of distribution:
    it selects) and ``test`` (out of distribution: it is scored) are always there; ``id_val`` and ``id_test`` hold other
    rows of the training domains. ``statistic`` says what of the metric counts, over the groups of all ``groupings``;
    those may overlap. ``runs`` is how many trainings the publisher asks for.
    """

    name: str
    parts: NDArray[np.int8]
    part_names: tuple[str, ...]
    metric: str
    statistic: Statistic = "overall"
    groupings: tuple[Grouping, ...] = ()
    runs: int = 1

    def __post_init__(self) -> None:
        absent = [part for part in (TRAIN, VALIDATION, TEST) if part not in self.part_names or not len(self.rows(part))]
        if absent:
            raise DataError(f"{self.name}: the published division has no rows in {listing(absent)}; get the data again")
        if self.statistic not in STATISTICS or (self.statistic != "overall" and not self.groupings):
            raise DataError(f"{self.name}: the statistic {self.statistic!r} needs groups, or is not known")

    def rows(self, part: str) -> Rows:
        """The rows of a part, in order."""
        return np.flatnonzero(self.parts == self.part_names.index(part))

    def others(self) -> dict[str, Rows]:
        """The parts that neither train nor select nor are scored in the first place: in-distribution ones."""
        return {name: rows for name in IN_DISTRIBUTION if name in self.part_names and len(rows := self.rows(name))}

    def take(self, rows: Rows) -> Published:
        """The division of some of the rows."""
        groupings = tuple(Grouping(one.names, one.index[rows]) for one in self.groupings)
        return replace(self, parts=self.parts[rows], groupings=groupings)
