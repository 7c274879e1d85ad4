"""Settings: frozen, typed, unknown keys refused, and what is wrong with them said in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from gated_domains.data.errors import DataError, first_line
from gated_domains.settings.complaints import complaints, shown
from gated_domains.settings.plain_yaml import from_yaml, to_yaml

__all__ = ["Settings", "from_yaml", "parsed", "plain", "to_yaml"]

_MOST = 8


class Settings(BaseModel):
    """The base of every group of settings. A bool or "3" is no number; a whole number will do for a float.

    A union of groups is told apart by a field ``name``: ``Annotated[A | B, Field(discriminator="name")]``.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True, protected_namespaces=()
    )


S = TypeVar("S", bound=Settings)


def parsed(kind: type[S], fields: Mapping[str, Any], where: str) -> S:
    """Settings of a kind from plain fields; a DataError lists all that is wrong with them. ``where``: who said so."""
    try:
        # As JSON, where strict means what people mean: a list will do for a tuple, and a mapping for settings.
        return kind.model_validate_json(json.dumps(dict(fields), default=_plain_value))
    except ValidationError as error:
        wrong = complaints(kind, error)
    except (TypeError, ValueError, RecursionError) as error:
        wrong = [first_line(error)]
    before = f"{where}: " if where else ""
    if len(wrong) == 1:
        raise DataError(before + wrong[0])
    more = [f"and {len(wrong) - _MOST} more"] if len(wrong) > _MOST else []
    raise DataError("\n  ".join([f"{before}{len(wrong)} settings are wrong", *wrong[:_MOST], *more]))


def plain(settings: Settings) -> dict[str, Any]:
    """The settings as JSON knows them, all defaults written out."""
    # As whatever they are: a field typed by a base class would lose what the settings in it add.
    return settings.model_dump(mode="json", serialize_as_any=True)


def _plain_value(value: object) -> object:
    if isinstance(value, Settings):
        return plain(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(
        f"{shown(value)} is of the kind {type(value).__name__}; settings are text, numbers, lists and mappings"
    )
