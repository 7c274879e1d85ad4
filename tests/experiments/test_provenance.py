"""A backbone that has met what is held out is refused, whichever way it met it; one that has not is built upon."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.fraction import a_share_of
from gated_domains.data.inputs import Features
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.experiments.model import Model
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.provenance import SEEN, Provenance, seen_by, split_hash
from made_published import divided
from made_runs import changed, images, recipe, runner, table, vectors

SHORT = {"epochs": 1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> RunFolder:
    """ERM on vectors, north held out."""
    return runner(vectors(), tmp_path_factory.mktemp("trained")).run(recipe("erm", training=SHORT))


def on(run: RunFolder, method: str = "erm", hold_out: str | None = "north", **others):
    others = {"training": SHORT, "seed": 1, **others}
    return recipe(method, hold_out, backbone=str(run.path), **others)


def body_of(run: RunFolder) -> dict[str, torch.Tensor]:
    return {
        name.replace("frozen.module.", ""): value
        for name, value in Model.load(run.path).method.state_dict().items()
        if name.startswith("backbone.body.")
    }


# -- what a run has seen -----------------------------------------------------------------------------------------------


def test_a_run_writes_the_rows_that_trained_or_selected_it_and_no_others(trained):
    data = vectors()
    seen = Provenance.read(trained.path)
    used = [row for row in range(len(data)) if data.domain_names[data.domains[row]] != "north"]
    assert [rows.tolist() for rows in seen.rows.values()] == [used]
    assert [samples.tolist() for samples in seen.samples.values()] == [sorted(data.inputs.digests()[used].tolist())]
    assert list(seen.rows) == list(seen.samples) == [runner(data, Path("nowhere")).data.fingerprint]


def test_a_model_says_where_it_comes_from(trained):
    origin, data = Model.load(trained.path).trained_on, vectors()
    here = runner(data, Path("nowhere"))
    assert origin == {
        "name": "vectors",
        "fingerprint": here.data.fingerprint,
        "hold_out": "north",
        "validation_domain": None,
        "split_seed": 0,
        "split": split_hash(here.planner.split(recipe())),
        "seed": 0,
    }


def test_the_hash_of_a_split_changes_with_any_of_its_rows():
    (split,) = (runner(vectors(), Path("nowhere")).planner.split(recipe()),)
    others = [replace(split, **{part: getattr(split, part)[1:]}) for part in ("train", "validation", "test")]
    assert len({split_hash(one) for one in [split, *others]}) == 4
    assert split_hash(split) == split_hash(replace(split, name="other"))


def test_what_was_seen_before_is_added_up(tmp_path):
    split = runner(vectors(), tmp_path).planner.split(recipe())
    digests = np.arange(150, dtype=np.uint64)
    first = seen_by(split, "one", digests)
    second = seen_by(replace(split, train=split.test, validation=split.test[:1]), "one", digests, before=first)
    assert second.rows["one"].tolist() == list(range(150))
    third = seen_by(split, "two", digests + np.uint64(1000), before=second)
    third.write(tmp_path)
    again = Provenance.read(tmp_path)
    assert {name: rows.tolist() for name, rows in again.rows.items()} == {
        "one": list(range(150)),
        "two": first.rows["one"].tolist(),
    }
    assert again.samples["one"].tolist() == list(range(150))
    assert again.samples["two"].tolist() == (first.rows["one"] + 1000).tolist()


# -- leaks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["erm", "gdu", "linear"])
def test_a_backbone_that_trained_on_the_domain_held_out_is_refused_with_the_count(trained, tmp_path, method):
    ours = runner(vectors(), tmp_path)
    message = (
        r"has seen 50 of the 50 rows that are held out here \(it was trained on vectors with north held out, seed 0\)"
    )
    for refused in (lambda chosen: ours.planner.plan([chosen]), ours.run):
        with pytest.raises(DataError, match=message):
            refused(on(trained, method, "south"))


def test_of_two_domains_held_out_those_that_it_saw_are_counted(trained, tmp_path):
    with pytest.raises(DataError, match="has seen 50 of the 100 rows"):
        runner(vectors(), tmp_path).planner.plan([on(trained, hold_out="north+west")])


def test_rows_that_only_selected_the_backbone_are_seen_too(tmp_path):
    ours = runner(vectors(), tmp_path)
    under = ours.run(
        recipe("erm", "north", training=SHORT, selection="out_of_domain", validation_domain="south")
    )  # fmt: skip
    with pytest.raises(DataError, match="has seen 50 of the 50 rows"):
        ours.planner.plan([on(under, hold_out="south")])


def test_a_backbone_that_held_nothing_out_may_be_used_where_nothing_is_held_out(tmp_path):
    ours = runner(vectors(), tmp_path)
    under = ours.run(recipe("erm", None, training=SHORT))
    with pytest.raises(DataError, match="with nothing held out"):
        ours.planner.plan([on(under)])
    assert ours.run(on(under, hold_out=None)).done


def test_a_run_with_the_same_rows_held_out_is_fine_tuned_as_it_is(trained, tmp_path):
    ours = runner(vectors(), tmp_path)
    run = ours.run(on(trained, "linear"))
    before, after = body_of(trained), body_of(run)
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert ours.run(on(trained, "linear")).path == run.path
    assert not list(tmp_path.glob("erm*"))  # no network of its own was trained for it


def test_a_run_with_the_same_rows_held_out_is_started_from(trained, tmp_path):
    ours = runner(vectors(), tmp_path)
    slow = {"epochs": 1, "rate": 1e-9, "optimizer": "sgd"}
    before = body_of(trained)
    near = body_of(ours.run(on(trained, training=slow)))
    for name, value in before.items():
        if "running" not in name and "num_batches" not in name:
            torch.testing.assert_close(near[name], value, atol=1e-5, rtol=0)
    moved = body_of(ours.run(on(trained)))
    assert any(not torch.equal(value, moved[name]) for name, value in before.items())


def test_two_backbones_make_two_runs(trained, tmp_path):
    ours = runner(vectors(), tmp_path)
    other = ours.run(recipe("erm", seed=5, training=SHORT))
    folders = {ours.folder(recipe("linear", training=SHORT)).name}
    folders |= {ours.folder(on(run, "linear", seed=0)).name for run in (trained, other)}
    assert len(folders) == 3
    copied = shutil.copytree(trained.path, tmp_path / "elsewhere" / trained.name)
    assert ours.folder(on(RunFolder(copied), "linear")).name == ours.folder(on(trained, "linear")).name


def test_an_ensemble_on_a_backbone_starts_every_member_from_it_and_has_seen_what_it_has(trained, tmp_path):
    ours = runner(vectors(), tmp_path)
    run = ours.run(on(trained, "ensemble", settings={"members": 2}))
    assert Provenance.read(run.path).rows.keys() == Provenance.read(trained.path).rows.keys()
    with pytest.raises(DataError, match="ensemble has no one body"):
        ours.planner.plan([on(run, "linear")])


# -- the same samples in other data ------------------------------------------------------------------------------------


def test_samples_are_known_in_a_part_of_the_data_and_in_another_order(trained, tmp_path):
    shuffled = vectors().take(np.random.default_rng(5).permutation(150))
    part = a_share_of(vectors(), 0.5)
    for data, count in ((shuffled, 50), (part, len(part.rows_of("south")))):
        ours = runner(data, tmp_path)
        with pytest.raises(DataError, match=f"has seen {count} of the {count} rows"):
            ours.planner.plan([on(trained, hold_out="south")])
        ours.planner.plan([on(trained, hold_out="north")])


def test_other_samples_are_unknown(trained, tmp_path):
    data = vectors()
    moved = replace(data, inputs=Features(np.asarray(data.inputs.values) + 1))
    assert runner(moved, tmp_path).run(on(trained, hold_out="south")).done


def people(path: Path, **others: int) -> DomainDataset:
    return load_data(table(path, **others), Reading(target="sick", domain="site"))


def test_rows_of_a_table_are_known_in_the_same_table_alone(tmp_path):
    data = people(tmp_path / "clinic.csv", rows=90)
    under = runner(data, tmp_path / "runs").run(recipe("erm", training=SHORT))
    with pytest.raises(DataError, match="has seen 30 of the 30 rows"):
        runner(data, tmp_path / "runs").planner.plan([on(under, hold_out="south")])
    # Two people may agree in all that is known of them, but not all of a table by chance.
    with pytest.raises(DataError, match="has seen 30 of the 30 rows"):
        runner(data.take(np.arange(90)[::-1]), tmp_path / "runs").planner.plan([on(under, hold_out="south")])


def test_the_oracle_has_seen_the_rows_that_it_selects_by(tmp_path):
    data = vectors()
    chosen = runner(data, tmp_path).run(recipe("erm", hold_out="south", selection="oracle", training=SHORT))
    with pytest.raises(DataError, match="has seen 50 of the 50 rows"):
        runner(data, tmp_path).planner.plan([on(chosen, hold_out="south")])


def test_what_stands_on_a_backbone_has_seen_what_that_has(trained, tmp_path):
    """North was never seen by the run in between; its backbone holds out south, and so has met north."""
    data = vectors()
    ours = runner(data, tmp_path)
    others = replace(data, name="others", inputs=Features(np.asarray(data.inputs.values) + 1))
    elsewhere = runner(others, tmp_path)
    between = elsewhere.run(on(trained, hold_out=None))
    for method in ("erm", "linear"):
        with pytest.raises(DataError, match="has seen 50 of the 50 rows"):
            ours.planner.plan([on(between, method, hold_out="west")])
    ours.planner.plan([on(between, hold_out="north")])
    shuffled = data.take(np.random.default_rng(5).permutation(150))
    with pytest.raises(DataError, match="has seen 50 of the 50 rows"):
        runner(shuffled, tmp_path).planner.plan([on(between, hold_out="west")])


def test_rows_of_a_table_are_inherited_over_another_table(tmp_path):
    data, others = (people(tmp_path / f"{name}.csv", rows=rows) for name, rows in (("one", 90), ("two", 60)))
    under = runner(data, tmp_path / "runs").run(recipe("erm", training=SHORT))
    between = runner(others, tmp_path / "runs").run(on(under, hold_out=None))
    with pytest.raises(DataError, match="has seen 30 of the 30 rows"):
        runner(data, tmp_path / "runs").planner.plan([on(between, hold_out="south")])


def test_copies_that_the_publisher_left_on_both_sides_are_no_leak(tmp_path):
    data = divided()
    values = np.asarray(data.inputs.values).copy()
    values[data.published.rows("test")[:3]] = values[data.published.rows("train")[:3]]
    ours = runner(replace(data, inputs=Features(values)), tmp_path)
    under = ours.run(recipe("erm", "official", selection="auto", training=SHORT))
    assert ours.run(on(under, "linear", "official", selection="auto")).done


def test_in_distribution_parts_that_are_scored_count_as_held_out(tmp_path):
    data = divided()
    ours = runner(data, tmp_path)
    under = ours.run(recipe("erm", "a", training=SHORT))
    split = ours.planner.split(recipe("erm", "official"))
    scored = np.concatenate([split.test, *split.also.values()])
    met = np.isin(scored, Provenance.read(under.path).rows[ours.data.fingerprint]).sum()
    with pytest.raises(DataError, match=f"has seen {met} of the {len(scored)} rows"):
        ours.planner.plan([on(under, hold_out="official", selection="auto")])


# -- what cannot be trusted or does not fit ----------------------------------------------------------------------------


@pytest.fixture
def copied(trained, tmp_path) -> RunFolder:
    return RunFolder(shutil.copytree(trained.path, tmp_path / "copied" / trained.name))


def test_a_backbone_that_does_not_say_what_it_has_seen_is_refused(copied, tmp_path):
    (copied.path / SEEN).unlink()
    with pytest.raises(DataError, match=r"does not say which rows its model has seen \(seen.npz is not there\)"):
        runner(vectors(), tmp_path).planner.plan([on(copied)])


def test_what_it_has_seen_is_never_unpickled(copied, tmp_path):
    np.savez(copied.path / SEEN, **{"rows x": np.array([{}], object), "samples x": np.array([1])})
    with pytest.raises(DataError, match=r"seen\.npz"):
        runner(vectors(), tmp_path).planner.plan([on(copied)])


def test_weights_that_were_changed_are_refused(copied, tmp_path):
    path = copied.path / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"its SHA-256 is not the one in model\.json"):
        runner(vectors(), tmp_path).planner.plan([on(copied)])


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no trained model"):
        runner(vectors(), tmp_path).planner.plan([recipe(backbone=str(tmp_path / "nothing"))])


def test_another_body_or_shape_is_refused(trained, tmp_path):
    data = vectors()
    with pytest.raises(DataError, match=r"is a mlp for inputs of shape \[4\], and here is a identity for \[4\]"):
        runner(data, tmp_path).planner.plan([on(trained, body="identity")])
    wide = replace(data, inputs=Features(np.tile(np.asarray(data.inputs.values), 2)))
    with pytest.raises(DataError, match=r"is a mlp for inputs of shape \[4\], and here is a mlp for \[8\]"):
        runner(wide, tmp_path).planner.plan([on(trained)])


def test_a_body_of_another_size_is_refused(copied, tmp_path):
    changed_shape = json.loads((copied.path / "model.json").read_text())["shape"]
    changed(copied.path / "model.json", shape={**changed_shape, "architecture": {"hidden": [64, 64], "norm": True}})
    with pytest.raises(DataError):  # whether its own weights do not fit, or ours
        runner(vectors(), tmp_path).planner.plan([on(copied)])


def test_a_body_whose_norms_are_gated_is_refused(tmp_path):
    ours = runner(images(), tmp_path)
    gated = ours.run(recipe("gdu", training=SHORT))
    with pytest.raises(DataError, match="the norms of this body follow the gates"):
        ours.planner.plan([on(gated)])


def test_the_body_under_a_fine_tuned_head_can_be_trained_again(trained, tmp_path):
    ours = runner(vectors(), tmp_path)
    tuned = ours.run(on(trained, "linear"))
    run = ours.run(on(tuned, training={"epochs": 1, "rate": 0.1}))
    before, after = body_of(trained), body_of(run)
    assert before.keys() == after.keys()
    moved = [name for name, value in before.items() if not torch.equal(value, after[name])]
    assert any(name.endswith("weight") for name in moved)
    result = run.result().to_json()
    assert result["parameters"]["trained"] == result["parameters"]["all"]


def test_a_body_that_gates_look_into_can_be_started_from(tmp_path):
    ours = runner(images(), tmp_path)
    looked_into = ours.run(recipe("gdu", settings={"gating": "style", "gated_norm": False}, training=SHORT))
    run = ours.run(on(looked_into, settings={}))
    assert np.isfinite(run.predictions()["output"]).all()
    assert Model.load(run.path).spec.method == "erm"


def test_the_recipe_that_is_written_finds_its_backbone_again(trained, tmp_path):
    from gated_domains.experiments.recipe_checks import read_recipe

    run = runner(vectors(), tmp_path).run(on(trained, "linear"))
    written = read_recipe(run.path / "recipe.yaml")
    assert written.backbone is not None
    assert Path(written.backbone).resolve() == trained.path.resolve()
