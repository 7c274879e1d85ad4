"""All that is said of a new site, from what a model sees of it and of rows of its sources."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.data.errors import listing
from gated_domains.evaluation.scores import Predicted
from gated_domains.insight import cards
from gated_domains.insight.sampling import drawn
from gated_domains.insight.shift.accuracy import AccuracyCalibration
from gated_domains.insight.shift.distances import Distances, upper_distance
from gated_domains.insight.shift.mixture import SiteMixture, site_mixture
from gated_domains.insight.shift.novelty import auroc
from gated_domains.insight.shift.outside import outside_span
from gated_domains.insight.shift.reference import Reference
from gated_domains.insight.shift.site_rank import FEWEST_ROWS, site_rank
from gated_domains.insight.shift.two_sample import two_sample_test
from gated_domains.layer.fitting import Coverage
from gated_domains.layer.units import GatedDomainUnits
from gated_domains.runs.site_shift import (
    NO_SHIFT,
    BasisShare,
    BesideNearest,
    EstimatedAccuracy,
    LeftOutAccuracy,
    NewPart,
    Novelty,
    SiteRank,
    SiteShift,
    SourceBeside,
)

__all__ = ["NewSite", "SiteShift", "familiarity", "site_shift"]

MOST_SOURCES = 20
"""Sources that are shown one by one: those with the most rows."""
_MEASURED = 1_000  # rows of the site, and of each source, at random, that distances are measured on
_BINS = 24
_FEWEST = 20  # draws, where no interval is wanted


class NewSite(NamedTuple):
    """Rows of a new site as a model sees them: ``view`` is what gates see, ``said`` what it says of each by itself.

    ``correct`` says where it is right, where the truth is known. ``all_rows`` are there, of which these were looked at.
    Rows with the same number in ``groups`` belong together (to a patient); None: every row is a group of its own.
    ``far_columns`` name columns whose values are out of all proportion to those of training.
    """

    name: str
    view: Float[Tensor, "rows gating"]
    said: Predicted
    correct: NDArray[np.bool_] | None = None
    all_rows: int | None = None
    groups: NDArray[np.int64] | None = None
    far_columns: tuple[str, ...] = ()


def site_shift(
    units: GatedDomainUnits,
    reference: Reference,
    new: NewSite,
    *,
    model: str,
    label: str,
    calibration: AccuracyCalibration | None = None,
    no_accuracy: str = "",
    notes: Sequence[str] = (),
    seed: int = 0,
) -> SiteShift:
    """Compare a new site with rows of the sources. ``no_accuracy`` says why none is estimated without a calibration."""
    device = units.bases.device
    view, compared = new.view.to(device).float(), torch.from_numpy(reference.view).to(device)
    numbers = _largest(reference.domains)
    domains = torch.from_numpy(reference.domains).to(device)
    groups = [compared[domains == number] for number in numbers]
    among = _Among.of(units, groups, compared[~torch.isin(domains, torch.tensor(numbers, device=device))], view, seed)
    together = _together(reference, new)
    test = two_sample_test(units.kernel, compared, view, groups=together, seed=seed)
    bases = units.active_bases.detach().float()
    found = site_mixture(units.kernel, bases, view, groups=new.groups, seed=seed)
    assert new.said.residual is not None  # gates leave one
    coverage = familiarity(units, new.said.residual, reference.residual)
    known = float(reference.correct.mean()) if len(reference.correct) else None
    rank = _rank(units, reference, compared, view, new.groups, seed)
    beside = _beside_nearest(units, reference, new, numbers, among, together, seed)
    shift = SiteShift(
        data=new.name,
        model=model,
        label=label,
        rows=len(view),
        all_rows=len(view) if new.all_rows is None else new.all_rows,
        compared=reference.words,
        compared_rows=len(reference),
        groups=len(view) if new.groups is None else len(np.unique(new.groups)),
        compared_groups=len(np.unique(reference.groups)) if len(reference.groups) else len(reference),
        distance=among.of_site() or 0.0,
        rank=rank,
        p_value=test.p_value,
        permutations=test.permutations,
        kept_together=together is not None,
        sources=tuple(
            _source(
                reference.domain_names[number], place, among, site_mixture(units.kernel, bases, group, draws=_FEWEST)
            )
            for place, (number, group) in enumerate(zip(numbers, groups, strict=True))
        ),
        between=among.between(),
        beside_nearest=beside,
        novelty=_novelty(units, new.said.residual, coverage, reference, together, seed),
        outside=found.outside,
        far_columns=new.far_columns,
        new_part=_new_part(units, view, compared, together, seed),
        mixture=_shares(found, reference, numbers),
        level=found.level,
        accuracy=None if calibration is None else _estimated(calibration, new, coverage, known),
        no_accuracy="" if calibration is not None else no_accuracy,
        accuracy_of_sources=known,
        true_accuracy=None if new.correct is None else float(new.correct.mean()),
        notes=(*notes, *_not_ranked(rank, reference)),
    )
    return _without_estimate(shift)


@torch.no_grad()
def familiarity(units: GatedDomainUnits, residual: NDArray[Any], usual: NDArray[Any]) -> NDArray[Any]:
    """Coverage of rows with this residual; where a layer never fitted its quantiles, by the ``usual`` residuals."""
    return np.asarray(_coverage(units, usual)(torch.from_numpy(np.asarray(residual, np.float32))).numpy())


def _coverage(units: GatedDomainUnits, usual: NDArray[Any]) -> Coverage:
    coverage = deepcopy(units.coverage).cpu()
    if not coverage.fitted:
        coverage.fit(torch.from_numpy(np.asarray(usual, np.float32)))
    return coverage


def _together(reference: Reference, new: NewSite) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Labels of the rows of the sources and of the site; None where every row is a group of its own."""
    if new.groups is None and not len(reference.groups):
        return None
    return (
        reference.groups if len(reference.groups) else np.arange(len(reference)),
        np.arange(len(new.view)) if new.groups is None else new.groups,
    )


def _rank(
    units: GatedDomainUnits,
    reference: Reference,
    compared: Tensor,
    view: Tensor,
    new_groups: NDArray[Any] | None,
    seed: int,
) -> SiteRank | None:
    """Among all sources, also those that are not shown one by one."""
    places = [np.flatnonzero(reference.domains == number) for number in np.unique(reference.domains)]
    known = reference.groups if len(reference.groups) else None
    groups = (
        None
        if known is None and new_groups is None
        else [*(None if known is None else known[own] for own in places), new_groups]
    )
    sources = [compared[torch.from_numpy(own).to(compared.device)] for own in places]
    return site_rank(units.kernel, sources, view, groups=groups, seed=seed)


def _not_ranked(rank: SiteRank | None, reference: Reference) -> list[str]:
    if rank is None or not rank.left_out:
        return []
    numbers = np.unique(reference.domains)
    names = [reference.domain_names[numbers[place]] for place in rank.left_out]
    return [f"not ranked, with fewer than {FEWEST_ROWS} rows or groups of rows: {listing(names, 5)}"]


def _beside_nearest(
    units: GatedDomainUnits,
    reference: Reference,
    new: NewSite,
    numbers: Sequence[int],
    among: _Among,
    together: tuple[NDArray[Any], NDArray[Any]] | None,
    seed: int,
) -> BesideNearest | None:
    known = [(distance, place) for place in range(len(numbers)) if (distance := among.of_site(place)) is not None]
    if len(known) < 2:
        return None
    own = np.flatnonzero(reference.domains == numbers[min(known)[1]])
    source = torch.from_numpy(reference.view[own]).to(units.bases.device)
    view = new.view.to(source)
    groups = None if together is None else (together[0][own], together[1])
    assert new.said.residual is not None
    return BesideNearest(
        upper=_known(upper_distance(units.kernel, source, view, groups=groups, seed=seed)),
        p_value=two_sample_test(units.kernel, source, view, groups=groups, seed=seed).p_value,
        p_novelty=_p_novelty(new.said.residual, reference.residual[own], groups, seed),
    )


def _p_novelty(
    new: NDArray[Any], usual: NDArray[Any], groups: tuple[NDArray[Any], NDArray[Any]] | None, seed: int
) -> float:
    """Of the difference of mean ranks, which is that of the AUROC from 0.5."""
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([usual, new])) / (len(usual) + len(new)) - 0.5
    values = torch.from_numpy(ranks)[:, None]
    return two_sample_test(_product, values[: len(usual)], values[len(usual) :], groups=groups, seed=seed).p_value


def _product(x: Tensor, z: Tensor) -> Tensor:
    return x @ z.mT


def _largest(domains: NDArray[np.int64]) -> list[int]:
    """The sources with the most rows, in their order."""
    counts = np.bincount(domains)
    most = np.argsort(-counts, kind="stable")[:MOST_SOURCES]
    return sorted(int(number) for number in most if counts[number])


class _Among(NamedTuple):
    """Distances among the groups of the largest sources, the rows of all others, and the new site, last."""

    found: Distances
    sources: int

    @classmethod
    def of(cls, units: GatedDomainUnits, groups: Sequence[Tensor], rest: Tensor, view: Tensor, seed: int) -> _Among:
        more = [rest] if len(rest) else []
        few = [_some(group, seed) for group in (*groups, *more, view)]
        return cls(Distances.of(units.kernel, few), len(groups))

    def of_site(self, source: int | None = None) -> float | None:
        """Of the new site to a source, or to all of them together."""
        site = len(self.found.sizes) - 1
        return _known(self.found.between([site], list(range(site)) if source is None else [source]))

    def to_others(self, source: int) -> float | None:
        """Of a source to all others together."""
        others = [other for other in range(len(self.found.sizes) - 1) if other != source]
        return _known(self.found.between([source], others)) if others else None

    def between(self) -> tuple[tuple[float | None, ...], ...]:
        """Of every source to every other."""
        places = range(self.sources)
        return tuple(
            tuple(0.0 if one == other else _known(self.found.between([one], [other])) for other in places)
            for one in places
        )


def _source(name: str, place: int, among: _Among, own: SiteMixture) -> SourceBeside:
    return SourceBeside(
        name=name,
        rows=own.rows,
        distance=among.of_site(place),
        to_others=among.to_others(place),
        mixture=tuple(map(float, own.weights)),
        outside=own.outside,
    )


def _some(rows: Tensor, seed: int) -> Tensor:
    return rows[torch.from_numpy(drawn(np.arange(len(rows)), _MEASURED, seed)).to(rows.device)]


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _shares(found: SiteMixture, reference: Reference, numbers: Sequence[int]) -> tuple[BasisShare, ...]:
    """Every basis of the mixture, with the part that each source has in it, all sources counting the same."""
    weights = cards.weights(reference.beta)
    means = np.stack([weights[reference.domains == number].mean(0) for number in numbers], axis=1)
    total = means.sum(1, keepdims=True)
    parts = np.divide(means, total, out=np.zeros_like(means), where=total > 0)
    columns = zip(found.weights, found.low, found.high, parts, strict=True)
    return tuple(
        BasisShare(
            basis=place,
            share=float(share),
            low=float(low),
            high=float(high),
            of_sources=tuple(map(float, own)),
        )
        for place, (share, low, high, own) in enumerate(columns, 1)
    )


def _novelty(
    units: GatedDomainUnits,
    residual: NDArray[Any],
    coverage: NDArray[Any],
    reference: Reference,
    together: tuple[NDArray[Any], NDArray[Any]] | None,
    seed: int,
) -> Novelty:
    new, usual = np.asarray(residual, np.float64), np.asarray(reference.residual, np.float64)
    both = np.concatenate([new, usual])
    edges = np.histogram_bin_edges(both, _BINS)
    return Novelty(
        mean=float(new.mean()),
        of_sources=float(usual.mean()),
        auroc=float(auroc(new, usual)),
        p_value=_p_novelty(new, usual, together, seed),
        unlike=float((coverage <= 0).mean()),
        unlike_of_sources=float((reference.coverage <= 0).mean()),
        limit=float(_coverage(units, reference.residual).q97),
        edges=tuple(map(float, edges)),
        shares=_binned(new, edges),
        shares_of_sources=_binned(usual, edges),
    )


def _binned(values: NDArray[np.float64], edges: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(map(float, np.histogram(values, edges)[0] / len(values)))


def _new_part(
    units: GatedDomainUnits,
    view: Tensor,
    compared: Tensor,
    together: tuple[NDArray[Any], NDArray[Any]] | None,
    seed: int,
) -> NewPart | None:
    """None where coverage was never fitted, and what is usual is not known."""
    if not units.coverage.fitted:
        return None
    groups = None if together is None else (together[1], together[0])
    found = outside_span(units, view, compared, groups=groups, seed=seed)
    return NewPart(weight=found.weight, low=found.low, high=found.high, is_there=found.new_part)


def _estimated(
    calibration: AccuracyCalibration, new: NewSite, coverage: NDArray[Any], most: float | None
) -> EstimatedAccuracy:
    found = calibration.estimate(new.said.output.max(1), coverage, most=most, groups=new.groups)
    return EstimatedAccuracy(
        value=found.value,
        low=found.low,
        high=found.high,
        error=_known(found.error),
        left_out=tuple(
            LeftOutAccuracy(name=name, estimated=calibration.estimated.get(name), true=true)
            for name, true in calibration.measured.items()
        ),
        reason=found.reason,
    )


def _without_estimate(shift: SiteShift) -> SiteShift:
    """Where no shift is seen, the score on the sources stands instead of an estimate."""
    if shift.accuracy is None or not shift.as_on_sources:
        return shift
    return replace(shift, accuracy=replace(shift.accuracy, value=None, reason=NO_SHIFT))
