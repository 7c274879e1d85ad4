"""``gated-domains reproduce wilds``: what it lists, what it refuses, what it writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gated_domains import recipes
from gated_domains.data.published import Published
from gated_domains.paper import cells, running
from made_runs import assert_refused, call, vectors


def test_it_lists_the_recipes() -> None:
    done = call("reproduce", "wilds", "--list")
    assert done.code == 0
    assert done.out.split() == recipes.names("wilds")


def test_names_that_are_none_are_refused_with_the_nearest(tmp_path: Path) -> None:
    assert_refused(call("reproduce", "wilds", "--datasets", "fmoww"), "there is no 'fmoww'", "fmow")
    assert_refused(call("reproduce", "wilds", "--methods", "e2e"), "there is no 'e2e'")
    assert_refused(call("reproduce", "wilds", "--miniature", "--data", tmp_path), "leave --data out")
    (tmp_path / "file").write_text("")
    assert_refused(call("reproduce", "wilds", "--out", tmp_path / "file"), "is a file")


def test_without_data_the_table_is_written_and_the_cure_is_said(tmp_path: Path) -> None:
    done = call(
        "reproduce", "wilds", "--data", tmp_path, "--datasets", "fmow", "--methods", "erm", "--out", tmp_path / "o"
    )
    assert_refused(done, "none of the 3 runs could be made", "FMoW is not in")
    assert "n/a [1]" in done.out
    assert (tmp_path / "o" / "table.md").is_file()


@pytest.fixture
def small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors in place of images, and recipes that train an MLP on them for two epochs."""
    dataset = vectors()
    parts = np.array([0, 0, 0, 1, 2, 3], np.int8)[np.arange(len(dataset)) % 6]
    published = Published(name="v", parts=parts, part_names=("train", "val", "test", "id_test"), metric="accuracy")
    monkeypatch.setattr(running, "load_data", lambda *_, **__: replace(dataset, published=published))
    shipped = cells.recipe_of

    def changed(row: str, column: str) -> Any:
        recipe = shipped(row, column)
        if recipe is None:
            return None
        training = recipe.training.model_copy(update={"epochs": 2, "batch_size": 32})
        return recipe.replace(body="mlp", training=training)

    import gated_domains.paper.grid as grid

    monkeypatch.setattr(grid, "recipe_of", changed)


@pytest.mark.usefixtures("small_world")
def test_the_table_and_the_curves_are_written_and_found_again(tmp_path: Path) -> None:
    options = (
        "--datasets",
        "ogb-molpcba",
        "--methods",
        "erm,cgd,e2e_mmd",
        "--seeds",
        2,
        "--device",
        "cpu",
        "--workers",
        1,
    )
    done = call("reproduce", "wilds", *options, "--out", tmp_path)
    assert done.code == 0, done
    assert "WILDS: ours / the paper's" in done.out
    assert "no published settings" in done.out  # of CGD on MolPCBA
    assert "[4/4]" in done.err
    for name in ("table.md", "table.csv", "table.json", "davies_bouldin.png", "davies_bouldin.csv", "report.html"):
        assert (tmp_path / name).is_file()
    stored = json.loads((tmp_path / "table.json").read_text())
    assert {(run["row"], run["seed"]) for run in stored["runs"]} == {
        (row, seed) for row in ("erm", "e2e_mmd") for seed in (0, 1)
    }
    assert any("Davies-Bouldin" in line for line in stored["caption"])
    again = call("reproduce", "wilds", *options, "--out", tmp_path, "--no-report")
    assert again.code == 0
    assert again.err == ""  # nothing is trained
