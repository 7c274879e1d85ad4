"""A domain held out, as a new site: does novelty tell it from the sources, and is its accuracy estimated?

    python benchmarks/shift_held_out.py --data pacs_efflite0_feats.npz --save shift_pacs_2cpu      # GDUClassifier
    python benchmarks/shift_held_out.py --data DIR --seeds 3 --device cuda --save shift_digits_h200
    python benchmarks/shift_held_out.py                                                # runs on the embedded digits
    python benchmarks/shift_held_out.py --data FILE.csv --target num --domain hospital --positive 1,2,3,4

A file of features is fitted by ``GDUClassifier``; a table, and ``digits5-small`` of a folder, are trained on in runs of
``gdu``. Familiar rows are rows of the sources that the model was not trained on. The accuracy on target T is estimated
from models that saw neither T nor one source s, each asked about s: nothing of T is used but what the model says of its
rows. ``--rows FILE.npz`` keeps that, for ``shift_constants.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from held_out_models import Fits, Opened, Runs, markdown, mean, options, pairs_of, percent, save

from gated_domains.applying.inside import Looked
from gated_domains.data.labels import Reading
from gated_domains.data.new_data import NewData
from gated_domains.insight.shift.accuracy import LeftOut, calibrate_accuracy
from gated_domains.insight.shift.mixture import site_mixture
from gated_domains.insight.shift.novelty import auroc, sample_novelty
from gated_domains.insight.shift.outside import outside_span
from gated_domains.insight.shift.two_sample import two_sample_test
from gated_domains.layer.units import GatedDomainUnits

NEW_ROWS = 200  # that a p-value is taken of
NOVELTY = (
    *("held out", "AUROC", "of the span", "outside", "usual", "new part", "p of 200 rows", "p of 200 familiar rows"),
    *("outside the mixture", "usual"),
)
ACCURACY = ("held out", "on familiar rows", "true", "estimated", "off by", "confidence", "off by", "in the interval")


def foretold(seen: Looked, data: NewData) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """How sure the model is of each row, how familiar it is, and whether the model is right."""
    output = seen.predicted.output
    return output.max(axis=1), seen.predicted.coverage, output.argmax(axis=1) == data.targets


def left_out(opened: Opened, source: str) -> LeftOut:
    """What a model that never saw a source says of it."""
    rows = opened.domain(source)
    confidence, coverage, correct = foretold(opened.model.look(rows), rows)
    return LeftOut(name=source, confidence=confidence, coverage=coverage, correct=correct)


def p_values(units: GatedDomainUnits, site: torch.Tensor, familiar: torch.Tensor, seed: int) -> tuple[float, float]:
    """Of some rows of the site against familiar ones; and of as many familiar rows against the others."""
    draw = torch.Generator().manual_seed(seed)
    own = torch.randperm(len(familiar), generator=draw).to(familiar.device)
    new = torch.randperm(len(site), generator=draw)[:NEW_ROWS].to(site.device)
    count = min(NEW_ROWS, len(familiar) // 2)
    some, rest = familiar[own[:count]], familiar[own[count:]]
    return (
        two_sample_test(units.kernel, rest, site[new], seed=seed).p_value,
        two_sample_test(units.kernel, rest, some, seed=seed).p_value,
    )


def novelty(opened: Opened, seen: Looked, familiar: Looked, *, seed: int) -> dict[str, float]:
    """How unlike the sources a site is."""
    units = opened.model.units
    found = outside_span(units, seen.view, familiar.view, seed=seed)
    bases = units.active_bases.detach()
    new, usual = (sample_novelty(units, looked.view).cpu().numpy() for looked in (seen, familiar))
    assert seen.predicted.residual is not None
    assert familiar.predicted.residual is not None
    p, p_familiar = p_values(units, seen.view, familiar.view, seed)
    return {
        "auroc": auroc(seen.predicted.residual, familiar.predicted.residual),
        "auroc_of_span": auroc(new, usual),
        "share": found.share,
        "usual_share": found.usual_share,
        "weight": found.weight,
        "low": found.low,
        "high": found.high,
        "common": found.common,
        "usual_common": found.usual_common,
        "p": p,
        "p_familiar": p_familiar,
        "of_mixture": site_mixture(units.kernel, bases, seen.view, seed=seed).outside,
        "usual_of_mixture": site_mixture(units.kernel, bases, familiar.view, seed=seed).outside,
    }


def measure(
    models: Runs | Fits, target: str, taught: list[LeftOut], *, seed: int, keep: Kept | None = None
) -> dict[str, Any]:
    """One target with one seed."""
    opened = models.opened(target, seed)
    site, usual = opened.domain(target), opened.familiar
    seen, familiar = opened.model.look(site), opened.model.look(usual)
    confidence, coverage, correct = foretold(seen, site)
    on_familiar = float(foretold(familiar, usual)[2].mean())
    calibration = calibrate_accuracy(taught, of_sources=on_familiar)
    foreseen = calibration.estimate(confidence, coverage)
    if keep is not None:
        keep[target, seed] = [*taught, LeftOut(name=target, confidence=confidence, coverage=coverage, correct=correct)]
    return {
        "target": target,
        "seed": seed,
        **novelty(opened, seen, familiar, seed=seed),
        "true": float(correct.mean()),
        "on_familiar": on_familiar,
        "foreseen": {
            "value": foreseen.raw,
            **{name: vars(foreseen)[name] for name in ("low", "high", "confidence", "error")},
        },
        "calibration": calibration.describe(),
    }


class Kept(dict[tuple[str, int], list[LeftOut]]):
    """By target and seed: what models say of each source, and of the target, last."""


def write_rows(path: Path, kept: Kept) -> None:
    """``target/seed/place/name/...`` as plain arrays."""
    arrays = {}
    for (target, seed), rows in kept.items():
        for place, one in enumerate(rows):
            base = f"{target}/{seed}/{place}/{one.name}"
            coverage = np.empty(0) if one.coverage is None else one.coverage
            own = {"confidence": one.confidence, "coverage": coverage, "correct": one.correct}
            arrays |= {f"{base}/{name}": values for name, values in own.items()}
    np.savez_compressed(path, **arrays)


def novelty_cells(rows: list[dict[str, Any]]) -> list[str]:
    """One line of the first table: means over these."""
    over = {name: mean(row[name] for row in rows) for name in rows[0] if isinstance(rows[0][name], float)}
    said = [
        f"{over['auroc']:.2f}",
        f"{over['auroc_of_span']:.2f}",
        percent(over["share"]),
        percent(over["usual_share"]),
    ]
    said.append(f"{percent(over['weight'])} ({percent(over['low'])} to {percent(over['high'])})")
    said += [f"{over['p']:.3f}", f"{over['p_familiar']:.2f}"]
    return [*said, percent(over["of_mixture"]), percent(over["usual_of_mixture"])]


def accuracy_cells(rows: list[dict[str, Any]], *, size: bool = False) -> list[str]:
    """One line of the second table: means over these; with ``size`` errors are so, whatever their sign."""

    def off(name: str) -> str:
        errors = [row["foreseen"][name] - row["true"] for row in rows]
        return percent(mean(map(abs, errors))) if size else percent(mean(errors), sign=True)

    value, low, high, confidence = (
        mean(row["foreseen"][name] for row in rows) for name in ("value", "low", "high", "confidence")
    )
    held = sum(row["foreseen"]["low"] <= row["true"] <= row["foreseen"]["high"] for row in rows)
    foreseen = percent(value) if size else f"{percent(value)} ({percent(low)} to {percent(high)})"
    return [
        percent(mean(row["on_familiar"] for row in rows)),
        percent(mean(row["true"] for row in rows)),
        foreseen,
        off("value"),
        percent(confidence),
        off("confidence"),
        f"{held} of {len(rows)}",
    ]


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--rows", type=Path, help="an .npz for what models say of every row; see shift_constants.py")
    parser.add_argument("--target", help="of a table")
    parser.add_argument("--domain", help="of a table")
    parser.add_argument("--positive", help="of a table: 1,2,3,4")
    chosen = parser.parse_args()
    features = chosen.data is not None and chosen.data.suffix == ".npz"
    positive = None if chosen.positive is None else tuple(chosen.positive.split(","))
    reading = Reading(target=chosen.target, domain=chosen.domain, positive=positive, fraction=chosen.fraction)
    models: Runs | Fits = Fits(chosen.data, fraction=chosen.fraction) if features else Runs(chosen, reading=reading)
    names, pairs = models.dataset.domain_names, pairs_of(models.dataset)
    if isinstance(models, Runs):
        models.make([*names, *("+".join(pair) for pair in pairs)], ["gdu"], chosen.seeds)
    rows, kept = [], Kept()
    for seed in range(chosen.seeds):
        taught: dict[str, list[LeftOut]] = {name: [] for name in names}
        for one, other in pairs:
            opened = models.opened(f"{one}+{other}", seed)
            taught[one].append(left_out(opened, other))
            taught[other].append(left_out(opened, one))
        rows += [measure(models, name, taught[name], seed=seed, keep=kept) for name in names]
    by_target = {name: [row for row in rows if row["target"] == name] for name in names}
    print(markdown(NOVELTY, [[name, *novelty_cells(own)] for name, own in by_target.items()]), end="\n\n")
    lines = [[name, *accuracy_cells(own)] for name, own in by_target.items()]
    print(markdown(ACCURACY, [*lines, ["**mean, errors by size**", *accuracy_cells(rows, size=True)]]))
    print(f"\n{models.dataset.name}, {chosen.seeds} seed(s), per cent but for AUROC and p; {models.machine}.")
    if chosen.rows is not None:
        write_rows(chosen.rows, kept)
    if chosen.save:
        save(chosen.save, {"machine": models.machine, "data": models.dataset.name, "rows": rows})


if __name__ == "__main__":
    main()
