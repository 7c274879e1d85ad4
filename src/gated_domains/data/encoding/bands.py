"""Images of several bands -> floats for a model: as they are, for they come standardised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gated_domains.data.encoding.base import Encoding, refuse_nonsense

if TYPE_CHECKING:
    from torch import Tensor


class BandsEncoding(Encoding):
    """Floats as they are, channels first, in float32."""

    kind = "bands"

    def __init__(self, channels: int, height: int, width: int) -> None:
        refuse_nonsense(channels=channels, height=height, width=width)
        self.channels, self.height, self.width = channels, height, width

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.height, self.width)

    def tensor(self, raw: Tensor) -> Tensor:
        return raw.float()

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "channels": self.channels, "height": self.height, "width": self.width}
