"""The grids behind the figures of the ablations: how many runs, what is in each recipe, what stands on what."""

from __future__ import annotations

from itertools import product

import pytest

from gated_domains.data.errors import DataError
from gated_domains.paper.ablations import setup
from gated_domains.paper.ablations.grids import FIGURES, AblationJob, chosen_figures, counted, plan
from gated_domains.reports.ablations.setting import GATES, PAPER_ORTH, STRONG_ORTH
from gated_domains.runs.recipe import Recipe
from gated_domains.runs.storage import run_hash

FULL = setup.full()
FT, E2E = FULL.fineness.weights["FT"], FULL.fineness.weights["E2E"]


def jobs_of(*figures: str, seeds: int = 1) -> list[AblationJob]:
    return [job for job in plan(FULL, figures, range(seeds)).jobs if isinstance(job, AblationJob)]


def weights(recipe: Recipe) -> tuple[float, float, float]:
    chosen = recipe.method.settings
    return chosen.lambda_ols, chosen.lambda_l1, chosen.lambda_orth  # type: ignore[attr-defined]


@pytest.mark.parametrize(("figure", "place"), [("sparsity", 1), ("orthogonality", 2)])
def test_a_heat_map_has_every_pair_of_weights_for_every_gate_and_the_third_penalty_off(figure: str, place: int) -> None:
    jobs = jobs_of(figure, seeds=3)
    assert len(jobs) == 3 * len(GATES) * (len(FT) ** 2 + len(E2E) ** 2)
    for gate, (mode, values) in product(GATES, {"fine_tune": FT, "end_to_end": E2E}.items()):
        ours = [job.recipe for job in jobs if (job.recipe.method.mode, job.recipe.method.settings.gate) == (mode, gate)]  # type: ignore[attr-defined]
        found = [weights(recipe) for recipe in ours if recipe.seed == 2]
        assert sorted((each[0], each[place]) for each in found) == sorted(product(values, values))
        assert {each[3 - place] for each in found} == {0.0}


def test_the_paper_varies_the_weights_from_zero_to_a_tenth() -> None:
    for values in (FT, E2E):
        assert (min(values), max(values)) == (0.0, 0.1)


def test_what_is_off_in_both_heat_maps_is_one_run() -> None:
    names = {
        figure: {run_hash(job.recipe.plain()) for job in jobs_of(figure)} for figure in ("sparsity", "orthogonality")
    }
    assert len(names["sparsity"] & names["orthogonality"]) == len(GATES) * (len(FT) + len(E2E))


def test_heads_stand_on_the_erm_network_of_their_hold_out_and_seed_and_nothing_else_does() -> None:
    jobs = jobs_of(*FIGURES, seeds=2)
    for job in jobs:
        assert (job.starts_on is not None) == (job.recipe.method.mode == "fine_tune")
        if job.starts_on is not None:
            assert job.starts_on.method.name == "erm"
            assert (job.starts_on.hold_out, job.starts_on.seed) == (job.recipe.hold_out, job.recipe.seed)
    (erm,) = {run_hash(job.starts_on.plain()) for job in jobs if job.starts_on is not None and job.recipe.seed == 1}
    assert erm in {run_hash(job.recipe.plain()) for job in jobs_of("davies-bouldin", seeds=2)}


@pytest.mark.parametrize(("figure", "name"), [("bases", "num_bases"), ("size", "basis_size")])
def test_lines_vary_one_number_alone(figure: str, name: str) -> None:
    chosen = FULL.fineness.bases if figure == "bases" else FULL.fineness.sizes
    for gate, mode in product(GATES, ("FT", "E2E")):
        cells = [job for job in jobs_of(figure) if (job.setting.gate, job.setting.mode) == (gate, mode)]
        fields = [job.recipe.method.settings.model_dump() for job in cells]
        assert tuple(each.pop(name) for each in fields) == chosen[mode]  # type: ignore[index]
        assert all(each == fields[0] for each in fields)
    ours = [job.recipe for job in jobs_of(figure) if job.setting.method == "gdu"]
    assert tuple(getattr(recipe.method.settings, name) for recipe in ours) == chosen["E2E"]
    assert all(recipe.training.schedule == "cosine" for recipe in ours)


def test_the_layer_is_the_papers_at_its_own_size_where_nothing_is_varied() -> None:
    (job,) = jobs_of("domains")
    chosen = job.recipe.method
    assert (chosen.name, chosen.mode, chosen.settings.gate) == ("gdu-paper", "fine_tune", "mmd")  # type: ignore[attr-defined]
    assert (chosen.settings.num_bases, chosen.settings.basis_size) == (10, 10)  # type: ignore[attr-defined]
    assert weights(job.recipe) == (None, None, None)


def test_srip_is_of_runs_that_differ_in_the_weight_of_orthogonality_alone() -> None:
    for mode in ("fine_tune", "end_to_end"):
        recipes = [job.recipe for job in jobs_of("srip") if job.recipe.method.mode == mode]
        assert [weights(recipe)[2] for recipe in recipes] == [0.0, PAPER_ORTH, STRONG_ORTH]
        assert {weights(recipe)[:2] for recipe in recipes} == {(0.001, 0.0)}
        assert {recipe.method.settings.gate for recipe in recipes} == {"projection"}  # type: ignore[attr-defined]


def test_features_are_of_another_hold_out() -> None:
    assert {(job.recipe.hold_out, job.recipe.method.name) for job in jobs_of("features")} == {
        ("syn", "erm"),
        ("syn", "gdu-paper"),
    }
    others = jobs_of(*(name for name in FIGURES if name != "features"))
    assert {job.recipe.hold_out for job in others} == {"mnistm"}


def test_all_trainings_are_counted_once_with_the_networks_that_heads_stand_on() -> None:
    assert counted(plan(FULL, ["domains"], range(3))) == "6 trainings: 3 networks, 3 heads on frozen features"
    assert counted(plan(FULL, ["domains", "davies-bouldin", "domains"], range(3))).startswith("6 trainings")
    everything = counted(plan(FULL, list(FIGURES), range(1)))
    jobs = jobs_of(*FIGURES)
    assert everything.startswith(f"{len({run_hash(job.recipe.plain()) for job in jobs}):,} trainings")


def test_epochs_are_a_cap_and_quick_needs_no_data() -> None:
    assert setup.full(epochs=5).epochs == {"FT": 5, "E2E": 5}
    assert setup.full(epochs=99).epochs == FULL.epochs
    quick = setup.quick()
    assert (quick.data.what, quick.target, quick.second, quick.body) == ("digits", "blended", "numbers", "small")
    assert quick.about.startswith("QUICK")
    assert setup.full(small=True).about.startswith("SMALL")
    assert FULL.seeds >= 3


def test_figures_on_the_command_line_keep_the_order_and_others_are_refused_with_the_nearest() -> None:
    assert chosen_figures("srip, bases") == ["bases", "srip"]
    assert chosen_figures(None) == list(FIGURES)
    with pytest.raises(DataError, match=r"--figure: there is no 'sprip'.*srip"):
        chosen_figures("sprip")
    with pytest.raises(DataError, match="--figure names nothing"):
        chosen_figures(",")
