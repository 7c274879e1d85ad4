"""Several runs at a time in this process, which take turns: for a GPU that one training does not fill."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from gated_domains.backbones.bodies import BODIES
from gated_domains.data.errors import DataError
from gated_domains.experiments.executors.executor import LOOK_AGAIN, Elsewhere, GridWatcher
from gated_domains.experiments.executors.plan import Bundle, Plan, Work
from gated_domains.experiments.executors.telling import (
    Busy,
    Ended,
    Event,
    Outcome,
    Refused,
    Relay,
    attempt_together,
    settle,
    settle_together,
)
from gated_domains.experiments.recipe import resolved
from gated_domains.experiments.run_folder import RunFolder
from gated_domains.experiments.runner import Runner
from gated_domains.training.side_by_side import Turns, take_turns
from gated_domains.utils.locks import BusyError

_WRITERS = 2  # threads that score and write what was trained


class SideBySide(Elsewhere):
    """Makes ``workers`` runs at a time, each with a CUDA stream and random numbers of its own.

    Up to ``population`` heads on frozen features are trained together, when nothing else is under way.
    """

    def __init__(self, runner: Runner, *, workers: int, population: int = 1) -> None:
        if workers < 1:
            raise DataError(f"there must be at least one training at a time, got {workers}")
        self.runner, self.workers, self.population = runner, workers, population
        self._before = (runner.checkpoint_seconds, torch.get_num_threads())
        runner.checkpoint_seconds *= workers  # each has its part of the time between two
        self._next: Bundle = ()
        self.device = torch.device(runner.device)
        on_gpu = self.device.type == "cuda"
        self._streams = [torch.cuda.Stream(self.device) if on_gpu else None for _ in range(workers)]
        self._team: list[_Member] = []
        self._watcher: GridWatcher | None = None

    def close(self) -> None:
        for member in self._team:
            member.turns.end()
        self._team.clear()
        if self.runner.writing is not None:
            self.runner.writing.shutdown()
            self.runner.writing = None
        self.runner.checkpoint_seconds, threads = self._before
        torch.set_num_threads(threads)

    def _stop(self) -> None:
        self.close()

    def _under_way(self) -> Iterable[Work]:
        return [member.work for member in self._team]

    def _hand_out(self, plan: Plan) -> None:
        bundles = plan.bundles(self.population)
        alone = [bundle[0] for bundle in bundles if len(bundle) == 1]
        if not self._team and not alone and bundles:
            self._next = bundles[0]
            for work in self._next:
                plan.begin(work)
        for work in alone:
            if not self._has_room_for(work):
                break
            plan.begin(work)
            self.runner.lay_out(work.recipe)
            self.runner.writing = self.runner.writing or ThreadPoolExecutor(_WRITERS)
            number = min(set(range(self.workers)) - {member.number for member in self._team})
            relay = Relay(lambda event, number=number: self._tell(event, number))  # type: ignore[misc]
            turns = Turns(self.runner.making(work.recipe, watcher=relay), self.device, self._streams[number])
            self._team.append(_Member(work, number, turns, relay))

    def _has_room_for(self, work: Work) -> bool:
        """Whether another may be begun. A large body fills a GPU, and its memory, by itself."""
        fills = [BODIES[resolved(each.recipe, self.runner.dataset).body].large for each in (work, *self._under_way())]
        return len(self._team) < (1 if any(fills) else self.workers)

    def _hear(self, plan: Plan, watcher: GridWatcher | None) -> None:
        self._watcher = watcher
        if self._next:
            bundle, self._next = self._next, ()
            before = self.runner.watcher
            outcomes = attempt_together(lambda: self.runner, bundle, lambda event: self._tell(event, 0))
            self.runner.watcher = before
            settle_together(outcomes, bundle, plan, watcher)
            return
        if not self._team:
            time.sleep(LOOK_AGAIN)
            return
        member, outcome = self._next_end()
        self._team.remove(member)
        if outcome is None:
            self._make_room(member, plan)
            return
        settle(outcome, member.work, plan, watcher, worker=member.number)

    def _make_room(self, member: _Member, plan: Plan) -> None:
        """Begin a training again later, with fewer beside it: the memory of the GPU was too small for so many."""
        self.workers = max(1, len(self._team))
        plan.take_back(member.work)
        del member
        gc.collect()
        torch.cuda.empty_cache()

    def _next_end(self) -> tuple[_Member, Outcome | None]:
        """Let all go on in turn until one of them ends; that one, and what came of it: nothing, where memory was short.

        One that is alone has all of the memory, and its error is raised.
        """
        ended, error = take_turns([member.turns for member in self._team])
        member = next(member for member in self._team if member.turns is ended)
        if isinstance(error, BusyError):
            return member, Busy(error)
        if isinstance(error, DataError | OSError):
            return member, Refused(error)
        if isinstance(error, torch.OutOfMemoryError) and len(self._team) > 1:
            return member, None
        if error is not None:
            self._team.remove(member)
            raise error
        assert ended.result is not None
        return member, Ended(ended.result, member.relay.trained)

    def _tell(self, event: Event, number: int) -> None:
        if self._watcher is not None:
            event.tell(self._watcher, number)


@dataclass(eq=False)
class _Member:
    """A run under way."""

    work: Work
    number: int
    turns: Turns[RunFolder]
    relay: Relay
