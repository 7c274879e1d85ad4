"""The demo and the benchmark do what they say."""

from __future__ import annotations

import csv
import re
import runpy
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from gated_domains.data.dataset import DomainDataset
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
    for name in ("recompute", "parts_worth"):
        sys.modules.pop(name, None)


def test_a_run_list_is_compared_on_a_new_domain_and_on_these_ones(script, tmp_path, monkeypatch, capsys):
    gaps = {"a": (0.01, 0.03), "b": (0.02, 0.02), "c": (0.00, 0.02), "d": (0.05, 0.05)}  # means 2, 2, 1, 5 points
    lines = ["row,target,seed,accuracy"]
    for target, by_seed in gaps.items():
        for seed, gap in enumerate(by_seed):
            lines += [f"plain,{target},{seed},0.5", f'"gated[a=1,b=2]",{target},{seed},{0.5 + gap}']
    (tmp_path / "runs.csv").write_text("\n".join(lines) + "\n")
    asked = ["--baseline", "plain", "--methods", "gated[a=1,b=2]"]
    monkeypatch.setattr(sys, "argv", ["recompute.py", str(tmp_path / "runs.csv"), *asked])
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


def over_folds_by_loops(by_set: dict[str, dict[str, list[float]]]) -> tuple[float, float, float]:
    """The mean over all 12 folds, and its 90 % t interval."""
    means = [sum(gaps) / len(gaps) for domains in by_set.values() for gaps in domains.values()]
    mean = sum(means) / len(means)
    variance = sum((one - mean) ** 2 for one in means) / (len(means) - 1) / len(means)
    reach = 1.7958848 * variance**0.5  # the 95 % quantile of t with 11 degrees of freedom
    return mean, mean - reach, mean + reach


def test_a_part_is_on_where_its_mean_is_positive_and_its_interval_stays_above_the_loss(script, tmp_path, monkeypatch):
    by_set = {
        "digits": {"a": [1.0, 3.0], "b": [2.0, 2.0], "c": [1.0, 1.0], "d": [3.0, 2.0]},
        "heart": {"a": [1.5, 2.5], "b": [2.0, 1.0], "c": [2.0, 2.0], "d": [1.0, 2.0]},
        "sentiment": {"a": [2.0, 2.5], "b": [1.0, 1.0], "c": [2.0, 3.0], "d": [1.5, 1.0]},
    }
    lists, page, by = tmp_path / "choose", tmp_path / "page.md", "written by choose_recipe.py decide"
    lists.mkdir()
    made = script("choose_recipe.py")
    gains = {"erm": 0, "erm[ema=0.995]": 1, "gdu": -1, "erm[mixstyle=0.5,ema=0.995]": 2}  # multiples of the gap
    for name, domains in by_set.items():
        lines = ["dataset,method,target,seed,score"]
        for method, gain in gains.items():
            if "mixstyle" not in method or name != "heart":  # measured on two sets only
                lines += [
                    f'{name},"{method}",{domain},{seed},{70 + gain * gap}'
                    for domain, gaps in domains.items()
                    for seed, gap in enumerate(gaps)
                ]
        (lists / f"{name}_2cpu.csv").write_text("\n".join(lines) + "\n")
    marked = (f"<!-- begin: {name}, {by} -->\nlast time\n<!-- end: {name}, {by} -->\n" for name in ("parts", "steps"))
    page.write_text("before\n" + "between\n".join(marked) + "after\n")
    monkeypatch.setattr(sys, "argv", ["choose_recipe.py", "--lists", str(lists), "decide", "--page", str(page)])
    made["main"]()
    with (tmp_path / "choose_parts.csv").open(newline="") as file:
        found = {row["part"]: row for row in csv.DictReader(file) if row["dataset"] == "all folds"}
    part = found["EMA on ERM"]
    numbers = [float(part[name]) for name in ("points", "low90", "high90")]
    assert numbers == pytest.approx(over_folds_by_loops(by_set), abs=1e-6)
    assert part["decision"] == "on"
    assert found["GDU vs. ERM"]["decision"] == "off: no gain on average"
    written = page.read_text()
    assert "last time" not in written
    assert written.startswith("before")
    assert written.endswith("after\n")
    cells = r"\(.*\) \| no decision \| \+1\.\d \| \N{EN DASH} \| \+1\.\d \| 8 \| 16 \|"  # not measured on heart
    assert re.search(rf"\| MixStyle \| \+1\.\d {cells}", written)
    assert page.with_suffix(".png").stat().st_size > 5_000


def test_a_part_of_several_pairs_weighs_them_alike_and_clusters_folds_by_data_set(script):
    script("choose_recipe.py")
    from parts_worth import Part, clustered, ladder, measure

    def scores(gaps):  # by domain and seed
        return {(domain, domain, seed): 70.0 + gap for domain, seeds in gaps.items() for seed, gap in enumerate(seeds)}

    plain = scores({name: [0, 0] for name in "abcd"})
    first = scores({"a": [1, 3], "b": [2, 2], "c": [0, 0], "d": [4, 4]})
    other = scores({"a": [8], "b": [0], "c": [0], "d": [0]})
    made = {"m": first, "n": plain, "o": other, "p": plain}
    found = measure(Part("both", "m", "n", also=(("o", "p"),)), {"one": made, "two": {"m": first, "n": plain}})
    assert found.by_set["one"].difference == pytest.approx((5 + 1 + 0 + 2) / 4)
    assert found.by_set["two"].difference == pytest.approx(2)
    assert found.pairs == 4 * 3 + 4 * 2
    assert {row["with"] for row in found.rows()} == {"m; o"}
    table = ladder({"one": made, "two": {"m": first}}, {"first": "m", "second": "n", "third": "o", "none": "q"})
    assert table[0] == "| | one |"
    cells = [line.split("|")[2].strip() for line in table[2:]]
    assert cells == ["71.8", "70.0", "72.0", "\N{EN DASH}", "4 x 1"]  # "o" has the first seed alone
    effect = clustered([[1.0, 2.0, 3.0], [5.0, 7.0], [0.0]])  # mean 3, sums of deviations -3, 6 and -3
    assert (effect.difference, effect.df) == (3.0, 2.0)
    assert effect.error == pytest.approx((3 / 2 * (9 + 36 + 9)) ** 0.5 / 6)


def test_the_commands_of_the_choosing_sets_train_what_their_lists_hold(script):
    made = script("choose_recipe.py")
    for name in made["SETS"]:
        folder = made["LISTS"] / ("confirm" if made["SETS"][name].confirms else "")
        listed = {row["method"] for path in folder.glob(f"{name}_*.csv") for row in made["read_list"](path)}
        assert listed
        assert listed <= set(made["variants_of"](name))
    assert "gdu" not in made["variants_of"]("pacs160")  # whose norms are not gated: what norm_statistics=batch is
    assert "gdu[gated_norm=true,fourier_mix=0.9,ema=0.995]" in made["variants_of"]("pacs160")


def test_choosing_runs_of_digits5_never_see_syn(script, monkeypatch):
    made = script("choose_recipe.py")
    names = ("mnist", "mnistm", "svhn", "usps", "syn")
    whole = DomainDataset.from_arrays(
        np.arange(20.0)[:, None], np.arange(20) % 2, [names[row % 5] for row in range(20)]
    )
    monkeypatch.setitem(made["load"].__globals__, "load_data", lambda *_, **__: whole)
    part = made["load"]("digits5", "digits5", None)
    assert sorted(part.domain_names) == ["mnist", "mnistm", "svhn", "usps"]
    assert part.domains is not None
    for value, domain in zip(part.inputs.values[:, 0], part.domains, strict=True):
        assert part.domain_names[domain] == names[int(value) % 5]


@pytest.mark.slow
def test_a_run_list_is_resumed_and_refuses_other_settings(script, tmp_path, monkeypatch, capsys):
    draw = np.random.default_rng(0)
    labels, domains = np.arange(240) // 4 % 2, np.arange(240) % 4
    values = draw.normal(size=(240, 4)) + 2 * labels[:, None] + domains[:, None]
    np.savez(tmp_path / "made.npz", features=values.astype(np.float32), labels=labels, domains=domains)
    made = script("choose_recipe.py")
    path = tmp_path / "lists" / "pacs-features_2cpu.csv"

    def run(*methods: str, epochs: int, out: str) -> None:
        monkeypatch.setitem(made["SETS"], "pacs-features", made["ChoosingSet"](training={"epochs": epochs}))
        asked = ["--lists", str(tmp_path / "lists"), "run", "pacs-features", str(tmp_path / "made.npz"), "--seeds", "1"]
        asked += ["--machine", "2cpu", "--workers", "1", "--out", str(tmp_path / out), "--methods", *methods]
        monkeypatch.setattr(sys, "argv", ["choose_recipe.py", *asked])
        made["main"]()

    run("erm", epochs=1, out="first")
    first = path.read_text()
    assert first.count("\n") == 5
    capsys.readouterr()
    run("erm", "erm[ema=0.995]", epochs=1, out="second")  # without the run folders
    assert "4 trainings are not in" in capsys.readouterr().out
    assert path.read_text().startswith(first)
    assert path.read_text().count("\n") == 9
    with pytest.raises(SystemExit, match="other settings"):
        run("erm", epochs=2, out="second")
