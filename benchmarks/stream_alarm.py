"""How soon the alarm on a stream hears a switch of domains, and how often it is raised for nothing.

    python benchmarks/stream_alarm.py ../shared/data/pacs_efflite0_feats.npz     # features, and the embedded digits
    python benchmarks/stream_alarm.py FEATURES --save stream_alarm_2cpu          # and as JSON in benchmarks/results
    python benchmarks/stream_alarm.py FEATURES --slow                            # with KSWIN, which takes minutes
    python benchmarks/stream_alarm.py                                            # the embedded digits alone

FEATURES is an .npz with ``features``, ``labels``, ``domains``, for a `GDUClassifier`; for the digits the model is a
gated network after one epoch. In turn two domains are left out of training. Streams are of rows that the model was not
trained on, drawn with replacement: without a change (of a source, or of all sources), and with a switch after 500 rows,
from a source to another, to the domain left out, and within a source from a class to another. A delay is the number of
rows from the switch to the first alarm. What is heard of each row is computed once, beforehand. Needs
'gated-domains[alarm]'.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from river import __version__ as river_version
from river.drift import ADWIN, KSWIN, PageHinkley
from scipy.stats import chi2

from gated_domains import GDUClassifier
from gated_domains.data.batches import place
from gated_domains.data.loading import load_data
from gated_domains.data.sampling import InOrder
from gated_domains.data.splits import hold_outs
from gated_domains.experiments.model import Model
from gated_domains.experiments.recipe_checks import choose_method, default_training
from gated_domains.experiments.runner import Runner
from gated_domains.insight.alarm import ChangeAlarm, Detector, heard_of
from gated_domains.layer.stream import ROWS_AT_A_TIME
from gated_domains.layer.units import GatedDomainUnits
from gated_domains.runs.recipe import DataSettings, Recipe
from gated_domains.training.engine import Hardware

RESULTS = Path(__file__).parent / "results"
BEFORE, AFTER = 500, 1_000  # rows before a switch, and those in which it is to be heard
LONG = 10_000  # rows of a stream without a change
POOLED = "all sources"
DELTAS = (0.002, 0.01, 0.05, 0.2, 0.5)
RARE = 0.05  # false alarms in 10,000 rows


@dataclass(frozen=True, eq=False)
class Site:
    """What an alarm hears of the rows of every domain, none of them trained on."""

    data: str
    held_out: str
    units: GatedDomainUnits
    gating: torch.Tensor
    heard: dict[str, NDArray[np.float64]]
    classes: dict[str, NDArray[np.int64]]

    @property
    def sources(self) -> list[str]:
        return [name for name in self.heard if name not in (self.held_out, POOLED)]


@dataclass(frozen=True)
class Way:
    """A detector and its settings."""

    name: str
    delta: float
    detector: Callable[[float], Detector] | None = None
    slow: bool = False


def page_hinkley(threshold: float) -> Way:
    # Its own delta is a drift that is let be, in units of the signal: at river's 0.005 there are more false alarms.
    return Way(f"Page-Hinkley, threshold {threshold}", 0.5, lambda _: PageHinkley(threshold=threshold, delta=0.05))


WAYS = [
    Way("**ADWIN, delta 0.05**", 0.05),
    *(Way(f"ADWIN, delta {delta:g}", delta) for delta in (0.002, 0.2, 0.5)),
    Way("ADWIN, delta 0.05, a look in 32 rows", 0.05, lambda delta: ADWIN(delta=delta)),
    *map(page_hinkley, (5, 10, 20)),
    Way("Page-Hinkley, as river has it", 0.5, lambda _: PageHinkley()),
    *(Way(f"KSWIN, alpha {alpha:g}", alpha, lambda a: KSWIN(alpha=a, seed=0), slow=True) for alpha in (0.05, 1e-4)),
]


def site(
    data: str,
    held_out: str,
    units: GatedDomainUnits,
    gating: torch.Tensor,
    *,
    domains: NDArray[np.str_],
    classes: NDArray[np.int64],
) -> Site:
    """By domain, what is heard of rows of the view that gates see."""
    heard = heard_of(units, gating).double().numpy()
    found = {str(name): heard[domains == name] for name in np.unique(domains)}
    found[POOLED] = heard[domains != held_out]
    return Site(data, held_out, units, gating, found, {str(name): classes[domains == name] for name in found})


def feature_sites(path: Path, *, held_out: list[int], seed: int) -> Iterator[Site]:
    """A GDUClassifier on 60 % of the rows of the sources; the others are for streams."""
    with np.load(path) as arrays:
        names = arrays["domain_names"] if "domain_names" in arrays else np.unique(arrays["domains"]).astype(str)
        values, classes, domains = arrays["features"].astype(np.float32), arrays["labels"], names[arrays["domains"]]
    for name in names[held_out]:
        source = np.random.default_rng(seed).permutation(np.flatnonzero(domains != name))
        cut = int(0.6 * len(source))
        model = GDUClassifier(num_bases=5, random_state=seed).fit(values[source[:cut]], classes[source[:cut]])
        rows = np.concatenate([source[cut:], np.flatnonzero(domains == name)])
        network = model.network_
        gating = network.standard(torch.from_numpy(values[rows]))
        yield site(
            path.stem, str(name), network.units, gating, domains=domains[rows].astype(str), classes=classes[rows]
        )


def digit_sites(what: str, *, held_out: list[int], seed: int) -> Iterator[Site]:
    """A gated network after an epoch; streams are of the official test rows of every domain."""
    dataset = load_data(what)
    names = np.array(dataset.domain_names)
    splits = {split.name: split for split in hold_outs(dataset)}
    for name in names[held_out]:
        recipe = Recipe(
            data=DataSettings(what=what),
            training=default_training(dataset, {"epochs": 1}),
            method=choose_method("gdu"),
            hold_out=str(name),
            seed=seed,
        )
        with tempfile.TemporaryDirectory() as folder:
            model = Model.load(Runner(dataset, Path(folder), hardware=Hardware(device="cpu")).run(recipe).path)
        rows = np.concatenate([splits[name].validation, splits[name].test])
        method = model.method.eval()
        samples = place(dataset, model.schema.encoding)
        with torch.no_grad():
            gating = torch.cat([method.backbone.look(x) for x in samples.input_batches(InOrder(rows, 500))])
        domains, classes = names[np.asarray(dataset.domains)[rows]], np.asarray(dataset.targets)[rows]
        yield site(what, str(name), method.units, gating, domains=domains, classes=classes)


def listen(site: Site, way: Way, values: NDArray[np.float64], *, until: int | None = None) -> list[int]:
    """The rows of alarms; with ``until``, listening ends with the first alarm at or after that row."""
    alarm = ChangeAlarm(site.units, delta=way.delta, detector=way.detector)
    for start in range(0, len(values), ROWS_AT_A_TIME):
        alarm.hear(values[start : start + ROWS_AT_A_TIME])
        if until is not None and alarm.raised and alarm.raised[-1].row >= until:
            break
    return [raised.row for raised in alarm.raised]


def delays(
    site: Site, way: Way, one: NDArray[np.float64], other: NDArray[np.float64], *, streams: int, seed: int
) -> list[float]:
    """Rows after the switch until the first alarm; infinite where there is none in ``AFTER`` rows."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(streams):
        values = np.concatenate([rng.choice(one, BEFORE), rng.choice(other, AFTER)])
        after = [row - BEFORE + 1 for row in listen(site, way, values, until=BEFORE) if row >= BEFORE]
        found.append(after[0] if after else np.inf)
    return found


@dataclass
class Heard:
    """Alarms without a change, in all rows and by stretches of 1,000 of them."""

    false: int = 0
    rows: int = 0
    stretches_with_one: int = 0
    seconds: float = 0.0

    def add(self, alarms: list[int], rows: int, seconds: float) -> None:
        self.false += len(alarms)
        self.rows += rows
        self.stretches_with_one += len({row // 1_000 for row in alarms})
        self.seconds += seconds

    @property
    def cells(self) -> str:
        low, high = chi2.ppf([0.025, 0.975], [2 * self.false, 2 * self.false + 2]) / 2  # exact, of a Poisson count
        rates = [1e4 * count / self.rows for count in (self.false, np.nan_to_num(low), high)]
        share = 1_000 * self.stretches_with_one / self.rows
        return f"{self.rows:,} | {rates[0]:.2f} ({rates[1]:.2f} to {rates[2]:.2f}) | {100 * share:.1f} %"


def quiet(sites: list[Site], way: Way, *, rows: int, seed: int) -> Heard:
    """Streams without a change, of every source and of all of them."""
    found, rng = Heard(), np.random.default_rng(seed)
    for each in sites:
        for name in [*each.sources, POOLED]:
            for length in [LONG] * (rows // LONG) or [rows]:
                values, began = rng.choice(each.heard[name], length), time.process_time()
                found.add(listen(each, way, values), length, time.process_time() - began)
    return found


Switches = dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]


def switches(site: Site) -> dict[str, Switches]:
    """By kind and name, what is heard before and after each switch between domains."""

    def named(pairs: Iterable[tuple[str, str]]) -> Switches:
        return {f"{one} to {other}": (site.heard[one], site.heard[other]) for one, other in pairs}

    return {
        "a source to another": named(permutations(site.sources, 2)),
        "a source to the domain left out": named((name, site.held_out) for name in site.sources),
        f"{POOLED} to the domain left out": named([(POOLED, site.held_out)]),
    }


def class_switches(site: Site, seed: int) -> Switches:
    """Within each source, from a class to another: what a file that is sorted by class looks like."""
    found: Switches = {}
    rng = np.random.default_rng(seed)
    for name in site.sources:
        for _ in range(3):
            one, other = rng.choice(np.unique(site.classes[name]), 2, replace=False)
            heard, classes = site.heard[name], site.classes[name]
            found[f"{name}: {one} to {other}"] = (heard[classes == one], heard[classes == other])
    return found


def summed(found: list[float]) -> dict[str, float]:
    """Median and 90 % of delays (of all switches, those missed counting as longest), and the share missed."""
    values = np.array(found)
    middle, most = np.quantile(values, [0.5, 0.9], method="higher")
    return {"median": float(middle), "most": float(most), "missed": float(np.isinf(values).mean())}


def shown(numbers: dict[str, float]) -> str:
    cells = [f"{numbers[name]:.0f}" if np.isfinite(numbers[name]) else f"over {AFTER:,}" for name in ("median", "most")]
    return f"{cells[0]} | {cells[1]} | {100 * numbers['missed']:.0f} %"


def rate(site: Site) -> float:
    """Rows a second that an alarm takes, as a stream shows them to it: gates of its own, and all detectors."""
    rows = site.gating[torch.arange(64 * ROWS_AT_A_TIME) % len(site.gating)]
    alarm, began = ChangeAlarm(site.units), time.process_time()
    for part in rows.split(ROWS_AT_A_TIME):
        alarm(part)
    return len(rows) / (time.process_time() - began)


def compare(sites: list[Site], ways: list[Way], *, rows: int, streams: int, seed: int) -> list[dict[str, object]]:
    """A line for every detector."""
    print("| | rows without a change | false alarms in 10,000 | stretches of 1,000 with one |", end="")
    print(" median delay | 90 % | missed | rows/s |")
    print("|---" * 8 + "|", flush=True)
    lines: list[dict[str, object]] = []
    for way in ways:
        still = quiet(sites, way, rows=1_000 if way.slow else rows, seed=seed)
        found = [
            delay
            for each in sites
            for pairs in switches(each).values()
            for one, other in pairs.values()
            for delay in delays(each, way, one, other, streams=1 if way.slow else streams, seed=seed)
        ]
        numbers, speed = summed(found), still.rows / still.seconds
        print(f"| {way.name} | {still.cells} | {shown(numbers)} | {speed:,.0f} |", flush=True)
        lines.append({"detector": way.name.strip("*"), **asdict(still), **numbers, "rows_a_second": speed})
    return lines


def by_the_other_data(sites: list[Site], *, rows: int, streams: int, seed: int) -> list[dict[str, object]]:
    """The delta that the other data sets choose, and what it does on each: nothing is reported where it was chosen.

    Chosen is the largest, which is the earliest, of those with at most ``RARE`` false alarms in 10,000 rows.
    """
    names = list(dict.fromkeys(each.data for each in sites))
    measured: dict[tuple[str, float], dict[str, float]] = {}
    for name in names:
        own = [each for each in sites if each.data == name]
        for delta in DELTAS:
            way = Way(f"ADWIN, delta {delta:g}", delta)
            still = quiet(own, way, rows=rows, seed=seed)
            pairs = [(each, pair) for each in own for kind in switches(each).values() for pair in kind.values()]
            found = [d for each, pair in pairs for d in delays(each, way, *pair, streams=streams, seed=seed)]
            measured[name, delta] = {"false": 1e4 * still.false / still.rows, "rows": still.rows, **summed(found)}
    print("\n| data | delta chosen on the others | rows without a change | false alarms in 10,000 |", end="")
    print(" median delay | 90 % | missed |\n" + "|---" * 7 + "|")
    lines: list[dict[str, object]] = []
    for name in names:
        others = [other for other in names if other != name]
        quiet_enough = [delta for delta in DELTAS if all(measured[o, delta]["false"] <= RARE for o in others)]
        delta = max(quiet_enough, default=min(DELTAS))
        numbers = measured[name, delta]
        print(f"| {name} | {delta:g} | {numbers['rows']:,} | {numbers['false']:.2f} | {shown(numbers)} |", flush=True)
        lines.append({"data": name, "delta": delta, **numbers})
    return lines


def by_switch(sites: list[Site], *, streams: int, seed: int) -> list[dict[str, object]]:
    """A line for every kind of switch of each model, by the default alarm."""
    print("\n| data, domain left out | switch | streams | median delay | 90 % | missed |\n" + "|---" * 6 + "|")
    lines: list[dict[str, object]] = []
    for each in sites:
        kinds = {**switches(each), "a class to another, in one source": class_switches(each, seed)}
        for kind, pairs in kinds.items():
            by_pair = {
                name: delays(each, WAYS[0], one, other, streams=streams, seed=seed)
                for name, (one, other) in pairs.items()
            }
            found = [delay for delays_of_pair in by_pair.values() for delay in delays_of_pair]
            missed = {name: n for name, values in by_pair.items() if (n := int(np.isinf(values).sum()))}
            numbers = summed(found)
            print(f"| {each.data}, {each.held_out} | {kind} | {len(found)} | {shown(numbers)} |", flush=True)
            lines.append({"data": each.data, "held_out": each.held_out, "switch": kind, **numbers, "missed_by": missed})
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", nargs="?", type=Path, help="an .npz of features of several domains")
    parser.add_argument("--data", default="digits", help="images of several domains, by name: digits, digits5-small")
    parser.add_argument("--held-out", type=int, nargs="+", default=[0, 3], help="places of domains left out, in turn")
    parser.add_argument("--rows", type=int, default=6 * LONG, help="of each kind of stream without a change")
    parser.add_argument("--streams", type=int, default=10, help="with each switch")
    parser.add_argument("--slow", action="store_true", help="compare with KSWIN, too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", metavar="NAME", help="write the numbers to benchmarks/results/NAME.json")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    sites = list(digit_sites(chosen.data, held_out=chosen.held_out, seed=chosen.seed))
    if chosen.features is not None:
        sites = [*feature_sites(chosen.features, held_out=chosen.held_out, seed=chosen.seed), *sites]
    ways = [way for way in WAYS if chosen.slow or not way.slow]
    detectors = compare(sites, ways, rows=chosen.rows, streams=chosen.streams, seed=chosen.seed)
    held_out = (
        by_the_other_data(sites, rows=chosen.rows, streams=chosen.streams, seed=chosen.seed)
        if len({each.data for each in sites}) > 1
        else []
    )
    kinds = by_switch(sites, streams=chosen.streams, seed=chosen.seed)
    speeds = {f"{each.data}, {each.held_out}": rate(each) for each in sites}
    said = "; ".join(f"{name} {speed:,.0f}" for name, speed in speeds.items())
    print(f"\nRows a second that the alarm takes with gates of its own: {said}")
    if chosen.save:
        machine = {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
        found = {
            "river": river_version,
            "detectors": detectors,
            "held_out": held_out,
            "switches": kinds,
            "rows_a_second": speeds,
        }
        path = RESULTS / f"{chosen.save}.json"
        # Infinite, a delay that was not reached, is no JSON.
        path.write_text(json.dumps({**machine, **found}, indent=1).replace("Infinity", "null"))
        print(f"saved {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
