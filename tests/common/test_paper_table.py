"""The paper's parameter tables: a row for every setting and gate."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from gated_domains.common.paper import PAPER, GateName, Setting, paper_setting


def test_every_setting_has_every_gate():
    assert set(PAPER) == set(product(get_args(Setting), get_args(GateName)))


def test_kappa_is_there_unless_the_gate_projects():
    assert {gate for (_, gate), row in PAPER.items() if row.kappa is None} == {"projection"}


def test_a_row_is_found_by_setting_and_gate():
    row = paper_setting("wilds", "projection")
    assert (row.sigma, row.kappa, row.lambda_l1, row.lambda_orth, row.tanh) == (16.0, None, 0.0, 1e-3, False)


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(("setting", "gate"), [("imagenet", "cosine"), ("digits", "euclid")])
def test_a_row_that_is_not_there_is_refused_with_those_that_are(setting, gate):
    with pytest.raises(ValueError, match=rf"'{setting}' with gate '{gate}'; it has digits/cosine.*wilds/mmd"):
        paper_setting(setting, gate)
