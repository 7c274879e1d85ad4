"""Settings: frozen, typed, unknown keys refused, errors in words; and the YAML that they are read from.

The YAML has no surprises: 1e-3 is a number, ``no`` is a word, a key occurs once, and nothing in it is run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from gated_domains.data.errors import DataError, decoding, first_line
from gated_domains.settings.complaints import complaints, shown

__all__ = ["Settings", "from_yaml", "parsed", "plain", "to_yaml", "value_of"]

_MOST = 8
_LARGEST = 1 << 20
_FLOAT = r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+)"
_RESOLVED = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    # 007 stays the text it is: the name of a site, more likely than not.
    "int": (r"[-+]?(?:0|[1-9][0-9_]*)", list("-+0123456789")),
    "float": (rf"{_FLOAT}|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", list("-+.0123456789")),
}


class Settings(BaseModel):
    """The base of every group of settings. Bools and "3" are not numbers; an integer is accepted as a float.

    A field ``name`` tells which group of a union is meant: ``Annotated[A | B, Field(discriminator="name")]``.
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


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Plain values under names: no aliases (a few lines of them can stand for billions of entries), no key twice."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise _fault(
                "anchors and aliases (& and *) are not read; write the value out", self.peek_event().start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _fault("a name must be one word, not a list or a mapping", key.start_mark)
            if key.value in found:
                raise _fault(f"{key.value!r} is there twice; which is meant?", key.start_mark)
            # As it is written: a class called 1 or true keeps its name.
            found[key.value] = self.construct_object(value, deep=deep)
        return found


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Quotes whatever our loader or a usual one would take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _name, (_pattern, _first) in _RESOLVED.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(rf"(?:{_pattern})\Z"), _first)
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(rf"(?:{_FLOAT})\Z"), list("-+.0123456789"))


def from_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a YAML file says, as plain values under names. A DataError names the file and the line."""
    path = Path(path)
    with decoding(path):
        if path.stat().st_size > _LARGEST:
            raise DataError(
                f"{path}: {path.stat().st_size:,} bytes are too many for settings; is this the data itself?"
            )
        text = path.read_text("utf-8-sig")
    try:
        found = yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise DataError(f"{path}{_line(mark)}: {_problem(error)}") from error
    except RecursionError as error:
        raise DataError(f"{path}: nested too deeply; settings are a few levels deep") from error
    except (yaml.YAMLError, ValueError) as error:
        said = getattr(error, "reason", None) or error
        raise DataError(f"{path}: {said}; it is damaged, or not a YAML file") from error
    if found is None:
        raise DataError(f"{path}: the file is empty; write settings such as `seed: 0`")
    if not isinstance(found, dict):
        raise DataError(f"{path}, line 1: settings such as `seed: 0` are needed, got a {_kind(found)}")
    return found


def value_of(text: str) -> Any:
    """One value as it would be read from a file: ``true``, ``1e-3``, ``cosine``."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DataError(f"{text!r} is no value; write a number, true, false or a word") from error


def to_yaml(fields: Mapping[str, Any]) -> str:
    """The fields as YAML that ``from_yaml`` reads back the same, in the order given."""
    return str(yaml.dump(dict(fields), Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False))


def _fault(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, mark)


def _line(mark: Any) -> str:
    return "" if mark is None else f", line {mark.line + 1}"


def _problem(error: Any) -> str:
    if "'\\t'" in str(error.problem):
        return "a tab where spaces are needed; indent with spaces"
    return str(error.problem or error.context)


def _kind(found: object) -> str:
    return "list" if isinstance(found, list) else "line of text" if isinstance(found, str) else "single value"
