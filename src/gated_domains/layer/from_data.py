"""What a layer of units takes from data: bases, sigma, kappa, coverage; and whether its gates then do anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from gated_domains.common.validation import Drift, GateHealth, positive, warn_of_dead_gates
from gated_domains.layer.fitting import (
    Coverage,
    Initialiser,
    check_rows,
    check_tensor,
    choose_num_bases,
    kmeans_bases,
    match_kappa,
    median_sigma,
    nearest_places,
    on_first_rank,
    subsample,
    typical_distance,
)
from gated_domains.layer.gates import Gate, InnerProducts, SoftmaxGate, gate_health, inner_products, residual
from gated_domains.layer.kernels import KernelLike, as_kernel, squared_distances

Units = TypeVar("Units", bound="FitsData")

Origin = Literal["initial", "kept", "data"]
"""Where bases come from: the initialiser, the same with sigma fitted to them (the paper's), or ``fit_bases``."""

_HEALTH_ROWS = 2_000
_DISTANCE_ROWS = 500
_COVERAGE_ROWS = 20_000
_ENTROPY = 0.5


class FitsData(nn.Module):
    """The part of ``GatedDomainUnits`` that looks at training data before and between epochs, never inside a step.

    A layer remembers how wide sigma and how sharp kappa were relative to the data when they were fitted, so that
    ``renew`` keeps a width or sharpness that was set by hand. Copies and pickles keep this, a ``state_dict`` does not:
    a layer whose weights were loaded takes its bases for fitted and compares sigma and kappa with the heuristics.
    """

    bases: nn.Parameter
    active: Bool[Tensor, " bases"]
    kernel: KernelLike
    gate: Gate
    coverage: Coverage
    auto: bool
    adaptive: bool
    spare: bool
    max_bases: int
    basis_size: int
    gating_features: int
    memory_budget: int
    _warned: bool = False
    _origin: Origin | None = None
    _sigma_factor: float = 1.0  # sigma over the typical distance of the rows it was fitted to
    _kappa_factor: float = 1.0  # kappa over the one that gives half of the largest entropy on them

    def fit_bases(
        self: Units,
        features: Shaped[Tensor, "..."],
        *,
        initialiser: Initialiser = kmeans_bases,
        sigma: float | None = None,
        kappa: float | None = None,
        entropy: float = 0.5,
        seed: int = 0,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> Units:
        """Take bases, sigma, kappa (and their number, for ``num_bases="auto"``) from the view that gates see.

        sigma None: the median distance. kappa None: the one that gives gates a mean entropy of ``entropy * log M``.
        Writes in place and clears what ``optimizer`` remembers of the bases; with several processes rank 0 fits and the
        others receive. Warns (``GateWarning``) when the gates that result do little.
        """

        if not 0 < entropy < 1:
            raise ValueError(f"entropy is a share of log M between 0 and 1, got {entropy}")
        if kappa is not None and not isinstance(self.gate, SoftmaxGate):
            raise ValueError(f"kappa={kappa} cannot be set: {self.gate} has none; leave kappa out")
        sharpness = None if kappa is None else positive("kappa", kappa)

        def fit() -> None:
            # All that can be refused comes before the first write, so that an error leaves the layer as it was.
            x = self._fitting_rows(features)
            used = self._choose(x, seed)
            bases = self._initial_bases(initialiser, x, used, seed)
            width = self._width(x, sigma, seed)

            self.bases[:used] = bases.to(self.bases.dtype)
            self.active.copy_(torch.arange(self.max_bases, device=self.active.device) < used)
            if self.adaptive:
                self._forget_rounds()
            if width is not None:
                as_kernel(self.kernel).set_sigma(width)
                self._sigma_factor = 1.0 if sigma is None else width / typical_distance(x)
            self._set_kappa(x, sharpness, entropy, seed)
            self._fit_coverage(x, seed)
            self._health(x, seed).warn()

        self._fit_everywhere(fit)
        self._origin = "data"
        if optimizer is not None:
            _forget(optimizer, self.bases)
        return self

    def fit_sigma(self: Units, features: Shaped[Tensor, "..."], *, seed: int = 0) -> Units:
        """Take sigma alone from the data, by the median heuristic, as the paper does for fine-tuning.

        Bases that were not fitted to data then stay: ``renew`` leaves them alone.
        """
        origin = self._known_origin()

        def fit() -> None:
            x = self._fitting_rows(features)
            as_kernel(self.kernel).set_sigma(median_sigma(x, seed=seed))
            self._sigma_factor = 1.0
            self._fit_coverage(x, seed)
            self._health(x, seed).warn()

        self._fit_everywhere(fit)
        self._origin = "data" if origin == "data" else "kept"
        return self

    def fit_coverage(self: Units, features: Shaped[Tensor, "..."], *, seed: int = 0) -> Units:
        """Renew the coverage quantiles on training data, as is due after each epoch and before evaluation."""
        origin = self._known_origin()  # before quantiles are there, which tell nothing of the bases
        self._fit_everywhere(lambda: self._fit_coverage(self._fitting_rows(features), seed))
        self._origin = origin
        return self

    def health(self, features: Shaped[Tensor, "..."], *, seed: int = 0) -> GateHealth:
        """Measure whether gates do anything on these rows of the gating view."""
        return self._health(self._fitting_rows(features), seed)

    @torch.no_grad()
    def drift(self, features: Shaped[Tensor, "..."], *, seed: int = 0) -> Drift | None:
        """How far these rows of the gating view have moved from the bases since these were fitted; None: they fit.

        sigma and kappa are compared with what they were, relative to the data, when they were fitted.
        """
        if not self.coverage.fitted:
            return Drift("bases were never fitted to data", dead=False)
        x = self._fitting_rows(features)
        kernel = as_kernel(self.kernel)
        sigma_ratio = kappa_ratio = 1.0
        if kernel.has_width:
            distance = typical_distance(subsample(x, _DISTANCE_ROWS, seed))
            sigma_ratio = self._sigma_factor * distance / kernel.get_sigma()
        if isinstance(self.gate, SoftmaxGate):
            matched = self._matched_kappa(self.gate, x, _ENTROPY, seed)
            kappa_ratio = self._kappa_factor * matched / float(self.gate.kappa)
        found = self._health(x, seed).drift(sigma_ratio=sigma_ratio, kappa_ratio=kappa_ratio)
        if self._known_origin() == "initial" and (found is None or not found.dead):
            return Drift("bases were never fitted to data", dead=False)
        return found

    def renew(
        self: Units,
        features: Shaped[Tensor, "..."],
        *,
        optimizer: torch.optim.Optimizer | None = None,
        refit: bool = True,
        seed: int = 0,
    ) -> Units:
        """What a training loop calls at the start of every epoch: it keeps the gates fitted to features that move.

        With ``optimizer`` bases, sigma and kappa are fitted where they never were, and refitted where features have
        moved away from them (``drift``); each new basis then takes the place of the old one that it is nearest to, so
        that experts keep their meaning. Their number stays, and so do sigma and kappa relative to the data. Else, and
        always without ``optimizer``, only the quantiles of familiarity are renewed. Warns (``GateWarning``) once when
        gates have died and are not refitted.

        Parameters
        ----------
        features
            Training rows of the view that gates see; some thousands are enough.
        optimizer
            The optimizer of the training, whose state of the bases is cleared when they are rewritten. Leave it out
            before an evaluation: new bases would need experts that are trained with them.
        refit
            Whether bases may be rewritten; False keeps the existing ones, such as the paper's. Bases that were not
            fitted to data are kept in any case after ``fit_sigma``.
        seed
            Random seed.
        """
        if refit and optimizer is not None and self.refit_is_due(features, seed=seed):
            return self.refit_bases(features, optimizer=optimizer, seed=seed)
        self.fit_coverage(features, seed=seed)
        found = self.drift(features, seed=seed)
        if found is not None and found.dead and not self._warned:
            warn_of_dead_gates(found)
        self._warned = found is not None and found.dead
        return self

    def refit_is_due(self, features: Shaped[Tensor, "..."], *, seed: int = 0) -> bool:
        """Whether features have moved away from bases that may be refitted; with several processes, as rank 0 finds."""

        def look() -> None:
            due.fill_(float(self._known_origin() != "kept" and self.drift(features, seed=seed) is not None))

        due = torch.zeros(1, device=self.bases.device)
        on_first_rank(look, [due])
        return bool(due)

    def refit_bases(
        self: Units,
        features: Shaped[Tensor, "..."],
        *,
        optimizer: torch.optim.Optimizer | None = None,
        seed: int = 0,
    ) -> Units:
        """``fit_bases`` in the middle of a training, whether it is due or not.

        Each new basis takes the place of the old one it is nearest to. The number of bases stays, as do sigma and
        kappa relative to the data, and adaptive bases continue their rounds. Bases that were never fitted to data have
        none of this to keep. Rows that are mostly alike, as those of a network that has collapsed, are no error here.
        """
        has_width = as_kernel(self.kernel).has_width
        if self._known_origin() == "initial":
            sigma = typical_distance(self._fitting_rows(features)) if has_width else None
            return self.fit_bases(features, sigma=sigma, seed=seed, optimizer=optimizer)

        def refit() -> None:
            x = self._fitting_rows(features)
            bases = self._initial_bases(kmeans_bases, x, self.num_bases, seed)
            bases = bases[nearest_places(bases.mean(1), self.active_bases.detach().mean(1))]
            self.bases[self.active] = bases.to(self.bases.dtype)
            if has_width:
                kernel = as_kernel(self.kernel)
                before, sigma = kernel.get_sigma(), self._sigma_factor * typical_distance(x)
                kernel.set_sigma(sigma)
                if self.adaptive:
                    self._rescale_rounds(sigma / before)
            if isinstance(self.gate, SoftmaxGate):
                self.gate.set_kappa(self._kappa_factor * self._matched_kappa(self.gate, x, _ENTROPY, seed))
            self._fit_coverage(x, seed)
            self._health(x, seed).warn()

        self._fit_everywhere(refit)
        self._origin = "data"
        if optimizer is not None:
            _forget(optimizer, self.bases)
        return self

    @property
    def num_bases(self) -> int:
        """How many bases are in use."""
        return int(self.active.sum())

    @property
    def active_bases(self) -> Float[Tensor, "bases size gating"]:
        """The bases in use."""
        return self.bases[self.active]

    def _products(self, z: Tensor) -> InnerProducts:
        bases = _filled(self.bases, self.active) if self.spare else self.bases
        return inner_products(self.kernel, z, bases, active=self.active, budget=self.memory_budget)

    def _residual(self, own: InnerProducts) -> Tensor:
        return residual(own, self.gate.explaining(own))

    def _known_origin(self) -> Origin:
        return self._origin or ("data" if self.coverage.fitted else "initial")

    def _initial_bases(self, initialiser: Initialiser, x: Tensor, used: int, seed: int) -> Tensor:
        bases = initialiser(check_rows(x, at_least=used, purpose=f"{used} bases"), used, self.basis_size, seed)
        if bases.shape != (used, self.basis_size, self.gating_features):
            raise ValueError(
                f"the initialiser gave bases of shape {tuple(bases.shape)}, expected "
                f"{(used, self.basis_size, self.gating_features)}"
            )
        return bases

    def _width(self, x: Tensor, sigma: float | None, seed: int) -> float | None:
        """The width to set, None where the kernel has none that could be set."""
        settable = as_kernel(self.kernel).has_width
        if sigma is not None and not settable:
            raise ValueError(f"sigma={sigma} cannot be set: {self.kernel!r} has no width of ours; leave sigma out")
        if sigma is not None:
            return positive("sigma", sigma)
        return median_sigma(x, seed=seed) if settable else None

    def _fitting_rows(self, features: Tensor) -> Tensor:
        check_tensor("features", features)
        if features.dim() < 2 or features.shape[-1] != self.gating_features:
            raise ValueError(
                f"expected rows of the gating view with width {self.gating_features}, got shape {tuple(features.shape)}"
            )
        rows = check_rows(features.detach().flatten(0, -2))
        return rows.to(self.bases.device, torch.promote_types(rows.dtype, torch.float32))

    def _choose(self, x: Tensor, seed: int) -> int:
        if self.adaptive:
            return 1
        if self.auto:
            return choose_num_bases(x, range(2, self.max_bases + 1), seed=seed)[0]
        return self.num_bases

    def _forget_rounds(self) -> None:
        """Forget the rounds of adaptive bases, which depended on the old ones."""

    def _rescale_rounds(self, factor: float) -> None:
        """Keep the rounds of adaptive bases in step with features that are ``factor`` times as far apart."""

    def _set_kappa(self, x: Tensor, kappa: float | None, entropy: float, seed: int) -> None:
        """Set kappa, None: by the entropy; and remember how sharp that is for these rows."""
        if isinstance(self.gate, SoftmaxGate):
            matched = self._matched_kappa(self.gate, x, _ENTROPY, seed)
            if kappa is None:
                kappa = matched if entropy == _ENTROPY else self._matched_kappa(self.gate, x, entropy, seed)
            self.gate.set_kappa(kappa)
            self._kappa_factor = kappa / matched

    def _matched_kappa(self, gate: SoftmaxGate, x: Tensor, entropy: float, seed: int) -> float:
        products = self._products(subsample(x, _HEALTH_ROWS, seed).to(self.bases.dtype))
        return match_kappa(gate.similarity(products)[:, self.active], entropy=entropy)

    def _fit_coverage(self, x: Tensor, seed: int) -> None:
        rows = subsample(x, _COVERAGE_ROWS, seed).to(self.bases.dtype)
        parts = torch.split(rows, _HEALTH_ROWS)
        self.coverage.fit(torch.cat([self._residual(self._products(part)) for part in parts]))

    def _health(self, x: Tensor, seed: int) -> GateHealth:
        products = self._products(self._looked_at(x, seed))
        return gate_health(products, self.gate(products))

    def _looked_at(self, x: Tensor, seed: int) -> Tensor:
        """A sample without the rows that are basis vectors themselves: those are near a basis whatever sigma is."""
        rows = subsample(x, _HEALTH_ROWS, seed).to(self.bases.dtype)
        apart = (squared_distances(rows, self.active_bases.flatten(0, 1)) > 0).all(-1)
        return rows[apart] if 2 * int(apart.sum()) > len(rows) else rows

    @torch.no_grad()
    def _fit_everywhere(self, fit: Callable[[], None]) -> None:
        on_first_rank(fit, [self.bases, *self.buffers()])


def _filled(bases: Float[Tensor, "bases size features"], active: Bool[Tensor, " bases"]) -> Tensor:
    """The bases with the mean of those in use in every unused place: whatever lies there then disturbs no number."""
    used = active[:, None, None]
    total = torch.where(used, bases.detach(), 0).sum((0, 1))
    return torch.where(used, bases, total / (active.sum() * bases.shape[1]))


def _forget(optimizer: torch.optim.Optimizer, parameter: Tensor) -> None:
    """Zero what the optimiser remembers of a parameter that was just rewritten."""
    for name, value in optimizer.state.get(parameter, {}).items():
        if isinstance(value, Tensor) and name != "step_size":  # Rprop's, which would never grow again from 0
            value.zero_()
