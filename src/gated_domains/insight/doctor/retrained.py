"""The control without gates: a model against a linear head, retrained on what the experts of the model see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.data.progress import progress_if
from gated_domains.evaluation.metrics import Task, metric_for
from gated_domains.insight.doctor.cures import CURES
from gated_domains.insight.doctor.findings import Finding
from gated_domains.insight.doctor.linear_head import RIDGES, fit_chosen
from gated_domains.insight.doctor.paired import OF_ONE_SEED, Paired, compare_paired

VALIDATION, HELD_OUT = "validation", "held out"
# Multiplications of one step from which on a person is told that it takes a while.
_LONG = 2e8


class Scored(NamedTuple):
    """Rows that both are scored on: as experts see them, what the model predicts, and what is true."""

    features: Float[Tensor, "rows features"]
    output: NDArray[Any]
    targets: NDArray[Any]
    together: NDArray[Any] | None = None
    """Which rows are of one patient, where that is known."""


def beside_linear_head(
    features: Float[Tensor, "rows features"],
    targets: NDArray[Any],
    parts: Mapping[str, Scored],
    *,
    task: Task,
) -> Finding:
    """A model against a linear head that is trained on the features of the training rows, on every part.

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
    found = [
        compare_paired(name, metric, own.output, head.output(own.features), own.targets, together=own.together)
        for name, own in parts.items()
    ]
    chosen = "" if chosen_by is None else ", chosen on validation rows"
    how = f"retrained on {len(features):,} rows, ridge {head.ridge:g}{chosen}"
    return linear_head(found, how=how, about={"ridge": head.ridge, "trained_rows": len(features)})


def linear_head(parts: Sequence[Paired], *, how: str, about: dict[str, Any]) -> Finding:
    """One finding of all parts, each ``gated - linear``; ``how`` says how the linear head was made.

    Ok only where gates are significantly better on some part and worse on none: a layer that brings no more than a
    linear head is worth a look.
    """
    metric = parts[0].metric
    value = {"metric": metric.name, **about, **{part.part: part.as_value("gated", "linear") for part in parts}}
    numbers = f"{metric.label}: {'; '.join(part.describe() for part in parts)}; {OF_ONE_SEED}; {how}"
    worse, better = (
        " and ".join(part.part for part in parts if part.outcome == outcome) for outcome in ("worse", "better")
    )
    if worse:
        says, cures = f"a retrained linear head is better on {worse}", CURES["linear head is better"]
    elif better:
        return Finding(
            name="linear head",
            level="ok",
            value=value,
            says=f"better than a retrained linear head on {better} ({numbers})",
        )
    else:
        says = "a retrained linear head is not significantly worse"
        cures = CURES["linear head is not worse"]
    return Finding(name="linear head", level="look", value=value, says=f"{says} ({numbers})", cures=cures)
