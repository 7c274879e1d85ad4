"""Options that several commands share: how data are read, how long is trained, on what, and where it goes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gated_domains.data.labels import Reading

What = Annotated[str, typer.Argument(metavar="DATA", help="A name (see `data list`), a file, a folder, a .yaml card.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder of data sets; else $GATED_DOMAINS_DATA, else the cache.")]
Track = Annotated[
    str | None, typer.Option(metavar="NAMES", help="Track trainings with tensorboard, mlflow, or both: a,b.")
]
Report = Annotated[
    bool, typer.Option("--report/--no-report", help="Write report.html, with every figure and table beside it.")
]
Margin = Annotated[
    float | None,
    typer.Option(
        help="Margin within which two methods are practically equal, in the units that differences are printed in; by "
        "default 0.5 for scores in percent, none for others."
    ),
]
Seed = Annotated[int, typer.Option(help="Random seed.", min=0)]

Command = Callable[..., None]


def _option(kind: Any, text: str, panel: str, *, names: tuple[str, ...] = (), **more: Any) -> Any:
    return Annotated[kind | None, typer.Option(*names, help=text, rich_help_panel=panel, **more)]


_READING_PANEL, _TRAINING_PANEL, _HARDWARE_PANEL = "How to read the data", "How to train", "On what"
_PROTOCOL_PANEL, _NETWORK_PANEL = "How to select and score", "What network"
_EXECUTOR_PANEL = "How many at a time"
_READING_TEXTS = {
    "target": "Column to be predicted.",
    "domain": "Column that names the domain.",
    "positive": "Target values that make the positive class: 1,2,3.",
    "categorical": "Columns of names that are written as numbers: a,b.",
    "drop": "Columns to leave out: a,b.",
    "metadata": "Columns to keep beside the inputs: a,b.",
    "keep_together": "Column (a patient) whose groups are never divided.",
    "task": "classification or regression; found out by default.",
}
_READING: dict[str, Any] = {
    **{name: _option(str, text, _READING_PANEL) for name, text in _READING_TEXTS.items()},
    "drop_missing_target": _option(
        bool, "Leave out rows of a table without a target.", _READING_PANEL, names=("--drop-missing-target",)
    ),
    "image_size": _option(int, "Side in pixels that images are fitted to.", _READING_PANEL),
    "text": _option(str, "Column of texts.", _READING_PANEL),
    "smiles": _option(
        str, "Column of molecules, as SMILES; --domain scaffold then makes domains of them.", _READING_PANEL
    ),
    "form": _option(
        str,
        "Texts as words (default), tokens or embeddings; molecules as fingerprints (default) or graphs.",
        _READING_PANEL,
        names=("--as",),
    ),
    "tokens": _option(int, "Most tokens of a text, for --as tokens.", _READING_PANEL),
    "tokenizer": _option(
        str, "Folder or name of a tokenizer; else a vocabulary is made of the training texts.", _READING_PANEL
    ),
    "fraction": _option(float, "Share of the rows to take, for a first try.", _READING_PANEL),
}
_LISTS = ("positive", "categorical", "drop", "metadata")

_TRAINING: dict[str, Any] = {
    "epochs": _option(int, "At most this many; 30 for images, 20 for vectors, 60 for few of them.", _TRAINING_PANEL),
    "batch_size": _option(int, "Samples a step; 128 for images, 256 for vectors, 64 for few rows.", _TRAINING_PANEL),
    "rate": _option(float, "Learning rate; 0.001 by default.", _TRAINING_PANEL),
    "optimizer": _option(str, "adamw, adam or sgd.", _TRAINING_PANEL),
    "weight_decay": _option(float, "Of all weights; 0 by default.", _TRAINING_PANEL),
    "schedule": _option(str, "Learning rate: cosine, linear, constant, step or plateau.", _TRAINING_PANEL),
    "decay": _option(float, "What step and plateau multiply the learning rate by; 0.96 by default.", _TRAINING_PANEL),
    "drop_after": _option(int, "Epochs without a better score after which plateau does so; 10.", _TRAINING_PANEL),
    "plateau_on": _option(str, "What plateau waits for: a better score, or a lower loss.", _TRAINING_PANEL),
    "warmup": _option(float, "Epochs over which the learning rate rises from 0.", _TRAINING_PANEL),
    "accumulate": _option(
        int, "Parts that a batch is cut into, to save memory; the update is the same.", _TRAINING_PANEL
    ),
    "checkpoint_activations": _option(
        bool, "Compute the activations of a large network twice rather than keep them.", _TRAINING_PANEL
    ),
    "augment": _option(
        str,
        "Images: none, flips, turns (by right angles too), or photos (random crops, flips, brightness, contrast).",
        _TRAINING_PANEL,
    ),
    "patience": _option(
        int,
        "Epochs without a better validation score that end a training, for the schedules constant, step and plateau; "
        "0: never, the default.",
        _TRAINING_PANEL,
    ),
    "ema": _option(float, "Average weights with this decay, 0.999 say.", _TRAINING_PANEL),
    "swad": _option(bool, "Average weights over the flat valley of the validation loss.", _TRAINING_PANEL),
    "swad_segments": _option(
        int, "Evaluations of the validation loss per epoch for SWAD; 4 by default.", _TRAINING_PANEL
    ),
    "mixstyle": _option(float, "Mix styles in a batch with this probability, 0.5 say.", _TRAINING_PANEL),
    "fourier_mix": _option(
        float,
        "Probability of mixing the amplitude spectrum of an image with that of another one, for example 0.9.",
        _TRAINING_PANEL,
    ),
    "consistency": _option(
        float,
        "Weight of a loss between predictions on plain and mixed images and those of averaged weights, for example 1; "
        "needs --fourier-mix, and a step takes over twice as long.",
        _TRAINING_PANEL,
    ),
    "class_weights": _option(bool, "Weight classes inversely to their frequency.", _TRAINING_PANEL),
    "sampling": _option(
        str,
        "plain; balanced: equal shares of every domain; groups: blocks of a few domains; single: one domain a batch. "
        "By default what the method asks for.",
        _TRAINING_PANEL,
    ),
    "group_by": _option(
        str, "What stands for the domains in training: metadata columns, domain, class: a,b.", _TRAINING_PANEL
    ),
    "groups_per_batch": _option(int, "Domains in a batch of groups; 4, more of small ones.", _TRAINING_PANEL),
    "repeat_rows": _option(bool, "Fill blocks of small domains with the same rows again.", _TRAINING_PANEL),
    "precision": _option(str, "32, bf16, 16 or 64.", _TRAINING_PANEL),
}
_PROTOCOL: dict[str, Any] = {
    "selection": _option(
        str,
        "What chooses the epoch: source_validation (the mean over source domains, default), source_pooled (all their "
        "validation rows together), source_loss, official (of a published division), worst_class, out_of_domain, "
        "leave_one_source_out, last, or oracle, which looks at the held-out domain and is marked.",
        _PROTOCOL_PANEL,
    ),
    "validation_domain": _option(str, "Source domain that selects, for out_of_domain.", _PROTOCOL_PANEL),
    "validation": _option(float, "Share of the source rows to validate on; 0.2 by default.", _PROTOCOL_PANEL),
    "split_seed": _option(int, "Random seed of the train/validation split.", _PROTOCOL_PANEL),
    "metric": _option(
        str,
        "What is scored: accuracy, f1, auroc, average_precision, ece, log_loss; rmse, mse, pearson.",
        _PROTOCOL_PANEL,
    ),
    "score_by": _option(str, "Groups to score beside domains: metadata columns, domain, class: a,b.", _PROTOCOL_PANEL),
    "calibrate": _option(bool, "Fit a temperature to probabilities on source validation rows.", _PROTOCOL_PANEL),
}
_NETWORK: dict[str, Any] = {
    "pretrained": _option(
        str, "Published weights of the body: true (the usual cache), false, or a file; true where there are some.",
        _NETWORK_PANEL,
    ),
    "shrunk": _option(bool, "A few layers of the body, to test a pipeline.", _NETWORK_PANEL),
    "backbone": _option(str, "Folder of a run whose body is started from, or kept in fine-tuning.", _NETWORK_PANEL),
}  # fmt: skip
_PROTOCOL |= _NETWORK
_HARDWARE: dict[str, Any] = {
    "device": _option(str, "cpu or cuda; a GPU where there is one by default.", _HARDWARE_PANEL),
    "devices": _option(int, "How many, one process each (start with torchrun).", _HARDWARE_PANEL),
    "strategy": _option(str, "Of several processes: ddp.", _HARDWARE_PANEL),
    "compile": _option(
        bool,
        "Let torch.compile make each network: some ten seconds, then faster steps on a GPU.",
        _HARDWARE_PANEL,
        names=("--compile/--no-compile",),
    ),
}
_EXECUTOR: dict[str, Any] = {
    "executor": _option(str, "local: processes here; ray: a Ray cluster.", _EXECUTOR_PANEL),
    "workers": _option(int, "Processes here, one training each; as many as cores, 1 on a GPU.", _EXECUTOR_PANEL, min=1),
    "address": _option(str, "Of the Ray cluster; one is started here by default.", _EXECUTOR_PANEL),
    "cpus_per_run": _option(float, "Of the Ray cluster; 1 by default.", _EXECUTOR_PANEL),
    "gpus_per_run": _option(float, "Of the Ray cluster; 1 where there is a GPU here.", _EXECUTOR_PANEL),
    "retries": _option(int, "Of a training whose process is lost; 3 by default.", _EXECUTOR_PANEL, min=0),
}


def takes_reading(command: Command) -> Command:
    """Give a command the options of Reading; it gets them as one argument, ``reading``."""
    return _taking(command, "reading", _READING, _reading)


def takes_training(command: Command) -> Command:
    """Give a command the options of TrainingSettings; it gets those that were given as a dict, ``training``."""
    return _taking(command, "training", _TRAINING, _training)


def takes_protocol(command: Command) -> Command:
    """Give a command the options of network, selection and scoring; those that were given come as ``protocol``."""
    return _taking(command, "protocol", _PROTOCOL, _protocol)


def takes_hardware(command: Command) -> Command:
    """Give a command the options of Hardware; it gets those that were given as a dict, ``hardware``."""
    return _taking(command, "hardware", _HARDWARE, _given)


def takes_executor(command: Command) -> Command:
    """Give a command the options of choose_executor; it gets those that were given as a dict, ``executing``."""
    return _taking(command, "executing", _EXECUTOR, _given)


def _taking(command: Command, name: str, options: Mapping[str, Any], make: Callable[[dict[str, Any]], Any]) -> Command:
    """The command with options in place of its one argument of this name."""

    def run(**given: Any) -> None:
        command(**{name: make({option: given.pop(option) for option in options})}, **given)

    own = [entry for key, entry in inspect.signature(command, eval_str=True).parameters.items() if key != name]
    shared = [
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for option, kind in options.items()
    ]
    entries = [entry.replace(kind=inspect.Parameter.KEYWORD_ONLY) for entry in own] + shared
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(entries)  # type: ignore[attr-defined]
    run.__annotations__ = {entry.name: entry.annotation for entry in entries}
    return run


def _reading(given: dict[str, Any]) -> Reading:
    lists: dict[str, Any] = {name: tuple(_names(given[name])) for name in _LISTS if given[name] is not None}
    return Reading(**{name: value for name, value in _given(given).items() if name not in _LISTS}, **lists)


def _training(given: dict[str, Any]) -> dict[str, Any]:
    chosen = _listed(_given(given), "group_by")
    return {**chosen, "patience": None} if chosen.get("patience") == 0 else chosen


def _protocol(given: dict[str, Any]) -> dict[str, Any]:
    return _listed(_given(given), "score_by")


def _listed(given: dict[str, Any], name: str) -> dict[str, Any]:
    """With the names that one option lists apart."""
    return {**given, name: _names(given[name])} if name in given else given


def _given(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _names(written: str) -> list[str]:
    return [name.strip() for name in written.split(",") if name.strip()]
