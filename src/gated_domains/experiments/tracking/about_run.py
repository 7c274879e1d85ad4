"""What there is to track of a run, read from its folder: settings, tags, a curve, final scores."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gated_domains import __version__
from gated_domains.experiments.tracking.names import key, legal
from gated_domains.runs.folder import RECIPE, RunFolder
from gated_domains.runs.result import RESULT_FILE

Setting = bool | int | float | str | None


def settings_of(run: RunFolder) -> dict[str, Setting]:
    """The recipe, flat: ``training.rate`` and the like; lists as JSON."""
    return dict(_flat(run.recipe()))


def _flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Setting]]:
    for name, value in settings.items():
        place = before + legal(str(name))
        if isinstance(value, Mapping):
            yield from _flat(value, f"{place}.")
        else:
            yield place, value if isinstance(value, bool | int | float | str | None) else json.dumps(value)


def tags_of(run: RunFolder) -> dict[str, str]:
    """What a run is found by."""
    about = run.about()
    recipe = about["recipe"]
    return {
        "data": str(about["data"].get("name", "")),
        "method": str(recipe.get("method", {}).get("name", "")),
        "hold_out": str(recipe.get("hold_out") or "none"),
        "seed": str(recipe.get("seed", "")),
        "run": run.name,
        "version": __version__,
    }


def title_of(run: RunFolder) -> str:
    """``GDU, north held out, seed 0``; before a run is done, its method by name."""
    tags = tags_of(run)
    label = str(run.result().label) if run.done else tags["method"]
    held_out = "all domains" if tags["hold_out"] == "none" else f"{tags['hold_out']} held out"
    return f"{label}, {held_out}, seed {tags['seed']}"


def curve_of(run: RunFolder, after: int = -1) -> Iterator[tuple[int, dict[str, float]]]:
    """The epochs after one, each with its losses, penalties, scores and measures."""
    for record in run.metrics():
        if record["epoch"] > after:
            yield record["epoch"], _scalars(record)


def _scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """What an epoch came to. ``selection`` is last: where it is, all is."""
    validation = record["validation"]
    found = {
        "rate": record.get("rate"),
        "seconds": record.get("seconds"),
        **{key("train", name): value for name, value in record["train"].items()},
        **{key("measures", name): value for name, value in (record.get("measures") or {}).items()},
        **{key("validation", "domain", name): value for name, value in validation["by_domain"].items()},
        "validation/overall": validation.get("overall"),
        "selection": record.get("selection"),
    }
    return _numbers(found)


def finals_of(run: RunFolder) -> dict[str, float]:
    """The scores of what was held out, all together and by domain, and what the run cost."""
    result = run.result().to_json()
    test = result.get("test") or {}
    found = {
        "held_out/overall": test.get("overall"),
        **{key("held_out", "domain", name): value for name, value in test.get("by_domain", {}).items()},
        "cost/seconds": result["seconds"],
        "cost/peak_memory": result.get("peak_memory"),
        "cost/parameters_trained": result["parameters"]["trained"],
        "best_epoch": result["best_epoch"],
    }
    return _numbers(found)


def _numbers(found: Mapping[str, Any]) -> dict[str, float]:
    """Those that are numbers: a score that there is none of is left out."""
    numbers = {name: float(value) for name, value in found.items() if isinstance(value, int | float)}
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def files_of(run: RunFolder) -> dict[str, Path]:
    """Small files to keep beside it, by the names they get there.

    Not ``result.json`` by its own name: a folder that holds one is taken for a run.
    """
    named = {RECIPE: RECIPE, "run_result.json": RESULT_FILE}
    return {name: run.path / file for name, file in named.items() if (run.path / file).exists()}


def digest_of(run: RunFolder) -> str:
    """Tells one training from another, also of the same recipe."""
    return hashlib.sha256((run.path / RESULT_FILE).read_bytes()).hexdigest()[:16]
