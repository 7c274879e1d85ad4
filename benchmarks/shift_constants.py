"""The ridge of the accuracy calibration, chosen on other data sets than the one it is reported on.

    python benchmarks/shift_held_out.py --data FILE --rows pacs.npz         # of every data set, once
    python benchmarks/shift_constants.py heart.npz pacs.npz digits.npz --save shift_constants_2cpu

For every data set the ridge with the smallest mean absolute error on all others (every data set counts the same) is
taken, and its error on this one stands beside those of the default, of the best ridge in hindsight, and of the plain
mean confidence. Estimates are not cut at the score on the sources, which is no constant.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from itertools import product
from pathlib import Path

import numpy as np
from held_out_models import markdown, percent, save

from gated_domains.insight.shift import correctness
from gated_domains.insight.shift.correctness import Rows, fit, right

GRID = (0.1, 0.3, 1.0, 3.0, 10.0)
Ridge = tuple[float, float, float]
Case = tuple[list[Rows], Rows]
"""Left-out sources, and the target."""


def cases(path: Path) -> list[Case]:
    """What ``shift_held_out.py --rows`` wrote, by target and seed."""
    found: dict[tuple[str, str], dict[int, dict[str, np.ndarray]]] = defaultdict(lambda: defaultdict(dict))
    with np.load(path) as arrays:
        for key in arrays.files:
            target, seed, place, _, name = key.split("/")
            found[target, seed][int(place)][name] = arrays[key]
    made = []
    for by_place in found.values():
        *sources, target = (
            Rows(
                own["confidence"].astype(float),
                own["coverage"].astype(float) if len(own["coverage"]) else None,
                own["correct"].astype(float),
            )
            for _, own in sorted(by_place.items())
        )
        made.append((sources, target))
    return made


def error(some: list[Case], ridge: Ridge) -> float:
    """The mean absolute error of the accuracy estimated of the targets."""
    before, correctness._RIDGE = correctness._RIDGE, ridge
    try:
        off = [
            abs(float(right(target.confidence, target.coverage, fit(sources)).mean() - target.correct.mean()))
            for sources, target in some
        ]
    finally:
        correctness._RIDGE = before
    return float(np.mean(off))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--save", metavar="NAME", help="write results/NAME.json beside this script")
    chosen = parser.parse_args()
    data = {path.stem: cases(path) for path in chosen.files}
    ridges: list[Ridge] = list(product(GRID, GRID, GRID))
    errors = {name: {ridge: error(some, ridge) for ridge in ridges} for name, some in data.items()}
    lines, kept = [], []
    for name, some in data.items():
        others = [errors[other] for other in data if other != name]
        by_others = min(ridges, key=lambda ridge: float(np.mean([own[ridge] for own in others])))
        best = min(ridges, key=lambda ridge: errors[name][ridge])
        confidence = float(np.mean([abs(target.confidence.mean() - target.correct.mean()) for _, target in some]))
        default = error(some, correctness._RIDGE)
        found = {"left_out": errors[name][by_others], "default": default, "best": errors[name][best]}
        lines.append([name, str(len(some)), *map(str, [by_others]), *map(percent, found.values()), percent(confidence)])
        kept.append({"data": name, "targets": len(some), "ridge": by_others, **found, "confidence": confidence})
    heads = ("data", "targets", "ridge by the others", "its error", "of the default", "of the best", "of confidence")
    print(markdown(heads, lines))
    everywhere = min(ridges, key=lambda ridge: float(np.mean([own[ridge] for own in errors.values()])))
    print(f"\nBest on all of them together: {everywhere}; the default is {correctness._RIDGE}. Points of accuracy.")
    if chosen.save:
        save(chosen.save, {"rows": kept, "best_on_all": everywhere})


if __name__ == "__main__":
    main()
