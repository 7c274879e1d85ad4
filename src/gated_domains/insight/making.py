"""An ``Insight`` of a trained gated model, its data and its split."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.data.batches import Samples, place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import Encoding
from gated_domains.data.inputs import Rows
from gated_domains.data.splits import HoldOut
from gated_domains.evaluation.scores import Metric, Predicted
from gated_domains.insight import cards, previews
from gated_domains.insight.discrepancy import mmd_matrix
from gated_domains.insight.dropping import Scoring, dropping
from gated_domains.insight.planes import NAMES, Kind, plane
from gated_domains.insight.sampling import Limits, Sampled, sample
from gated_domains.insight.views import bases_of, compare, view
from gated_domains.methods.gdu import GDU
from gated_domains.runs.insight import Insight
from gated_domains.training.prediction import predict_rows
from gated_domains.training.training_data import LARGE_LOOKED_AT, has_large_body

_VECTORS_A_BASIS = 20  # that are shown in the plane
_FEW = Limits(compared=LARGE_LOOKED_AT, scored=500)  # where each row costs a run of a large body, or a file


def insight_of(
    method: GDU,
    encoding: Encoding,
    dataset: DomainDataset,
    split: HoldOut,
    *,
    metric: Metric,
    temperature: float = 1.0,
    device: str | torch.device = "cpu",
    kind: Kind = "tsne",
) -> Insight:
    """What the gates of a method do with rows of its split, and what its bases stand for; the method stays as it is.

    A sample of rows is looked at (``sampling``), however large the data are. Bases are numbered as columns of beta are.
    """
    frugal = has_large_body(method) or not dataset.inputs.in_memory
    chosen = sample(dataset, split, limits=_FEW if frugal else None)
    samples = place(chosen.data, encoding, device=device)
    method = method.to(device)
    looked = view(method, samples, chosen.shown)
    score = Scoring(method=method, samples=samples, data=chosen.data, metric=metric, temperature=temperature)
    return Insight(
        domain_names=np.array(chosen.domain_names, np.str_),
        unseen=chosen.unseen,
        class_names=np.array(dataset.class_names or (), np.str_),
        rows=chosen.origin[chosen.shown],
        domains=chosen.shown_domains,
        targets=chosen.data.targets[chosen.shown],
        **_said(method, samples, chosen),
        **_mapped(looked, bases_of(method), kind),
        mmd=_discrepancies(method, looked, chosen),
        dropping=dropping(score, [chosen.validation, chosen.held_out]),
        **_cards(method, samples, chosen),
        pictures=previews.pictures(chosen.data.inputs, chosen.shown, side=previews.SMALL),
        texts=previews.texts(chosen.data.inputs, chosen.shown, chosen.origin[chosen.shown]),
    )


def _said(method: GDU, samples: Samples, chosen: Sampled) -> dict[str, NDArray[Any]]:
    found = predict_rows(method, samples, chosen.shown)
    used = method.units.active.cpu().numpy()
    assert found.beta is not None  # a method with gates says what they gave
    return {
        "predicted": _answers(found, chosen.data.task),
        "beta": found.beta[:, used],
        "coverage": np.empty(0, np.float32) if found.coverage is None else found.coverage,
    }


def _answers(found: Predicted, task: str) -> NDArray[Any]:
    if task == "labels":
        return np.empty(0, np.int64)
    return found.output.argmax(axis=1) if task == "classes" else found.output[:, 0]


def _mapped(looked: Tensor, bases: Tensor, kind: Kind) -> dict[str, NDArray[Any]]:
    vectors = bases[:, :_VECTORS_A_BASIS]
    places = plane(torch.cat([looked.float(), vectors.flatten(0, 1).float()]).cpu().numpy(), kind=kind)
    return {
        "map_rows": places[: len(looked)],
        "map_bases": places[len(looked) :],
        "map_basis_of": np.repeat(np.arange(len(bases)), vectors.shape[1]),
        "map_kind": np.array(NAMES[kind]),
    }


def _discrepancies(method: GDU, looked: Tensor, chosen: Sampled) -> NDArray[np.float32]:
    domains = torch.from_numpy(chosen.shown_domains).to(looked.device)
    groups = [looked[domains == number] for number in range(len(chosen.domain_names))]
    return mmd_matrix(method.units.kernel, [*groups, *bases_of(method)]).float().cpu().numpy()


def _cards(method: GDU, samples: Samples, chosen: Sampled) -> dict[str, NDArray[Any]]:
    compared = compare(method, samples, chosen.compared)
    beta, data = compared.beta.float().cpu().numpy(), chosen.data
    near = cards.nearest(compared.distances.float().cpu().numpy(), chosen.compared, data.inputs)
    classes = len(data.class_names or ())
    return {
        "domain_share": cards.share(beta, chosen.compared_domains, len(chosen.domain_names)),
        "class_share": cards.share(beta, data.targets[chosen.compared], classes)
        if classes
        else np.empty((beta.shape[1], 0), np.float32),
        "mass": cards.mass(beta),
        "nearest": chosen.origin[near],
        "nearest_domains": _domains_of(near, chosen),
        "nearest_targets": data.targets[near],
        **_shown(near, chosen),
    }


def _domains_of(near: Rows, chosen: Sampled) -> NDArray[np.int64]:
    of_row = np.full(len(chosen.data), -1, np.int64)
    of_row[chosen.compared] = chosen.compared_domains
    return of_row[near]


def _shown(near: Rows, chosen: Sampled) -> dict[str, NDArray[Any]]:
    inputs, rows = chosen.data.inputs, near.ravel()
    cells = previews.values(inputs, rows)
    # What the cells of a row say is not said again in words.
    words = previews.texts(inputs, rows, chosen.origin[rows]) if not cells.size else np.empty(0, np.str_)
    drawn = previews.pictures(inputs, rows, side=previews.LARGE)
    return {
        "nearest_pictures": _by_basis(drawn, near),
        "nearest_texts": _by_basis(words, near),
        "nearest_columns": previews.columns(inputs),
        "nearest_values": _by_basis(cells, near),
    }


def _by_basis(values: NDArray[Any], near: Rows) -> NDArray[Any]:
    return values.reshape(*near.shape, *values.shape[1:]) if values.size else values
