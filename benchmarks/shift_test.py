"""What the shift test costs on many rows, beside one pass of the kernel between reference and new rows.

The goal: the process stays under 2 GB, and the test takes at most 5 passes. Both take turns in one process of their
own, the test with landmarks and 999 permutations, the pass in blocks; times are medians.

    python benchmarks/shift_test.py [--reference 100000] [--new 10000] [--columns 1024] [--save shift_2cpu]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

BLOCK = 4_096
MOST_GB, MOST_PASSES = 2.0, 5.0
RESULTS = Path(__file__).parent / "results"


def measured(reference_rows: int, new_rows: int, columns: int, *, permutations: int, rounds: int) -> dict[str, object]:
    """Times of both, what the test says, and the peak of this process."""
    import resource

    import torch

    from gated_domains.insight.shift import two_sample_test
    from gated_domains.layer.kernels import Gaussian

    generator = torch.Generator().manual_seed(0)
    reference = torch.randn(reference_rows, columns, generator=generator)
    new = torch.randn(new_rows, columns, generator=generator)
    new += 0.02  # in every column: small, and clear over all
    kernel = Gaussian((2 * columns) ** 0.5)

    @torch.no_grad()
    def one_pass() -> float:
        total = 0.0
        for block in reference.split(BLOCK):
            for other in new.split(BLOCK):
                total += float(kernel(block, other).sum())
        return total

    def test() -> float:
        return two_sample_test(kernel, reference, new, by="landmarks", permutations=permutations).p_value

    took: dict[str, list[float]] = {"pass": [], "test": []}
    p_value = 1.0
    for _ in range(rounds):
        p_value = _timed(test, took["test"])
        _timed(one_pass, took["pass"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "pass_seconds": took["pass"],
        "test_seconds": took["test"],
        "p_value": p_value,
        "peak": peak,
        "data": 4 * columns * (reference_rows + new_rows),
        "threads": torch.get_num_threads(),
    }


def _timed(run: Callable[[], float], times: list[float]) -> float:
    start = time.perf_counter()
    found = run()
    times.append(time.perf_counter() - start)
    return found


def shown(found: dict[str, object]) -> str:
    """The table."""
    one_pass, test = (statistics.median(found[name]) for name in ("pass_seconds", "test_seconds"))  # type: ignore[call-overload]
    gigabytes, data = found["peak"] / 1e9, found["data"] / 1e9  # type: ignore[operator]
    return "\n".join(
        [
            "| | found | goal |",
            "|---|---|---|",
            f"| one pass of the kernel, s | {one_pass:.2f} | |",
            f"| the test, s | {test:.2f} | |",
            f"| the test, in passes | {test / one_pass:.2f} | at most {MOST_PASSES:g} |",
            f"| peak of the process, GB (data {data:.2f}) | {gigabytes:.2f} | under {MOST_GB:g} |",
            f"| p-value | {found['p_value']:.3g} | |",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", type=int, default=100_000)
    parser.add_argument("--new", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=1_024)
    parser.add_argument("--permutations", type=int, default=999)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--save", help="name of a file under results/")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.here:
        sizes = (chosen.reference, chosen.new, chosen.columns)
        print(json.dumps(measured(*sizes, permutations=chosen.permutations, rounds=chosen.rounds)))
        return
    print(
        f"{chosen.reference:,} reference and {chosen.new:,} new rows of {chosen.columns:,} numbers in float32, "
        f"{chosen.permutations} permutations, {platform.processor() or 'CPU'}"
    )
    done = subprocess.run(
        [sys.executable, __file__, "--here", *sys.argv[1:]], stdout=subprocess.PIPE, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    print(shown(found))
    if chosen.save:
        RESULTS.joinpath(f"{chosen.save}.json").write_text(json.dumps({"arguments": vars(chosen), **found}, indent=1))


if __name__ == "__main__":
    main()
