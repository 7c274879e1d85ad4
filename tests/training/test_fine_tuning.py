"""Frozen is frozen: heads are trained on features taken once, and say of raw inputs what they say of those."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from gated_domains.backbones.backbone import Backbone, CachedBackbone
from gated_domains.backbones.bodies import MLP, SmallCNN
from gated_domains.backbones.gating import Style
from gated_domains.data.sampling import InOrder
from gated_domains.methods import Method
from gated_domains.training import training_data as feature_cache
from gated_domains.training.prediction import predict_rows
from gated_domains.training.training_data import Frozen, FrozenBody, TrainingData, on_cached_features
from small_trainings import build, identical, material, pictures, train, vectors, weights

HEADS = {
    "linear": ("linear", {}),
    "erm-ensemble": ("erm-ensemble", {}),
    "gdu on filters or input": ("gdu", {}),
    "gdu on features": ("gdu", {"gating": "features"}),
    "gdu on style": ("gdu", {"gating": "style"}),
    "gdu-paper": ("gdu-paper", {}),
}


def trained_body(kind: str) -> tuple[TrainingData, SmallCNN | MLP]:
    """Data, and a body that has seen some: its running statistics are not those of the start."""
    data = material(pictures(80) if kind == "images" else vectors(80), train=60, validation=20)
    method = build("erm", data.dataset)
    train(method, data, epochs=1, batch_size=20)
    return data, method.backbone.body


@pytest.fixture(scope="module")
def trained():
    return {kind: trained_body(kind) for kind in ("images", "vectors")}


def fine_tuned(data: TrainingData, body: nn.Module, head: str, **more: object) -> tuple[Method, TrainingData]:
    name, settings = HEADS[head]
    method = build(name, data.dataset, mode="fine_tune", body=body, settings=settings)
    with on_cached_features(method, data, key="some data", seed=0) as cached:
        assert isinstance(method.backbone, CachedBackbone)
        train(method, cached, **{"epochs": 2, "batch_size": 20, "weight_decay": 0.1, **more})
    return method, cached


@pytest.mark.filterwarnings("ignore::gated_domains.layer.GateWarning")
@pytest.mark.parametrize("kind", ["images", "vectors"])
@pytest.mark.parametrize("head", HEADS)
def test_the_body_is_bit_by_bit_as_it_was_and_the_head_has_moved(head, kind, trained):
    data, body = trained[kind]
    before = weights(body)
    name, settings = HEADS[head]
    untrained = weights(build(name, data.dataset, mode="fine_tune", body=body, settings=settings))
    method, cached = fine_tuned(data, body, head)
    assert identical(weights(body), before)
    assert method.backbone.body.frozen.module is body
    moved = {name for name, value in method.state_dict().items() if not torch.equal(value, untrained[name])}
    assert any(name.startswith(("head", "units")) for name in moved)
    assert not any(name.startswith("backbone.body.") for name in moved)

    # What the head learned on the cache it says of raw inputs, in whatever mode somebody puts it.
    on_cache = predict_rows_of(method, cached, data)
    whole = predict_rows(method.train(), data.samples, data.validation)
    for field, values in on_cache.arrays().items():
        np.testing.assert_allclose(values, whole.arrays()[field], rtol=1e-4, atol=1e-5)


def predict_rows_of(method: Method, cached: TrainingData, data: TrainingData):
    """Predictions of cached rows, by the method with the cache in the place of its backbone."""
    whole = method.backbone
    values = cached.samples.values
    gating = values.shape[1] - whole.features
    method.backbone = CachedBackbone(whole.features, gating)
    try:
        return predict_rows(method, cached.samples, data.validation)
    finally:
        method.backbone = whole


def test_dropout_is_off_while_features_are_taken_and_while_heads_are_trained(trained):
    data, body = trained["vectors"]
    assert any(isinstance(module, nn.Dropout) and module.p > 0 for module in body.modules())
    method = build("linear", data.dataset, mode="fine_tune", body=body).train()
    with on_cached_features(method, data, key="once", seed=0) as cached:
        taken = cached.samples.values.clone()
    inputs = next(iter(data.samples.input_batches(InOrder(data.train, 60))))
    with torch.no_grad():
        torch.testing.assert_close(taken[:60], body.eval()(inputs), rtol=1e-5, atol=1e-6)
        method.train()
        assert torch.equal(method.logits(inputs).prediction, method.logits(inputs).prediction)


def test_the_same_batches_give_the_same_bits_from_the_cache_and_from_the_whole(trained):
    data, body = trained["vectors"]
    method, cached = fine_tuned(data, body, "gdu on filters or input")
    rows = torch.arange(80)
    raw = next(iter(data.samples.input_batches(InOrder(rows.numpy(), 80))))
    method.eval()
    with torch.no_grad():
        view = method.backbone(raw)
        assert torch.equal(torch.cat([view.features, view.gating], 1), cached.samples.values)


def test_the_backbone_runs_once_for_all_heads(trained, tmp_path, monkeypatch):
    data, body = trained["vectors"]
    monkeypatch.setenv("GATED_DOMAINS_CACHE", str(tmp_path))
    runs = []
    body.register_forward_pre_hook(lambda module, args: runs.append(len(args[0])))
    for seed in (0, 1):
        method = build("linear", data.dataset, mode="fine_tune", body=body, seed=seed)
        with on_cached_features(method, data, key="all", seed=0):
            pass
    assert runs == [80]
    assert len(list((tmp_path / "features").glob("*.npy"))) == 1


def test_the_method_has_its_backbone_again_whatever_happens(trained):
    data, body = trained["vectors"]
    method = build("linear", data.dataset, mode="fine_tune", body=body)
    whole = method.backbone
    with pytest.raises(KeyError), on_cached_features(method, data, key="cut", seed=0):
        raise KeyError
    assert method.backbone is whole


def test_targets_domains_and_rows_are_those_of_the_data(trained):
    data, body = trained["images"]
    method = build("linear", data.dataset, mode="fine_tune", body=body)
    with on_cached_features(method, data, key="rows", seed=0) as cached:
        assert cached.train is data.train
        assert cached.validation is data.validation
        assert torch.equal(cached.samples.targets, data.samples.targets)
        assert torch.equal(cached.samples.domains, data.samples.domains)
        assert cached.dataset.domain_names == data.dataset.domain_names


def test_the_view_of_gates_is_standardised_by_training_rows(trained):
    data, body = trained["vectors"]
    method = build("gdu", data.dataset, mode="fine_tune", body=body)
    with on_cached_features(method, data, key="standardised", seed=0) as cached:
        gating = cached.samples.values[: len(data.train), method.backbone.features :]
    torch.testing.assert_close(gating.mean(0), torch.zeros(6), atol=1e-4, rtol=0)
    torch.testing.assert_close(gating.std(0), torch.ones(6), atol=1e-3, rtol=0)


# -- what stands in for a backbone -----------------------------------------------------------------------------------


def test_cached_rows_are_features_and_beside_them_what_gates_see():
    rows = torch.arange(10.0).reshape(2, 5)
    apart, together = CachedBackbone(3, 2), CachedBackbone(5)
    assert apart(rows).features.tolist() == [[0, 1, 2], [5, 6, 7]]
    assert apart(rows).gating.tolist() == apart.look(rows).tolist() == [[3, 4], [8, 9]]
    assert together(rows).gating is None
    assert torch.equal(together.look(rows), rows)
    assert (apart.features, apart.gating_features) == (3, 2)
    assert (together.features, together.gating_features) == (5, 5)


def test_cached_rows_stand_still_and_nothing_of_them_is_trained_or_fitted():
    backbone = CachedBackbone(3, 2)
    assert isinstance(backbone, Backbone)
    assert backbone.sees_raw_input
    assert list(backbone.state_dict()) == []
    rows = torch.randn(7, 5) * 100
    assert torch.equal(backbone.fit_view(rows), rows[:, 3:])
    assert torch.equal(backbone.fit_view([rows[:4], rows[4:]]), rows[:, 3:])
    assert torch.equal(backbone.look(rows), rows[:, 3:])


def test_a_frozen_body_gives_what_the_body_gives_in_eval_mode_and_cannot_be_trained():
    body = MLP((6,), (16, 8))
    body(torch.randn(30, 6))
    frozen, before, x = FrozenBody(body), weights(body), torch.randn(9, 6)
    frozen.train()
    assert isinstance(frozen.frozen, Frozen)
    assert (frozen.features, frozen.shape) == (8, (6,))
    assert torch.equal(frozen(x), body.eval()(x))
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert not frozen(x).requires_grad
    assert identical(weights(body), before)


def test_gates_see_the_style_of_a_frozen_body_as_of_the_body():
    body = SmallCNN((3, 8, 8)).eval()
    frozen = FrozenBody(body)
    assert frozen.early == ("frozen.module.blocks.0", "frozen.module.blocks.1")
    x, views = torch.randn(5, 3, 8, 8), []
    for network in (body, frozen):
        style = Style(network)
        network(x)
        views.append(style(x))
        style.layers.stop()
    assert torch.equal(*views)


def test_a_body_frozen_twice_is_frozen_once():
    body = MLP((6,))
    assert FrozenBody(FrozenBody(body)).frozen.module.frozen.module is body


def test_features_of_another_body_are_never_taken_for_these(trained):
    data, body = trained["vectors"]
    other = MLP((6,), (16, 8)).eval()
    found = []
    for network in (body, other):
        method = build("linear", data.dataset, mode="fine_tune", body=network)
        with on_cached_features(method, data, key="same", seed=0) as cached:
            found.append(cached.samples.values.clone())
    assert not torch.equal(*found)
    assert feature_cache.module_hash(body) != feature_cache.module_hash(other)
