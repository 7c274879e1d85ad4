"""What holds for every method, on images, on vectors and where a number is predicted, in every mode it offers."""

from __future__ import annotations

import copy
import math
import warnings
from functools import cache

import numpy as np
import pytest
import torch

from gated_domains.data.batches import DomainBatch
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.sampling import InOrder
from gated_domains.layer import GateWarning
from gated_domains.methods import METHODS, Ensemble, Method
from gated_domains.methods.method import total
from gated_domains.training.loop import looks
from small_trainings import CLASSES, DATASETS, build, identical, material, train, vectors, weights

CASES = [(name, mode, kind) for name in METHODS for mode in METHODS[name].modes for kind in DATASETS]
TRAINED = [case for case in CASES if case[0] != "ensemble"]  # whose members are trained one by one
every = pytest.mark.parametrize(("name", "mode", "kind"), CASES)
every_trained = pytest.mark.parametrize(("name", "mode", "kind"), TRAINED)
every_trained_once = pytest.mark.parametrize(("name", "mode"), sorted({case[:2] for case in TRAINED}))


class Plain:
    """The objective without a wrapper."""

    def __init__(self, method: Method) -> None:
        self.method = method

    def __call__(self, batch: DomainBatch):
        return self.method.objective(batch)

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()


def prepared(name: str, mode: str, kind: str) -> tuple[Method, DomainBatch]:
    """A method that has looked at its training rows, and those as one batch."""
    return copy.deepcopy(looked(name, mode, kind))


@cache
def looked(name: str, mode: str, kind: str) -> tuple[Method, DomainBatch]:
    data = material(DATASETS[kind](100), train=80, validation=20)
    method = build(name, data.dataset, mode=mode).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GateWarning)  # the paper's start is close to dead, and says so
        method.prepare(lambda: looks(data, 0))
    batch = next(iter(data.samples.batches(InOrder(data.train, len(data.train)))))
    return method.train(), batch.without_domains()


def stepped(method: Method, batch: DomainBatch, steps: int) -> list[float]:
    """The losses of some steps."""
    optimizer = torch.optim.Adam(method.parameter_groups(), lr=0.02)
    return [float(total(method.step(Plain(method), batch, optimizer)).detach()) for _ in range(steps)]


@pytest.mark.parametrize("name", METHODS)
def test_it_says_what_it_is_called_and_what_it_is(name):
    kind = METHODS[name]
    assert kind.name == name
    assert kind.label
    assert len(kind.what) > 20
    assert kind.modes
    assert set(kind.modes) <= {"end_to_end", "fine_tune"}


def test_no_two_have_the_same_label():
    assert len({kind.label for kind in METHODS.values()}) == len(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_its_settings_all_have_defaults(name):
    kind = METHODS[name].settings_type
    assert all(not field.is_required() for field in kind.model_fields.values())
    assert kind() == kind(**kind().model_dump())


@every_trained
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
    found = method.step(Plain(method), batch, torch.optim.SGD(method.parameter_groups(), lr=0.5, weight_decay=0.0))
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
    losses = stepped(method, batch, 12)
    assert all(map(math.isfinite, losses))
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 0.01


@every
def test_it_predicts_probabilities_or_numbers_for_each_row_by_itself(name, mode, kind):
    method, batch = prepared(name, mode, kind)
    if name != "ensemble":
        stepped(method, batch, 3)
    method.eval()
    with torch.no_grad():
        found, again = method.predict(batch.inputs), method.predict(batch.inputs)
        some = method.predict(batch.inputs[[7, 3, 70]])
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
            torch.testing.assert_close(part, one[[7, 3, 70]], rtol=1e-4, atol=1e-5)


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


@every_trained_once
def test_it_never_sees_domains_unless_it_says_that_it_uses_them(name, mode, without_gate_warnings):
    assert not METHODS[name].uses_domains  # a method that uses them has tests of its own
    found = []
    for domains in (np.arange(100) % 3, np.arange(100) // 50, None):
        clean = vectors(100)
        dataset = DomainDataset.from_arrays(clean.inputs.values, clean.targets, domains, task="classification")
        method = build(name, dataset, mode=mode)
        train(method, material(dataset, train=80, validation=20), epochs=1)
        found.append(weights(method))
    assert identical(found[0], found[1])
    assert identical(found[0], found[2])


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
