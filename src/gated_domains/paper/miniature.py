"""The same recipes on miniatures: shrunk networks from scratch, small inputs, a few epochs on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gated_domains.paper.cells import dataset_of
from gated_domains.runs.recipe import Recipe, TrainingSettings
from gated_domains.settings import parsed, plain

SIDE, TOKENS = 64, 64
DIGITS_SIDE = 32  # of the body that is not shrunk: the paper's own
_IMAGES = ("camelyon17", "fmow", "iwildcam", "rxrx1", "poverty")
_TEXTS = ("amazon", "civilcomments")

# Published rates are for networks that have learned something already, and for many more steps.
_TRAINING: dict[str, dict[str, Any]] = {
    "camelyon17": {"epochs": 8, "rate": 0.02},
    "camelyon17-digits": {"epochs": 4, "batch_size": 64},
    "fmow": {"epochs": 6, "batch_size": 32, "rate": 1e-3},
    "amazon": {"epochs": 6, "batch_size": 32, "rate": 1e-3},
    "iwildcam": {"epochs": 10, "rate": 2e-3},
    "rxrx1": {"epochs": 8, "batch_size": 36, "rate": 1e-3},
    "ogb-molpcba": {"epochs": 8},
    "civilcomments": {"epochs": 6, "batch_size": 32, "rate": 1e-3},
    "poverty": {"epochs": 6, "batch_size": 32},
}
_LARGEST_BATCH, _LONGEST_WARMUP = 64, 1.0
_META_RATE = 0.5  # of Fish, which here has a few steps where it has thousands


def shrink(recipe: Recipe, column: str) -> Recipe:
    """What a miniature changes in a recipe; the method, the division and the score are as they are."""
    dataset = dataset_of(column)
    reading: dict[str, Any] = {"image_size": SIDE} if dataset in _IMAGES else {}
    reading |= {"image_size": DIGITS_SIDE} if recipe.body == "digits" else {}
    reading |= {"tokens": TOKENS} if dataset in _TEXTS else {}
    changes = dict(_TRAINING[column])
    groups = recipe.training.groups_per_batch
    batch = min(changes.get("batch_size", recipe.training.batch_size), _LARGEST_BATCH)
    changes["batch_size"] = -(-batch // groups) * groups if recipe.method.kind.uses_domains else batch
    changes["warmup"] = min(recipe.training.warmup, _LONGEST_WARMUP)
    training = parsed(TrainingSettings, {**plain(recipe.training), **changes}, "training of a miniature")
    method = recipe.method
    if method.name == "fish":
        method = method.model_copy(update={"settings": method.settings.model_copy(update={"meta_rate": _META_RATE})})
    return recipe.replace(
        data=recipe.data.model_copy(update=reading), training=training, method=method, shrunk=True, pretrained="false"
    )


def write_miniatures(columns: list[str], place: Path) -> None:
    """The miniatures of these columns below a folder, as the loaders look for them; those there stay."""
    from gated_domains.data.miniatures import write_miniature

    for dataset in dict.fromkeys(dataset_of(column) for column in columns):
        write_miniature(dataset, place / "wilds")
