"""The rows of the table of Digits-5: how each is made, what stands on what, on which data."""

from __future__ import annotations

from pathlib import Path

import pytest

from gated_domains.data.digits import DOMAINS as EMBEDDED
from gated_domains.data.digits5 import DOMAINS
from gated_domains.data.errors import DataError
from gated_domains.paper import digits
from gated_domains.paper.grid import Job
from gated_domains.reports.published_digits import ROWS
from gated_domains.runs.storage import run_hash

FULL = digits.full()
OUR_EPOCHS = int(digits.OURS["epochs"])


def one(row: str) -> Job:
    (job,) = digits.plan(FULL, [row], ["svhn"], [3]).jobs
    return job


def test_every_row_has_a_recipe_in_the_order_of_the_table() -> None:
    assert list(digits.RECIPES) == list(ROWS)


def test_the_grid_is_every_row_on_every_target_with_every_seed_a_target_at_a_time() -> None:
    jobs = digits.plan(FULL, list(ROWS), list(DOMAINS), range(10)).jobs
    assert len(jobs) == 17 * 5 * 10
    assert [job.column for job in jobs[:: 17 * 10]] == list(DOMAINS)
    assert {job.recipe.seed for job in jobs} == set(range(10))
    assert all(job.recipe.hold_out == job.column for job in jobs)
    assert {job.data[0] for job in jobs} == {"digits5"}


@pytest.mark.parametrize("row", [row for row, about in ROWS.items() if about.block == "paper"])
def test_the_papers_rows_are_trained_as_the_paper_says(row: str) -> None:
    recipe = one(row).recipe
    training = recipe.training
    assert (training.optimizer, training.rate, training.schedule) == ("adam", 1e-3, "constant")
    assert (training.batch_size, training.epochs, training.patience) == (512, 250, 10)
    assert (recipe.body, recipe.selection) == ("digits", "source_pooled")
    assert (training.ema, training.mixstyle, training.weight_decay) == (None, None, 0.0)


def test_the_papers_layer_has_ten_bases_and_its_ensemble_ten_tanh_heads() -> None:
    for gate in ("cosine", "mmd", "projection"):
        for kind, mode in (("ft", "fine_tune"), ("e2e", "end_to_end")):
            method = one(f"{kind}_{gate}").recipe.method
            assert (method.name, method.mode) == ("gdu-paper", mode)
            assert method.settings.model_dump() == {
                "gate": gate,
                "setting": "digits",
                "num_bases": 10,
                "basis_size": 10,
                "lambda_ols": None,
                "lambda_l1": None,
                "lambda_orth": None,
            }
    assert one("erm_ensemble").recipe.method.settings.model_dump() == {"heads": 10, "activation": "tanh"}
    assert one("erm").recipe.method.settings.model_dump() == {"activation": "tanh"}


def test_heads_stand_on_the_erm_row_of_their_own_block_target_and_seed() -> None:
    for row in ("ft_cosine", "ft_mmd", "ft_projection", "linear_tanh"):
        assert one(row).starts_on == one("erm").recipe
    assert one("linear").starts_on == one("erm_linear").recipe
    started = [row for row in ROWS if one(row).starts_on is not None]
    assert started == ["ft_cosine", "ft_mmd", "ft_projection", "linear", "linear_tanh"]


def test_the_control_of_fine_tuned_heads_is_trained_like_them() -> None:
    control, tuned = one("linear_tanh").recipe, one("ft_mmd").recipe
    assert control.training == tuned.training
    assert (control.method.name, control.method.settings.activation) == ("linear", "tanh")


def test_our_rows_and_their_controls_differ_in_the_method_or_one_switch_alone() -> None:
    ours = one("gdu").recipe.training
    assert (ours.optimizer, ours.schedule, ours.epochs, ours.patience) == ("adamw", "cosine", OUR_EPOCHS, None)
    assert one("erm_linear").recipe.training == one("ensemble").recipe.training == ours
    assert one("erm_linear").recipe.method.settings.activation == "none"
    switched = ours.model_copy(update={"mixstyle": 0.5, "ema": 0.999})
    assert one("gdu_mixstyle_ema").recipe.training == one("erm_mixstyle_ema").recipe.training == switched
    assert one("erm_mixstyle").recipe.training == ours.model_copy(update={"mixstyle": 0.5})
    assert one("erm_ema").recipe.training == ours.model_copy(update={"ema": 0.999})
    assert one("ensemble").recipe.method.settings.members == 2


def test_no_two_rows_are_the_same_run() -> None:
    assert len({run_hash(one(row).recipe.identity()) for row in ROWS}) == len(ROWS)


def test_epochs_are_a_cap_and_never_lengthen_a_row() -> None:
    for most in (OUR_EPOCHS - 1, OUR_EPOCHS + 1):
        capped = digits.full(epochs=most)
        found = [capped.recipe(row, "syn", 0).training.epochs for row in ("erm", "gdu")]
        assert found == [most, min(most, OUR_EPOCHS)]


def test_on_small_data_the_papers_numbers_do_not_stand_beside_ours() -> None:
    assert FULL.published
    assert not FULL.about
    small = digits.full(small=True)
    assert (small.data, small.body, small.published) == ("digits5-small", "digits", False)
    assert small.about.startswith("SMALL")


def test_quick_takes_small_data_where_they_are_and_those_of_the_package_elsewhere(tmp_path: Path) -> None:
    there = tmp_path / "digits5-small"
    there.mkdir()
    without = digits.quick(tmp_path)
    assert (without.data, without.usual) == ("digits", EMBEDDED[:2])
    for domain in DOMAINS:
        (there / f"{domain}.npz").touch()
    found = digits.quick(tmp_path)
    assert (found.data, found.usual, found.body, found.seeds) == ("digits5-small", ("mnistm", "usps"), "small", 1)
    assert found.about.startswith("QUICK")
    (there / "syn.npz").unlink()  # it is rendered
    assert digits.quick(tmp_path).data == "digits5-small"


def test_one_epoch_is_said_in_the_singular(tmp_path: Path) -> None:
    assert "at most 1 epoch, batches" in digits.quick(tmp_path, epochs=1).about
    assert "at most 2 epochs, batches" in digits.quick(tmp_path, epochs=2).about
    for said in digits.full(epochs=1).how()[:2]:
        assert "up to 1 epoch" in said
        assert "1 epochs" not in said


def test_names_on_the_command_line_keep_the_order_and_others_are_refused_with_the_nearest() -> None:
    assert digits.chosen_rows("gdu, erm") == ["erm", "gdu"]
    assert digits.chosen_rows(None) == list(ROWS)
    assert digits.chosen_targets("usps,mnist", FULL) == ["mnist", "usps"]
    assert digits.chosen_targets(None, FULL) == list(DOMAINS)
    with pytest.raises(DataError, match=r"--methods: there is no 'ft_cosin'.*ft_cosine"):
        digits.chosen_rows("ft_cosin")
    with pytest.raises(DataError, match=r"--targets: there is no 'mnist-m'.*mnistm"):
        digits.chosen_targets("mnist-m", FULL)
    with pytest.raises(DataError, match="--targets names nothing"):
        digits.chosen_targets(",", FULL)


def test_the_caption_says_how_rows_are_trained() -> None:
    paper, ours, data = digits.full(epochs=30).how()
    assert "adam at 0.001 (constant), batches of 512, up to 30 epochs, patience 10;" in paper
    assert f"adamw at 0.001 (cosine), batches of 512, up to {OUR_EPOCHS} epochs" in ours
    assert "digits5" in data
