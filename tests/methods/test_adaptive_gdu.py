"""GDU whose number of bases is found in training: its epochs, its checkpoints, its saved runs, its exports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import made_runs
from gated_domains import GDUClassifier
from gated_domains.backbones.gated_norm import GatedNorm, as_second_moments, running_moments
from gated_domains.data.dataset import DomainDataset
from gated_domains.estimators.saving import load_estimator
from gated_domains.experiments.model import Model
from gated_domains.export.exporting import export_model
from gated_domains.layer.annealing import Adapted, hand_on
from gated_domains.training.callbacks.base import ProgressCallback
from gated_domains.training.callbacks.checkpoint import Checkpoint
from small_trainings import Records, build, identical, material, pictures, training, weights

pytestmark = pytest.mark.filterwarnings("ignore::gated_domains.layer.GateWarning")

ADAPTIVE = {"num_bases": "adaptive"}


def sites(rows: int = 360, *, names: tuple[str, ...] = made_runs.DOMAINS) -> DomainDataset:
    """Two classes by the last number; three sites lie far apart in the first two."""
    rng = np.random.default_rng(0)
    site = np.arange(rows) % 3
    inputs = rng.normal(size=(rows, 4)) + 10 * np.eye(4)[site] * (site > 0)[:, None]
    target = (inputs[:, 3] > 0).astype(int)
    return DomainDataset.from_arrays(
        inputs.astype(np.float32), target, site, name="sites", class_names=("no", "yes"), domain_names=names
    )


def made(journal: Records | None = None, **more: Any) -> Any:
    data = material(sites(), train=240, validation=90)
    settings = {**ADAPTIVE, **more.pop("settings", {})}
    return training(build("gdu", data.dataset, settings=settings), data, journal=journal, **more)


def test_the_number_is_found_in_the_first_epochs_and_told_by_epoch():
    journal = Records()
    run = made(journal, epochs=4)
    run.fit()
    assert [record["measures"]["num_bases"] for record in journal] == [3, 3, 3, 3]
    assert run.method.units.settled
    assert run.method.units.history[-1].num_bases == 3


def test_gates_on_features_wait_for_an_epoch():
    journal = Records()
    made(journal, settings={"gating": "features"}, epochs=3, patience=None).fit()
    found = [record["measures"]["num_bases"] for record in journal]
    assert found[0] == 1
    assert all(count >= 1 for count in found)


def test_other_methods_tell_of_no_number():
    journal = Records()
    made(journal, settings={"num_bases": 3}, epochs=1).fit()
    assert "num_bases" not in journal[0]["measures"]


class Interrupts(ProgressCallback):
    """Interrupts a training at a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, step: int, steps: int) -> None:
        if step == self.step:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"settings": {"norm_statistics": "batch"}},
        pytest.param({"ema": 0.9}, marks=pytest.mark.slow),
        pytest.param({"ema": 0.9, "settings": {"norm_statistics": "batch"}}, marks=pytest.mark.slow),
        pytest.param({"swad": True}, marks=pytest.mark.slow),
        pytest.param({"swad": True, "settings": {"norm_statistics": "batch"}}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_cut_between_epochs_it_ends_as_if_it_had_never_been_cut(tmp_path, more):
    expected, journal = Records(), Records()
    whole = made(expected, epochs=3, patience=None, **more)
    whole.fit()
    checkpoint = Checkpoint(tmp_path, seconds=0.0)
    first = made(journal, epochs=3, patience=None, checkpoint=checkpoint, progress=Interrupts(12), **more)
    with pytest.raises(KeyboardInterrupt):  # within the second epoch
        first.fit()
    again = made(journal, epochs=3, patience=None, checkpoint=checkpoint, **more)
    again.fit()
    assert identical(weights(again.method), weights(whole.method))
    assert journal.timeless() == expected.timeless()


def test_deviations_of_gated_norms_are_handed_on():
    data = material(pictures(), train=160, validation=60)
    method = build("gdu", data.dataset, settings=ADAPTIVE)
    norms = [part for part in method.modules() if isinstance(part, GatedNorm)]
    assert norms
    with torch.no_grad():
        for norm in norms:
            norm.bias_deviations[0].normal_()
    looks = lambda: data.samples.input_batches(_in_order(data))  # noqa: E731
    method.prepare(looks)
    method.renew(looks, epoch=0, optimizer=torch.optim.Adam(method.parameters()))
    others = method.units.active.nonzero().flatten().tolist()
    assert len(others) > 1
    for norm in norms:
        assert all(torch.equal(norm.bias_deviations[place], norm.bias_deviations[0]) for place in others)


def test_moments_by_basis_of_gated_norms_are_handed_on():
    data = material(pictures(), train=160, validation=60)
    method = build("gdu", data.dataset, settings=ADAPTIVE)
    running = [part.normalise for part in method.modules() if isinstance(part, GatedNorm)]
    before = []
    for norm in running:
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        before.append((norm.running_mean[0].clone(), norm.running_var[0].clone()))
    looks = lambda: data.samples.input_batches(_in_order(data))  # noqa: E731
    method.prepare(looks)
    method.renew(looks, epoch=0, optimizer=torch.optim.Adam(method.parameters()))
    places = method.units.active.nonzero().flatten().tolist()
    assert len(places) > 1
    for norm, (mean, variance) in zip(running, before, strict=True):
        for place in places:
            torch.testing.assert_close(norm.running_mean[place], mean)
            torch.testing.assert_close(norm.running_var[place], variance, rtol=1e-5, atol=1e-5)


def test_the_variance_of_joined_bases_counts_the_distance_of_their_means():
    model = torch.nn.Sequential(GatedNorm(torch.nn.BatchNorm1d(1), 2, statistics="basis"))
    mean, variance = running_moments(model)
    mean.copy_(torch.tensor([[-1.0], [1.0]]))
    with as_second_moments(model):
        for moment in (mean, variance):
            hand_on(moment, torch.tensor([[0.5, 0.5], [0.0, 1.0]]))
    assert mean.flatten().tolist() == pytest.approx([0.0, 1.0])
    assert variance.flatten().tolist() == pytest.approx([2.0, 1.0])  # of N(-1, 1) and N(1, 1) together: 1 + 1


def _in_order(data: Any) -> Any:
    from gated_domains.data.sampling import InOrder

    return InOrder(data.train, 64)


def test_a_run_is_saved_loaded_and_predicts_and_is_exported(tmp_path):
    data = sites()
    run = made_runs.runner(data, tmp_path).run(made_runs.recipe("gdu", None, settings={**ADAPTIVE, "max_bases": 6}))
    assert run.metrics()[-1]["measures"]["num_bases"] == 3
    units = Model.load(run.path).method.units
    assert (units.num_bases, units.max_bases) == (3, 6)
    assert isinstance(units.history[0], Adapted)
    assert export_model(run.path, tmp_path / "model.pt2", to="torch").difference <= 1e-5


def test_a_mask_with_gaps_is_exported_as_it_is(tmp_path):
    run = made_runs.runner(sites(), tmp_path).run(made_runs.recipe("gdu", None, settings=ADAPTIVE))
    model = Model.load(run.path)
    units = model.method.units
    with torch.no_grad():
        units.active[1] = False
    assert units.active.nonzero().flatten().tolist() == [0, 2]
    assert export_model(model, tmp_path / "model.pt2", to="torch").difference <= 1e-5


def test_an_estimator_takes_as_many_bases_as_its_rows_have_modes(tmp_path):
    data = sites()
    model = GDUClassifier(num_bases="adaptive", random_state=0).fit(data.inputs.values, data.targets)
    assert model.num_bases_ == 3
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(
        load_estimator(tmp_path / "model").predict(data.inputs.values), model.predict(data.inputs.values)
    )


def test_an_estimator_refuses_another_word():
    with pytest.raises(ValueError, match="num_bases must be a number or 'auto' or 'adaptive', got 'many'"):
        GDUClassifier().set_params(num_bases="many").fit(np.eye(6), np.arange(6) % 2)
