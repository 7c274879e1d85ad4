"""Rules that select an epoch, through whole runs: what they look at, what they must not, and what they keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from made_runs import recipe, runner, vectors

RULES = ("source_validation", "worst_class", "out_of_domain", "leave_one_source_out", "last", "oracle")


def poisoned(clean: DomainDataset, domain: str) -> DomainDataset:
    """The same data, with the labels of one domain turned round."""
    targets = clean.targets.copy()
    targets[clean.rows_of(domain)] ^= 1
    return replace(clean, targets=targets)


def selected(dataset: DomainDataset, root: Path, rule: str, **training: object) -> dict:
    apart = "west" if rule == "out_of_domain" else None
    asked = recipe("erm", selection=rule, validation_domain=apart, training={"epochs": 4, "rate": 0.02, **training})
    run = runner(dataset, root).run(asked)
    return {"result": run.result().to_json(), "metrics": run.metrics(), "output": run.predictions()["output"]}


@pytest.mark.parametrize("rule", RULES)
def test_the_kept_epoch_is_the_one_that_the_rule_likes_best(rule, tmp_path):
    found = selected(vectors(), tmp_path, rule)
    numbers = [record["selection"] for record in found["metrics"]]
    assert found["result"]["best_epoch"] == int(np.argmax(numbers))
    assert found["result"]["selection_score"] == max(numbers)
    if rule == "last":
        assert found["result"]["best_epoch"] == 3


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "oracle"])
def test_labels_of_the_held_out_domain_change_nothing_but_its_score(rule, tmp_path):
    clean, turned = (selected(data, tmp_path / name, rule) for name, data in
                     (("clean", vectors()), ("turned", poisoned(vectors(), "north"))))  # fmt: skip
    np.testing.assert_array_equal(clean["output"], turned["output"])
    assert clean["result"]["best_epoch"] == turned["result"]["best_epoch"]
    assert clean["result"]["test"]["by_domain"] != turned["result"]["test"]["by_domain"]


def test_the_oracle_selects_by_the_held_out_domain_and_says_so(tmp_path):
    found = selected(vectors(), tmp_path, "oracle")
    best = found["result"]["best_epoch"]
    assert found["metrics"][best]["validation"]["by_domain"].keys() == {"north"}
    assert found["result"]["selection_score"] == pytest.approx(found["result"]["test"]["by_domain"]["north"])
    assert "ORACLE" in found["result"]["selection"]
    assert found["result"]["oracle"] is True
    assert set(found["result"]["validation"]["by_domain"]) == {"south", "west"}  # the sources' own, all the same


def test_out_of_domain_validation_trains_without_the_domain_that_selects(tmp_path):
    one = selected(vectors(), tmp_path / "one", "out_of_domain", patience=None)
    assert one["result"]["validation"]["by_domain"].keys() == {"west"}
    assert one["result"]["sources"] == ["south"]
    assert "kept apart from training" in one["result"]["protocol"]
    assert any("west" in note for note in one["result"]["notes"])


def test_out_of_domain_validation_must_be_told_the_domain(tmp_path):
    with pytest.raises(DataError, match="needs validation_domain"):
        runner(vectors(), tmp_path).planner.plan([recipe("erm", selection="out_of_domain")])


def test_leave_one_source_out_keeps_the_epoch_that_was_best_on_average_over_sources_left_out(tmp_path):
    maker = runner(vectors(), tmp_path)
    asked = recipe("erm", selection="leave_one_source_out", training={"epochs": 4, "rate": 0.02})
    run = maker.run(asked)
    plan = maker.planner.plan([asked])
    choosing = [plan.runs[name].recipe for name in plan.runs[plan.asked[0]].selection_runs]
    assert [other.validation_domain for other in choosing] == ["south", "west"]
    curves = [[record["selection"] for record in maker.find(other).metrics()] for other in choosing]
    mean = np.mean(curves, axis=0)
    assert run.result().to_json()["best_epoch"] == int(mean.argmax())
    assert run.result().to_json()["selection_score"] == pytest.approx(mean.max())
    assert run.result().to_json()["sources"] == ["south", "west"]  # trained on all of them in the end
    cost = sum(maker.find(other).result().to_json()["seconds"] for other in choosing)
    assert run.result().to_json()["seconds"] > cost


def test_leaving_one_source_out_of_one_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"one source domain only.*select by source_validation"):
        runner(vectors(), tmp_path).planner.plan([recipe("erm", "north+south", selection="leave_one_source_out")])


def test_averaging_that_chooses_its_own_epochs_is_not_chosen_for(tmp_path):
    asked = recipe("erm", selection="leave_one_source_out", training={"swad": True})
    with pytest.raises(DataError, match=r"ERM \+ SWAD averages over epochs.*leave swad out"):
        runner(vectors(), tmp_path).planner.plan([asked])


def test_a_fine_tuned_head_selected_by_leaving_sources_out_stands_on_bodies_that_left_them_out_too(tmp_path):
    maker = runner(vectors(), tmp_path)
    asked = recipe("linear", selection="leave_one_source_out")
    todo, done = maker.planner.plan([asked]).missing(tmp_path)
    assert done == 0
    said = [(run.recipe.method.name, run.recipe.selection, run.recipe.validation_domain) for run in todo]
    assert said == [
        ("erm", "out_of_domain", "south"),
        ("erm", "out_of_domain", "west"),
        ("erm", "leave_one_source_out", None),
        ("linear", "out_of_domain", "south"),
        ("linear", "out_of_domain", "west"),
        ("linear", "leave_one_source_out", None),
    ]
    maker.run(asked)
    assert maker.planner.plan([asked]).missing(tmp_path) == ([], 6)
