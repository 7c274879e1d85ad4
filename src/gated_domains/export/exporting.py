"""A trained model -> a file that needs none of our code, checked against the model, and a card beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gated_domains.data.errors import DataError, expanded, written_whole
from gated_domains.experiments.model import Model
from gated_domains.export.card import TITLE, model_card
from gated_domains.export.examples import drawn
from gated_domains.export.facts import facts_of
from gated_domains.export.feeds import feeds_of
from gated_domains.export.graph import Served, output_names, traced
from gated_domains.export.onnx_file import Session, onnx_content, onnx_packages
from gated_domains.export.parity import SIZES, Run, check_parity
from gated_domains.export.real_rows import rows_like, rows_of_training
from gated_domains.export.subject import Gates, Subject, subject_of_estimator, subject_of_model
from gated_domains.export.torch_file import run_program, write_program
from gated_domains.runs.folder import RUN, open_run_folder

To = Literal["onnx", "torch"]
SUFFIXES: dict[To, str] = {"onnx": ".onnx", "torch": ".pt2"}


@dataclass(frozen=True)
class Exported:
    """What was written, and how far it is from the trained model."""

    path: Path
    card: Path
    difference: float


def export_model(
    source: Any,
    out: str | os.PathLike[str],
    *,
    to: To = "onnx",
    gates: Gates | None = None,
    scores: Mapping[str, float] | None = None,
    like: str | os.PathLike[str] | None = None,
    say: Callable[[str], None] = lambda step: None,
) -> Exported:
    """Export a run's folder, a ``Model``, a saved estimator's folder or a fitted estimator, with a card beside it.

    ``gates`` by sample or by batch are fixed in the file. ``scores`` are of domains that the model never saw, for the
    card of a model that has no run to take them from. The file is compared with the model on samples drawn by chance
    and on data ``like`` those of training (of a run on its own, where they are at hand); where they differ by more than
    1e-5, none is written (what is allowed coverage besides, see ``check_parity``).
    """
    if to not in SUFFIXES:
        raise DataError(f"models are exported to onnx or torch, got {to!r}")
    path = _checked_path(expanded(out), to)
    if to == "onnx":
        onnx_packages()  # before anything takes time
    subject = subject_of(source, gates=gates)
    feeds, example = feeds_of(subject.schema.encoding, exact=subject.exact), drawn(subject, 5)
    graph = Served(subject)
    outputs = output_names(graph, example)
    program = traced(graph, example, feeds=feeds)
    say(f"traced: {', '.join(feed.name for feed in feeds)} -> {', '.join(outputs)}")
    about = about_model(subject, feeds=[feed.describe() for feed in feeds], outputs=outputs)
    if to == "onnx":
        content = onnx_content(program, feeds=feeds, outputs=outputs, about=about)
        run: Run = Session(content)
    else:
        content, run = None, run_program(program, outputs)
    facts = facts_of(subject.folder, scores=scores)
    real = rows_like(subject, like) if like is not None else rows_of_training(subject)
    parity = check_parity(subject, run, rows=real, what=f"{to} model")
    on = "samples drawn by chance (--like DATA takes real ones)" if real is None else "real samples and drawn ones"
    say(f"checked: largest difference {parity} at batch {', '.join(map(str, SIZES))}, on {on}")
    card = model_card(subject, path=path, feeds=feeds, outputs=outputs, parity=parity, facts=facts)
    with written_whole(path) as draft:
        if content is None:
            write_program(program, draft, about=about)
        else:
            draft.write_bytes(content)
    with written_whole(card_path(path)) as draft:
        draft.write_text(card, "utf-8")
    say(f"wrote {path} ({path.stat().st_size:,} bytes) and {card_path(path)}")
    return Exported(path, card_path(path), parity.coverage or parity.difference)


def card_path(path: Path) -> Path:
    """The card of a file, by its whole name: a model may lie there both as ONNX and as a program."""
    return path.with_name(f"{path.name}.md")


def subject_of(source: Any, *, gates: Gates | None) -> Subject:
    """What is exported, of whatever stands for it."""
    if gates not in (None, "sample", "batch"):
        raise DataError(f"gates are by sample or by batch, got {gates!r}; a stream has a memory, and a graph has none")
    if isinstance(source, Model):
        return subject_of_model(source, gates=gates)
    if isinstance(source, str | os.PathLike):
        from gated_domains.estimators import CARD, load_estimator

        folder = expanded(source)
        if folder.is_file():
            raise DataError(f"{folder} is a file; give the folder of a run, or that of estimator.save(folder)")
        if (folder / CARD).is_file() and not (folder / RUN).is_file():
            return subject_of_estimator(load_estimator(folder), gates=gates)
        run = open_run_folder(folder)
        return subject_of_model(Model.load(run.path), gates=gates, folder=run.path)
    if hasattr(source, "network_"):
        return subject_of_estimator(source, gates=gates)
    hint = "fit it first" if hasattr(source, "fit") else "give a run's folder, or a fitted estimator"
    raise DataError(f"{type(source).__name__} is no trained model; {hint}")


def about_model(subject: Subject, *, feeds: list[dict[str, Any]], outputs: tuple[str, ...]) -> dict[str, Any]:
    """What a file says of itself, as plain JSON: all that is needed to read data for it."""
    from gated_domains import __version__

    return {
        "gated_domains": __version__,
        "kind": subject.kind,
        "method": subject.name,
        "schema": subject.schema.describe(),
        "temperature": subject.temperature,
        "gates": subject.gates,
        "inputs": feeds,
        "outputs": list(outputs),
        "numbers": subject.numbers,
        "trained_on": dict(subject.trained_on),
    }


def _checked_path(path: Path, to: To) -> Path:
    """The path, refused where something else would be lost: a person may have notes of their own."""
    suffix, card = SUFFIXES[to], card_path(path)
    if path.suffix.lower() != suffix:
        raise DataError(f"{path}: a model exported to {to} is a file {suffix}, not {path.suffix or 'without suffix'!r}")
    for written in (path, card):
        if written.is_dir():
            raise DataError(f"{written} is a folder; choose another --out")
    if card.exists() and not card.read_bytes().startswith(TITLE.encode()):
        raise DataError(
            f"{card} is there and is no model card, and the card would take its place; choose another --out"
        )
    return path
