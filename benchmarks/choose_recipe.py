"""Which parts of the recommended recipe earn their place: train the variants, then decide part by part.

    python benchmarks/choose_recipe.py run heart heart.csv --seeds 0 1 2 --machine 2cpu
    python benchmarks/choose_recipe.py run digits5 --data-dir D --seeds 0 1 2 --machine h200
    python benchmarks/choose_recipe.py decide

``run`` holds each domain of one choosing set out in turn, trains the variants on the others, and writes one line per
training to ``results/choose/SET_MACHINE.csv``, after every training: the same command resumes. Seeds can be shared by
several processes, each with its own ``--machine``. SYN is removed from Digits-5 before anything is trained: it is kept
for one confirmation, ``run digits5-confirm``. ``digits5-small`` and the sets that end in ``-demo`` choose nothing
either: their lists are in ``results/choose/confirm``, and `recompute.py` makes tables of them.

``decide`` reads all run lists. A part is the difference between a variant with it and one without it, for the same data
set, held-out domain and seed. Seeds are averaged; the units are the folds (a held-out domain, or a fold of domains) of
all data sets. A part is on if its mean over all folds is positive and the 90 % interval of that mean (folds as random
draws) stays above -0.5 points, and no decision is made on fewer than three data sets. ``results/choose_parts.csv``
has two other intervals: of the same mean with folds clustered by data set, and with data sets as random draws.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from parts_worth import Part, Scores, forest, ladder, measure, section

from gated_domains.data import Reading
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import written_whole
from gated_domains.data.loading import load_data
from gated_domains.data.splits import hold_outs
from gated_domains.experiments.executors import choose_executor
from gated_domains.experiments.grid import plan_grid
from gated_domains.experiments.planner import PlannedRun
from gated_domains.experiments.progress import ProgressBar
from gated_domains.experiments.recipe_checks import default_training, parse_methods, validate_config
from gated_domains.experiments.runner import Runner
from gated_domains.reports.charts.drawn import figure
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.provenance import machine
from gated_domains.runs.recipe import DataSettings, Recipe
from gated_domains.training.engine import Hardware

_MIXING = "fourier_mix=0.9,ema=0.995"
_BATCH = "norm_statistics=batch"
_LARGE = "gated_norm=true"  # for a large body, whose norms are gated only where that is asked for
MIX, CONSISTENT = f"erm[{_MIXING}]", f"erm[{_MIXING},consistency=1]"
GDU_MIX, GDU_MIX_LARGE = f"gdu[{_MIXING}]", f"gdu[{_LARGE},{_MIXING}]"
GDU_CONSISTENT = f"gdu[{_MIXING},consistency=1]"
BATCH_MIX, BATCH_MIX_LARGE = f"gdu[{_BATCH},{_MIXING}]", f"gdu[{_LARGE},{_BATCH},{_MIXING}]"
BATCH_GDU, BATCH_CONSISTENT = f"gdu[{_BATCH}]", f"gdu[{_BATCH},{_MIXING},consistency=1]"
CONSTANT = f"gdu[{_BATCH},gates=constant]"  # by basis it is the same: all samples have the same weights
PARTS = (
    Part("the whole recipe", CONSISTENT, "erm"),
    Part("EMA on ERM", "erm[ema=0.995]", "erm"),
    Part("EMA on GDU*", f"gdu[{_BATCH},ema=0.995]", BATCH_GDU),
    Part("MixStyle", "erm[mixstyle=0.5,ema=0.995]", "erm[ema=0.995]"),
    Part("Fourier mixing", MIX, "erm[ema=0.995]"),
    Part("consistency + mixing", CONSISTENT, MIX, also=((BATCH_CONSISTENT, BATCH_MIX),)),
    Part("statistics by basis", "gdu", BATCH_GDU, also=((GDU_MIX, BATCH_MIX), (GDU_MIX_LARGE, BATCH_MIX_LARGE))),
    Part("GDU vs. ERM", "gdu", "erm"),
    Part("GDU vs. constant gates", "gdu", CONSTANT),
    Part("GDU on top of mixing", GDU_MIX, MIX, also=((GDU_MIX_LARGE, MIX), (GDU_CONSISTENT, CONSISTENT))),
    Part("batch gates in training*", f"gdu[{_BATCH},train_gates=batch]", BATCH_GDU),
    Part("GDU* vs. ERM", BATCH_GDU, "erm"),
    Part("GDU* vs. constant gates", BATCH_GDU, CONSTANT),
    Part("GDU* on top of mixing", BATCH_MIX, MIX, also=((BATCH_CONSISTENT, CONSISTENT),)),
)
"""GDU* has norm statistics of the batch instead of by basis."""
STEPS = {
    "ERM": "erm",
    "+ EMA": "erm[ema=0.995]",
    "+ Fourier mixing": MIX,
    "+ consistency = `recommended`": CONSISTENT,
    "GDU* instead of ERM, in the last row": BATCH_CONSISTENT,
}
"""From plain training to the recommended recipe."""
CONFIRMED = (
    *("erm", "erm[ema=0.995]", "erm[mixstyle=0.5,ema=0.995]", MIX),
    *("gdu", BATCH_GDU, CONSTANT, GDU_MIX, BATCH_MIX, "recommended", "recommended[mixstyle=0.5]", GDU_CONSISTENT),
    "linear",
)
"""The rows of the tables that choose nothing."""


@dataclass(frozen=True, kw_only=True)
class ChoosingSet:
    """How a data set is read, divided and trained on."""

    what: str | None = None
    """The data set, if its name is not that of the choosing set."""
    images: bool = False
    reading: Reading = field(default_factory=Reading)
    without: tuple[str, ...] = ()
    """Domains removed before anything is trained."""
    hold_out: str = "each"
    body: str = "auto"
    large: bool = False
    """Whether the body is a large one."""
    training: Mapping[str, Any] = field(default_factory=dict)
    confirms: bool = False
    """Not a choosing set: `decide` never reads its run lists, which are in ``confirm/``."""


_DIGITS5 = {"epochs": 10, "batch_size": 512, "rate": 1e-3, "precision": "bf16"}
_DEMO = {"epochs": 5, "rate": 2e-3}  # of `make demo`
_PACS160 = {"epochs": 6, "batch_size": 96, "rate": 5e-4, "warmup": 1, "augment": "photos", "precision": "bf16"}
SETS = {
    "digits5": ChoosingSet(images=True, without=("syn",), body="digits", training=_DIGITS5),
    "digits": ChoosingSet(images=True, training={"epochs": 10}),
    "pacs160": ChoosingSet(images=True, body="efficientnet-lite0", large=True, training=_PACS160),
    "pacs-features": ChoosingSet(),
    "heart": ChoosingSet(reading=Reading(target="num", domain="hospital", positive=("1", "2", "3", "4"))),
    "sentiment": ChoosingSet(hold_out="folds:4"),  # 16 shops: 12 train, 4 are held out together
    "digits5-confirm": ChoosingSet(what="digits5", images=True, body="digits", training=_DIGITS5, confirms=True),
    "digits5-small": ChoosingSet(images=True, training={"epochs": 14}, confirms=True),
    "digits5-small-demo": ChoosingSet(what="digits5-small", images=True, training=_DEMO, confirms=True),
    "digits-demo": ChoosingSet(what="digits", images=True, training=_DEMO, confirms=True),
}
BENCHMARKS = Path(__file__).parent
LISTS = BENCHMARKS / "results" / "choose"
PAGE = BENCHMARKS.parent / "docs" / "results" / "what-helps.md"
FIELDS = ("dataset", "variant", "method", "target", "seed", "score", "seconds", "device", "run")
Row = dict[str, str]


def load(name: str, what: str, data_dir: Path | None) -> DomainDataset:
    """A choosing set, without the domains that no choosing run may see."""
    chosen = SETS[name]
    dataset = load_data(what, chosen.reading, data_dir=data_dir)
    if not chosen.without or dataset.domains is None:
        return dataset
    kept = tuple(domain for domain in dataset.domain_names if domain not in chosen.without)
    part = dataset.take(np.sort(dataset.rows_of(*kept)))
    assert part.domains is not None
    index = np.array([kept.index(domain) if domain in kept else -1 for domain in dataset.domain_names])
    whole = part.scored_whole & set(kept)
    return replace(part, domains=index[part.domains], domain_names=kept, scored_whole=whole)


def read_list(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as draft, draft.open("w", newline="") as file:
        fields = dict.fromkeys(field for row in rows for field in row)
        writer = csv.DictWriter(file, fieldnames=list(fields), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


class RunList(ProgressBar):
    """Shows the progress of trainings, and writes each that ends to the run list."""

    def __init__(
        self, path: Path, rows: list[Row], wanted: Mapping[str, Row], runs: Sequence[PlannedRun], **shown: int
    ):
        super().__init__(runs, **shown)
        self.path, self.rows, self.wanted, self.writing = path, rows, dict(wanted), Lock()

    def record(self, folder: RunFolder, result: Mapping[str, Any]) -> None:
        row = self.wanted.pop(folder.path.name, None)  # a network that a head needs is not in the list
        if row is not None:
            scores = list(result["test"]["by_domain"].values())
            row |= {"score": f"{100 * sum(scores) / len(scores):.4f}", "seconds": f"{result['seconds']:.2f}"}
            with self.writing:  # trainings that share a GPU may end in several threads
                self.rows.append({name: row[name] for name in FIELDS})
                write_csv(self.path, self.rows)

    def record_done(self, runner: Runner, recipes: Sequence[Recipe]) -> None:
        for recipe in recipes:
            if (folder := runner.folder(recipe)).done:
                self.record(folder, folder.result().to_json())

    def on_run_end(self, recipe: Recipe, folder: RunFolder, result: dict[str, Any], **more: Any) -> None:
        super().on_run_end(recipe, folder, result, **more)
        self.record(folder, result)


def variants_of(name: str) -> list[str]:
    """All that can be trained on a set, in the order of the parts."""
    settings = SETS[name]
    if settings.confirms:
        return list(CONFIRMED)
    every = dict.fromkeys(variant for part in PARTS for pair in part.pairs for variant in reversed(pair))
    if not settings.images:
        every = dict.fromkeys(variant for variant in every if "fourier_mix" not in variant)
    # The norms of a large body are gated only where that is asked for, and without that statistics make no difference.
    return [
        variant
        for variant in every
        if (settings.large if _LARGE in variant else not settings.large or _BATCH in variant or "gdu" not in variant)
    ]


def run(chosen: argparse.Namespace) -> None:
    """Train what the run list does not have yet."""
    name, settings = chosen.set, SETS[chosen.set]
    what = chosen.data or settings.what or name
    variants = chosen.methods or variants_of(name)
    dataset = load(name, what, chosen.data_dir)
    data, training = DataSettings.of(what, settings.reading), default_training(dataset, settings.training)
    config = validate_config({}, data=data, body=settings.body, training=training)
    splits = hold_outs(dataset, settings.hold_out, validation=config.validation, seed=config.split_seed)
    runner = Runner(dataset, chosen.out / name, hardware=Hardware(compile=chosen.compile))
    path = chosen.lists / ("confirm" if settings.confirms else "") / f"{name}_{chosen.machine}.csv"
    rows = read_list(path)
    listed = {(row["method"], row["target"], int(row["seed"])): row["run"] for row in rows}
    wanted: dict[str, Row] = {}
    recipes: list[Recipe] = []
    for seed in chosen.seeds:
        for variant in variants:
            (method,) = parse_methods(variant)
            grid = plan_grid(runner.planner, [method], hold_out=settings.hold_out, seeds=seed + 1, config=config)
            for recipe in grid.recipes[-len(splits) :]:
                run_name, key = runner.folder(recipe).path.name, (variant, str(recipe.hold_out), seed)
                if listed.get(key, run_name) != run_name:
                    raise SystemExit(
                        f"{path} has {variant}, {key[1]} held out, seed {seed} with other settings (run {listed[key]}, "
                        f"now {run_name}); name another list by --machine, or delete its rows"
                    )
                if key not in listed:
                    about = {"dataset": name, "variant": method.label, "method": variant, "target": key[1]}
                    wanted[run_name] = {**about, "seed": str(seed), "device": machine(runner.device), "run": run_name}
                    recipes.append(recipe)
    print(f"{name}: {len(variants)} variants, {len(splits)} hold-outs; {len(recipes)} trainings are not in {path.name}")
    with choose_executor(runner, len(recipes), workers=chosen.workers) as executor:
        plan = runner.planner.plan(recipes)
        left, done = plan.missing(runner.root)
        with RunList(path, rows, wanted, left, done=done, workers=executor.workers) as watching:
            watching.record_done(runner, recipes)
            executor.run(plan, callback=watching)
            watching.record_done(runner, recipes)  # what another process made meanwhile
    for row in watching.wanted.values():
        print(f"not finished: {row['method']}, {row['target']} held out, seed {row['seed']}")


def read_scores(folder: Path) -> Scores:
    """The score in percent by data set, method and (hold-out, domain, seed)."""
    found: Scores = {}
    for path in sorted(folder.glob("*.csv")):
        for row in read_list(path):
            scores = found.setdefault(row["dataset"], {}).setdefault(row["method"], {})
            key = (row["target"], row["target"], int(row["seed"]))
            if key in scores:
                raise SystemExit(f"{path}: {row['method']}, {key[0]} held out, seed {key[2]} is in another list too")
            scores[key] = float(row["score"])
    if unknown := found.keys() - SETS.keys():
        raise SystemExit(f"{folder} has runs on {', '.join(sorted(unknown))}; known sets are {', '.join(SETS)}")
    return dict(sorted(found.items(), key=lambda item: list(SETS).index(item[0])))


def decide(chosen: argparse.Namespace) -> None:
    """Print the tables, and write them to the page with the figure, and as CSV."""
    scores = read_scores(chosen.lists)
    parts = [*PARTS, *(Part(*contrast) for contrast in chosen.contrast)]
    findings = [found for part in parts if (found := measure(part, scores)) is not None]
    if not findings:
        raise SystemExit(f"{chosen.lists} has no run list with both variants of any part; make one by `run` first")
    measured = {one.part for one in findings}
    lines = section(findings, [part for part in parts if part not in measured])
    steps = ladder(scores, STEPS)
    absent = [name for name, one in SETS.items() if not one.confirms and name not in scores]
    if absent:
        lines = [f"**Preliminary**: there are no runs yet on {', '.join(absent)}.", "", *lines]
    print("\n".join([*lines, "", *steps]))
    write_csv(chosen.lists.parent / "choose_parts.csv", [row for one in findings for row in one.rows()])
    figure(forest(findings)).savefig(chosen.page.with_suffix(".png"), dpi=150)
    text = chosen.page.read_text()
    for name, table in {"parts": lines, "steps": steps}.items():
        begin, end = (f"<!-- {edge}: {name}, written by choose_recipe.py decide -->" for edge in ("begin", "end"))
        start, stop = text.index(begin) + len(begin), text.index(end)
        text = "\n".join([text[:start], "", *table, "", text[stop:]])
    with written_whole(chosen.page) as draft:
        draft.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", type=Path, default=LISTS, help="folder of the run lists")
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run", help="train the variants on one choosing set")
    runs.set_defaults(work=run)
    runs.add_argument("set", choices=list(SETS))
    runs.add_argument("data", nargs="?", help="file or folder; not needed for digits, digits5 and digits5-small")
    runs.add_argument("--data-dir", type=Path, help="folder that holds digits5/ or digits5-small/")
    runs.add_argument(
        "--methods", nargs="+", help="variants such as erm[ema=0.995]; by default all that the set allows"
    )
    runs.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    runs.add_argument("--machine", required=True, help="ends the name of the run list: 2cpu, h200")
    runs.add_argument("--workers", type=int)
    runs.add_argument("--compile", action="store_true")
    runs.add_argument("--out", type=Path, default=Path("out/choose"), help="folder of the run folders")
    decision = commands.add_parser("decide", help="analyse all run lists")
    decision.set_defaults(work=decide)
    decision.add_argument("--contrast", nargs=3, action="append", default=[], metavar=("NAME", "WITH", "WITHOUT"))
    decision.add_argument("--page", type=Path, default=PAGE)
    chosen = parser.parse_args()
    chosen.work(chosen)


if __name__ == "__main__":
    main()
