"""Callbacks for ``model.fit``: what the gates do, penalties that come in slowly, a body that stands still, gates that
stay fitted."""

from gated_domains.keras_layer.callbacks.freezing import FreezeBackbone
from gated_domains.keras_layer.callbacks.monitor import DomainMonitor
from gated_domains.keras_layer.callbacks.ramp import PenaltyRamp
from gated_domains.keras_layer.callbacks.renewing import RenewHead

__all__ = ["DomainMonitor", "FreezeBackbone", "PenaltyRamp", "RenewHead"]
