"""GDU trained with the gates of batches: blocks of one pseudo-domain each, found without domain labels."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import made_runs
from gated_domains.backbones.gated_norm import GatedNorm
from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.experiments.model import Model
from gated_domains.experiments.recipe_checks import choose_method
from gated_domains.methods import GDU, METHODS
from gated_domains.methods.method import total
from gated_domains.training.training_data import TrainingData, sample_inputs
from small_trainings import build, material, pictures, train, vectors


def prepared(data: TrainingData, **settings: Any) -> GDU:
    """GDU that was fitted to data, in eval mode and with deviations that are not 0."""
    method = build("gdu[train_gates=batch]", data.dataset, settings=settings).eval()
    method.prepare(lambda: sample_inputs(data, 0))
    with torch.no_grad():
        for name, parameter in method.named_parameters():
            if "deviations" in name or "experts" in name:
                parameter.normal_(std=0.3)
    return method


def rows_of(data: TrainingData, count: int = 48) -> DomainBatch:
    inputs = torch.cat(list(sample_inputs(data, 0)))[:count]
    return DomainBatch(inputs, torch.arange(count) % 3, None)


def pseudo_domains(method: GDU, inputs: torch.Tensor) -> list[int]:
    view = method.backbone.look(inputs).double()
    centres = method.pseudo_domains.double()
    return [min(range(len(centres)), key=lambda j: float((row - centres[j]).square().sum())) for row in view]


@pytest.mark.parametrize(("make", "norms"), [(vectors, False), (pictures, True)])
def test_the_loss_is_the_mean_over_rows_of_the_losses_of_blocks_gated_as_batches(make, norms):
    data = material(make())
    method = prepared(data, lambda_entropy=0.1, gated_norm=norms)
    batch = rows_of(data)
    assert any(isinstance(module, GatedNorm) for module in method.modules()) == norms
    blocks = torch.tensor(pseudo_domains(method, batch.inputs))
    assert len(blocks.unique()) > 2
    slow: dict[str, torch.Tensor] = {}
    for block in blocks.unique():
        own = blocks == block
        out = method.evaluate(batch.inputs[own], gates="batch")
        assert out.beta.shape == (1, 5)
        terms = {"task": method.task.loss(out, batch.targets[own]), **method.penalties(out)}
        for name, term in terms.items():
            slow[name] = slow.get(name, 0.0) + own.float().mean() * term
    found = method.objective(batch)
    assert found.keys() == slow.keys()
    for name, term in found.items():
        torch.testing.assert_close(term, slow[name])
    by_samples = method.task.loss(method.evaluate(batch.inputs), batch.targets)
    assert (found["task"] - by_samples).abs() > 1e-4
    total(found).backward()
    for parameter in method.parameters():
        assert parameter.grad is not None
    assert method.units.bases.grad.abs().max() > 0


def test_pseudo_domains_are_clusters_of_the_training_rows_with_each_centre_the_mean_of_its_rows():
    data = material(vectors())
    method = prepared(data)
    inputs = torch.cat(list(sample_inputs(data, 0)))
    view, ids = method.backbone.look(inputs), torch.tensor(pseudo_domains(method, inputs))
    assert ids.unique().tolist() == [0, 1, 2, 3, 4]
    means = torch.stack([view[ids == j].mean(0) for j in range(5)])
    torch.testing.assert_close(method.pseudo_domains, means, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("gates", ["train_gates", "test_gates"])
def test_in_training_mode_it_predicts_with_the_gates_of_training_as_a_teacher_must(gates):
    data = material(vectors())
    method = build(f"gdu[{gates}=batch]", data.dataset, settings={"gated_norm": False})
    method.prepare(lambda: sample_inputs(data, 0))
    inputs = rows_of(data).inputs
    expected = method.evaluate(inputs, by_pseudo_domain=gates == "train_gates")
    assert torch.equal(method.train().predict(inputs).beta, expected.beta)
    one_batch = method.eval().predict(inputs).beta
    assert torch.equal(one_batch, one_batch[:1].expand_as(one_batch))
    assert expected.beta.std(0).max() > 0.01


def test_kappa_gives_the_gates_of_blocks_the_entropy_asked_for_unless_it_is_set():
    data = material(vectors())
    inputs = torch.cat(list(sample_inputs(data, 0)))
    with torch.no_grad():
        beta = prepared(data, entropy=0.4).evaluate(inputs, by_pseudo_domain=True).beta
    entropy = torch.special.entr(beta).sum(1).mean() / torch.tensor(5.0).log()
    assert float(entropy) == pytest.approx(0.4, abs=1e-3)
    assert float(prepared(data, kappa=7.0).units.gate.kappa) == 7.0


def test_adaptive_bases_have_as_many_pseudo_domains_as_bases():
    data = material(vectors())
    method = build("gdu[train_gates=batch]", data.dataset, settings={"num_bases": "adaptive"})
    train(method, data, epochs=2)
    with torch.no_grad():
        inputs = torch.cat(list(sample_inputs(data, 0)))
        blocks = method._pseudo_domain_of(method.backbone.look(inputs))
    used = set(torch.nonzero(method.units.active).flatten().tolist())
    assert len(used) > 1
    assert set(blocks.tolist()) == used


def test_it_predicts_by_batch_and_its_run_says_so(tmp_path):
    run = made_runs.runner(made_runs.vectors(), tmp_path).run(
        made_runs.recipe("gdu", settings={"train_gates": "batch"}, training={"epochs": 1})
    )
    assert run.result().to_json()["batchwise"]
    loaded = Model.load(run.path).method
    assert (loaded.test_gates, loaded.batchwise) == ("batch", True)
    assert loaded.pseudo_domains.abs().max() > 0
    assert not METHODS["gdu"].batchwise
    assert "gates of batches" in loaded.per_rank()


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
def test_on_the_embedded_digits_a_table_marks_it_as_adapting_to_the_batch_like_arm_bn(tmp_path):
    methods = "erm,arm-bn,gdu[train_gates=batch]"
    settings = ("--hold-out", "optical", "--seeds", 1, "--epochs", 1, "--workers", 1, "--no-report", "--out", tmp_path)
    done = made_runs.call("compare", "digits", "--methods", methods, *settings)
    assert done.code == 0, done.err
    table = (tmp_path / "table.md").read_text()
    assert re.findall(r"^\| (ERM|ARM-BN|GDU)[^|]*? (§)? ?\|", table, re.MULTILINE) == [
        ("ERM", ""),
        ("ARM-BN", "§"),
        ("GDU", "§"),
    ]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"test_gates": "sample"}, "test_gates=sample does not go with train_gates=batch.*leave test_gates out"),
        ({"gates": "constant"}, "train_gates=batch does not go with gates=constant.*leave one of them out"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, why):
    with pytest.raises(DataError, match=why):
        choose_method("gdu", {"train_gates": "batch", **settings})


def test_gates_that_are_taught_groups_are_trained_by_sample():
    with pytest.raises(DataError, match=r"train_gates=batch does not go with gdu-groups.*leave train_gates out"):
        build("gdu-groups[train_gates=batch]", vectors())
