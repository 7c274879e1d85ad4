"""Which of our modules a comparison enters: the call path of ``compare``, counted by ``sys.setprofile``.

    python benchmarks/call_path.py heart.csv                # a table of modules in the order they are entered first
    python benchmarks/call_path.py heart.csv --functions    # and the functions that run in each

The heart data, one worker, one seed, no report. The comparison runs twice in one process and the second is counted, so
that imports are not; what counts as entered is a module in which a function runs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

import gated_domains
from gated_domains import compare

SOURCE = Path(gated_domains.__file__).parent


class Entered:
    """Functions that ran, by module, in the order in which modules were entered first."""

    def __init__(self) -> None:
        self.modules: dict[str, set[str]] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(SOURCE)):
            module = ".".join(Path(path).relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
            self.modules.setdefault(module, set()).add(frame.f_code.co_qualname if sys.version_info >= (3, 11) else "")


def run(table: Path, root: Path, **options: Any) -> None:
    comparison = compare(
        table,
        target="num",
        domain="hospital",
        positive=[1, 2, 3, 4],
        seeds=1,
        training={"epochs": 2},
        workers=1,
        out=root,
        progress=False,
        **options,
    )
    print(comparison)


def measure(table: Path) -> Entered:
    entered = Entered()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        run(table, Path(folder, "first"))
        sys.setprofile(entered)
        try:
            run(table, Path(folder, "second"))
        finally:
            sys.setprofile(None)
    return entered


def lines_of(module: str) -> int:
    path = SOURCE.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return len(path.read_text(encoding="utf-8").splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="the heart data, a CSV file with the columns num and hospital")
    parser.add_argument("--functions", action="store_true", help="list the functions that run in each module")
    chosen = parser.parse_args()
    entered = measure(chosen.table).modules
    for number, (module, functions) in enumerate(entered.items(), 1):
        print(f"{number:3d}  {module:40s} {lines_of(module):4d} lines, {len(functions):3d} functions")
        if chosen.functions:
            print("     " + ", ".join(sorted(functions)))
    largest = max(entered, key=lines_of)
    print(
        f"{len(entered)} modules, {sum(map(lines_of, entered)):,} lines; the largest is {largest}: {lines_of(largest)}"
    )


if __name__ == "__main__":
    main()
