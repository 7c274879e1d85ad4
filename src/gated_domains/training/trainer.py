"""The training loop: one epoch after the other, on Lightning Fabric; all other behaviour is in callbacks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.backbones.backbone import evaluating
from gated_domains.data.batches import DomainBatch
from gated_domains.data.inputs import Rows
from gated_domains.data.labels import groups_among
from gated_domains.data.sampling import InOrder, Sampler, Shared, sampler_for
from gated_domains.evaluation.metrics import Evidence, SelectionRule, metric_for
from gated_domains.evaluation.scores import DomainScores, Scorer
from gated_domains.methods.method import Method, Terms
from gated_domains.runs.recipe import TrainingSettings
from gated_domains.training.callbacks.base import Callback
from gated_domains.training.callbacks.checkpoint import Checkpoint, rng_state, set_rng_state
from gated_domains.training.callbacks.stopping import EarlyStopping, NonFiniteCheck, NotFiniteError, ReduceOnPlateau
from gated_domains.training.callbacks.swad import SWAD
from gated_domains.training.engine import as_computed, from_all, from_first
from gated_domains.training.optimizers import UpdateStep
from gated_domains.training.prediction import predict_rows
from gated_domains.training.training_data import LARGE_BATCH, TrainingData, has_large_body, sample_inputs

MEASURED = 500  # validation rows that curves of gates are drawn from


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a training ended; the method carries the weights of the best epoch, or with ``swad`` an average.

    Attributes
    ----------
    best_epoch
        The epoch with the best score under the selection rule, from 0.
    epochs
        Epochs that were trained.
    stopped
        Why it ended: "early" or "all epochs".
    seconds
        How long it took, over all interruptions.
    validation
        The validation scores of the weights that are kept; None if they are still to be computed.
    selection_score
        Their score under the selection rule; higher is better.
    averaged
        The first and the last step whose weights were averaged, from 0; None where those of one were kept.
    notes
        What a reader of the result should know of the training.
    """

    best_epoch: int
    epochs: int
    stopped: str
    seconds: float
    validation: DomainScores | None
    selection_score: float | None = None
    averaged: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()


class Trainer:
    """Trains one method on one data set: a plain loop, and callbacks for everything else.

    Parameters
    ----------
    method
        What is trained. It is moved to the device of ``fabric``.
    data
        The samples, with the rows to train on and those to validate on.
    settings
        Epochs, batch size, optimizer, schedule, and the switches that go with every method (EMA, SWAD, mixing).
    fabric
        Device, precision and processes; see `Hardware.fabric`.
    seed
        Random seed of the order of samples.
    rule
        The selection rule: which epoch is kept.
    scorer
        Scores validation predictions; by default with the usual metric of the task.
    callbacks
        Further behaviour, such as `Checkpoint`, `MetricsWriter` or a `ProgressCallback`.
    compiled
        Whether torch.compile makes the objective, where it can be one graph.

    Attributes
    ----------
    epoch, step, batch : int
        Epochs and steps done so far, and batches of the current epoch.
    total_steps : int
        Steps of a training that does not stop early.
    should_stop : bool
        Set by a callback to end the training after the current epoch.
    terms : dict of str to Tensor
        The terms of the last loss.
    resumed : bool
        Whether the training continues from a checkpoint.

    Examples
    --------
    >>> fabric = Hardware(device="cpu").fabric("32")
    >>> rule = SELECTION_RULES["source_validation"]
    >>> trainer = Trainer(method, data, TrainingSettings(epochs=5), fabric=fabric, seed=0, rule=rule)
    >>> outcome = trainer.fit()
    """

    def __init__(
        self,
        method: Method,
        data: TrainingData,
        settings: TrainingSettings,
        *,
        fabric: Fabric,
        seed: int,
        rule: SelectionRule,
        scorer: Scorer | None = None,
        callbacks: Sequence[Callback] = (),
        compiled: bool = False,
    ) -> None:
        self.method, self.data, self.settings = method, data, settings
        self.fabric, self.seed, self.rule = fabric, seed, rule
        self.scorer = scorer or Scorer(dataset=data.dataset, metric=metric_for(data.dataset.task))
        self.epoch = self.batch = self.step = self.rate_drops = 0
        self.seconds, self._began = 0.0, time.monotonic()
        self.should_stop = self.resumed = False
        self.terms: Terms = {}
        self.sums: dict[str, Tensor] = {}
        self.losses: list[float] = []
        self.device = fabric.device
        method.to(self.device)
        self.large = has_large_body(method)
        self.update = UpdateStep(method, data, settings, fabric=fabric, compiled=compiled)
        groups = groups_among(data.dataset, data.train, settings.group_by)
        self.sampler = self._sampler(None if groups is None else groups.index)
        mixing = self.update.mixing
        needed = method.uses_domains or (mixing is not None and mixing.mixer.needs_domains)
        self.groups = torch.from_numpy(groups.index).to(self.device) if groups is not None and needed else None
        self.total_steps = settings.epochs * len(self.sampler)
        patience = settings.patience if rule.stop_early else None
        self.swad: SWAD | None = None
        self.early_stopping = EarlyStopping(patience)
        if settings.swad:  # keeps an average instead of the best weights, and knows when nothing more is averaged
            self.swad = SWAD(segments=settings.swad_segments, stops_early=patience is not None)
            self.early_stopping = EarlyStopping(restore_best_weights=False)
        self.callbacks = self._ordered(callbacks)

    # The loop.

    def fit(self) -> Outcome:
        """Train until no epoch is left or a callback stops it; resume where an earlier call was interrupted.

        Returns
        -------
        Outcome
            How it ended. The method carries the weights that are kept.
        """
        try:
            self._start()
            while self.epoch < self.settings.epochs and not self.should_stop:
                self._begin_epoch()
                for batch in self._batches():
                    self._train_step(batch)
                record = self._validate()
                self._end_epoch(record)
            return self._finish()
        finally:
            self.update.release()

    def _start(self) -> None:
        began = time.monotonic()
        self.resumed = any(callback.resume(self) for callback in self.callbacks)
        if not self.resumed:
            with evaluating(self.method):
                self.method.prepare(self.sample_inputs)
        self._began = began - self.seconds
        self.notify("on_fit_start")

    def _begin_epoch(self) -> None:
        if self.batch == 0:  # an interrupted epoch is resumed without
            self.method.train()
            with ExitStack() as around:
                for callback in self.callbacks:
                    around.enter_context(callback.refitting(self))
                self.method.renew(self.sample_inputs, epoch=self.epoch, optimizer=self.update.optimizer)
        self.method.train()
        self.notify("on_epoch_start")

    def _batches(self) -> Iterator[DomainBatch]:
        """The batches of this epoch that are left; a method that does not use domains never gets them."""
        batches = self.data.samples.batches(self.sampler, self.epoch, start=self.batch, groups=self.groups)
        return batches if self.groups is not None else (batch.without_domains() for batch in batches)

    def _train_step(self, batch: DomainBatch) -> None:
        self.terms = self.update(batch, step=self.step, steps=self.total_steps, drops=self.rate_drops)
        for name, term in self.terms.items():
            value = term.to(torch.float64, copy=True)  # a recorded step writes the next one in its place
            self.sums[name] = self.sums[name] + value if name in self.sums else value
        self.step, self.batch = self.step + 1, self.batch + 1
        self.notify("on_step_end")

    def _validate(self) -> dict[str, Any]:
        """The record of the epoch, after callbacks have seen its validation."""
        self.notify("on_validation_start")
        with self.evaluation_mode():
            evidence = self.evaluate()
            score = self.fabric.broadcast(self.rule(evidence))
            self.notify("on_validation_end", evidence, score)
            return self._record(evidence.scores, score)

    def _end_epoch(self, record: dict[str, Any]) -> None:
        self.losses.append(sum(record["train"].values()))
        self.epoch, self.batch, self.sums = self.epoch + 1, 0, {}
        self.seconds = time.monotonic() - self._began
        self.notify("on_epoch_end", record)

    def _finish(self) -> Outcome:
        self.notify("on_fit_end")
        self.method.eval()
        scores, score = self.early_stopping.scores, self.early_stopping.selector.best
        if scores is None:  # of an average, or of weights that a checkpoint had
            evidence = self.evaluate()
            scores = evidence.scores
            score = score if self.swad is None else self.fabric.broadcast(self.rule(evidence))
        return Outcome(
            best_epoch=self.early_stopping.selector.best_epoch or 0,
            epochs=self.epoch,
            stopped="early" if self.should_stop and self.epoch < self.settings.epochs else "all epochs",
            seconds=self.seconds,
            validation=scores,
            selection_score=score,
            averaged=None if self.swad is None else self.swad.interval,
            notes=(*self.method.notes(), *self.update.notes(), *([] if self.swad is None else [self.swad.note])),
        )

    def notify(self, hook: str, *arguments: Any) -> None:
        """Call a hook of every callback, in their order."""
        for callback in self.callbacks:
            getattr(callback, hook)(self, *arguments)

    # Evaluation.

    @contextmanager
    def evaluation_mode(self) -> Iterator[None]:
        """Inside, the method is in eval mode, with the weights and statistics that are validated."""
        with ExitStack() as inside:
            for callback in self.callbacks:
                inside.enter_context(callback.evaluation_weights(self))
            inside.enter_context(evaluating(self.method))
            # Running statistics are of each process's own share; those of the first are kept, so they are validated.
            from_first(self.fabric, self.method.buffers())
            self.method.renew(self.sample_inputs, epoch=self.epoch, optimizer=None)
            for callback in self.callbacks:
                inside.enter_context(callback.evaluation_statistics(self))
            yield

    def predict_validation(self) -> NDArray[Any]:
        """The predictions of the method, as it is now, for the validation rows."""
        return predict_rows(self.method, self.data.samples, self.data.validation, fabric=self.fabric).output

    def evaluate(self) -> Evidence:
        """The predictions of the method, as it is now, for the validation rows, and their scores."""
        dataset, rows = self.data.dataset, self.data.validation
        output = self.predict_validation()
        if not np.isfinite(output).all():
            raise NotFiniteError(
                f"after epoch {self.epoch + 1} predictions are NaN or infinite, though the loss was finite: weights "
                f"have grown out of range; lower the learning rate, {self.settings.rate:g}"
            )
        scores = self.scorer(output, rows)
        return Evidence(epoch=self.epoch, output=output, targets=dataset.targets[rows], scores=scores)

    def _record(self, validation: DomainScores, score: float) -> dict[str, Any]:
        """The numbers of the epoch, as they are logged."""
        sums = torch.stack(list(self.sums.values())) / len(self.sampler)
        means = cast(Tensor, self.fabric.all_reduce(sums, reduce_op="mean")).tolist()
        with self.fabric.autocast():
            measures = self.method.measures(self._measured_inputs())
        return {
            "epoch": self.epoch,
            "step": self.step,
            "seconds": round(time.monotonic() - self._began, 3),
            "rate": float(self.update.optimizer.param_groups[0]["lr"]),
            "train": dict(zip(self.sums, means, strict=True)),
            "validation": validation.as_json(),
            "selection": score,
            "measures": measures,
        }

    def _measured_inputs(self) -> Tensor:
        """Validation inputs that curves of gates are drawn from."""
        rows, most = self.data.validation, LARGE_BATCH if self.large else MEASURED
        chosen = rows[:: max(1, len(rows) // most)][: 2 * most]
        (inputs,) = self.data.samples.input_batches(InOrder(chosen, len(chosen)))
        return as_computed(inputs, self.fabric)

    # State.

    def state_dict(self) -> dict[str, Any]:
        """All that `load_state_dict` needs to continue exactly. With several processes, all of them must call it."""
        self.seconds = time.monotonic() - self._began
        own = {"rng": rng_state(self.device), "sums": self.sums}
        every = {part: {name: from_all(self.fabric, t) for name, t in tensors.items()} for part, tensors in own.items()}
        return {
            "method": self.method.state_dict(),
            "optimizer": self.update.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "counters": {name: getattr(self, name) for name in _COUNTERS},
            "callbacks": {
                type(callback).__name__: state for callback in self.callbacks if (state := callback.state_dict())
            },
            "world": self.fabric.world_size,
            "every": every,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.method.load_state_dict(state["method"])
        self.update.load_optimizer(state["optimizer"])
        for callback in self.callbacks:
            callback.load_state_dict(state["callbacks"].get(type(callback).__name__, {}))
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        for name in _COUNTERS:
            setattr(self, name, state["counters"][name])
        rank = self.fabric.global_rank
        # Copies: of a view torch.set_rng_state reads the wrong memory, and ends the process.
        own = {part: {name: t[rank].clone() for name, t in tensors.items()} for part, tensors in state["every"].items()}
        self.sums = {name: value.to(self.device) for name, value in own["sums"].items()}
        set_rng_state(own["rng"], self.device)

    # What a training consists of.

    def _ordered(self, callbacks: Sequence[Callback]) -> list[Callback]:
        """The callbacks that settings ask for, then those given, and checkpoints last; on other processes not all."""
        settings = self.settings
        wanted: list[Callback | None] = [NonFiniteCheck(), self.update.ema, self.update.teacher, self.swad]
        if settings.schedule == "plateau":
            wanted.append(ReduceOnPlateau(settings.drop_after, watches=settings.plateau_on))
        own = [callback for callback in (*wanted, self.early_stopping) if callback is not None]
        last = [callback for callback in callbacks if isinstance(callback, Checkpoint)]
        given = [callback for callback in callbacks if not isinstance(callback, Checkpoint)]
        return [each for each in (*own, *given, *last) if self.fabric.is_global_zero or not each.rank_zero_only]

    def _sampler(self, groups: Rows | None) -> Sampler:
        settings = self.settings
        whole = sampler_for(
            self.method.sampling if settings.sampling == "auto" else settings.sampling,
            self.data.train,
            domains=groups,
            batch_size=settings.batch_size,
            seed=self.seed,
            blocks=settings.groups_per_batch,
            repeat_rows=settings.repeat_rows,
        )
        world = self.fabric.world_size
        return whole if world == 1 else Shared(whole, self.fabric.global_rank, world)

    def sample_inputs(self) -> Iterator[Tensor]:
        """Training inputs for a method to prepare or refit itself on: all, or as many as are enough."""
        return (as_computed(inputs, self.fabric) for inputs in sample_inputs(self.data, self.seed, large=self.large))


_COUNTERS = ("epoch", "batch", "step", "seconds", "losses", "should_stop", "rate_drops")  # all that is a plain number
