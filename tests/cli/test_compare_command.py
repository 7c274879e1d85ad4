"""``gated-domains compare``: one command, one table; stopped anywhere it goes on, and what is wrong is said first."""

from __future__ import annotations

import collections
import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
from PIL import Image

from gated_domains.experiments.progress import ProgressBar
from gated_domains.runs.folder import RunFolder, all_runs, open_run_folder
from made_runs import Done, assert_refused, call, changed, table

METHODS = "gdu[num_bases=3],erm,linear"
READING = ("--target", "sick", "--domain", "site")
SHORT = ("--epochs", 1, "--seeds", 1, "--device", "cpu", "--workers", 1, "--no-report")

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as users run


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("data") / "clinic.csv")


@pytest.fixture(scope="module")
def compared(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A whole comparison, and what it said."""
    root = tmp_path_factory.mktemp("compared") / "runs"
    jaxtyping.config.update("jaxtyping_disable", True)
    done = compare(data, "--hold-out", "north,west", "--methods", METHODS, "--out", root)
    jaxtyping.config.update("jaxtyping_disable", False)
    return root, done


def compare(data: Path, *options: object) -> Done:
    return call("compare", data, *READING, *SHORT, *options)


def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def began(self: ProgressBar, recipe: Any, folder: RunFolder, *, epochs: int) -> None:
        raise AssertionError(f"{recipe.method.label} is trained, and should be there")

    monkeypatch.setattr(ProgressBar, "on_run_start", began)


def interrupted_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Ctrl-C in the middle of the training of this number, counted from 1."""
    begun = []
    began, stepped = ProgressBar.on_run_start, ProgressBar.on_step

    def count(self: ProgressBar, recipe: Any, folder: RunFolder, *, epochs: int) -> None:
        begun.append(folder)
        began(self, recipe, folder, epochs=epochs)

    def stop(self: ProgressBar, step: int, steps: int) -> None:
        stepped(self, step, steps)
        if len(begun) == number:
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressBar, "on_run_start", count)
    monkeypatch.setattr(ProgressBar, "on_step", stop)


# -- the table ---------------------------------------------------------------------------------------------------------


def test_it_says_first_what_there_is_and_how_many_trainings_and_after_an_epoch_how_long(compared):
    _, done = compared
    assert done.code == 0, done
    first, second = done.out.splitlines()[:2]
    assert first == "clinic.csv: 150 rows, a table of 2 columns of numbers and 1 column of categories, 3 domains"
    assert second == "6 trainings (2 hold-outs x 3 methods x 1 seed)"
    lines = done.err.splitlines()
    assert lines[0].startswith("an epoch takes ")
    assert "for all trainings" in lines[0]
    assert [line.split()[0] for line in lines if line.startswith("[")] == [f"[{place}/6]" for place in range(1, 7)]


def test_it_prints_the_answer_and_then_the_table(compared):
    root, done = compared
    rows = [line for line in done.out.splitlines() if re.match(r"GDU \[num_bases=3\] {2,}\d", line)]
    assert "clinic.csv: accuracy on held-out domains" in done.out
    assert done.out.index("No verdict on how any method compares with ERM") < done.out.index(rows[0])
    scores = {run.result().to_json()["hold_out"]: run.result().to_json()["test"]["by_domain"] for run in all_runs(root)
              if run.result().to_json()["method"] == "gdu"}  # fmt: skip
    for hold_out in ("north", "west"):
        assert f"{100 * scores[hold_out][hold_out]:.1f}" in rows[0]


def test_it_ends_with_the_page_its_figures_beside_it(compared, data, tmp_path):
    root = tmp_path / "runs"
    shutil.copytree(compared[0], root)
    done = compare(data, "--hold-out", "north,west", "--methods", METHODS, "--out", root, "--report")
    assert done.code == 0, done
    assert done.out.splitlines()[-2].startswith(f"wrote {root / 'report.html'} (")
    beside = {path.name for path in (root / "report_files").iterdir()}
    assert {"scores.png", "scores.svg", "scores.pdf", "gates-north.png", "map-north.png", "mmd-west.csv"} <= beside
    for picture in root.glob("report_files/*.png"):
        with Image.open(picture) as image:
            image.load()


def test_it_writes_the_table_and_the_runs(compared):
    root, done = compared
    names = ["table.md", "table.tex", "table.csv", "runs.csv", "table.json"]
    assert done.out.splitlines()[-2] == "wrote " + ", ".join(str(root / name) for name in names)
    assert sorted(path.name for path in root.iterdir() if path.is_file()) == sorted(names)
    assert "verdict" in json.loads((root / "table.json").read_text())
    with open(root / "table.csv", newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)] == ["GDU [num_bases=3]", "ERM", "retrained linear head"]
    with open(root / "runs.csv", newline="") as file:
        runs = list(csv.DictReader(file))
    assert len(runs) == 6
    assert {run["hold_out"] for run in runs} == {"north", "west"}
    assert (root / "table.md").read_text().startswith("# clinic.csv: accuracy on held-out domains")
    assert len(all_runs(root)) == 6


def test_the_whole_caption_comes_with_explain_and_a_bad_margin_is_refused_first(compared, data):
    root, done = compared
    again = compare(data, "--hold-out", "north,west", "--methods", METHODS, "--out", root, "--explain", "--margin", 2)
    assert "Model selection:" in again.out
    assert "Model selection:" not in done.out
    assert json.loads((root / "table.json").read_text())["margin"] == pytest.approx(0.02)
    assert_refused(compare(data, "--margin", -1), "the margin must be a number above 0")
    compare(data, "--hold-out", "north,west", "--methods", METHODS, "--out", root)


def test_its_last_line_trains_the_method_to_take_on_all_domains(compared):
    root, done = compared
    program, *words = shlex.split(done.out.splitlines()[-1].removeprefix("next: "))
    assert program == "gated-domains"
    assert open_run_folder(Path(words[1]).parent).result().label == "ERM"  # no other is said to be better
    assert Path(words[1]).parent.parent == root
    made = call(*words, "--out", "runs", "--device", "cpu")
    assert made.code == 0, made
    assert made.out.startswith("ERM on clinic.csv, trained on all domains, seed 0\n")


def names_of_sites(lines: list[str], names: str) -> list[str]:
    """The rows of a table, their sites called by these letters in turn."""
    column = lines[0].split(",").index("site")
    rows = [line.split(",") for line in lines[1:]]
    return [
        lines[0],
        *(",".join([*row[:column], names[i % len(names)], *row[column + 1 :]]) for i, row in enumerate(rows)),
    ]


def test_three_data_sets_are_analysed_together(tmp_path):
    names = []
    for place in range(3):
        table(tmp_path / f"clinic{place}.csv", rows=80, start=7 * place)
        lines = names_of_sites((tmp_path / f"clinic{place}.csv").read_text().splitlines(), "nsew")
        (tmp_path / f"clinic{place}.csv").write_text("\n".join(lines) + "\n")
        names.append(tmp_path / f"clinic{place}.csv")
    rest = ("--methods", "erm,linear", "--out", tmp_path / "out", "--report")
    done = call("compare", *names, *READING, *SHORT, *rest)
    assert done.code == 0, done
    assert "3 data sets together: difference in accuracy to ERM" in done.out
    assert "retrained linear head over 3 data sets:" in " ".join(done.out.split())
    assert (tmp_path / "out" / "report.html").exists()
    assert (tmp_path / "out" / "report_files" / "forest.csv").exists()


def test_a_second_time_nothing_is_trained_and_the_table_is_the_same(compared, data, monkeypatch):
    root, first = compared
    before = (root / "table.md").read_bytes()
    no_training(monkeypatch)
    done = compare(data, "--hold-out", "north,west", "--methods", METHODS, "--out", root)
    assert done.code == 0, done
    assert "6 trainings (2 hold-outs x 3 methods x 1 seed), 6 of them done already" in done.out
    assert done.out.splitlines()[2:] == first.out.splitlines()[2:]
    assert done.err == ""
    assert (root / "table.md").read_bytes() == before


def test_more_seeds_train_only_what_is_new(compared, data, tmp_path):
    root = tmp_path / "runs"
    shutil.copytree(compared[0], root)
    done = compare(data, "--hold-out", "north,west", "--methods", "erm", "--seeds", 2, "--out", root)
    assert done.code == 0, done
    assert "4 trainings (2 hold-outs x 1 method x 2 seeds), 2 of them done already" in done.out
    assert [line.split(":")[0] for line in done.err.splitlines() if line.startswith("[")] == [
        "[3/4] ERM, north held out, seed 1",
        "[4/4] ERM, west held out, seed 1",
    ]


def test_trainings_that_others_stand_on_are_counted(data):
    done = compare(data, "--hold-out", "north", "--methods", "linear", "--out", "runs")
    assert done.code == 0, done
    assert "2 trainings (1 hold-out x 1 method x 1 seed, and their prerequisites)" in done.out
    assert "retrained linear head" in done.out


def test_the_runs_lie_in_a_folder_called_like_the_data(data):
    assert compare(data, "--hold-out", "north", "--methods", "erm").code == 0
    assert len(all_runs(Path("runs") / "clinic")) == 1


def test_many_domains_are_held_out_in_folds_and_that_is_said(tmp_path):
    lines = [f"{row * 0.37 % 5:.2f},s{row % 33},{'ab'[row // 33 % 2]}" for row in range(33 * 4)]
    (tmp_path / "many.csv").write_text("\n".join(["dose,site,kind", *lines]) + "\n")
    done = call("compare", tmp_path / "many.csv", "--target", "kind", "--domain", "site", *SHORT, "--methods", "erm")
    assert done.code == 0, done
    assert "33 domains are many: they are held out in folds" in done.out
    assert len(all_runs("runs/many")) == 5


def test_folds_keep_their_names(data):
    done = compare(data, "--hold-out", "folds:2", "--methods", "erm", "--out", "runs")
    assert done.code == 0, done
    assert {run.result().to_json()["hold_out"] for run in all_runs("runs")} == {"fold 1", "fold 2"}
    assert "fold 1" in Path("runs/table.md").read_text()


def test_vectors_and_images_are_compared_too(tmp_path):
    rng = np.random.default_rng(0)
    site, label = np.arange(60) % 3, np.arange(60) // 3 % 2
    inputs = (rng.normal(size=(60, 3)) + label[:, None]).astype(np.float32)
    np.savez(tmp_path / "vectors.npz", X=inputs, y=label, domain=site)
    for place in range(12):
        folder = tmp_path / "pets" / "abc"[place % 3] / ("cat", "dog")[place // 3 % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(256, size=(8, 8, 3), dtype=np.uint8)).save(folder / f"{place}.png")
    for what, hold_out in ((tmp_path / "vectors.npz", "1"), (tmp_path / "pets", "b")):
        done = call("compare", what, *SHORT, "--hold-out", hold_out, "--methods", "erm,gdu[num_bases=2,basis_size=2]",
                    "--batch-size", 4, "--validation", 0.5)  # fmt: skip
        assert done.code == 0, done
        assert Path("runs", what.stem, "table.tex").exists()


def test_patience_0_is_without_end_and_other_options_reach_the_training(data):
    done = compare(data, "--hold-out", "north", "--methods", "erm", "--patience", 0, "--class-weights", "--rate", 0.1,
                   "--schedule", "constant", "--out", "runs")  # fmt: skip
    assert done.code == 0, done
    (run,) = all_runs("runs")
    training = run.recipe()["training"]
    assert training["patience"] is None
    assert (training["class_weights"], training["rate"], training["schedule"]) == (True, 0.1, "constant")
    assert (training["epochs"], training["batch_size"]) == (1, 64)


# -- stopped -----------------------------------------------------------------------------------------------------------


def test_stopped_it_shows_what_is_done_keeps_it_and_goes_on(data, monkeypatch):
    asked = ("--hold-out", "north,west", "--methods", "erm,gdu[num_bases=2]", "--out", "runs")
    with monkeypatch.context() as patch:
        interrupted_at(patch, 3)
        done = compare(data, *asked)
    assert done.code == 130
    assert "4 trainings" in done.out
    assert "north" in done.out
    assert done.out.splitlines()[-1] == "interrupted; finished runs are kept, and the same command resumes the others"
    assert Path("runs/table.md").exists()
    finished = [run for run in all_runs("runs") if run.done]
    assert [run.result().to_json()["hold_out"] for run in finished] == ["north", "north"]
    again = compare(data, *asked)
    assert again.code == 0, again
    assert "4 trainings (2 hold-outs x 2 methods x 1 seed), 2 of them done already" in again.out
    assert [line.split(",")[0] for line in again.err.splitlines() if line.startswith("[")] == [
        "[3/4] ERM",
        "[4/4] GDU [num_bases=2]",
    ]
    assert len([run for run in all_runs("runs") if run.done]) == 4


def test_stopped_before_anything_is_done_it_says_so(data, monkeypatch):
    interrupted_at(monkeypatch, 1)
    done = compare(data, "--hold-out", "north", "--methods", "erm", "--out", "runs")
    assert done.code == 130
    assert done.out.splitlines()[-1].startswith(
        "interrupted before a run of the table was finished; the same command resumes it"
    )
    assert not Path("runs/table.md").exists()


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--hold-out", "nort"], ["no domain 'nort' to hold out; did you mean 'north'?"]),
        (["--hold-out", "folds:9"], ["the number of folds must be a whole number from 2 to 3"]),
        (["--methods", "erm,gduu"], ["--methods: there is no method 'gduu'; did you mean 'gdu'?"]),
        (["--methods", "gdu[gate=cosin]"], ["gate must be one of", "did you mean 'cosine'?"]),
        (["--methods", "gdu[num_base=3]"], ["num_base is not known; did you mean 'num_bases'?"]),
        (["--methods", "gdu,"], ["cannot be read; write it as gdu,erm"]),
        (["--body", "mpl"], ["--body: there is no body 'mpl'; did you mean 'mlp'?"]),
        (["--body", "small"], ["'small' takes images", "mlp, identity"]),
        (["--validation", 2], ["validation must be", "below 1, got 2"]),
        (["--epochs", 0], ["epochs must be a whole number of at least 1, got 0"]),
        (["--patience", -1], ["patience must be"]),
        (["--optimizer", "adamm"], ["optimizer must be one of", "did you mean"]),
        (["--precision", "33"], ["precision must be one of"]),
        (["--device", "tpu"], ["the device must be auto, cpu or cuda, got 'tpu'"]),
        (["--domain", "sight"], ["no column 'sight' (--domain)", "did you mean 'site'?"]),
    ],
    ids=lambda part: " ".join(map(str, part)) if part[0].startswith("--") else "",
)
def test_what_makes_no_sense_is_refused_and_no_folder_is_made(data, options, words):
    assert_refused(compare(data, *options), *words)
    assert list(Path().iterdir()) == []


def test_options_that_are_no_numbers_exit_with_2(data):
    for options in (("--seeds", 0), ("--seeds", "many"), ("--epochs", "1.5"), ("--colour", "red")):
        done = compare(data, *options)
        assert done.code == 2
        assert "Traceback" not in done.err
    assert list(Path().iterdir()) == []


def test_without_domains_it_says_how_to_name_them(data):
    done = call("compare", data, "--target", "sick", *SHORT)
    assert_refused(done, "clinic.csv has no domains to hold out; name the column that holds them (--domain COLUMN)")


def test_one_domain_is_not_enough(data, tmp_path):
    lines = data.read_text().splitlines()
    (tmp_path / "one.csv").write_text("\n".join([lines[0], *(line for line in lines if ",west," in line)]) + "\n")
    done = call("compare", tmp_path / "one.csv", *READING, *SHORT)
    assert_refused(done, "rows of one domain only, 'west'", "add data of another domain")
    assert list(Path().iterdir()) == []


def test_a_run_folder_of_another_version_is_refused(compared, data, tmp_path):
    root = tmp_path / "runs"
    shutil.copytree(compared[0], root)
    run = all_runs(root)[0]
    changed(run.path / "run.json", format=2)
    done = compare(data, "--hold-out", "north,west", "--methods", METHODS, "--out", root)
    assert_refused(done, str(run.path), "has format 2, this version reads 1; choose another --out, or delete")


def test_a_checkpoint_cut_in_half_is_refused_with_the_cure(data, monkeypatch):
    """One that ``train`` left: it makes the same run."""
    with monkeypatch.context() as patch:
        patch.setattr(ProgressBar, "on_step", _stop_at_the_second_step)
        cut = call("train", data, *READING, "--epochs", 1, "--device", "cpu", "--method", "erm", "--hold-out", "north",
                   "--batch-size", 16, "--checkpoint-seconds", 0, "--out", "runs")  # fmt: skip
    assert cut.code == 130
    (run,) = all_runs("runs")
    (checkpoint,) = run.checkpoints
    state = checkpoint / "state.json"
    state.write_bytes(state.read_bytes()[: state.stat().st_size // 2])
    asked = ("--hold-out", "north", "--methods", "erm", "--batch-size", 16, "--out", "runs")
    assert_refused(compare(data, *asked), str(checkpoint), "delete")
    shutil.rmtree(checkpoint)
    assert compare(data, *asked).code == 0
    assert run.done


def _stop_at_the_second_step(self: ProgressBar, step: int, steps: int) -> None:
    if step == 2:
        raise KeyboardInterrupt


def test_a_folder_that_cannot_be_written_to_is_refused(data):
    Path("file").write_text("in the way")
    for out in ("file", "file/runs"):
        assert_refused(compare(data, "--methods", "erm", "--out", out), "file is a file, and runs go into a folder")
    assert Path("file").read_text() == "in the way"


# -- several data sets, and trainings that break off -------------------------------------------------------------------


def test_several_data_sets_have_a_folder_and_a_table_each(tmp_path):
    first, second = table(tmp_path / "one.csv"), table(tmp_path / "two.csv", rows=120)
    found = call("compare", first, second, *READING, *SHORT, "--methods", "erm", "--out", tmp_path / "runs")
    assert found.code == 0
    assert [(tmp_path / "runs" / name / "table.md").is_file() for name in ("one", "two")] == [True, True]
    assert found.out.index("one.csv: accuracy") < found.out.index("two.csv: accuracy")


def test_two_data_sets_of_one_name_are_refused(tmp_path):
    (tmp_path / "other").mkdir()
    first, second = table(tmp_path / "one.csv"), table(tmp_path / "other" / "one.csv")
    found = call("compare", first, second, *READING, *SHORT, "--out", tmp_path / "runs")
    assert found.code == 2
    assert "two of these data would go to a folder one" in found.err


def test_a_training_that_breaks_off_stops_no_other_and_is_named_under_the_table(tmp_path):
    data, out = table(tmp_path / "one.csv"), tmp_path / "runs"
    command = ("compare", data, *READING, *SHORT, "--hold-out", "north", "--methods", "erm[rate=1e30],erm,linear")
    for _ in range(2):  # the same command again tries it no more, and says the same
        found = call(*command, "--out", out)
        assert found.code == 2
        assert "1 training failed and is not in the table" in found.err
        assert "ERM [rate=1e+30] with north held out, seed 0" in found.err
        written = (out / "table.md").read_text()
        assert "| ERM |" in written
        assert "retrained linear head" in written
        assert "1e+30" not in written.splitlines()[2]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a process cannot be pinned to a core here")
def test_a_hundred_refusals_on_one_core_all_exit_with_2(data):
    """There a thread of the table reader may get its turn after the interpreter has ended, which aborts the process."""
    core = min(os.sched_getaffinity(0))
    pinned = f"import os; os.sched_setaffinity(0, [{core}]); from gated_domains.cli import main; main()"
    command = [sys.executable, "-c", pinned, "compare", str(data), "--target", "nothere"]
    ends = collections.Counter(subprocess.run(command, capture_output=True).returncode for _ in range(100))
    assert ends == {2: 100}
