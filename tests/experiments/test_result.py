"""What a run comes to: scores of its parts, and what should be known about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import nn

from gated_domains.backbones.backbone import Backbone
from gated_domains.backbones.bodies import MLP
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.splits import HoldOut, all_sources, hold_outs
from gated_domains.evaluation.scores import METRICS, DomainScores
from gated_domains.experiments.result import TEST, VALIDATION, result, scores
from gated_domains.methods import ERM, Classes
from gated_domains.training.loop import Outcome
from made_runs import recipe, vectors

OUTCOME = Outcome(
    best_epoch=3, epochs=9, stopped="early", seconds=1.0,
    validation=DomainScores(METRICS["accuracy"], {"south": 0.5, "west": 1.0}, 0.7),
)  # fmt: skip


def said(dataset: DomainDataset, split: HoldOut, **others: Any) -> dict[str, Any]:
    rows = np.concatenate([split.validation, split.test])
    predicted = {
        "part": np.repeat([VALIDATION, TEST], [len(split.validation), len(split.test)]),
        "targets": dataset.targets[rows],
        "domains": dataset.domains[rows],
        "output": np.eye(2)[dataset.targets[rows]],
    }
    method = ERM(Backbone(MLP((4,))), 2, Classes())
    method.backbone.requires_grad_(False)
    settings = {"method": method, "outcome": OUTCOME, "predicted": predicted, "seconds": 1.23456, "notes": ["a note"]}
    return result(others.pop("recipe", recipe()), split, dataset, **{**settings, **others})


def test_scores_are_of_one_part_by_domain():
    data = vectors(rows=6)  # north, south, west, twice
    predicted = {
        "part": np.array([TEST, VALIDATION, VALIDATION, TEST, VALIDATION, VALIDATION]),
        "targets": np.array([0, 0, 0, 0, 1, 1]),
        "domains": data.domains,
        "output": np.eye(2)[[0, 0, 1, 1, 1, 1]],
    }
    validation, test = scores(data, predicted, VALIDATION), scores(data, predicted, TEST)
    assert validation is not None
    assert test is not None
    assert validation.by_domain == {"south": 1.0, "west": 0.5}
    assert validation.overall == 0.75
    assert test.by_domain == {"north": 0.5}


def test_without_rows_of_a_part_there_is_no_score():
    data = vectors(rows=6)
    predicted = {"part": np.zeros(6), "targets": data.targets, "output": np.eye(2)[data.targets]}
    assert scores(data, predicted, TEST) is None
    everything = scores(data, predicted, VALIDATION)
    assert everything is not None
    assert everything.by_domain == {"all": 1.0}


def test_a_result_takes_validation_from_the_best_epoch_and_test_from_the_predictions():
    data = vectors(rows=240)
    found = said(data, hold_outs(data, "north")[0])
    assert found["validation"] == {"metric": "accuracy", "by_domain": {"south": 0.5, "west": 1.0}, "overall": 0.7}
    assert found["test"]["by_domain"] == {"north": 1.0}
    assert (found["best_epoch"], found["epochs"], found["stopped"]) == (3, 9, "early")
    assert (found["seconds"], found["notes"]) == (1.235, ["a note"])
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


@pytest.mark.parametrize("frozen", [False, True])
def test_weights_that_do_not_move_are_not_among_the_trained(frozen):
    data = vectors()
    method = ERM(Backbone(MLP((4,))), 2, Classes())
    head = sum(p.numel() for p in nn.Linear(64, 2).parameters())
    method.backbone.requires_grad_(not frozen)
    counted = said(data, hold_outs(data, "north")[0], method=method)["parameters"]
    assert (counted["trained"] == head) is frozen
    assert (counted["trained"] == counted["all"]) is not frozen
