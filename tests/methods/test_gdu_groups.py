"""GDU with groups: its terms against slow loops, what it teaches gates, and a worst group that it lifts above ERM's."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

import oracles
from domain_problems import directions, half_precision_step, some_rows, step, whole
from gated_domains.backbones.backbone import Identity
from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.data.spurious import spurious
from gated_domains.experiments import DataSettings, Recipe, Runner, choose_method
from gated_domains.layer import GateWarning
from gated_domains.methods.gdu_groups import GroupGDU, GroupGDUSettings
from gated_domains.runs.recipe import TrainingSettings
from small_trainings import build, identical, problem, vectors, weights

ROWS = (40, 90, 30, 25)
BASES = 3
GROUPS = ("attribute", "class")
LEAST = 1e-3


def made(**settings: Any) -> tuple[GroupGDU, list[DomainBatch]]:
    """A method on the inputs themselves that has looked at them, in doubles; batches of all groups and of some."""
    dataset = directions((0, 30, 60, 90), ROWS)
    settings = {"num_bases": BASES, "basis_size": 4, "eta": 0.4, **settings}
    method = build("gdu-groups", dataset, body=Identity((2,)), settings=settings)
    assert isinstance(method, GroupGDU)
    everything = whole(dataset)
    method.eval().prepare(lambda: [everything.inputs])
    with torch.no_grad():
        method.units.experts.weight.normal_(generator=torch.Generator().manual_seed(1))  # they start at zero
    exact = replace(everything, inputs=everything.inputs.double())
    picks = ([0, 1, 2, 3] * 3, [2, 2, 0, 0, 2], [3, 1, 1, 1], [1, 1])
    return method.double().train(), [some_rows(exact, groups) for groups in picks]


def beta_and_losses(method: GroupGDU, batch: DomainBatch) -> tuple[list[list[float]], list[float]]:
    with torch.no_grad():
        out = method.evaluate(batch.inputs)
    told = zip(out.prediction.tolist(), batch.targets.tolist(), strict=True)
    return out.beta.tolist(), [oracles.cross_entropy(said, target) for said, target in told]


def slow_lesson(
    beta: list[list[float]], groups: list[int], spread: list[list[float]]
) -> tuple[float, list[list[float]]]:
    """The lesson, and how groups are spread over bases after it has been counted, from the formula."""

    def share(group: int, basis: int) -> float:
        of_all = [one[basis] + LEAST for one in spread]
        return of_all[group] / math.fsum(of_all)

    counted: dict[int, list[list[float]]] = {}
    for row, group in zip(beta, groups, strict=True):
        belongs = [weight * share(group, basis) for basis, weight in enumerate(row)]
        counted.setdefault(group, []).append([value / math.fsum(belongs) for value in belongs])
    moved = [list(one) for one in spread]
    for group, rows in counted.items():
        for basis in range(len(spread[0])):
            mean = math.fsum(row[basis] for row in rows) / len(rows)
            moved[group][basis] = 0.9 * spread[group][basis] + 0.1 * mean
    spread = moved
    losses = []
    for row, group in zip(beta, groups, strict=True):
        losses.append(-math.log(math.fsum(weight * share(group, basis) for basis, weight in enumerate(row))))
    means = oracles.domain_risks(losses, groups)
    return math.fsum(means.values()) / len(means), spread


# -- the objective ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjustment", [0.0, 2.5])
def test_the_loss_over_groups_is_that_of_the_formula_batch_after_batch(adjustment):
    method, batches = made(adjustment=adjustment)
    slow = [0.25] * 4
    for batch in batches * 2:
        _, losses = beta_and_losses(method, batch)
        risks = oracles.domain_risks(losses, batch.domains.tolist())
        slow = oracles.grown(slow, oracles.group_dro_gains(risks, ROWS, 0.4, adjustment))
        terms = method.objective(batch)
        assert list(terms) == ["task", "supervision", "reconstruction", "deviations"]
        assert float(terms["task"].detach()) == pytest.approx(oracles.weighed_risk(slow, risks), rel=1e-6)
        assert method.weights.values.tolist() == pytest.approx(slow, rel=1e-6)


def test_the_loss_over_bases_is_that_of_the_formula_batch_after_batch():
    method, batches = made(over="bases")
    slow = [1 / BASES] * BASES
    for batch in batches * 2:
        beta, losses = beta_and_losses(method, batch)
        risks = {}
        for basis in range(BASES):
            mass = math.fsum(row[basis] for row in beta)
            risks[basis] = math.fsum(row[basis] * loss for row, loss in zip(beta, losses, strict=True)) / mass
        slow = oracles.grown(slow, {basis: 0.4 * risk for basis, risk in risks.items()})
        found = float(method.objective(batch)["task"].detach())
        assert found == pytest.approx(math.fsum(slow[basis] * risks[basis] for basis in risks), rel=1e-6)
        assert method.weights.values.tolist() == pytest.approx(slow, rel=1e-6)


def test_the_lesson_of_the_gates_is_that_of_the_formula_batch_after_batch():
    method, batches = made(supervise=2.5)
    spread = [[1 / BASES] * BASES for _ in ROWS]
    for batch in batches * 3:
        beta, _ = beta_and_losses(method, batch)
        lesson, spread = slow_lesson(beta, batch.domains.tolist(), spread)
        assert float(method.objective(batch)["supervision"].detach()) == pytest.approx(2.5 * lesson, rel=1e-6)
        assert method.spread.flatten().tolist() == pytest.approx(np.ravel(spread).tolist(), rel=1e-6)
    assert method.groups_of_bases.sum(1).tolist() == pytest.approx([1.0] * BASES)


@pytest.mark.parametrize("over", ["groups", "bases"])
def test_without_its_parts_it_is_a_mean_over_groups_or_bases(over):
    method, (batch, *_) = made(over=over, eta=0.0, supervise=0.0, lambda_ols=0.0, lambda_dev=0.0)
    beta, losses = beta_and_losses(method, batch)
    terms = method.objective(batch)
    assert list(terms) == ["task"]
    parts = [[float(group == which) for which in range(4)] for group in batch.domains.tolist()]
    weighing = np.array(parts if over == "groups" else beta)
    expected = np.mean(weighing.T @ losses / weighing.sum(0))
    assert float(terms["task"].detach()) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("gate", ["cosine", "projection"])
def test_inactive_bases_have_no_part_in_it(gate):
    method, batches = made(over="bases", num_bases=4, gate=gate)
    method.units.active[2] = False
    for batch in batches:
        beta, losses = beta_and_losses(method, batch)
        assert all(row[2] == 0 for row in beta)
        before = method.weights.values
        terms = method.objective(batch)
        weighing = np.array(beta).clip(0) + 1e-150
        weighing /= weighing[:, [0, 1, 3]].sum(1, keepdims=True)
        active, after = [0, 1, 3], method.weights.values.numpy()
        risks = (weighing.T @ losses / weighing.sum(0))[active]
        expected = (after[active] * risks).sum() / after[active].sum()
        assert float(terms["task"].detach()) == pytest.approx(expected, rel=1e-6)
        assert all(math.isfinite(float(term.detach())) for term in terms.values())
        grown = after / before.numpy()
        np.testing.assert_allclose(grown[active] / grown[2], np.exp(0.4 * risks), rtol=1e-6)
    sum(terms.values()).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in method.parameters())


def test_a_hard_row_does_not_drive_its_gate_away_where_bases_are_weighed():
    method, (batch, *_) = made(over="bases", supervise=0.0, lambda_ols=0.0, shared=False, coverage=False)
    with torch.no_grad():  # experts that all say the same: gates can then change the loss by moving rows alone
        method.units.experts.weight[:] = method.units.experts.weight[:1].clone()
        method.units.experts.bias[:] = method.units.experts.bias[:1].clone()
    method.objective(batch)["task"].backward()
    assert method.units.bases.grad.abs().max() < 1e-12


# -- what gates learn ------------------------------------------------------------------------------------------------


def apart(rows: int = 60) -> DomainBatch:
    """Two groups side by side, on a line that is long in another direction: clusters do not tell them."""
    rng = np.random.default_rng(3)
    groups = np.arange(rows) % 2
    values = np.stack([rng.normal(size=rows) + 1.5 * (2 * groups - 1), rng.normal(size=rows)], 1)
    inputs = torch.from_numpy((values / values.std(0) * [1, 4]).astype(np.float32))
    return DomainBatch(inputs, torch.from_numpy(rng.integers(2, size=rows)), torch.from_numpy(groups))


def told_right(method: GroupGDU, batch: DomainBatch) -> float:
    with torch.no_grad():
        said = method.predict(batch.inputs).beta @ method.groups_of_bases
    return float((said.argmax(1) == batch.domains).float().mean())


@pytest.mark.parametrize("num_bases", [2, 5])
def test_the_lesson_draws_a_row_to_the_bases_of_its_group(num_bases):
    batch, found = apart(), {}
    for supervise in (0.0, 1.0):
        dataset = directions((0, 90), (30, 30))
        settings = {"num_bases": num_bases, "supervise": supervise, "gating": "features"}
        method = build("gdu-groups", dataset, body=Identity((2,)), settings=settings)
        method.eval().prepare(lambda: [batch.inputs])
        method.train()
        optimizer = torch.optim.Adam([method.units.bases], lr=0.1)
        for _ in range(40):
            step(method, batch, optimizer)
        if supervise == 0:
            method.settings = GroupGDUSettings(supervise=1.0)
            for _ in range(30):
                method.objective(batch)  # nothing is learned, but groups are counted
        found[supervise] = told_right(method.eval(), batch)
    assert found[0.0] < 0.75
    assert found[1.0] > found[0.0] + 0.1, found


def test_a_step_down_the_lesson_gives_the_bases_of_a_group_more_of_its_rows():
    method, (batch, *_) = made(lambda_ols=0.0)
    for _ in range(20):
        method.objective(batch)
    method.eval()
    before = method.objective(batch)["supervision"]
    (slope,) = torch.autograd.grad(before, [method.units.bases])
    with torch.no_grad():
        method.units.bases -= 1e-3 * slope / slope.norm()
    after = method.objective(batch)["supervision"]
    assert float((before - after).detach()) == pytest.approx(1e-3 * float(slope.norm()), rel=1e-2)


def test_a_large_group_has_no_larger_say_in_the_lesson():
    method, (batch, *_) = made()
    for _ in range(20):
        method.objective(batch)  # until groups are told apart
    once = method.eval().objective(batch)["supervision"]
    pick = torch.cat([torch.arange(len(batch)), *[torch.nonzero(batch.domains == 1).flatten()] * 5])
    more = DomainBatch(batch.inputs[pick], batch.targets[pick], batch.domains[pick])
    torch.testing.assert_close(method.objective(more)["supervision"], once)


def test_bases_that_are_fitted_anew_are_counted_anew():
    method, (batch, *_) = made(over="bases")
    for _ in range(5):
        method.objective(batch)
    assert method.spread.std() > 0.01
    method.prepare(lambda: [batch.inputs])
    assert method.spread.flatten().tolist() == pytest.approx([1 / BASES] * 4 * BASES)
    assert method.weights.values.tolist() == pytest.approx([1 / BASES] * BASES)


# -- surroundings ----------------------------------------------------------------------------------------------------


def test_weights_and_counts_move_in_training_alone():
    method, (batch, *_) = made()
    before = weights(method)
    method.eval().objective(batch)
    assert identical(before, weights(method))
    method.train().objective(batch)
    moved = weights(method)
    assert {name for name in before if not torch.equal(before[name], moved[name])} == {"spread", "weights.logarithms"}


def test_predictions_are_those_of_gdu_and_need_no_groups():
    method, (batch, *_) = made()
    plain = build("gdu", directions((0, 30), (30, 30)), body=Identity((2,)), settings={"num_bases": 3, "basis_size": 4})
    state = method.state_dict()
    own = {"spread", "weights.logarithms"}
    plain.double().load_state_dict({name: value for name, value in state.items() if name not in own})
    with torch.no_grad():
        one, other = method.eval().predict(batch.inputs), plain.eval().predict(batch.inputs)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True) if a is not None)


@pytest.mark.parametrize("over", ["groups", "bases"])
@pytest.mark.parametrize("regression", [False, True], ids=["classes", "numbers"])
def test_half_precision_leaves_every_gradient_a_number(regression, over):
    dataset = vectors(60, regression=regression)
    method = build("gdu-groups", dataset, settings={"over": over})
    method.eval().prepare(lambda: [whole(dataset).inputs])
    half_precision_step(method, whole(dataset))


def test_a_cut_training_goes_on_with_its_weights_and_counts():
    method, batches = made(over="bases")
    for batch in batches:
        step(method, batch, torch.optim.SGD(method.parameters(), lr=0.1))
    other = copy.deepcopy(made(over="bases")[0])
    other.load_state_dict(method.state_dict())
    for each in (method, other):
        step(each, batches[0], torch.optim.SGD(each.parameters(), lr=0.1))
    assert identical(weights(method), weights(other))


def test_without_two_groups_it_says_what_it_needs():
    kind = replace(problem(vectors(30)), domains=())
    with pytest.raises(DataError, match=r"GDU \(groups\) compares source domains in training, and none is known"):
        GroupGDU.build(GroupGDUSettings(), kind, mode="end_to_end")
    method, (batch, *_) = made()
    with pytest.raises(DataError, match="train it on rows whose domains are known"):
        method.objective(batch.without_domains())


@pytest.mark.parametrize("wrong", [{"supervise": -1}, {"eta": -0.1}, {"adjustment": -1}, {"over": "classes"}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        GroupGDUSettings(**wrong)


# -- a known answer --------------------------------------------------------------------------------------------------


def worst_groups(
    folder: Any, methods: Mapping[str, Mapping[str, Any]], *, seed: int, epochs: int, **data: Any
) -> dict[str, float]:
    """The accuracy of each method in its worst group at the site where attribute and class are independent."""
    training = TrainingSettings(epochs=epochs, patience=None, batch_size=128, group_by=GROUPS)
    base = Recipe(
        data=DataSettings(what="spurious", seed=seed),
        hold_out="balanced",
        method=choose_method("erm"),
        training=training,
        selection="last",
        score_by=GROUPS,
        seed=seed,
    )
    runner = Runner(spurious(seed=seed, **data), folder)
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GateWarning)
        for name, settings in methods.items():
            chosen = base.with_method(choose_method(name.partition(" ")[0], settings))
            found[name] = min(runner.run(chosen).result().to_json()["test"]["by_group"].values())
    return found


def test_its_worst_group_fares_better_than_that_of_erm_where_an_attribute_misleads(tmp_path):
    found = worst_groups(tmp_path, {"erm": {}, "gdu-groups": {}}, seed=0, epochs=8, rows=500, core=1.0)
    assert found["erm"] < 0.5
    assert found["gdu-groups"] > found["erm"] + 0.2


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.9, 0.97])
def test_each_of_its_forms_lifts_the_worst_group_over_seeds(correlation, tmp_path):
    forms = {"erm": {}, "gdu-groups": {}, "gdu-groups over bases": {"over": "bases"}}
    runs = [worst_groups(tmp_path, forms, seed=seed, epochs=8, rows=400, correlation=correlation) for seed in (1, 2)]
    for form in list(forms)[1:]:
        assert min(run[form] - run["erm"] for run in runs) > 0.05


def test_constant_gates_are_not_taught_groups():
    with pytest.raises(DataError, match="supervise=0 beside gates=constant"):
        made(gates="constant")
    made(gates="constant", supervise=0.0)
