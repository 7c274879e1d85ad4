"""Runs on data with several labels a row, some unknown: every method trains on them, and what it says is used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pytest
import torch

from gated_domains.applying.of_run import predict_new
from gated_domains.applying.scoring import score_new
from gated_domains.applying.tables import prediction_table
from gated_domains.data.batches import DomainBatch
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features
from gated_domains.data.named import DATASETS, Known
from gated_domains.data.new_data import NewData
from gated_domains.evaluation.formulas import FORMULAS
from gated_domains.evaluation.metrics import validation_loss
from gated_domains.experiments.model import Model
from gated_domains.layer.experts import Logits, MultiLabel
from gated_domains.methods import METHODS, lisa
from gated_domains.methods.lisa import random_partners
from gated_domains.runs.folder import RunFolder
from made_published import LABELS, labelled
from made_runs import assert_refused, call, recipe, runner, vectors
from small_trainings import build

SETTINGS: dict[str, dict[str, Any]] = {
    "erm": {}, "gdu": {}, "gdu-paper": {}, "coral": {}, "lisa": {}, "group-dro": {}, "fish": {}, "irm": {}, "cgd": {},
    "linear": {}, "ensemble": {"members": 2}, "erm-ensemble": {}, "arm-bn": {}, "gdu-groups": {},
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> RunFolder:
    data = runner(labelled(), tmp_path_factory.mktemp("made"))
    return data.run(recipe("gdu", training={"epochs": 12, "rate": 0.03}))


def test_every_method_is_tried_here():
    assert set(SETTINGS) == set(METHODS)


@pytest.mark.parametrize("method", SETTINGS)
def test_a_method_learns_labels_of_which_some_are_unknown(method, tmp_path):
    ours = runner(labelled(), tmp_path)
    run = ours.run(recipe(method, settings=SETTINGS[method]))
    result = run.result().to_json()
    assert result["metric"] == "mean_average_precision"
    assert 0 < result["test"]["overall"] <= 1
    assert all(np.isfinite(value) for record in run.metrics() for value in record["train"].values())
    found = run.predictions()
    assert found["output"].shape == found["targets"].shape == (len(found["rows"]), 3)
    assert np.isnan(found["targets"]).any()
    assert ((found["output"] > 0) & (found["output"] < 1)).all()
    model = Model.load(run.path)
    assert isinstance(model.method.task, MultiLabel)
    assert model.schema.label_names == LABELS
    data = labelled()
    new = NewData(name="new", inputs=data.inputs.take(found["rows"]), class_names=None, label_names=LABELS)
    if not METHODS[method].batchwise:  # those see the rows beside
        np.testing.assert_allclose(predict_new(model, new).output, found["output"], rtol=1e-4, atol=1e-5)


def test_something_is_learned(made):
    assert made.result().to_json()["test"]["overall"] > 0.8


def test_all_metrics_of_labels_are_there(made):
    found = made.result().to_json()["all_metrics"]["test"]
    assert set(found) == {"mean_average_precision", "mean_auroc"}
    arrays = made.predictions()
    held_out = arrays["part"] == 1
    for name, score in found.items():
        assert score["overall"] == pytest.approx(
            FORMULAS[name](arrays["output"][held_out], arrays["targets"][held_out])
        )


@pytest.mark.parametrize("training", [{"swad": True}, {"ema": 0.9}, {"mixstyle": 0.5}, {"accumulate": 4}])
def test_the_switches_go_with_labels(training, tmp_path):
    run = runner(labelled(), tmp_path).run(recipe("erm", training={"epochs": 4, **training}))
    assert np.isfinite(run.result().to_json()["validation"]["overall"])


def test_one_label_is_enough(tmp_path):
    data = labelled()
    one = replace(data, targets=data.targets[:, :1], label_names=LABELS[:1])
    run = runner(one, tmp_path).run(recipe("gdu", training={"epochs": 3, "swad": True}))
    assert run.predictions()["output"].shape[1] == 1
    assert run.result().to_json()["metric"] == "mean_average_precision"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"calibrate": True}, "nothing to calibrate where labels are predicted"),
        ({"selection": "worst_class"}, "no worst class where labels are predicted"),
        ({"metric": "accuracy"}, "'accuracy' scores classes, and here labels are predicted"),
        ({"training": {"class_weights": True}}, "class weights need classes, and here labels are predicted"),
        ({"score_by": ("class",)}, "no classes to group by: labels are predicted"),
    ],
)
def test_what_is_for_classes_is_refused(changes, message, tmp_path):
    with pytest.raises(DataError, match=message):
        runner(labelled(), tmp_path).planner.plan([recipe("erm", **changes)])


def test_validation_rows_where_no_label_is_both_cannot_select(tmp_path):
    data = labelled()
    answers = np.where(np.isnan(data.targets), np.nan, 1).astype(np.float32)
    with pytest.raises(DataError, match="have no mean average precision to select by"):
        runner(replace(data, targets=answers), tmp_path).planner.plan([recipe("erm")])


# -- the parts of it ---------------------------------------------------------------------------------------------------


def test_rows_with_many_labels_are_mixed_within_domains_whatever_is_drawn():
    targets = torch.tensor([[1.0, 0], [torch.nan, 1], [1, 0], [0, 0]])
    domains = torch.tensor([0, 0, 1, 2])
    for within in (True, False):
        found = random_partners(targets, domains, within_labels=torch.tensor(within))
        assert found.tolist() == [1, 0, 2, 3]  # the last two are alone


def test_lisas_loss_is_that_of_both_rows_by_their_shares(monkeypatch):
    data = labelled(60)
    method = build("lisa", data, task=MultiLabel(), settings={"mix": "features"}).eval()
    method.head = torch.nn.Linear(method.head.in_features, 3)
    shares = torch.linspace(0.1, 0.9, 10)
    monkeypatch.setattr(lisa, "Beta", lambda *a, **b: type("Drawn", (), {"sample": lambda self: shares})())
    batch = DomainBatch(
        torch.from_numpy(np.asarray(data.inputs.values[:10])),
        torch.from_numpy(data.targets[:10]),
        torch.zeros(10, dtype=torch.int64),
    )
    torch.manual_seed(3)
    torch.rand(())
    partners = random_partners(batch.targets, batch.domains, within_labels=torch.tensor(False))
    torch.manual_seed(3)
    found = method.objective(batch)["task"].detach()
    features = method.backbone(batch.inputs).features
    expected = []
    for row, share in enumerate(shares):
        other = partners[row]
        logits = method.head(share * features[row] + (1 - share) * features[other])
        for part, of in ((share, batch.targets[row]), (1 - share, batch.targets[other])):
            known = ~of.isnan()
            one = torch.nn.functional.binary_cross_entropy_with_logits(logits[known], of[known], reduction="sum")
            expected.append(float(part * one.detach()) / max(1, int(known.sum())))
    assert float(found) == pytest.approx(sum(expected) / 10, rel=1e-5)


def test_the_validation_loss_is_over_what_is_known():
    output = np.array([[0.9, 0.2], [0.5, 0.5]])
    targets = np.array([[1.0, np.nan], [0.0, 1.0]])
    assert validation_loss(output, targets) == pytest.approx(-np.mean(np.log([0.9, 0.5, 0.5])))
    assert validation_loss(output[:, :1], targets[:, :1]) == pytest.approx(-np.mean(np.log([0.9, 0.5])))
    assert np.isfinite(validation_loss(np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]])))


def test_a_row_of_which_nothing_is_known_teaches_nothing():
    logits = torch.randn(3, 2, requires_grad=True)
    targets = torch.tensor([[1.0, 0.0], [torch.nan, torch.nan], [torch.nan, 1.0]])
    MultiLabel().losses(Logits(logits), targets).sum().backward()
    assert logits.grad[1].tolist() == [0, 0]
    assert logits.grad[2, 0] == 0
    assert logits.grad[0].abs().min() > 0


# -- on new data -------------------------------------------------------------------------------------------------------


def new(data: DomainDataset, **others: Any) -> NewData:
    return NewData(**{"name": "new", "inputs": data.inputs, "class_names": None, "label_names": LABELS, **others})


def test_predictions_have_a_column_a_label_and_name_the_likely_ones(made):
    data = labelled()
    predicted = predict_new(Model.load(made.path), new(data))
    table = prediction_table(new(data), predicted).to_pydict()
    for place, name in enumerate(LABELS):
        assert table[f"p({name})"] == pytest.approx(predicted.output[:, place].tolist())
    for row, likely in enumerate(table["prediction"]):
        assert likely == ", ".join(name for name, p in zip(LABELS, predicted.output[row], strict=True) if p > 0.5)
    assert "probability" not in table


def test_new_data_with_labels_are_scored(made):
    data = labelled()
    predicted = predict_new(Model.load(made.path), new(data))
    found = score_new(
        new(data, targets=data.targets, domains=data.domains, domain_names=data.domain_names), predicted
    )  # fmt: skip
    assert found.metric.name == "mean_average_precision"
    assert set(found.by_domain) == set(data.domain_names)
    assert found.overall == pytest.approx(FORMULAS["mean_average_precision"](predicted.output, data.targets))


@pytest.fixture
def known(monkeypatch, tmp_path) -> None:
    """Labelled data by the name of ``molecules``, others with other labels by that of ``others``; and a file."""
    for name, data in (("molecules", labelled()), ("others", labelled(label_names=("a", "b", "c")))):
        monkeypatch.setitem(DATASETS, name, Known(name, lambda folder, seed, reading, data=data: data, True))
    monkeypatch.chdir(tmp_path)
    np.savez("new.npz", X=np.asarray(labelled().inputs.values), y=np.zeros(180))


@pytest.mark.usefixtures("without_shape_checks", "known")
def test_the_commands_on_labels(made):
    done = call("evaluate", made.path, "molecules")
    assert done.code == 0, done
    assert "mean average precision" in done.out
    assert call("evaluate", made.path, "molecules", "--json").code == 0
    for what in ("molecules", "new.npz"):
        done = call("predict", made.path, what, "--out", "said.csv")
        assert done.code == 0, done
        table = pyarrow.csv.read_csv("said.csv")
        assert {f"p({name})" for name in LABELS} < set(table.column_names)
        assert len(table) == 180
        Path("said.csv").unlink()
    assert_refused(call("evaluate", made.path, "new.npz"), "the model answers 3 labels, and a file has one target")
    assert_refused(call("evaluate", made.path, "others"), "has other labels than the model was trained on")


def test_a_model_of_classes_is_as_ever(tmp_path):
    run = runner(vectors(), tmp_path).run(recipe("erm", training={"epochs": 1}))
    data = NewData(name="new", inputs=Features(np.zeros((2, 4), np.float32)), class_names=("no", "yes"))
    table = prediction_table(data, predict_new(Model.load(run.path), data)).to_pydict()
    assert set(table) == {"row", "prediction", "probability", "p(no)", "p(yes)"}
