"""What a run folder keeps of its surroundings: enough to make it again, and nobody's secrets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import gated_domains
from gated_domains.runs import provenance as module
from gated_domains.runs.provenance import environment, machine, machine_of


@pytest.fixture(autouse=True)
def asked_anew():
    module._revision.cache_clear()
    module._cpu.cache_clear()
    yield
    module._revision.cache_clear()
    module._cpu.cache_clear()


def test_versions_machine_and_device_are_there_and_fit_into_json():
    found = json.loads(json.dumps(environment("cpu")))
    assert found["gated_domains"] == gated_domains.__version__
    assert found["python"] == ".".join(str(part) for part in sys.version_info[:3])
    assert found["torch"] == torch.__version__
    assert found["device"] == "cpu"
    assert found["gpu"] is None
    assert found["cores"] >= 1
    assert found["cpu"]


def test_the_gpu_is_named_when_the_run_is_on_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU of {device}")
    assert environment("cuda:1")["gpu"] == "GPU of cuda:1"
    assert machine("cuda:1").startswith("GPU of cuda:1, torch ")
    assert machine_of(environment("cuda:1")) == machine("cuda:1")


def test_the_command_tells_neither_home_nor_password(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("USERPROFILE", "/home/ada")
    arguments = [
        "compare",
        "/home/ada/data.csv",
        "--out=/home/ada/runs",
        "/srv/home/ada/x",
        "/home/adam/y",
        "/home/ada",
    ]
    monkeypatch.setattr(
        sys, "argv", ["/home/ada/.venv/bin/gated-domains", *arguments, "https://ada:secret@host/x@y.csv"]
    )
    assert environment("cpu")["command"] == [
        *("gated-domains", "compare", "~/data.csv", "--out=~/runs", "/srv/home/ada/x", "/home/adam/y", "~"),
        "https://host/x@y.csv",
    ]


def test_no_environment_variable_is_kept(monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "very-secret-words")
    assert "very-secret-words" not in json.dumps(environment("cpu"))


def test_no_command_line_at_all_is_fine(monkeypatch):
    monkeypatch.setattr(sys, "argv", [])
    assert environment("cpu")["command"] == []


def checkout(folder: Path) -> Path:
    """A repository with one commit and the package where a checkout has it."""
    package = folder / "src" / "gated_domains"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (folder / "pyproject.toml").write_text("")
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True)
    return package / "__init__.py"


def test_a_checkout_knows_its_commit_and_whether_it_was_changed(tmp_path, monkeypatch):
    init = checkout(tmp_path)
    monkeypatch.setattr(gated_domains, "__file__", str(init))
    revision = environment("cpu")["revision"]
    assert len(revision) == 40
    init.write_text("changed = True")
    module._revision.cache_clear()
    assert environment("cpu")["revision"] == f"{revision}+"


def test_an_installed_package_does_not_take_a_strangers_commit_for_its_own(tmp_path, monkeypatch):
    checkout(tmp_path)
    installed = tmp_path / ".venv" / "lib" / "gated_domains" / "__init__.py"
    installed.parent.mkdir(parents=True)
    monkeypatch.setattr(gated_domains, "__file__", str(installed))
    assert environment("cpu")["revision"] is None


def test_without_git_the_revision_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(gated_domains, "__file__", str(checkout(tmp_path)))
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert environment("cpu")["revision"] is None


def test_the_machine_is_one_line_for_captions(monkeypatch):
    assert "\n" not in machine()
    monkeypatch.setattr(module, "_cpu", lambda: "AMD EPYC")
    monkeypatch.setattr(module, "_version", lambda package: "2.13.0+cpu")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    assert machine() == machine_of(environment("cpu")) == "2 CPU cores (AMD EPYC), torch 2.13.0"
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    assert machine().startswith("1 CPU core (")
