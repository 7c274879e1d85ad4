"""Backbone: a body and the view that gates see beside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from gated_domains.backbones.bodies import Body
from gated_domains.backbones.finding import unmoved_buffers
from gated_domains.backbones.gating import GatingView
from gated_domains.backbones.view import View
from gated_domains.backbones.views import Standardised
from gated_domains.layer.fitting import check_rows
from gated_domains.layer.precision import at_least_float32, autocast_off

_ROWS_AT_ONCE = 512


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
