"""The package as a user gets it: built, installed into an empty environment, imported."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import gated_domains

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


def empty_environment(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def run(*command: object, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=clean | environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_the_wheel_imports_from_an_empty_environment(wheel, tmp_path):
    python = empty_environment(tmp_path / "empty")
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel)
    # The front is lazy, so the bare import needs nothing; the layer then finds torch among this environment's packages.
    assert run(python, "-c", "import gated_domains; print(gated_domains.__version__)") == gated_domains.__version__
    code = "import gated_domains as g, torch; print(g.__file__, g.GatedDomainUnits(4, 2)(torch.ones(3, 4)).shape)"
    printed = run(python, "-c", code, PYTHONPATH=sysconfig.get_path("purelib"))
    assert str(tmp_path) in printed
    assert "[3, 2]" in printed


def test_the_wheel_holds_the_marker_of_types_and_the_licence_and_no_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "gated_domains/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {"gated_domains/data/digits/mnist-subset.xz", "gated_domains/data/digits/NOTICE"} <= set(names)
    assert "gated_domains/recipes/wilds/camelyon17_e2e_cosine.yaml" in names
    assert not any("test" in name for name in names)


@pytest.mark.slow
def test_the_wheel_brings_all_it_needs(wheel, tmp_path):
    python = empty_environment(tmp_path / "empty")
    run(python, "-m", "pip", "install", "--quiet", wheel)
    code = "import gated_domains as g; print(g.GatedDomainUnits(4, 2).num_bases, g.suggest_sigma([[0.0], [1.0]]).sigma)"
    assert run(python, "-c", code) == "5 1.0"
