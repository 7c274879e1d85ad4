"""MixStyle: while training, the style of a sample (mean and scale) is mixed with that of another.

Zhou et al. (2021), "Domain Generalization with MixStyle".

>>> mixer = mix_styles(backbone, 0.5)        # hooks on the body, which are part of no state_dict
>>> with mixer.told(domains):                # mixes in here alone, and in train mode alone
...     method.step(objective, batch, optimizer)
>>> mixer.remove()
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.distributions import Dirichlet
from torch.utils.hooks import RemovableHandle

from gated_domains.backbones.backbone import Backbone, Body, View, evaluating
from gated_domains.backbones.gating import Style
from gated_domains.backbones.moments import Moments, domain_moments, map_moments, restyled
from gated_domains.data.errors import DataError

_ALPHA = 0.1  # of Beta(alpha, alpha), as in the paper: most samples keep almost all of one of the two styles
_ENOUGH = 2  # rows that the scale of a domain can be taken of

#: Inputs of training rows in batches, each with the domains of its rows: 0, 1, 2, ...
TrainingRows = Callable[[], Iterable[tuple[Tensor, Tensor]]]


class StyleMixer(ABC):
    """Mixes styles inside ``told``, where the body is in train mode; each time with a ``probability``.

    Every sample gets a share of its own, drawn from Beta(0.1, 0.1). The coin is tossed on the device: a step that is
    recorded as a graph tosses it again each time.
    """

    #: Whether ``told`` must be given the domains of the rows.
    needs_domains: bool

    def __init__(self, probability: float) -> None:
        if not 0 < probability <= 1:
            raise DataError(f"styles are mixed with a probability above 0 and up to 1, got {probability}")
        self.probability = probability
        self.domains: Tensor | None = None
        self._mixes = False
        self._hooks: list[RemovableHandle] = []

    @contextmanager
    def told(self, domains: Int64[Tensor, " batch"] | None) -> Iterator[None]:
        """Inside, styles are mixed; ``domains`` are those of the rows that the body is called with."""
        before = self._mixes, self.domains
        self._mixes, self.domains = True, domains
        try:
            yield
        finally:
            self._mixes, self.domains = before

    def remove(self) -> None:
        """Leave the body as it was."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    @abstractmethod
    def mixed(self, x: Tensor) -> Tensor:
        """The same samples in mixed styles."""

    def shares(self, like: Tensor) -> Float[Tensor, " batch"]:
        """How much each row keeps of its own style: all of it, where the coin says no."""
        both = torch.full((len(like), 2), _ALPHA, device=like.device)
        drawn = Dirichlet(both, validate_args=False).sample()[:, 0]  # checks would make the host wait for a GPU
        return torch.where(torch.rand((), device=like.device) < self.probability, drawn, 1.0)

    def _on_outputs(self, module: nn.Module, _: tuple[Any, ...], output: Tensor) -> Tensor | None:
        return self.mixed(output) if self._mixes and module.training else None

    def _on_inputs(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return (self.mixed(args[0]), *args[1:]) if self._mixes and module.training else None


class MapMixer(StyleMixer):
    """``(x - m) / s * s' + m'`` for the mean m and scale s of each channel of a sample's maps, after early blocks.

    m' and s' are mixed with those of another sample of the batch, whatever its domain. Where gates see the early blocks
    themselves, styles are mixed after the last of those alone, so that what gates see is never mixed.
    """

    needs_domains = False

    def __init__(self, body: Body, probability: float, *, last_alone: bool = False) -> None:
        super().__init__(probability)
        if not body.early:
            raise DataError(
                f"{type(body).__name__} names no early block after which styles could be mixed; leave mixstyle out"
            )
        early = body.early[-1:] if last_alone else body.early
        self._hooks = [body.get_submodule(name).register_forward_hook(self._on_outputs) for name in early]

    def mixed(self, x: Float[Tensor, "batch channels height width"]) -> Float[Tensor, "batch channels height width"]:
        own = map_moments(x)
        partner = torch.rand(len(x), device=x.device).argsort()  # not randperm, which makes the host wait for a GPU
        return restyled(x, own, own.of(partner), self.shares(x))


class DomainMixer(StyleMixer):
    """``(x - m_d) / s_d * s' + m'`` for vectors: one has no positions to take a mean over, but its domain d has rows.

    m' and s' are mixed with those of another domain, drawn for each row. Both are of all training rows of a domain:
    what is mixed stands still (the inputs of a body that is trained, the features of one that is not), and so batches
    of one domain are mixed as well. A domain of a single training row has no scale and is left as it is.
    """

    needs_domains = True

    def __init__(self, body: Body, probability: float, *, moments: Moments, enough: Bool[Tensor, " domains"]) -> None:
        super().__init__(probability)
        self.moments, self.enough = moments, enough
        before = _is_trained(body)
        self._hooks = [
            body.register_forward_pre_hook(self._on_inputs) if before else body.register_forward_hook(self._on_outputs)
        ]

    def mixed(self, x: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        own = self.domains
        if own is None or len(own) != len(x):
            known = "none" if own is None else len(own)
            raise RuntimeError(f"{len(x)} rows are to be mixed by domain, and the domains of {known} are told")
        others = self.enough & (own.unsqueeze(1) != torch.arange(len(self.enough), device=x.device))
        other = torch.rand(others.shape, device=x.device).masked_fill(~others, -1.0).max(1)
        can = self.enough.index_select(0, own) & (other.values >= 0)
        moments = self.moments.to(torch.promote_types(x.dtype, torch.float32))
        return restyled(x, moments.of(own), moments.of(other.indices), torch.where(can, self.shares(x), 1.0))


def mixes_by_domain(backbone: Backbone) -> bool:
    """Whether it is vectors that are mixed, by their domains: the inputs are such, or the body is not trained."""
    return len(backbone.body.shape) == 1 or not _is_trained(backbone.body)


def mix_styles(
    backbone: Backbone, probability: float, *, domains: int = 0, training_rows: TrainingRows | None = None
) -> StyleMixer:
    """Put a mixer on a backbone's body. One that mixes by domain looks once at training rows of this many domains."""
    if backbone.body.takes in ("tokens", "graphs") and _is_trained(backbone.body):
        raise DataError(
            f"mixstyle mixes maps of images, vectors, or features of a frozen body, and {backbone.body.takes} are none "
            "of these; leave mixstyle out, or fine-tune (mode fine_tune)"
        )
    if not mixes_by_domain(backbone):
        return MapMixer(backbone.body, probability, last_alone=isinstance(backbone.gating, Style))
    if training_rows is None or domains < 2:
        raise DataError(too_few_styles(domains))
    rows = training_rows() if _is_trained(backbone.body) else _features(backbone, training_rows())
    moments, counts = domain_moments(rows, domains)
    return DomainMixer(backbone.body, probability, moments=moments, enough=counts >= _ENOUGH)


def too_few_styles(domains: int) -> str:
    """Why vectors cannot be mixed between so few domains."""
    there = "there is one only" if domains == 1 else "none is known: name the column that holds them (--domain)"
    return f"mixstyle mixes vectors between source domains, and {there}; or leave mixstyle out"


def _is_trained(body: Body) -> bool:
    return any(parameter.requires_grad for parameter in body.parameters())


@torch.no_grad()
def _features(backbone: Backbone, rows: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    for inputs, domains in rows:
        with evaluating(backbone):
            view: View = backbone(inputs)
        yield view.features, domains
