"""ARM-BN: each domain is normalised by its own statistics, in training and where nobody knows a label."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import made_runs
from gated_domains.backbones.backbone import Identity
from gated_domains.backbones.bodies import MLP
from gated_domains.data.batches import DomainBatch, place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import fit_encoding
from gated_domains.data.errors import DataError
from gated_domains.experiments.model import Model
from gated_domains.methods import ERM, METHODS, Method
from gated_domains.methods.arm_bn import ARMBN, by_their_batch
from gated_domains.training.prediction import predict_rows
from gated_domains.training.training_data import TrainingData
from small_trainings import DOMAINS, Unwrapped, build, identical, pictures, train, vectors, weights


def without_dropout(name: str = "arm-bn", *, norm: bool = True) -> Method:
    return build(name, vectors(), body=MLP((6,), (16, 8), norm=norm, dropout=0))


def blocks(rows: int = 20) -> DomainBatch:
    data = vectors(DOMAINS * rows)
    order = np.argsort(data.domains, kind="stable")
    inputs, targets = torch.from_numpy(data.inputs.values[order]), torch.from_numpy(data.targets[order])
    return DomainBatch(inputs, targets, torch.from_numpy(data.domains[order]), blocks=DOMAINS)


def normalised(body: MLP, inputs: torch.Tensor) -> torch.Tensor:
    """The body written out: batch norm by the mean and the variance of these rows."""
    for linear, norm, _ in body.blocks:
        inputs = inputs @ linear.weight.T
        centred = inputs - inputs.mean(0)
        inputs = centred / (centred.square().mean(0) + norm.eps).sqrt() * norm.weight + norm.bias
        inputs = inputs.clamp_min(0)
    return inputs


def test_a_step_minimises_the_mean_over_domains_each_normalised_by_itself():
    method, batch = without_dropout().train(), blocks()
    other = copy.deepcopy(method)
    found = method.step(Unwrapped(method), batch, torch.optim.SGD(method.parameters(), lr=0.5))
    losses = [
        nn.functional.cross_entropy(other.head(normalised(other.backbone.body, part.inputs)), part.targets)
        for part in batch.parts()
    ]
    loss = sum(losses) / DOMAINS
    gradients = torch.autograd.grad(loss, list(other.parameters()))
    torch.testing.assert_close(found["task"], loss.detach())
    for one, start, gradient in zip(method.parameters(), other.parameters(), gradients, strict=True):
        torch.testing.assert_close(one.detach(), start.detach() - 0.5 * gradient, rtol=1e-4, atol=1e-6)
    together = nn.functional.cross_entropy(other.head(normalised(other.backbone.body, batch.inputs)), batch.targets)
    assert abs(float((together - loss).detach())) > 1e-3  # all at once would be something else


def test_it_predicts_by_the_statistics_of_the_batch_and_keeps_nothing_of_it():
    method, batch = without_dropout().train(), blocks()
    method.step(Unwrapped(method), batch, torch.optim.SGD(method.parameters(), lr=0.5))
    method.eval()
    before = weights(method)
    for part in batch.parts():
        with torch.no_grad():
            found = method.predict(part.inputs).output
            expected = method.head(normalised(method.backbone.body, part.inputs)).softmax(1)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert identical(weights(method), before)
    assert not method.training


def test_a_domain_is_normalised_in_parts_of_the_support_that_was_set():
    method = build("arm-bn", vectors(), body=MLP((6,), (16, 8), norm=True, dropout=0), settings={"support": 5}).train()
    batch, other = blocks(), copy.deepcopy(method)
    found = method.step(Unwrapped(method), batch, torch.optim.SGD(method.parameters(), lr=0.5))
    losses = [
        nn.functional.cross_entropy(other.head(normalised(other.backbone.body, inputs)), targets)
        for inputs, targets in zip(batch.inputs.split(5), batch.targets.split(5), strict=True)
    ]
    torch.testing.assert_close(found["task"], (sum(losses) / len(losses)).detach())


@pytest.mark.parametrize(("settings", "support"), [({}, 16), ({"support": 8}, 8)])
def test_training_and_prediction_normalise_as_many_rows_of_a_domain_together(settings, support, tmp_path, monkeypatch):
    """Of 4 sites with 100 rows each one is held out; 80 of the others train, in batches of 3 x 16, and 20 validate."""
    asked: dict[str, set[int]] = {"training": set(), "prediction": set()}
    objective, predict = ARMBN.objective, ARMBN.predict

    def watched_objective(method, batch):
        asked["training"].add(len(batch))
        return objective(method, batch)

    def watched_predict(method, inputs):
        asked["prediction"].add(len(inputs))
        return predict(method, inputs)

    monkeypatch.setattr(ARMBN, "objective", watched_objective)
    monkeypatch.setattr(ARMBN, "predict", watched_predict)
    values, domains = np.random.default_rng(0).normal(size=(400, 6)).astype(np.float32), np.arange(400) % 4
    data = DomainDataset.from_arrays(values, np.arange(400) // 4 % 2, domains, name="sites", task="classification")
    training = {"batch_size": 48, "repeat_rows": True}
    job = made_runs.recipe("arm-bn", hold_out="3", body="mlp", settings=settings, training=training)
    run = made_runs.runner(data, tmp_path).run(job)
    assert asked["training"] == {support}
    near = {16: {20, 17, 16}, 8: {10, 9, 8}}[support]  # of 20 rows that validate and of 100 held out
    assert asked["prediction"] <= near | {support}
    loaded = Model.load(run.path)
    assert loaded.method.support_rows == support
    asked["prediction"].clear()
    predict_rows(loaded.method, place(data, loaded.schema.encoding), np.flatnonzero(domains == 3)[: 6 * support])
    assert asked["prediction"] == {support}


def test_more_support_than_a_batch_has_rows_of_a_domain_is_refused_with_the_cure(tmp_path):
    job = made_runs.recipe("arm-bn", body="mlp", settings={"support": 500})
    with pytest.raises(
        DataError, match=r"support=500 rows .* training batch has \d+; choose fewer, a larger batch size"
    ):
        made_runs.runner(made_runs.vectors(), tmp_path).run(job)


def test_a_shift_and_a_scale_of_every_input_change_nothing():
    """The first layer has no bias and no other end: batch norm takes both away."""
    method, inputs = without_dropout().eval(), blocks().parts()[0].inputs
    with torch.no_grad():
        torch.testing.assert_close(method.predict(3 * inputs + 7).output, method.predict(inputs).output)
        plain = ERM.predict(method, 3 * inputs + 7).output
    assert (plain - method.predict(inputs).output).abs().max() > 0.01


def test_a_single_sample_is_normalised_by_the_running_statistics():
    method, batch = without_dropout().train(), blocks()
    method.step(Unwrapped(method), batch, torch.optim.SGD(method.parameters(), lr=0.5))
    method.eval()
    with torch.no_grad():
        assert torch.equal(method.predict(batch.inputs[:1]).output, ERM.predict(method, batch.inputs[:1]).output)
        two = method.predict(batch.inputs[:2]).output[:1]
        assert not torch.allclose(two, ERM.predict(method, batch.inputs[:1]).output)


def test_norms_have_their_running_statistics_again_whatever_happened():
    body = pictures_body()
    before = {name: value.clone() for name, value in body.state_dict().items()}
    with pytest.raises(RuntimeError), by_their_batch(body):
        body(torch.randn(4, 5, 8, 8))  # of five colours
    assert identical(body.state_dict(), before)
    assert all(module.running_mean is not None for module in body.modules() if isinstance(module, nn.BatchNorm2d))


def pictures_body() -> nn.Module:
    return build("arm-bn", pictures()).backbone.body.eval()


@pytest.mark.parametrize("body", [Identity((6,)), MLP((6,), (8,), norm=False)])
def test_a_body_without_batch_norm_is_refused_with_the_cure(body):
    name = type(body).__name__
    with pytest.raises(DataError, match=f"batch norm, and the body {name} has none; choose a body with .* arm-bn out"):
        build("arm-bn", vectors(), body=body)


def test_it_says_that_its_predictions_hang_on_the_batch_and_is_trained_end_to_end_alone():
    assert [name for name, kind in METHODS.items() if kind.batchwise] == ["arm-bn"]
    assert METHODS["arm-bn"].modes == ("end_to_end",)


# -- a known answer --------------------------------------------------------------------------------------------------


def lights(seed: int) -> DomainDataset:
    """Images of 8 x 8 pixels, whose bright third tells the class; the last domain is far brighter and paler."""
    rng = np.random.default_rng(seed)
    domains, classes = np.arange(420) % 4, rng.integers(3, size=420)
    values = rng.normal(0, 0.35, size=(420, 8, 8))
    for row, third in enumerate(classes):
        values[row, :, 3 * third : 3 * third + 3] += 1
    contrast, brightness = (np.array(each)[domains, None, None] for each in ((40, 60, 50, 14), (60, 90, 120, 215)))
    values = (values * contrast + brightness).clip(0, 255).round().astype(np.uint8)
    return DomainDataset.from_arrays(values[..., None], classes, domains, name="lights")


def test_it_recovers_under_a_shift_of_brightness_where_erm_is_lost():
    data = lights(seed=0)
    sources, unseen = np.flatnonzero(data.domains != 3), np.flatnonzero(data.domains == 3)
    samples = place(data, fit_encoding(data, sources))
    material = TrainingData(dataset=data, samples=samples, train=sources[:240], validation=sources[240:])
    right = {}
    for name in ("erm", "arm-bn"):
        method = build(name, data)
        train(method, material, epochs=6)
        for part, rows in (("sources", sources[240:]), ("unseen", unseen)):
            said = predict_rows(method, samples, rows).output.argmax(1)
            right[name, part] = float((said == data.targets[rows]).mean())
    assert right["erm", "sources"] > 0.95
    assert right["erm", "unseen"] < 0.8
    assert right["arm-bn", "sources"] > 0.95
    assert right["arm-bn", "unseen"] > 0.95
