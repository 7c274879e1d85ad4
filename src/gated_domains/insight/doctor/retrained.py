"""A retrained linear head on what the experts of a model see, beside the model itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.data.progress import progress_if
from gated_domains.evaluation.metrics import Task, metric_for
from gated_domains.insight.doctor.control import beside, finding
from gated_domains.insight.doctor.findings import Finding
from gated_domains.insight.doctor.linear_head import RIDGES, fit_chosen

VALIDATION, HELD_OUT = "validation", "held out"
# Multiplications of one step from which on a person is told that it takes a while.
_LONG = 2e8


class Scored(NamedTuple):
    """Rows that both are scored on: as experts see them, what the model says of them, and what is true."""

    features: Float[Tensor, "rows features"]
    output: NDArray[Any]
    targets: NDArray[Any]


def beside_linear_head(
    features: Float[Tensor, "rows features"],
    targets: NDArray[Any],
    parts: Mapping[str, Scored],
    *,
    task: Task,
) -> Finding:
    """A linear head, trained on the features of the training rows, beside a model on every part.

    Its ridge is the one of five that fits the rows of the part ``validation`` best; 0.01 where there is none.
    """
    outputs = next(iter(parts.values())).output.shape[1]
    chosen_by = parts.get(VALIDATION)
    long = features.numel() * outputs > _LONG and chosen_by is not None
    with progress_if(long, "retraining a linear head", len(RIDGES)) as advance:
        head = fit_chosen(
            features,
            targets,
            task=task,
            outputs=outputs,
            validation=None if chosen_by is None else (chosen_by.features, chosen_by.targets),
            progress=advance,
        )
    metric = metric_for(task)
    found = [beside(name, metric, own.output, head.output(own.features), own.targets) for name, own in parts.items()]
    chosen = "" if chosen_by is None else ", chosen on validation rows"
    how = f"retrained on {len(features):,} rows, ridge {head.ridge:g}{chosen}"
    return finding(found, how=how, about={"ridge": head.ridge, "trained_rows": len(features)})
