"""From a recipe to a run folder: everything a result needs, in one place, written whole."""

from gated_domains.experiments.model import Model
from gated_domains.experiments.recipe_checks import choose_method, read_recipe
from gated_domains.experiments.runner import Runner
from gated_domains.runs.folder import RunFolder, all_runs, open_run_folder
from gated_domains.runs.recipe import DataSettings, Recipe

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
