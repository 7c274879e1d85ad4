"""The paper's layer in Keras 3, on TensorFlow, JAX or PyTorch: the same names, defaults and numbers as in PyTorch.

>>> from gated_domains.keras_layer import GatedDomainUnits
>>> head = GatedDomainUnits(10)                        # where Dense(10) stood
>>> head.fit_bases(features)                           # bases, sigma, kappa from data
>>> model = keras.Sequential([body, head])
>>> model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
>>> model.fit(x, y)                                    # the penalties join the loss by themselves

Needs no torch, unless that is the backend or weights go to and from the PyTorch layer.
"""

from gated_domains.common.validation import GateHealth, GateWarning
from gated_domains.keras_layer import kernels, penalties
from gated_domains.keras_layer.callbacks import DomainMonitor, FreezeBackbone, PenaltyRamp, RenewHead
from gated_domains.keras_layer.experts import Experts, LinearExperts, MLPExperts, StackedExperts
from gated_domains.keras_layer.gates import CosineGate, MMDGate, ProjectionGate
from gated_domains.keras_layer.heads import fit_head, gating_rows, model_head, renew_head, replace_head
from gated_domains.keras_layer.output import GatedOutput
from gated_domains.keras_layer.products import InnerProducts
from gated_domains.keras_layer.tasks import GaussianLikelihood, ProbabilisticRegression, mean_and_variance
from gated_domains.keras_layer.training import end_to_end, fine_tune
from gated_domains.keras_layer.transfer import copy_from_torch, copy_to_torch, from_torch, to_torch
from gated_domains.keras_layer.units import GatedDomainUnits

__all__ = [
    "CosineGate",
    "DomainMonitor",
    "Experts",
    "FreezeBackbone",
    "GateHealth",
    "GateWarning",
    "GatedDomainUnits",
    "GatedOutput",
    "GaussianLikelihood",
    "InnerProducts",
    "LinearExperts",
    "MLPExperts",
    "MMDGate",
    "PenaltyRamp",
    "ProbabilisticRegression",
    "ProjectionGate",
    "RenewHead",
    "StackedExperts",
    "copy_from_torch",
    "copy_to_torch",
    "end_to_end",
    "fine_tune",
    "fit_head",
    "from_torch",
    "gating_rows",
    "kernels",
    "mean_and_variance",
    "model_head",
    "penalties",
    "renew_head",
    "replace_head",
    "to_torch",
]
