"""The loop: the same by seed, selected on validation rows alone, and what the settings say happens."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch

from gated_domains.backbones.bodies import MLP, Identity
from gated_domains.data.batches import DomainBatch
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.sampling import InOrder
from gated_domains.evaluation.metrics import SelectionRule
from gated_domains.experiments.model import class_weights
from gated_domains.layer.experts import Logits
from gated_domains.methods import ERM, Classes
from gated_domains.methods.method import total
from gated_domains.training.callbacks.base import ProgressCallback
from gated_domains.training.callbacks.ema import EMA
from gated_domains.training.optimizers import GraphedStep
from small_trainings import Records, build, identical, material, train, training, vectors, weights


@pytest.fixture(scope="module")
def data():
    return material(vectors(120), train=80, validation=30)


class Film(ProgressCallback):
    """The weights of a method after every step, and at the end of every epoch."""

    def __init__(self, method) -> None:
        self.method, self.steps, self.epochs, self.told = method, [], [], []

    def on_step(self, step: int, steps: int) -> None:
        self.steps.append(weights(self.method))
        self.told.append((step, steps))

    def on_epoch(self, record: dict[str, Any]) -> None:
        self.epochs.append(weights(self.method))


def scripted(scores: Iterable[float]) -> SelectionRule:
    left = iter(scores)
    return SelectionRule(name="scripted", words="scripted", number=lambda evidence: float(next(left)))


# -- the same by seed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["erm", "gdu"])
def test_the_same_seed_gives_the_same_weights_to_the_last_bit_and_another_seed_others(name, data):
    found = []
    for seed in (4, 4, 5):
        method, journal = build(name, data.dataset, seed=0), Records()  # dropout goes on with torch's numbers
        train(method, data, seed=seed, journal=journal)
        found.append((weights(method), journal.timeless()))
    assert identical(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]
    assert not identical(found[0][0], found[2][0])  # the order of rows alone differs


def test_other_random_numbers_of_torch_give_other_weights(data):
    found = []
    for seed in (0, 1):
        method = build("erm", data.dataset)
        torch.manual_seed(seed)
        train(method, data, epochs=1)
        found.append(weights(method))
    assert not identical(*found)


# -- selection -------------------------------------------------------------------------------------------------------


def test_training_ends_when_patience_does_and_the_best_epochs_weights_are_loaded(data):
    method = build("erm", data.dataset)
    film = Film(method)
    outcome = train(
        method, data, epochs=9, patience=2, schedule="constant", rule=scripted([1, 3, 2, 3, 9]), progress=film
    )
    assert (outcome.best_epoch, outcome.epochs, outcome.stopped) == (1, 4, "early")
    assert identical(weights(method), film.epochs[1])
    assert not identical(film.epochs[1], film.epochs[3])
    assert not method.training


def test_without_patience_all_epochs_are_trained(data):
    outcome = train(build("erm", data.dataset), data, epochs=4, patience=None, rule=scripted([4, 3, 2, 1]))
    assert (outcome.best_epoch, outcome.epochs, outcome.stopped) == (0, 4, "all epochs")


def test_patience_that_ends_with_the_last_epoch_stopped_nothing(data):
    outcome = train(
        build("erm", data.dataset), data, epochs=3, patience=2, schedule="constant", rule=scripted([4, 3, 2])
    )
    assert (outcome.epochs, outcome.stopped) == (3, "all epochs")


def test_the_outcome_holds_the_scores_of_the_weights_that_are_kept():
    dataset, journal = vectors(120, regression=True), Records()
    data = material(dataset, train=80, validation=30)
    outcome = train(build("erm", dataset), data, journal=journal, rule=scripted([1, 3, 2]))
    assert outcome.validation.as_json() == journal[1]["validation"]
    assert journal[0]["validation"] != journal[1]["validation"] != journal[2]["validation"]


def test_validation_rows_and_no_others_are_scored(data):
    method = build("erm", data.dataset)
    outcome = train(method, data, epochs=1)
    inputs = torch.from_numpy(data.dataset.inputs.values[data.validation])
    with torch.no_grad():
        right = method.predict(inputs).output.argmax(1).numpy() == data.dataset.targets[data.validation]
    assert outcome.validation.overall == pytest.approx(right.mean())
    assert set(outcome.validation.by_domain) == set(data.dataset.domain_names)
    for index, name in enumerate(data.dataset.domain_names):
        mine = data.dataset.domains[data.validation] == index
        assert outcome.validation.by_domain[name] == pytest.approx(right[mine].mean())


def test_held_out_rows_change_neither_weights_nor_any_record():
    found = []
    for poison in (0, 1e4):
        clean = vectors(120)
        values, targets = clean.inputs.values.copy(), clean.targets.copy()
        values[110:] += poison
        targets[110:] = (targets[110:] + (poison > 0)) % 3
        dataset = DomainDataset.from_arrays(values, targets, clean.domains, task="classification")
        method, journal = build("gdu", dataset), Records()
        train(method, material(dataset, train=80, validation=30), journal=journal)
        found.append((weights(method), journal.timeless()))
    assert identical(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


# -- records ---------------------------------------------------------------------------------------------------------


def test_a_record_holds_the_mean_of_every_term_over_the_steps_of_its_epoch(data):
    seen = []

    class Watched(ERM):
        def objective(self, batch):
            task = super().objective(batch)["task"]
            terms = {"task": task, "pull": 1e-3 * self.head.weight.square().sum()}
            seen.append({name: float(term.detach()) for name, term in terms.items()})
            return terms

    made = build("erm", data.dataset)
    method = Watched(made.backbone, 3, made.task)
    film, journal = Film(method), Records()
    train(method, data, epochs=2, batch_size=16, journal=journal, progress=film)
    for epoch, record in enumerate(journal):
        mine = seen[5 * epoch : 5 * epoch + 5]
        for name in ("task", "pull"):
            assert record["train"][name] == pytest.approx(math.fsum(terms[name] for terms in mine) / 5, rel=1e-6)
    assert [record["epoch"] for record in journal] == [0, 1]
    assert [record["step"] for record in journal] == [5, 10]
    assert film.told == [(step, 10) for step in range(1, 11)]


def test_the_rate_follows_the_cosine_over_all_epochs(data):
    journal = Records()
    train(build("erm", data.dataset), data, epochs=3, batch_size=16, rate=0.1, journal=journal)
    expected = [0.05 * (1 + math.cos(math.pi * step / 15)) for step in (4, 9, 14)]
    assert [record["rate"] for record in journal] == pytest.approx(expected)


def test_steps_are_as_large_as_the_rate_says(data):
    """Plain SGD on a model without randomness: every step is minus the rate of that step times the gradient."""
    method = build("erm", data.dataset, body=Identity((6,)))
    start = copy.deepcopy(method)
    film = Film(method)
    train(
        method, data, epochs=2, batch_size=40, rate=0.1, optimizer="sgd", momentum=0.0, progress=film, seed=3
    )  # 4 steps
    sampler = training(copy.deepcopy(start), data, epochs=2, batch_size=40, seed=3).sampler
    for step in range(4):
        rows = list(sampler.batches(step // 2))[step % 2]
        batch = DomainBatch(
            torch.from_numpy(data.dataset.inputs.values[rows]), torch.from_numpy(data.dataset.targets[rows]), None
        )
        start.zero_grad()
        total(start.objective(batch)).backward()
        with torch.no_grad():
            for parameter in start.parameters():
                parameter -= 0.05 * (1 + math.cos(math.pi * step / 4)) * parameter.grad
        for name, value in film.steps[step].items():
            torch.testing.assert_close(start.state_dict()[name], value, rtol=1e-5, atol=1e-6)


# -- domains ---------------------------------------------------------------------------------------------------------


class Seer(ERM):
    """ERM that notes which domains it is shown, by step and by objective."""

    def step(self, objective, batch, optimizer):
        self.shown.append(batch.domains)
        return super().step(objective, batch, optimizer)

    def objective(self, batch):
        self.shown.append(batch.domains)
        return super().objective(batch)


class Told(Seer):
    uses_domains = True


@pytest.mark.parametrize("kind", [Seer, Told])
def test_domains_are_shown_to_methods_that_use_them_and_to_no_others(kind, data):
    made = build("erm", data.dataset)
    method = kind(made.backbone, 3, made.task)
    method.shown = []
    train(method, data, epochs=1)
    assert method.shown
    assert all((domains is not None) == (kind is Told) for domains in method.shown)


def test_balanced_sampling_gives_every_domain_the_same_share_of_every_batch():
    clean = vectors(200)
    domains = np.array([0] * 150 + [1] * 30 + [2] * 20)
    dataset = DomainDataset.from_arrays(clean.inputs.values, clean.targets, domains, task="classification")
    rows = np.random.default_rng(0).permutation(200)
    data = material(dataset, train=200, validation=0)
    shares = {}
    for sampling in ("plain", "balanced"):
        method = Told(build("erm", dataset).backbone, 3, Classes())
        method.shown = []
        data = type(data)(dataset=dataset, samples=data.samples, train=rows, validation=rows[:20])
        train(method, data, epochs=1, batch_size=30, sampling=sampling)
        shares[sampling] = [sorted(Counter(shown.tolist()).values()) for shown in method.shown]
    assert all(share == [10, 10, 10] for share in shares["balanced"])
    assert not any(share == [10, 10, 10] for share in shares["plain"])


def test_balanced_sampling_without_domains_is_refused():
    clean = vectors(40)
    dataset = DomainDataset.from_arrays(clean.inputs.values, clean.targets, task="classification")
    with pytest.raises(DataError, match="need domains"):
        training(build("erm", dataset), material(dataset, train=30, validation=10), sampling="balanced")


# -- class weights ---------------------------------------------------------------------------------------------------


def test_class_weights_change_the_loss_as_their_formula_says():
    clean = vectors(120)
    targets = np.where(np.arange(120) % 10 < 8, 0, clean.targets)
    dataset = DomainDataset.from_arrays(clean.inputs.values, targets, clean.domains, task="classification")
    data = material(dataset, train=80, validation=30)
    counts = np.bincount(targets[:80], minlength=3)
    losses = {}
    for weighted in (False, True):
        weight = class_weights(dataset, data.train) if weighted else None
        method = build("erm", dataset, body=Identity((6,)), task=Classes(weight))
        with torch.no_grad():
            logits = method.logits(torch.from_numpy(dataset.inputs.values[:80])).prediction.double()
        pairs = zip(logits.tolist(), targets[:80], strict=True)
        each = [math.log(math.fsum(math.exp(value) for value in row)) - row[target] for row, target in pairs]
        by_hand = [80 / (3 * counts[t]) if weighted else 1.0 for t in targets[:80]]
        journal = Records()
        train(method, data, epochs=1, batch_size=80, journal=journal)  # one step: the loss before any
        losses[weighted] = journal[0]["train"]["task"]
        expected = math.fsum(w * loss for w, loss in zip(by_hand, each, strict=True)) / 80
        assert losses[weighted] == pytest.approx(expected, rel=1e-5)
    assert losses[True] != pytest.approx(losses[False])


def test_a_class_without_training_rows_weighs_nothing():
    dataset = DomainDataset.from_arrays(np.eye(4), np.array([0, 1, 1, 2]), task="classification")
    weight = class_weights(dataset, np.arange(3))
    assert weight.tolist() == pytest.approx([1.5, 0.75, 0])
    logits = Logits(torch.tensor([[0.0, 0.0, 100.0]]))
    assert float(Classes(weight).loss(logits, torch.tensor([2]))) == 0


# -- averaged weights ------------------------------------------------------------------------------------------------


def test_averaged_weights_are_evaluated_and_kept_while_training_goes_on_with_its_own(data):
    plain, averaged = build("erm", data.dataset), build("erm", data.dataset)
    films = Film(plain), Film(averaged)
    start = weights(averaged)
    torch.manual_seed(1)
    train(plain, data, progress=films[0], rule=scripted([1, 2, 3]))
    torch.manual_seed(1)
    outcome = train(averaged, data, progress=films[1], rule=scripted([1, 2, 3]), ema=0.5)
    assert all(identical(*both) for both in zip(films[0].steps, films[1].steps, strict=True))
    assert not identical(weights(plain), weights(averaged))
    trained = {name for name, parameter in averaged.named_parameters() if parameter.requires_grad}
    for name in trained:
        slow = start[name].double()
        for step, frame in enumerate(films[1].steps):
            decay = min(0.5, (1 + step) / (10 + step))
            slow = decay * slow + (1 - decay) * frame[name].double()
        torch.testing.assert_close(averaged.state_dict()[name].double(), slow, rtol=1e-4, atol=1e-6)
    inputs = torch.from_numpy(data.dataset.inputs.values[data.validation])
    with torch.no_grad():
        right = averaged.predict(inputs).output.argmax(1).numpy() == data.dataset.targets[data.validation]
    assert outcome.validation.overall == pytest.approx(right.mean())


def test_measures_are_of_the_averaged_weights_too(data):
    method, journal = build("gdu", data.dataset), Records()
    train(method, data, ema=0.9, journal=journal, rule=scripted([1, 2, 3]))
    inputs = next(iter(data.samples.input_batches(InOrder(data.validation, 100))))
    assert journal[-1]["measures"] == pytest.approx(method.measures(inputs), rel=1e-5)


def test_what_is_fitted_anew_starts_its_average_anew(data):
    method = build("gdu", data.dataset, settings={"gating": "features"})
    apart = {}

    class Watch(Film):
        def on_step(self, step: int, steps: int) -> None:
            bases = method.units.bases.detach()
            apart[step] = float((run.update.ema.averages["units.bases"] - bases).abs().max())
            self.steps.append(bases.clone())

    film = Watch(method)
    run = training(method, data, batch_size=40, ema=0.999, rate=1e-4, progress=film)  # 2 steps an epoch
    run.fit()
    jump = float((film.steps[2] - film.steps[1]).abs().max())
    assert jump > 1  # the bases were fitted again
    assert apart[3] < 0.01


def test_an_average_restarts_from_what_was_rewritten_and_from_that_alone():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    ema = EMA(model, decay=0.9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1
    ema.update(model)
    before = {name: average.clone() for name, average in ema.averages.items()}
    with ema.restarting(model), torch.no_grad():
        model[1].weight.fill_(7.0)
    assert ema.averages["1.weight"].tolist() == [[7.0, 7.0], [7.0, 7.0]]
    assert all(torch.equal(ema.averages[name], before[name]) for name in before if name != "1.weight")


# -- the rest --------------------------------------------------------------------------------------------------------


def test_no_step_is_recorded_as_a_graph_on_a_cpu(data):
    assert not isinstance(training(build("erm", data.dataset), data).update.advance, GraphedStep)


def test_one_batch_is_trained_on_where_there_are_fewer_rows_than_a_batch_holds(data):
    journal = Records()
    train(build("erm", data.dataset), data, epochs=2, batch_size=4096, journal=journal)
    assert [record["step"] for record in journal] == [1, 2]


def test_data_without_domains_are_scored_as_one_group():
    clean = vectors(60)
    dataset = DomainDataset.from_arrays(clean.inputs.values, clean.targets, task="classification")
    outcome = train(build("erm", dataset), material(dataset, train=40, validation=20), epochs=1)
    assert list(outcome.validation.by_domain) == ["all"]


def test_a_number_is_selected_by_the_smaller_error():
    dataset = vectors(120, regression=True)
    journal = Records()
    outcome = train(build("erm", dataset), material(dataset, train=80, validation=30), epochs=4, journal=journal)
    errors = [record["validation"]["overall"] for record in journal]
    assert outcome.best_epoch == int(np.argmin(errors))
    assert outcome.validation.overall == pytest.approx(min(errors))


def test_looking_at_validation_rows_moves_no_running_statistic(data):
    method = build("gdu", data.dataset)
    film = Film(method)
    train(method, data, epochs=1, progress=film)
    names = [name for name in film.steps[-1] if "running" in name or "tracked" in name]
    assert names
    assert all(torch.equal(film.steps[-1][name], film.epochs[-1][name]) for name in names)


def test_the_body_runs_in_training_mode_in_steps_and_in_eval_mode_in_validation(data):
    modes = []

    class Noting(MLP):
        def forward(self, inputs):
            modes.append((torch.is_grad_enabled(), self.training))
            return super().forward(inputs)

    train(build("erm", data.dataset, body=Noting((6,))).eval(), data, epochs=2)
    assert set(modes) == {(True, True), (False, False)}
