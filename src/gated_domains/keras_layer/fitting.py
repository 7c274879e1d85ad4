"""What a layer of units takes from data, by the rules of ``choose``: bases, their number, sigma, kappa, coverage."""

from __future__ import annotations

import math
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gated_domains.choose.bases import Initialiser, kmeans_bases
from gated_domains.choose.kappa import match_kappa
from gated_domains.choose.num_bases import suggest_num_bases
from gated_domains.choose.rows import as_rows, subsample
from gated_domains.choose.sigma import suggest_sigma
from gated_domains.common.assignment import cheapest_assignment
from gated_domains.common.validation import Drift, GateHealth, positive, warn_of_dead_gates
from gated_domains.keras_layer.arrays import Array, as_numpy, keras, ops
from gated_domains.keras_layer.coverage import Coverage
from gated_domains.keras_layer.gates import Gate, SoftmaxGate
from gated_domains.keras_layer.health import gate_health
from gated_domains.keras_layer.kernels import Kernel
from gated_domains.keras_layer.optimisers import forget
from gated_domains.keras_layer.products import InnerProducts, inner_products, residual

Units = TypeVar("Units", bound="FitsData")

_CLUSTER_ROWS = 10_000
_HEALTH_ROWS = 2_000
_DISTANCE_ROWS = 500
_COVERAGE_ROWS = 20_000


class FitsData(keras.layers.Layer):
    """The part of ``GatedDomainUnits`` that looks at training data before and between epochs, never inside a step."""

    bases: Any
    active: Any
    kernel: Kernel
    gate: Gate
    coverage: Coverage
    auto: bool
    spare: bool
    max_bases: int
    start_bases: int
    basis_size: int
    gating_features: int
    _warned: bool = False

    def fit_bases(
        self: Units,
        features: Annotated[Array, "rows gating"],
        *,
        initialiser: Initialiser = kmeans_bases,
        sigma: float | None = None,
        kappa: float | None = None,
        entropy: float = 0.5,
        seed: int = 0,
        optimizer: keras.optimizers.Optimizer | None = None,
    ) -> Units:
        """Take bases, sigma, kappa (and their number, for ``num_bases="auto"``) from the view that gates see.

        sigma None: the median distance. kappa None: the one that gives gates a mean entropy of ``entropy * log M``.
        Writes in place and clears what ``optimizer`` remembers of the bases. Warns (``GateWarning``) when the gates
        that result do little. A layer that has not been built is built for features as wide as these.
        """
        # All that can be refused comes before the first write, so that an error leaves the layer as it was.
        x = self._fitting_rows(features)
        used = self._choose(x, seed)
        bases = np.asarray(initialiser(x, used, self.basis_size, seed))
        if bases.shape != (used, self.basis_size, x.shape[1]):
            raise ValueError(
                f"the initialiser gave bases of shape {bases.shape}, expected {(used, self.basis_size, x.shape[1])}"
            )
        width = self._width(x, sigma, seed)
        sharpness = None if kappa is None else positive("kappa", kappa)
        if kappa is not None and not isinstance(self.gate, SoftmaxGate):
            raise ValueError(f"kappa={kappa} cannot be set: {self.gate} has none; leave kappa out")
        if not 0 < entropy < 1:
            raise ValueError(f"entropy is a share of log M between 0 and 1, got {entropy}")

        places = as_numpy(self.bases).copy()
        places[:used] = bases
        self.bases.assign(places)
        self.active.assign(np.arange(self.max_bases) < used)
        if width is not None:
            self.kernel.set_sigma(width)
        if isinstance(self.gate, SoftmaxGate):
            self.gate.set_kappa(sharpness or self._matched_kappa(self.gate, x, entropy, seed))
        self._fit_coverage(x, seed)
        self._health(x, seed).warn()
        if optimizer is not None:
            forget(optimizer, self.bases)
        return self

    def fit_sigma(self: Units, features: Annotated[Array, "rows gating"], *, seed: int = 0) -> Units:
        """Take sigma alone from the data, by the median heuristic, as the paper does for fine-tuning."""
        x = self._fitting_rows(features)
        self.kernel.set_sigma(suggest_sigma(x, runs=1, seed=seed).sigma)
        self._fit_coverage(x, seed)
        self._health(x, seed).warn()
        return self

    def fit_coverage(self: Units, features: Annotated[Array, "rows gating"], *, seed: int = 0) -> Units:
        """Renew the coverage quantiles on training data, as is due after each epoch and before evaluation."""
        self._fit_coverage(self._fitting_rows(features), seed)
        return self

    def health(self, features: Annotated[Array, "rows gating"], *, seed: int = 0) -> GateHealth:
        """Measure whether gates do anything on these rows of the gating view."""
        return self._health(self._fitting_rows(features), seed)

    def drift(self, features: Annotated[Array, "rows gating"], *, seed: int = 0) -> Drift | None:
        """How far these rows of the gating view have moved from the bases since these were fitted; None: they fit."""
        if not self.coverage.fitted:
            return Drift("bases were never fitted to data", dead=False)
        x = self._fitting_rows(features)
        sigma_ratio = kappa_ratio = 1.0
        if self.kernel.has_width:
            sigma_ratio = _typical_distance(subsample(x, _DISTANCE_ROWS, seed), seed) / self.kernel.get_sigma()
        if isinstance(self.gate, SoftmaxGate):
            kappa_ratio = self._matched_kappa(self.gate, x, 0.5, seed) / self.gate.get_kappa()
        return self._health(x, seed).drift(sigma_ratio=sigma_ratio, kappa_ratio=kappa_ratio)

    def renew(
        self: Units,
        features: Annotated[Array, "rows gating"],
        *,
        optimizer: keras.optimizers.Optimizer | None = None,
        seed: int = 0,
    ) -> Units:
        """What a training loop calls at the start of every epoch: it keeps the gates fitted to features that move.

        With ``optimizer`` bases, sigma and kappa are fitted where they never were, and refitted where features have
        moved away from them (``drift``); each new basis then takes the place of the old one that it is nearest to, so
        that experts keep their meaning. Else, and always without ``optimizer``, only the quantiles of familiarity are
        renewed. Warns (``GateWarning``) once when gates have died and are not refitted.
        """
        if optimizer is not None and self.drift(features, seed=seed) is not None:
            return self.refit_bases(features, optimizer=optimizer, seed=seed)
        self.fit_coverage(features, seed=seed)
        found = self.drift(features, seed=seed)
        if found is not None and found.dead and not self._warned:
            warn_of_dead_gates(found)
        self._warned = found is not None and found.dead
        return self

    def refit_bases(
        self: Units,
        features: Annotated[Array, "rows gating"],
        *,
        optimizer: keras.optimizers.Optimizer | None = None,
        seed: int = 0,
    ) -> Units:
        """``fit_bases`` in the middle of a training, whether it is due or not.

        Each new basis takes the place of the old one it is nearest to. Rows that are mostly alike, as those of a
        network that has collapsed, are no error here.
        """

        def in_old_places(x: ArrayLike, num_bases: int, basis_size: int, seed: int) -> NDArray[Any]:
            bases = kmeans_bases(x, num_bases, basis_size, seed)
            if not self.coverage.fitted or self.num_bases != num_bases:
                return bases
            before = as_numpy(self.bases)[as_numpy(self.active)].mean(1, dtype=np.float64)
            cost = np.square(before[:, None] - bases.mean(1, dtype=np.float64)).sum(-1)
            return np.asarray(bases[cheapest_assignment(cost.tolist())])

        x = self._fitting_rows(features)
        sigma = _typical_distance(x, seed) if self.kernel.has_width else None
        return self.fit_bases(x, initialiser=in_old_places, sigma=sigma, seed=seed, optimizer=optimizer)

    @property
    def exact_dtype(self) -> str:
        """What kernels and gates are computed in: float64 for such a layer, else float32."""
        return "float64" if self.variable_dtype == "float64" else "float32"

    @property
    def num_bases(self) -> int:
        """How many bases are in use."""
        return int(as_numpy(self.active).sum()) if self.built else self.start_bases

    @property
    def active_bases(self) -> Annotated[Array, "bases size gating"]:
        """The bases in use."""
        return ops.convert_to_tensor(as_numpy(self.bases)[as_numpy(self.active)])

    def _products(self, z: Array) -> InnerProducts:
        bases = ops.cast(ops.convert_to_tensor(self.bases), self.exact_dtype)
        if not self.spare:
            return inner_products(self.kernel, z, bases)
        active = ops.convert_to_tensor(self.active)
        return inner_products(self.kernel, z, _filled(bases, active), active=active)

    def _residual(self, own: InnerProducts) -> Array:
        return residual(own, self.gate.explaining(own))

    def _width(self, x: NDArray[Any], sigma: float | None, seed: int) -> float | None:
        """The width to set, None where the kernel has none that could be set."""
        if sigma is not None and not self.kernel.has_width:
            raise ValueError(f"sigma={sigma} cannot be set: {self.kernel!r} has no width of ours; leave sigma out")
        if sigma is not None:
            return positive("sigma", sigma)
        return suggest_sigma(x, runs=1, seed=seed).sigma if self.kernel.has_width else None

    def _fitting_rows(self, features: Any) -> NDArray[Any]:
        x = features if isinstance(features, np.ndarray | list) else as_numpy(features)
        x = np.asarray(x)
        x = as_rows(x.reshape(-1, x.shape[-1]) if x.ndim > 2 else x, at_least=1)
        if not self.built:
            self.build((None, x.shape[1]))
        if x.shape[1] != self.gating_features:
            raise ValueError(f"expected rows of the gating view with width {self.gating_features}, got shape {x.shape}")
        return x

    def _choose(self, x: NDArray[Any], seed: int) -> int:
        if not self.auto:
            return self.num_bases
        sample = subsample(x, _CLUSTER_ROWS, seed)
        most = min(self.max_bases, len(np.unique(sample, axis=0)) - 1)
        if most < 2:
            raise ValueError(
                f"a choice of num_bases needs at least 3 distinct rows, got {most + 1} among {len(x)}; pass more rows"
            )
        return suggest_num_bases(sample, range(2, most + 1), runs=1, seed=seed).best

    def _matched_kappa(self, gate: SoftmaxGate, x: NDArray[Any], entropy: float, seed: int) -> float:
        products = self._products(self._tensor(subsample(x, _HEALTH_ROWS, seed)))
        return match_kappa(as_numpy(gate.similarity(products))[:, as_numpy(self.active)], entropy=entropy)

    def _fit_coverage(self, x: NDArray[Any], seed: int) -> None:
        rows = subsample(x, _COVERAGE_ROWS, seed)
        parts = [rows[start : start + _HEALTH_ROWS] for start in range(0, len(rows), _HEALTH_ROWS)]
        found = [as_numpy(self._residual(self._products(self._tensor(part)))) for part in parts]
        self.coverage.fit(np.concatenate(found))

    def _health(self, x: NDArray[Any], seed: int) -> GateHealth:
        products = self._products(self._tensor(self._looked_at(x, seed)))
        return gate_health(products, self.gate(products), np.flatnonzero(as_numpy(self.active)))

    def _looked_at(self, x: NDArray[Any], seed: int) -> NDArray[Any]:
        """A sample without the rows that are basis vectors themselves: those are near a basis whatever sigma is."""
        rows = subsample(x, _HEALTH_ROWS, seed)
        vectors = as_numpy(self.bases)[as_numpy(self.active)]
        own = {row.tobytes() for row in vectors.reshape(-1, vectors.shape[-1])}
        apart = np.array([row.tobytes() not in own for row in rows.astype(vectors.dtype)])
        return rows[apart] if 2 * int(apart.sum()) > len(rows) else rows

    def _tensor(self, rows: NDArray[Any]) -> Array:
        return ops.convert_to_tensor(rows.astype(self.exact_dtype))


def _typical_distance(x: NDArray[Any], seed: int) -> float:
    """The median distance between rows; their root mean square distance where most rows are alike."""
    try:
        return suggest_sigma(x, runs=1, seed=seed).sigma
    except ValueError:
        spread = math.sqrt(2 * float(x.var(0, ddof=1, dtype=np.float64).sum())) if len(x) > 1 else 0.0
        return spread if math.isfinite(spread) and spread > 0 else 1.0


def _filled(bases: Annotated[Array, "bases size features"], active: Annotated[Array, "bases"]) -> Array:
    """The bases with the mean of those in use in every unused place: whatever lies there then disturbs no number."""
    used = active[:, None, None]
    zeros = ops.zeros_like(bases)
    total = ops.sum(ops.where(used, ops.stop_gradient(bases), zeros), axis=(0, 1))
    count = ops.cast(ops.sum(ops.cast(active, "int32")) * bases.shape[1], bases.dtype)
    return ops.where(used, bases, zeros + total / count)
