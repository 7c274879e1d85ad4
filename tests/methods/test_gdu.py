"""GDU as a method: what it takes from training data and when, where norms can be gated, and the paper's form."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import made_runs
from gated_domains.backbones.bodies import MLP, Identity, SmallCNN
from gated_domains.backbones.gated_norm import GatedNorm, mixing
from gated_domains.data.batches import DomainBatch
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.sampling import InOrder
from gated_domains.evaluation.metrics import SELECTION_RULES
from gated_domains.experiments.model import Model
from gated_domains.layer import GatedDomainUnits
from gated_domains.layer.fitting import choose_num_bases, median_sigma
from gated_domains.layer.gates import residual
from gated_domains.methods import GDU, PaperGDU
from gated_domains.methods.gdu import GDUSettings
from gated_domains.settings import parsed
from gated_domains.training.callbacks.base import ProgressCallback
from gated_domains.training.training_data import TrainingData, sample_inputs
from small_trainings import build, identical, material, pictures, train, training, vectors, weights


def prepared(data: TrainingData, **settings: Any) -> GDU:
    method = build("gdu", data.dataset, settings=settings).eval()
    method.prepare(lambda: sample_inputs(data, 0))
    return method


def view(method: GDU, data: TrainingData) -> torch.Tensor:
    """What gates see of the training rows."""
    inputs = torch.cat(list(data.samples.input_batches(InOrder(data.train, 512))))
    with torch.no_grad():
        return method.backbone.look(inputs)


def residuals(method: GDU, rows: torch.Tensor) -> torch.Tensor:
    products = method.units.weigh(rows).products
    return residual(products, method.units.gate.explaining(products)).detach()


class Diary(ProgressCallback):
    """What of a method is seen at the end of every epoch."""

    def __init__(self, method: GDU) -> None:
        self.method, self.pages = method, []

    def on_epoch(self, record: dict[str, Any]) -> None:
        self.pages.append(weights(self.method))

    def values(self, name: str) -> list[float]:
        return [float(page[name].sum()) for page in self.pages]


# -- what it takes from data -----------------------------------------------------------------------------------------


def test_every_basis_vector_is_a_training_row_as_gates_see_it():
    data = material(vectors())
    method = prepared(data)
    rows = view(method, data)
    nearest = torch.cdist(method.units.bases.detach().flatten(0, 1).double(), rows.double()).amin(1)
    assert nearest.max() < 1e-5
    torch.testing.assert_close(rows.mean(0), torch.zeros(6), atol=1e-4, rtol=0)
    torch.testing.assert_close(rows.std(0), torch.ones(6), atol=1e-3, rtol=0)


def test_sigma_is_a_share_of_the_median_distance_and_kappa_gives_the_entropy_asked_for():
    data = material(vectors())
    method = prepared(data, sigma_of_median=0.7, entropy=0.3)
    rows = view(method, data)
    squared = [float((a - b).square().sum()) for i, a in enumerate(rows) for b in rows[:i]]
    assert float(method.units.kernel.sigma) == pytest.approx(0.7 * math.sqrt(np.median(squared)), rel=1e-3)
    beta = method.units.weigh(rows).beta.detach()
    assert float(torch.special.entr(beta).sum(1).mean()) == pytest.approx(0.3 * math.log(5), rel=1e-3)


def test_a_sigma_and_a_kappa_that_are_given_are_kept():
    method = prepared(material(vectors()), sigma=3.5, kappa=7.0)
    assert float(method.units.kernel.sigma) == pytest.approx(3.5)
    assert float(method.units.gate.kappa) == pytest.approx(7.0)


def test_rows_outside_training_leave_what_was_fitted_as_it_was():
    clean = vectors()
    values = clean.inputs.values.copy()
    values[160:] += 1e4
    poisoned = DomainDataset.from_arrays(values, clean.targets, clean.domains, task="classification")
    one, other = (prepared(material(dataset)) for dataset in (clean, poisoned))
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


def test_prepared_anew_it_looks_anew():
    data, elsewhere = material(vectors()), material(vectors(seed=1))
    method = prepared(data)
    method.prepare(lambda: sample_inputs(elsewhere, 0))
    fresh = prepared(elsewhere)
    for one in (method, fresh):
        one.renew(lambda: sample_inputs(elsewhere, 0), epoch=0, optimizer=None)
    assert torch.equal(method.units.bases, fresh.units.bases)
    assert torch.equal(method.units.coverage.q50, fresh.units.coverage.q50)


def test_norms_pool_their_statistics_by_beta_and_spread_unfamiliar_rows_over_the_bases_in_use():
    data = material(pictures())
    method = prepared(data, gate="projection", coverage=True)
    method.units.coverage.forward = torch.zeros_like  # so that the mixture is 0 everywhere
    with torch.no_grad():
        method.units.active[-1] = False
    seen: list[torch.Tensor] = []
    norm = next(part for part in method.modules() if isinstance(part, GatedNorm))
    norm.register_forward_pre_hook(lambda norm, _: seen.append(norm.basis_weights.weights))
    inputs = torch.cat(list(sample_inputs(data, 0)))[:8]
    out = method.evaluate(torch.cat([inputs, 100 * inputs]))
    used = out.beta.detach().clamp_min(0)
    torch.testing.assert_close(seen[0][:8], used[:8] / used[:8].sum(1, keepdim=True))
    assert used[:8].std(0).max() > 1e-3
    assert used[8:].sum(1).max() < 0.01
    torch.testing.assert_close(seen[0][8:], torch.tensor([[0.25] * 4 + [0.0]]).expand(8, -1), atol=1e-3, rtol=0.0)


def test_coverage_is_renewed_at_each_epoch_and_fits_the_weights_that_are_kept():
    data = material(vectors())
    method = build("gdu", data.dataset, settings={"lambda_ols": 1.0})
    diary = Diary(method)
    train(method, data, progress=diary)
    assert len(set(diary.values("units.coverage.q50"))) == 3
    found = residuals(method, view(method, data))
    for name, level in (("q50", 0.5), ("q97", 0.97)):
        kept = float(getattr(method.units.coverage, name))
        assert kept == pytest.approx(float(torch.quantile(found, level)), rel=1e-4)


def test_a_view_of_the_raw_input_is_taken_once():
    data = material(vectors())
    method = build("gdu", data.dataset)
    diary = Diary(method)
    train(method, data, progress=diary)
    for name in ("units.kernel.sigma", "units.gate.kappa", "backbone.standardised.mean"):
        assert len(set(diary.values(name))) == 1


@pytest.mark.parametrize("gating", ["style", "features"])
def test_gates_on_what_the_body_makes_are_fitted_again_after_the_first_epoch_and_never_after(gating):
    data = material(vectors())
    method = build("gdu", data.dataset, settings={"gating": gating})
    diary = Diary(method)
    train(method, data, epochs=4, progress=diary)
    first, *rest = diary.values("units.kernel.sigma")
    assert len(set(rest)) == 1
    assert first != rest[0]


def test_fitting_again_the_optimiser_forgets_the_bases_it_knew():
    data = material(vectors())
    method = build("gdu", data.dataset, settings={"gating": "features"})
    run = training(method, data, epochs=1, rate=1e-3)
    run.fit()
    state = run.update.optimizer.state[method.units.bases]
    assert state["exp_avg"].abs().max() > 0
    method.train()
    before = method.units.bases.detach().clone()
    method.renew(run.sample_inputs, epoch=1, optimizer=run.update.optimizer)
    assert state["exp_avg"].abs().max() == 0
    assert not torch.equal(before, method.units.bases)


# -- gated norms -----------------------------------------------------------------------------------------------------


def gated(method: GDU) -> int:
    return sum(isinstance(module, GatedNorm) for module in method.modules())


def test_norms_are_gated_where_they_can_be():
    assert gated(build("gdu", vectors())) == 2
    assert gated(build("gdu", pictures(30))) == 4
    assert gated(build("gdu", vectors(), settings={"gated_norm": False})) == 0
    assert gated(build("gdu", vectors(), mode="fine_tune")) == 0
    assert gated(build("gdu", vectors(), settings={"gating": "features"})) == 0
    assert gated(build("gdu", vectors(), body=Identity((6,)))) == 0


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"mode": "fine_tune"}, "the norms of a frozen body cannot be gated"),
        ({"settings": {"gating": "features"}}, "the gates do not see the raw input, because of the setting gating"),
        ({"settings": {"gating": "style"}}, "the gates do not see the raw input"),
        ({"body": Identity((6,))}, "the body has no batch norm"),
        ({"body": MLP((6,), norm=False)}, "the body has no batch norm"),
    ],
)
def test_norms_that_cannot_be_gated_are_refused_with_the_cure(how, why):
    settings = {**how.pop("settings", {}), "gated_norm": True}
    with pytest.raises(DataError, match=f"gated_norm cannot be switched on: .*{why}.*; leave gated_norm out"):
        build("gdu", vectors(), settings=settings, **how)


def test_a_body_without_batch_norms_is_noted():
    data = material(vectors(60), train=40, validation=20)
    method = build("gdu", data.dataset, body=MLP((6,), norm=False))
    assert train(method, data, epochs=1).notes == ("gates act on the head alone: the body has no batch norm (MLP)",)


class LargeCNN(SmallCNN):
    large = True


@pytest.mark.parametrize(
    ("how", "note"),
    [
        ({}, None),
        ({"mode": "fine_tune"}, None),
        ({"settings": {"gated_norm": False}}, None),
        ({"settings": {"gating": "features"}}, "the gates do not see the raw input, because of the setting gating"),
        (
            {"body": LargeCNN((3, 8, 8))},
            r"the batch norms of a large body \(LargeCNN\) are gated with gated_norm=true only",
        ),
        ({"body": LargeCNN((3, 8, 8)), "settings": {"gating": "style"}}, "the gates do not see the raw input"),
        ({"body": LargeCNN((3, 8, 8)), "settings": {"gated_norm": True}}, None),
    ],
)
def test_norms_that_are_not_gated_are_noted_with_the_reason(how, note):
    notes = build("gdu", pictures(30), **how).notes()
    assert len(notes) == (note is not None)
    if note is not None:
        assert re.match(f"gates act on the head alone: {note}", notes[0])


@pytest.mark.parametrize("gate", ["cosine", "projection"])
@pytest.mark.parametrize("dataset", [pictures, vectors])
def test_a_training_with_statistics_by_basis_moves_them_apart_and_says_what_it_keeps(dataset, gate):
    data = material(dataset(60), train=40, validation=20)
    method = build("gdu", data.dataset, settings={"gate": gate, "coverage": True})
    train(method, data, epochs=2)
    norms = [part for part in method.modules() if isinstance(part, GatedNorm)]
    assert all(norm.statistics == "basis" for norm in norms)
    assert all(norm.normalise.running_mean.std(0).max() > 0 for norm in norms)
    assert method.per_rank() == (["dropout masks"] if dataset is vectors else [])


def test_norms_and_head_follow_one_weighing_of_the_raw_input():
    data = material(pictures(60), train=40, validation=20)
    method = prepared(data)
    assert isinstance(method, GDU)
    with torch.no_grad():
        for norm in method.modules():
            if isinstance(norm, GatedNorm):
                norm.weight_deviations.normal_()
        inputs = next(iter(data.samples.input_batches(InOrder(data.train, 8))))
        weighed = method.units.weigh(method.backbone.look(inputs))
        with mixing(method.backbone.body, weighed.beta):
            features = method.backbone.body(inputs)
        shared, own = method.units.shared(features).squeeze(1), method.units.experts(features)
        slow = shared + sum(weighed.beta[:, j, None] * own[:, j] for j in range(5))
        out = method.evaluate(inputs)
    torch.testing.assert_close(out.prediction, slow)
    torch.testing.assert_close(out.beta, weighed.beta)


@pytest.mark.parametrize("norms", [True, False])
def test_the_penalty_on_deviations_is_over_the_head_and_gated_norms(norms):
    data = vectors()
    method = build("gdu", data, settings={"lambda_dev": 0.25, "gated_norm": norms, "num_bases": 3})
    deviations = {
        name: parameter
        for name, parameter in method.named_parameters()
        if name.startswith("units.experts.") or "_deviations" in name
    }
    assert len(deviations) == (6 if norms else 2)
    with torch.no_grad():
        for parameter in deviations.values():
            parameter.normal_()
    slow = sum(float(parameter[j].square().sum()) for parameter in deviations.values() for j in range(3)) / 3
    inputs, targets = torch.randn(8, 6), torch.zeros(8, dtype=torch.long)
    terms = method.objective(DomainBatch(inputs, targets, None, None))
    assert float(terms["deviations"].detach()) == pytest.approx(0.25 * slow, rel=1e-5)
    grads = torch.autograd.grad(terms["deviations"], list(method.parameters()), allow_unused=True)
    reached = {name for (name, _), grad in zip(method.named_parameters(), grads, strict=True) if grad is not None}
    assert reached == set(deviations)


@pytest.mark.parametrize("norms", [True, False])
def test_constant_gates_give_every_row_the_mean_of_beta_over_the_training_data(norms):
    data = material(pictures(60), train=40, validation=20)
    learned, constant = (prepared(data, gates=gates, gated_norm=norms) for gates in ("learned", "constant"))
    with torch.no_grad():
        rows = torch.cat([learned.backbone.look(inputs) for inputs in sample_inputs(data, 0)])
        mean = learned.units.weigh(rows).beta.mean(0)
        for part in learned.modules():
            if isinstance(part, GatedNorm):
                part.weight_deviations.normal_()
        learned.units.experts.weight.normal_()
        constant.load_state_dict(learned.state_dict() | {"fixed_beta": constant.fixed_beta})
        inputs = next(iter(data.samples.input_batches(InOrder(data.train, 8))))
        out = constant.eval().evaluate(inputs)
        torch.testing.assert_close(out.beta, mean.expand(8, -1))
        features = constant.features(inputs)
        own = constant.units.experts(features)
        slow = constant.units.shared(features).squeeze(1) + sum(mean[j] * own[:, j] for j in range(5))
        torch.testing.assert_close(out.prediction, slow)
        assert (learned.eval().evaluate(inputs).prediction - out.prediction).abs().max() > 1e-3


def test_gated_norms_without_a_shared_expert_are_penalised_too():
    method = build("gdu", vectors(), settings={"lambda_dev": 0.25, "gated_norm": True, "shared": False})
    terms = method.objective(DomainBatch(torch.randn(8, 6), torch.zeros(8, dtype=torch.long), None, None))
    assert "deviations" in terms


def test_a_basis_that_is_switched_off_has_no_part_in_constant_gates():
    method = prepared(material(vectors()), gates="constant", num_bases=3)
    method.units.active[1] = False
    with torch.no_grad():
        beta = method.eval().evaluate(torch.randn(4, 6)).beta
    assert (beta[:, 1] == 0).all()
    torch.testing.assert_close(beta.sum(1), torch.ones(4))


# -- settings --------------------------------------------------------------------------------------------------------


def test_a_kappa_for_a_gate_without_one_is_refused():
    with pytest.raises(DataError, match="kappa=2 cannot be set: the gate projection has none; leave it out"):
        build("gdu", vectors(), settings={"gate": "projection", "kappa": 2.0})
    build("gdu", vectors(), settings={"gate": "mmd", "kappa": 2.0})


@pytest.mark.parametrize("wrong", [0, -1, "many"])
def test_a_number_of_bases_that_is_none_is_refused_when_it_is_read(wrong):
    with pytest.raises(DataError, match="num_bases"):
        parsed(GDUSettings, {"num_bases": wrong}, "method gdu")


def test_the_number_of_bases_may_come_from_the_data():
    data = material(vectors())
    method = prepared(data, num_bases="auto")
    rows = torch.cat([method.backbone.look(inputs) for inputs in sample_inputs(data, 0)])
    assert method.units.num_bases == choose_num_bases(rows, range(2, 13))[0] != 5
    assert train(method, data, epochs=1).epochs == 1


def test_its_measures_are_finite_numbers_of_gates_and_bases():
    data = material(vectors())
    found = prepared(data).measures(next(iter(data.samples.input_batches(InOrder(data.train, 64)))))
    assert {"gate_entropy", "beta_std", "reconstruction", "srip", "distributional_variance", "coverage"} == set(found)
    assert all(math.isfinite(value) for value in found.values())


# -- gates of a batch ------------------------------------------------------------------------------------------------


def test_gates_of_a_batch_weigh_all_its_rows_alike_and_otherwise_than_gates_of_samples():
    data = material(vectors())
    by_sample = build("gdu", data.dataset)
    train(by_sample, data)
    by_batch = build("gdu", data.dataset, settings={"test_gates": "batch"})
    by_batch.load_state_dict(by_sample.state_dict())
    assert (by_sample.batchwise, by_batch.batchwise) == (False, True)
    inputs = next(iter(data.samples.input_batches(InOrder(data.train, 30))))  # ten rows of each domain
    with torch.no_grad():
        one, other = (method.eval().predict(inputs) for method in (by_sample, by_batch))
        alone = by_batch.predict(inputs[:1])
        alone_by_sample = by_sample.predict(inputs[:1])
    assert other.beta.shape == one.beta.shape == (30, 5)
    assert other.residual.shape == one.residual.shape == (30,)
    assert torch.equal(other.beta, other.beta[:1].expand(30, -1))
    assert one.beta.std(0).max() > 0.05
    assert (one.output - other.output).abs().max() > 1e-3
    torch.testing.assert_close(alone.beta, alone_by_sample.beta)  # a batch of one row is that row
    torch.testing.assert_close(alone.output, alone_by_sample.output)


def test_in_training_gates_are_of_samples_whichever_predict():
    data, ended = material(vectors()), []
    for gates in ("sample", "batch"):
        method = build("gdu", data.dataset, settings={"test_gates": gates})
        training(method, data, rule=SELECTION_RULES["last"]).fit()
        ended.append(weights(method))
    assert identical(*ended)


def test_a_model_that_is_loaded_predicts_by_the_gates_that_it_was_trained_for(tmp_path):
    for gates in ("sample", "batch"):
        run = made_runs.runner(made_runs.vectors(), tmp_path).run(
            made_runs.recipe("gdu", settings={"test_gates": gates}, training={"epochs": 1})
        )
        loaded = Model.load(run.path).method
        assert (loaded.test_gates, loaded.batchwise) == (gates, gates == "batch")
        assert run.result().to_json()["batchwise"] == (gates == "batch")


# -- the paper's form ------------------------------------------------------------------------------------------------


def test_the_papers_weights_of_penalties_stay_its_own_unless_they_are_set():
    usual = build("gdu-paper", vectors(), settings={"gate": "projection"}).units
    assert (usual.lambda_ols, usual.lambda_l1, usual.lambda_orth) == (1e-3, 1e-3, 1e-8)
    changed = build("gdu-paper", vectors(), settings={"gate": "projection", "lambda_l1": 0.0, "lambda_orth": 0.1}).units
    assert (changed.lambda_ols, changed.lambda_l1, changed.lambda_orth) == (1e-3, 0.0, 0.1)


@pytest.mark.parametrize("gate", ["cosine", "mmd", "projection"])
def test_the_papers_form_is_the_layer_to_the_papers_letter(gate):
    method = build("gdu-paper", vectors(), seed=3, settings={"gate": gate})
    torch.manual_seed(3)
    body = MLP((6,), (16, 8))
    layer = GatedDomainUnits.paper(8, 3, gate=gate)
    assert isinstance(method, PaperGDU)
    assert repr(method.units) == repr(layer)
    assert all(torch.equal(value, method.units.state_dict()[name]) for name, value in layer.state_dict().items())
    assert float(method.units.kernel.sigma) == 7.5
    assert method.units.shared is None
    assert not method.units.applies_coverage
    assert method.backbone.gating is None
    x = torch.randn(5, 6)
    with torch.no_grad():
        features = body.eval()(x)
        out = method.eval().evaluate(x)
        torch.testing.assert_close(out.prediction, layer(features))
        heads = torch.stack([torch.tanh(features @ weight.mT) for weight in layer.experts.weight], 1)
        torch.testing.assert_close(out.prediction, (out.beta[..., None] * heads).sum(1))


def test_the_papers_form_takes_nothing_from_data_end_to_end():
    data = material(vectors())
    method = build("gdu-paper", data.dataset).eval()
    before = weights(method)
    method.prepare(lambda: sample_inputs(data, 0))
    method.renew(lambda: sample_inputs(data, 0), epoch=1, optimizer=None)
    assert all(torch.equal(value, method.state_dict()[name]) for name, value in before.items())


def test_fine_tuned_the_papers_form_takes_sigma_by_the_median_and_nothing_else():
    data = material(vectors())
    method = build("gdu-paper", data.dataset, mode="fine_tune").eval()
    before = weights(method)
    method.prepare(lambda: sample_inputs(data, 0))
    changed = {name for name, value in before.items() if not torch.equal(value, method.state_dict()[name])}
    assert "units.kernel.sigma" in changed
    assert changed <= {"units.kernel.sigma", "units.coverage.q50", "units.coverage.q97"}  # coverage is not in use
    assert float(method.units.kernel.sigma) == pytest.approx(median_sigma(view(method, data)), rel=1e-5)


def test_fine_tuned_in_the_other_setting_sigma_stays_the_papers():
    data = material(vectors())
    method = build("gdu-paper", data.dataset, mode="fine_tune", settings={"setting": "wilds"}).eval()
    method.prepare(lambda: sample_inputs(data, 0))
    assert float(method.units.kernel.sigma) == 4.0


def test_no_module_of_the_papers_form_is_gated_or_decayed():
    method = build("gdu-paper", vectors())
    assert gated(method) == 0
    assert all("weight_decay" not in group for group in method.parameter_groups())
    assert any(isinstance(module, nn.BatchNorm1d) for module in method.modules())
