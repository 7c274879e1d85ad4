"""Trainings that take turns in one process, each with a CUDA stream and random numbers of its own.

While the GPU works on the steps of some, the host prepares those of others, and kernels that do not fill the GPU run
side by side. What each of them computes is what it would compute alone.
"""

from __future__ import annotations

import contextvars
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from gated_domains.training.pauses import CLOCK, Pause

_AHEAD = 24  # steps that the host may be ahead of the GPU, with each training
_NAP = 5e-5  # seconds that the host waits where no training can go on
Result = TypeVar("Result")


class Turns(Generic[Result]):
    """One training among several in a process: ``take`` lets it go on to its next pause.

    On a GPU it has a ``stream`` that none of the others has.
    """

    def __init__(
        self, going: Generator[Pause, None, Result], device: torch.device, stream: torch.cuda.Stream | None = None
    ) -> None:
        self.going, self.device, self.stream = going, device, stream
        self.seconds = 0.0  # its share of those that went by
        self.context = contextvars.copy_context()
        self.context.run(CLOCK.set, lambda: self.seconds)
        self.numbers = OwnNumbers(device)
        self._queued: deque[torch.cuda.Event] = deque()
        self._pause = Pause.AFTER_STEP
        self.over = False
        self.result: Result | None = None

    @property
    def can_go_on(self) -> bool:
        """Whether its next turn would not make the host wait for the GPU."""
        while self._queued and self._queued[0].query():
            self._queued.popleft()
        return not self._queued if self._pause is Pause.UNTIL_DONE else len(self._queued) < _AHEAD

    @property
    def waits(self) -> bool:
        """Whether its last turn did nothing."""
        return self._pause is Pause.ELSEWHERE

    def take(self) -> None:
        """Go on until it pauses; where it ends, ``result`` is what came of it."""
        with self.numbers.in_force(), torch.cuda.stream(self.stream):
            try:
                self._pause = self.context.run(next, self.going)
            except StopIteration as end:
                self.over, self.result = True, end.value
            if self.stream is not None and not self.waits:
                event = torch.cuda.Event()
                event.record(self.stream)
                self._queued.append(event)

    def end(self) -> None:
        """Let go of it, wherever it is."""
        with self.numbers.in_force(), torch.cuda.stream(self.stream):
            self.context.run(self.going.close)


class OwnNumbers:
    """The state of torch's generators, on the CPU and on a GPU, of one of several trainings in a process."""

    def __init__(self, device: torch.device) -> None:
        self.on_cpu: Tensor = torch.get_rng_state()
        self.default = _default_generator(device) if device.type == "cuda" else None
        # A step that is recorded as a graph holds on to the state it was recorded with, not to the generator.
        self.on_gpu = None if self.default is None else self.default.clone_state()

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Inside, random numbers come from here; what others left is there again after."""
        cpu_before, gpu_before = torch.get_rng_state(), None
        torch.set_rng_state(self.on_cpu)
        if self.default is not None:
            gpu_before = self.default.graphsafe_get_state()
            self.default.graphsafe_set_state(self.on_gpu)
        try:
            yield
        finally:
            self.on_cpu = torch.get_rng_state()
            torch.set_rng_state(cpu_before)
            if self.default is not None:
                self.default.graphsafe_set_state(gpu_before)


def take_turns(members: list[Turns[Any]]) -> tuple[Turns[Any], Exception | None]:
    """Let trainings go on in turn until one of them ends; that one, and the error where it broke off.

    Those that would have to wait for the GPU are passed over.
    """
    before = time.monotonic()
    while True:
        moved = False
        for member in members:
            if member.can_go_on:
                try:
                    member.take()
                except Exception as error:  # of one among several: whose it is must be told
                    return member, error
                moved = moved or not member.waits
                if member.over:
                    return member, None
        if not moved:
            time.sleep(_NAP)
        now = time.monotonic()
        for member in members:
            member.seconds += (now - before) / len(members)
        before = now


def _default_generator(device: torch.device) -> Any:
    torch.cuda.init()
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
