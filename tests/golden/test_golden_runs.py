"""Numbers stay what they are: golden runs through the command line and the estimators."""

from __future__ import annotations

import pytest
from golden_runs import CASES, compare_with_record, differences, unavailable


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_golden_runs_are_unchanged(case):
    if why := unavailable(case):
        pytest.skip(why)
    assert compare_with_record(case) == []


def test_a_changed_score_and_changed_bits_are_found():
    expected = {"score": 70.5, "sha256": "a", "curve": [1.0, 2.0]}
    assert differences(expected, expected, exact=True) == []
    assert differences(expected, {**expected, "score": 70.6}, exact=False) == ["/score: 70.6 instead of 70.5"]
    assert differences(expected, {**expected, "sha256": "b"}, exact=True) == ["/sha256: not identical to the bit"]
    assert differences(expected, {**expected, "sha256": "b"}, exact=False) == []
    assert differences(expected, {**expected, "curve": [1.0]}, exact=False) == ["/curve: 1 entries instead of 2"]
    assert differences(expected, {"score": 70.5, "sha256": "a"}, exact=False) == ["/curve is missing"]
    assert differences(expected, {**expected, "run": 1}, exact=False) == ["/run is new"]
