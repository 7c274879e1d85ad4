"""What is said of a new site: how far it is from the sources, how novel, what it draws on, the accuracy to expect.

Plain numbers and names, for whoever prints or draws them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gated_domains.data.errors import DataError, first_line

FORMAT = 3
SIGNIFICANT = 0.05
MOSTLY_OUTSIDE = 0.5
"""Of rows unlike anything seen, more than which say more than any distance."""
FEW_OUTSIDE = 0.1
"""Of rows unlike anything seen, up to which no shift is seen; 3 % of familiar rows are."""
NO_SHIFT = "no shift was seen"
FEWEST_ROWS = 50
"""Rows (groups, where rows are kept together) of a site below which a test that sees no shift says nothing."""
_ALIKE = 0.5  # of the smallest distance between two sources: a site that is surely nearer to a source is like it


@dataclass(frozen=True, kw_only=True)
class SourceBeside:
    """A source of training beside the new site.

    ``distance`` is of the new site to it, ``to_others`` of it to the other sources together (None: there are none, or
    it is one row alone). ``mixture`` and ``outside`` are its own, found as those of the new site.
    """

    name: str
    rows: int
    distance: float | None
    to_others: float | None
    mixture: tuple[float, ...]
    outside: float


@dataclass(frozen=True, kw_only=True)
class BasisShare:
    """How much a site draws on a basis, counted from 1, with the ends of an interval.

    ``of_sources``: of the weight that rows of the sources give this basis, the part of each, as if all had as many
    rows.
    """

    basis: int
    share: float
    low: float
    high: float
    of_sources: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Novelty:
    """``||phi(x) - sum_j beta_j mu_j||^2`` of new rows beside rows of the sources.

    ``edges`` are those of bins, the others are shares of rows in each. ``unlike`` is the share of rows unlike anything
    seen, with a novelty of ``limit`` or more (coverage 0). ``auroc``: how often a new row is more novel than one of the
    sources; ``p_value`` is that of a permutation test of it against 0.5, which whole groups of rows enter.
    """

    mean: float
    of_sources: float
    auroc: float
    p_value: float
    unlike: float
    unlike_of_sources: float
    limit: float
    edges: tuple[float, ...]
    shares: tuple[float, ...]
    shares_of_sources: tuple[float, ...]

    @property
    def higher(self) -> bool:
        """Whether new rows are significantly more novel than those of the sources."""
        return self.auroc > 0.5 and self.p_value <= SIGNIFICANT


@dataclass(frozen=True, kw_only=True)
class BesideNearest:
    """The new site beside its nearest source alone.

    ``upper`` is the upper limit of their distance: the root of its square and two jackknife standard errors; None where
    either has fewer than three groups of rows.
    ``p_value`` is that of the permutation test of rows, ``p_novelty`` of that of their novelty.
    """

    upper: float | None
    p_value: float
    p_novelty: float


@dataclass(frozen=True, kw_only=True)
class NewPart:
    """The part of a site's rows that looks new, by rows unlike anything seen beyond what is usual.

    It lies between ``low`` and ``high``; ``is_there``: it is more than is usual, and its rows are alike.
    """

    weight: float
    low: float
    high: float
    is_there: bool


@dataclass(frozen=True, kw_only=True)
class SiteRank:
    """The place of the new site among the S sources and itself, by its distance to all others; 1 is the farthest.

    ``squared`` is ``||mu_k - mean of the others||^2`` of the new site, unbiased, with ``rows`` rows of every site, of
    as many ``groups`` each (None: every row is a group of its own). ``sites`` is S + 1, and ``p_value`` is
    ``rank / sites``: with fewer than 19 sources it cannot reach 0.05. It is None where the groups of only some sites
    are known. ``left_out`` are the indices of sources with too few rows.
    """

    rank: int
    sites: int
    p_value: float | None
    squared: float
    squared_of_sources: tuple[float, ...]
    rows: int
    groups: int | None = None
    left_out: tuple[int, ...] = ()

    @property
    def can_be_significant(self) -> bool:
        """Whether there is a p-value, and sources enough for 0.05."""
        return self.p_value is not None and 1 / self.sites <= SIGNIFICANT

    @property
    def farther(self) -> bool:
        """Significantly farther from the others than sources are; with few sources, farther than every one of them."""
        return self.rank / self.sites <= SIGNIFICANT if self.can_be_significant else self.rank == 1


@dataclass(frozen=True, kw_only=True)
class LeftOutAccuracy:
    """A source that was left out of training: its accuracy as estimated from the other sources, and as measured.

    ``estimated`` is None where there was no other.
    """

    name: str
    estimated: float | None
    true: float


@dataclass(frozen=True, kw_only=True)
class EstimatedAccuracy:
    """The accuracy that a model will probably have, between ``low`` and ``high``.

    ``value`` is None where there is no estimate, and ``reason`` says why. ``error`` is how far such estimates were off,
    on average, for sources left out of training; None: it is not known.
    """

    value: float | None
    low: float
    high: float
    error: float | None
    left_out: tuple[LeftOutAccuracy, ...]
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class SiteShift:
    """All that is said of a new site. ``rows`` were looked at, of ``all_rows``; ``compared`` says with what rows.

    ``groups`` and ``compared_groups`` count what is independent: the rows, or groups of them that are kept together.

    ``distance`` is of the mean of the new rows to that of the sources in the kernel's space; ``rank`` is the place of
    the site among the sources (None: there are too few), ``p_value`` that of the permutation test whether a difference
    of its rows is detectable, ``kept_together`` whether it permuted whole groups of rows. ``far_columns`` name columns
    with values out of all proportion to those of training. ``between`` are the distances between sources. ``outside``
    is the share of the site's squared length that no combination of the bases expresses. ``accuracy`` is None where
    nothing is estimated: ``no_accuracy`` says why. ``accuracy_of_sources`` is on the rows compared with.
    """

    data: str
    model: str
    label: str
    rows: int
    all_rows: int
    compared: str
    compared_rows: int
    groups: int
    compared_groups: int
    distance: float
    rank: SiteRank | None
    p_value: float
    permutations: int
    kept_together: bool
    sources: tuple[SourceBeside, ...]
    between: tuple[tuple[float | None, ...], ...]
    beside_nearest: BesideNearest | None
    novelty: Novelty
    outside: float
    far_columns: tuple[str, ...]
    new_part: NewPart | None
    mixture: tuple[BasisShare, ...]
    level: float
    accuracy: EstimatedAccuracy | None
    no_accuracy: str
    accuracy_of_sources: float | None
    true_accuracy: float | None
    notes: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether a difference of its rows from those of all sources together is detectable."""
        return self.p_value <= SIGNIFICANT

    @property
    def too_few(self) -> bool:
        """Whether rows, of the site or of all sources, are too few for a test that sees no shift to mean anything."""
        return min(self.groups, self.compared_groups) < FEWEST_ROWS

    @property
    def mostly_outside(self) -> bool:
        """Whether most rows are unlike anything seen."""
        return self.novelty.unlike > MOSTLY_OUTSIDE

    @property
    def alike(self) -> SourceBeside | None:
        """The source that the site is like.

        That is: surely nearer to it than half the smallest distance between two sources, and no difference from its
        rows is detectable, in their mean or in their novelty. With few rows there is none.
        """
        apart = [value for row, of_row in enumerate(self.between) for value in of_row[:row] if value is not None]
        beside = self.beside_nearest
        if beside is None or beside.upper is None or not apart:
            return None
        like = (
            self.groups >= FEWEST_ROWS
            and self.novelty.unlike <= FEW_OUTSIDE
            and beside.upper < _ALIKE * min(apart)
            and min(beside.p_value, beside.p_novelty) > SIGNIFICANT
        )
        return self.nearest if like else None

    @property
    def as_sources_together(self) -> bool:
        """Whether rows enough differ detectably from those of all sources neither in their mean nor in novelty."""
        return not (self.too_few or self.differs or self.novelty.higher)

    @property
    def as_on_sources(self) -> bool:
        """Whether no shift is seen, and the accuracy on the sources is known.

        That is: the site is like one source, or its rows, at least 50, do not detectably differ from those of all; it
        is no farther from the sources than they are from one another; and few rows are unlike anything seen.
        """
        farther = self.rank is not None and self.rank.farther
        return (
            self.accuracy_of_sources is not None
            and not farther
            and self.novelty.unlike <= FEW_OUTSIDE
            and (self.as_sources_together or self.alike is not None)
        )

    @property
    def nearest(self) -> SourceBeside | None:
        """The source that the site is nearest to."""
        known = [source for source in self.sources if source.distance is not None]
        return min(known, key=lambda source: source.distance or 0.0) if len(known) > 1 else None

    @property
    def usual(self) -> tuple[float, float] | None:
        """The smallest and the largest distance of a source to the others: the scale that distances are read by."""
        known = [source.to_others for source in self.sources if source.to_others is not None]
        return (min(known), max(known)) if known else None

    def as_json(self) -> dict[str, Any]:
        """Plain values; ``from_json`` reads them."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> SiteShift:
        """What ``as_json`` gave, perhaps by way of a file."""
        try:
            given = dict(fields)
            if given.pop("format") != FORMAT:
                raise ValueError(f"format {fields['format']!r}, this version reads {FORMAT}")
            part, accuracy, rank = given["new_part"], given["accuracy"], given["rank"]
            beside = given["beside_nearest"]
            given |= {
                "sources": tuple(SourceBeside(**_tuples(source)) for source in given["sources"]),
                "between": tuple(tuple(row) for row in given["between"]),
                "beside_nearest": None if beside is None else BesideNearest(**beside),
                "novelty": Novelty(**_tuples(given["novelty"])),
                "rank": None if rank is None else SiteRank(**_tuples(rank)),
                "far_columns": tuple(given["far_columns"]),
                "new_part": None if part is None else NewPart(**part),
                "mixture": tuple(BasisShare(**_tuples(share)) for share in given["mixture"]),
                "accuracy": None if accuracy is None else _estimated(accuracy),
                "notes": tuple(given["notes"]),
            }
            return cls(**given)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"this says nothing of a site's shift ({first_line(error)}); compute it again") from error


def _estimated(fields: dict[str, Any]) -> EstimatedAccuracy:
    left_out = tuple(LeftOutAccuracy(**one) for one in fields["left_out"])
    return EstimatedAccuracy(**{**fields, "left_out": left_out})


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
