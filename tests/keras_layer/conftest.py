"""What the tests of the Keras layer share."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gates on features of untrained networks may well do little; tests of the warning itself record it."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::gated_domains.common.health.GateWarning"))
