"""The table of Digits-5: the recipe behind each row, and the grid of all targets, seeds and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gated_domains.common.paper import PAPER_BASES
from gated_domains.data.digits import DOMAINS as EMBEDDED
from gated_domains.data.digits5 import DOMAINS, folder_name
from gated_domains.data.errors import DataError, data_folder, did_you_mean
from gated_domains.experiments.recipe_checks import choose_method
from gated_domains.paper.grid import Grid, Job
from gated_domains.reports.published_digits import ROWS, TARGETS
from gated_domains.runs.recipe import DataSettings, Recipe, TrainingSettings
from gated_domains.settings import parsed

Fields = Mapping[str, Any]

PAPER: Fields = {"epochs": 250, "patience": 10, "batch_size": 512, "optimizer": "adam", "rate": 1e-3,
                 "schedule": "constant"}  # fmt: skip
OURS: Fields = {"epochs": 10, "patience": None, "batch_size": 512, "optimizer": "adamw", "rate": 1e-3,
                "schedule": "cosine"}  # fmt: skip
_MIXSTYLE, _EMA = {"mixstyle": 0.5}, {"ema": 0.999}
_QUICK: Fields = {"epochs": 8, "batch_size": 64}
_QUICK_TARGETS = ("mnistm", "usps")
SEEDS, QUICK_SEEDS = 10, 1


@dataclass(frozen=True, kw_only=True)
class Made:
    """How a row is made: its method, its training, and the row whose network it goes on from."""

    method: str
    settings: Fields = field(default_factory=dict)
    training: Fields
    starts_on: str = ""


def _paper_gdu(gate: str, *, frozen: bool) -> Made:
    mode = "fine_tune" if frozen else "end_to_end"
    settings = {"gate": gate, "setting": "digits", "num_bases": PAPER_BASES, "mode": mode}
    return Made(method="gdu-paper", settings=settings, training=PAPER, starts_on="erm" * frozen)


RECIPES: dict[str, Made] = {
    "erm": Made(method="erm", settings={"activation": "tanh"}, training=PAPER),
    "erm_ensemble": Made(method="erm-ensemble", settings={"heads": PAPER_BASES, "activation": "tanh"}, training=PAPER),
    **{f"ft_{gate}": _paper_gdu(gate, frozen=True) for gate in ("cosine", "mmd", "projection")},
    **{f"e2e_{gate}": _paper_gdu(gate, frozen=False) for gate in ("cosine", "mmd", "projection")},
    "gdu": Made(method="gdu", training=OURS),
    "gdu_mixstyle_ema": Made(method="gdu", training={**OURS, **_MIXSTYLE, **_EMA}),
    "erm_linear": Made(method="erm", training=OURS),
    "linear": Made(method="linear", training=OURS, starts_on="erm_linear"),
    "linear_tanh": Made(method="linear", settings={"activation": "tanh"}, training=PAPER, starts_on="erm"),
    "erm_mixstyle": Made(method="erm", training={**OURS, **_MIXSTYLE}),
    "erm_ema": Made(method="erm", training={**OURS, **_EMA}),
    "erm_mixstyle_ema": Made(method="erm", training={**OURS, **_MIXSTYLE, **_EMA}),
    "ensemble": Made(method="ensemble", settings={"members": 2}, training=OURS),
}
"""By the names of the table's rows."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """On what the table is run: data, network, the targets there are; ``training`` changes that of every row."""

    data: str
    body: str
    targets: Mapping[str, str]
    usual: tuple[str, ...]
    """The targets unless others are asked for."""
    seeds: int = SEEDS
    training: Fields = field(default_factory=dict)
    epochs: int | None = None
    """At most so many of every row."""
    precision: str = "32"
    published: bool = True
    """Whether the paper's numbers are of this set-up."""
    about: str = ""
    """What a reader must know first."""

    def recipe(self, row: str, target: str, seed: int) -> Recipe:
        """The run of a row with one domain held out."""
        made = RECIPES[row]
        fields = {**made.training, **self.training, "precision": self.precision}
        if self.epochs is not None:
            fields["epochs"] = min(int(fields["epochs"]), self.epochs)
        return Recipe(
            data=DataSettings(what=self.data),
            hold_out=target,
            body=self.body,
            training=parsed(TrainingSettings, fields, f"the row {row}"),
            selection="source_pooled",  # as the paper; one rule for the whole table
            seed=seed,
            method=choose_method(made.method, made.settings, where=f"the row {row}"),
        )

    def how(self) -> tuple[str, ...]:
        """How rows are trained, in sentences."""
        paper, ours = (self.recipe(row, "", 0).training for row in ("erm", "gdu"))
        return (
            f"The paper's rows: {_trained(paper)}; tanh heads, M {PAPER_BASES}, N 10, kappa 2, "
            "the paper's initialiser, sigma 7.5 end to end (E2E) and by the median on frozen features (FT), which are "
            "those of ERM (tanh).",
            f"Our rows and controls, but for the tanh head on ERM (tanh): {_trained(ours)}.",
            f"Data {self.data}, network {self.body}, precision {self.precision}.",
        )


def full(*, small: bool = False, epochs: int | None = None, precision: str = "32") -> Setup:
    """The paper's network at the paper's size of the data, or on 1,500 images a domain."""
    return Setup(
        data=folder_name(small=small),
        body="digits",
        targets=TARGETS,
        usual=DOMAINS,
        epochs=epochs,
        precision=precision,
        published=not small,
        about="SMALL: 1,500 training images a domain where the paper has 25,000; its numbers do not stand beside these."
        * small,
    )


def quick(data_dir: Any = None, *, epochs: int | None = None, precision: str = "32") -> Setup:
    """Every road in minutes: a small network, few epochs, two targets; digits of the package where no others are."""
    folder = data_folder(data_dir) / folder_name(small=True)
    there = all((folder / f"{domain}.npz").is_file() for domain in DOMAINS if domain != "syn")
    targets = TARGETS if there else {name: name for name in EMBEDDED}
    data, most = folder_name(small=True) if there else "digits", int(_QUICK["epochs"])
    return Setup(
        data=data,
        body="small",
        targets=targets,
        usual=_QUICK_TARGETS if there else tuple(EMBEDDED[:2]),
        seeds=QUICK_SEEDS,
        training=_QUICK,
        epochs=epochs,
        precision=precision,
        published=False,
        about=f"QUICK: a small network, at most {_epochs(min(most, epochs or most))}, batches of "
        f"{_QUICK['batch_size']}, on the data {data}; these numbers say that every road works, and nothing about the "
        "paper's table.",
    )


def plan(setup: Setup, rows: Sequence[str], targets: Sequence[str], seeds: Sequence[int]) -> Grid:
    """The grid: target by target, a whole seed of all rows before the next."""
    jobs = []
    for target in targets:
        for seed in seeds:
            for row in rows:
                under = RECIPES[row].starts_on
                start = setup.recipe(under, target, seed) if under else None
                jobs.append(Job(row=row, column=target, recipe=setup.recipe(row, target, seed), starts_on=start))
    return Grid(jobs=tuple(jobs), without={})


def _trained(training: TrainingSettings) -> str:
    """A training in words."""
    waits = f", patience {training.patience}" if training.patience is not None else ""
    return (
        f"{training.optimizer} at {training.rate:g} ({training.schedule}), batches of {training.batch_size}, up to "
        f"{_epochs(training.epochs)}{waits}"
    )


def _epochs(number: int) -> str:
    return f"{number} epoch{'s' * (number != 1)}"


def chosen_rows(written: str | None) -> list[str]:
    """Rows as a command line names them, in the order of the table."""
    return _listed(written, list(ROWS), list(ROWS), "--methods")


def chosen_targets(written: str | None, setup: Setup) -> list[str]:
    """Targets as a command line names them, in the order of the table."""
    return _listed(written, list(setup.targets), list(setup.usual), "--targets")


def _listed(written: str | None, known: Sequence[str], usual: Sequence[str], option: str) -> list[str]:
    if written is None:
        return list(usual)
    names = [name.strip() for name in written.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise DataError(f"{option}: there is no {name!r} in the table of Digits-5{did_you_mean(name, known)}")
    if not names:
        raise DataError(f"{option} names nothing; leave it out for the usual ones")
    return [name for name in known if name in names]
