"""Activation checkpointing: a part of a network whose activations are computed again on the way back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from gated_domains.backbones.basis_statistics import BasisWeights
from gated_domains.backbones.gated_norm import GatedNorm


def checkpointed(part: nn.Module, x: Tensor) -> Tensor:
    """``part(x)``, of which only the ends are kept; what is in between is computed again when gradients are taken.

    The second time is like the first: same random numbers, same mixture in gated norms, which by then is no longer in
    force. Batch norms do not count the batch twice.
    """

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _again(part, [(norm.mixture, norm.basis_weights) for norm in _gated(part)])

    found: Tensor = checkpoint(part, x, use_reentrant=False, context_fn=contexts)
    return found


@contextmanager
def _again(part: nn.Module, mixtures: list[tuple[Tensor | None, BasisWeights | None]]) -> Iterator[None]:
    norms = [module for module in part.modules() if isinstance(module, _BatchNorm)]
    running = [dict(norm._buffers) for norm in norms]
    gated = _gated(part)
    before = [(norm.mixture, norm.basis_weights) for norm in gated]
    try:
        for norm in norms:  # copies take the batch up, and are thrown away
            norm._buffers.update({name: None if old is None else old.clone() for name, old in norm._buffers.items()})
        for gate, mixture in zip(gated, mixtures, strict=True):
            gate.mixture, gate.basis_weights = mixture
        yield
    finally:
        for norm, buffers in zip(norms, running, strict=True):
            norm._buffers.update(buffers)
        for gate, mixture in zip(gated, before, strict=True):
            gate.mixture, gate.basis_weights = mixture


def _gated(part: nn.Module) -> list[GatedNorm]:
    return [module for module in part.modules() if isinstance(module, GatedNorm)]
