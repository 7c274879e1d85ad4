"""Inputs -> numbers for a model. What must be learned from data is learned from the training rows alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Inputs

if TYPE_CHECKING:
    from torch import Tensor


class Encoding(ABC):
    """How samples become tensors, in two steps: ``prepare`` once for all, ``tensor`` on each batch, on its device.

    ``describe`` gives plain JSON, from which ``encoding_from`` makes the same encoding again, to ship with a model.
    """

    kind: ClassVar[str]
    notes: tuple[str, ...] = ()
    """What a person should know of how it was made; said of every run."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample as a model sees it."""

    @property
    def about(self) -> dict[str, Any]:
        """What a body must know besides the shape, as plain JSON: of tokens, how many different ones there are."""
        return {}

    @property
    def black(self) -> float | None:
        """The number that stands for a black pixel, where there is one for all images and channels."""
        return None

    def prepare(self, inputs: Inputs) -> Inputs:
        """Samples in the form that is kept in memory: by default as they are."""
        return inputs

    @abstractmethod
    def tensor(self, raw: Tensor) -> Tensor:
        """A batch of prepared samples as floats for a model."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """All that is needed to make this encoding again, as plain JSON."""


class ImageEncoding(Encoding):
    """Bytes 0 to 255 -> floats -1 to 1, channels first. Bytes until a batch is made: a quarter of the memory.

    ``standardise``: instead, each image's channels by their own mean and standard deviation, so that how bright a
    microscope's lamp was that day is not seen.
    """

    kind = "images"

    def __init__(self, height: int, width: int, channels: int, *, standardise: bool = False) -> None:
        refuse_nonsense(height=height, width=width, channels=channels)
        self.height, self.width, self.channels, self.standardise = height, width, channels, standardise

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.height, self.width)

    @property
    def about(self) -> dict[str, Any]:
        return {"standardised": True} if self.standardise else {}

    @property
    def black(self) -> float | None:
        return None if self.standardise else -1.0

    def tensor(self, raw: Tensor) -> Tensor:
        values = raw.permute(0, 3, 1, 2).float()
        if not self.standardise:
            return values.div_(127.5).sub_(1.0)
        mean, deviation = values.mean(dim=(2, 3), keepdim=True), values.std(dim=(2, 3), keepdim=True)
        # A channel that is all of one brightness is 0, not divided by its 0.
        return values.sub_(mean).div_(deviation.where(deviation > 0, 1.0))

    def describe(self) -> dict[str, Any]:
        sizes = {"height": self.height, "width": self.width, "channels": self.channels}
        return {"kind": self.kind, **sizes, **({"standardise": True} if self.standardise else {})}


class FeatureEncoding(Encoding):
    """Numbers as they are, in float32."""

    kind = "features"

    def __init__(self, width: int) -> None:
        refuse_nonsense(width=width)
        self.width = width

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.width,)

    def tensor(self, raw: Tensor) -> Tensor:
        return raw.float()

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "width": self.width}


def refuse_nonsense(**sizes: object) -> None:
    """Refuse sizes of an encoding, by name, that are no whole numbers from 1 on."""
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise DataError(f"the {name} of an encoding must be a whole number from 1 on, got {size!r}")
