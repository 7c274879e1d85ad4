"""The paper's layer, in PyTorch: kernels, inner products, gates, experts, penalties, and the units they make."""

from gated_domains.common.validation import GateHealth, GateWarning
from gated_domains.layer.experts import Experts, LinearExperts, MLPExperts, StackedExperts
from gated_domains.layer.gates import CosineGate, GatedOutput, InnerProducts, MMDGate, ProjectionGate, Weighed
from gated_domains.layer.stream import GateStream
from gated_domains.layer.units import GatedDomainUnits

__all__ = [
    "CosineGate",
    "Experts",
    "GateHealth",
    "GateStream",
    "GateWarning",
    "GatedDomainUnits",
    "GatedOutput",
    "InnerProducts",
    "LinearExperts",
    "MLPExperts",
    "MMDGate",
    "ProjectionGate",
    "StackedExperts",
    "Weighed",
]
