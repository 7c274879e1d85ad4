"""num_bases, sigma and kappa from what gates see, and the honesty of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gated_domains.choose import NumBasesCurve, suggest_sigma
from gated_domains.data.errors import DataError
from gated_domains.experiments.suggestion import Suggestion, matched_kappas, suggest_settings
from gated_domains.layer import GatedDomainUnits
from gated_domains.layer.gates import CosineGate
from gated_domains.methods.gdu import GDUSettings


def blobs(clusters: int, rows: int = 120, *, apart: float = 8.0) -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    centres = np.eye(clusters, 6) * apart
    return (centres[np.arange(rows) % clusters] + rng.normal(size=(rows, 6))).astype(np.float32)


def suggested(rows: NDArray[np.float32], *, most: int = 6, runs: int = 3, max_rows: int = 5_000) -> Suggestion:
    return suggest_settings(rows, most=most, runs=runs, max_rows=max_rows)


def said(scores: list[list[float]], *, smallest: float = 0.2, score: str = "davies_bouldin") -> str:
    """The notes on a curve, in one text."""
    table = np.array(scores)
    curve = NumBasesCurve(
        candidates=np.arange(2, 2 + table.shape[1]),
        scores=table,
        score=score,
        on="features",
        smallest=np.full(table.shape, smallest),
    )
    found = Suggestion(
        curve=curve, sigma=suggest_sigma(blobs(3)), kappa=1.0, gdu_sigma=1.0, gdu_kappa=1.0,
        findings=("the gates are dead",), rows=9, rows_a_run=8, width=6,
    )  # fmt: skip
    return "\n".join(found.notes())


def test_clusters_that_are_there_are_found() -> None:
    found = suggested(blobs(4))
    assert found.num_bases == 4
    assert (found.rows, found.rows_a_run, found.width) == (120, 96, 6)


def test_sigma_is_the_median_distance_and_gdu_takes_its_share() -> None:
    rows = blobs(3)
    found = suggested(rows)
    distances = np.linalg.norm(rows[:, None] - rows[None], axis=-1)[np.triu_indices(len(rows), 1)]
    assert found.sigma.sigma == pytest.approx(np.median(distances), rel=0.1)
    assert found.sigma.spread > 0
    assert found.gdu_sigma == GDUSettings().sigma_of_median * found.sigma.sigma


def test_runs_see_rows_of_their_own_also_where_all_would_fit() -> None:
    assert (suggested(blobs(3)).curve.std > 0).all()


def test_kappa_gives_gates_half_of_the_largest_entropy() -> None:
    rows = blobs(3)
    for sigma, (kappa, findings) in zip((3.0, 9.0), matched_kappas(rows, 3, [3.0, 9.0]), strict=True):
        units = GatedDomainUnits(6, 2, num_bases=3, gate=CosineGate())
        units.fit_bases(torch.from_numpy(rows), sigma=sigma, kappa=kappa)
        beta = units.evaluate(torch.from_numpy(rows)).beta.detach()
        assert float(torch.special.entr(beta).sum(-1).mean()) == pytest.approx(math.log(3) / 2, rel=1e-3)
        assert findings == ()


def test_gates_that_do_little_are_told_of_with_their_sigma() -> None:
    ((_, findings),) = matched_kappas(blobs(3), 3, [1e-3])
    assert findings
    assert all(finding.startswith("with sigma 0.001, ") for finding in findings)


def test_it_always_says_that_accuracy_was_not_looked_at() -> None:
    assert "not at accuracy" in said([[3.0, 1.0, 2.0], [3.1, 1.1, 2.1]])
    assert said([[3.0, 1.0, 2.0]], score="silhouette").startswith("Silhouette looks at clusters")


def test_a_flat_curve_is_called_flat_and_a_clear_one_is_not() -> None:
    assert "the curve is flat: within the spread of its runs, M = 3 is no better than 2, 4 or 5" in said(
        [[2.0, 1.8, 2.0, 1.9], [1.9, 2.0, 1.95, 2.05]]
    )
    assert "M = 3 is no better than 4\n" in said([[3.0, 1.0, 1.05], [3.1, 1.1, 1.15]]) + "\n"
    assert "flat" not in said([[3.0, 1.0, 2.0], [3.1, 1.1, 2.1]])


def test_one_run_is_said_to_have_no_spread() -> None:
    assert "one run has no spread" in said([[3.0, 1.0, 2.0]])
    assert "one run" not in said([[3.0, 1.0, 2.0], [3.1, 1.1, 2.1]])


def test_a_best_at_either_end_is_told() -> None:
    assert "M = 4 is the largest tried" in said([[3.0, 2.0, 1.0]])
    assert "M = 2 is the smallest that has a score" in said([[1.0, 2.0, 3.0]])
    inside = said([[3.0, 1.0, 2.0]])
    assert "largest" not in inside
    assert "smallest that" not in inside


def test_clusters_of_a_few_odd_rows_are_told() -> None:
    assert "in 2 of 2 runs the smallest of 3 clusters held fewer than 1% of the rows" in said(
        [[3.0, 1.0, 2.0], [3.1, 1.1, 2.1]], smallest=0.005
    )
    assert "odd rows" not in said([[3.0, 1.0, 2.0], [3.1, 1.1, 2.1]], smallest=0.01)


def test_what_is_wrong_with_the_gates_is_told() -> None:
    assert said([[3.0, 1.0, 2.0]]).endswith("the gates are dead")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (blobs(3, rows=6), r"--most 6: .* among 5 rows, .*\(6 in all\); try --most 4"),
        (blobs(3, rows=3), "give more data"),
        (np.repeat(blobs(3, rows=4), 10, axis=0), "distinct rows"),
    ],
    ids=["few", "very few", "copies"],
)
def test_rows_that_nothing_can_be_chosen_from_are_refused(rows: NDArray[np.float32], words: str) -> None:
    with pytest.raises(DataError, match=words):
        suggested(rows)


def test_max_rows_bound_what_a_run_sees() -> None:
    assert suggested(blobs(3), max_rows=50).rows_a_run == 50
    with pytest.raises(DataError, match="try --most 4"):
        suggested(blobs(3), max_rows=5)
