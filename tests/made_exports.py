"""Small trained models to be exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import made_runs
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.data.new_data import NewData
from gated_domains.experiments.model import Model
from gated_domains.runs.folder import RunFolder

#: Every method that is trained as one, and can be exported.
METHODS = ("gdu", "gdu-paper", "gdu-groups", "erm", "erm-ensemble", "coral", "irm", "group-dro", "fish", "lisa", "cgd")


def trained(dataset: DomainDataset, root: Path, method: str = "gdu", **others: Any) -> RunFolder:
    """A run of one short epoch."""
    training = {"epochs": 1, **others.pop("training", {})}
    return made_runs.runner(dataset, root).run(made_runs.recipe(method, training=training, **others))


def model(dataset: DomainDataset, root: Path, method: str = "gdu", **others: Any) -> Model:
    return Model.load(trained(dataset, root, method, **others).path)


def images(each: int = 20) -> DomainDataset:
    """Images of 20 x 20 pixels, light and dark, in three tints and of any contrast.

    Were they all of one contrast, gates would have to tell them apart by the last digits of float32.
    """
    rng = np.random.default_rng(2)
    rows = 6 * each
    label, site = np.divmod(np.arange(rows) // each, 3)
    contrast, light = rng.uniform(5, 30, (rows, 1, 1, 1)), rng.uniform(60, 110, (rows, 1, 1, 3))
    level = light + 70 * label[:, None, None, None] + contrast * rng.normal(size=(rows, 20, 20, 3))
    level[np.arange(rows), :, :, site] += 30
    return DomainDataset.from_arrays(
        level.clip(0, 255).astype(np.uint8),
        label,
        site,
        name="images",
        class_names=("dark", "light"),
        domain_names=made_runs.DOMAINS,
    )


def a_table(folder: Path, rows: int = 150) -> DomainDataset:
    return load_data(made_runs.table(folder / "table.csv", rows), Reading(target="sick", domain="site"))


def new_data(dataset: DomainDataset, rows: int | None = None) -> NewData:
    """The inputs of a data set as new data, with the domains they are of."""
    chosen = np.arange(len(dataset.inputs) if rows is None else rows)
    return NewData(
        name="new",
        inputs=dataset.inputs.take(chosen),
        class_names=dataset.class_names,
        label_names=dataset.label_names,
        domains=None if dataset.domains is None else dataset.domains[chosen],
        domain_names=dataset.domain_names,
    )
