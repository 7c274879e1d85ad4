"""What the documentation tells people to type works."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from gated_domains.data import load_data

DOCS = Path(__file__).parent.parent / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)


@pytest.fixture
def heart(tmp_path, monkeypatch):
    """A table as the page on data has it."""
    rng = np.random.default_rng(0)
    hospitals = np.repeat(["cleveland", "hungarian", "switzerland", "va"], 40)
    lines = [f"{rng.integers(30, 80)},{rng.integers(5)},{hospital}" for hospital in hospitals]
    (tmp_path / "heart.csv").write_text("\n".join(["age,num,hospital", *lines]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_on_data_reads_splits_and_batches(heart):
    world: dict[str, object] = {}
    for block in blocks("data.md", "python"):
        exec(block, world)
    assert world["heart"].class_names == ("0", "1 or 2 or 3 or 4")
    assert world["batch"].inputs.shape[1:] == (1,)


def test_its_card_is_read(heart):
    (card,) = blocks("data.md", "yaml")
    (heart / "heart.yaml").write_text(card)
    data = load_data("heart.yaml")
    assert data.domain_names == ("cleveland", "hungarian", "switzerland", "va")
    assert "not taken" in data.notes[0]


@pytest.mark.parametrize("page", sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", (DOCS / page).read_text()):
        assert link.startswith("http") or ((DOCS / page).parent / link).exists(), link
