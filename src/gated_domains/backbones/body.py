"""Body: what every network from inputs to features has in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from torch import nn

from gated_domains.common.numbers import at_least_one
from gated_domains.data.errors import DataError, listing

Takes = Literal["images", "vectors", "tokens", "graphs"]

#: How many sizes the shape of one sample has. Tokens and graphs are rows of whole numbers, of at most that many.
_SIZES: dict[Takes, int] = {"images": 3, "vectors": 1, "tokens": 1, "graphs": 1}


class Body(nn.Module):
    """A network from inputs of one ``shape`` to ``features`` numbers a sample."""

    takes: Takes
    features: int
    early: tuple[str, ...] = ()
    """Names of the early blocks, whose channel statistics tell style from class."""
    large: bool = False
    """Large bodies are looked at and predicted with in small batches."""
    static: bool = True
    """Whether a step is the same series of kernels for every batch of one shape, as a CUDA graph asks."""
    norms_by_sample: bool = True
    """Whether its batch norms see one row a sample (or a map), and so can be gated by sample."""
    vocabulary: int | None = None
    """How many tokens it knows, where it takes tokens."""
    pad: int = 0
    """The token that stands for none."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(at_least_one("each size of a shape", size) for size in shape)
        if len(self.shape) != _SIZES[self.takes]:
            from gated_domains.backbones.bodies import BODIES  # which is made of bodies

            kind = {1: "vectors", 3: "images"}.get(len(self.shape), f"samples of {len(self.shape)} dimensions")
            able = listing(name for name, body in BODIES.items() if body.takes == kind)
            raise DataError(
                f"{type(self).__name__} takes {self.takes}, and these are {kind} of shape {self.shape}; "
                + (f"bodies that take them: {able}" if able else "a body of your own can take them: subclass Body")
            )

    def architecture(self) -> dict[str, Any]:
        """Keyword arguments, plain JSON, that build the same network for the same shape; its weights apart."""
        return {}

    def checkpoint_activations(self, on: bool) -> None:
        """Keep few activations for the way back and compute the others anew: less memory, more time, same numbers."""
        if on:
            raise DataError(
                f"{type(self).__name__} is small, and nothing is gained by computing its activations twice; "
                "leave checkpoint_activations out"
            )
