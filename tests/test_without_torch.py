"""What works where torch is not installed: the front of the package, and all that is chosen from features."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from hidden_torch import HIDE_TORCH


def without_torch(code: str) -> subprocess.CompletedProcess[str]:
    """The end of a program that runs as if torch were not there."""
    script = HIDE_TORCH + textwrap.dedent(code) + "\nassert 'torch' not in sys.modules\n"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


def test_torch_is_hidden_indeed():
    assert "No module named 'torch'" in without_torch("import torch").stderr
    assert "No module named 'torch'" in without_torch("import gated_domains.layer").stderr


@pytest.mark.parametrize(
    "name",
    [
        "gated_domains",
        "gated_domains.choose",
        "gated_domains.common",
        "gated_domains.common.validation",
        "gated_domains.common.paper",
    ],
)
def test_a_module_is_imported(name):
    done = without_torch(f"import {name}")
    assert done.returncode == 0, done.stderr


def test_sigma_bases_their_number_and_kappa_are_chosen():
    done = without_torch(
        """
        import numpy as np
        from gated_domains import GateWarning, suggest_num_bases, suggest_sigma
        from gated_domains.choose import kmeans_bases, match_kappa

        rng = np.random.default_rng(0)
        features = np.concatenate([rng.normal(centre, 0.5, (40, 3)) for centre in (0.0, 5.0, 10.0)])
        sigma = suggest_sigma(features).sigma
        number = suggest_num_bases(features, range(2, 6), runs=2).best
        bases = kmeans_bases(features, number, 4, 0)
        squared = ((features[:, None, None] - bases) ** 2).sum(-1)
        kappa = match_kappa(np.exp(-squared / (2 * sigma**2)).mean(-1))
        print(number, bases.shape, sigma > 0, kappa > 0, issubclass(GateWarning, UserWarning))
        """
    )
    assert done.stdout.split("\n")[0] == "3 (3, 4, 3) True True True", done.stderr
