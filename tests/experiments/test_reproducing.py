"""The table of WILDS: its grid, what miniatures change, and runs that do not stop each other."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.published import Published
from gated_domains.experiments.runner import Runner
from gated_domains.paper import cells, running
from gated_domains.paper.curves import CANDIDATES, Curves, features_of
from gated_domains.paper.grid import Grid, Job, plan, runs_of
from gated_domains.paper.miniature import shrink
from gated_domains.paper.running import Reproducing, folder_of, in_short
from gated_domains.runs.recipe import DataSettings
from made_runs import CPU, NothingIsTrained, recipe, vectors

ALL = (list(cells.ROWS), list(cells.COLUMNS))


def test_camelyon_has_ten_seeds_and_poverty_five_folds() -> None:
    assert runs_of("camelyon17") == [("", seed) for seed in range(10)]
    assert runs_of("camelyon17-digits") == runs_of("camelyon17")
    assert runs_of("poverty") == [(fold, 0) for fold in "ABCDE"]
    counts = {name: len(runs_of(name)) for name in ("civilcomments", "fmow", "amazon", "iwildcam", "rxrx1")}
    assert counts == {"civilcomments": 5, "fmow": 3, "amazon": 3, "iwildcam": 3, "rxrx1": 3}
    assert len(runs_of("ogb-molpcba")) == 3


def test_the_grid_holds_every_cell_as_often() -> None:
    grid = plan(*ALL)
    erm = [job for job in grid.jobs if (job.row, job.column) == ("erm", "camelyon17")]
    assert [job.recipe.seed for job in erm] == list(range(10))
    folds = [job.recipe.data.what for job in grid.jobs if (job.row, job.column) == ("gdu", "poverty")]
    assert folds == [f"wilds/poverty:{fold}" for fold in "ABCDE"]
    asked = {(job.row, job.column) for job in grid.jobs} | set(grid.without)
    assert asked == {(row, column) for row in cells.ROWS for column in cells.COLUMNS}


def test_fewer_seeds_are_fewer_folds_and_more_go_round_again() -> None:
    assert runs_of("poverty", 2) == [("A", 0), ("B", 0)]
    assert runs_of("poverty", 6)[-1] == ("A", 1)
    assert len(plan(["erm"], ["camelyon17", "poverty"], seeds=1).jobs) == 2
    with pytest.raises(DataError, match="at least one run"):
        plan(["erm"], ["fmow"], seeds=0)


def test_cells_without_published_settings_say_so() -> None:
    grid = plan(*ALL)
    assert grid.without["lisa", "poverty"] == "no published settings"
    assert ("cgd", "camelyon17-digits") in grid.without
    assert ("coral", "ogb-molpcba") not in grid.without


def test_data_are_loaded_once_for_all_their_runs_and_again_where_they_are_read_otherwise() -> None:
    by_data = plan(["erm", "gdu"], ["camelyon17", "camelyon17-digits", "poverty"], seeds=2).by_data()
    read = ["wilds/camelyon17", "wilds/camelyon17", "wilds/poverty:A", "wilds/poverty:B"]  # at 96 and at 32 pixels
    assert [what for what, _ in by_data] == read
    assert [len(jobs) for jobs in by_data.values()] == [4, 4, 2, 2]


def test_fish_starts_from_the_erm_run_of_its_seed() -> None:
    jobs = {(job.column, job.recipe.seed): job for job in plan(["fish"], ["fmow", "poverty"], seeds=2).jobs}
    start = jobs["fmow", 1].starts_on
    assert start is not None
    assert (start.method.name, start.seed, start.training.epochs) == ("erm", 1, 50)
    assert jobs["poverty", 0].starts_on is None


def test_names_on_the_command_line_keep_the_order_of_the_table() -> None:
    assert cells.chosen_columns("poverty,wilds/camelyon17") == ["camelyon17", "poverty"]
    assert cells.chosen_columns("camelyon17-digits") == ["camelyon17-digits"]
    assert cells.chosen_rows("gdu,erm") == ["erm", "gdu"]
    assert cells.chosen_rows(None) == list(cells.ROWS)
    with pytest.raises(DataError, match=r"--datasets: there is no 'camelion17'.*camelyon17"):
        cells.chosen_columns("camelion17")
    with pytest.raises(DataError, match="--methods names nothing"):
        cells.chosen_rows(" , ")


def test_methods_that_know_domains_or_see_batches_are_told_from_the_methods_themselves() -> None:
    rows = cells.described_rows(cells.ROWS)
    assert [name for name, row in rows.items() if row.batchwise] == ["arm_bn"]
    told = [name for name, row in rows.items() if row.uses_domains]
    assert told == ["coral", "fish", "irm", "group_dro", "lisa", "cgd", "arm_bn"]


@pytest.mark.parametrize("job", plan(*ALL, seeds=1).jobs, ids=lambda job: f"{job.column}-{job.row}")
def test_a_miniature_changes_sizes_and_nothing_else(job: Job) -> None:
    small = shrink(job.recipe, job.column)
    assert (small.shrunk, small.pretrained) == (True, "false")
    assert (small.hold_out, small.selection, small.metric) == ("official", "official", "auto")
    assert small.method.name == job.recipe.method.name
    assert small.training.epochs <= 12
    assert small.training.batch_size <= 80
    assert small.data.image_size in (None, 32 if job.recipe.body == "digits" else 64)
    assert small.data.tokens in (None, 64)


def test_fine_tuning_stands_on_erm_in_miniatures_too() -> None:
    for column in cells.COLUMNS:
        erm, tuned = (shrink(cells.recipe_of(row, column), column) for row in ("erm", "ft_mmd"))
        assert erm.training == tuned.training


def test_the_networks_of_miniatures_are_called_shrunk() -> None:
    real, small = (cells.described_columns(["fmow", "amazon"], change) for change in (None, shrink))
    assert real["fmow"].body == "DenseNet-121, ImageNet weights"
    assert real["amazon"].body == "DistilBERT, its own weights, 512 tokens"
    assert small["fmow"].body == "DenseNet-121, from scratch, shrunk, 64 px"
    assert small["amazon"].body == "DistilBERT, from scratch, shrunk, 64 tokens"


def test_fish_goes_on_from_an_erm_run_and_a_frozen_head_stands_on_one_by_itself() -> None:
    erm, fish = plan(["erm", "fish"], ["fmow"], seeds=1).jobs
    assert fish.starts_on == erm.recipe
    assert plan(["ft_mmd"], ["rxrx1"], seeds=1).jobs[0].starts_on is None
    assert plan(["fish"], ["poverty"], seeds=1).jobs[0].starts_on is None


# -- runs --------------------------------------------------------------------------------------------------------------


def divided(rows: int = 150) -> DomainDataset:
    """The vectors of other tests, as if their publisher had divided them."""
    dataset = vectors(rows)
    parts = np.array([0, 0, 0, 1, 2, 3], np.int8)[np.arange(rows) % 6]
    names = ("train", "val", "test", "id_test")
    published = Published(name="vectors", parts=parts, part_names=names, metric="accuracy")
    return replace(dataset, published=published)


def job(row: str = "erm", column: str = "fmow", **others: Any) -> Job:
    data = DataSettings(what=others.pop("what", "wilds/fmow"))
    starts_on = others.pop("starts_on", None)
    made = recipe(others.pop("method", "erm"), "official", data=data, **others)
    return Job(row=row, column=column, recipe=made, starts_on=starts_on)


def reproducing(root: Path, *jobs: Job, **others: Any) -> Reproducing:
    def make(executor: Any, runner: Runner, recipes: Any) -> None:
        executor.run(recipes, callback=others.get("callback"))

    chosen = {"make": make, "hardware": CPU, "executing": {"workers": 1}}
    chosen |= {name: value for name, value in others.items() if name in ("make", "after", "say")}
    return Reproducing(Grid(jobs=jobs, without={("lisa", "fmow"): "no published settings"}), root, **chosen)


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(what: str, reading: Any, *, data_dir: Any) -> DomainDataset:
        if what == "wilds/nowhere":
            raise DataError("nowhere is not in the data directory")
        return divided()

    monkeypatch.setattr(running, "load_data", load)


def test_cells_hold_results_of_all_parts(tmp_path: Path) -> None:
    work = reproducing(tmp_path, job(), job(seed=1), job("gdu", method="gdu"))
    work.run()
    found = work.cells()
    assert len(found["erm", "fmow"].results) == found["erm", "fmow"].asked == 2
    assert found["gdu", "fmow"].why == ""
    result = found["erm", "fmow"].results[0]
    assert set(result["test"]["by_domain"]) == {"test"}
    assert 0 < result["also"]["id_test"]["overall"] <= 1
    assert found["lisa", "fmow"].why == "no published settings"
    assert (tmp_path / "runs" / "fmow").is_dir()


def test_running_again_trains_nothing(tmp_path: Path) -> None:
    jobs = (job(), job("ft_cosine", method="gdu-paper", settings={"mode": "fine_tune"}))
    reproducing(tmp_path, *jobs).run()
    again = reproducing(tmp_path, *jobs, callback=NothingIsTrained())
    again.run()
    assert all(cell.results for place, cell in again.cells().items() if place[0] != "lisa")


def test_data_that_are_not_there_empty_their_own_cells_alone(tmp_path: Path) -> None:
    said: list[str] = []
    work = reproducing(tmp_path, job(column="amazon", what="wilds/nowhere"), job(), say=said.append)
    work.run()
    assert work.cells()["erm", "amazon"].why == "nowhere is not in the data directory"
    assert work.cells()["erm", "fmow"].results
    assert any("nowhere is not" in line for line in said)


def test_a_method_that_these_data_do_not_allow_says_why(tmp_path: Path) -> None:
    work = reproducing(tmp_path, job("arm_bn", method="arm-bn", body="identity"), job())
    work.run()
    assert "batch norm" in work.cells()["arm_bn", "fmow"].why
    assert work.cells()["erm", "fmow"].results


def test_a_run_that_fails_stops_no_other(tmp_path: Path) -> None:
    """Whatever goes wrong in one of them, by whatever fault."""
    bad = job("coral", method="coral")

    def make(executor: Any, runner: Runner, recipes: Any) -> None:
        if any(one.method.name == "coral" for one in recipes):
            raise RuntimeError("Traceback ...\nRuntimeError: it fell over")
        executor.run(recipes)

    work = reproducing(tmp_path, job(), bad, job("gdu", method="gdu"), job("irm", method="irm"), make=make)
    work.run()
    found = work.cells()
    assert found["coral", "fmow"].why == "it failed: RuntimeError: it fell over"
    assert all(found[row, "fmow"].results for row in ("erm", "gdu", "irm"))


def test_a_loss_that_breaks_off_takes_those_that_stand_on_it_along_and_no_other(tmp_path: Path) -> None:
    wild = {"training": {"rate": 1e30, "optimizer": "sgd"}}
    tuned = job("ft_cosine", method="gdu-paper", settings={"mode": "fine_tune"}, **wild)
    work = reproducing(tmp_path, job("erm", **wild), tuned, job("gdu", method="gdu"))
    work.run()
    found = work.cells()
    assert found["erm", "fmow"].why
    assert not found["erm", "fmow"].results
    assert not found["ft_cosine", "fmow"].results
    assert found["ft_cosine", "fmow"].why
    assert found["gdu", "fmow"].results


def test_a_full_disk_stops_it_all(tmp_path: Path) -> None:
    def make(executor: Any, runner: Runner, recipes: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        reproducing(tmp_path, job(), make=make).run()


def test_what_was_not_reached_says_that_it_goes_on(tmp_path: Path) -> None:
    def make(executor: Any, runner: Runner, recipes: Any) -> None:
        raise KeyboardInterrupt

    work = reproducing(tmp_path, job(), make=make)
    with pytest.raises(KeyboardInterrupt):
        work.run()
    assert "the same command goes on" in work.cells()["erm", "fmow"].why


def test_fish_goes_on_from_the_network_of_erm(tmp_path: Path) -> None:
    erm = job()
    fish = job("fish", method="fish", starts_on=erm.recipe)
    work = reproducing(tmp_path, fish)
    work.run()
    (result,) = work.cells()["fish", "fmow"].results
    assert result["method"] == "fish"
    runs = [path for path in (tmp_path / "runs" / "fmow").iterdir() if path.is_dir()]
    assert len(runs) == 2  # the network that it started from was trained first
    again = reproducing(tmp_path, fish, callback=NothingIsTrained())
    again.run()
    assert again.cells()["fish", "fmow"].results


def test_a_head_goes_on_from_a_run_that_is_given_it(tmp_path: Path) -> None:
    """Frozen: of the two runs the first alone trains a body."""
    erm = job(training={"epochs": 3})
    tuned = job("ft_cosine", method="gdu-paper", settings={"mode": "fine_tune"}, starts_on=erm.recipe)
    work = reproducing(tmp_path, erm, tuned)
    work.run()
    assert work.cells()["ft_cosine", "fmow"].results
    assert len([path for path in (tmp_path / "runs" / "fmow").iterdir() if path.is_dir()]) == 2


def test_folders_and_faults_in_short() -> None:
    assert folder_of("wilds/poverty:B") == "poverty-B"
    assert in_short(DataError("first\nthe cure")) == "the cure"
    assert in_short(ValueError()) == "it failed: nothing was said"


# -- curves ------------------------------------------------------------------------------------------------------------


def test_curves_are_of_features_of_training_rows_of_erm_and_are_kept(tmp_path: Path) -> None:
    curves = Curves({"wilds/fmow": "FMoW"})
    after = partial(curves.add)
    work = reproducing(tmp_path, job(body="mlp"), job(seed=1, body="mlp"), job("gdu", method="gdu"), after=after)
    work.run()
    found = curves.curves()
    assert set(found) == {"features", "tsne"}
    for view in found:
        assert found[view]["FMoW"].scores.shape == (4, len(CANDIDATES))  # two samples of each of two runs
        assert np.isfinite(found[view]["FMoW"].scores).all()
    written = curves.write(tmp_path, title="curves")
    assert [path.name for path in written] == ["davies_bouldin.png", "davies_bouldin.csv"]
    assert written[0].stat().st_size > 10_000
    assert any("M = " in line for line in curves.verdict())
    kept = list(tmp_path.glob("runs/fmow/*/curves.json"))
    assert len(kept) == 2


def test_features_are_those_of_the_body_in_eval_mode(tmp_path: Path) -> None:
    work = reproducing(tmp_path, one := job(body="mlp"))
    work.run()
    runner = Runner(divided(), tmp_path / "runs" / "fmow", hardware=CPU)
    run = runner.find(one.recipe)
    assert run is not None
    rows = runner.planner.split(one.recipe).train
    features = features_of(run, runner, rows)
    assert len(features) == len(rows)
    assert np.array_equal(features, features_of(run, runner, rows))


def test_data_that_cannot_be_clustered_leave_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gated_domains.paper.curves as module

    monkeypatch.setattr(module, "features_of", lambda *_: np.zeros((50, 3), np.float32))
    curves = Curves({"wilds/fmow": "FMoW"})
    reproducing(tmp_path, job(), after=curves.add).run()
    assert curves.write(tmp_path, title="curves") == []
    assert any("no Davies-Bouldin curve of wilds/fmow" in line for line in curves.verdict())
