"""Miniatures of the eight, small and written once for all tests that read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.data.miniatures import MINIATURES, write_miniature
from gated_domains.data.wilds import WILDS

SIDES = {name: 16 for name, chosen in WILDS.items() if chosen.image_size is not None}


def small_miniature(name: str, factory: pytest.TempPathFactory) -> Path:
    """The data directory that holds a miniature of this data set, with as few rows as it can have."""
    folder = factory.getbasetemp() / "wilds-miniatures"
    write_miniature(name, folder, rows=MINIATURES[name].least, side=SIDES.get(name))
    return folder


def loaded(name: str, data_dir: Path) -> DomainDataset:
    """The data set, its images as small as the miniature has them."""
    return load_data(f"wilds/{name}", Reading(image_size=SIDES.get(name)), data_dir=data_dir)
