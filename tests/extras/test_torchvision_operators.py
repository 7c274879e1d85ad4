"""Beside a torchvision that cannot be imported by itself, ours can be: scores are taken, and it is importable after."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.extras


def test_scores_can_be_taken_where_torchvision_is_installed():
    code = (
        "from gated_domains.evaluation.formulas import FORMULAS\n"
        "import sys, torchvision, torchmetrics\n"
        "print(len(FORMULAS), 'torchvision' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1] == "True"
