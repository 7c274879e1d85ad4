"""``gated-domains suggest``: numbers, a curve, a picture; honest, and quick to refuse."""

from __future__ import annotations

import errno
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

import made_runs
from gated_domains import cli
from gated_domains.choose.terminal import UNICODE
from gated_domains.data import errors
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.experiments.model import Model
from gated_domains.experiments.recipe_checks import parse_methods, read_recipe
from gated_domains.experiments.run_features import body_features, features_of_run
from gated_domains.experiments.suggestion import suggest_settings
from gated_domains.runs.recipe import DataSettings

QUICK = ("--most", "5", "--runs", "2")
READING = ("--target", "ill", "--domain", "site")


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _a_place_of_its_own(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


@pytest.fixture
def run(monkeypatch, capsys) -> Callable[..., Done]:
    """The command line in this process."""

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["gated-domains", "suggest", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        printed = capsys.readouterr()
        return Done(code, printed.out, printed.err)

    return call


def write_table(path: Path, *, clusters: int = 3, poison: str | None = None) -> Path:
    """Clusters that are no domains; ``poison`` names a site whose numbers are nonsense."""
    rng = np.random.default_rng(0)
    lines = ["a,b,c,site,ill"]
    for row in range(180):
        a, b, c = rng.normal(size=3) + 9 * np.eye(3)[row % clusters]
        site = "xyz"[row // 60]
        a, b, c = (1e6 * row, 1e6, -5.0) if site == poison else (a, b, c)
        lines.append(f"{a:.4f},{b:.4f},{c:.4f},{site},{'no' if row % 7 < 3 else 'yes'}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def table(tmp_path) -> Path:
    return write_table(tmp_path / "table.csv")


def assert_refused(done: Done, *words: str) -> None:
    """Exit code 2 and one sentence of error, nothing printed, nothing written."""
    assert done.code == 2, done
    assert done.out == ""
    assert "Traceback" not in done.err
    said = done.err.splitlines()[-1]
    assert said.startswith("error: ")
    for word in words:
        assert word in said
    assert os.listdir() == []


def test_it_prints_table_curve_numbers_and_how_to_use_them_and_draws_them(run, table):
    done = run(table, *READING, *QUICK)
    assert done.code == 0, done
    lines = done.out.splitlines()
    assert lines[0] == "table.csv: 180 rows, a table of 3 columns of numbers"
    assert lines[1] == "180 rows as gates see them: input, 3 numbers each, standardised"
    assert [line.split()[0] for line in lines if line.endswith("<- best")] == ["3"]
    assert sum(UNICODE.best in line for line in lines) == 2  # in the curve, and in its legend
    assert "num_bases 3" in lines
    assert any(line.startswith("the median distance") and "±" in line for line in lines)
    assert "not at accuracy" in done.out
    assert "flat" not in done.out
    assert lines[-2].startswith("use it: gated-domains compare ")
    assert lines[-1] == "wrote suggest.png"
    with Image.open("suggest.png") as image:
        image.load()
        assert image.width > 2 * image.height
        assert np.asarray(image.convert("L")).std() > 5


def test_what_it_says_to_use_reads_the_same_data_with_that_m(run, table, tmp_path):
    odd = tmp_path / "a $table's.csv"
    odd.write_text(table.read_text())
    done = run(odd, *READING, *QUICK, "--drop", "b, c", "--hold-out", "x", "--json")
    words = shlex.split(json.loads(done.out)["use"])
    assert words[:3] == ["gated-domains", "compare", str(odd)]
    given = dict(zip(words[3::2], words[4::2], strict=True))
    methods = given.pop("--methods")
    assert given == {"--target": "ill", "--domain": "site", "--drop": "b,c", "--hold-out": "x"}
    assert f"gdu[num_bases={json.loads(done.out)['num_bases']}]" in methods
    assert len(parse_methods(methods)) == 3
    flagged = run(odd, *READING, *QUICK, "--drop-missing-target", "--json")
    assert "--domain site --drop-missing-target --methods" in json.loads(flagged.out)["use"]


def test_json_is_all_that_is_printed(run, table):
    done = run(table, *READING, *QUICK, "--json", "--out", "deep/er/picture.svg")
    found = json.loads(done.out)
    assert found["num_bases"] == 3
    assert [point["num_bases"] for point in found["curve"]] == [2, 3, 4, 5]
    best = found["curve"][1]
    assert best["mean"] == pytest.approx(np.mean(best["runs"]))
    assert best["std"] == pytest.approx(np.std(best["runs"], ddof=1))
    assert found["kappa"] > 0
    assert found["gdu"]["sigma"] < found["sigma"]
    assert found["gating"] == "input"
    assert found["picture"] == "deep/er/picture.svg"
    assert Path("deep/er/picture.svg").read_text().startswith("<?xml")


def test_the_held_out_domain_is_never_looked_at(run, table, tmp_path):
    (tmp_path / "other").mkdir()
    poisoned = write_table(tmp_path / "other" / "table.csv", poison="y")
    held_out = (*READING, *QUICK, "--hold-out", "y", "--json")
    first, second = (json.loads(run(path, *held_out).out) for path in (table, poisoned))
    assert first.pop("use") != second.pop("use")  # it names the file
    assert first == second
    assert first["hold_out"] == "y"
    assert first["rows"] == 96  # four in five of the two other sites
    everything = json.loads(run(poisoned, *READING, *QUICK, "--json").out)
    assert everything["rows"] == 180
    assert everything["sigma"] != first["sigma"]
    assert any("--hold-out NAME" in note for note in everything["notes"])
    assert not any("--hold-out NAME" in note for note in first["notes"])


def test_noise_gives_a_flat_curve_and_it_says_so(run, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "noise.npz", X=rng.normal(size=(150, 8)), y=np.arange(150) % 2, domain=np.arange(150) % 3)
    assert "the curve is flat" in run(tmp_path / "noise.npz", "--runs", "3").out


def test_images_are_seen_through_filters(run, tmp_path):
    rng = np.random.default_rng(0)
    for domain, brightness in (("day", 200), ("night", 20)):
        for group in ("cat", "dog"):
            folder = tmp_path / "pets" / domain / group
            folder.mkdir(parents=True)
            for number in range(15):
                pixels = np.clip(brightness + rng.normal(size=(10, 10, 3)) * 9, 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    done = run(tmp_path / "pets", *QUICK, "--json")
    assert done.code == 0, done
    found = json.loads(done.out)
    assert (found["gating"], found["gating_features"], found["num_bases"]) == ("filters", 134, 2)


def test_t_sne_and_other_scores_can_be_asked_for(run, table):
    found = json.loads(
        run(table, *READING, *QUICK, "--on", "tsne", "--score", "silhouette", "--max-rows", 60, "--json").out
    )
    assert (found["on"], found["score"], found["rows_a_run"]) == ("tsne", "silhouette", 60)


def test_the_same_seed_says_the_same_and_another_seed_something_else(run, table):
    first, again, other = (run(table, *READING, *QUICK, "--seed", seed, "--json").out for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_data_made_in_code_are_made_by_the_same_seed_again(run):
    done = run("synthetic", *QUICK, "--max-rows", 200, "--seed", "3", "--json")
    assert "--data-seed 3 " in json.loads(done.out)["use"]
    assert "--data-seed" not in run("synthetic", *QUICK, "--max-rows", 200).out


def test_a_terminal_without_unicode_gets_ascii(table):
    command = [Path(sys.executable).parent / "gated-domains", "suggest", table, *READING, *QUICK]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, timeout=120)
    assert done.returncode == 0, done
    text = done.stdout.decode("ascii")
    assert "# best" in text
    assert "\\u" not in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--score", "silhuette"], ["no --score 'silhuette'", "did you mean 'silhouette'?"]),
        (["--on", "t-sne"], ["no --on 't-sne'", "did you mean 'tsne'?"]),
        (["--from", "inputs"], ["no view 'inputs'", "did you mean 'input'?"]),
        (["--from", "style"], ["'style'", "nothing is trained yet"]),
        (["--hold-out", "xx"], ["there is no domain 'xx' to hold out"]),
        (["--hold-out", "each"], ["--hold-out each stands for 3 hold-outs (x, y, z)"]),
        (["--most", "1"], ["--most must be at least 3, got 1"]),
        (["--most", "500"], ["--most 500", "144 rows", "try --most 143"]),
        (["--runs", "0"], ["--runs must be at least 1, got 0"]),
        (["--max-rows", "2"], ["--max-rows must be at least 4, got 2"]),
        (["--max-rows", "10"], ["--most 12", "try --most 9"]),
        (["--out", "curve.txt"], ["curve.txt: a picture is written as .png, .svg, .pdf"]),
        (["--drop", "a,b,c"], []),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("--") else "",
)
def test_bad_options_are_refused_in_a_sentence(run, table, options, words):
    assert_refused(run(table, *READING, *options), *words)


def test_constant_features_are_refused(run, tmp_path):
    np.savez(tmp_path / "same.npz", X=np.ones((60, 4)), y=np.arange(60) % 2, domain=np.arange(60) % 3)
    assert_refused(run(tmp_path / "same.npz"), "all 60 rows of same.npz look the same to gates")


def test_rows_that_are_mostly_copies_are_refused(run, tmp_path):
    values = np.zeros((60, 2))
    values[:14] = np.random.default_rng(0).normal(size=(14, 2))
    np.savez(tmp_path / "copies.npz", X=values, y=np.arange(60) % 2, domain=np.arange(60) % 3)
    assert_refused(run(tmp_path / "copies.npz", "--most", "5"), "identical")


def test_a_place_that_cannot_be_written_to_is_refused_before_the_work(run, table, tmp_path):
    (tmp_path / "folder.png").mkdir()
    for place, words in (
        (table / "a.png", "table.csv is a file, not a folder"),
        (table / "deep" / "a.png", "table.csv is a file, not a folder"),
        (tmp_path / "folder.png", "is a folder; name a picture in it"),
    ):
        done = run(table, *READING, "--out", place)
        assert_refused(done, words)
        assert "clustering" not in done.err


def test_a_folder_without_permission_is_refused_before_the_work(run, table, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    done = run(table, *READING)
    assert_refused(done, "nothing can be written in ")
    assert "clustering" not in done.err


def test_on_a_full_disk_the_numbers_are_printed_and_no_half_picture_is_left(run, table, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    Path("suggest.png").write_bytes(b"old")
    monkeypatch.setattr(errors.os, "fsync", full)
    done = run(table, *READING, *QUICK)
    assert done.code == 2
    assert "num_bases 3" in done.out
    assert "wrote" not in done.out
    assert "the disk is full" in done.err
    assert os.listdir() == ["suggest.png"]
    assert Path("suggest.png").read_bytes() == b"old"


# -- features of a trained run ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, Path]:
    """A table of three sites, and the folder of an ERM that never saw the last of them."""
    place = tmp_path_factory.mktemp("trained")
    table = write_table(place / "table.csv")
    recipe = made_runs.recipe(
        "erm", hold_out="z", body="mlp", data=DataSettings(what=str(table), target="ill", domain="site")
    )
    reading = Reading(target="ill", domain="site")
    return table, made_runs.runner(load_data(table, reading), place / "runs").run(recipe).path


def features_by_hand(folder: Path, dataset: DomainDataset) -> np.ndarray:
    """What the blocks of the run's network make of its training rows, one row at a time."""
    model = Model.load(folder)
    split = made_runs.runner(dataset, folder.parent).planner.split(read_recipe(folder / "recipe.yaml"))
    values = model.schema.encoding.prepare(dataset.inputs).read(split.train)
    body = model.method.backbone.body.eval()
    with torch.no_grad():
        return torch.stack([body(torch.from_numpy(row[None]).float())[0] for row in values]).numpy()


def test_the_features_of_a_run_are_those_of_its_network_on_its_training_rows(run, trained):
    table, folder = trained
    dataset = load_data(table, Reading(target="ill", domain="site"))
    expected = features_by_hand(folder, dataset)
    found = features_of_run(folder)
    np.testing.assert_allclose(found.values, expected, rtol=1e-4, atol=1e-6)
    said = json.loads(run("--from-run", folder, *QUICK, "--json").out)
    assert (said["gating"], said["hold_out"], said["rows"]) == ("features", "z", 96)
    assert said["gating_features"] == expected.shape[1]
    whole = suggest_settings(expected, most=5, runs=2)
    assert said["num_bases"] == whole.num_bases
    assert said["sigma"] == pytest.approx(whole.sigma.sigma, rel=1e-4)
    assert said["sigma"] != pytest.approx(json.loads(run(table, *READING, *QUICK, "--json").out)["sigma"], rel=0.05)


def test_it_says_which_features_it_looked_at_and_how_to_use_them(run, trained):
    table, folder = trained
    done = run("--from-run", str(folder)[:-4], *QUICK)
    assert done.code == 0, done
    assert "96 training rows (z held out) as features of a trained network (ERM, " in done.out
    (use,) = [line for line in done.out.splitlines() if line.startswith("use it: ")]
    words = shlex.split(use.removeprefix("use it: "))
    assert words[:3] == ["gated-domains", "compare", str(table)]
    given = dict(zip(words[3::2], words[4::2], strict=True))
    assert "gating=features" in given.pop("--methods")
    assert given == {"--target": "ill", "--domain": "site", "--hold-out": "z", "--body": "mlp"}


def test_other_rows_can_be_named_for_the_features_of_a_run(run, trained, tmp_path):
    few = tmp_path / "few.csv"
    few.write_text("\n".join(trained[0].read_text().splitlines()[:61]) + "\n")
    found = json.loads(run(few, "--from-run", trained[1], *QUICK, "--json").out)
    assert (found["data"], found["rows"]) == ("few.csv", 60)


def test_a_run_with_gates_shows_what_its_experts_see(run, tmp_path):
    dataset = made_runs.vectors()
    folder = made_runs.runner(dataset, tmp_path).run(made_runs.recipe("gdu", body="mlp")).path
    rows = DomainDataset.from_arrays(dataset.inputs.values, dataset.targets, name="rows")
    model = Model.load(folder)
    with torch.no_grad():
        expected = model.method.features(
            torch.from_numpy(model.schema.encoding.prepare(rows.inputs).read(np.arange(40)))
        )
    np.testing.assert_allclose(body_features(model, rows.take(np.arange(40))), expected.numpy(), rtol=1e-4, atol=1e-5)


def test_options_that_a_run_decides_and_runs_that_cannot_be_looked_at_are_refused(run, trained, tmp_path):
    _, folder = trained
    assert_refused(run("--from-run", folder, "--hold-out", "x"), "--hold-out x", "those of the run")
    assert_refused(run("--from-run", folder, "--from", "input"), "--from input", "those of the run")
    assert_refused(run("--from-run", folder, "--target", "ill"), "recipe says how its data are read")
    assert_refused(run("--from-run", tmp_path), "is no run")
    assert_refused(run(), "no data are named", "--from-run RUN")


def test_training_rows_that_changed_are_refused_with_the_cure(run, trained, tmp_path):
    table, folder = trained
    kept = table.read_text()
    try:
        write_table(table, poison="x")
        assert_refused(run("--from-run", folder), "trained on other rows than table.csv has now", "name the file")
        table.unlink()
        assert_refused(run("--from-run", folder), "table.csv", "name the file of rows to look at")
    finally:
        table.write_text(kept)


def test_an_ensemble_has_no_one_network_to_look_at(run, tmp_path):
    work = made_runs.runner(made_runs.vectors(), tmp_path)
    folder = work.run(made_runs.recipe("ensemble", settings={"members": 2})).path
    with pytest.raises(DataError, match=r"ensemble of networks has no one network .*erm or gdu"):
        body_features(Model.load(folder), made_runs.vectors())
