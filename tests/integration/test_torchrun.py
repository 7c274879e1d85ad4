"""The commands with several processes: losses of one, one that writes and speaks, none that waits for ever."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchrun_workers
from safetensors.torch import load_file
from typer.testing import CliRunner

import made_runs
from gated_domains.cli import app, one_voice
from gated_domains.data.batches import place
from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.experiments.model import Model
from gated_domains.runs.folder import RunFolder, all_runs
from gated_domains.training.callbacks.checkpoint import newest_checkpoint
from gated_domains.training.prediction import predict_rows

DEADLINE = 240.0
RANKS = 2
READING = ("--target", "sick", "--domain", "site")
SMALL = ("--hold-out", "north", "--device", "cpu", "--batch-size", "8", "--epochs", "3", "--rate", "0.01")
ALIKE = {  # neither batch norm nor dropout: two processes compute what one does
    "erm": ("--method", "erm", "--body", "identity"),
    "weighted": ("--method", "erm", "--body", "identity", "--class-weights"),
    "averaged": ("--method", "erm-ensemble", "--body", "identity", "--ema", "0.9"),
    "gdu": ("--method", "gdu[lambda_entropy=0.1,lambda_orth=0.1]", "--body", "identity"),
    "over the valley": ("--method", "erm", "--body", "identity", "--swad"),
    "fine-tuned": ("--method", "linear", "--body", "identity"),
}
DIFFERENT = {
    "gdu with norms": ("--method", "gdu", "--body", "mlp"),
    "linear on norms": ("--method", "linear", "--body", "mlp"),
    "mixed": ("--method", "fish", "--body", "mlp", "--mixstyle", "0.5", "--swad"),
    "gated by batch": ("--method", "gdu[train_gates=batch]", "--body", "identity"),
    "uneven": ("--method", "erm", "--body", "identity", "--batch-size", "9"),
}
OF_IMAGES = {  # no dropout, and moments by basis are pooled over processes
    "gdu on images": ("--method", "gdu"),
    "averaged gdu on images": ("--method", "gdu", "--ema", "0.9"),
    "mixed images": ("--method", "gdu[fourier_mix=1,consistency=1]"),
}
CUT = ("--method", "gdu[gating=style]", "--body", "mlp", "--ema", "0.9", "--checkpoint-seconds", "0")
ERM = ALIKE["erm"]


@dataclass(frozen=True)
class Found:
    """What two processes left behind."""

    folder: Path
    data: Path
    ranks: list[dict[str, Any]]
    codes: list[int]

    def command(self, name: str, *options: str) -> list[str]:
        return train(self.data, self.folder / name, *options)

    def runs(self, name: str) -> dict[str, RunFolder]:
        return {run.recipe()["method"]["name"]: run for run in all_runs(self.folder / name)}


def train(data: Path, out: Path, *options: str) -> list[str]:
    return ["train", str(data), *READING, *SMALL, *options, "--out", str(out)]


def train_on_images(folder: Path, out: Path, *options: str) -> list[str]:
    path = folder / "images.npz"
    made = made_runs.images(each=16)
    names = np.array(made.domain_names)[made.domains]
    np.savez(path, images=made.inputs.values, labels=made.targets, domains=names)
    return ["train", str(path), *SMALL, *options, "--body", "small", "--out", str(out)]


def compare(data: Path, out: Path) -> list[str]:
    chosen = ("--methods", "gdu,erm", "--seeds", "1", "--body", "identity")
    return ["compare", str(data), *READING, *SMALL, *chosen, "--out", str(out)]


def waited_for(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """Exit codes and all that was said; whatever does not end is killed."""
    try:
        said = [process.communicate(timeout=DEADLINE)[0] for process in processes]
    except subprocess.TimeoutExpired:
        pytest.fail(f"the processes did not end in {DEADLINE:.0f} seconds")
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, text) for process, text in zip(processes, said, strict=True)]


def surroundings(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **more}


def two_processes(commands: Path, found: Path) -> list[tuple[int, str]]:
    """As torchrun starts them, but for torchrun itself, which would end all when one ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    script = [sys.executable, torchrun_workers.__file__, str(commands), str(found)]
    return waited_for(
        [
            subprocess.Popen(
                script,
                env=surroundings(RANK=str(rank), LOCAL_RANK=str(rank), TORCHELASTIC_RUN_ID="test", **shared),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(RANKS)
        ]
    )


def torchrun(*arguments: str) -> tuple[int, str]:
    """The real command, in two processes."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    command = [*launcher, "-m", "gated_domains", *arguments]
    process = subprocess.Popen(command, env=surroundings(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return waited_for([process])[0]


def alone(arguments: list[str]) -> None:
    ended = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert ended.exit_code == 0, ended.output


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> Found:
    """Two processes go through all commands, one after the other; the last one kills them."""
    folder = tmp_path_factory.mktemp("torchrun")
    data = made_runs.table(folder / "sick.csv", 100)
    commands = {name: train(data, folder / name, *options) for name, options in {**ALIKE, **DIFFERENT}.items()}
    commands |= {name: train_on_images(folder, folder / name, *options) for name, options in OF_IMAGES.items()}
    commands["compare"] = compare(data, folder / "compare")
    for name in ("locked", "another version"):
        commands[name] = train(data, folder / name, *ERM)
        alone(commands[name])
    (locked,), (other,) = all_runs(folder / "locked"), all_runs(folder / "another version")
    (locked.path / "result.json").unlink()
    made_runs.changed(other.path / "run.json", format=99)
    commands |= {
        "no folder": train(data, data / "in a file", *ERM),
        "three devices": [*train(data, folder / "three devices", *ERM), "--devices", "3"],
        "broken": train(data, folder / "broken", *ERM),
        "whole": train(data, folder / "whole", *CUT),
        "killed": train(data, folder / "killed", *CUT),
    }
    (folder / "commands.json").write_text(json.dumps(commands))
    with locked.lock():
        ends = two_processes(folder / "commands.json", folder)
    shutil.copytree(folder / "killed", folder / "left alone")
    ranks = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(RANKS)]
    assert all(rank.keys() == commands.keys() - {"killed"} for rank in ranks), ends
    return Found(folder=folder, data=data, ranks=ranks, codes=[code for code, _ in ends])


@pytest.mark.parametrize("name", ALIKE)
def test_two_processes_have_the_losses_the_scores_and_the_weights_of_one(found, name, tmp_path):
    alone(train(found.data, tmp_path, *ALIKE[name]))
    for one in all_runs(tmp_path):
        two = found.runs(name)[one.recipe()["method"]["name"]]
        assert two.name == one.name
        assert of_processes(two) == of_processes(one) == []
        for ours, theirs in zip(two.metrics(), one.metrics(), strict=True):
            assert ours["train"] == pytest.approx(theirs["train"], abs=1e-5)
            assert ours["validation"] == theirs["validation"]
            assert ours["measures"] == pytest.approx(theirs["measures"], abs=1e-4)
        assert close(weights(two), weights(one))


@pytest.mark.parametrize("name", ["gdu on images", "averaged gdu on images"])
def test_two_processes_train_norms_by_basis_as_one_does(found, name, tmp_path):
    alone(train_on_images(tmp_path, tmp_path / "alone", *OF_IMAGES[name]))
    (one,), (two,) = all_runs(tmp_path / "alone"), found.runs(name).values()
    assert of_processes(two) == []
    for ours, theirs in zip(two.metrics(), one.metrics(), strict=True):
        assert ours["train"] == pytest.approx(theirs["train"], rel=1e-3)
    assert close(weights(two), weights(one), far=1e-3)


@pytest.mark.parametrize("name", [*ALIKE, *DIFFERENT, *OF_IMAGES, "compare", "whole"])
def test_the_first_process_alone_speaks(found, name):
    first, second = (rank[name] for rank in found.ranks)
    assert (first["code"], second["code"]) == (0, 0), (first, second)
    assert first["out"]
    assert "[1/" in first["err"]
    assert second["out"] == second["err"] == ""


def of_processes(run: RunFolder) -> list[str]:
    return [note for note in run.result().to_json()["notes"] if "processes" in note]


def test_what_is_per_process_is_said_in_the_notes(found):
    notes = {run.recipe()["method"]["name"]: of_processes(run) for run in found.runs("linear on norms").values()}
    notes |= {name: of_processes(run) for name, run in found.runs("gdu with norms").items()}
    per_process = ["with 2 processes, batch-norm statistics, dropout masks are per process"]
    shared = ["with 2 processes, dropout masks are per process"]  # moments by basis are pooled over processes
    assert notes == {"gdu": shared, "erm": per_process, "linear": []}
    assert "note: with 2 processes" in found.ranks[0]["gdu with norms"]["out"]


def test_that_images_are_mixed_within_the_share_of_a_process_is_noted(found):
    (run,) = found.runs("mixed images").values()
    assert of_processes(run) == ["with 2 processes, images are mixed within each process's share of a batch"]
    assert math.isfinite(run.metrics()[-1]["train"]["consistency"])


def test_that_batches_of_pseudo_domains_are_within_the_share_of_a_process_is_noted(found):
    (run,) = found.runs("gated by batch").values()
    assert of_processes(run) == ["with 2 processes, gates of batches are per process"]
    assert math.isfinite(run.metrics()[-1]["train"]["task"])


def test_rows_that_cannot_be_shared_are_left_out_and_said_to_be(found):
    (run,) = found.runs("uneven").values()
    assert of_processes(run) == ["with 2 processes, 1 of the 9 rows of a batch cannot be shared: left out"]


def test_the_number_of_processes_is_kept_with_the_run(found):
    (run,) = found.runs("gdu").values()
    assert json.loads((run.path / "environment.json").read_text())["processes"] == 2


@pytest.mark.parametrize("name", ["gdu with norms", "linear on norms", "mixed", "gdu", "gated by batch"])
def test_predictions_of_both_processes_are_those_of_the_model_that_is_kept(found, name):
    """Running statistics differ from process to process; the ones that are kept must be the ones that predict."""
    dataset = load_data(found.data, Reading(target="sick", domain="site"))
    for run in found.runs(name).values():
        model, kept = Model.load(run.path), run.predictions()
        said = predict_rows(model.method, place(dataset, model.schema.encoding), kept["rows"]).arrays()
        for part, values in said.items():
            np.testing.assert_allclose(kept[part], values, rtol=1e-5, atol=1e-6, err_msg=part)


def test_a_comparison_is_made_by_all_and_written_by_the_first(found):
    assert "on a new domain" in found.ranks[0]["compare"]["out"]
    assert {"table.md", "table.json", "report.html"} <= {path.name for path in (found.folder / "compare").iterdir()}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("locked", "another process (pid {pid}) is at work in"),
        ("another version", "has format 99, this version reads 1; choose another --out"),
        ("no folder", "is a file, and runs go into a folder; choose another --out"),
        ("three devices", "torchrun started 2 processes here, but devices is 3; leave it out"),
    ],
)
def test_what_is_refused_is_refused_in_every_process(found, name, reason):
    for rank in found.ranks:
        assert rank[name]["code"] == 2
        assert rank[name]["out"] == ""
        assert reason.format(pid=os.getpid()) in " ".join(rank[name]["err"].split())


def test_a_loss_that_is_no_number_in_one_process_is_told_by_all_alike(found):
    first, second = (rank["broken"] for rank in found.ranks)
    assert (first["code"], second["code"]) == (2, 2)
    assert first["err"].strip().endswith(second["err"].strip())
    assert f"not a finite number at step {torchrun_workers.BROKEN_AT} " in second["err"]


def test_a_training_of_two_processes_is_no_training_of_one(found):
    assert found.codes == [-signal.SIGKILL] * RANKS
    ended = CliRunner().invoke(app, train(found.data, found.folder / "left alone", *CUT))
    assert "was made by 2 processes, and here are 1: go on with as many" in str(ended.exception)


@pytest.mark.slow
def test_a_killed_training_goes_on_to_the_same_weights(found):
    (cut,), (whole,) = found.runs("killed").values(), found.runs("whole").values()
    kept = newest_checkpoint(cut.path)
    assert kept is not None
    assert not cut.done
    assert kept.name == f"checkpoint-{torchrun_workers.KILLED_AT - 2:09d}"
    code, said = torchrun(*train(found.data, found.folder / "killed", *CUT))
    assert code == 0, said
    assert said.count("run: ") == said.count("[1/1]") == 1, said
    assert weights(cut).keys() == weights(whole).keys()
    for name, value in weights(whole).items():
        assert torch.equal(weights(cut)[name], value), name
    assert made_runs.without_times(cut) == made_runs.without_times(whole)
    assert made_runs.digest(cut.path / "predictions.npz") == made_runs.digest(whole.path / "predictions.npz")


@pytest.mark.slow
def test_a_refusal_ends_torchrun_and_is_said_once(found):
    code, said = torchrun(*train(found.data, found.folder / "another version", *ERM))
    assert code != 0
    assert said.count("has format 99") == said.count("error: ") == 1, said
    assert "exitcode  : 2" in said
    assert "fault of gated-domains" not in said


def test_devices_without_torchrun_are_refused_with_the_command_that_starts_them(found, tmp_path):
    ended = CliRunner().invoke(app, [*train(found.data, tmp_path, *ERM), "--devices", "2"])
    assert "start with `torchrun --nproc-per-node 2 -m gated_domains train" in str(ended.exception)


@pytest.mark.parametrize(
    ("rank", "error", "waits"),
    [
        ("0", DataError("no"), 0),
        ("1", DataError("no"), 4),
        ("0", RuntimeError("lost"), 2),
        ("1", RuntimeError("lost"), 4),
    ],
)
def test_a_process_waits_for_the_one_that_knows_more(monkeypatch, capsys, rank, error, waits):
    waited: list[float] = []
    monkeypatch.setattr(one_voice.time, "sleep", waited.append)
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "2")

    @one_voice.one_voice()
    def command() -> None:
        print("a word")
        raise error

    with pytest.raises(type(error)):
        command()
    assert waited == [waits]
    assert capsys.readouterr().out == ("a word\n" if rank == "0" else "")


def test_one_process_waits_for_nobody(monkeypatch):
    monkeypatch.setattr(one_voice.time, "sleep", pytest.fail)
    with pytest.raises(RuntimeError), one_voice.one_voice():
        raise RuntimeError("at once")


def weights(run: RunFolder) -> dict[str, torch.Tensor]:
    return load_file(run.path / "model.safetensors")


def close(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor], far: float = 1e-5) -> bool:
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=far, atol=far, msg=name)
    return True
