"""How unlike the rows of training new rows are, and how accurate a classifier will probably be on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from gated_domains.estimators.material import known_domains
from gated_domains.evaluation.scores import Predicted
from gated_domains.layer.units import GatedDomainUnits

if TYPE_CHECKING:  # insight brings training with it, which fitting does without
    from gated_domains.insight.shift.accuracy import AccuracyCalibration

# Of new rows, at random, that the distance is measured on: there are their square of pairs.
_MEASURED = 2_000


@dataclass(frozen=True, kw_only=True)
class ShiftScore:
    """New rows against rows of training.

    ``score`` is the distance of their means in the kernel's space, less what chance alone adds to it; 0 for rows like
    those of training. ``rank`` is the place of the new rows among the domains of training by their distance to all
    others (1 is the farthest), of ``sites`` with themselves; None where fewer than two domains are known. ``p_value``
    is of the permutation test whether a difference of rows is detectable. ``novelty`` is the mean over the new rows,
    ``unlike`` the share that is unlike anything seen (familiarity 0; 3 % of the training rows are).
    """

    score: float
    rank: int | None
    sites: int
    p_value: float
    novelty: float
    unlike: float
    rows: int


def shift_score(estimator: Any, X: Any, *, groups: Any, permutations: int, seed: int) -> ShiftScore:  # noqa: N803
    """Of rows against those that a gated estimator has kept."""
    reference = torch.from_numpy(kept_rows(estimator))
    from gated_domains.insight.shift.distances import Distances
    from gated_domains.insight.shift.site_rank import site_rank
    from gated_domains.insight.shift.two_sample import two_sample_test

    units: GatedDomainUnits = estimator.network_.units
    new = estimator.standard(X).float()
    own = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    if own is not None and own.shape != (len(new),):
        raise ValueError(f"groups must name the group of each of {len(new):,} rows, got {np.shape(groups)}")
    together = None if own is None else (np.arange(len(reference)), own)
    test = two_sample_test(units.kernel, reference, new, permutations=permutations, groups=together, seed=seed)
    domains = estimator.reference_domains_
    places = [] if domains is None else [np.flatnonzero(domains == name) for name in np.unique(domains)]
    labels = None if own is None else [*(None for _ in places), own]  # groups of the kept rows are not known
    ranked = site_rank(units.kernel, [reference[place] for place in places], new, groups=labels, seed=seed)
    order = torch.randperm(len(new), generator=torch.Generator().manual_seed(seed))[:_MEASURED]
    found = Distances.of(units.kernel, [reference, new[order]])
    said = estimator.predicted(X)
    familiar = coverage_of(units, said)
    return ShiftScore(
        score=found.between([0], [1]),
        rank=None if ranked is None else ranked.rank,
        sites=len(places) + 1 if ranked is None else ranked.sites,
        p_value=test.p_value,
        novelty=float(said.residual.mean(dtype=np.float64)),
        unlike=float((familiar <= 0).mean()),
        rows=len(new),
    )


def kept_rows(estimator: Any) -> NDArray[np.float32]:
    """The rows that a gated estimator has kept of its training; refused where there are too few."""
    check_is_fitted(estimator)
    found: NDArray[np.float32] = estimator.reference_
    if len(found) < 2:
        raise ValueError(
            f"this estimator has kept {len(found)} rows of training to compare new ones with "
            f"(reference_rows={estimator.reference_rows}); fit it again with more"
        )
    return found


def coverage_of(units: GatedDomainUnits, said: Predicted) -> NDArray[Any]:
    """How familiar rows are, also where the model does without coverage."""
    if said.coverage is not None:
        return said.coverage
    assert said.residual is not None  # gates leave one
    with torch.no_grad():
        found: NDArray[Any] = units.coverage(torch.from_numpy(said.residual)).numpy()
    return found


def calibrated_accuracy(
    estimator: Any,
    X: Any,  # noqa: N803
    y: Any,
    *,
    sample_domain: Any,
    sample_weight: Any,
) -> AccuracyCalibration:
    """Fit the same classifier without each domain in turn, and see how confident and how right it is there."""
    from gated_domains.insight.shift.accuracy import LeftOut, calibrate_accuracy

    check_is_fitted(estimator)
    rows = X if hasattr(X, "shape") else np.asarray(X)
    answers = np.asarray(y)
    known = known_domains(sample_domain, rows)
    if known is None or len(known[0]) < 2:
        raise ValueError(
            f"sample_domain names {0 if known is None else len(known[0])} domains, and each is to be left out in turn; "
            "at least 2 are needed"
        )
    names, domains = known
    weights = None if sample_weight is None else np.asarray(sample_weight)
    found = []
    for place, name in enumerate(names):
        if estimator.verbose:
            print(f"{name} left out ({place + 1} of {len(names)})", flush=True)
        kept, apart = np.flatnonzero(domains != place), np.flatnonzero(domains == place)
        alike = clone(estimator).set_params(reference_rows=0)
        try:
            alike.fit(
                _safe_indexing(rows, kept),
                answers[kept],
                sample_domain=names[domains[kept]],
                sample_weight=None if weights is None else weights[kept],
            )
        except ValueError as error:
            raise ValueError(f"without the domain {str(name)!r} nothing can be fitted: {error}") from error
        said = alike.predicted(_safe_indexing(rows, apart))
        correct = alike.classes_[said.output.argmax(1)] == answers[apart]
        on_sources = alike.classes_[alike.predicted(_safe_indexing(rows, kept)).output.argmax(1)] == answers[kept]
        found.append(
            LeftOut(
                name=str(name),
                confidence=said.output.max(1),
                coverage=coverage_of(alike.network_.units, said),
                correct=correct,
                of_sources=float(on_sources.mean()),
            )
        )
    said = estimator.classes_[estimator.predicted(rows).output.argmax(1)]
    return calibrate_accuracy(found, of_sources=float((said == answers).mean()))
