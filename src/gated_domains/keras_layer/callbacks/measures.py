"""What gates do on some inputs, and how bases lie to each other, as plain numbers by name."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np

from gated_domains.keras_layer import penalties
from gated_domains.keras_layer.arrays import as_numpy, keras
from gated_domains.keras_layer.finding import without_gradients
from gated_domains.keras_layer.output import GatedOutput
from gated_domains.keras_layer.units import GatedDomainUnits


def gate_measures(
    model: keras.Model, units: dict[str, GatedDomainUnits], batches: Iterable[Any]
) -> dict[str, dict[str, float]]:
    """Of each layer, over all rows of the batches: mean beta of each basis, mean entropy of beta, reconstruction."""
    sums: dict[str, dict[str, float]] = {name: {} for name in units}
    rows = dict.fromkeys(units, 0)
    with ExitStack() as recording, without_gradients():
        records = {name: recording.enter_context(layer.record()) for name, layer in units.items()}
        for batch in batches:
            model(batch, training=False)
            for name, outs in records.items():
                for out in outs:
                    weight = math.prod(out.prediction.shape[:-1])
                    rows[name] += weight
                    for measure, value in _of_gates(units[name], out).items():
                        sums[name][measure] = sums[name].get(measure, 0.0) + weight * value
                outs.clear()
    silent = [name for name in units if rows[name] == 0]
    if silent:
        raise ValueError(
            f"the model does not call its layer {', '.join(map(repr, silent))}; say layer= with one it does"
        )
    return {name: {measure: total / rows[name] for measure, total in sums[name].items()} for name in units}


def basis_measures(layer: GatedDomainUnits) -> dict[str, float]:
    """Distributional variance, SRIP, soft orthogonality and mutual coherence of the bases; no data are needed."""
    with without_gradients():
        # The Gram matrix comes with the products of any row.
        out = GatedOutput(None, None, layer._products(layer._rows(layer.bases[0])))
        target = layer.orthogonality_target
        return {
            "distributional_variance": float(as_numpy(penalties.distributional_variance(out))),
            "srip": float(as_numpy(penalties.srip(out, target=target))),
            "soft_orthogonality": float(as_numpy(penalties.soft_orthogonality(out, target=target))),
            "mutual_coherence": float(as_numpy(penalties.mutual_coherence(out))),
        }


def _of_gates(layer: GatedDomainUnits, out: GatedOutput) -> dict[str, float]:
    beta = as_numpy(out.beta).reshape(-1, layer.max_bases).astype(np.float64).mean(axis=0)
    used = np.flatnonzero(as_numpy(layer.active))
    return {
        **{f"gate_{j}": float(beta[j]) for j in used},
        "gate_entropy": float(as_numpy(penalties.entropy(out))),
        "reconstruction": float(as_numpy(penalties.reconstruction(out))),
    }
