"""The training loop: one epoch after the other until validation no longer improves; it can be interrupted anywhere."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.backbones.bodies import Body
from gated_domains.backbones.finding import evaluating, unmoved_buffers
from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError, first_line
from gated_domains.data.groups import groups_among
from gated_domains.data.inputs import Rows
from gated_domains.data.sampling import InOrder, Sampler, Shared, sampler_for
from gated_domains.evaluation.metrics import metric_for
from gated_domains.evaluation.scores import DomainScores
from gated_domains.evaluation.scoring import Scorer
from gated_domains.evaluation.selection import Evidence, SelectionRule, Selector, validation_loss
from gated_domains.methods.method import Method, Terms, total
from gated_domains.training.augmentation import augmented
from gated_domains.training.callbacks.ema import EMA, moving_norms, renew_norms, unmoved_norms
from gated_domains.training.callbacks.nonfinite import FiniteWatch, NotFiniteError, all_finite, explain
from gated_domains.training.callbacks.swad import SWAD
from gated_domains.training.checkpoints import (
    load_checkpoint,
    newest_checkpoint,
    rng_state,
    save_checkpoint,
    set_rng_state,
)
from gated_domains.training.engine import WrappedObjective, as_computed, earliest, from_all, from_first
from gated_domains.training.mixing import TEACHER_DECAY, Consistency, FourierMix, Mixing, start_mixing
from gated_domains.training.optimizers import (
    GraphedStep,
    Step,
    lay_out_state,
    make_optimizer,
    rate_at,
    rates_to,
    set_rate,
)
from gated_domains.training.outcome import Journal, Keeping, Outcome, Watcher
from gated_domains.training.prediction import predict_rows
from gated_domains.training.settings import TrainingSettings
from gated_domains.training.training_data import LARGE_BATCH, TrainingData, has_large_body, look_rows, looks

_IMAGES = 4  # dimensions of a batch of them
MEASURED = 500  # validation rows that curves of gates are drawn from
_LOOK_STEPS = 1_000  # on a GPU, steps between two looks at the losses, which the host must wait for
_CLOCK_STEPS = 100  # with several processes, steps between two looks at the clock, which all must wait for


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
    waited: int = 0
    drops: int = 0
    least_loss: float = math.inf


class Trainer:
    """One training of one method. ``run`` resumes from the newest checkpoint, if there is one."""

    def __init__(
        self,
        method: Method,
        material: TrainingData,
        settings: TrainingSettings,
        *,
        fabric: Fabric,
        seed: int,
        rule: SelectionRule,
        scorer: Scorer | None = None,
        keeping: Keeping | None = None,
        journal: Journal | None = None,
        watcher: Watcher | None = None,
        compiled: bool = False,
    ) -> None:
        self.method, self.material, self.settings = method, material, settings
        self.fabric, self.seed, self.rule = fabric, seed, rule
        self.keeping = keeping
        # Of several processes the first alone writes and is watched.
        self.journal, self.watcher = (journal, watcher) if fabric.is_global_zero else (None, None)
        self.scorer = scorer or Scorer(dataset=material.dataset, metric=metric_for(material.dataset.task))
        self.stops_early = settings.patience is not None and rule.stop_early
        self.selector = Selector(settings.patience if self.stops_early and not settings.swad else None)
        self.best: dict[str, Tensor] | None = None
        self._best_scores: DomainScores | None = None  # not kept: they can be had again
        self.place = _Place()
        self.device = fabric.device
        method.to(self.device)
        self.large = has_large_body(method)
        self._suit_bodies()
        self.optimizer = make_optimizer(method, settings, self.device)
        wrapped, self.stepper = fabric.setup(method, self.optimizer)
        self.objective = WrappedObjective(fabric, wrapped, compiled=method if self._compiles(compiled) else None)
        self.ema = None if settings.ema is None else EMA(method, decay=settings.ema)
        self.swad = SWAD() if settings.swad else None
        self.averages = self.ema or self.swad
        self.mixing = self._mixing()
        self.fourier = self._fourier()
        self.teacher: EMA | None = None  # a second average, for consistency alone, where ema is off
        self.consistency = self._consistency()
        self.advance: Step = self._advance
        recordable = settings.optimizer != "sgd" and fabric.world_size == 1 and self.static
        if self.device.type == "cuda" and recordable:
            self.advance = GraphedStep(self.advance)
        groups = groups_among(material.dataset, material.train, settings.group_by)
        self.sampler = self._sampler(None if groups is None else groups.index)
        told = method.uses_domains or (self.mixing is not None and self.mixing.mixer.needs_domains)
        self.groups = torch.from_numpy(groups.index).to(self.device) if groups is not None and told else None
        self.steps = settings.epochs * len(self.sampler)
        segments = settings.swad_segments
        # The last segment of an epoch ends with the epoch.
        self._segment_ends = {len(self.sampler) * number // segments for number in range(1, segments)} - {0}
        self._kept = time.monotonic()
        self._began = time.monotonic()

    def run(self) -> Outcome:
        try:
            self.start()
            while not self.over:
                self._epoch()
            return self.outcome()
        finally:
            self.advance = self._advance  # a recorded step holds memory on the device, and would outlast the training
            if self.mixing is not None:
                self.mixing.mixer.remove()

    def start(self) -> None:
        """Resume from the newest checkpoint; where there is none the method looks at its training inputs."""
        began = time.monotonic()
        if not self._resumed():
            with evaluating(self.method):
                self.method.prepare(self._looks)
        self._began = began - self.place.seconds

    @property
    def over(self) -> bool:
        """Whether no epoch is left, or none is worth waiting for."""
        return self.place.epoch >= self.settings.epochs or self.place.stopped

    def begin_epoch(self) -> None:
        """Let the method look at its training inputs again; an interrupted epoch is resumed without."""
        if self.place.batch == 0:
            self.method.train()
            with ExitStack() as averages:
                for average in (self.averages, self.teacher):
                    if average is not None:
                        averages.enter_context(average.restarting(self.method))
                self.method.renew(self._looks, epoch=self.place.epoch, optimizer=self.optimizer)
            self.watch = FiniteWatch(self.device)
        self.method.train()

    @contextmanager
    def judged(self) -> Iterator[None]:
        """Inside, the method is in eval mode, with averaged weights where there are some."""
        with nullcontext() if self.ema is None else self.ema.swapped(self.method), evaluating(self.method):
            # Running statistics are of each process's own share; those of the first are kept, so they are the ones
            # scored.
            from_first(self.fabric, self.method.buffers())
            self.method.renew(self._looks, epoch=self.place.epoch, optimizer=None)
            if self.ema is None or not moving_norms(self.method):
                yield
                return
            # Running statistics are those of the weights that were trained; averaged weights need their own.
            with unmoved_norms(self.method):
                self._renew_norms()
                yield

    def _renew_norms(self) -> None:
        """Recompute the running statistics of batch norms, then what gates take from the data."""
        renew_norms(self.method, self._training_inputs, around=self.fabric.autocast)
        for norm in moving_norms(self.method):
            for statistics in (norm.running_mean, norm.running_var):
                cast(Tensor, statistics).copy_(from_all(self.fabric, cast(Tensor, statistics)).mean(0))
        from_first(self.fabric, self.method.buffers())
        self.method.renew(self._looks, epoch=self.place.epoch, optimizer=None)

    def end_epoch(self, record: dict[str, Any]) -> None:
        """Count the epoch, and tell of it."""
        place = self.place
        place.losses.append(sum(record["train"].values()))
        place.epoch, place.batch, place.sums = place.epoch + 1, 0, {}
        place.stopped = self.selector.stop if self.swad is None else self.swad.over and self.stops_early
        place.seconds = time.monotonic() - self._began
        if self.journal is not None:
            self.journal.append_metrics(record)
        if self.watcher is not None:
            self.watcher.epoch_ended(record)

    def _epoch(self) -> None:
        self.begin_epoch()
        place = self.place
        batches = self.material.samples.batches(self.sampler, place.epoch, start=place.batch, groups=self.groups)
        for batch in batches:
            self._step(batch if self.groups is not None else batch.without_domains())
        self.refuse_nonsense(weights=True)
        with self.judged():
            record = self.record(self.predicted())
        self.end_epoch(record)
        self._keep()

    def _step(self, batch: DomainBatch) -> None:
        place = self.place
        set_rate(self.optimizer, rate_at(place.step, self.steps, self.settings, drops=place.drops))
        batch = replace(batch, inputs=self._augmented(batch.inputs))
        if self.consistency is not None:
            self.consistency.begin_step(place.step, self.steps)
        terms = self.advance(batch)
        for average in (self.averages, self.teacher):
            if average is not None:
                average.update(self.method)
        for name, term in terms.items():
            value = term.detach().to(torch.float64, copy=True)  # a recorded step writes the next one in its place
            place.sums[name] = place.sums[name] + value if name in place.sums else value
        self.watch.see(terms, place.step)
        place.step, place.batch = place.step + 1, place.batch + 1
        if self.swad is not None and not self.swad.over and place.batch in self._segment_ends:
            with unmoved_buffers(self.method), self.judged():  # an evaluation must not change the training
                self._end_segment(self.predicted())
        if self.device.type == "cpu" or place.batch % _LOOK_STEPS == 0:
            self.refuse_nonsense()
        if self.watcher is not None:
            self.watcher.stepped(place.step, self.steps)
        if place.batch < len(self.sampler) and (self.fabric.world_size == 1 or place.batch % _CLOCK_STEPS == 0):
            self._keep()

    def _advance(self, batch: DomainBatch) -> Terms:
        """One update of the weights."""
        mixed = batch if self.fourier is None else self.fourier(batch)
        if self.settings.accumulate > 1:
            return self._accumulated(batch, mixed)
        batch = self._with_views(batch, mixed)
        if self.mixing is not None:
            return self.mixing.step(self.method, self.objective, batch, self.stepper)
        return self.method.step(self.objective, batch, self.stepper)

    def _augmented(self, inputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        if self.settings.augment == "none" or inputs.ndim != _IMAGES:  # features of a frozen body stay as taken
            return inputs
        return augmented(inputs, self.settings.augment, generator)

    def _with_views(self, plain: DomainBatch, mixed: DomainBatch) -> DomainBatch:
        """What the objective gets: both views with a teacher's predictions, or the mixed one alone."""
        return mixed if self.consistency is None else self.consistency.both_views(plain, mixed)

    def _accumulated(self, batch: DomainBatch, mixed: DomainBatch) -> Terms:
        """One update by the gradients of the batch's parts, added up."""
        parts = list(zip(batch.cut(self.settings.accumulate), mixed.cut(self.settings.accumulate), strict=True))
        self.stepper.zero_grad(set_to_none=True)
        sums: Terms = {}
        for number, views in enumerate(parts, start=1):
            share, part = len(views[0]) / len(batch), self._with_views(*views)
            # Processes share gradients once, after the last part.
            with self.fabric.no_backward_sync(self.objective.module, enabled=number < len(parts)):
                terms = self.objective(part)
                self.objective.backward(total(terms) * share)
            for name, term in terms.items():
                sums[name] = sums[name] + share * term.detach() if name in sums else share * term.detach()
        self.stepper.step()
        return sums

    def _selected(self, output: NDArray[Any]) -> tuple[DomainScores, float]:
        """The validation scores, and what the rule makes of them; where that is the best so far, weights are kept."""
        evidence = self.evidence(output)
        number = self.fabric.broadcast(self.rule(evidence))
        if self.swad is not None:
            self._end_segment(evidence.output)
        better = self.selector.update(self.place.epoch, number)
        self._count_plateau(better if self.settings.plateau_on == "score" else self._lower_loss(evidence))
        if (better or self.best is None) and self.swad is None:
            self.best = {name: value.detach().clone() for name, value in self.method.state_dict().items()}
            self._best_scores = evidence.scores
        return evidence.scores, number

    def _end_segment(self, output: NDArray[Any]) -> None:
        """Tell SWAD the validation loss of the steps since it last heard one."""
        assert self.swad is not None
        targets = self.material.dataset.targets[self.material.validation]
        self.swad.segment_ended(self.fabric.broadcast(validation_loss(output, targets)))

    def _count_plateau(self, better: bool) -> None:
        self.place.waited = 0 if better else self.place.waited + 1
        if self.settings.schedule == "plateau" and self.place.waited >= self.settings.drop_after:
            self.place.drops, self.place.waited = self.place.drops + 1, 0

    def _lower_loss(self, evidence: Evidence) -> bool:
        """Whether the validation loss is lower than ever before."""
        loss = self.fabric.broadcast(validation_loss(evidence.output, evidence.targets))
        lower, self.place.least_loss = loss < self.place.least_loss, min(loss, self.place.least_loss)
        return lower

    def predicted(self) -> NDArray[Any]:
        """What the method says of the rows that select, as it is now."""
        rows = self.material.validation
        return predict_rows(self.method, self.material.samples, rows, fabric=self.fabric).output

    def evidence(self, output: NDArray[Any] | None = None) -> Evidence:
        """What the method says of the rows that select, as it is now or as it said, and how that scores."""
        data, rows = self.material.dataset, self.material.validation
        output = self.predicted() if output is None else output
        if not np.isfinite(output).all():
            raise NotFiniteError(
                f"after epoch {self.place.epoch + 1} predictions are no numbers, though the loss was one: weights have "
                f"grown out of range; lower the learning rate, {self.settings.rate:g}"
            )
        scores = self.scorer(output, rows)
        return Evidence(epoch=self.place.epoch, output=output, targets=data.targets[rows], scores=scores)

    def record(self, output: NDArray[Any], measures: dict[str, float] | None = None) -> dict[str, Any]:
        """What is worth knowing of the epoch, by what the method says of the rows that select; the best is kept.

        ``measures`` are taken now, unless they are given.
        """
        place = self.place
        validation, selection = self._selected(output)
        sums = torch.stack([place.sums[name] for name in place.sums]) / len(self.sampler)
        means = cast(Tensor, self.fabric.all_reduce(sums, reduce_op="mean")).tolist()
        if measures is None:
            with self.fabric.autocast():
                measures = self.method.measures(self.measured())
        return {
            "epoch": place.epoch,
            "step": place.step,
            "seconds": round(time.monotonic() - self._began, 3),
            "rate": float(self.optimizer.param_groups[0]["lr"]),
            "train": dict(zip(place.sums, means, strict=True)),
            "validation": validation.as_json(),
            "selection": selection,
            "measures": measures,
        }

    def refuse_nonsense(self, *, weights: bool = False) -> None:
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

    # Bodies and rows.

    def _compiles(self, wanted: bool) -> bool:
        """Whether the objective is compiled: as one graph, of one process, for batches of one shape."""
        plain = not self.settings.checkpoint_activations and self.settings.precision in ("32", "bf16")
        return wanted and plain and self.static and self.fabric.world_size == 1

    def _suit_bodies(self) -> None:
        bodies = [part for part in self.method.modules() if isinstance(part, Body)]
        self.static = all(body.static for body in bodies)
        if self.settings.checkpoint_activations:
            for body in bodies:
                body.checkpoint_activations(True)

    def _mixing(self) -> Mixing | None:
        if self.settings.mixstyle is None:
            return None
        return start_mixing(
            self.method,
            self.settings.mixstyle,
            dataset=self.material.dataset,
            samples=self.material.samples,
            train=self.material.train,
            group_by=self.settings.group_by,
            fabric=self.fabric,
        )

    def _fourier(self) -> FourierMix | None:
        """Mixing of images; cached features stay as they are."""
        encoding, probability = self.material.samples.encoding, self.settings.fourier_mix
        if probability is None or len(encoding.shape) != _IMAGES - 1:
            return None
        return FourierMix(probability, black=encoding.black)

    def _consistency(self) -> Consistency | None:
        weight = self.settings.consistency
        if weight is None or self.fourier is None:
            return None
        average = self.ema or EMA(self.method, decay=TEACHER_DECAY)
        if self.ema is None:
            self.teacher = average
        return Consistency(self.method, average, weight=weight, fabric=self.fabric)

    def _sampler(self, groups: Rows | None) -> Sampler:
        settings = self.settings
        whole = sampler_for(
            self.method.sampling if settings.sampling == "auto" else settings.sampling,
            self.material.train,
            domains=groups,
            batch_size=settings.batch_size,
            seed=self.seed,
            blocks=settings.groups_per_batch,
            repeat_rows=settings.repeat_rows,
        )
        world = self.fabric.world_size
        return whole if world == 1 else Shared(whole, self.fabric.global_rank, world)

    def _looks(self) -> Iterator[Tensor]:
        return (as_computed(inputs, self.fabric) for inputs in looks(self.material, self.seed, large=self.large))

    def _training_inputs(self) -> Iterator[Tensor]:
        """Random training inputs for norm statistics, augmented and Fourier-mixed as in training.

        Batches have the size of training, as moments by basis are shrunk towards those of their batch, and are shared
        by all processes. Sampling by domain and MixStyle are not repeated. The random state of the training does not
        advance.
        """
        settings, rank, world = self.settings, self.fabric.global_rank, self.fabric.world_size
        rows = look_rows(self.material, self.seed, large=self.large)
        size = min(len(rows), max(2 * world, -(-settings.batch_size // settings.accumulate)))  # one row has no variance
        batches = InOrder(rows[: len(rows) // size * size], size)
        generator = torch.Generator(self.device).manual_seed(self.seed + rank)
        for inputs in self.material.samples.input_batches(Shared(batches, rank, world)):
            plain = self._augmented(as_computed(inputs, self.fabric), generator)
            mixed = plain if self.fourier is None else self.fourier.mix(plain, generator)
            yield mixed if self.consistency is None else torch.cat([plain, mixed])

    def measured(self) -> Tensor:
        """Validation inputs that curves of gates are drawn from."""
        rows, most = self.material.validation, LARGE_BATCH if self.large else MEASURED
        chosen = rows[:: max(1, len(rows) // most)][: 2 * most]
        (inputs,) = self.material.samples.input_batches(InOrder(chosen, len(chosen)))
        return as_computed(inputs, self.fabric)

    # Checkpoints.

    @property
    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return self.keeping is not None and time.monotonic() - self._kept >= self.keeping.seconds

    def _keep(self) -> None:
        # By the clock of the first process, or some would keep and others not.
        if self.keeping is not None and self.fabric.broadcast(self.due):
            self.keep()

    def keep(self) -> None:
        """Write a checkpoint."""
        assert self.keeping is not None
        if self.place.batch > 0:  # at the end of an epoch that was done
            self.refuse_nonsense(weights=True)
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
            "teacher": None if self.teacher is None else self.teacher.state(),
            "swad": None if self.swad is None else self.swad.state(),
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
            lay_out_state(self.optimizer)
            if self.ema is not None:
                self.ema.load_state(state["ema"])
            if self.teacher is not None:
                self.teacher.load_state(state["teacher"])
            if self.swad is not None:
                self.swad.load_state(state["swad"], self.device)
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

    def outcome(self) -> Outcome:
        """How it ended; the method carries what is kept from now on."""
        self._carry_what_is_kept()
        self.method.eval()
        best, scores = self.selector.best_epoch, self._best_scores
        if self.swad is not None or scores is None:
            evidence = self.evidence()
            scores = evidence.scores
        world = self.fabric.world_size
        notes = tuple(self.method.notes())
        for mixing in (self.mixing, self.fourier):
            notes += () if mixing is None else mixing.notes(world)
        if self.swad is not None:
            notes += (self.swad.note,)
        return Outcome(
            best_epoch=0 if best is None else best,
            epochs=self.place.epoch,
            stopped="early" if self.place.stopped and self.place.epoch < self.settings.epochs else "all epochs",
            seconds=self.place.seconds,
            validation=scores,
            selection_score=self.selector.best if self.swad is None else self.fabric.broadcast(self.rule(evidence)),
            averaged=None if self.swad is None else self.swad.interval,
            notes=notes,
        )

    def _carry_what_is_kept(self) -> None:
        """The weights of the best epoch, or the average; batch norms and gates then look at training inputs again."""
        if self.swad is None:
            assert self.best is not None
            self.method.load_state_dict(self.best)
            return
        self.swad.apply(self.method)
        with evaluating(self.method):
            # Twice: gates of the raw input decide what norms see, and norms what gates of early blocks see.
            self.method.renew(self._looks, epoch=self.place.epoch, optimizer=None)
            self._renew_norms()
