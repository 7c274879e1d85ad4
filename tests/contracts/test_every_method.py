"""What holds for every method, on images, on vectors and where a number is predicted, in every mode it offers."""

from __future__ import annotations

import copy
import math
import re
import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call

from gated_domains.data.batches import DomainBatch
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.sampling import InOrder, sampler_for
from gated_domains.layer import GateWarning
from gated_domains.methods import METHODS, Ensemble, Method
from gated_domains.methods.method import total
from gated_domains.runs.recipe import TrainingSettings
from gated_domains.settings.search import Between, search_space
from gated_domains.training.callbacks.base import ProgressCallback
from gated_domains.training.callbacks.checkpoint import Checkpoint
from gated_domains.training.prediction import predict_rows
from gated_domains.training.training_data import sample_inputs
from small_trainings import (
    CLASSES,
    DATASETS,
    DOMAINS,
    Unwrapped,
    build,
    identical,
    material,
    problem,
    train,
    training,
    vectors,
    weights,
)

FORMS = [  # settings that make another method of one
    ("gdu[train_gates=batch]", "end_to_end", "images"),
    ("gdu[train_gates=batch]", "fine_tune", "vectors"),
]
CASES = [(name, mode, kind) for name in METHODS for mode in METHODS[name].modes for kind in DATASETS]
CASES += FORMS
TRAINED = [case for case in CASES if case[0] != "ensemble"]  # whose members are trained one by one
ONCE = sorted({case[:2] for case in TRAINED})
TURNS = [(*case, list(DATASETS)[i % len(DATASETS)]) for i, case in enumerate(ONCE)]  # kinds of data take turns
TURNS += FORMS
TOLD = [name for name in METHODS if METHODS[name].uses_domains]
OWN_STEP = {"fish", "arm-bn"}
every = pytest.mark.parametrize(("name", "mode", "kind"), CASES)
every_trained = pytest.mark.parametrize(("name", "mode", "kind"), TRAINED)
every_trained_in_turns = pytest.mark.parametrize(
    ("name", "mode", "kind"),
    [case if case in TURNS else pytest.param(*case, marks=pytest.mark.slow) for case in TRAINED],
)
every_trained_once = pytest.mark.parametrize(("name", "mode"), ONCE)
every_told = pytest.mark.parametrize(("name", "mode"), [case for case in ONCE if case[0] in TOLD])
every_plain = pytest.mark.parametrize(("name", "mode"), [case for case in ONCE if case[0] not in TOLD])
each = pytest.mark.parametrize("name", METHODS)


def prepared(name: str, mode: str, kind: str) -> tuple[Method, DomainBatch]:
    """A method that has looked at its training rows, and those as one batch."""
    made = copy.deepcopy(looked(name, mode, kind))
    torch.manual_seed(0)  # what is drawn next is the same, whether it was looked at just now or in an earlier test
    return made


@cache
def looked(name: str, mode: str, kind: str) -> tuple[Method, DomainBatch]:
    data = material(DATASETS[kind](100), train=80, validation=20)
    method = build(name, data.dataset, mode=mode).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GateWarning)  # the paper's start is close to dead, and says so
        method.prepare(lambda: sample_inputs(data, 0))
    sampler = InOrder(data.train, len(data.train))
    if name in TOLD:
        sampler = sampler_for(METHODS[name].sampling, data.train, domains=data.dataset.domains, batch_size=80, seed=0)
    batch = next(iter(data.samples.batches(sampler)))
    return method.train(), batch if name in TOLD else batch.without_domains()


def stepped(method: Method, batch: DomainBatch, steps: int) -> list[float]:
    """The losses of some steps."""
    optimizer = torch.optim.Adam(method.parameter_groups(), lr=0.02)
    return [float(total(method.step(Unwrapped(method), batch, optimizer)).detach()) for _ in range(steps)]


@each
def test_it_says_what_it_is_called_and_what_it_is(name):
    kind = METHODS[name]
    assert kind.name == name
    assert kind.label
    assert len(kind.what) > 20
    assert kind.modes
    assert set(kind.modes) <= {"end_to_end", "fine_tune"}


def test_no_two_have_the_same_label():
    assert len({kind.label for kind in METHODS.values()}) == len(METHODS)


@each
def test_its_settings_all_have_defaults(name):
    kind = METHODS[name].settings_type
    assert all(not field.is_required() for field in kind.model_fields.values())
    assert kind() == kind(**kind().model_dump())


@each
def test_its_settings_are_called_unlike_those_that_every_method_shares(name):
    assert not METHODS[name].settings_type.model_fields.keys() & TrainingSettings.model_fields.keys()


@each
def test_its_settings_are_searched_around_their_defaults_or_say_how_large_it_is(name):
    kind = METHODS[name].settings_type
    space, default = search_space(kind), kind()
    for setting, value in default:
        span = space.get(setting)
        if isinstance(span, Between):
            assert span.low <= value <= span.high
        elif isinstance(value, float) and value != 0:  # 0: a term that is switched off
            assert span is not None, f"{setting} has no range"
        elif isinstance(value, int) and not isinstance(value, bool):
            assert setting in {"num_bases", "basis_size", "heads", "members"}


def test_only_fish_and_arm_bn_have_a_step_of_their_own():
    assert {name for name, kind in METHODS.items() if kind.step is not Method.step} == OWN_STEP


@pytest.mark.parametrize(("name", "mode", "kind"), [case for case in TRAINED if case[0] not in OWN_STEP])
def test_the_terms_of_its_loss_are_finite_and_sum_to_what_a_step_minimises(name, mode, kind):
    method, batch = prepared(name, mode, kind)
    other = copy.deepcopy(method)
    torch.manual_seed(5)
    terms = other.objective(batch)
    values = {name: float(term.detach()) for name, term in terms.items()}
    assert all(term.shape == () and torch.isfinite(term) for term in terms.values())
    assert float(total(terms).detach()) == pytest.approx(math.fsum(values.values()), rel=1e-6)
    sum(terms.values()).backward()

    torch.manual_seed(5)
    before = weights(method)
    found = method.step(Unwrapped(method), batch, torch.optim.SGD(method.parameter_groups(), lr=0.5, weight_decay=0.0))
    assert {name: float(term.detach()) for name, term in found.items()} == values
    decays = {id(p): group.get("weight_decay", 0.0) for group in method.parameter_groups() for p in group["params"]}
    expected = {name: parameter.grad for name, parameter in other.named_parameters() if parameter.requires_grad}
    assert expected
    for name, parameter in method.named_parameters():
        if parameter.requires_grad:
            downhill = expected[name] + decays[id(parameter)] * before[name]
            torch.testing.assert_close(parameter.detach(), before[name] - 0.5 * downhill, rtol=1e-4, atol=1e-6)


@every_trained
def test_steps_lower_its_loss_on_data_that_can_be_learned(name, mode, kind):
    method, batch = prepared(name, mode, kind)
    losses = stepped(method, batch, 24)
    assert all(map(math.isfinite, losses))
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 0.01


@every_trained
def test_its_gradients_are_finite_in_half_precision(name, mode, kind):
    method, batch = prepared(name, mode, kind)
    optimizer = torch.optim.SGD(method.parameter_groups(), lr=1e-3)
    terms = method.step(Unwrapped(method, half=True), batch, optimizer)
    gradients = [p.grad for p in method.parameters() if p.grad is not None]
    assert all(torch.isfinite(term) for term in terms.values())
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert any(gradient.any() for gradient in gradients)
    assert all(torch.isfinite(value).all() for value in weights(method).values())


@every_trained_once
def test_nothing_in_its_loss_waits_for_a_value_so_that_a_gpu_can_record_it(name, mode):
    method, batch = prepared(name, mode, "images")
    with FakeTensorMode() as without_values:  # shapes alone: asking a tensor for what it holds is refused
        state = {**dict(method.named_parameters()), **dict(method.named_buffers())}
        state = {name: without_values.from_tensor(tensor) for name, tensor in state.items()}
        fields = (batch.inputs, batch.targets, batch.domains)
        inputs, targets, domains = (None if t is None else without_values.from_tensor(t) for t in fields)
        batch = DomainBatch(inputs, targets, domains, batch.blocks)
        for part in batch.parts() if name in OWN_STEP else [batch]:
            total(functional_call(method, state, (part.inputs, part.targets, part.domains, part.blocks))).backward()
    assert any(tensor.grad is not None for tensor in state.values())


@every
def test_it_predicts_probabilities_or_numbers_for_each_row_by_itself(name, mode, kind):
    method, batch = prepared(name, mode, kind)
    chosen = torch.tensor([7, 3, 70])
    if name != "ensemble":
        stepped(method, batch, 3)
    method.eval()
    with torch.no_grad():
        found, again = method.predict(batch.inputs), method.predict(batch.inputs)
        some = method.predict(batch.inputs[chosen])
    rows = len(batch)
    assert found.output.shape == (rows, 1 if kind == "numbers" else CLASSES)
    assert torch.isfinite(found.output).all()
    assert found.output.std(0).max() > 1e-4  # it looks at its input
    if kind != "numbers":
        assert (found.output >= 0).all()
        torch.testing.assert_close(found.output.sum(1), torch.ones(rows))
    for field in found._fields:
        one, other, part = (getattr(prediction, field) for prediction in (found, again, some))
        assert (one is None) == (part is None)
        if one is not None:
            assert len(one) == rows
            assert torch.equal(one, other)
            alike = torch.allclose(part, one[chosen], rtol=1e-4, atol=1e-5)
            # One that looks at the other rows says so; familiarity is of each row by itself in any case.
            assert alike != (method.batchwise and field != "coverage")


@every
def test_its_state_carries_all_that_its_predictions_depend_on(name, mode, kind):
    method, batch = prepared(name, mode, kind)
    if name != "ensemble":
        stepped(method, batch, 3)
    fresh = build(name, DATASETS[kind](30), mode=mode, seed=99)
    fresh.load_state_dict(method.state_dict())
    with torch.no_grad():
        one, other = method.eval().predict(batch.inputs), fresh.eval().predict(batch.inputs)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True) if a is not None)


@every
def test_its_parameter_groups_hold_every_trained_parameter_once(name, mode, kind):
    method, _ = prepared(name, mode, kind)
    grouped = [id(parameter) for group in method.parameter_groups() for parameter in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in method.parameters() if p.requires_grad)
    assert len(set(grouped)) == len(grouped) > 0


@every_trained_once
def test_rows_it_is_not_trained_on_change_no_weight(name, mode, without_gate_warnings):
    found = []
    for poison in (0.0, 1e4):
        clean = vectors(100)
        values = clean.inputs.values.copy()
        values[80:] += poison
        dataset = DomainDataset.from_arrays(values, clean.targets, clean.domains, task="classification")
        method = build(name, dataset, mode=mode)
        train(method, material(dataset, train=80, validation=10), epochs=1)  # one epoch is the best whatever it scores
        found.append(weights(method))
    assert identical(*found)


@every_plain
def test_it_never_sees_domains_unless_it_says_that_it_uses_them(name, mode, without_gate_warnings):
    found = []
    for domains in (np.arange(100) % 3, np.arange(100) // 50, None):
        clean = vectors(100)
        dataset = DomainDataset.from_arrays(clean.inputs.values, clean.targets, domains, task="classification")
        method = build(name, dataset, mode=mode)
        train(method, material(dataset, train=80, validation=20), epochs=1)
        found.append(weights(method))
    assert identical(found[0], found[1])
    assert identical(found[0], found[2])


@every_told
def test_one_that_uses_domains_learns_otherwise_from_the_same_rows_where_they_are_of_others(name, mode):
    found = []
    for shift in (0, 0, 1):
        method, batch = prepared(name, mode, "vectors")
        torch.manual_seed(3)
        domains = (batch.domains + shift * (torch.arange(len(batch)) % 2)) % DOMAINS
        stepped(method, replace(batch, domains=domains, blocks=None), 3)
        found.append(weights(method))
    assert identical(found[0], found[1])
    assert not identical(found[0], found[2])


@pytest.mark.parametrize("name", TOLD)
@pytest.mark.parametrize(("counts", "why"), [((), "none is known.*--domain"), ((80,), "one only.*--group-by")])
def test_one_that_uses_domains_is_refused_without_two_of_them_with_the_cure(name, counts, why):
    kind = METHODS[name]
    with pytest.raises(DataError, match=rf"{re.escape(kind.label)} compares source domains.*{why}.*leave {name} out"):
        kind.build(kind.settings_type(), replace(problem(vectors(30)), domains=counts), mode=kind.modes[0])


# -- through a whole training ----------------------------------------------------------------------------------------


@cache
def learned(name: str, mode: str, kind: str) -> tuple[Method, float]:
    """A method trained for a moment, and its accuracy or its share of the variance on rows it has never seen."""
    data = material(DATASETS[kind](240), train=160, validation=30)
    body = copy.deepcopy(learned("erm", "end_to_end", kind)[0].backbone.body) if mode == "fine_tune" else None
    method, unseen = build(name, data.dataset, mode=mode, body=body), np.arange(190, 240)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GateWarning)
        train(method, data, epochs=6, rate=2e-2)
    said, true = predict_rows(method, data.samples, unseen).output, data.dataset.targets[unseen]
    if kind == "numbers":
        return method, float(1 - np.square(said[:, 0] - true).mean() / true.var())
    return method, float((said.argmax(1) == true).mean())


@every_trained_in_turns
def test_it_learns_an_easy_problem_well_above_chance(name, mode, kind):
    _, score = learned(name, mode, kind)
    assert score > (0.3 if kind == "numbers" else 0.6)  # chance: 0, a third


@every_trained_once
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(name, mode, without_gate_warnings):
    data = material(vectors(100), train=64, validation=20)
    found = []
    for seed in (1, 1, 2):
        method = build(name, data.dataset, mode=mode, seed=4)
        torch.manual_seed(seed)
        train(method, data, epochs=1, batch_size=16, seed=seed)
        found.append(weights(method))
    assert identical(found[0], found[1])
    assert not identical(found[0], found[2])


class CutError(Exception):
    pass


class Cut(ProgressCallback):
    """Cuts a training after a step."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step(self, step: int, steps: int) -> None:
        if step == self.at:
            raise CutError


@every_trained_once
def test_cut_in_the_middle_of_an_epoch_it_goes_on_as_if_it_had_never_been_cut(
    name, mode, tmp_path, without_gate_warnings
):
    data = material(DATASETS["images" if mode == "end_to_end" else "numbers"](68), train=48, validation=20)

    def new(**more: Any):
        method = build(name, data.dataset, mode=mode)
        torch.manual_seed(7)
        return training(method, data, epochs=2, batch_size=16, patience=None, **more)

    whole = new()
    whole.fit()
    checkpoint = Checkpoint(tmp_path, seconds=0.0)
    with pytest.raises(CutError):
        new(checkpoint=checkpoint, progress=Cut(5)).fit()
    torch.manual_seed(123)  # whatever the new process drew meanwhile
    continued = new(checkpoint=checkpoint)
    continued.fit()
    assert continued.step == whole.step == 6
    assert identical(weights(continued.method), weights(whole.method))


@pytest.mark.parametrize("kind", DATASETS)
def test_an_ensemble_says_what_its_members_say_on_average_and_is_never_trained_as_one(kind):
    method, batch = prepared("ensemble", "end_to_end", kind)
    assert isinstance(method, Ensemble)
    with torch.no_grad():
        said = [member.predict(batch.inputs).output.double() for member in method.eval().members]
        found = method.predict(batch.inputs).output
    assert len(said) == 5
    assert not torch.equal(said[0], said[1])  # each has weights of its own
    torch.testing.assert_close(found.double(), sum(said) / 5, rtol=1e-5, atol=1e-6)
    with pytest.raises(TypeError, match="one by one"):
        method.objective(batch)


@pytest.fixture
def without_gate_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GateWarning)
        yield
