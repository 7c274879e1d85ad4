"""Official scores of chance predictions, beside what the ``wilds`` package itself makes of the same predictions."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.extras
pytest.importorskip("wilds")

from gated_domains.data.wilds import WILDS, places  # noqa: E402
from gated_domains.data.wilds.package import open_wilds  # noqa: E402
from gated_domains.evaluation.scores import official_scores  # noqa: E402
from made_wilds import loaded, small_miniature  # noqa: E402
from wilds_eval import wilds_eval  # noqa: E402

SAME = {"rel": 0, "abs": 1e-6}
# What WILDS calls the score that counts, and the score of all rows.
KEYS = {
    "camelyon17": ("acc_avg", "acc_avg"),
    "fmow": ("acc_worst_region", "acc_avg"),
    "amazon": ("10th_percentile_acc", "acc_avg"),
    "iwildcam": ("F1-macro_all", "F1-macro_all"),
    "rxrx1": ("acc_avg", "acc_avg"),
    "civilcomments": ("acc_wg", "acc_avg"),
    "poverty": ("r_wg", "r_all"),
}


def chance_output(data, rows, seed):
    """Scores of every class, better than a guess, or numbers somewhere near the target."""
    chance = np.random.default_rng(seed)
    if data.class_names is None:
        return (data.targets[rows] + chance.normal(size=len(rows)))[:, None].astype(np.float32)
    output = chance.random((len(rows), data.num_classes)).astype(np.float32)
    output[np.arange(len(rows)), data.targets[rows]] += 0.3
    return output / output.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("part", ["test", "val"])
@pytest.mark.parametrize("name", KEYS)
def test_the_score_that_counts_is_that_of_the_package(name, part, seed, tmp_path_factory):
    data_dir = small_miniature(name, tmp_path_factory)
    data = loaded(name, data_dir)
    rows = data.published.rows(part)
    output = chance_output(data, rows, seed)
    ours = official_scores(data.published, output, data.targets[rows], rows)
    fold = "A" if name == "poverty" else None
    theirs = open_wilds(WILDS[name], places.located(WILDS[name], data_dir), fold=fold)
    said = torch.from_numpy(output if data.class_names is None else output.argmax(axis=1))
    results = wilds_eval(theirs, said, torch.from_numpy(data.metadata["wilds_row"][rows]))
    counts, overall = KEYS[name]
    assert ours.by_domain["test"] == pytest.approx(float(results[counts]), **SAME)
    assert ours.overall == pytest.approx(float(results[overall]), **SAME)


def test_molecules_are_scored_as_ogbs_evaluator_does(tmp_path_factory, monkeypatch):
    monkeypatch.setitem(sys.modules, "outdated", None)
    from ogb.graphproppred import Evaluator

    data = loaded("ogb-molpcba", small_miniature("ogb-molpcba", tmp_path_factory))
    rows = np.arange(len(data))
    output = np.random.default_rng(0).random(data.targets.shape).astype(np.float32)
    ours = official_scores(data.published, output, data.targets, rows)
    theirs = Evaluator("ogbg-molpcba").eval({"y_true": data.targets, "y_pred": output})
    assert ours.overall == pytest.approx(theirs["ap"], **SAME)
    assert ours.by_domain == {"test": ours.overall}


def test_the_region_that_is_none_is_not_scored(tmp_path_factory):
    data = loaded("fmow", small_miniature("fmow", tmp_path_factory))
    (regions,) = data.published.groupings
    assert "Other" not in regions.names
    np.testing.assert_array_equal(regions.index == -1, data.metadata["region"] == "Other")


def test_civilcomments_has_sixteen_groups_that_overlap(tmp_path_factory):
    data = loaded("civilcomments", small_miniature("civilcomments", tmp_path_factory))
    assert sum(len(grouping.names) for grouping in data.published.groupings) == 16
    assert data.published.groupings[0].names == ("male, not toxic", "male, toxic")
    member = np.stack([grouping.index >= 0 for grouping in data.published.groupings])
    assert member.sum(axis=0).max() > 1
    assert member.sum(axis=0).min() == 0
