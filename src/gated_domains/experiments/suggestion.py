"""num_bases, sigma and kappa from what gates see, and what such a suggestion does not know."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from gated_domains.choose import NumBasesCurve, SigmaSuggestion, suggest_num_bases, suggest_sigma
from gated_domains.data.errors import DataError, listing
from gated_domains.layer import GatedDomainUnits, GateWarning
from gated_domains.layer.fitting import kmeans_bases
from gated_domains.layer.gates import CosineGate
from gated_domains.methods.gdu import GDUSettings

# Of the rows, in each run: with all of them runs would agree whatever the data are, and hide how far to trust them.
SHARE_A_RUN = 0.8
_SIGMA_ROWS = 2_000
_FEW = 0.01  # of the rows; a smaller cluster is odd rows rather than a domain


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """What is suggested, with the curve and the distances behind it. kappa is that of the cosine gate."""

    curve: NumBasesCurve
    sigma: SigmaSuggestion
    kappa: float
    """With the best M and sigma: gates then have half of the largest entropy."""
    gdu_sigma: float
    """What the method gdu takes: a share of the median distance."""
    gdu_kappa: float
    findings: tuple[str, ...]
    """What is wrong with gates so set, in sentences."""
    rows: int
    rows_a_run: int
    width: int

    @property
    def num_bases(self) -> int:
        """The M with the best score."""
        return self.curve.best

    def notes(self) -> Iterator[str]:
        """What the suggestion does not know, and what is odd about it."""
        curve, best, runs = self.curve, self.num_bases, len(self.curve.scores)
        score = curve.score.replace("_", "-").title()
        yield (
            f"{score} looks at clusters of what gates would see, not at accuracy; "
            "which M predicts best, only `gated-domains compare` can tell"
        )
        if runs == 1:
            yield "one run has no spread: whether the best is better than the next by chance is not known; raise --runs"
        elif curve.rivals:
            yield f"the curve is flat: within the spread of its runs, M = {best} is no better than {_any(curve.rivals)}"
        odd = self._runs_with_odd_rows()
        if odd:
            yield (
                f"in {odd} of {runs} runs the smallest of {best} clusters held fewer than {_FEW:.0%} of the rows: "
                "the score may be praising a few odd rows"
            )
        if best == curve.candidates[-1]:
            yield f"M = {best} is the largest tried, and the curve may go on; raise --most"
        elif best == curve.candidates[0]:
            yield f"M = {best} is the smallest that has a score: there may be no clusters at all"
        yield from self.findings

    def as_json(self) -> dict[str, Any]:
        """Plain JSON."""
        curve = self.curve
        columns = (curve.candidates, curve.mean, curve.std, curve.scores.T)
        points = zip(*(column.tolist() for column in columns), strict=True)
        return {
            "num_bases": self.num_bases,
            "rivals": list(curve.rivals),
            "sigma": self.sigma.sigma,
            "sigma_std": self.sigma.spread,
            "kappa": self.kappa,
            "gdu": {"sigma": self.gdu_sigma, "kappa": self.gdu_kappa},
            "gate": "cosine",
            "score": curve.score,
            "on": curve.on,
            "curve": [{"num_bases": m, "mean": mean, "std": std, "runs": runs} for m, mean, std, runs in points],
            "rows": self.rows,
            "rows_a_run": self.rows_a_run,
            "gating_features": self.width,
        }

    def _runs_with_odd_rows(self) -> int:
        if self.curve.smallest is None:
            return 0
        return int((self.curve.smallest[:, self.curve.candidates == self.num_bases] < _FEW).sum())


def suggest_settings(
    seen: NDArray[np.float32],
    *,
    most: int = 12,
    score: str = "davies_bouldin",
    on: str = "features",
    runs: int = 5,
    max_rows: int = 5_000,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Suggestion:
    """The suggestion for ``seen``, rows of what gates see; ``most`` is the largest M tried.

    Each run clusters rows of its own, at most ``max_rows`` and four in five of all. ``progress(done, total)`` is called
    after every k-means fit.
    """
    a_run = min(max_rows, math.ceil(SHARE_A_RUN * len(seen)))
    if most >= a_run:
        cure = f"try --most {a_run - 1}" if a_run > 3 else "give more data"
        raise DataError(
            f"--most {most}: so many clusters cannot be found among {a_run:,} rows, which each run has "
            f"({len(seen):,} in all); {cure}"
        )
    try:
        # Clusters of so few rows gain little by threads, and lose tenfold where other work is going on beside them.
        with threadpool_limits(1):
            curve = suggest_num_bases(
                seen, range(2, most + 1), score=score, on=on, runs=runs, max_rows=a_run, seed=seed, progress=progress
            )
        sigma = suggest_sigma(seen, max_rows=min(_SIGMA_ROWS, a_run), runs=runs, seed=seed)
        gdu_sigma = GDUSettings().sigma_of_median * sigma.sigma
        (kappa, findings), (gdu_kappa, others) = matched_kappas(seen, curve.best, [sigma.sigma, gdu_sigma], seed=seed)
    except ValueError as error:  # rows that nothing can be chosen from
        raise DataError(str(error)) from error
    return Suggestion(
        curve=curve,
        sigma=sigma,
        kappa=kappa,
        gdu_sigma=gdu_sigma,
        gdu_kappa=gdu_kappa,
        findings=(*findings, *others),
        rows=len(seen),
        rows_a_run=a_run,
        width=seen.shape[1],
    )


def matched_kappas(
    seen: NDArray[np.float32], num_bases: int, sigmas: Sequence[float], *, seed: int = 0
) -> list[tuple[float, tuple[str, ...]]]:
    """For each sigma, the kappa that gives the cosine gate half of the largest entropy, and what such gates lack.

    The bases are those that the layer takes from these rows by k-means, the same for every sigma.
    """
    rows = torch.from_numpy(seen)
    gate = CosineGate()
    units = GatedDomainUnits(rows.shape[1], 2, num_bases=num_bases, gate=gate)
    bases = kmeans_bases(rows, num_bases, units.basis_size, seed)
    matched = []
    for sigma in sigmas:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", GateWarning)
            units.fit_bases(rows, initialiser=lambda *_: bases, sigma=sigma, seed=seed)
        said = (str(warning.message) for warning in caught if issubclass(warning.category, GateWarning))
        matched.append((float(gate.kappa), tuple(f"with sigma {sigma:.4g}, {sentence}" for sentence in said)))
    return matched


def _any(candidates: tuple[int, ...]) -> str:
    """``3``, ``3 or 5``, ``3, 5 or 7``."""
    *others, last = candidates
    return f"{listing(others)} or {last}" if others else str(last)
