"""Davies-Bouldin curves of trained networks: how well their features on training rows fall into M clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from gated_domains.choose import NumBasesCurve, suggest_num_bases
from gated_domains.choose.many_curves import curves_csv, plot_many, verdict
from gated_domains.data.errors import DataError, written_whole
from gated_domains.data.pictures import write_figure
from gated_domains.experiments.model import Model
from gated_domains.experiments.run_features import body_features
from gated_domains.experiments.runner import Runner
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import Recipe
from gated_domains.runs.storage import read_json, write_json

CANDIDATES = range(2, 11)
VIEWS = ("features", "tsne")
_ROWS = 1_000  # of the training rows; t-SNE takes a few seconds of so many
_FEWEST = 3  # clusterings of a data set: where there are fewer runs, of several samples of each
KEPT = "curves.json"


class Curves:
    """Collects the curves of one data set after the other, each over its ERM runs; those taken before are kept."""

    def __init__(self, titles: dict[str, str]) -> None:
        self.titles = titles
        self.scores: dict[str, dict[str, list[list[float]]]] = {view: {} for view in VIEWS}
        self.notes: list[str] = []

    def add(self, dataset: str, runner: Runner, recipes: Sequence[Recipe]) -> None:
        """Take the curves of the ERM runs of these recipes."""
        runs = [run for recipe in recipes if (run := runner.find(recipe)) is not None and run.done]
        for run in runs:
            try:
                found = self._of(run, runner, recipes[0], repeats=-(-_FEWEST // len(runs)))
            except (DataError, ValueError) as error:
                self.notes.append(f"no Davies-Bouldin curve of {dataset}: {error}.")
                continue
            for view in VIEWS:
                self.scores[view].setdefault(self.titles[dataset], []).extend(found[view])

    def curves(self) -> dict[str, dict[str, NumBasesCurve]]:
        """By view, then by data set."""
        return {
            view: {
                name: NumBasesCurve(np.array(CANDIDATES), np.array(scores), "davies_bouldin", view)
                for name, scores in found.items()
            }
            for view, found in self.scores.items()
        }

    def write(self, folder: Path, *, title: str) -> list[Path]:
        """Write the picture and the numbers; nothing where there is no curve."""
        curves = self.curves()
        if not any(curves.values()):
            return []
        picture = write_figure(plot_many(curves, title=title), folder / "davies_bouldin.png")
        table = folder / "davies_bouldin.csv"
        with written_whole(table) as draft:
            draft.write_text(curves_csv(curves), "utf-8", newline="")
        return [picture, table]

    def verdict(self) -> list[str]:
        """Which M they would choose."""
        return [*verdict(self.curves()), *self.notes]

    def _of(self, run: RunFolder, runner: Runner, recipe: Recipe, *, repeats: int) -> dict[str, list[list[float]]]:
        """The scores of one run, from its folder where they were kept."""
        kept = run.path / KEPT
        about = {"candidates": list(CANDIDATES), "rows": _ROWS, "repeats": repeats}
        if kept.exists():
            before = read_json(kept, cure=f"delete {kept}")
            if isinstance(before, dict) and before.get("about") == about:
                return {view: before[view] for view in VIEWS}
        features = features_of(run, runner, runner.planner.split(recipe).train)
        with threadpool_limits(1):
            found = {view: _scores(features, view, repeats).tolist() for view in VIEWS}
        write_json(kept, {"about": about, **found})
        return found


def features_of(run: RunFolder, runner: Runner, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """What the body of a run makes of a sample of these rows."""
    model = Model.load(run.path)
    chosen = np.sort(np.random.default_rng(0).permutation(rows)[:_ROWS])
    whole = replace(runner.dataset, published=None)  # a sample of training rows has no parts
    return body_features(model, whole.take(chosen), device=runner.device)


def _scores(features: NDArray[np.float32], view: str, repeats: int) -> NDArray[np.float64]:
    share = len(features) if repeats == 1 else max(max(CANDIDATES) + 1, int(0.8 * len(features)))
    return suggest_num_bases(features, CANDIDATES, on=view, runs=repeats, max_rows=share).scores
