"""Inputs -> features, and the view that gates see; putting units into any model's head, and gates into its norms."""

from gated_domains.backbones.backbone import Backbone, Body, GatingView, Identity, RawInput, View, default_gating
from gated_domains.backbones.bodies import BODIES, MLP, DigitsCNN, SmallCNN, default_body
from gated_domains.backbones.gated_norm import GatedNorm, deviation_parameters, gate_norms, mixing
from gated_domains.backbones.gating import (
    GATINGS,
    GraphStatistics,
    RandomFilters,
    RandomProjection,
    Style,
    TokenStatistics,
)
from gated_domains.backbones.heads import fit_head, gating_rows, model_head, renew_head, replace_head

__all__ = [
    "BODIES",
    "GATINGS",
    "MLP",
    "Backbone",
    "Body",
    "DigitsCNN",
    "GatedNorm",
    "GatingView",
    "GraphStatistics",
    "Identity",
    "RandomFilters",
    "RandomProjection",
    "RawInput",
    "SmallCNN",
    "Style",
    "TokenStatistics",
    "View",
    "default_body",
    "default_gating",
    "deviation_parameters",
    "fit_head",
    "gate_norms",
    "gating_rows",
    "mixing",
    "model_head",
    "renew_head",
    "replace_head",
]
