"""A plan: every run once, after those that it needs, with its settings resolved; a network is built once to be run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gated_domains.data.errors import DataError
from gated_domains.experiments.planner import Plan, PlannedRun
from gated_domains.methods import ERM, GDU
from made_runs import recipe, runner, vectors

LEFT_OUT = "leave_one_source_out"


def about(run: PlannedRun) -> tuple[str, int, str | None, str]:
    """What tells the runs of these tests apart."""
    return run.recipe.method.name, run.recipe.seed, run.recipe.validation_domain, run.recipe.selection


def assert_in_order(plan: Plan) -> None:
    """Every run once, by its name, after all that it needs."""
    assert [run.name for run in plan.runs.values()] == list(plan.runs)
    identities = Counter(repr((sorted(run.identity.items()), sorted(run.data.items()))) for run in plan.runs.values())
    assert set(identities.values()) == {1}
    seen: set[str] = set()
    for name, run in plan.runs.items():
        assert set(run.needs) <= seen
        seen.add(name)


def test_heads_ensembles_and_sources_left_out_form_one_graph(tmp_path):
    asked = [
        recipe("linear", selection=LEFT_OUT),
        recipe("ensemble", selection=LEFT_OUT, settings={"members": 2}),
        recipe("gdu", selection=LEFT_OUT, settings={"mode": "fine_tune"}),
        recipe("erm", selection=LEFT_OUT),
    ]
    plan = runner(vectors(), tmp_path).planner.plan(asked)
    assert_in_order(plan)

    def one(method: str, seed: int = 0) -> list[tuple[str, int, str | None, str]]:
        """A training, and those with one source after the other left out that choose its epoch."""
        return [(method, seed, name, "out_of_domain") for name in ("south", "west")] + [(method, seed, None, LEFT_OUT)]

    expected = [*one("erm"), *one("erm", 1000), *one("linear"), *one("gdu"), ("ensemble", 0, None, LEFT_OUT)]
    assert sorted(map(repr, map(about, plan.runs.values()))) == sorted(map(repr, expected))
    linear, ensemble, gdu, erm = (plan.runs[name] for name in plan.asked)
    assert [run.recipe.method.name for run in (linear, ensemble, gdu, erm)] == ["linear", "ensemble", "gdu", "erm"]
    assert linear.parts == gdu.parts == (erm.name,)
    assert [about(plan.runs[name]) for name in ensemble.parts] == [
        ("erm", 0, None, LEFT_OUT),
        ("erm", 1000, None, LEFT_OUT),
    ]
    assert ensemble.selection_runs == ()  # its members are selected
    for run in (linear, gdu, erm):
        chosen_by = [plan.runs[name] for name in run.selection_runs]
        assert [about(other) for other in chosen_by] == one(run.recipe.method.name)[:2]
        for other in chosen_by:  # a head stands on the network that left out the same source
            assert [about(plan.runs[name])[2] for name in other.parts] == [other.recipe.validation_domain] * len(
                run.parts
            )
    assert linear.needs == (*linear.parts, *linear.selection_runs)


def test_what_a_plan_counts_is_what_is_trained(tmp_path):
    maker = runner(vectors(), tmp_path)
    asked = [recipe("linear"), recipe("ensemble", settings={"members": 2})]
    plan = maker.planner.plan(asked)
    todo, done = plan.missing(tmp_path)
    assert ([about(run)[:2] for run in todo], done) == ([("erm", 0), ("linear", 0), ("erm", 1000)], 0)
    maker.run(asked[0])
    todo, done = plan.missing(tmp_path)
    assert ([about(run)[:2] for run in todo], done) == ([("erm", 1000)], 2)


def test_the_same_run_asked_for_twice_is_planned_once(tmp_path):
    written_out = recipe("erm", body="mlp", metric="accuracy")
    plan = runner(vectors(), tmp_path).planner.plan([recipe("erm"), written_out, recipe("erm", seed=1)])
    assert len(plan.runs) == 2
    assert plan.asked[0] == plan.asked[1] != plan.asked[2]


def test_a_run_goes_by_its_name_wherever_it_is_planned(tmp_path):
    """The name in a plan is that of the folder."""
    maker = runner(vectors(), tmp_path)
    plan = maker.planner.plan([recipe("linear")])
    run = maker.run(recipe("linear"))
    assert plan.asked == (run.name,)
    assert {path.name for path in tmp_path.iterdir()} == set(plan.runs)
    assert maker.planner.run(recipe("linear")).name == run.name == maker.folder(recipe("linear")).name


def test_settings_are_resolved_in_a_plan(tmp_path):
    plan = runner(vectors(), tmp_path).planner.plan([recipe("coral", selection="auto", metric="auto")])
    (run,) = plan.runs.values()
    assert (run.recipe.body, run.recipe.metric, run.recipe.selection) == ("mlp", "accuracy", "source_validation")
    assert run.recipe.training.sampling == "groups"
    split = runner(vectors(), tmp_path).planner.split(recipe())
    domains = vectors().domains
    assert domains is not None
    assert run.domain_sizes == tuple(np.unique(domains[split.train], return_counts=True)[1])
    assert 0 < (run.rows_per_domain or 0) <= run.recipe.training.batch_size


def test_what_fails_where_it_is_needed_fails_too(tmp_path):
    maker = runner(vectors(), tmp_path)
    plan = maker.planner.plan([recipe("linear"), recipe("erm", seed=1)])
    linear, other = plan.asked
    assert not plan.failed(linear, tmp_path)
    (needed,) = plan.runs[linear].needs
    with pytest.raises(DataError):
        plan.runs[needed].folder(tmp_path).result()
    plan.runs[needed].folder(tmp_path).path.mkdir()
    plan.runs[needed].folder(tmp_path).write_failure("the loss is NaN")
    assert plan.failed(needed, tmp_path)
    assert plan.failed(linear, tmp_path)
    assert not plan.failed(other, tmp_path)


def test_without_checks_what_cannot_be_trained_is_planned_all_the_same(tmp_path):
    planner = runner(vectors(), tmp_path).planner
    impossible = recipe("erm", training={"augment": "flips"})
    with pytest.raises(DataError, match="augment flips moves images"):
        planner.plan([impossible])
    assert len(planner.plan([impossible], check=False).runs) == 1


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods whose networks are built, by name."""
    found: list[str] = []
    for kind in (ERM, GDU):

        def counted(cls: Any, settings: Any, problem: Any, *, mode: Any, build: Any = kind.build.__func__) -> Any:
            found.append(cls.name)
            return build(cls, settings, problem, mode=mode)

        monkeypatch.setattr(kind, "build", classmethod(counted))
    return found


@pytest.mark.parametrize("method", ["erm", "gdu"])
def test_a_network_is_built_once_to_be_checked_and_once_to_be_trained(tmp_path: Path, built: list[str], method: str):
    maker = runner(vectors(), tmp_path)
    plan = maker.planner.plan([recipe(method, seed=seed) for seed in range(3)])
    assert built == [method]  # before any is trained; seeds make no other network
    built.clear()
    first = plan.runs[plan.asked[0]]
    assert maker.make(first).done
    assert built == [method]
    built.clear()
    assert maker.make(first).done  # found
    assert built == []
