"""What is wrong with settings, in words: the place, the value, and what may stand there instead."""

from __future__ import annotations

import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from gated_domains.data.errors import did_you_mean, first_line, listing

_LIMITS = {
    "gt": "above",
    "ge": "of at least",
    "lt": "below",
    "le": "of at most",
    "multiple_of": "that is a multiple of",
    "min_length": "of length at least",
    "max_length": "of length at most",
}
# Faults for which it is enough to say what may stand there; pydantic ends the others of them in "_type".
_TOLD_BY_KIND = {
    "greater_than",
    "greater_than_equal",
    "less_than",
    "less_than_equal",
    "multiple_of",
    "literal_error",
    "too_short",
    "too_long",
    "string_too_short",
    "string_too_long",
}


class _Place(NamedTuple):
    """Where an error lies: the path as people write it, what may stand there, and the settings it belongs to."""

    path: tuple[str | int, ...]
    kind: Any
    limits: tuple[Any, ...]
    owner: type[BaseModel]


def complaints(kind: type[BaseModel], error: ValidationError) -> list[str]:
    """One sentence for each place where something is wrong."""
    by_path: dict[tuple[str | int, ...], list[tuple[Any, _Place]]] = {}
    for fault in error.errors(include_url=False):
        place = _place(kind, fault["loc"])
        by_path.setdefault(place.path, []).append((fault, place))
    # Of `int | Widths` given a mapping with a fault inside, the fault inside is what matters.
    inner = {path[:length] for path in by_path for length in range(len(path))}
    return [_sentence(faults) for path, faults in by_path.items() if path not in inner or not path]


def _sentence(faults: list[tuple[Any, _Place]]) -> str:
    # A union reports once for each of its members; one that is at least of the right shape knows more.
    fault, place = min(faults, key=lambda pair: pair[0]["type"] == "extra_forbidden")
    name, given, context = _written(place.path), fault["input"], fault.get("ctx", {})
    match fault["type"]:
        case "extra_forbidden":
            return f"{name} is not known{_instead(place)}"
        case "missing":
            return f"{name} is missing; it must be {_words(place.kind, place.limits)}"
        case "union_tag_invalid" | "union_tag_not_found":
            field = context["discriminator"].strip("'")
            name, tags = f"{name}.{field}" if name else field, _tags(place.kind, field)
            if "tag" not in context:
                return f"{name} is missing; it is one of {listing(tags)}"
            return f"{name}: {given[field]!r} is not known{did_you_mean(str(given[field]), tags)}"
        case "value_error" | "assertion_error":
            return f"{name}: {context['error']}" if name else str(context["error"])
        case "finite_number":
            return f"{name} must be finite, got {given}"
    if fault["type"] not in _TOLD_BY_KIND and not fault["type"].endswith("_type"):
        return f"{name or 'settings'}: {fault['msg']}, got {shown(given)}"
    must = f"{name or 'this'} must be {_words(place.kind, place.limits)}, got {shown(given)}"
    choices = [choice for choice in _choices(place.kind) if isinstance(choice, str)]
    near = did_you_mean(given, choices) if isinstance(given, str) and choices else ""
    return must + (near if "did you mean" in near else "")


def _instead(place: _Place) -> str:
    """What an unknown key may have meant: a name near it, or the same name in a group of settings below."""
    key = str(place.path[-1])
    for field, info in place.owner.model_fields.items():
        for member in _members(info.annotation):
            if _is_group(member) and key in member.model_fields:
                return f"; did you mean {_written((*place.path[:-1], field, key))!r}?"
    return did_you_mean(key, place.owner.model_fields)


def _place(kind: type[BaseModel], loc: tuple[int | str, ...]) -> _Place:
    """Follow pydantic's location through the types; it names the members of unions as well, which nobody wrote."""
    place = _Place((), kind, (), kind)
    for position, step in enumerate(loc):
        members = _members(place.kind)
        if len(members) > 1:
            if position + 1 < len(loc):
                place = place._replace(kind=_meant(members, str(step)))
            continue
        here: Any = members[0] if members else Any
        path = (*place.path, step)
        if _is_group(here):
            info = here.model_fields.get(str(step))
            kind_there, limits = (info.annotation, tuple(info.metadata)) if info else (Any, ())
            place = _Place(path, kind_there, limits, here)
        elif step == "[key]":
            continue
        else:
            place = place._replace(path=path, kind=_entry(here, step), limits=())
    return place


def _meant(members: tuple[Any, ...], label: str) -> Any:
    """The member of a union that pydantic's label stands for: by its tag, by its name, else the one with entries."""
    models = [member for member in members if _is_group(member)]
    for model in models:
        if "name" in model.model_fields and label in _choices(model.model_fields["name"].annotation):
            return model
    for model in sorted(models, key=lambda model: -len(model.__name__)):
        if model.__name__ in label:
            return model
    return next((member for member in members if get_origin(member) is not None), Any)


def _entry(kind: Any, step: int | str) -> Any:
    """What may stand at a place in a list, a tuple or a mapping."""
    kinds = get_args(kind)
    if not kinds:
        return Any
    if get_origin(kind) is tuple and Ellipsis not in kinds and isinstance(step, int):
        return kinds[step] if step < len(kinds) else Any
    return kinds[0] if isinstance(step, int) else kinds[-1]


def _members(kind: Any) -> tuple[Any, ...]:
    """The kinds that a union is made of, without None; of anything else, itself."""
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(member for part in get_args(kind) for member in _members(part) if member is not types.NoneType)
    return (kind,)


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _choices(kind: Any) -> list[Any]:
    return [choice for member in _members(kind) if get_origin(member) is Literal for choice in get_args(member)]


def _tags(kind: Any, field: str) -> list[str]:
    return [str(tag) for member in _members(kind) for tag in _choices(member.model_fields[field].annotation)]


def _words(kind: Any, limits: tuple[Any, ...] = ()) -> str:
    """What may stand in a place, for people: ``a whole number of at least 1, or 'auto'``."""
    if get_origin(kind) is Annotated:
        within = [getattr(extra, "metadata", [extra]) for extra in get_args(kind)[1:]]
        return _words(get_args(kind)[0], (*limits, *(limit for extra in within for limit in extra)))
    if get_origin(kind) in (Union, types.UnionType):
        *first, last = [_words(member, limits) for member in get_args(kind)]
        return f"{', '.join(first)} or {last}"
    if get_origin(kind) is Literal:
        choices = [repr(choice) for choice in get_args(kind)]
        return choices[0] if len(choices) == 1 else f"one of {listing(choices, most=30)}"
    if _is_group(kind):
        return f"a group of settings ({listing(kind.model_fields)})"
    simple: dict[Any, str] = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        Path: "a path",
    }
    simple |= {types.NoneType: "null", None: "null", Any: "something else"}
    if kind in simple:
        return simple[kind] + (_limits(limits) if kind in (int, float, str) else "")
    inner = [part for part in get_args(kind) if part is not Ellipsis]
    if (get_origin(kind) or kind) in (list, tuple, set, frozenset):
        long = f" of {len(inner)}" if get_origin(kind) is tuple and Ellipsis not in get_args(kind) else ""
        each = f", each {_words(inner[0])}" if inner and len(set(inner)) == 1 else ""
        return f"a list{long}{_limits(limits)}{each}"
    if isinstance(origin := get_origin(kind) or kind, type) and issubclass(origin, Mapping):
        return "a mapping of names" + (f", each to {_words(inner[-1])}" if inner else "")
    return f"a {getattr(kind, '__name__', kind)}"


def _limits(limits: tuple[Any, ...]) -> str:
    """`` of at least 1 and below 10`` for the limits on a field."""
    said = [
        f"{word} {getattr(limit, key)}"
        for limit in limits
        for key, word in _LIMITS.items()
        if getattr(limit, key, None) is not None
    ]
    return " " + " and ".join(said) if said else ""


def _written(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def shown(value: object) -> str:
    """A value as YAML says it, cut short."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return first_line(ValueError(repr(value)), 80)
