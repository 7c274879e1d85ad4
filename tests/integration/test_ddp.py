"""Two processes on one machine: gradients of the whole batch, one fit for all, and no rank left waiting."""

from __future__ import annotations

import time

import ddp_workers
import pytest
import torch
import torch.multiprocessing as mp

from gated_domains import GatedDomainUnits

DEADLINE = 120.0


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, list]:
    """What each rank found, by task; the processes are started once for all tests."""
    folder = tmp_path_factory.mktemp("ddp")
    processes = mp.spawn(ddp_workers.work, args=(str(folder),), nprocs=ddp_workers.RANKS, join=False)
    end = time.monotonic() + DEADLINE
    while not processes.join(timeout=1):
        if time.monotonic() > end:
            for process in processes.processes:
                process.kill()
            pytest.fail(f"the processes did not end in {DEADLINE:.0f} seconds")
    ranks = [torch.load(folder / f"rank{rank}.pt") for rank in range(ddp_workers.RANKS)]
    return {task: [rank[task] for rank in ranks] for task in ddp_workers.TASKS}


def assert_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def test_gradients_of_two_processes_are_those_of_one_on_the_whole_batch(found):
    model = ddp_workers.new_model()
    ddp_workers.step(model, *ddp_workers.whole_batch())
    for rank in found["gradients"]:
        for name, parameter in model.named_parameters():
            assert parameter.grad.abs().max() > 0, name
            torch.testing.assert_close(rank["gradients"][name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_a_head_inside_a_wrapped_model_is_recorded_once_a_step(found):
    assert [rank["recorded"] for rank in found["gradients"]] == [1, 1]


def test_replicas_stay_equal_through_training_and_a_refit(found):
    assert_same(*found["trained"])


def test_bases_are_fitted_on_the_rows_of_the_first_rank_and_given_to_all(found):
    alone: GatedDomainUnits = ddp_workers.new_head().fit_bases(ddp_workers.rank_features(0))
    assert_same(*found["fitted"])
    torch.testing.assert_close(found["fitted"][1], dict(alone.state_dict()))


def test_the_number_of_bases_is_that_of_the_first_rank_everywhere(found):
    assert_same(*found["fitted_with_their_number"])
    assert found["fitted_with_their_number"][1]["active"].sum() == 2


def test_adaptive_bases_are_those_of_the_first_rank_everywhere(found):
    assert_same(*found["adapted"])
    assert found["adapted"][1]["active"].sum() == 2
    weight = found["adapted"][1]["experts.weight"]
    torch.testing.assert_close(weight[0], weight[1], rtol=0, atol=0.1)  # one expert until the round before last


def test_sigma_and_coverage_fitted_alone_are_given_to_all_too(found):
    assert_same(*found["refitted_in_part"])


def test_bad_rows_on_the_first_rank_raise_on_every_rank_and_change_none(found):
    first, second = found["failed"]
    assert first["error"] == "ValueError"
    assert "NaN or infinity in 1 of 50 rows" in first["message"]
    assert second["error"] == "RuntimeError"
    assert "fitting failed on rank 0" in second["message"]
    assert first["unchanged"]
    assert second["unchanged"]


def test_processes_go_on_together_after_a_fit_that_failed(found):
    assert [rank["ranks"] for rank in found["failed"]] == [2, 2]


def test_rows_of_other_ranks_are_not_asked_for(found):
    assert_same(*found["failed_elsewhere"])


def test_a_head_inside_a_wrapped_model_is_fitted_alike_everywhere(found):
    assert_same(*found["fitted_inside_a_model"])


def test_the_standardisation_of_a_view_is_the_same_everywhere(found):
    assert_same(*found["fitted_with_a_view"])


def test_bases_are_renewed_when_the_first_rank_finds_it_due(found):
    assert_same(*found["renewed"])
    alone = ddp_workers.new_head().fit_bases(ddp_workers.rank_features(0))
    assert torch.equal(found["renewed"][0]["still"], alone.bases)
    assert found["renewed"][0]["kernel.sigma"] > 5 * alone.kernel.sigma
