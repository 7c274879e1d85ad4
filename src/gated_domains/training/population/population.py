"""Population: many trainings whose steps are taken together; from outside each is a training like any other."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gated_domains.backbones.finding import evaluating
from gated_domains.data.errors import DataError
from gated_domains.training.engine import as_computed
from gated_domains.training.loop import Training
from gated_domains.training.optimisers import set_rate
from gated_domains.training.outcome import Outcome
from gated_domains.training.population.adam import pace
from gated_domains.training.population.recording import Recorded
from gated_domains.training.population.stacking import Stack, let_go, rows_of
from gated_domains.training.population.stepping import StackedStep, read, say
from gated_domains.training.population.suitable import odd_one_out, why_alone
from gated_domains.training.population.tables import Orders, Tables
from gated_domains.training.trouble import NotFiniteError

_AT_ONCE = {"cuda": 2**29, "cpu": 2**26}  # bytes of features that are judged in one pass
_SELDOM = 10  # times the seconds that the last checkpoints took must go by before the next

End = Outcome | NotFiniteError


class Population:
    """Trainings of one architecture on cached features, each with its own rows, seed, rates and weights of penalties.

    Every member is an ordinary ``Training``: its selection, averages, journal and checkpoints are its own, and each can
    be gone on with alone, or in another population. One whose loss becomes no number leaves the others alone.
    """

    def __init__(self, members: Sequence[Training]) -> None:
        self.members = list(members)
        for number, member in enumerate(self.members):
            reason = why_alone(member)
            if reason is not None:
                raise DataError(f"member {number} of the population cannot be stepped with others: {reason}")
        odd = odd_one_out(self.members) if self.members else None
        if odd is not None:
            raise DataError(f"these trainings cannot be stepped together: {odd}; make a population of each kind")

    def run(self) -> list[Outcome]:
        """How every member ended. What broke one is raised after the others are done."""
        outcomes = []
        for end in self.ends():
            if isinstance(end, NotFiniteError):
                raise end
            outcomes.append(end)
        return outcomes

    def ends(self) -> list[End]:
        """How every member ended: its outcome, or the error that broke it."""
        for member in self.members:
            member.start()
        ends = {id(member): member.outcome() for member in self.members if member.over}
        left = [member for member in self.members if id(member) not in ends]
        found: dict[int, End] = {**ends}
        while left:
            left = _Together(sorted(left, key=lambda member: repr(pace(member))), found).run()
        return [found[id(member)] for member in self.members]


class _Together:
    """Members in one stack, until half of them have left."""

    def __init__(self, members: Sequence[Training], ends: dict[int, End]) -> None:
        self.members, self.ends = list(members), ends
        self.there = list(range(len(self.members)))
        self.device, self.fabric = self.members[0].device, self.members[0].fabric
        # What is called with the tensors of all; a member's own may have left, and be in another mode.
        self.method = copy.deepcopy(self.members[0].method).train()
        self.stack, self.tables, self.orders = Stack(self.members), Tables(self.members), Orders()
        self.step = StackedStep(self.members, self.method, self.stack, self.tables)
        self.advance: Callable[[], None] = Recorded(self.step) if self.device.type == "cuda" else self.step
        self.taken = 0  # steps that members have not been told of
        self.pause = 0.0
        self.kept = time.monotonic()

    def run(self) -> list[Training]:
        """Train until half of the members have left, and give back the others."""
        most = len(self.members)
        while self.there and (2 * len(self.there) > most or most == 1):
            self._stretch()
        left = [self.members[row] for row in self.there]
        for member in left:
            let_go(member)
        return left

    # From one end of an epoch to the next, of any member.

    def _stretch(self) -> None:
        began = time.monotonic()
        for row in self.there:
            self.members[row].begin_epoch()
        there = [self.members[row] for row in self.there]
        steps = min(len(member.sampler) - member.place.batch for member in there)
        self._lay_out(steps)
        for number in range(steps):
            self.advance()
            self.taken += 1
            for member in there:
                if member.watcher is not None:
                    member.watcher.stepped(member.place.step + self.taken, member.steps)
            if number + 1 < steps and self._keeps():
                self._settle(began)
                began = time.monotonic()
                self._keep()
                there = [self.members[row] for row in self.there]
                if not there:
                    return
        if there:
            self._draw_ahead()
            self._settle(began)
            self._end_epochs()

    def _lay_out(self, steps: int) -> None:
        """What the next steps read. The row of one that has left goes on with the rows of another: nobody looks."""
        own = {}
        for row in self.there:
            place = self.members[row].place
            own[row] = self.orders.of(self.members[row], place.epoch)[place.batch : place.batch + steps]
        some = own[self.there[0]] % min(len(member.material.samples) for member in self.members)
        order = np.stack([own.get(row, some) for row in range(len(self.members))], axis=1)
        self.step.lay_out(torch.from_numpy(order), self.step.adam.rates(steps, self.there))

    def _draw_ahead(self) -> None:
        """Draw the rows of the next epoch while the device is still at this one."""
        for row in self.there:
            member = self.members[row]
            if member.place.epoch + 1 < member.settings.epochs:
                self.orders.of(member, member.place.epoch + 1)
        self.orders.forget(min(self.members[row].place.epoch for row in self.there))

    def _settle(self, began: float) -> None:
        """Tell every member what was done since it was last told; those whose loss was no number leave."""
        sums, broken, values = self.step.counted()
        places, start = broken.tolist(), int(self.step.at) - self.taken
        spent = (time.monotonic() - began) / len(self.there)
        for block, rates in zip(self.step.adam.blocks, self.step.rates[int(self.step.at) - 1].tolist(), strict=True):
            for row in set(self.there) & set(block.range):
                set_rate(self.members[row].optimizer, rates)
        for row in list(self.there):
            member, place = self.members[row], self.members[row].place
            first = place.step + places[row] - start if places[row] >= 0 else -1
            for name, value in zip(self.step.names, sums[row], strict=True):
                place.sums[name] = place.sums[name].cpu() + value if name in place.sums else value
            place.step, place.batch = place.step + self.taken, place.batch + self.taken
            if member.ema is not None:
                member.ema.count += self.taken
            member.count_seconds(spent)
            if first >= 0:
                member.watch.names, member.watch.values = self.step.names, values[row]
                member.watch.first = torch.tensor(first)
                self._try(row, member.refuse_nonsense)
        self.taken = 0

    # The end of an epoch.

    def _end_epochs(self) -> None:
        ending = [row for row in self.there if self._ended(row)]
        finite = self.stack.finite().tolist()
        for row in [row for row in ending if not finite[row]]:
            self._try(row, partial(self.members[row].refuse_nonsense, weights=True))
        ending = [row for row in ending if row in self.there]
        if not ending:
            return
        began = time.monotonic()
        records: dict[int, dict[str, Any]] = {}
        with ExitStack() as judged:
            for row in ending:
                judged.enter_context(self.members[row].judged())
            outputs, measures = self._said(ending), self._read(ending)
            spent = (time.monotonic() - began) / len(ending)
            for row, output, read_off in zip(ending, outputs, measures, strict=True):
                member = self.members[row]
                member.count_seconds(spent)
                self._try(row, partial(_record, member, output, read_off, row, records))
        for row, record in records.items():
            self.members[row].end_epoch(record)
        if self._keeps():
            self._keep()
        for row in [row for row in self.there if self.members[row].over]:
            self._leave(row)

    def _ended(self, row: int) -> bool:
        return self.members[row].place.batch == len(self.members[row].sampler)

    def _said(self, rows: Sequence[int]) -> list[NDArray[np.float32]]:
        """What these members say of their validation rows: all of them in one pass, some rows at a time."""
        if self.method.batchwise:  # what is said of a row hangs on those beside it
            return [self.members[row].predicted() for row in rows]
        own = [self.members[row].material.validation for row in rows]
        longest = max(map(len, own))
        picks = torch.from_numpy(np.stack([np.resize(rows_, longest) for rows_ in own]).astype(np.int32))
        picks = picks.to(self.device)
        width = self.members[0].material.samples.encoding.shape[0]
        at_once = max(1, min(4096, _AT_ONCE.get(self.device.type, 2**26) // (4 * width * len(rows))))
        weights, rest = (rows_of(part, rows) for part in (self.stack.weights, self.stack.rest))
        parts = []
        for some in picks.split(at_once, dim=1):
            inputs = as_computed(self.tables.inputs(some, rows), self.fabric)
            with self.fabric.autocast(), evaluating(self.method):
                parts.append(say(self.method, weights, rest, inputs).float())
        whole = torch.cat(parts, dim=1).cpu().numpy()
        return [output[: len(rows_)] for output, rows_ in zip(whole, own, strict=True)]

    def _read(self, rows: Sequence[int]) -> list[dict[str, float]]:
        """What is worth a curve of each of these members."""
        inputs = [self.members[row].measured() for row in rows]
        if len({one.shape for one in inputs}) > 1:  # of hold-outs that differ in size
            with self.fabric.autocast():
                return [self.members[row].method.measures(own) for row, own in zip(rows, inputs, strict=True)]
        weights, rest = (rows_of(part, rows) for part in (self.stack.weights, self.stack.rest))
        with self.fabric.autocast(), evaluating(self.method):
            return read(self.method, weights, rest, torch.stack(inputs))

    # Members that leave, and checkpoints.

    def _try(self, row: int, act: Callable[[], object]) -> None:
        """Do something of one member's; where a number of it is none, it leaves with that error."""
        try:
            act()
        except NotFiniteError as error:
            self._leave(row, error)

    def _leave(self, row: int, error: NotFiniteError | None = None) -> None:
        member = self.members[row]
        let_go(member)
        self.there.remove(row)
        self.ends[id(member)] = member.outcome() if error is None else error

    def _keeps(self) -> bool:
        waited = time.monotonic() - self.kept >= self.pause
        return waited and any(self.members[row].due for row in self.there)

    def _keep(self) -> None:
        """A checkpoint of every member; where they take long, the next are longer in coming."""
        began = time.monotonic()
        for row in list(self.there):
            member = self.members[row]
            if member.keeping is not None:
                self._try(row, member.keep)
        self.kept = time.monotonic()
        timed = any(member.keeping is not None and member.keeping.seconds > 0 for member in self.members)
        self.pause = _SELDOM * (self.kept - began) if timed else 0.0


def _record(
    member: Training,
    output: NDArray[np.float32],
    measures: dict[str, float],
    row: int,
    records: dict[int, dict[str, Any]],
) -> None:
    records[row] = member.record(output, measures)
