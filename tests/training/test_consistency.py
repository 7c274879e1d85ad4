"""Consistency between the two views of an image: whose gradient, which targets, how much, and after a resume."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError

from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.layer import GateWarning
from gated_domains.layer.experts import Binary, Logits, MultiClass, MultiLabel, ProbabilisticRegression, Regression
from gated_domains.methods import METHODS, Numbers
from gated_domains.runs.recipe import TrainingSettings
from gated_domains.training.callbacks.base import ProgressCallback
from gated_domains.training.mixing import TEACHER_DECAY
from small_trainings import Records, build, material, pictures, training

MIXED = {"fourier_mix": 1.0, "consistency": 2.0}
WITH_SETTINGS = ("arm-bn[support=4]", "gdu[train_gates=batch]")


def data():
    return material(pictures(100), train=64, validation=30)


def started(name: str = "erm", **settings):
    run = training(build(name, data().dataset), data(), epochs=2, **{**MIXED, **settings})
    run.method.train()
    return run


def plain_batch(run) -> DomainBatch:
    return next(iter(run.data.samples.batches(run.sampler)))


def both(run) -> tuple[DomainBatch, DomainBatch]:
    plain = plain_batch(run)
    mixed = run.update.fourier(plain)
    return mixed, run.update.consistency.both_views(plain, mixed)


@pytest.mark.parametrize("ema", [None, 0.9])
def test_each_sample_is_there_twice_and_has_the_teachers_prediction_for_its_other_view(ema):
    run = started(ema=ema)
    average = run.update.ema or run.update.teacher
    assert average.decay == (ema or TEACHER_DECAY)
    for value in average.averages.values():
        value.add_(0.1)  # a teacher that is not the method itself
    weights = {name: p.detach().clone() for name, p in run.method.named_parameters()}
    plain = plain_batch(run)
    mixed, twice = both(run)
    assert torch.equal(twice.inputs[0::2], plain.inputs)
    assert torch.equal(twice.inputs[1::2], mixed.inputs)
    assert torch.equal(twice.targets, plain.targets.repeat_interleave(2))
    with torch.no_grad(), average.swapped(run.method):
        wanted = run.method.predict(twice.inputs).output
    assert torch.allclose(twice.soft_targets[0::2], wanted[1::2])
    assert torch.allclose(twice.soft_targets[1::2], wanted[0::2])
    assert not twice.soft_targets.requires_grad
    assert all(torch.equal(p, weights[name]) for name, p in run.method.named_parameters())


def test_the_teacher_moves_no_running_statistics_and_drops_nothing_out():
    run = started()
    noise = torch.nn.Dropout(0.5)
    run.method.backbone.body.register_forward_hook(lambda module, args, features: noise(features))
    run.method.backbone.body.add_module("noise", noise)
    plain = plain_batch(run)
    mixed = run.update.fourier(plain)
    before = {name: buffer.clone() for name, buffer in run.method.named_buffers()}
    once, again = (run.update.consistency.both_views(plain, mixed).soft_targets for _ in range(2))
    assert torch.equal(once, again)
    assert all(torch.equal(buffer, before[name]) for name, buffer in run.method.named_buffers())
    assert noise.training
    assert not torch.equal(*(run.method.predict(plain.inputs).output for _ in range(2)))


def test_a_teacher_of_its_own_is_the_average_of_the_weights_after_every_step():
    class Averages(ProgressCallback):
        def on_step(self, step, steps):
            decay = min(TEACHER_DECAY, step / (9 + step))  # steps are counted from 1
            for name, p in run.method.named_parameters():
                averages[name] = decay * averages[name] + (1 - decay) * p.detach()

    run = training(build("erm", data().dataset), data(), epochs=2, progress=Averages(), **MIXED)
    start = {name: p.detach().clone() for name, p in run.method.named_parameters()}
    averages = dict(start)
    run.fit()
    assert run.update.teacher.count == run.step > 1
    for name, average in run.update.teacher.averages.items():
        torch.testing.assert_close(average, averages[name])
    assert not all(torch.equal(average, start[name]) for name, average in run.update.teacher.averages.items())


@pytest.mark.filterwarnings("ignore::gated_domains.layer.GateWarning")
def test_a_teacher_has_the_bases_that_were_refitted():
    class EpochStarts(ProgressCallback):
        def on_epoch_start(self, trainer):
            seen.append(torch.equal(run.update.teacher.averages["units.bases"], run.method.units.bases))

    method, seen = build("gdu", data().dataset, settings={"num_bases": "adaptive"}), []
    run = training(method, data(), epochs=2, progress=EpochStarts(), **MIXED)
    run.fit()
    assert run.method.units.active.sum() > 1
    assert seen[0]


def test_no_gradient_reaches_the_teacher():
    run = started()
    run.update.consistency.begin_step(1_000, 10)
    _, twice = both(run)
    found = []
    for soft in (twice.soft_targets, twice.soft_targets.detach().clone()):
        run.method.zero_grad()
        sum(run.method.objective(replace(twice, soft_targets=soft)).values()).backward()
        found.append([p.grad.clone() for p in run.method.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


@pytest.mark.parametrize("name", [*(name for name in METHODS if name not in ("ensemble", "linear")), *WITH_SETTINGS])
def test_a_teacher_with_the_weights_of_the_method_agrees_with_it_where_views_are_the_same(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GateWarning)
        run = started(name)
    run.update.consistency.begin_step(1_000, 10)
    plain = plain_batch(run)
    own = plain if run.method.uses_domains else plain.without_domains()
    found: list[float] = []

    def objective(batch):
        terms = run.method.objective(batch)
        found.append(terms["consistency"].item())
        return terms

    objective.backward = lambda loss: loss.backward()
    twice = run.update.consistency.both_views(own, own)
    run.method.step(objective, twice, torch.optim.SGD(run.method.parameters(), lr=0.0))
    assert found
    assert found == pytest.approx([0.0] * len(found), abs=1e-5)


def test_the_weight_rises_over_the_first_30_percent_of_steps():
    run = started()
    found = []
    for step in (0, 15, 30, 100):
        run.update.consistency.begin_step(step, 100)
        found.append(both(run)[1].soft_weight.item())
    assert found == pytest.approx([0.0, 1.0, 2.0, 2.0])


def test_the_loss_is_the_divergence_at_temperature_4():
    logits, teacher = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    found = MultiClass().divergence(Logits(logits), teacher.softmax(-1))
    wanted = 0.0
    for student, wise in zip(logits, teacher, strict=True):
        p, q = (wise / 4).softmax(-1), (student / 4).softmax(-1)
        wanted += 16 * (p * (p / q).log()).sum().item() / 5
    assert found.item() == pytest.approx(wanted)
    assert MultiClass().divergence(Logits(teacher), teacher.softmax(-1)).item() == pytest.approx(0, abs=1e-9)
    yes, wise = torch.randn(5, 2, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    pairs = [torch.stack([torch.zeros_like(part), part], -1) for part in (yes, wise)]
    of_pairs = [
        MultiClass().divergence(Logits(pairs[0][:, label]), pairs[1][:, label].softmax(-1)).item() for label in (0, 1)
    ]
    assert MultiLabel().divergence(Logits(yes), wise.sigmoid()).item() == pytest.approx(sum(of_pairs) / 2)
    assert Binary().divergence(Logits(yes[:, :1]), wise[:, :1].sigmoid()).item() == pytest.approx(of_pairs[0])
    assert Regression().divergence(Logits(yes), wise).item() == pytest.approx(F.mse_loss(yes, wise).item())
    for large, allowed in ((-20.0, 1e-4), (15.0, 1e-2), (17.0, 2e-2)):  # of floats, the last is rounded to 1
        out = Logits(torch.tensor([[large]]))
        assert MultiLabel().divergence(out, MultiLabel().read(out)).item() == pytest.approx(0, abs=allowed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "task",
    [MultiClass(), MultiLabel(), Binary(), Regression(), ProbabilisticRegression(), Numbers(50.0, 10.0)],
    ids=str,
)
def test_a_prediction_diverges_from_itself_by_nothing_and_is_not_pushed(task, dtype):
    raw = torch.tensor([[7.0], [-7.0], [0.5]]).repeat(1, 1 if isinstance(task, Binary) else 3).to(dtype)
    out = Logits(raw.requires_grad_())
    loss = task.divergence(out, task.read(out).detach())
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-3)
    assert raw.grad.abs().max().item() < 1e-3


def test_numbers_diverge_in_standardised_units():
    mine, wise = torch.randn(5, 1), torch.randn(5, 1)
    task = Numbers(50.0, 10.0)
    found = task.divergence(Logits(mine), task.read(Logits(wise)))
    assert found.item() == pytest.approx(F.mse_loss(mine, wise).item(), rel=1e-4)


def test_the_parts_of_an_accumulated_batch_have_both_views_each():
    run, seen = started(accumulate=2), []
    objective = run.method.objective
    run.method.objective = lambda batch: seen.append(batch) or objective(batch)
    run.fit()
    assert {len(batch) for batch in seen} == {run.settings.batch_size}
    assert all(torch.equal(batch.targets[0::2], batch.targets[1::2]) for batch in seen)
    assert all(batch.soft_targets is not None for batch in seen)


def test_the_curves_of_a_training_show_it():
    journal = Records()
    run = training(build("erm", data().dataset), data(), epochs=2, journal=journal, **MIXED)
    run.fit()
    assert [record["train"]["consistency"] > 0 for record in journal] == [True, True]


def test_a_method_whose_objective_lacks_the_term_is_told_what_to_add(monkeypatch):
    run = started()
    monkeypatch.setattr(run.method, "consistency", lambda out, batch: {})
    with pytest.raises(DataError, match=r"add \*\*self\.consistency\(out, batch\)"):
        run.method(*both(run)[1].fields)


def test_it_needs_mixed_images():
    with pytest.raises(ValidationError, match="set fourier_mix as well"):
        TrainingSettings(consistency=1.0)


def test_features_of_a_frozen_body_are_left_as_they_are():
    from gated_domains.training.training_data import on_cached_features

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GateWarning)
        method = build("gdu", data().dataset, mode="fine_tune")
        with on_cached_features(method, data(), key="k", seed=0) as cached:
            run = training(method, cached, epochs=1, **MIXED)
            assert run.update.fourier is None
            assert run.update.consistency is None
            run.fit()
