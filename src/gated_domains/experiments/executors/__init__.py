"""Grids of runs: one after the other, by worker processes, or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os

from gated_domains.data.errors import DataError, did_you_mean
from gated_domains.data.memory import available_bytes
from gated_domains.experiments.executors.base import RETRIES, Executor, SerialExecutor
from gated_domains.experiments.executors.processes import ProcessExecutor
from gated_domains.experiments.executors.ray import RayExecutor
from gated_domains.experiments.runner import Runner

EXECUTORS = ("local", "ray")
EXECUTOR_OPTIONS = ("executor", "workers", "address", "cpus_per_run", "gpus_per_run", "retries")
_PROCESS = 500 * 2**20  # bytes of a worker beside its data


def choose_executor(
    runner: Runner,
    trainings: int,
    *,
    executor: str = "local",
    workers: int | None = None,
    address: str | None = None,
    cpus_per_run: float | None = None,
    gpus_per_run: float | None = None,
    retries: int = RETRIES,
) -> Executor:
    """The executor of this name for about ``trainings`` trainings; options of other executors are refused.

    ``local`` is one run after the other on a GPU, under torchrun, or with one worker.
    """
    if executor not in EXECUTORS:
        raise DataError(f"there is no executor {executor!r}{did_you_mean(executor, EXECUTORS)}")
    if retries < 0:
        raise DataError(f"retries must be 0 or more, got {retries}")
    if executor == "ray":
        if _world() > 1:
            raise DataError("torchrun and --executor ray do not go together; leave one of them out")
        if workers is not None:
            raise DataError("--workers is for processes on this machine; with Ray, --cpus-per-run says how many fit")
        return RayExecutor(
            runner,
            address=address,
            cpus=1.0 if cpus_per_run is None else cpus_per_run,
            gpus=gpus_per_run,
            retries=retries,
        )
    given = {"--address": address, "--cpus-per-run": cpus_per_run, "--gpus-per-run": gpus_per_run}
    for option, value in given.items():
        if value is not None:
            raise DataError(f"{option} {value} is for a Ray cluster; add --executor ray, or leave it out")
    if workers is not None and workers > 1 and _world() > 1:
        raise DataError(f"torchrun has started {_world()} processes already; leave --workers out")
    count = default_workers(runner, trainings) if workers is None else workers
    if count != 1:
        return ProcessExecutor(runner, workers=count, retries=retries)
    return SerialExecutor(runner)


def default_workers(runner: Runner, trainings: int) -> int:
    """As many as there are cores and trainings, and fit into memory."""
    if runner.device != "cpu" or _world() > 1 or multiprocessing.current_process().daemon:
        return 1
    each = _PROCESS + runner.dataset.inputs.nbytes  # as they are prepared for a model
    return max(1, min(_cores(), trainings, available_bytes() // each))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _world() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


__all__ = ["Executor", "ProcessExecutor", "RayExecutor", "SerialExecutor", "choose_executor"]
