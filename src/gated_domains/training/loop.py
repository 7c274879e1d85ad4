"""The training loop: one epoch after the other until validation no longer improves; it can be cut anywhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from gated_domains.backbones.finding import evaluating
from gated_domains.data.batches import DomainBatch, Samples
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, first_line
from gated_domains.data.inputs import Rows
from gated_domains.data.sampling import SAMPLERS, InOrder, Sampler, Shared, Shuffled
from gated_domains.evaluation.scores import DomainScores, metric_for, score_by_domain
from gated_domains.evaluation.selection import SelectionRule, Selector
from gated_domains.methods.method import Method
from gated_domains.training.checkpoints import (
    load_checkpoint,
    newest_checkpoint,
    rng_state,
    save_checkpoint,
    set_rng_state,
)
from gated_domains.training.ema import EMA
from gated_domains.training.engine import WrappedObjective, as_computed
from gated_domains.training.graphs import GraphedStep, Step
from gated_domains.training.optimisers import make_optimizer, rate_at, rates_to, set_rate
from gated_domains.training.predicting import predict_rows
from gated_domains.training.processes import earliest, from_all, from_first
from gated_domains.training.settings import TrainingSettings
from gated_domains.training.trouble import FiniteWatch, NotFiniteError, all_finite, explain

LOOKED_AT = 20_000  # training rows that a method looks at between epochs
MEASURED = 500  # validation rows that curves of gates are drawn from
_LOOK_BATCH = 512
_CLOCK_STEPS = 100  # with several processes, steps between two looks at the clock, which all must wait for


@dataclass(frozen=True, eq=False, kw_only=True)
class Material:
    """What is trained on. The rows held out are not among ``train`` and ``validation``, and no others are read."""

    dataset: DomainDataset
    samples: Samples
    train: Rows
    validation: Rows


@runtime_checkable
class Journal(Protocol):
    """Where the numbers of every epoch go; a run folder is one."""

    def append_metrics(self, record: dict[str, Any]) -> None: ...
    def keep_metrics(self, through_step: int) -> None: ...


@runtime_checkable
class Watcher(Protocol):
    """Who is told how far a training is."""

    def stepped(self, step: int, steps: int) -> None: ...
    def epoch_ended(self, record: dict[str, Any]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a training ended; the method carries the weights of the best epoch."""

    best_epoch: int
    epochs: int
    stopped: str
    seconds: float
    validation: DomainScores


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """Where checkpoints go, and how many seconds lie between two at least; 0 keeps every step of one process."""

    folder: Path
    seconds: float = 20.0


@dataclass
class _Place:
    """How far a training is: all of it that is not weights."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    sums: dict[str, Tensor] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    stopped: bool = False


class Training:
    """One training of one method. ``run`` goes on from the newest checkpoint, if there is one, as if never cut."""

    def __init__(
        self,
        method: Method,
        material: Material,
        settings: TrainingSettings,
        *,
        fabric: Fabric,
        seed: int,
        rule: SelectionRule,
        keeping: Keeping | None = None,
        journal: Journal | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self.method, self.material, self.settings = method, material, settings
        self.fabric, self.seed, self.rule = fabric, seed, rule
        self.keeping = keeping
        # Of several processes the first alone writes and is watched.
        self.journal, self.watcher = (journal, watcher) if fabric.is_global_zero else (None, None)
        self.metric = metric_for(material.dataset.num_classes)
        self.selector = Selector(settings.patience)
        self.best: dict[str, Tensor] | None = None
        self.place = _Place()
        self.device = fabric.device
        method.to(self.device)
        self.optimizer = make_optimizer(method, settings, self.device)
        wrapped, self.stepper = fabric.setup(method, self.optimizer)
        self.objective = WrappedObjective(fabric, wrapped)
        self.ema = None if settings.ema is None else EMA(method, decay=settings.ema)
        self.advance: Step = lambda batch: method.step(self.objective, batch, self.stepper)
        if self.device.type == "cuda" and settings.optimizer != "sgd" and fabric.world_size == 1:
            self.advance = GraphedStep(self.advance)
        self.sampler = self._sampler()
        self.steps = settings.epochs * len(self.sampler)
        self._kept = time.monotonic()
        self._began = time.monotonic()

    def run(self) -> Outcome:
        began = time.monotonic()
        if not self._resumed():
            with evaluating(self.method):
                self.method.prepare(self._looks)
        self._began = began - self.place.seconds
        while self.place.epoch < self.settings.epochs and not self.place.stopped:
            self._epoch()
        return self._outcome()

    # One epoch.

    def _epoch(self) -> None:
        place = self.place
        if place.batch == 0:
            self.method.train()
            with nullcontext() if self.ema is None else self.ema.restarting(self.method):
                self.method.renew(self._looks, epoch=place.epoch, optimizer=self.optimizer)
            self.watch = FiniteWatch(self.device)
        self.method.train()
        batches = self.material.samples.batches(self.sampler, place.epoch, start=place.batch)
        for batch in batches:
            self._step(batch if self.method.uses_domains else batch.without_domains())
        self._refuse_nonsense(weights=True)
        with nullcontext() if self.ema is None else self.ema.swapped(self.method), evaluating(self.method):
            record = self._record(self._selected())
        place.losses.append(sum(record["train"].values()))
        place.epoch, place.batch, place.sums = place.epoch + 1, 0, {}
        place.stopped = self.selector.stop
        place.seconds = time.monotonic() - self._began
        if self.journal is not None:
            self.journal.append_metrics(record)
        if self.watcher is not None:
            self.watcher.epoch_ended(record)
        self._keep()

    def _step(self, batch: DomainBatch) -> None:
        place = self.place
        set_rate(self.optimizer, rate_at(place.step, self.steps, self.settings))
        terms = self.advance(batch)
        if self.ema is not None:
            self.ema.update(self.method)
        for name, term in terms.items():
            value = term.detach().to(torch.float64, copy=True)  # a recorded step writes the next one in its place
            place.sums[name] = place.sums[name] + value if name in place.sums else value
        self.watch.see(terms, place.step)
        place.step, place.batch = place.step + 1, place.batch + 1
        if self.device.type == "cpu" or place.batch % 100 == 0:
            self._refuse_nonsense()
        if self.watcher is not None:
            self.watcher.stepped(place.step, self.steps)
        if place.batch < len(self.sampler) and (self.fabric.world_size == 1 or place.batch % _CLOCK_STEPS == 0):
            self._keep()

    def _selected(self) -> DomainScores:
        """The validation scores; where they are the best so far, the weights are kept."""
        # Running statistics are of each process's own share; those of the first are kept, so they are the ones scored.
        from_first(self.fabric, self.method.buffers())
        self.method.renew(self._looks, epoch=self.place.epoch, optimizer=None)
        scores = self.validate()
        if self.selector.update(self.place.epoch, self.fabric.broadcast(self.rule(scores))) or self.best is None:
            self.best = {name: value.detach().clone() for name, value in self.method.state_dict().items()}
        return scores

    def validate(self) -> DomainScores:
        """The scores of the sources' validation rows."""
        data, rows = self.material.dataset, self.material.validation
        predicted = predict_rows(self.method, self.material.samples, rows, fabric=self.fabric)
        domains = None if data.domains is None else data.domains[rows]
        return score_by_domain(
            predicted.output,
            data.targets[rows],
            domains=domains,
            domain_names=data.domain_names,
            metric=self.metric,
        )

    def _record(self, validation: DomainScores) -> dict[str, Any]:
        place = self.place
        sums = torch.stack([place.sums[name] for name in place.sums]) / len(self.sampler)
        means = cast(Tensor, self.fabric.all_reduce(sums, reduce_op="mean")).tolist()
        with self.fabric.autocast():
            measures = self.method.measures(self._measured())
        return {
            "epoch": place.epoch,
            "step": place.step,
            "seconds": round(time.monotonic() - self._began, 3),
            "rate": float(self.optimizer.param_groups[0]["lr"]),
            "train": dict(zip(place.sums, means, strict=True)),
            "validation": validation.as_json(),
            "measures": measures,
        }

    def _refuse_nonsense(self, *, weights: bool = False) -> None:
        """Raise if a loss was no number, in any process; with ``weights`` also if a weight has become none by now."""
        step, broken = self.watch.found(), ""
        if step is not None:
            broken = self.watch.broken()
        elif weights and not all_finite(self.method):
            step, broken = self.place.step - 1, "a weight"
        owner = earliest(self.fabric, step)
        if owner is None:
            return
        said = self._explained(step, broken) if step is not None and owner == self.fabric.global_rank else ""
        raise NotFiniteError(self.fabric.broadcast(said, src=owner))

    def _explained(self, step: int, broken: str) -> str:
        place = self.place
        number = step - (place.step - place.batch)
        error = explain(
            broken,
            step,
            epoch=place.epoch,
            rows=list(self.sampler.batches(place.epoch))[number],
            batch=next(iter(self.material.samples.batches(self.sampler, place.epoch, start=number))),
            losses=place.losses,
            settings=self.settings,
        )
        return str(error)

    # Rows.

    def _sampler(self) -> Sampler:
        kind = SAMPLERS[self.settings.sampling]
        whole = kind.over(
            self.material.dataset, self.material.train, batch_size=self.settings.batch_size, seed=self.seed
        )
        world = self.fabric.world_size
        return whole if world == 1 else Shared(whole, self.fabric.global_rank, world)

    def _looks(self) -> Iterator[Tensor]:
        return (as_computed(inputs, self.fabric) for inputs in looks(self.material, self.seed))

    def _measured(self) -> Tensor:
        rows = self.material.validation
        chosen = rows[:: max(1, len(rows) // MEASURED)]
        inputs = torch.cat(list(self.material.samples.input_batches(InOrder(chosen, _LOOK_BATCH))))
        return as_computed(inputs, self.fabric)

    # Checkpoints.

    def _keep(self) -> None:
        if self.keeping is None:
            return
        due = time.monotonic() - self._kept >= self.keeping.seconds
        if not self.fabric.broadcast(due):  # by the clock of the first process, or some would keep and others not
            return
        if self.place.batch > 0:  # at the end of an epoch that was done
            self._refuse_nonsense(weights=True)
        self.place.seconds = time.monotonic() - self._began
        own = {"rng": rng_state(self.device), "sums": self.place.sums}
        every = {part: {name: from_all(self.fabric, t) for name, t in tensors.items()} for part, tensors in own.items()}
        if self.fabric.is_global_zero:
            save_checkpoint(self.keeping.folder, self.place.step, self._state(every))
        self._kept = time.monotonic()

    def _state(self, every: dict[str, dict[str, Tensor]]) -> dict[str, Any]:
        return {
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "ema": None if self.ema is None else self.ema.state(),
            "selector": self.selector.state(),
            "best": self.best,
            "place": {**vars(self.place), "sums": {}},
            "world": self.fabric.world_size,
            "every": every,
        }

    def _resumed(self) -> bool:
        path = None if self.keeping is None else newest_checkpoint(self.keeping.folder)
        path = self.fabric.broadcast(path)  # a disk that is shared may not show all processes the same at once
        if path is None:
            if self.journal is not None:
                self.journal.keep_metrics(-1)
            return False
        state = load_checkpoint(path)
        world = self.fabric.world_size
        if state["world"] != world:
            raise DataError(
                f"{path} was made by {state['world']} processes, and here are {world}: go on with as many, "
                "or delete it to start this training again"
            )
        try:
            self.method.load_state_dict(state["method"])
            self.optimizer.load_state_dict(state["optimizer"])
            if self.ema is not None:
                self.ema.load_state(state["ema"])
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            said = first_line(RuntimeError(" ".join(str(error).split())))
            raise DataError(f"{path} is of another model ({said}); delete it to start this training again") from error
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        if self.device.type == "cuda" and self.settings.optimizer != "sgd":
            rates_to(self.optimizer, self.device)
        self.selector.load_state(state["selector"])
        self.best = None if state["best"] is None else {n: v.to(self.device) for n, v in state["best"].items()}
        self.place = _Place(**state["place"])
        rank = self.fabric.global_rank
        # Copies: of a view torch.set_rng_state reads the wrong memory, and ends the process.
        own = {part: {name: t[rank].clone() for name, t in tensors.items()} for part, tensors in state["every"].items()}
        self.place.sums = {name: value.to(self.device) for name, value in own["sums"].items()}
        self.watch = FiniteWatch(self.device)
        set_rng_state(own["rng"], self.device)
        if self.journal is not None:
            self.journal.keep_metrics(self.place.step if self.place.batch == 0 else self.place.step - self.place.batch)
        return True

    def _outcome(self) -> Outcome:
        assert self.best is not None
        self.method.load_state_dict(self.best)
        self.method.eval()
        best = self.selector.best_epoch
        return Outcome(
            best_epoch=0 if best is None else best,
            epochs=self.place.epoch,
            stopped="early" if self.place.stopped and self.place.epoch < self.settings.epochs else "all epochs",
            seconds=self.place.seconds,
            validation=self.validate(),
        )


def looks(material: Material, seed: int) -> Iterator[Tensor]:
    """Training inputs for a method to look at: all, or as many as are enough, in an order by chance."""
    order = Shuffled(material.train, _LOOK_BATCH, seed=seed, drop_last=False)
    rows = np.concatenate(list(order.batches(0)))[:LOOKED_AT]
    return material.samples.input_batches(InOrder(rows, _LOOK_BATCH))
