"""What the documentation tells people to type works."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from gated_domains.data import load_data
from gated_domains.experiments import read_recipe

DOCS = Path(__file__).parent.parent / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL)


def test_every_command_on_heart_disease_asks_the_same_question():
    """The target has five values; a command that forgets --positive has another task than the one beside it."""
    pages = [DOCS.parent / "README.md", *DOCS.glob("*.md"), *DOCS.glob("how-to/*.md")]
    lines = [line for page in pages for line in page.read_text().splitlines()]
    asked = [line for line in lines if line.startswith("$ gated-domains") and "--target num" in line]
    assert len(asked) > 5
    assert not [line for line in asked if "--positive 1,2,3,4" not in line]


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


def test_the_page_on_comparing_trains_and_finds_its_run(heart):
    world: dict[str, object] = {}
    for block in blocks("compare.md", "python"):
        exec(block, world)
    assert world["run"].result().to_json()["test"]["by_domain"].keys() == {"cleveland"}
    assert world["model"].schema.class_names == ("0", "1 or 2 or 3 or 4")


def test_its_recipe_is_one(heart):
    (recipe,) = blocks("compare.md", "yaml")
    (heart / "heart-gdu.yaml").write_text(recipe)
    read = read_recipe("heart-gdu.yaml")
    assert (read.method.name, read.training.ema, read.hold_out) == ("gdu", 0.999, "cleveland")


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
