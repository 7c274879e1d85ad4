"""The tutorial on adding a method: its code trains, its method stands in a table and in commands, its test can fail."""

from __future__ import annotations

import math
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gated_domains import load_data
from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.experiments import DataSettings, all_runs
from gated_domains.experiments.executors import ProcessExecutor
from gated_domains.methods import METHODS
from gated_domains.methods.by_domain import DomainMeans
from gated_domains.runs.result import read_results
from gated_domains.settings.search import Between, search_space
from made_runs import assert_refused, call, recipe, runner, table, vectors

PAGE = (Path(__file__).parent.parent / "docs" / "add-a-method.md").read_text()
METHOD, COMMANDS, TEST = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture(autouse=True)
def _as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(METHODS, "vrex", METHODS["erm"])  # what the page puts there is gone after the test
    del METHODS["vrex"]


def saved(*more: str, as_name: str = "vrex") -> dict[str, Any]:
    """What the page's file defines: imported, or with the name ``__main__`` run."""
    Path("vrex.py").write_text("\n".join([METHOD, *more]))
    return runpy.run_path("vrex.py", run_name=as_name)


def test_it_keeps_its_promise_of_40_lines():
    assert len(METHOD.splitlines()) <= 40
    assert max(map(len, METHOD.splitlines())) <= 120


def test_it_trains_in_worker_processes_and_ends_in_a_table_with_a_row_for_the_method(tmp_path):
    saved()
    done = subprocess.run([sys.executable, "vrex.py"], capture_output=True, text=True, check=True)
    results = read_results(tmp_path / "runs" / "vrex")
    assert {(result.method, len(result.test)) for result in results} == {("vrex", 1), ("erm", 1)}
    assert all(math.isfinite(score) for result in results for score in result.test.values())
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("| V-REx")]
    assert "†" in row
    for run in all_runs(tmp_path / "runs" / "vrex"):
        if run.result().to_json()["method"] == "vrex":
            assert run.metrics()[-1]["train"].keys() == {"task", "variance"}


def test_its_setting_has_the_range_that_tuning_searches():
    assert search_space(saved()["VRExSettings"]) == {"weight": Between(0.1, 100, log=True)}


@pytest.mark.usefixtures("without_shape_checks")
def test_with_another_end_the_file_is_the_command_with_one_method_more(tmp_path, monkeypatch, capsys):
    begin = METHOD.index("if __name__")
    assert len(METHOD[begin:].splitlines()) == 4  # as the page says
    Path("vrex.py").write_text(METHOD[:begin] + COMMANDS)
    reading = ["--target", "sick", "--domain", "site", "--hold-out", "north", "--device", "cpu", "--workers", "1"]
    options = ["--methods", "vrex[weight=10],erm", "--epochs", "1", "--seeds", "1", "--out", "out", "--no-report"]
    monkeypatch.setattr(sys, "argv", ["vrex.py", "compare", str(table(tmp_path / "clinic.csv")), *reading, *options])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path("vrex.py", run_name="__main__")
    assert ended.value.code == 0
    assert "V-REx [weight=10]" in capsys.readouterr().out


def test_its_own_test_passes_and_fails_for_another_formula(monkeypatch):
    found = saved(TEST)["test_vrex_is_the_formula"]
    found()
    monkeypatch.setattr(
        DomainMeans, "average", lambda self, values=None: (self.means if values is None else values).mean()
    )
    with pytest.raises(AssertionError):
        found()


def test_only_names_of_the_package_front_are_imported():
    assert re.findall(r"gated_domains[.\w]*", METHOD) == ["gated_domains"]


NOTEBOOK = """
import numpy as np

import gated_domains as gd
from gated_domains.methods import METHODS

class Mine(METHODS["erm"]):
    name, label = "mine", "Mine"

rows = np.arange(60)
data = gd.DomainDataset.from_arrays(rows[:, None].astype("f4"), rows // 3 % 2, rows % 3)
gd.compare(data, methods=[Mine], hold_out="0", seeds=1, training={"epochs": 1}, workers=2, out="runs", progress=False)
"""


def test_workers_that_cannot_import_a_method_say_what_to_do():
    done = subprocess.run([sys.executable, "-c", NOTEBOOK], capture_output=True, text=True)  # of no file
    last = done.stderr.splitlines()[-1]
    assert "worker processes cannot import the method (Can't get attribute 'Mine'" in last
    assert last.endswith("define it in a module and import it, or use one worker")


def test_a_method_that_a_function_defines_is_not_sent_to_workers(tmp_path, monkeypatch):
    class Local(METHODS["erm"]):  # type: ignore[misc, valid-type]
        name, label = "local", "Local"

    monkeypatch.setitem(METHODS, "local", Local)
    with ProcessExecutor(runner(vectors(), tmp_path), workers=2) as executor, pytest.raises(DataError) as refused:
        executor.run([recipe("local")])
    assert str(refused.value).endswith("define it in a module and import it, or use one worker")


def trained(folder: Path) -> Path:
    """The folder of a run of the method, which nothing knows any more."""
    saved()
    path, reading = table(folder / "clinic.csv"), Reading(target="sick", domain="site")
    made = recipe("vrex", "north", data=DataSettings.of(path, reading))
    run = runner(load_data(path, reading), folder / "runs").run(made)
    del METHODS["vrex"]
    return run.path


@pytest.mark.usefixtures("without_shape_checks")
def test_a_report_needs_only_the_results_of_a_method(tmp_path):
    trained(tmp_path)
    done = call("report", "runs", "--out", "page.html")
    assert done.code == 0, done
    assert "V-REx" in Path("page.html").read_text()


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("command", ["predict", "evaluate", "doctor", "shift", "export"])
def test_commands_that_do_not_know_the_method_of_a_run_say_so(tmp_path, command):
    run = trained(tmp_path)
    files = {"doctor": [], "export": ["--to", "torch"]}.get(command, ["clinic.csv"])
    done = call(command, run, *files)
    assert_refused(done, f"{run}: it was trained with the method 'vrex', which is not known here; ")
    assert "python vrex.py" in done.err
    assert "damaged" not in done.err
    assert "delete" not in done.err
