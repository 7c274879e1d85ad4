"""The demo and the benchmark do what they say."""

from __future__ import annotations

import json
import re
import runpy
import sys
import warnings
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


def test_a_new_hospital_is_examined_compared_with_the_others_and_drawn(monkeypatch, tmp_path, capsys):
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
    assert re.search(
        r"hungarian(: \d+ rows of the sources are too few| is (unlike all sources|.*\(rank \d of 4\)))",
        printed,
    )
    assert re.search(r"It draws \d+ % \(90 % interval", printed)
    assert re.search(
        r"(No shift was seen|accuracy there cannot be estimated).* Its true accuracy there is \d+\.\d %", printed
    )
    for name in ("shift-mixture.png", "shift-accuracy.png", "shift.html"):
        assert (tmp_path / "out" / "new_hospital" / name).stat().st_size > 10_000


def test_without_the_file_the_example_says_which_one_it_wants(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["new_hospital.py", str(tmp_path / "nowhere.csv")])
    with pytest.raises(SystemExit, match=r"nowhere.csv is not there; give the path of heart_disease_4hospitals.csv"):
        runpy.run_path(str(ROOT / "examples" / "new_hospital.py"), run_name="__main__")


@pytest.fixture
def script(monkeypatch):
    """The names of a script under benchmarks, which may import its neighbours."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield lambda name: runpy.run_path(str(ROOT / "benchmarks" / name))
    sys.modules.pop("recompute", None)


def test_a_run_list_is_compared_on_a_new_domain_and_on_these_ones(script, tmp_path, monkeypatch, capsys):
    gaps = {"a": (0.01, 0.03), "b": (0.02, 0.02), "c": (0.00, 0.02), "d": (0.05, 0.05)}  # means 2, 2, 1, 5 points
    lines = ["row,target,seed,accuracy"]
    for target, by_seed in gaps.items():
        for seed, gap in enumerate(by_seed):
            lines += [f"plain,{target},{seed},0.5", f"gated,{target},{seed},{0.5 + gap}"]
    (tmp_path / "runs.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(sys, "argv", ["recompute.py", str(tmp_path / "runs.csv"), "--baseline", "plain"])
    script("recompute.py")["main"]()
    gated = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| gated"))
    *_, new, p, these, p_these, verdict, record = [cell.strip() for cell in gated.strip("|").split("|")]
    # By hand: mean 2.5, standard error sqrt(3) / 2 over four domains, t(3) = 3.182; residuals with 4 df, t(4) = 2.776.
    assert new == "+2.50 (-0.26 to +5.26)"
    assert (p, verdict, record) == ("0.063", "undecided", "4/0/0")
    assert (these, p_these) == ("+2.50 (+1.52 to +3.48)", "0.002")


RECOMPUTED = {
    "digits5_all_h200.md": "ERM",
    "digits5_h200.md": "ERM",
    "pacs_features_2cpu.md": "ERM",
    "pacs_images_h200.md": "ERM",
    "sentiment_2cpu.md": "ERM",
    "mol_hiv.md": "ERM",
    "pacs_features_estimators.md": "`ERMClassifier()`",
    "adaptive_digits5_h200.md": "`gdu[num_bases=5]`",
}


@pytest.mark.parametrize("page", RECOMPUTED)
def test_a_table_of_results_follows_from_its_own_cells(script, page):
    text = (ROOT / "benchmarks" / "results" / page).read_text()
    tables = script("recompute.py")["page_tables"](text, RECOMPUTED[page])
    assert tables
    for lines in tables:
        assert "\n".join(lines) in text


def test_the_table_of_digits_follows_from_its_run_list(script):
    made, page = script("recompute.py"), (ROOT / "docs" / "results" / "digits.md").read_text()
    scores = made["read_run_list"](ROOT / "benchmarks" / "results" / "digits5_table_h200.csv")
    rows = ("erm_linear", "linear", "gdu", "erm_mixstyle_ema", "gdu_mixstyle_ema")
    labels = {name: row.label for name, row in made["ROWS"].items()}
    for line in made["runs_table"]({row: scores[row] for row in rows}, "erm_linear", labels=labels):
        assert line in page


def test_the_page_on_shift_compares_as_the_saved_runs_do(script):
    made, page = script("recompute.py"), (ROOT / "docs" / "results" / "shift.md").read_text()
    scores = made["read_saved"](ROOT / "benchmarks" / "results" / "partial_invariance_h200.json")
    for line in made["runs_table"](scores, "gdu", labels={}):
        assert line in page


def test_estimators_are_compared_for_every_way_to_fill_in_missing_values(script, tmp_path, monkeypatch, capsys):
    draw = np.random.default_rng(0)
    lines = ["age,chol,num,hospital"]
    for hospital in "abcd":
        for row in range(30):
            chol = "" if row % 5 == 0 else f"{draw.normal(200 + 40 * (row % 2), 5):.0f}"
            lines.append(f"{draw.normal(50, 5):.0f},{chol},{row % 2},{hospital}")
    (tmp_path / "heart.csv").write_text("\n".join(lines) + "\n")
    made = script("estimators_held_out.py")
    models = {name: made["MODELS"][name] for name in ("LogisticRegression()", "ERMClassifier()")}
    monkeypatch.setitem(made["table"].__globals__, "MODELS", models)
    asked = [str(tmp_path / "heart.csv"), "--target", "num", "--domain", "hospital", "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", ["estimators_held_out.py", *asked])
    with warnings.catch_warnings():  # it silences those of the solvers
        made["main"]()
    printed = capsys.readouterr().out
    headed = re.findall(r"Missing values: (.*)", printed)
    assert headed == ["median", "median and indicators", "mean", "mean and indicators"]
    rows = [line for line in printed.splitlines() if line.startswith("| `LogisticRegression()`")]
    assert len(rows) == 4
    assert all("/" in row.split("|")[-3] for row in rows)


@pytest.mark.slow
def test_forms_of_gdu_are_compared_with_the_default_by_domain(script, tmp_path, monkeypatch, capsys):
    draw = np.random.default_rng(0)
    labels, domains = np.arange(240) // 4 % 2, np.arange(240) % 4
    values = draw.normal(size=(240, 4)) + 2 * labels[:, None] + domains[:, None]
    np.savez(tmp_path / "made.npz", features=values.astype(np.float32), labels=labels, domains=domains)
    asked = [str(tmp_path / "made.npz"), "--never", "3", "--seeds", "2", "--epochs", "1", "--workers", "1"]
    asked += ["--forms", "gdu", "erm", "--out", str(tmp_path / "out"), "--save", "made"]
    monkeypatch.setattr(sys, "argv", ["search_gdu.py", *asked])
    made = script("search_gdu.py")
    monkeypatch.setitem(made["main"].__globals__, "RESULTS", tmp_path)
    made["main"]()
    assert "on these domains" in " ".join(capsys.readouterr().out.split())
    kept = json.loads((tmp_path / "made.json").read_text())
    found = {row["form"]: row["against_base"] for row in kept["rows"]}
    assert found["gdu"] is None
    assert found["erm"]["verdict"] is None  # three domains allow no verdict on a new one
    assert found["erm"]["these_domains"]["n"] == 6  # three domains, two seeds
    again = script("recompute.py")["read_saved"](tmp_path / "made.json")
    gap = np.mean([*again["erm"].values()]) - np.mean([*again["gdu"].values()])
    assert found["erm"]["these_domains"]["difference"] == pytest.approx(gap)
