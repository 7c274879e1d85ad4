"""From a recipe to a run folder: everything a result needs, in one place, written whole."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gated_domains.experiments.model import Model
    from gated_domains.experiments.recipe_checks import choose_method, read_recipe
    from gated_domains.experiments.runner import Runner
    from gated_domains.runs.folder import RunFolder, all_runs, open_run_folder
    from gated_domains.runs.recipe import DataSettings, Recipe

# Imported when first asked for: predicting needs a trained model, and nothing that trains one.
_HOMES = {
    "DataSettings": "gated_domains.runs.recipe",
    "Model": "gated_domains.experiments.model",
    "Recipe": "gated_domains.runs.recipe",
    "RunFolder": "gated_domains.runs.folder",
    "Runner": "gated_domains.experiments.runner",
    "all_runs": "gated_domains.runs.folder",
    "choose_method": "gated_domains.experiments.recipe_checks",
    "open_run_folder": "gated_domains.runs.folder",
    "read_recipe": "gated_domains.experiments.recipe_checks",
}

__all__ = [
    "DataSettings",
    "Model",
    "Recipe",
    "RunFolder",
    "Runner",
    "all_runs",
    "choose_method",
    "open_run_folder",
    "read_recipe",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'gated_domains.experiments' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
