"""The same grid on a Ray cluster: every run a task, sent when what it needs is done. All that knows Ray is here."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from gated_domains.data.errors import DataError, first_line, written_whole
from gated_domains.experiments.executors.base import POLL_SECONDS, RETRIES, AsyncExecutor, RunQueue
from gated_domains.experiments.executors.worker import Outcome, Refused, WorkerSpec, attempt, settle, use_threads
from gated_domains.experiments.planner import PlannedRun
from gated_domains.experiments.runner import Runner
from gated_domains.experiments.source_data import SourceData
from gated_domains.training.callbacks.base import ProgressCallback


class RayExecutor(AsyncExecutor):
    """Makes runs on the cluster at ``address``; without one, on one that is started here and ends with it.

    A run gets ``cpus`` and ``gpus`` of a machine, and as many threads as CPUs. One whose process or machine is lost is
    tried again ``retries`` times. All machines must see the folder of the runs; the data are sent to each machine once.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        address: str | None = None,
        cpus: float = 1.0,
        gpus: float | None = None,
        retries: int = RETRIES,
    ) -> None:
        self.ray = _ray()
        self.runner, self.address, self.retries = runner, address, retries
        self.share = {"CPU": cpus, "GPU": float(runner.device == "cuda") if gpus is None else gpus}
        if cpus <= 0 or self.share["GPU"] < 0:
            raise DataError(f"a run needs a share of CPUs, and GPUs are 0 or more; got {cpus:g} and {gpus}")
        hardware = replace(runner.hardware, device="cuda" if self.share["GPU"] else "cpu")
        self.spec = WorkerSpec.of(runner, hardware=hardware)
        self._ours = False
        self._sent: dict[Any, PlannedRun] = {}
        self._token = self.spec.root / f".ray-{secrets.token_hex(8)}"

    def __enter__(self) -> RayExecutor:
        if not self.ray.is_initialized():
            self._connect()
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        self.workers = max(1, sum(_fit(self.share, node) for node in nodes))
        if self.address is None and not any(_fit(self.share, node) for node in nodes):
            self.close()
            asked = f"{self.share['CPU']:g} CPUs and {self.share['GPU']:g} GPUs"
            raise DataError(f"a run is to have {asked}, and this machine has less; ask for less")
        with written_whole(self._token) as draft:
            draft.write_text(self._token.name)
        # One reference for all tasks: the data are sent to each machine once.
        data = self.runner.data
        self._data = self.ray.put((data.dataset, data.digests, data.fingerprint))
        self._task = self.ray.remote(
            num_cpus=self.share["CPU"], num_gpus=self.share["GPU"], max_retries=0, retry_exceptions=False
        )(_task)
        return self

    def _connect(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
        if self.address is not None:
            _refuse_nobody(self.address)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        alone = {"address": "local", "include_dashboard": False}
        try:
            self.ray.init(**quiet, **(alone if self.address is None else {"address": self.address}))
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = "here" if self.address is None else f"at {self.address}"
            raise DataError(f"no Ray cluster can be used {where}: {first_line(error)}") from error
        self._ours = True

    def _under_way(self) -> Iterable[PlannedRun]:
        return list(self._sent.values())

    def _hand_out(self, queue: RunQueue) -> None:
        for run in queue.ready:
            self._sent[self._task.remote(self.spec, self._data, str(self._token), self.share["CPU"], run)] = run
            queue.begin(run)

    def _stop(self) -> None:
        for task in self._sent:
            self.ray.cancel(task, force=True)
        self._sent.clear()

    def _receive(self, queue: RunQueue, callback: ProgressCallback) -> None:
        """Wait until some are through, or it is time to look again at what others do."""
        if not self._sent:
            time.sleep(POLL_SECONDS)
            return
        through, _ = self.ray.wait(list(self._sent), num_returns=1, timeout=POLL_SECONDS if queue.busy else None)
        for task in through:
            run = self._sent.pop(task)
            try:
                outcome: Outcome = self.ray.get(task)
            except self.ray.exceptions.RayTaskError:
                raise
            except self.ray.exceptions.RayError as error:
                why = f"was lost ({first_line(error).partition('. ')[0]})"
                queue.lose(run, why, retries=self.retries)
                callback.on_run_lost(run.recipe, why)
            else:
                settle(outcome, run, queue, callback)

    def close(self) -> None:
        self._stop()
        self._token.unlink(missing_ok=True)
        if self._ours:
            self.ray.shutdown()
            self._ours = False


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError as error:
        raise DataError("Ray is not installed; pip install 'gated-domains[ray]', or leave --executor out") from error


def _refuse_nobody(address: str) -> None:
    """Refuse an address at which nobody listens; Ray would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return  # ``auto``
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise DataError(f"no Ray cluster can be used at {address}: {first_line(error)}") from error


def _fit(share: Mapping[str, float], there: Mapping[str, float]) -> int:
    """How many such shares a machine has at a time."""
    return min(int(there.get(kind, 0) // wanted) for kind, wanted in share.items() if wanted)


# In a process of the cluster, which may serve many tasks and keeps the data of the last.

_kept: list[tuple[str, Runner]] = []


def _task(spec: WorkerSpec, data: Any, token: str, cpus: float, run: PlannedRun) -> Outcome:
    """Make one run, in a process of the cluster."""
    if not Path(token).is_file():
        return Refused(
            DataError(
                f"{spec.root} on {socket.gethostname()} is not the folder that it is where the runs were started; "
                "all machines of the cluster must see the same: choose --out on a disk that they share"
            )
        )
    use_threads(max(1, int(cpus)))
    return attempt(lambda: _runner(spec, data, token), run, lambda event: None)


def _runner(spec: WorkerSpec, data: Any, token: str) -> Runner:
    if not _kept or _kept[0][0] != token:
        _kept.clear()  # before others are loaded: they may not fit beside each other
        _kept.append((token, spec.build_runner(SourceData(data[0], digests=data[1], known=data[2]))))
    return _kept[0][1]
