"""A YAML card that says how data are to be read, so that nobody has to repeat it on every command line."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

from gated_domains.data.errors import DataError, decoding, did_you_mean, expanded
from gated_domains.data.labels import Reading

CARD_SUFFIXES = (".yaml", ".yml")
_LARGEST = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Card(Reading):
    """What a card may say: where the data lie (relative to the card), how to read them, and what to say of them."""

    path: str
    notes: tuple[str, ...] = ()
    # A class may be called 1, and a column 2024.
    __pydantic_config__: ClassVar[dict[str, bool]] = {"coerce_numbers_to_str": True}


def read_card(path: Path) -> tuple[str, Reading, tuple[str, ...]]:
    """What to read, how, and notes to be said with every result.

    A card for a table: ``{path: heart.csv, target: num, domain: hospital, positive: [1, 2, 3, 4]}``.
    """
    card = _checked(path, _entries(path))
    reading = Reading(**{field.name: getattr(card, field.name) for field in fields(Reading)})
    # An absolute path stays as it is when it is joined to another.
    return str(path.parent / expanded(card.path)), reading, card.notes


def _checked(path: Path, entries: dict[str, Any]) -> Card:
    from pydantic import TypeAdapter, ValidationError

    kinds = {field.name: str(field.type) for field in fields(Card)}
    for key, value in entries.items():
        if key not in kinds:
            raise DataError(f"{path}: there is no setting {key!r}{did_you_mean(key, kinds)}")
        if kinds[key].startswith("tuple") and isinstance(value, (str, int, float)):
            entries[key] = [value]  # one is a list of one
    try:
        return TypeAdapter(Card).validate_python(entries)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where, given = ".".join(str(part) for part in first["loc"]), first["input"]
        # YAML takes no, off and n for false.
        cure = f", got {given}; put it in quotes" if isinstance(given, (bool, date)) else ""
        raise DataError(f"{path}: {where}: {first['msg'].replace('tuple', 'list')}{cure}") from error


def _entries(path: Path) -> dict[str, Any]:
    import yaml

    class PlainLoader(yaml.SafeLoader):  # type: ignore[misc]
        """YAML without aliases: a few lines of them can stand for billions of entries."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise DataError(f"{path}: anchors and aliases (& and *) are not read; write the value out")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys: set[str] = set()
            for key, _ in node.value:
                if isinstance(key.value, str) and key.value in keys:
                    raise DataError(f"{path}: {key.value!r} is there twice; which is meant?")
                keys.add(str(key.value))
            return super().construct_mapping(node, deep)

    with decoding(path):
        if path.stat().st_size > _LARGEST:
            raise DataError(f"{path}: {path.stat().st_size:,} bytes are too many for a card; is this the data itself?")
        try:
            entries = yaml.load(path.read_text("utf-8"), PlainLoader)
        except yaml.MarkedYAMLError as error:
            where = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
            raise DataError(f"{path}{where}: {error.problem}; a card is written in YAML") from error
    if not isinstance(entries, dict) or not all(isinstance(key, str) for key in entries):
        raise DataError(f"{path}: a card is a list of settings such as `path: heart.csv` and `target: num`")
    return entries
