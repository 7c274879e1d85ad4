"""What the tests of the Keras layer share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FULL_BACKEND = "tensorflow"


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need one backend as slow on the others, and ignore warnings about gates that do little.

    Gates on features of untrained networks often do little; tests of that warning record it.
    """
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.filterwarnings("ignore::gated_domains.common.validation.GateWarning"))
        if item.get_closest_marker("one_backend") and os.environ.get("KERAS_BACKEND", FULL_BACKEND) != FULL_BACKEND:
            item.add_marker(pytest.mark.slow)
