"""Making the runs of the ablations, and drawing each figure as soon as its runs are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gated_domains.data.errors import DataError
from gated_domains.experiments.runner import Runner
from gated_domains.paper.ablations import taking
from gated_domains.paper.ablations.grids import (
    FIGURES,
    AblationJob,
    domain_setting,
    feature_settings,
    plan,
)
from gated_domains.paper.ablations.setup import Setup
from gated_domains.paper.grid import Job
from gated_domains.paper.light import lighten
from gated_domains.paper.running import Make, Reproducing
from gated_domains.paper.standing import finished
from gated_domains.reports.ablations import bouldin, heat_maps, lines, page, planes, training
from gated_domains.reports.ablations.setting import Found, Setting
from gated_domains.reports.charts.chart import Chart
from gated_domains.reports.page import Files, write_charts
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import Recipe

_FEWEST = 3  # clusterings: where there are fewer networks, several of each
_T = TypeVar("_T")


class Ablating(Reproducing):
    """Makes runs figure by figure; ``light`` keeps no weights but those that heads of any figure stand on."""

    def __init__(
        self,
        setup: Setup,
        figures: Sequence[str],
        seeds: Sequence[int],
        root: Path,
        *,
        make: Make | None,
        light: bool = False,
        writes: bool = True,
        **others: Any,
    ) -> None:
        super().__init__(plan(setup, figures, seeds), root, make=make, **others)
        self.setup, self.drops, self.writes = setup, light, writes
        self.written: list[Path] = []
        self.charts: dict[str, Chart] = {}
        self._drawn: set[str] = set()
        self._every: tuple[Job, ...] = plan(setup, list(FIGURES), seeds).jobs if light else ()

    def _run_data(self, what: str, runner: Runner, jobs: list[Job]) -> None:
        super()._run_data(what, runner, jobs)
        for figure in dict.fromkeys(job.column for job in jobs):
            if figure not in self._drawn:  # nothing was to be trained for it, or nothing could be
                self._draw(runner, [job for job in jobs if job.column == figure])

    def _run_part(self, runner: Runner, making: Callable[[list[Recipe]], object], jobs: list[Job]) -> None:
        super()._run_part(runner, making, jobs)
        self._collect(runner, jobs)
        self._draw(runner, [job for job in self.grid.jobs if job.column == jobs[0].column])
        if self.drops:
            lighten(runner, jobs, unfinished=self._every)

    def _draw(self, runner: Runner, jobs: Sequence[Job]) -> None:
        """Write a figure with its numbers and words."""
        figure = jobs[0].column
        self._drawn.add(figure)
        if not self.writes:
            return
        ours = [job for job in jobs if isinstance(job, AblationJob)]
        drawing = Drawing(self.setup, runner, self._found(figure, runner, ours), ours)
        made = self.charts[figure] = drawing.chart(figure)
        page.write_figure_of(made, drawing.found, self.root, words=drawing.words(figure), notes=drawing.notes)
        self.written = page.write_page(self.root, about=self.about(), order=list(FIGURES))
        self.say(f"{figure}: {made.counted}")

    def about(self) -> str:
        """On what the figures were made, and how."""
        return " ".join(filter(None, (self.setup.about, self.setup.how(), f"Made on {self.machines()}.")))

    def report(self) -> Path | None:
        """Write one page of the figures of this command; None where there is none."""
        charts = [self.charts[name] for name in FIGURES if name in self.charts]
        if not charts:
            return None
        whole = len(charts) == len(FIGURES)
        path = self.root / ("report.html" if whole else f"report-{'-'.join(chart.key for chart in charts)}.html")
        title = f"The paper's ablations, run again: {self.setup.target_title} held out"
        return write_charts(charts, path, title=title, asked=self._asked(), files=Files("."))

    def _asked(self) -> list[tuple[str, str]]:
        about = [("mind", self.setup.about)] if self.setup.about else []
        return [*about, ("how", self.setup.how()), ("machine", self.machines())]

    def _found(self, figure: str, runner: Runner, jobs: Sequence[AblationJob]) -> Found:
        scores: dict[Setting, dict[int, float]] = {}
        asked: dict[Setting, int] = {}
        curves: dict[Setting, dict[int, list[dict[str, Any]]]] = {}
        failed: dict[Setting, str] = {}
        for job in jobs:
            asked[job.setting] = asked.get(job.setting, 0) + 1
            if job in self.results:
                found = scores.setdefault(job.setting, {})
                found[job.recipe.seed] = 100 * float(self.results[job]["test"]["overall"])
                run = finished(runner, job) if figure == "srip" else None
                if run is not None:
                    curves.setdefault(job.setting, {})[job.recipe.seed] = run.metrics()
            elif job in self.failed:
                failed.setdefault(job.setting, self.failed[job])
        return Found(scores=scores, asked=asked, failed=failed, curves=curves)


@dataclass(eq=False)
class Drawing:
    """A figure being drawn: from results, and from what the networks behind it show."""

    setup: Setup
    runner: Runner
    found: Found
    jobs: Sequence[AblationJob]
    notes: list[str] = field(default_factory=list)

    def chart(self, figure: str) -> Chart:
        """The chart of this name."""
        setup, found = self.setup, self.found
        held: dict[str, Any] = {"target": setup.target, "title": setup.target_title}
        if figure == "davies-bouldin":
            return self._bouldin()
        if figure == "bases":
            return lines.bases_chart(found, setup.fineness, **held)
        if figure == "size":
            return lines.size_chart(found, setup.fineness, **held)
        if figure in _HEATED:
            return heat_maps.heat_chart(_HEATED[figure], found, setup.fineness, **held)
        if figure == "srip":
            return training.srip_chart(found, **held)
        if figure == "features":
            taken = {name: self._taken(cell, taking.class_plane) for name, cell in feature_settings(setup).items()}
            return planes.features_chart(taken, title=setup.second_title)
        by_seed = self._taken(domain_setting(setup), taking.domain_plane)
        return planes.domains_chart([by_seed[seed] for seed in sorted(by_seed)], title=setup.target_title)

    def words(self, figure: str) -> list[str]:
        """What is said of the parts of a figure, a line each."""
        if figure not in _HEATED:
            return []
        return heat_maps.panel_words(_HEATED[figure], self.found, self.setup.fineness, target=self.setup.target)

    def _bouldin(self) -> Chart:
        clusters = self.setup.fineness.clusters
        repeats = -(-_FEWEST // max(1, self.found.runs))
        by_seed = self._taken(
            Setting(method="erm", hold_out=self.setup.target),
            lambda run, runner, split: taking.bouldin_scores(run, runner, split, clusters, repeats),
        )
        scores = {view: [row for found in by_seed.values() for row in found[view]] for view in bouldin.TITLES}
        return bouldin.bouldin_chart(scores, clusters, networks=len(by_seed), title=self.setup.target_title)

    def _taken(self, setting: Setting, take: Callable[[RunFolder, Runner, Any], _T]) -> dict[int, _T]:
        """What the finished runs of a setting show, by seed; what cannot be had is noted."""
        taken = {}
        for job in self.jobs:
            run = finished(self.runner, job) if job.setting == setting else None
            if run is None:
                continue
            try:
                taken[job.recipe.seed] = take(run, self.runner, self.runner.planner.split(job.recipe))
            except (DataError, ValueError) as error:
                self.notes.append(f"Nothing could be taken from {setting.label}, seed {job.recipe.seed}: {error}.")
        return taken


_HEATED = {"sparsity": "lambda_l1", "orthogonality": "lambda_orth"}
