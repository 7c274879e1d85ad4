"""The house rules, each a tool that must have nothing to say. Types are checked by ``make types``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOOLS = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    ["ruff check .", "ruff format --check .", "codespell", "lint-imports"],
    ids=lambda command: command.partition(" ")[0] + command.partition(" ")[2].partition(" ")[0],
)
def test_a_tool_finds_nothing(command):
    program, *arguments = command.split()
    done = subprocess.run([TOOLS / program, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_tests_of_extras_live_where_make_test_extras_looks():
    folders = (ROOT / "tests" / "extras", ROOT / "tests" / "keras_layer")
    marked = {path for path in (ROOT / "tests").rglob("test_*.py") if "pytest.mark.extras" in path.read_text()}
    assert [path for path in marked - {Path(__file__)} if path.parent not in folders] == []


def test_import_costs_what_torch_costs():
    """Modules that our front and our layer bring beyond those of torch, jaxtyping and the standard library."""
    code = """
import sys, torch, jaxtyping
before = set(sys.modules)
import gated_domains
from gated_domains import GatedDomainUnits, replace_head
known = {name.partition(".")[0] for name in before} | set(sys.stdlib_module_names) | {"gated_domains"}
print(sorted({name.partition(".")[0] for name in sys.modules} - known))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there_and_unknown_ones_are_not():
    import gated_domains

    for name in gated_domains.__all__:
        assert getattr(gated_domains, name) is not None
    assert set(gated_domains.__all__) <= set(dir(gated_domains))
    with pytest.raises(AttributeError, match="no_such_thing"):
        gated_domains.no_such_thing  # noqa: B018
