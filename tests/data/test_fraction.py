"""A share of the data, for a first try: of every part or every larger domain alike, and it is said."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.fraction import a_share_of
from gated_domains.data.inputs import Features
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.data.splits import hold_outs
from gated_domains.experiments.recipe_checks import read_recipe
from gated_domains.runs.folder import all_runs
from made_published import divided, labelled
from made_runs import assert_refused, call, table


def sites(sizes: dict[str, int], **others: object) -> DomainDataset:
    """Rows that are numbered by their only input."""
    rows = sum(sizes.values())
    domains = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), list(sizes.values())))
    return DomainDataset(
        name="sites",
        inputs=Features(np.arange(float(rows))[:, None]),
        targets=np.arange(rows) % 2,
        class_names=("no", "yes"),
        domains=domains,
        domain_names=tuple(sizes),
        **others,  # type: ignore[arg-type]
    )


def rows_in(dataset: DomainDataset) -> list[int]:
    return dataset.inputs.read(np.arange(len(dataset)))[:, 0].astype(int).tolist()


@given(st.floats(0.01, 0.99), st.integers(0, 5))
def test_every_larger_domain_gives_its_share_and_never_less_than_a_row(share: float, seed: int):
    whole = sites({"a": 200, "b": 31, "c": 9})
    part = a_share_of(whole, share, seed=seed)
    counted = Counter(part.domain_names[place] for place in part.domains)
    assert counted == {name: max(1, round(share * size)) for name, size in {"a": 200, "b": 31, "c": 9}.items()}


def test_rows_keep_their_order_and_all_that_belongs_to_them():
    whole = sites({"a": 60, "b": 60}, metadata={"patient": np.arange(120)})
    part = a_share_of(whole, 0.3)
    rows = rows_in(part)
    assert rows == sorted(set(rows))
    assert part.targets.tolist() == [row % 2 for row in rows]
    assert part.domains.tolist() == [whole.domains[row] for row in rows]
    assert part.metadata["patient"].tolist() == rows


def test_of_every_part_of_a_published_division_there_is_the_same_share():
    whole = divided(800)
    part = a_share_of(whole, 0.1)
    assert part.published is not None
    assert {name: len(part.published.rows(name)) for name in part.published.part_names} == {
        "train": 40, "val": 10, "test": 10, "id_val": 10, "id_test": 10
    }  # fmt: skip
    tiny = a_share_of(whole, 0.0001)
    assert tiny.published is not None
    assert len(tiny) == 5  # one of each part, so that it can still be trained and scored


def test_the_same_seed_draws_the_same_rows_and_another_others():
    whole = sites({"a": 100, "b": 100})
    drawn = [rows_in(a_share_of(whole, 0.2, seed=seed)) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert rows_in(a_share_of(whole, 0.2)) == drawn[0]


def test_rows_are_drawn_by_chance_and_not_from_the_top():
    rows = rows_in(a_share_of(sites({"a": 1000}), 0.1))
    assert 350 < np.mean(rows) < 650


def test_of_very_many_small_domains_rows_are_drawn_as_they_fall_and_those_left_can_be_held_out():
    whole = sites({f"scaffold {place}": 10 for place in range(100)})
    part = a_share_of(whole, 0.25)
    assert len(part) == 250
    assert len(part.domain_names) == len(np.unique(part.domains)) < 100
    assert [part.domain_names[place] for place in part.domains] == [
        whole.domain_names[whole.domains[row]] for row in rows_in(part)
    ]
    assert sum(len(split.test) for split in hold_outs(part, "default")) == 250


def test_data_without_domains_and_with_labels_will_do():
    part = a_share_of(labelled(domains=None, domain_names=()), 0.5)
    assert part.targets.shape == (90, 3)
    assert part.label_names == labelled().label_names


def test_it_is_said_beside_what_was_said_before():
    part = a_share_of(sites({"a": 60, "b": 60}, notes=("made up",)), 0.25)
    assert part.notes == ("made up", "a share of 0.25 of the data was drawn for a first try: 30 of 120 rows")


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, 3.0, float("nan")])
def test_what_is_no_share_is_refused(share: float):
    with pytest.raises(DataError, match=re.escape(f"--fraction must lie between 0 and 1, got {share}; leave it out")):
        a_share_of(sites({"a": 60}), share)


# -- wherever data are loaded ------------------------------------------------------------------------------------------


def test_a_share_of_a_file_is_that_of_what_the_file_holds(tmp_path):
    path = table(tmp_path / "clinic.csv", rows=90)
    reading = Reading(target="sick", domain="site")
    whole, part = load_data(path, reading), load_data(path, replace(reading, fraction=0.2))
    assert len(part) == 18
    assert part.inputs.digests().tolist() == a_share_of(whole, 0.2).inputs.digests().tolist()
    assert part.name == whole.name
    assert part.domain_names == whole.domain_names


def test_a_share_of_data_known_by_name_can_be_taken():
    part, whole = load_data("synthetic", Reading(fraction=0.02)), load_data("synthetic")
    assert len(part) == pytest.approx(0.02 * len(whole), rel=0.1)
    assert "for a first try" in part.notes[-1]


@pytest.mark.usefixtures("without_shape_checks")
def test_the_command_line_trains_on_a_share_and_the_recipe_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(Path("clinic.csv"))
    options = ("--target", "sick", "--domain", "site", "--hold-out", "north", "--epochs", 1, "--device", "cpu")
    done = call("train", "clinic.csv", "--method", "erm", *options, "--out", "runs", "--fraction", 0.4)
    assert done.code == 0, done
    (run,) = all_runs("runs")
    assert "60 of 150 rows" in " ".join(run.result().to_json()["notes"])
    assert read_recipe(run.path / "recipe.yaml").data.fraction == 0.4
    again = call("train", run.path / "recipe.yaml", "--device", "cpu", "--out", "runs")
    assert again.code == 0, again
    assert len(all_runs("runs")) == 1  # the same data, so it was there
    assert_refused(call("train", "clinic.csv", *options, "--fraction", 1.5), "--fraction", "1.5")
