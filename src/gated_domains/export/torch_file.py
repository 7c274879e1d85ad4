"""A model as a program of torch.export, which torch loads without any of our code."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram

from gated_domains.export.graph import tensors
from gated_domains.export.onnx_file import FORMAT

ABOUT_FILE = "gated_domains.json"
"""Beside the program inside the file: all we say of it; ``torch.export.load(file, extra_files={ABOUT_FILE: ""})``."""


def write_program(program: ExportedProgram, path: Path, *, about: Mapping[str, Any]) -> None:
    """Write the program, with all we say of it beside it in the same file."""
    said = json.dumps({"format": FORMAT, **about}, allow_nan=False)
    with warnings.catch_warnings():
        # Of weights with channels last, which torch writes and reads as they are.
        warnings.filterwarnings("ignore", "No complete tensor found")
        torch.export.save(program, path, extra_files={ABOUT_FILE: said})


def run_program(
    program: ExportedProgram, outputs: Sequence[str]
) -> Callable[[Mapping[str, NDArray[Any]]], dict[str, NDArray[Any]]]:
    """The program as a function of arrays by name."""
    module = program.module()

    def run(inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        with torch.no_grad():
            said = module(*tensors(inputs))
        return {name: value.numpy() for name, value in zip(outputs, said, strict=True)}

    return run
