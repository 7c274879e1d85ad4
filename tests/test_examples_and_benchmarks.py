"""The demo and the benchmark do what they say."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield runpy.run_path(str(ROOT / "benchmarks" / "layer.py"))
    for name in ("literal_loop", "layer"):
        sys.modules.pop(name, None)


def test_the_literal_loop_and_the_layer_compute_the_same_step(bench):
    size = bench["Size"](batch=16, features=32, num_bases=4, basis_size=3, classes=5)
    loss_gap, gradient_gap = bench["Bench"](size, torch.device("cpu")).agreement()
    assert loss_gap < 1e-5
    assert gradient_gap < 1e-4


def test_the_demo_prints_both_heads_and_draws_the_gates(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    demo = runpy.run_path(str(ROOT / "examples" / "first_head.py"))
    threads = torch.get_num_threads()
    scope = demo["main"].__globals__
    scope["SEEDS"], scope["EPOCHS"] = range(2), 2
    demo["main"]()
    torch.set_num_threads(threads)
    printed = capsys.readouterr().out
    assert "linear head" in printed
    assert "gated head" in printed
    assert "unseen: moved, light on dark" in printed
    assert (tmp_path / "out" / "first_head_gates.png").stat().st_size > 10_000
