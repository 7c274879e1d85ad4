"""The figures by name, and the runs behind each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gated_domains.data.errors import DataError, did_you_mean
from gated_domains.paper.ablations.setup import Setup
from gated_domains.paper.grid import Grid, Job
from gated_domains.reports.ablations.setting import (
    GATES,
    MODES,
    Setting,
    heat_map,
    orthogonality_runs,
    over_bases,
    over_sizes,
)

UNDER_GDU = "mmd"
"""The gate of the figures of features and domains; the paper names it for the second of them."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure: what it shows, and the settings behind it."""

    what: str
    settings: Callable[[Setup], list[Setting]]


@dataclass(frozen=True, eq=False, kw_only=True)
class AblationJob(Job):
    """One run behind a figure, which is its column."""

    setting: Setting


def _erm(setup: Setup) -> list[Setting]:
    return [Setting(method="erm", hold_out=setup.target)]


def _bases(setup: Setup) -> list[Setting]:
    lines = [over_bases(mode, setup.fineness.bases[mode], setup.target) for mode in MODES]
    return [*_erm(setup), *(cell for by_name in lines for cells in by_name.values() for cell in cells)]


def _sizes(setup: Setup) -> list[Setting]:
    lines = [over_sizes(mode, setup.fineness.sizes[mode], setup.target) for mode in MODES]
    return [*_erm(setup), *(cell for by_name in lines for cells in by_name.values() for cell in cells)]


def _heat_maps(weight: str) -> Callable[[Setup], list[Setting]]:
    def settings(setup: Setup) -> list[Setting]:
        grids = [
            heat_map(weight, gate, mode, setup.fineness.weights[mode], setup.target) for mode in MODES for gate in GATES
        ]
        return [cell for grid in grids for row in grid for cell in row]

    return settings


def _srip(setup: Setup) -> list[Setting]:
    return [cell for mode in MODES for cell in orthogonality_runs(mode, setup.target).values()]


def feature_settings(setup: Setup) -> dict[str, Setting]:
    """The two networks whose features are set side by side."""
    gdu = Setting(method="paper", gate=UNDER_GDU, hold_out=setup.second)
    return {"ERM": Setting(method="erm", hold_out=setup.second), f"GDU ({gdu.label})": gdu}


def domain_setting(setup: Setup) -> Setting:
    """The network whose bases are drawn."""
    return Setting(method="paper", gate=UNDER_GDU, mode="FT", hold_out=setup.target)


FIGURES: dict[str, Figure] = {
    "davies-bouldin": Figure(what="Davies-Bouldin score of ERM's features over M", settings=_erm),
    "bases": Figure(what="accuracy over M", settings=_bases),
    "size": Figure(what="accuracy over N", settings=_sizes),
    "sparsity": Figure(what="accuracy over lambda_l1 and lambda_ols", settings=_heat_maps("lambda_l1")),
    "orthogonality": Figure(what="accuracy over lambda_orth and lambda_ols", settings=_heat_maps("lambda_orth")),
    "srip": Figure(what="SRIP and cross-entropy by epoch, with and without lambda_orth", settings=_srip),
    "features": Figure(
        what="t-SNE of the body's output under ERM and under GDU", settings=lambda s: [*feature_settings(s).values()]
    ),
    "domains": Figure(what="t-SNE of sources, unseen domain and bases", settings=lambda s: [domain_setting(s)]),
}
"""By name, in the order of the paper."""


def chosen_figures(written: str | None) -> list[str]:
    """Figures as a command line names them, in the order of the paper."""
    if written is None:
        return list(FIGURES)
    names = [name.strip() for name in written.split(",") if name.strip()]
    for name in names:
        if name not in FIGURES:
            raise DataError(f"--figure: there is no {name!r} among the ablations{did_you_mean(name, FIGURES)}")
    if not names:
        raise DataError("--figure names nothing; leave it out for all of them")
    return [name for name in FIGURES if name in names]


def plan(setup: Setup, figures: Sequence[str], seeds: Sequence[int]) -> Grid:
    """The grid, figure by figure; a run behind several stands in each, and is made once."""
    jobs = [
        AblationJob(
            row=setting.label,
            column=figure,
            recipe=setup.recipe(setting, seed),
            starts_on=setup.under(setting, seed),
            setting=setting,
        )
        for figure in figures
        for seed in seeds
        for setting in dict.fromkeys(FIGURES[figure].settings(setup))
    ]
    return Grid(jobs=tuple(jobs), without={})


def counted(grid: Grid) -> str:
    """How many trainings a grid is, each counted once, in words."""
    heads: set[tuple[Setting, int]] = set()
    whole: set[tuple[Setting, int]] = set()
    for job in grid.jobs:
        assert isinstance(job, AblationJob)
        place = (job.setting, job.recipe.seed)
        (heads if job.starts_on is not None else whole).add(place)
        if job.starts_on is not None:
            whole.add((Setting(method="erm", hold_out=job.setting.hold_out), job.recipe.seed))
    return f"{len(whole) + len(heads):,} trainings: {len(whole):,} networks, {len(heads):,} heads on frozen features"
