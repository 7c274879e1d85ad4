"""The benchmark of the shift test does what it says."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_tiny_run_prints_both_goals_beside_what_was_found_and_writes_it_down(monkeypatch, tmp_path, capsys):
    bench = runpy.run_path(str(ROOT / "benchmarks" / "shift_test.py"))
    bench["main"].__globals__["RESULTS"] = tmp_path
    sizes = ["--reference", "600", "--new", "200", "--columns", "8", "--permutations", "39", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["shift_test.py", *sizes, "--save", "tiny"])
    bench["main"]()
    printed = capsys.readouterr().out
    assert "600 reference and 200 new rows of 8 numbers" in printed
    assert "| at most 5 |" in printed
    assert "| under 2 |" in printed
    assert '"test_seconds"' in (tmp_path / "tiny.json").read_text()
