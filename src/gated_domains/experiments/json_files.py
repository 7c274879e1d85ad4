"""JSON on disk: written whole, read with a word on what to do when it is damaged."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from gated_domains.data.errors import DataError, first_line
from gated_domains.data.files import written_whole


def write_json(path: str | os.PathLike[str], obj: Any) -> None:
    """Write plain values whole or not at all; NaN and infinity, which JSON does not know, become null."""
    text = json.dumps(jsonable(obj), indent=2, allow_nan=False)
    with written_whole(path) as draft:
        draft.write_text(text + "\n", "utf-8")


def read_json(path: str | os.PathLike[str], *, cure: str) -> Any:
    """What a JSON file holds; a damaged one is a DataError that ends with the cure."""
    return parsed_json(Path(path).read_bytes(), where=str(path), cure=cure)


def parsed_json(text: bytes, *, where: str, cure: str) -> Any:
    """What some JSON says, the errors naming where it stands."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: {first_line(error)}; it is cut short or damaged: {cure}") from error


def jsonable(obj: Any) -> Any:
    """The same in what JSON knows: numpy's numbers as numbers, tuples as lists, NaN and infinity as None."""
    if isinstance(obj, Mapping):
        return {str(key): jsonable(value) for key, value in obj.items()}
    if isinstance(obj, (list, tuple)):
        return [jsonable(value) for value in obj]
    if isinstance(obj, np.ndarray):
        return jsonable(obj.tolist())
    if isinstance(obj, np.generic):
        return jsonable(obj.item())
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else None
    return os.fspath(obj) if isinstance(obj, os.PathLike) else obj


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
