"""Callbacks for ``model.fit``: what the gates do, penalties that come in slowly, a body that stands still, coverage."""

from gated_domains.keras_layer.callbacks.coverage import RenewCoverage
from gated_domains.keras_layer.callbacks.freezing import FreezeBackbone
from gated_domains.keras_layer.callbacks.monitor import DomainMonitor
from gated_domains.keras_layer.callbacks.ramp import PenaltyRamp

__all__ = ["DomainMonitor", "FreezeBackbone", "PenaltyRamp", "RenewCoverage"]
