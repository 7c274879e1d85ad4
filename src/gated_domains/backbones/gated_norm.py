"""GatedNorm: batch norm whose scale and shift, and if asked for its statistics, differ from basis to basis.

>>> gate_norms(body, num_bases=5)                     # any model's batch norms, in place
>>> with mixing(body, units.weigh(view).mixture):     # the view of the raw input, which is known before the body runs
...     features = body(inputs)

>>> replace_head(model, gating=view_of_inputs, example=x)
>>> gate_norms(model)                                 # head and norms follow the same gates; model(x) as before
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from gated_domains.backbones.backbone import Backbone, Standardised
from gated_domains.backbones.basis_statistics import (
    BasisWeights,
    normalise_by_batch,
    normalise_by_running,
    process_group,
    update_running,
)
from gated_domains.backbones.gating import InputView, ViewedHead
from gated_domains.common.validation import at_least_one
from gated_domains.data.errors import DataError
from gated_domains.layer.kernels import autocast_off
from gated_domains.layer.units import GatedDomainUnits

_NEEDS_RAW_INPUT = (
    "gated norms need a gating view of the raw input, as they run before there are features: "
    "replace_head(model, gating=a callable of the model's inputs, example=x)"
)
_RUNNING = ("running_mean", "running_var", "num_batches_tracked")

Statistics = Literal["batch", "basis"]
"""What a gated norm normalises by: the moments of the whole batch, or moments by basis."""


class GatedNorm(nn.Module):
    """``y = (gamma_0 + sum_j m_j Gamma_j) xhat + (b_0 + sum_j m_j B_j)`` for a mixture m of the bases.

    m is beta, times coverage where the units apply it.

    Takes over a batch norm: xhat, its running statistics and their momentum stay that norm's, gamma_0 and b_0 are its
    scale and shift. The deviations Gamma_j and B_j start at zero. The mixture is given with ``mixing``.

    With ``statistics="basis"`` xhat is normalised by moments that are pooled for each basis and mixed again for each
    sample, as described in ``basis_statistics``: running statistics then have a row for each basis, and several
    processes share the moments of their batches. With one basis that is batch norm. Gradient penalties (second
    derivatives) and ``torch.func`` transforms through a training batch need ``statistics="batch"``. After Batch
    Normalization Embeddings (Segu et al. 2020) and DSON (Seo et al., ECCV 2020).

    Parameters
    ----------
    norm
        The batch norm that is taken over; it keeps the running statistics.
    num_bases
        How many bases the mixture is over.
    statistics
        ``"batch"``: one mean and variance for all samples of a batch. ``"basis"``: by basis.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(self, norm: _BatchNorm, num_bases: int, statistics: Statistics = "batch") -> None:
        super().__init__()
        _refuse_unless_plain(norm)
        self.num_bases = at_least_one("num_bases", num_bases)
        self.statistics = _known(statistics)
        self.register_parameter("weight", norm.weight)
        self.register_parameter("bias", norm.bias)
        like = next((tensor for tensor in (norm.weight, norm.running_mean) if tensor is not None), torch.zeros(()))
        shape = (num_bases, norm.num_features)
        self.weight_deviations = nn.Parameter(torch.zeros(shape, dtype=like.dtype, device=like.device))
        self.bias_deviations = nn.Parameter(torch.zeros(shape, dtype=like.dtype, device=like.device))
        norm.register_parameter("weight", None)
        norm.register_parameter("bias", None)
        norm.affine = False
        if statistics == "basis":
            norm._buffers.update({name: _repeated(buffer, num_bases) for name, buffer in norm._buffers.items()})
        self.normalise = norm
        self.train(norm.training)
        self.mixture: Tensor | None = None
        self.basis_weights: BasisWeights | None = None

    def forward(self, x: Float[Tensor, "batch channels *positions"]) -> Float[Tensor, "batch channels *positions"]:
        if self.mixture is None:
            raise RuntimeError(
                "a GatedNorm was called with no mixture in force; call the model inside `with mixing(model, "
                f"units.weigh(view).mixture):`, or let the head give it: {_NEEDS_RAW_INPUT}, then gate_norms(model)"
            )
        if self.mixture.shape[0] != x.shape[0] and self.mixture.shape[0] != 1:
            raise ValueError(
                f"the mixture has {self.mixture.shape[0]} rows and the norm sees {x.shape[0]}: weigh the same batch; "
                "a norm over something else than samples (frames, patches, nodes) cannot be gated by sample"
            )
        if self.statistics == "basis":
            with autocast_off(x):
                return self._normalise_by_basis(x, self.mixture)
        normal = self.normalise(x)
        with autocast_off(x):
            scale = _mixed(self.mixture, self.weight_deviations, 1.0 if self.weight is None else self.weight)
            shift = _mixed(self.mixture, self.bias_deviations, 0.0 if self.bias is None else self.bias)
        ones = (1,) * (x.dim() - 2)
        scale, shift = (part.to(normal.dtype).reshape(*part.shape, *ones) for part in (scale, shift))
        return normal * scale + shift

    def _normalise_by_basis(self, x: Tensor, mixture: Tensor) -> Tensor:
        # The batch norm itself is not called: it holds the settings and the running moments, so that code that resets,
        # loads or converts batch norms still finds them.
        norm, by_basis = self.normalise, cast(BasisWeights, self.basis_weights)
        norm._check_input_dim(x)
        weights, exact = by_basis.of(x), mixture.to(self.weight_deviations.dtype)
        pairs = ((self.weight, self.weight_deviations, 1.0), (self.bias, self.bias_deviations, 0.0))
        scale, shift = (
            # One operator for the sum and the product: with dozens of norms, small operators are a share of the time.
            torch.addmm(deviations.new_full((), start) if shared is None else shared, exact, deviations)
            .to(weights.dtype)
            .expand(x.shape[0], -1)
            for shared, deviations, start in pairs
        )
        if not norm.training and norm.running_mean is not None:
            running = {"running_mean": norm.running_mean, "running_var": cast(Tensor, norm.running_var)}
            return normalise_by_running(x, scale, shift, weights, **running, eps=norm.eps)
        group = process_group(norm) if norm.training else None
        values = x.shape[0] * x.shape[2:].numel()
        if group is None and isinstance(values, int) and values < 2:
            raise ValueError(
                f"batch norm needs at least two values per channel in training, got {values} (shape {tuple(x.shape)}): "
                "train on batches of two rows or more, or call model.eval()"
            )
        pooling = by_basis.pooling(x, group)
        count = pooling.rows * x.shape[2:].numel()
        found, moments = normalise_by_batch(x, scale, shift, weights, pooling, eps=norm.eps, group=group)
        update_running(norm, moments, count)
        return found

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *others: Any) -> None:
        # The weights of the same model before its norms were gated fit too.
        for name in _RUNNING:
            if f"{prefix}{name}" in state:
                state[f"{prefix}normalise.{name}"] = state.pop(f"{prefix}{name}")
            held, key = getattr(self.normalise, name), f"{prefix}normalise.{name}"
            if self.statistics == "basis" and held is not None and key in state:
                state[key] = _repeated(state[key], self.num_bases)  # copy batch statistics to every basis
        super()._load_from_state_dict(state, prefix, *others)

    def __getstate__(self) -> dict[str, object]:
        # A copy that is made while a mixture is in force has none.
        return {**self.__dict__, "mixture": None, "basis_weights": None}

    def extra_repr(self) -> str:
        return f"{self.num_bases} bases" + (", statistics by basis" if self.statistics == "basis" else "")


def gate_norms(model: nn.Module, num_bases: int | None = None, *, statistics: Statistics = "batch") -> list[GatedNorm]:
    """Put a ``GatedNorm`` where each batch norm of a model stands, in place; the model gives the same until trained.

    Without ``num_bases`` the norms follow the gates of the model's own head, which must see a view of the raw input:
    ``replace_head(model, gating=a callable of the model's inputs, example=x)``. With it, give them their mixture at
    each call with ``mixing``. ``statistics`` "basis" makes the statistics of the norms differ by basis too.
    """
    _known(statistics)
    places = list(_places(model))
    _refuse_unless_any(model, places)
    head = _head_on_raw_input(model) if num_bases is None else None
    bases = head.units.max_bases if head is not None else at_least_one("num_bases", cast(int, num_bases))
    for _, _, norm in places:
        _refuse_unless_plain(norm)  # all of them before the first is swapped
    gated: dict[_BatchNorm, GatedNorm] = {}
    for parent, name, norm in places:
        if norm not in gated:  # one norm may stand in two places
            gated[norm] = GatedNorm(norm, bases, statistics)
        setattr(parent, name, gated[norm])
    if head is not None:
        _follow(model, head)
    return list(gated.values())


def why_not_gated(backbone: Backbone) -> str | None:
    """Why the norms of a body cannot be gated by what the gates of its backbone see; None where they can be."""
    if not any(isinstance(module, _BatchNorm) for module in backbone.body.modules()):
        return f"the body has no batch norm ({type(backbone.body).__name__})"
    if not backbone.body.norms_by_sample:
        return "the batch norms of the body normalise over atoms, and gates are computed for molecules"
    if not backbone.sees_raw_input:
        return "the gates do not see the raw input, because of the setting gating"
    return None


@contextmanager
def mixing(
    model: nn.Module,
    mixture: Float[Tensor, "rows bases"],
    *,
    beta: Float[Tensor, "rows bases"] | None = None,
    active: Bool[Tensor, " bases"] | None = None,
) -> Iterator[None]:
    """Hand the mixture of a batch (beta, times coverage where it is applied) to all gated norms inside the block.

    ``beta`` and ``active`` are for norms with statistics by basis: the weights of the moments, by default the mixture,
    and which bases are in use, by default all of them.
    """
    norms = _gated(model)
    before = [(norm.mixture, norm.basis_weights) for norm in norms]
    beta = mixture if beta is None else beta
    for norm in norms:
        _check_bases(norm, mixture, beta, active)
    try:
        _give(norms, mixture, beta, active)
        yield
    finally:
        for norm, (old, weights) in zip(norms, before, strict=True):
            norm.mixture, norm.basis_weights = old, weights


def deviation_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The deviations of all gated norms, which the ridge penalty of the units counts too."""
    return [parameter for norm in _gated(model) for parameter in (norm.weight_deviations, norm.bias_deviations)]


def running_moments(model: nn.Module) -> list[Tensor]:
    """The running means and variances by basis of all gated norms that have them."""
    return [
        buffer
        for norm in _gated(model)
        if norm.statistics == "basis"
        for buffer in (norm.normalise.running_mean, norm.normalise.running_var)
        if buffer is not None
    ]


@contextmanager
def as_second_moments(model: nn.Module) -> Iterator[None]:
    """Inside, running variances by basis hold second moments about the mean of the bases, which can be averaged."""
    held = running_moments(model)
    about = [(mean, variance, mean.mean(0)) for mean, variance in zip(held[::2], held[1::2], strict=True)]
    for mean, variance, centre in about:
        variance.add_((mean - centre).square())
    try:
        yield
    finally:
        for mean, variance, centre in about:
            variance.sub_((mean - centre).square()).clamp_min_(0)


class _HeadOnRawInput(NamedTuple):
    """A head, and the view of the model's inputs that its gates see."""

    units: GatedDomainUnits
    view: InputView
    standardised: Standardised


class _FollowsHead:
    """Hooks of a model: its norms get what the gates of its head find in the view, and lose it when the call ends."""

    def __init__(self, head: _HeadOnRawInput, norms: list[GatedNorm]) -> None:
        self.head, self.norms = head, norms

    def give(self, _: nn.Module, args: tuple[Any, ...]) -> None:
        units, view, standardised = self.head
        weighed = units.weigh(standardised(cast(Tensor, view.held).to(standardised.mean.dtype)))
        _give(self.norms, weighed.mixture, weighed.beta, units.active)

    def take_away(self, _: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        for norm in self.norms:
            norm.mixture = norm.basis_weights = None


def _follow(model: nn.Module, head: _HeadOnRawInput) -> None:
    # Hooks of one module run in their order: where the view is observed, it is there when these ask for it.
    observed_at = next(module for module in model.modules() if head.view.hook.id in module._forward_pre_hooks)
    follows = _FollowsHead(head, _gated(observed_at))
    observed_at.register_forward_pre_hook(follows.give)
    observed_at.register_forward_hook(follows.take_away, always_call=True)


def _head_on_raw_input(model: nn.Module) -> _HeadOnRawInput:
    heads = [module for module in model.modules() if isinstance(module, ViewedHead)]
    if len(heads) != 1:
        what = f"{len(heads)} heads with a view of their own" if heads else "no head whose gates see another view"
        raise ValueError(f"{type(model).__name__} has {what}, and {_NEEDS_RAW_INPUT}, or pass num_bases and use mixing")
    (head,) = heads
    if not isinstance(head.view, InputView):
        raise ValueError(f"the gates of {type(model).__name__} see layers of the model itself, and {_NEEDS_RAW_INPUT}")
    return _HeadOnRawInput(head.units, head.view, head.standardised)


def _places(model: nn.Module) -> Iterator[tuple[nn.Module, str, _BatchNorm]]:
    """Every batch norm, with its parent and its name there; without those inside the experts of units."""
    for name, child in model._modules.items():
        if isinstance(child, _BatchNorm):
            yield model, name, child
        elif child is not None and not isinstance(child, GatedNorm | GatedDomainUnits):
            yield from _places(child)


def _gated(model: nn.Module) -> list[GatedNorm]:
    return [module for module in model.modules() if isinstance(module, GatedNorm)]


def _give(norms: list[GatedNorm], mixture: Tensor, beta: Tensor, active: Tensor | None) -> None:
    by_basis = any(norm.statistics == "basis" for norm in norms)
    weights = BasisWeights(beta, active) if by_basis else None
    for norm in norms:
        norm.mixture, norm.basis_weights = mixture, weights


def _refuse_unless_any(model: nn.Module, places: list[tuple[nn.Module, str, _BatchNorm]]) -> None:
    if places:
        return
    name = type(model).__name__
    if isinstance(model, _BatchNorm):
        raise DataError(f"a bare {name} has no model to stand in: build GatedNorm(norm, num_bases) yourself")
    if _gated(model):
        raise DataError(f"the batch norms of this {name} are gated already: call gate_norms once")
    raise DataError(
        f"{name} has no batch norm whose scale and shift could be gated; leave its norms as they are, "
        "the head is gated without them, or take a body with batch norms"
    )


def _refuse_unless_plain(norm: _BatchNorm) -> None:
    kind = type(norm)
    if kind.forward not in (_BatchNorm.forward, nn.SyncBatchNorm.forward):
        raise DataError(
            f"{kind.__name__} does more than a batch norm, which GatedNorm would undo; put nn.BatchNorm there"
        )
    if any(tensor is not None and is_lazy(tensor) for tensor in (norm.weight, norm.running_mean)):
        raise DataError(f"{kind.__name__} does not know its width yet; run the model once on a batch, then gate it")


def _check_bases(norm: GatedNorm, mixture: Tensor, beta: Tensor, active: Tensor | None) -> None:
    for name, weights in (("mixture", mixture), ("beta", beta)):
        if weights.dim() != 2 or weights.shape[-1] != norm.num_bases:
            raise ValueError(
                f"a {name} for norms with {norm.num_bases} bases has shape (rows, {norm.num_bases}), got "
                f"{tuple(weights.shape)}: gate the norms with num_bases=units.max_bases"
            )
    rows, weighed = mixture.shape[0], beta.shape[0]
    if weighed != rows and 1 not in (weighed, rows):
        raise ValueError(
            f"beta must have a row for each of the {rows} rows of the mixture, or one for all of them, got {weighed}: "
            "weigh the same batch"
        )
    if active is not None and active.shape != (norm.num_bases,):
        raise ValueError(
            f"active must have shape ({norm.num_bases},), one flag for each basis, got {tuple(active.shape)}: pass "
            "units.active"
        )


def _known(statistics: Statistics) -> Statistics:
    if statistics not in get_args(Statistics):
        raise ValueError(f"statistics must be 'batch' or 'basis', got {statistics!r}")
    return statistics


def _repeated(buffer: Tensor | None, num_bases: int) -> Tensor | None:
    """Running statistics of a batch norm as those of every basis; what has a row for each basis stays as it is."""
    return buffer.repeat(num_bases, 1) if buffer is not None and buffer.dim() == 1 else buffer


def _mixed(mixture: Tensor, deviations: Tensor, shared: Tensor | float) -> Tensor:
    return shared + mixture.to(deviations.dtype) @ deviations
