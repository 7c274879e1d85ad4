"""Callbacks are called in their order, keep their state over an interruption, and cost nothing where they are off."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import gated_domains.training
from gated_domains.training.callbacks.base import Callback, MetricsWriter, ProgressCallback
from gated_domains.training.callbacks.checkpoint import Checkpoint
from gated_domains.training.trainer import Trainer
from small_trainings import Records, build, cpu, material, training, vectors

EPOCH = ["epoch_start", "step_end", "step_end", "validation_start", "validation_end", "epoch_end"]


@pytest.fixture
def data():
    return material(vectors(120), train=80, validation=30)


def trainer(data, *callbacks: Callback, epochs: int = 2) -> Trainer:
    """A training of two steps an epoch."""
    made = training(build("erm", data.dataset), data, batch_size=40, epochs=epochs)
    return Trainer(made.method, data, made.settings, fabric=cpu(), seed=0, rule=made.rule, callbacks=callbacks)


class Noting(Callback):
    """Notes every hook, with the epochs and steps that the trainer has done."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int, int]] = []


def _noting(hook: str):
    return lambda self, trainer, *arguments: self.heard.append((hook, trainer.epoch, trainer.step))


for _hook in ("fit_start", *dict.fromkeys(EPOCH), "fit_end"):
    setattr(Noting, f"on_{_hook}", _noting(_hook))


def test_every_hook_is_called_in_the_order_of_the_loop(data):
    noting = Noting()
    trainer(data, noting).fit()
    assert [hook for hook, _, _ in noting.heard] == ["fit_start", *EPOCH, *EPOCH, "fit_end"]
    counts = {hook: [(epoch, step) for heard, epoch, step in noting.heard if heard == hook] for hook in EPOCH}
    assert counts["step_end"] == [(0, 1), (0, 2), (1, 3), (1, 4)]
    assert counts["validation_end"] == [(0, 2), (1, 4)]
    assert counts["epoch_end"] == [(1, 2), (2, 4)]


def test_validation_is_seen_with_the_score_of_the_record(data):
    class Scores(Callback):
        def on_validation_end(self, trainer, evidence, score):
            seen.append((evidence.epoch, score, evidence.scores.as_json()))

    seen, journal = [], Records()
    trainer(data, Scores(), MetricsWriter(journal)).fit()
    assert seen == [(record["epoch"], record["selection"], record["validation"]) for record in journal]


def test_a_callback_can_end_the_training_after_an_epoch(data):
    class Enough(Callback):
        def on_validation_end(self, trainer, evidence, score):
            trainer.should_stop = True

    outcome = trainer(data, Enough(), epochs=5).fit()
    assert (outcome.epochs, outcome.stopped) == (1, "early")


def test_progress_is_told_steps_and_epochs(data):
    class Lines(ProgressCallback):
        def on_step(self, step, steps, *, worker=0):
            told.append((step, steps))

        def on_epoch(self, record, *, worker=0):
            told.append(record["epoch"])

    told = []
    trainer(data, Lines()).fit()
    assert told == [(1, 4), (2, 4), 0, (3, 4), (4, 4), 1]


def test_a_callback_keeps_its_state_over_an_interruption_wherever_the_checkpoint_stands(data, tmp_path):
    class Count(Callback):
        def __init__(self, end: int | None = None) -> None:
            self.steps, self.end = 0, end

        def on_step_end(self, trainer):
            if self.steps == self.end:
                raise KeyboardInterrupt
            self.steps += 1

        def state_dict(self):
            return {"steps": self.steps}

        def load_state_dict(self, state):
            self.steps = state["steps"]

    with pytest.raises(KeyboardInterrupt):
        trainer(data, Checkpoint(tmp_path, seconds=0.0), Count(end=3)).fit()
    count = Count()
    again = trainer(data, Checkpoint(tmp_path, seconds=0.0), count)
    again.fit()
    assert again.resumed
    assert count.steps == again.step == 4


def test_what_writes_or_shows_is_left_out_in_all_processes_but_the_first(data, monkeypatch):
    given = Noting(), MetricsWriter(Records()), ProgressCallback()
    assert set(given) <= set(trainer(data, *given).callbacks)
    monkeypatch.setattr(type(cpu()), "is_global_zero", False)
    assert set(given) & set(trainer(data, *given).callbacks) == {given[0]}


def test_a_training_enters_no_module_of_what_is_off(data, tmp_path):
    folder, entered = Path(gated_domains.training.__file__).parent, set()

    def note(frame, event, argument) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(folder):
            entered.add(path.relative_to(folder).with_suffix("").as_posix())

    made = trainer(data, MetricsWriter(Records()), ProgressCallback(), Checkpoint(tmp_path))
    sys.setprofile(note)
    try:
        made.fit()
    finally:
        sys.setprofile(None)
    callbacks = {f"callbacks/{name}" for name in ("base", "stopping", "checkpoint")}
    core = {"trainer", "optimizers", "engine", "prediction", "training_data"}
    assert entered <= callbacks | core
