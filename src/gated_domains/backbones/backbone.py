"""Backbone: a body and the view that gates see beside it.

``Body`` and ``GatingView`` are what a backbone is made of, ``View`` is what it gives; ``CachedBackbone`` gives the same
from the rows of a feature cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from gated_domains.common.validation import at_least_one
from gated_domains.data.errors import DataError, did_you_mean, listing
from gated_domains.layer.fitting import check_rows, on_first_rank
from gated_domains.layer.kernels import at_least_float32, autocast_off

Takes = Literal["images", "vectors", "tokens", "graphs"]

#: How many sizes the shape of one sample has. Tokens and graphs are rows of whole numbers, of at most that many.
_SIZES: dict[Takes, int] = {"images": 3, "vectors": 1, "tokens": 1, "graphs": 1}
_ROWS_AT_ONCE = 512


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


class Identity(Body):
    """The vector as it is: for features that some other network made."""

    takes = "vectors"

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__(shape)
        (self.features,) = self.shape

    def forward(self, inputs: Float[Tensor, "batch inputs"]) -> Float[Tensor, "batch features"]:
        return inputs


class GatingView(nn.Module):
    """A map from a batch of inputs to the ``width`` numbers a sample that gates see, before they are standardised."""

    width: int
    sees_raw_input: bool = True
    """A function of the raw input alone, known before the body runs; else it is taken from the body's run."""

    def forward(self, inputs: Shaped[Tensor, "batch ..."]) -> Float[Tensor, "batch width"]:
        raise NotImplementedError


class View(NamedTuple):
    """What experts see of a batch and what gates see of it."""

    features: Float[Tensor, "batch features"]
    gating: Float[Tensor, "batch gating"] | None = None
    """None: the features."""


class Standardised(nn.Module):
    """``(z - mean) / scale`` with the mean and scale of training data; nothing until fitted."""

    mean: Tensor
    scale: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def forward(self, z: Float[Tensor, "batch width"]) -> Float[Tensor, "batch width"]:
        return (z - self.mean) / self.scale

    def inverse(self, z: Float[Tensor, "batch width"]) -> Float[Tensor, "batch width"]:
        """What was standardised, as it was before."""
        return z * self.scale + self.mean

    def take_from(self, other: Standardised) -> None:
        """Copy another's mean and scale; with several processes, those of rank 0."""
        on_first_rank(lambda: self.load_state_dict(other.state_dict()), [self.mean, self.scale])

    @torch.no_grad()
    def fit(self, z: Float[Tensor, "rows width"]) -> None:
        scale = z.std(0)
        self.mean.copy_(z.mean(0))
        self.scale.copy_(torch.where(scale > 1e-6, scale, 1.0))  # a constant column says nothing either way


class Backbone(nn.Module):
    """Inputs -> ``View``: the body's features, and the gating view, standardised and not back-propagated through.

    Without ``gating`` the gates see the features. Call ``fit_view`` with training inputs before the first step.
    """

    def __init__(self, body: Body, gating: GatingView | None = None) -> None:
        super().__init__()
        self.body = body
        self.gating = gating
        self.features = body.features
        self.gating_features = body.features if gating is None else gating.width
        self.standardised = None if gating is None else Standardised(gating.width)

    @property
    def sees_raw_input(self) -> bool:
        """Gates see a function of the raw input alone, which is known before the body runs."""
        return self.gating is not None and self.gating.sees_raw_input

    def forward(self, inputs: Shaped[Tensor, "batch ..."]) -> View:
        if inputs.is_cuda and self.sees_raw_input:
            return self._side_by_side(inputs)
        features = self.body(inputs)
        return View(features, None if self.gating is None else self._standardise(self._view(inputs)))

    def _side_by_side(self, inputs: Tensor) -> View:
        """The body, and on a stream of its own the view, whose small kernels fit beside the body's large ones."""
        ours, beside = torch.cuda.current_stream(inputs.device), torch.cuda.Stream(inputs.device)
        beside.wait_stream(ours)
        with torch.cuda.stream(beside):
            gating = self._standardise(self._view(inputs))
        inputs.record_stream(beside)  # else its memory could be given away while the view still reads it
        features = self.body(inputs)
        ours.wait_stream(beside)
        gating.record_stream(ours)
        return View(features, gating)

    def look(self, inputs: Shaped[Tensor, "batch ..."]) -> Float[Tensor, "batch gating"]:
        """What gates see, without gradient; a view of the raw input costs no run of the body."""
        return self._standardise(self._observe(inputs))

    def fit_view(
        self, inputs: Shaped[Tensor, "rows ..."] | Iterable[Shaped[Tensor, "batch ..."]]
    ) -> Float[Tensor, "rows gating"]:
        """Standardise by these training inputs (one tensor, or batches of it); returns what gates now see of them.

        The body, where it must run, runs in the mode it is in and keeps its running statistics. With several processes
        those of rank 0 count.
        """
        batches = torch.split(inputs, _ROWS_AT_ONCE) if isinstance(inputs, Tensor) else inputs
        with unmoved_buffers(self):
            parts = [self._observe(batch) for batch in batches]
        if not parts:
            raise ValueError("no batch to take a view from: pass training inputs")
        observed = torch.cat(parts)
        if self.standardised is not None:
            renewed = Standardised(self.gating_features).to(observed)
            renewed.fit(check_rows(observed, at_least=2, purpose="standardising a view"))
            self.standardised.take_from(renewed)
        return self._standardise(observed)

    @torch.no_grad()
    def _observe(self, inputs: Tensor) -> Tensor:
        """What gates see before it is standardised."""
        if self.sees_raw_input:
            return self._view(inputs)
        features: Tensor = self.body(inputs)
        return features if self.gating is None else self._view(inputs)

    @torch.no_grad()
    def _view(self, inputs: Tensor) -> Tensor:
        with autocast_off(inputs):
            return at_least_float32(cast(GatingView, self.gating)(inputs))

    @torch.no_grad()
    def _standardise(self, observed: Tensor) -> Tensor:
        return observed if self.standardised is None else self.standardised(observed)


class CachedBackbone(Backbone):
    """Rows ``[features | gating]`` -> ``View``. Nothing in it moves, so gates see what stands still."""

    def __init__(self, features: int, gating: int = 0) -> None:
        super().__init__(Identity((features,)))
        self.gating_features = gating or features
        self.apart = gating > 0

    @property
    def sees_raw_input(self) -> bool:
        return True

    def forward(self, inputs: Float[Tensor, "batch columns"]) -> View:
        # Through the body, which gives back what it gets unless styles are mixed there.
        return View(self.body(inputs[:, : self.features]), inputs[:, self.features :] if self.apart else None)

    def look(self, inputs: Float[Tensor, "batch columns"]) -> Float[Tensor, "batch gating"]:
        return inputs[:, self.features :] if self.apart else inputs[:, : self.features]

    def fit_view(
        self, inputs: Float[Tensor, "rows columns"] | Iterable[Float[Tensor, "_ columns"]]
    ) -> Float[Tensor, "rows gating"]:
        """What gates see of these rows; it was standardised before it was cached."""
        batches = [inputs] if isinstance(inputs, Tensor) else inputs
        return torch.cat([self.look(batch) for batch in batches])


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in eval mode, and every module back in its own mode after."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def unmoved_buffers(model: nn.Module) -> Iterator[None]:
    """Running statistics as they were before, whatever the model did in between."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        yield
    finally:
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])


class RawInput(GatingView):
    """The encoded vector itself."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        if len(shape) != 1:
            raise DataError(
                f"gates see the input where it is a vector, and these samples have shape {tuple(shape)}; "
                "for images there are 'filters' and 'style'"
            )
        (self.width,) = shape

    def forward(self, inputs: Float[Tensor, "batch width"]) -> Float[Tensor, "batch width"]:
        return at_least_float32(inputs)


def default_gating(kind: str) -> str:
    """The name of the gating view for a kind of inputs, such as ``images``, ``table`` or ``tokens``."""
    if kind not in _DEFAULTS:
        raise DataError(f"no gating view is known for inputs of kind {kind!r}{did_you_mean(kind, _DEFAULTS)}")
    return _DEFAULTS[kind]


_DEFAULTS = {
    "images": "filters",
    "bands": "filters",
    "table": "input",
    "features": "input",
    "words": "projection",
    "bits": "projection",
    "tokens": "tokens",
    "graphs": "graphs",
}
