"""What a run comes to: scores of its parts, and what should be known about them."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from gated_domains.backbones.backbone import Backbone
from gated_domains.backbones.bodies import MLP
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.splits import HoldOut, all_sources, hold_outs
from gated_domains.evaluation.scores import METRICS, DomainScores
from gated_domains.experiments.recipe_checks import check_scoring
from gated_domains.experiments.run_scores import TEST, VALIDATION, calibrated, scores
from gated_domains.experiments.writer import TrainedRun, write_run
from gated_domains.methods import ERM, Classes
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.result import RunResult
from gated_domains.training.trainer import Outcome
from made_runs import CPU, images, numbers, recipe, runner, vectors

OUTCOME = Outcome(
    best_epoch=3, epochs=9, stopped="early", seconds=1.23456,
    validation=DomainScores(METRICS["accuracy"], {"south": 0.5, "west": 1.0}, 0.7),
)  # fmt: skip


def said(dataset: DomainDataset, split: HoldOut, **others: Any) -> dict[str, Any]:
    rows = np.concatenate([split.validation, split.test])
    predicted = {
        "rows": rows,
        "part": np.repeat([VALIDATION, TEST], [len(split.validation), len(split.test)]),
        "targets": dataset.targets[rows],
        "domains": dataset.domains[rows],
        "output": np.eye(2)[dataset.targets[rows]],
    }
    method = ERM(Backbone(MLP((4,))), 2, Classes())
    method.backbone.requires_grad_(False)
    predicted.update(others.pop("predicted", {}))
    method = others.pop("method", method)
    with tempfile.TemporaryDirectory() as root:
        maker, chosen = runner(dataset, Path(root)), others.pop("recipe", recipe())
        maker.planner.use_split(split, chosen)
        run = maker.planner.run(chosen)
        built = replace(maker.builder.build(run, [], CPU.fabric("32")), method=method)
        trained = TrainedRun(
            run=run, built=built, outcome=OUTCOME, predicted=predicted, temperature=1.0, notes=["a note"], **others
        )  # fmt: skip
        folder = RunFolder.open(root, run.identity, data=run.data)
        made = write_run(trained, folder, maker.data, [])
        assert folder.result() == made
        return made.to_json()


def test_scores_are_of_one_part_by_domain():
    data = replace(vectors(rows=6), targets=np.array([0, 0, 0, 0, 1, 1]))  # north, south, west, twice
    predicted = {
        "rows": np.arange(6),
        "part": np.array([TEST, VALIDATION, VALIDATION, TEST, VALIDATION, VALIDATION]),
        "targets": np.array([0, 0, 0, 0, 1, 1]),
        "domains": data.domains,
        "output": np.eye(2)[[0, 0, 1, 1, 1, 1]],
    }
    split = hold_outs(vectors(), "north")[0]
    validation, test = (scores(recipe(), split, data, predicted, part) for part in (VALIDATION, TEST))
    assert validation is not None
    assert test is not None
    assert validation.by_domain == {"south": 1.0, "west": 0.5}
    assert validation.overall == 0.75
    assert test.by_domain == {"north": 0.5}


def test_without_rows_of_a_part_there_is_no_score():
    data = vectors(rows=6)
    nowhere = replace(data, domains=None, domain_names=())
    predicted = {
        "rows": np.arange(6), "part": np.zeros(6), "targets": data.targets, "output": np.eye(2)[data.targets]
    }  # fmt: skip
    split = all_sources(vectors())
    assert scores(recipe(), split, nowhere, predicted, TEST) is None
    everything = scores(recipe(), split, nowhere, predicted, VALIDATION)
    assert everything is not None
    assert everything.by_domain == {"all": 1.0}


def test_a_result_takes_validation_from_the_best_epoch_and_test_from_the_predictions():
    data = vectors(rows=240)
    found = said(data, hold_outs(data, "north")[0])
    assert found["validation"] == {"metric": "accuracy", "by_domain": {"south": 0.5, "west": 1.0}, "overall": 0.7}
    assert found["test"]["by_domain"] == {"north": 1.0}
    assert (found["best_epoch"], found["epochs"], found["stopped"]) == (3, 9, "early")
    assert (found["seconds"], found["notes"]) == (1.235, ["a note"])
    assert found["peak_memory"] is None
    assert said(data, hold_outs(data, "north")[0], peak_memory=12345)["peak_memory"] == 12345
    assert found["parameters"]["trained"] == 64 * 2 + 2
    assert found["parameters"]["all"] > 1_000


def test_two_domains_held_out_together_are_scored_apart():
    data = vectors()
    found = said(data, hold_outs(data, "north+west")[0], recipe=recipe(hold_out="north+west"))
    assert found["test"]["by_domain"] == {"north": 1.0, "west": 1.0}
    assert (found["held_out"], found["sources"]) == (["north", "west"], ["south"])


def test_with_nothing_held_out_there_is_no_test():
    data = vectors()
    found = said(data, all_sources(data), recipe=recipe(hold_out=None))
    assert found["test"] is None
    assert found["protocol"] == "trained on all domains; validated on 20% of the source rows, by domain and class"


def test_the_protocol_says_whose_test_rows_validate():
    data = vectors()
    split = replace(data, official_test=np.arange(len(data)) % 5 == 0)
    assert (
        "validated on the publisher's test rows of the sources" in said(split, hold_outs(split, "west")[0])["protocol"]
    )


def test_what_a_split_left_out_is_noted():
    data = vectors(rows=240)
    split = replace(hold_outs(data, "north")[0], left_out=1234, unseen_classes=("yes", "perhaps"))
    assert said(replace(data, notes=("from the publisher",)), split)["notes"] == [
        "from the publisher",
        "1,234 source rows left out: copies, or of a group, of held-out rows",
        "classes never seen in training: yes, perhaps",
        "a note",
    ]


def test_scores_of_few_rows_are_said_to_be_coarse():
    data = vectors(rows=60)
    assert said(data, hold_outs(data, "north")[0])["notes"] == [
        "only 20 rows of north are scored: its numbers are coarse, in every mean too",
        "the epoch is selected by 8 validation rows alone",
        "a note",
    ]


def test_a_held_out_domain_of_one_class_almost_alone_is_noted():
    data = vectors(rows=240)
    targets = data.targets.copy()
    north = data.rows_of("north")
    targets[north] = 0
    targets[north[:8]] = 1
    one_sided = replace(data, targets=targets)
    notes = said(one_sided, hold_outs(one_sided, "north")[0])["notes"]
    assert notes[0] == "90.0% of north is 'no': always answering so scores as much"
    by_auroc = said(one_sided, hold_outs(one_sided, "north")[0], recipe=recipe(metric="auroc"))[
        "notes"
    ]  # of which that is not true
    assert not any("always answering" in note for note in by_auroc)


@pytest.mark.parametrize("frozen", [False, True])
def test_weights_that_do_not_move_are_not_among_the_trained(frozen):
    data = vectors()
    method = ERM(Backbone(MLP((4,))), 2, Classes())
    head = sum(p.numel() for p in nn.Linear(64, 2).parameters())
    method.backbone.requires_grad_(not frozen)
    counted = said(data, hold_outs(data, "north")[0], method=method)["parameters"]
    assert (counted["trained"] == head) is frozen
    assert (counted["trained"] == counted["all"]) is not frozen


# -- every metric, and groups ------------------------------------------------------------------------------------------


def test_every_metric_of_the_task_is_kept_for_both_parts():
    data = vectors(rows=240)
    found = said(data, hold_outs(data, "north")[0])["all_metrics"]
    assert list(found) == ["validation", "test"]
    assert list(found["test"]) == ["accuracy", "f1", "average_precision", "auroc", "ece", "log_loss"]
    assert found["test"]["auroc"] == {"by_domain": {"north": 1.0}, "overall": 1.0}
    assert found["validation"]["ece"] == {"by_domain": {"south": 0.0, "west": 0.0}, "overall": 0.0}


def test_the_chosen_metric_is_the_one_of_the_result():
    data = vectors(rows=240)
    found = said(data, hold_outs(data, "north")[0], recipe=recipe(metric="log_loss"))
    assert (found["metric"], found["higher_is_better"]) == ("log_loss", False)
    assert found["test"] == {"metric": "log_loss", "by_domain": {"north": 0.0}, "overall": 0.0}
    assert found["selection"] == "mean source validation log loss"


def test_groups_are_scored_beside_domains():
    data = vectors(rows=240)
    split = hold_outs(data, "north")[0]
    right = np.eye(2)[data.targets[np.concatenate([split.validation, split.test])]]
    right[:, 0] = 1.0  # 'no' is always said where 'yes' is true too
    found = said(data, split, recipe=recipe(score_by=("domain", "class")), predicted={"output": right})
    assert found["test"]["by_group"] == {"north, no": 1.0, "north, yes": 0.0}
    assert found["score_by"] == ["domain", "class"]


def one_sided(held_out: str) -> DomainDataset:
    data = vectors(rows=240)
    targets = data.targets.copy()
    targets[data.rows_of(held_out)] = 1
    return replace(data, targets=targets)


def test_a_held_out_domain_without_such_a_score_is_said_to_have_none_and_is_read_again():
    data = one_sided("north")
    found = said(data, hold_outs(data, "north")[0], recipe=recipe(metric="auroc"))
    assert found["test"] == {"metric": "auroc", "by_domain": {}, "overall": None, "unscored": ["north"]}
    assert "north has no AUROC: all its rows share one target" in found["notes"]
    assert "auroc" not in found["all_metrics"]["test"]
    assert RunResult.from_json(found).unscored == ("north",)


def test_of_two_held_out_domains_one_may_have_a_score():
    data = one_sided("north")
    found = said(data, hold_outs(data, "north+west")[0], recipe=recipe(metric="auroc", hold_out="north+west"))
    assert (found["test"]["by_domain"], found["test"]["unscored"]) == ({"west": 1.0}, ["north"])
    assert RunResult.from_json(found).test == {"west": 1.0}


def test_groups_without_such_a_score_are_counted():
    data = vectors(rows=240)
    found = said(data, hold_outs(data, "north")[0], recipe=recipe(metric="auroc", score_by=("class",)))
    assert found["test"]["by_group"] == {}
    assert "2 of 2 groups have no AUROC, all rows of each sharing one target: no, yes" in found["notes"]


# -- who was told what -------------------------------------------------------------------------------------------------


def test_the_oracle_is_marked_and_its_protocol_says_what_it_does():
    data = vectors(rows=240)
    split = hold_outs(data, "north")[0]
    found = said(data, split, recipe=recipe(selection="oracle"))
    assert found["oracle"] is True
    assert found["protocol"] == "the held-out domain is never seen in training, but it selects the model"
    assert said(data, split)["oracle"] is False
    assert "never seen in training or selection" in said(data, split)["protocol"]


def test_a_domain_kept_apart_is_what_was_validated_on():
    data = vectors(rows=240)
    chosen = recipe(selection="out_of_domain", validation_domain="west")
    assert said(data, hold_outs(data, "north")[0], recipe=chosen)["protocol"].endswith(
        "validated on source domains kept apart from training"
    )


@pytest.mark.parametrize(
    ("training", "made", "told"),
    [
        ({}, vectors, False),
        ({"sampling": "plain"}, vectors, False),
        ({"sampling": "balanced"}, vectors, True),
        ({"sampling": "single"}, vectors, True),
        ({"mixstyle": 0.5}, vectors, True),
        ({"mixstyle": 0.5}, images, False),
        ({"ema": 0.9}, vectors, False),
    ],
)
def test_a_training_that_knows_the_domains_is_marked(training, made, told):
    data = made()
    assert said(data, hold_outs(data, "north")[0], recipe=recipe(training=training))["uses_domains"] is told


# -- before anything is trained ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "changes", "message"),
    [
        (vectors(), {"metric": "rmse"}, "'rmse' scores numbers, and here classes"),
        (vectors(), {"metric": "acuracy"}, "did you mean 'accuracy'"),
        (vectors(), {"score_by": ("ward",)}, "no column 'ward' to group by"),
        (numbers(), {"calibrate": True}, "nothing to calibrate where a number is predicted"),
        (one_sided("north"), {"metric": "auroc", "selection": "oracle"}, "80 held-out rows share one target .*AUROC"),
    ],
    ids=["another task", "unknown", "no column", "numbers", "oracle"],
)
def test_what_could_not_be_scored_is_refused_before_it_is_trained(data, changes, message):
    with pytest.raises(DataError, match=message):
        check_scoring(recipe(**changes), hold_outs(data, "north")[0], data)


def test_what_can_be_scored_is_not_refused():
    data = one_sided("north")
    check_scoring(recipe(metric="auroc", score_by=("domain",), calibrate=True), hold_outs(data, "north")[0], data)


# -- calibration -------------------------------------------------------------------------------------------------------


def test_the_temperature_is_that_of_the_validation_rows_and_all_rows_get_it():
    rng = np.random.default_rng(0)
    output = rng.dirichlet(np.ones(3), 60).astype(np.float32)
    targets, part = rng.integers(3, size=60), np.repeat([VALIDATION, TEST], 30)
    first, temperature = calibrated({"output": output, "targets": targets, "part": part})
    assert temperature > 1.2
    turned = np.where(part == TEST, (targets + 1) % 3, targets)
    second, same = calibrated({"output": output, "targets": turned, "part": part})
    assert same == temperature
    np.testing.assert_array_equal(first["output"], second["output"])
    assert (first["output"].max(axis=1) < output.max(axis=1)).all()
