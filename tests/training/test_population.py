"""Populations: stepped together, every member ends as it does alone, and stays a training like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gated_domains.data.errors import DataError
from gated_domains.evaluation.selection import SelectionRule
from gated_domains.training.loop import Training
from gated_domains.training.outcome import Keeping
from gated_domains.training.population import Population, why_alone
from gated_domains.training.trouble import NotFiniteError
from made_heads import HEADS, heads
from small_trainings import Records, build, material, training, vectors, weights

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

#: Members that differ in all that members may differ in.
UNLIKE: list[dict[str, Any]] = [
    {"rate": 1e-2},
    {"rate": 3e-3, "weight_decay": 0.1},
    {"rate": 1e-2, "body": 1},
    {"rate": 2e-2, "body": 1, "seed": 7},
]

SLOW = pytest.mark.slow


def apart(one: Training, other: Training) -> float:
    """The largest difference of weights, relative to the largest of each tensor."""
    gaps = [
        float((own - others).abs().max() / own.abs().max().clamp_min(1e-6))
        for (_, own), others in zip(weights(one.method).items(), weights(other.method).values(), strict=True)
        if own.is_floating_point()
    ]
    return max(gaps)


class Steps:
    """The weights of a member after every step."""

    def __init__(self) -> None:
        self.member: Training | None = None
        self.taken: list[dict[str, torch.Tensor]] = []

    def stepped(self, step: int, steps: int) -> None:
        assert self.member is not None
        self.taken.append(weights(self.member.method))

    def epoch_ended(self, record: dict[str, Any]) -> None:
        pass


def film(
    head: str, each: list[dict[str, Any]], *, together: bool, device: str = "cpu"
) -> list[list[dict[str, torch.Tensor]]]:
    watchers = [Steps() for _ in each]
    given = [{**own, "watcher": watcher} for own, watcher in zip(each, watchers, strict=True)]
    with heads(head, given, device=device) as members:
        for watcher, member in zip(watchers, members, strict=True):
            watcher.member = member
        if together:
            Population(members).run()
        else:
            for member in members:
                member.run()
    return [watcher.taken for watcher in watchers]


# -- the same as one by one --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "gap"), [("32", 1e-5), pytest.param("64", 1e-10, marks=SLOW)])
@pytest.mark.parametrize("head", HEADS)
def test_every_member_takes_the_steps_that_it_takes_alone(head, precision, gap):
    each = [{**own, "epochs": 4, "precision": precision} for own in UNLIKE]
    alone, together = (film(head, each, together=way) for way in (False, True))
    for one, other in zip(alone, together, strict=True):
        assert len(one) == len(other) == 20
        for before, now in zip(one, other, strict=True):
            for name, value in before.items():
                torch.testing.assert_close(now[name], value, rtol=gap, atol=gap)
        moved = [float((one[-1][name].double() - value.double()).abs().max()) for name, value in one[0].items()]
        assert max(moved) > 1e-3


@needs_gpu
@pytest.mark.parametrize("head", HEADS)
def test_on_a_gpu_every_member_takes_the_steps_that_it_takes_alone(head):
    each = [{**own, "epochs": 4} for own in UNLIKE]
    alone, together = (film(head, each, together=way, device="cuda") for way in (False, True))
    for one, other in zip(alone, together, strict=True):
        assert len(one) == len(other) == 20
        for before, now in zip(one, other, strict=True):
            for name, value in before.items():
                assert value.is_cuda
                torch.testing.assert_close(now[name], value, rtol=1e-4, atol=1e-4)
        assert (
            max(float((one[-1][name].double() - value.double()).abs().max()) for name, value in one[0].items()) > 1e-3
        )


@pytest.mark.parametrize("head", [pytest.param("paper cosine", marks=SLOW), "recommended", "linear"])
def test_whole_trainings_have_the_same_records_and_keep_the_same_epoch(head):
    each = [{**own, "epochs": 8, "rate": 1e-2} for own in UNLIKE]
    found = []
    for way in (False, True):
        journals = [Records() for _ in each]
        with heads(head, [{**own, "journal": own_j} for own, own_j in zip(each, journals, strict=True)]) as members:
            outcomes = Population(members).run() if way else [member.run() for member in members]
            found.append((outcomes, journals, [weights(member.method) for member in members]))
    (alone, told_alone, kept_alone), (together, told, kept) = found
    assert [end.best_epoch for end in together] == [end.best_epoch for end in alone]
    assert [end.epochs for end in together] == [8] * len(each)
    for one, other in zip(told_alone, told, strict=True):
        for before, now in zip(one.timeless(), other.timeless(), strict=True):
            assert now["step"] == before["step"]
            assert now["train"] == pytest.approx(before["train"], rel=1e-5)
            assert now["validation"] == before["validation"]
            assert now["measures"] == pytest.approx(before["measures"], rel=1e-4)
            assert now["rate"] == pytest.approx(before["rate"])
    for one, other in zip(kept_alone, kept, strict=True):
        for name, value in one.items():
            torch.testing.assert_close(other[name], value, rtol=1e-5, atol=1e-5)


def test_members_weigh_penalties_each_in_its_own_way():
    each = [{"settings": {"lambda_ols": weight, "lambda_orth": 10 * weight}} for weight in (1e-3, 0.1, 1.0)]
    with heads("all penalties", each) as alone, heads("all penalties", each) as together:
        for member in alone:
            member.run()
        Population(together).run()
        assert max(apart(*pair) for pair in zip(alone, together, strict=True)) < 1e-5
        assert apart(alone[0], alone[2]) > 1e-3


@pytest.mark.parametrize("schedule", ["plateau", "step", "cosine"])
def test_schedules_of_members_are_their_own(schedule):
    each = [{"schedule": schedule, "rate": rate, "epochs": 6, "drop_after": 1, "decay": 0.5} for rate in (1e-2, 0.1)]
    with heads("linear", each) as alone, heads("linear", each) as together:
        for member in alone:
            member.run()
        Population(together).run()
        assert max(apart(*pair) for pair in zip(alone, together, strict=True)) < 1e-5
        assert [m.place.drops for m in alone] == [m.place.drops for m in together]


def test_averages_of_weights_are_each_members_own():
    each = [{**own, "ema": 0.9} for own in UNLIKE]
    with heads("recommended", each) as alone, heads("recommended", each) as together:
        for member in alone:
            member.run()
        Population(together).run()
        for one, other in zip(alone, together, strict=True):
            assert apart(one, other) < 1e-5
            assert one.ema.count == other.ema.count == one.steps
            for name, average in one.ema.averages.items():
                torch.testing.assert_close(other.ema.averages[name], average, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("head", [pytest.param("paper cosine", marks=SLOW), "recommended"])
def test_half_precision_is_that_of_one_by_one(head):
    each = [{**own, "precision": "bf16"} for own in UNLIKE]
    with heads(head, each) as alone, heads(head, each) as together:
        for member in alone:
            member.run()
        Population(together).run()
        assert max(apart(*pair) for pair in zip(alone, together, strict=True)) < 0.02


def test_epochs_of_different_lengths_go_side_by_side():
    """Members on other rows have other numbers of steps an epoch."""
    found = []
    for way in (False, True):
        with heads("linear", [{"epochs": 3}], rows=240) as some, heads("linear", [{"epochs": 4}], rows=330) as others:
            members = [*some, *others]
            assert len({len(member.sampler) for member in members}) == 2
            if way:
                Population(members).run()
            else:
                for member in members:
                    member.run()
            found.append([weights(member.method) for member in members])
    for one, other in zip(*found, strict=True):
        for name, value in one.items():
            torch.testing.assert_close(other[name], value, rtol=1e-5, atol=1e-6)


# -- members that leave ------------------------------------------------------------------------------------------------


def stops_after(best: int) -> SelectionRule:
    return SelectionRule(name="made", words="made", number=lambda evidence: -float(abs(evidence.epoch - best)))


def test_members_stop_early_each_when_its_patience_ends_and_keep_their_best():
    bests = [0, 5, 1, 0, 3]
    each = [{"rule": stops_after(best), "patience": 2, "schedule": "constant", "epochs": 9} for best in bests]
    with heads("paper cosine", each) as alone, heads("paper cosine", each) as together:
        ends_alone = [member.run() for member in alone]
        ends = Population(together).run()
        assert [end.best_epoch for end in ends] == bests
        assert [end.epochs for end in ends] == [end.epochs for end in ends_alone] == [best + 3 for best in bests]
        assert {end.stopped for end in ends} == {"early"}
        assert max(apart(*pair) for pair in zip(alone, together, strict=True)) < 1e-5


def test_one_whose_loss_is_no_number_fails_alone_after_the_others_are_done():
    each = [{"rate": 1e-2}, {"rate": 1e30, "weight_decay": 1.0}, {"rate": 3e-3}]
    with heads("linear", each) as alone, heads("linear", each) as together:
        with pytest.raises(NotFiniteError) as broken:
            alone[1].run()
        ends = Population(together).ends()
        assert isinstance(ends[1], NotFiniteError)
        assert "learning rate 1e+30" in str(ends[1])
        assert str(ends[1]).partition(" at step")[2][:3] == str(broken.value).partition(" at step")[2][:3]
        for row in (0, 2):
            alone[row].run()
            assert ends[row].epochs == 3
            assert apart(alone[row], together[row]) < 1e-5


def test_the_error_of_a_broken_member_is_raised_in_the_end():
    with heads("linear", [{}, {"rate": 1e30, "weight_decay": 1.0}]) as members:
        with pytest.raises(NotFiniteError):
            Population(members).run()
        assert members[0].over


# -- cut and gone on with ----------------------------------------------------------------------------------------------


class Cut:
    """Ends everything after so many steps."""

    def __init__(self, after: int) -> None:
        self.after = after

    def stepped(self, step: int, steps: int) -> None:
        if step == self.after:
            raise KeyboardInterrupt

    def epoch_ended(self, record: dict[str, Any]) -> None:
        pass


@pytest.mark.parametrize(
    ("begins", "goes_on", "after"),
    [
        pytest.param("together", "together", 3, marks=SLOW),
        pytest.param("together", "together", 5, marks=SLOW),
        pytest.param("together", "together", 8, marks=SLOW),
        pytest.param("together", "alone", 8, marks=SLOW),
        ("alone", "together", 8),
    ],
    ids=["in_the_first_epoch", "at_the_end_of_an_epoch", "in_the_second_epoch", "then_alone", "alone_then_together"],
)
def test_cut_anywhere_it_goes_on_together_or_alone_as_if_never_cut(begins, goes_on, after, tmp_path):
    def each(watched: bool) -> list[dict[str, Any]]:
        return [
            {
                **own,
                "ema": 0.9,
                "keeping": Keeping(folder=tmp_path / str(number), seconds=0.0),
                **({"watcher": Cut(after)} if watched and (number == 0 or begins == "alone") else {}),
            }
            for number, own in enumerate(UNLIKE)
        ]

    def go(members: list[Training], way: str) -> None:
        if way == "together":
            Population(members).run()
        else:
            for member in members:
                member.run()

    with heads("recommended", each(watched=True)) as members:
        for part in [members] if begins == "together" else [[member] for member in members]:
            with pytest.raises(KeyboardInterrupt):
                go(part, begins)
    plain = [{**own, "ema": 0.9} for own in UNLIKE]
    with heads("recommended", each(watched=False)) as members, heads("recommended", plain) as never:
        go(members, goes_on)
        go(never, "alone")
        for one, other in zip(never, members, strict=True):
            assert other.place.step == one.place.step == 15
            assert apart(one, other) < 1e-5


def test_members_that_were_cut_at_different_places_go_on_together(tmp_path):
    keeping = [Keeping(folder=tmp_path / str(number), seconds=0.0) for number in range(3)]
    with heads("paper cosine", [{"keeping": keeping[n], "watcher": Cut(4 + 3 * n)} for n in range(3)]) as members:
        for member in members:
            with pytest.raises(KeyboardInterrupt):
                member.run()
    with heads("paper cosine", [{"keeping": own} for own in keeping]) as members:
        Population(members).run()
        with heads("paper cosine", [{}] * 3) as never:
            for one, other in zip(never, members, strict=True):
                one.run()
                assert apart(one, other) < 1e-5


def test_the_time_of_a_population_is_shared_among_its_members():
    with heads("linear", [{"epochs": 2}] * 4) as members:
        ends = Population(members).run()
    assert all(end.seconds > 0 for end in ends)
    assert max(end.seconds for end in ends) < 3 * min(end.seconds for end in ends)


# -- storage -----------------------------------------------------------------------------------------------------------


def test_members_that_are_done_share_no_memory():
    with heads("recommended", [{"ema": 0.9}] * 3) as members:
        Population(members).run()
        held = [t for m in members for t in (*m.method.parameters(), *m.method.buffers(), *m.ema.averages.values())]
        held += [v for m in members for state in m.optimizer.state.values() for v in state.values()]
        places = [tensor.untyped_storage().data_ptr() for tensor in held]
        assert len(set(places)) == len(places)


# -- what cannot be stepped together -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"swad": True}, "averaged over a valley"),
        ({"accumulate": 2}, "cut into parts"),
        ({"optimizer": "sgd"}, "sgd"),
        ({"sampling": "balanced"}, "not drawn plainly"),
        ({"mixstyle": 0.5}, "styles are mixed"),
    ],
)
def test_what_a_stack_cannot_do_is_refused(given, reason):
    with heads("linear", [given]) as members:
        assert reason in why_alone(members[0])
        with pytest.raises(DataError, match=reason):
            Population(members)


def test_a_body_that_is_trained_is_refused():
    data = material(vectors())
    member = training(build("erm", data.dataset), data)
    with pytest.raises(DataError, match="its body is trained too"):
        Population([member])


@pytest.mark.parametrize(
    ("odd", "what"),
    [
        ({"settings": {"num_bases": 4}}, "shape of weights"),
        ({"settings": {"gate": "mmd"}}, "make-up"),
        ({"batch_size": 16}, "batch size"),
        ({"precision": "64"}, "shape of weights"),
        ({"ema": 0.9}, "setting ema"),
        ({"optimizer": "adam"}, "setting optimizer"),
    ],
)
def test_members_of_different_kinds_are_refused_with_what_tells_them_apart(odd, what):
    with heads("paper cosine", [{}, odd]) as members, pytest.raises(DataError, match=what):
        Population(members)


def test_a_population_of_nobody_has_no_ends():
    assert Population([]).run() == []


def test_rows_of_one_member_are_never_read_for_another(tmp_path: Path):
    """Tables of different bodies, of which one is spoilt outside the other's training rows."""
    with heads("linear", [{"body": 0}, {"body": 1}]) as members:
        spoilt = members[1].material.samples.values.clone()
        spoilt[np.setdiff1d(np.arange(len(spoilt)), members[1].material.train)[-5:]] = torch.nan
        members[1].material.samples.values = spoilt
        Population(members).run()
        with heads("linear", [{"body": 0}]) as alone:
            alone[0].run()
            assert apart(alone[0], members[0]) < 1e-5
