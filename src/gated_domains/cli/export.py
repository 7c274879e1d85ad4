"""``gated-domains export``: a trained model as a file that needs none of our code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from gated_domains.data.errors import DataError, did_you_mean

_NAMES = {"onnx": Path("model.onnx"), "torch": Path("model.pt2")}
_GATES = ("sample", "batch")


def export(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="The folder of a run, or its first letters, or that of estimator.save."),
    ],
    to: Annotated[str, typer.Option(help="onnx, or torch: a program of torch.export.")] = "onnx",
    out: Annotated[Path | None, typer.Option(help="The file; model.onnx or model.pt2 by default.")] = None,
    gates: Annotated[
        str | None,
        typer.Option(help="sample, or batch: every batch is of one domain; fixed in the file. As trained by default."),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Data to compare it on; of a run its training data, where they are at hand."),
    ] = None,
) -> None:
    """Write a trained model as one file, checked against it, with a model card beside it."""
    kind: Any = _known(to, _NAMES, "--to")
    chosen: Any = None if gates is None else _known(gates, _GATES, "--gates")
    from gated_domains.export.exporting import export_model

    console = Console()
    export_model(
        model,
        out or _NAMES[kind],
        to=kind,
        gates=chosen,
        like=like,
        say=lambda step: console.print(Text(step), soft_wrap=True),
    )


def _known(said: str, names: Any, option: str) -> str:
    if said not in names:
        raise DataError(f"{option} cannot be {said!r}{did_you_mean(said, names)}")
    return said
