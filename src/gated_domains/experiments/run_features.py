"""The features that a trained run's network makes of rows, and the rows that it was trained on."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from gated_domains.backbones.backbone import Backbone, evaluating
from gated_domains.data.batches import place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, explain
from gated_domains.data.like import read_like
from gated_domains.data.loading import load_data
from gated_domains.data.new_data import NewData
from gated_domains.data.sampling import InOrder
from gated_domains.experiments.model import Model
from gated_domains.experiments.recipe_checks import read_recipe
from gated_domains.experiments.runner import Runner
from gated_domains.methods.gdu import GDU
from gated_domains.runs.folder import RECIPE, RunFolder, open_run_folder
from gated_domains.runs.provenance import split_hash
from gated_domains.runs.recipe import Recipe
from gated_domains.training.engine import Hardware
from gated_domains.training.training_data import LARGE_BATCH, LOOK_BATCH, has_large_body


@dataclass(frozen=True, eq=False, kw_only=True)
class RunFeatures:
    """Features of a trained network, and where they come from."""

    values: NDArray[np.float32]
    """One row a sample, as the network makes them; not standardised."""
    recipe: Recipe
    """That of the run."""
    data: str
    """The name of the data that the rows are of."""
    of: str
    """Which rows of which network, in words."""


def features_of_run(
    run: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    max_rows: int = 25_000,
    seed: int = 0,
    device: str = "cpu",
) -> RunFeatures:
    """What the network of a finished run makes of its training rows: what its head, or its experts, see.

    Parameters
    ----------
    run
        The folder of a run, or the first characters of its name.
    data
        Rows to look at instead, read as the run reads new data: all rows of a file.
    data_dir
        Where data sets lie.
    max_rows
        Of more rows, so many are drawn at random.
    seed
        Random seed of that draw.
    device
        cpu or cuda.

    Examples
    --------
    >>> from gated_domains.experiments.suggestion import suggest_settings
    >>> found = features_of_run("runs/heart/4f2a")  # doctest: +SKIP
    >>> suggest_settings(found.values).num_bases  # doctest: +SKIP
    """
    folder = open_run_folder(run)
    model, recipe = Model.load(folder.path), read_recipe(folder.path / RECIPE)
    rows: DomainDataset | NewData
    if data is None:
        rows = _training_rows(folder, model, recipe, data_dir)
        kind = f"training rows ({recipe.hold_out} held out)" if recipe.hold_out is not None else "training rows"
    else:
        rows, kind = read_like(data, model.schema, targets=False, data_dir=data_dir), "rows"
    if len(rows) > max_rows:
        rows = rows.take(np.sort(np.random.default_rng(seed).choice(len(rows), max_rows, replace=False)))
    values = body_features(model, rows, device=device)
    label = f"{model.method.label}, {folder.path}"
    of = f"{len(values):,} {kind} as features of a trained network ({label}), {values.shape[1]:,} numbers each"
    return RunFeatures(values=values, recipe=recipe, data=rows.name, of=of)


@torch.no_grad()
def body_features(model: Model, rows: DomainDataset | NewData, *, device: str = "cpu") -> NDArray[np.float32]:
    """The features of every row, in order; gated norms follow the gates of the model."""
    method, on = model.method, torch.device(device)
    if not isinstance(method.backbone, Backbone):
        raise DataError(
            f"{method.label} has no one network whose features could be looked at; name a run of one network, such as "
            "erm or gdu"
        )
    method = method.to(on)
    at_once = LARGE_BATCH if has_large_body(method) else LOOK_BATCH
    samples = place(rows, model.schema.encoding, device=on)
    with evaluating(method):
        parts = [
            (method.features(inputs) if isinstance(method, GDU) else method.backbone(inputs).features).float().cpu()
            for inputs in samples.input_batches(InOrder(np.arange(len(rows)), at_once))
        ]
    return torch.cat(parts).numpy()


def runner_of(
    folder: RunFolder,
    model: Model,
    what: str | os.PathLike[str] | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    hardware: Hardware | None = None,
    cure: str = "name the data it was trained on (--data), or train it again",
) -> Runner:
    """Makes runs of the same data beside this one, from ``what`` where they have moved; other data are refused."""
    recipe = read_recipe(folder.path / RECIPE)
    source = recipe.data if what is None else recipe.data.model_copy(update={"what": os.fspath(what)})
    if not source.what:
        raise DataError(f"{folder.path} was trained on data in memory; name their file (--data)")
    dataset = load_data(source.what, source.reading, data_dir=data_dir, seed=source.seed)
    runner = Runner(dataset, folder.path.parent, hardware=hardware)
    found = {"fingerprint": runner.data.fingerprint, "split": split_hash(runner.planner.split(recipe))}
    answers = runner.planner.view(recipe).answers
    unlike = answers != model.schema.class_names or dataset.inputs.kind != model.schema.encoding.kind
    if unlike or any(model.trained_on.get(name, value) != value for name, value in found.items()):
        raise DataError(f"{folder.path} was trained on other rows than {dataset.name} has now; {cure}")
    return runner


def _training_rows(
    folder: RunFolder, model: Model, recipe: Recipe, data_dir: str | os.PathLike[str] | None
) -> DomainDataset:
    try:
        runner = runner_of(folder, model, data_dir=data_dir, cure="train it again")
    except (DataError, OSError) as error:
        reason = explain(error) if isinstance(error, OSError) else str(error)
        raise DataError(f"{reason}; or name the file of rows to look at instead of its training rows") from error
    dataset, split = runner.planner.known_classes(recipe)
    return replace(dataset, published=None).take(split.train)  # training rows alone have no published division
