"""Adaptive M: bases that split where rows fall apart, join where they do not, and go where there are none."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
import torch

from gated_domains.data.synthetic import synthetic
from gated_domains.layer import CosineGate, GatedDomainUnits, MLPExperts, MMDGate, ProjectionGate, annealing
from gated_domains.layer.annealing import hand_on
from gated_domains.layer.fitting import median_sigma
from gated_domains.layer.regrouping import critical_temperature, settled_groups

pytestmark = pytest.mark.filterwarnings("ignore::gated_domains.layer.GateWarning")

CENTRES = torch.tensor([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0]])


def blobs(count: int = 3, rows: int = 300, *, seed: int = 0) -> torch.Tensor:
    """Rows of the first ``count`` blobs, in turn."""
    noise = torch.randn(rows, 2, generator=torch.Generator().manual_seed(seed))
    return CENTRES[torch.arange(rows) % count] + noise


def adaptive(x: torch.Tensor, **settings: object) -> GatedDomainUnits:
    torch.manual_seed(0)
    head = GatedDomainUnits(x.shape[1], 2, num_bases="adaptive", **settings)  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in head.experts.parameters():
            parameter.normal_()
    return head.fit_bases(x)


def rows_of(mixture) -> torch.Tensor:
    return torch.from_numpy(mixture.dataset.inputs.values)


def found(elements: int, seed: int, **settings: object) -> int:
    x = rows_of(synthetic(elements=elements, seed=seed, **settings))  # type: ignore[arg-type]
    return GatedDomainUnits(x.shape[1], 2, num_bases="adaptive").grow_bases(x).num_bases


# -- the number ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elements", [4, *(pytest.param(number, marks=pytest.mark.slow) for number in (2, 6))])
def test_the_number_of_elements_is_found_from_one_basis(elements):
    assert found(elements, seed=3) == elements


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [2, 10, 100])
@pytest.mark.parametrize("elements", [2, 3, 4, 5, 6])
def test_the_number_of_elements_is_found_in_eight_seeds_of_ten(elements, dimension):
    assert sum(found(elements, seed, dimension=dimension) == elements for seed in range(10)) >= 8


@pytest.mark.parametrize(("rows", "columns"), [(12, 3), (60, 100), (800, 5)])
def test_rows_of_one_element_keep_one_basis(rows, columns):
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(2))
    assert GatedDomainUnits(columns, 2, num_bases="adaptive").grow_bases(x).num_bases == 1


def test_elements_of_other_weights_and_widths_far_from_the_origin_are_told_apart():
    generator = torch.Generator().manual_seed(1)
    sizes, widths = (500, 60, 200), (3.0, 0.3, 1.0)
    parts = [
        centre + width * torch.randn(size, 2, generator=generator)
        for size, width, centre in zip(sizes, widths, 2 * CENTRES, strict=True)
    ]
    x = torch.cat(parts) + 3_000
    head = GatedDomainUnits(2, 2, num_bases="adaptive").grow_bases(x)
    assert head.num_bases == 3
    owners = head._owners(x)
    assert len({int(part.mode().values) for part in owners.split(list(sizes))}) == 3


def test_copies_of_one_row_are_a_group_and_the_number_is_found_soon():
    x = torch.cat([torch.randn(200, 3), torch.full((200, 3), 9.0)])
    head = GatedDomainUnits(3, 2, num_bases="adaptive").grow_bases(x)
    assert head.num_bases == 2
    assert len(head.history) < 12


def test_never_more_than_there_is_room_for():
    head = GatedDomainUnits(2, 2, num_bases="adaptive", max_bases=2).grow_bases(blobs())
    assert (head.num_bases, head.max_bases, head.settled) == (2, 2, True)


def test_every_basis_is_drawn_from_rows_of_one_element():
    x = blobs()
    head = GatedDomainUnits(2, 2, num_bases="adaptive").grow_bases(x)
    nearest = torch.cdist(head.active_bases.detach(), CENTRES).argmin(-1)
    assert (nearest == nearest[:, :1]).all()
    assert set(nearest[:, 0].tolist()) == {0, 1, 2}


@pytest.mark.parametrize("gate", [CosineGate(), MMDGate(), ProjectionGate(), ProjectionGate(ridge=1e-3)])
def test_every_gate_can_have_adaptive_bases(gate):
    head = GatedDomainUnits(2, 2, num_bases="adaptive", gate=gate).grow_bases(blobs())
    assert head.num_bases == 3
    assert (head.evaluate(blobs()).beta[:, ~head.active] == 0).all()


def test_groups_without_a_layer_are_the_same_in_number():
    assert settled_groups(blobs().double(), 12).unique().tolist() == [0, 1, 2]


# -- one round -------------------------------------------------------------------------------------------------------


def test_the_critical_temperature_is_twice_the_largest_eigenvalue():
    x = torch.randn(200, 5, generator=torch.Generator().manual_seed(0)).double() * torch.tensor([5.0, 1, 1, 1, 1])
    expected = 2 * torch.linalg.eigvalsh(torch.cov(x.T, correction=0))[-1]
    assert critical_temperature(x) == pytest.approx(float(expected), rel=1e-6)


def test_a_split_changes_no_prediction_and_both_parts_have_the_expert():
    x = blobs(2)
    head = adaptive(x, coverage=False)
    before = head(x)
    assert head.adapt_bases(x).splits == 1
    assert head.active.tolist() == [True, True] + [False] * 10
    assert torch.equal(head.experts.weight[0], head.experts.weight[1])
    torch.testing.assert_close(head(x), before)


def test_a_part_takes_over_what_the_optimiser_remembers_and_so_do_followers():
    x = blobs(2)
    head = adaptive(x, experts=MLPExperts)
    follower = torch.nn.Parameter(torch.randn(12, 4))
    optimizer = torch.optim.Adam([*head.parameters(), follower])
    (head(x).square().mean() + follower.square().sum()).backward()
    optimizer.step()
    parent = follower[0].clone()
    head.adapt_bases(x, optimizer=optimizer, followers=[follower])
    assert torch.equal(follower[1], parent)
    for parameter in (head.experts.first.weight, head.experts.bias, follower):
        for name in ("exp_avg", "exp_avg_sq"):
            moment = optimizer.state[parameter][name]
            assert moment[0].abs().sum() > 0
            assert torch.equal(moment[1], moment[0])


def test_rows_are_handed_on_by_shares_of_what_they_were():
    tensor = torch.tensor([[1.0], [3.0], [5.0]])
    hand_on(tensor, torch.tensor([[0.25, 0.75, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    assert tensor.flatten().tolist() == [2.5, 1.0, 5.0]


def test_a_basis_without_rows_goes():
    x = blobs(2)
    head = adaptive(x).grow_bases(x)
    with torch.no_grad():
        head.bases[5] = 500.0
        head.active[5] = True
    assert head.adapt_bases(x)[2:6] == (0, 0, 1, 2)
    assert not head.active[5]


def test_two_bases_on_the_same_rows_become_one_with_the_mean_of_their_experts():
    x = blobs(1, 400)
    head = adaptive(x)
    with torch.no_grad():
        head.active[3] = True
        head.bases[0], head.bases[3] = x[x[:, 0] > 0.2][:10], x[x[:, 0] < -0.2][:10]
        low, high = sorted([head.experts.bias[0].clone(), head.experts.bias[3].clone()], key=lambda one: float(one[0]))
    head.adapt_bases(x)
    assert head.history[-1].merges == 1
    assert head.num_bases == 1
    assert low[0] < head.experts.bias[head.active][0, 0] < high[0]


def test_copies_of_a_basis_become_one():
    x = blobs(2)
    head = adaptive(x).grow_bases(x)
    with torch.no_grad():
        head.active[4] = True
        head.bases[4] = head.bases[head.active.nonzero()[0, 0]]
    head.adapt_bases(x)
    assert head.num_bases == 2


def test_new_bases_take_the_first_free_place():
    x = blobs(3)
    head = adaptive(blobs(1))
    with torch.no_grad():  # the only basis lies in the third place
        head.bases[2] = head.bases[0]
        head.active.zero_()
        head.active[2] = True
    head.adapt_bases(x)
    while not head.settled:
        head.adapt_bases(x)
    assert head.active.nonzero().flatten().tolist() == [0, 1, 2]


def test_bases_that_had_no_part_in_it_stay_as_training_left_them():
    x = blobs(2)
    head = adaptive(x).grow_bases(x)
    with torch.no_grad():
        head.bases.add_(0.01)
    before = head.active_bases.clone()
    head.adapt_bases(torch.cat([x, blobs(3)[2::3]]))
    assert head.num_bases == 3
    kept = (head.active_bases.flatten(1)[:, None] == before.flatten(1)).all(-1).any(-1)
    assert kept.sum() >= 1


def test_kappa_is_matched_anew_unless_it_was_chosen():
    x = blobs()
    assert float(adaptive(x).grow_bases(x).gate.kappa) != 1.0
    assert float(adaptive(x).grow_bases(x, kappa=7.0).gate.kappa) == 7.0


# -- what a layer remembers ------------------------------------------------------------------------------------------


def test_the_history_tells_of_every_round():
    head = adaptive(blobs())
    assert (head.history, head.settled, head.num_bases) == ([], False, 1)
    first = head.adapt_bases(blobs())
    head.grow_bases(blobs())
    assert head.history[0] == first
    assert [step.round for step in head.history] == list(range(1, len(head.history) + 1))
    temperatures = [step.temperature for step in head.history]
    assert temperatures == sorted(temperatures, reverse=True)
    assert sum(step.splits - step.merges - step.prunes for step in head.history) == head.num_bases - 1
    assert [step.settled for step in head.history] == [False] * (len(head.history) - 1) + [True]


def test_a_layer_that_was_saved_between_rounds_goes_on_as_it_would_have():
    x = blobs()
    head = adaptive(x)
    head.adapt_bases(x)
    other = GatedDomainUnits(2, 2, num_bases="adaptive")
    other.load_state_dict(copy.deepcopy(head.state_dict()))
    for one in (head, other):
        while not one.settled:
            one.adapt_bases(x)
    assert other.history == head.history
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in head.state_dict().items())


def test_a_fit_begins_anew():
    x = blobs()
    head = adaptive(x).grow_bases(x)
    head.fit_bases(x)
    assert (head.num_bases, head.history, head.settled) == (1, [], False)


def test_rounds_beyond_what_is_remembered_push_out_the_first(monkeypatch):
    monkeypatch.setattr(annealing, "ROUNDS", 4)
    x = blobs(1, 40)
    head = adaptive(x)
    for _ in range(6):
        last = head.adapt_bases(x)
    assert [step.round for step in head.history] == [3, 4, 5, 6]
    assert head.history[-1] == last


def test_rounds_draw_nothing_from_the_global_generator():
    x = blobs()
    head = adaptive(x)
    before = torch.get_rng_state()
    head.grow_bases(x)
    assert torch.equal(before, torch.get_rng_state())


def test_other_layers_remember_nothing_of_the_kind():
    head = GatedDomainUnits(2, 2, num_bases=3)
    assert "annealed" not in head.state_dict()
    assert (head.history, head.settled) == ([], True)
    with pytest.raises(ValueError, match=r"3 bases for good; build them with num_bases='adaptive'"):
        head.adapt_bases(blobs())


def test_one_place_leaves_nothing_to_grow():
    with pytest.raises(ValueError, match="grows from 1 to max_bases, got max_bases=1"):
        GatedDomainUnits(2, 2, num_bases="adaptive", max_bases=1)


def test_bad_rows_change_nothing():
    x = blobs()
    head = adaptive(x)
    before = copy.deepcopy(head.state_dict())
    with pytest.raises(ValueError, match="NaN"):
        head.adapt_bases(torch.cat([x, torch.full((1, 2), torch.nan)]))
    assert all(torch.equal(value, head.state_dict()[name]) for name, value in before.items())


def test_the_page_on_choosing_m_says_what_runs(capsys):
    page = Path(__file__).parents[2] / "docs" / "how-to" / "choose-m.md"
    world: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(block, world)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "2 True"
    assert said[1].startswith("1 ")


def test_renewing_keeps_the_bases_that_were_grown_and_continues_their_rounds():
    """Features drift in scale: the same places are used, and the temperature is of the new scale."""
    x = blobs()
    head = adaptive(x).grow_bases(x)
    with torch.no_grad():
        head.active.copy_(head.active.roll(2))  # as after a merge, places in use are not the first
        head.bases.copy_(head.bases.roll(2, 0))
    assert head.num_bases == 3
    places, rounds = head.active.clone(), head.history
    head.renew(20 * x, optimizer=torch.optim.Adam(head.parameters()))
    assert torch.equal(head.active, places)
    assert head.kernel.get_sigma() == pytest.approx(median_sigma(20 * x), rel=1e-5)
    assert head.drift(20 * x) is None
    for before, after in zip(rounds, head.history, strict=True):
        assert after == before._replace(temperature=pytest.approx(400 * before.temperature, rel=1e-4))
    assert head.adapt_bases(20 * x).num_bases == 3
