"""Which executor, and how many runs at a time: by what was asked for, the machine and the data."""

from __future__ import annotations

import multiprocessing
import os

import torch

from gated_domains.data.errors import DataError, did_you_mean
from gated_domains.data.memory import available_bytes
from gated_domains.experiments.executors.executor import RETRIES, Executor
from gated_domains.experiments.executors.local import Workers
from gated_domains.experiments.executors.on_ray import RayCluster
from gated_domains.experiments.executors.one_by_one import OneByOne
from gated_domains.experiments.executors.side_by_side import SideBySide
from gated_domains.experiments.executors.workshop import Loading
from gated_domains.experiments.runner import Runner

EXECUTORS = ("local", "ray")
MOST_TOGETHER = 256
"""Heads that are stacked at most; on an H200, 150 together were hardly faster than 50, each by itself."""
SHARING_A_GPU = 4
"""Trainings of bodies that take turns on one GPU."""
_PROCESS = 500 * 2**20  # bytes of a worker beside its data
_BESIDE_OTHERS = 6 * 2**30  # free bytes of a GPU for each training that shares it; one that needs more waits for room


def choose_executor(
    runner: Runner,
    trainings: int,
    *,
    data: Loading | None = None,
    executor: str = "local",
    workers: int | None = None,
    address: str | None = None,
    cpus_per_run: float | None = None,
    gpus_per_run: float | None = None,
    retries: int = RETRIES,
    population: str | int = "auto",
) -> Executor:
    """The executor of this name for about so many trainings; options that are not for it are refused.

    ``local`` is one run after the other under torchrun, or with one worker. ``population`` says how many trainings are
    taken together on one device: "auto" stacks heads on frozen features, and lets several trainings of bodies share a
    GPU where that is faster; "off" takes each alone; a number is the most heads of a stack.
    """
    if executor not in EXECUTORS:
        raise DataError(f"there is no executor {executor!r}{did_you_mean(executor, EXECUTORS)}")
    if retries < 0:
        raise DataError(f"retries must be 0 or more, got {retries}")
    if executor == "ray":
        if _world() > 1:
            raise DataError("torchrun and --executor ray do not go together; leave one of them out")
        together_at_most(population)  # a cluster takes each run alone
        if workers is not None:
            raise DataError("--workers is for processes on this machine; with Ray, --cpus-per-run says how many fit")
        return RayCluster(
            runner,
            data=data,
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
    most = together_at_most(population)
    count = default_workers(runner, trainings) if workers is None else workers
    if count != 1:
        return Workers(runner, workers=count, data=data, retries=retries, population=most)
    if runner.device == "cuda" and workers is None and population == "auto" and _world() == 1:
        sharing = min(SHARING_A_GPU, trainings, torch.cuda.mem_get_info()[0] // _BESIDE_OTHERS)
        if sharing > 1:
            return SideBySide(runner, workers=sharing, population=most)
    return OneByOne(runner, population=most if _world() == 1 else 1)


def together_at_most(population: str | int) -> int:
    """How many heads are stacked at most."""
    if population == "auto":
        return MOST_TOGETHER
    if population == "off":
        return 1
    try:
        most = int(population)
    except ValueError:
        most = 0
    if most < 1:
        raise DataError(f"--population must be auto, off or a number from 1 on, got {population!r}")
    return most


def default_workers(runner: Runner, trainings: int) -> int:
    """As many as there are cores and trainings, and fit into memory, each with data of its own."""
    if runner.device != "cpu" or _world() > 1 or multiprocessing.current_process().daemon:
        return 1
    each = _PROCESS + 2 * runner.dataset.inputs.nbytes  # as they are read, and as they are prepared for a model
    return max(1, min(_cores(), trainings, available_bytes() // each))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _world() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))
