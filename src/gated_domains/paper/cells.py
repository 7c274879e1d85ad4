"""The cells of the paper's table of WILDS: data sets in their set-ups, methods, and the recipe behind each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from gated_domains import recipes
from gated_domains.data.errors import DataError, did_you_mean
from gated_domains.experiments.recipe_checks import read_recipe
from gated_domains.methods import METHODS
from gated_domains.reports.published import BENCHMARKS, ROWS
from gated_domains.reports.reproduced import Column, Row
from gated_domains.runs.recipe import Recipe

NO_SETTINGS = "no published settings"
_SECOND = "camelyon17-digits"
_BODIES = {
    "densenet121": "DenseNet-121",
    "resnet50": "ResNet-50",
    "resnet18": "ResNet-18 on 8 bands",
    "distilbert-classifier": "DistilBERT",
    "gin": "GIN with virtual node",
    "digits": "the digits network",
}
Change = Callable[[Recipe, str], Recipe]
"""What is made of a shipped recipe, for the column of this name."""
COLUMNS: tuple[str, ...] = ("camelyon17", _SECOND, *(name for name in BENCHMARKS if name != "camelyon17"))
"""The data sets, Camelyon17 in two set-ups."""


@cache
def recipe_of(row: str, column: str) -> Recipe | None:
    """The shipped recipe of a cell; None where nobody published settings."""
    path = recipes.folder("wilds") / f"{column}_{row}.yaml"
    return read_recipe(path) if path.is_file() else None


def dataset_of(column: str) -> str:
    """The data set of a column."""
    return "camelyon17" if column == _SECOND else column


def goes_on_from_erm(row: str, column: str) -> bool:
    """Whether a method starts from an ERM run that is not trained as it is itself: Fish does, but on PovertyMap."""
    return row == "fish" and column != "poverty"


def chosen_columns(written: str | None) -> list[str]:
    """Columns as a command line names them, in the order of the table."""
    if written is None:
        return list(COLUMNS)
    names = _listed(written, [*COLUMNS], "--datasets")
    return [name for name in COLUMNS if name in names]


def chosen_rows(written: str | None) -> list[str]:
    """Rows as a command line names them, in the order of the table."""
    if written is None:
        return list(ROWS)
    names = _listed(written, [*ROWS], "--methods")
    return [name for name in ROWS if name in names]


def described_rows(rows: Iterable[str]) -> dict[str, Row]:
    """What the table says of each method."""
    found = {}
    for row in rows:
        recipe = next(recipe for column in COLUMNS if (recipe := recipe_of(row, column)) is not None)
        kind = METHODS[recipe.method.name]
        batchwise = kind.batchwise or getattr(recipe.method.settings, "test_gates", "sample") == "batch"
        found[row] = Row(label=ROWS[row], uses_domains=kind.uses_domains, batchwise=batchwise)
    return found


def described_columns(columns: Iterable[str], change: Change | None = None) -> dict[str, Column]:
    """What the table says of each data set, where ``change`` is made to its recipes."""
    found = {}
    for name in columns:
        recipe = recipe_of("erm", name)
        assert recipe is not None
        dataset = dataset_of(name)
        title = BENCHMARKS[dataset].title + (" (digits body)" if name == _SECOND else "")
        body = _body(recipe if change is None else change(recipe, name))
        found[name] = Column(dataset=dataset, title=title, body=body, published=name != _SECOND)
    return found


def _body(recipe: Recipe) -> str:
    """The network in words."""
    weights = "ImageNet weights" if recipe.body in ("densenet121", "resnet50") else "its own weights"
    said = [_BODIES[recipe.body], weights if recipe.pretrained == "true" else "from scratch"]
    said += ["shrunk"] * (recipe.shrunk and recipe.body != "digits")
    said += [f"{recipe.data.tokens} tokens"] * (recipe.data.tokens is not None)
    said += [f"{recipe.data.image_size} px"] * (recipe.data.image_size is not None)
    return ", ".join(said)


def _listed(written: str, known: Sequence[str], option: str) -> list[str]:
    names = [name.strip().removeprefix("wilds/") for name in written.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise DataError(f"{option}: there is no {name!r} in the table of WILDS{did_you_mean(name, known)}")
    if not names:
        raise DataError(f"{option} names nothing; leave it out for all of them")
    return names
