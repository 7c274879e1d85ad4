"""What measures of the gates say, and where the warning of it points."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import gated_domains
import gated_domains.layer
from gated_domains.common.validation import DEAD_BETA_STD, SATURATED, GateHealth, GateWarning

HEALTHY = GateHealth(beta_std=0.2, kernel_low=0.3, kernel_high=0.7, dead=(), doubled=())


def test_healthy_gates_say_nothing():
    assert HEALTHY.findings() == []


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ({"kernel_low": 4e-5, "kernel_high": 4.2e-5}, ["far from every basis", "4.2e-05", "raise sigma"]),
        ({"kernel_low": 0.99955, "kernel_high": 1.0}, ["near every basis", "0.99955", "lower sigma"]),
        ({"beta_std": 1.4e-4}, ["do not depend on the input", "0.00014", "kappa=None"]),
        ({"dead": (1, 3)}, ["bases [1, 3] are dead", "smaller kappa"]),
        ({"doubled": ((0, 2), (1, 4))}, ["bases [[0, 2], [1, 4]] are doubles", "lambda_orth"]),
    ],
    ids=["far", "near", "constant", "dead", "doubled"],
)
def test_a_trouble_is_said_alone_with_its_value_and_its_cure(measured, words):
    (finding,) = replace(HEALTHY, **measured).findings()
    for word in words:
        assert word in finding


def test_a_measure_on_its_bound_is_healthy():
    at_the_bounds = replace(HEALTHY, beta_std=DEAD_BETA_STD, kernel_low=1 - SATURATED, kernel_high=1.0)
    assert at_the_bounds.findings() == []
    assert replace(HEALTHY, kernel_low=0.0, kernel_high=SATURATED).findings() == []


def test_every_finding_is_a_warning_of_its_own():
    with pytest.warns(GateWarning) as seen:
        replace(HEALTHY, beta_std=0.0, dead=(2,)).warn()
    assert [str(one.message) for one in seen] == replace(HEALTHY, beta_std=0.0, dead=(2,)).findings()


def test_the_warning_is_one_class_wherever_it_is_imported_from():
    assert gated_domains.GateWarning is gated_domains.layer.GateWarning is GateWarning
    assert gated_domains.layer.GateHealth is GateHealth


def test_a_warning_points_past_this_package_and_the_frameworks(tmp_path: Path):
    script = tmp_path / "user_script.py"
    script.write_text(
        "from functools import partial\n"
        "from gated_domains.common.validation import GateHealth\n"
        "call = GateHealth(beta_std=0.0, kernel_low=0.3, kernel_high=0.7, dead=(), doubled=()).warn\n"
        "for module in ('gated_domains.keras_layer.fitting', 'torch.utils', 'keras.src.layers'):\n"
        "    space = {'__name__': module}\n"
        "    exec('def pass_on(call): call()', space)\n"
        "    call = partial(space['pass_on'], call)\n"
        "call()\n"
    )
    # In a process of its own: the run-time shape checks of the tests add frames that users do not have.
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert f"{script}:8: GateWarning" in done.stderr
