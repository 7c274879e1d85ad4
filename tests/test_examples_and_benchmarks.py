"""The demo and the benchmark do what they say."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from gated_domains.methods import METHODS

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


@pytest.fixture
def methods_bench(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield runpy.run_path(str(ROOT / "benchmarks" / "methods.py"))
    for name in ("literal_loop", "layer"):
        sys.modules.pop(name, None)


def test_every_method_with_a_step_of_its_own_has_a_row_and_so_have_the_switches(methods_bench):
    names = [case.name for case in methods_bench["cases"]()]
    assert names[0] == "ERM"
    assert len(set(names)) == len(names)
    without = {"linear", "ensemble"}  # trained on features taken once; a number of other trainings
    assert {METHODS[name].label for name in METHODS if name not in without} <= set(names)
    assert {"ERM + MixStyle", "ERM + EMA", "ERM + SWAD", "GDU + MixStyle"} <= set(names)


@pytest.mark.usefixtures("without_shape_checks")
def test_a_step_is_timed_for_every_row_and_held_against_erm(methods_bench):
    size = methods_bench["Size"](body="small", side=8, batch=16, precision="32", steps=2)
    bench, cases = methods_bench["Bench"](size, "cpu"), methods_bench["cases"]()
    rows = methods_bench["measure"](bench, cases, rounds=1)
    assert [row.name for row in rows] == [case.name for case in cases]
    for row in rows:
        assert 0 < row.milliseconds < 60_000
        assert row.ratios == [row.ratio]
        assert 0.01 < row.ratio < 100


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


def test_the_demo_says_what_it_does_when_asked(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["first_head.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "examples" / "first_head.py"), run_name="__main__")
    assert ended.value.code == 0
    assert "A linear head and a gated head on real digits" in capsys.readouterr().out


def test_a_new_hospital_is_examined_held_against_the_others_and_drawn(monkeypatch, tmp_path, capsys):
    draw = np.random.default_rng(0)
    lines = ["age,chol,slope,num,hospital"]
    for place, hospital in enumerate(("cleveland", "hungarian", "switzerland", "va")):
        for row in range(60):
            sick = row % 2
            chol = "" if draw.random() < 0.1 else f"{draw.normal(200 + 20 * place, 20):.0f}"
            age, num = draw.normal(50 + 8 * sick + 2 * place, 4), sick * (1 + row % 8 // 2)
            lines.append(f"{age:.0f},{chol},{draw.integers(3)},{num},{hospital}")
    (tmp_path / "heart.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["new_hospital.py", "heart.csv", "--new", "hungarian"])
    runpy.run_path(str(ROOT / "examples" / "new_hospital.py"), run_name="__main__")
    printed = " ".join(capsys.readouterr().out.split())
    assert "Trained on 3 hospitals, without hungarian" in printed
    assert "gates depend on the input" in printed
    assert re.search(r"hungarian .*distance \d\.\d+, p = 0\.\d+", printed)
    assert re.search(r"It draws \d+ % \(90 % interval", printed)
    assert re.search(r"The model will probably be \d+\.\d % .* Its true accuracy there is \d+\.\d %", printed)
    for name in ("shift-mixture.png", "shift-accuracy.png", "shift.html"):
        assert (tmp_path / "out" / "new_hospital" / name).stat().st_size > 10_000


def test_without_the_file_the_example_says_which_one_it_wants(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["new_hospital.py", str(tmp_path / "nowhere.csv")])
    with pytest.raises(SystemExit, match=r"nowhere.csv is not there; give the path of heart_disease_4hospitals.csv"):
        runpy.run_path(str(ROOT / "examples" / "new_hospital.py"), run_name="__main__")
