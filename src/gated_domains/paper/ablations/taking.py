"""What figures take from trained networks: clusterings and planes, kept in the folders of their runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from gated_domains.choose import suggest_num_bases
from gated_domains.data.splits import HoldOut
from gated_domains.experiments.model import Model
from gated_domains.experiments.runner import Runner
from gated_domains.methods.gdu import GDU
from gated_domains.paper.curves import VIEWS, features_of
from gated_domains.reports.ablations.kept_arrays import ClassPlane, DomainPlane
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.storage import read_json, write_json

SCORES = "davies_bouldin.json"
_ROWS, _UNSEEN = 1_000, 400  # t-SNE takes a few seconds of so many
_SHARE = 0.8  # of the rows, in each of several clusterings of one network


def bouldin_scores(
    run: RunFolder, runner: Runner, split: HoldOut, clusters: Sequence[int], repeats: int
) -> dict[str, list[list[float]]]:
    """By view, the score of each number of clusters in so many clusterings."""
    kept = run.path / SCORES
    about = {"clusters": list(clusters), "rows": _ROWS, "repeats": repeats}
    if kept.exists():
        before = read_json(kept, cure=f"delete {kept}")
        if isinstance(before, dict) and before.get("about") == about:
            return {view: before[view] for view in VIEWS}
    features = features_of(run, runner, split.train)
    most = len(features) if repeats == 1 else max(max(clusters) + 1, int(_SHARE * len(features)))
    with threadpool_limits(1):
        found = {
            view: suggest_num_bases(features, clusters, on=view, runs=repeats, max_rows=most).scores.tolist()
            for view in VIEWS
        }
    write_json(kept, {"about": about, **found})
    return found


def class_plane(run: RunFolder, runner: Runner, split: HoldOut) -> ClassPlane:
    """Held-out rows in the plane, and how well classes hold together."""
    kept = ClassPlane.read(run.path)
    if kept is not None:
        return kept
    from sklearn.metrics import silhouette_samples

    rows = _some(split.test, _ROWS)
    features, labels = features_of(run, runner, rows), runner.dataset.targets[rows].astype(np.int64)
    classes = runner.dataset.class_names or ()
    met = [number for number in range(len(classes)) if number in labels]
    plane = _plane(features)

    def by_class(points: NDArray[np.float32]) -> NDArray[np.float64]:
        each = silhouette_samples(points, labels)
        return np.array([each[labels == number].mean() for number in met], np.float64)

    found = ClassPlane(
        rows=plane,
        labels=np.searchsorted(met, labels).astype(np.int64),
        classes=np.array([classes[number] for number in met]),
        in_features=by_class(features),
        in_plane=by_class(plane),
    )
    found.write(run.path)
    return found


def domain_plane(run: RunFolder, runner: Runner, split: HoldOut) -> DomainPlane:
    """Training rows, held-out rows and bases in one plane, and where bases lie among the sources."""
    kept = DomainPlane.read(run.path)
    if kept is not None:
        return kept
    train, test = _some(split.train, _ROWS), _some(split.test, _UNSEEN)
    sources, unseen = (features_of(run, runner, rows) for rows in (train, test))
    units = cast(GDU, Model.load(run.path).method).units
    bases = units.bases.detach().float().cpu().numpy()
    vectors = bases.reshape(-1, bases.shape[-1])
    plane = _plane(np.concatenate([sources, unseen, vectors]))
    rows = np.concatenate([train, test])
    spread = _rms(sources)
    means = bases.mean(1)
    away = np.linalg.norm(means[:, None] - sources[None], axis=-1).min(1).astype(np.float64)
    names, domains = runner.dataset.domain_names, runner.dataset.domains
    assert domains is not None  # or nothing could be held out
    found = DomainPlane(
        rows=plane[: len(rows)],
        domains=domains[rows].astype(np.int64),
        names=np.array(names),
        unseen=np.array([name in split.held_out for name in names]),
        bases=plane[len(rows) :],
        basis_of=np.repeat(np.arange(len(bases)), bases.shape[1]),
        width=np.array([_rms(basis) for basis in bases]) / spread,
        away=away / spread,
    )
    found.write(run.path)
    return found


def _some(rows: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """A fixed sample of rows, in order."""
    return np.sort(np.random.default_rng(0).permutation(rows)[:most])


def _rms(points: NDArray[np.float32]) -> float:
    """Root mean square distance from the mean."""
    return float(np.sqrt(np.square(points - points.mean(0)).sum(-1).mean()))


def _plane(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """2-D t-SNE from principal components: the same picture each time."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, max(1.0, (len(points) - 1) / 3))
    with threadpool_limits(1):
        made = TSNE(2, perplexity=perplexity, init="pca", random_state=0).fit_transform(points)
    return np.asarray(made, np.float32)
