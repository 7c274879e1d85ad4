"""GatedDomainUnits: the layer that stands where ``nn.Linear`` stood."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from gated_domains.layer import penalties
from gated_domains.layer.coverage import Coverage
from gated_domains.layer.experts import ExpertsFactory, LinearExperts
from gated_domains.layer.fitting import (
    Initialiser,
    check_rows,
    choose_num_bases,
    kmeans_bases,
    match_kappa,
    median_sigma,
    paper_normal,
    subsample,
)
from gated_domains.layer.gates import GATES, CosineGate, Gate, ProjectionGate, SoftmaxGate, simplex
from gated_domains.layer.health import GateHealth, gate_health
from gated_domains.layer.kernels import Gaussian, Kernel, KernelLike, PairFunction
from gated_domains.layer.presets import GateName, Setting, paper_setting
from gated_domains.layer.products import MEMORY_BUDGET, InnerProducts, inner_products, pooled, residual
from gated_domains.layer.replicas import forget, on_first_rank
from gated_domains.layer.scalars import at_least_one
from gated_domains.layer.stream import GateStream
from gated_domains.layer.tasks import ProbabilisticRegression, Task, match_moments

Gates = Literal["sample", "batch"] | GateStream
Penalty = Callable[[penalties.Gated], Tensor]

_AUTO_MAX_BASES = 12
_HEALTH_ROWS = 2_000
_COVERAGE_ROWS = 20_000


class GatedOutput(NamedTuple):
    """All that one evaluation found. With batch or stream gates, beta and products have a leading size of 1."""

    prediction: Float[Tensor, "*batch outputs"]
    beta: Float[Tensor, "*gated bases"]
    products: InnerProducts
    variance: Float[Tensor, "*batch outputs"] | None = None
    """Of the prediction, for a probabilistic task."""
    coverage: Float[Tensor, "*batch"] | None = None
    """How much of the deviations from the shared expert a sample gets, 0 to 1."""


class GatedDomainUnits(nn.Module):
    """A gated ensemble of learning machines, one for each learned basis of a latent elementary distribution.

        prediction = sum_j beta_j(x) f(x, theta_j)                    shared=False, the paper's form
        prediction = f_0(x) + c(x) sum_j beta_j(x) d_j(x)             shared=True, the default

    beta comes from kernel inner products between ``gating`` (the features unless another view is given) and the
    ``bases``. With a shared expert f_0 the experts d_j are deviations that start at zero, and coverage c(x) takes an
    unfamiliar sample back to f_0; ``coverage=False`` keeps c = 1.

    Call ``fit_bases`` with training features before training: bases, sigma and kappa then fit the data.
    """

    active: Bool[Tensor, " bases"]

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        num_bases: int | Literal["auto"] = 5,
        basis_size: int = 10,
        max_bases: int | None = None,
        kernel: KernelLike | None = None,
        gate: Gate | None = None,
        experts: ExpertsFactory = LinearExperts,
        shared: bool = True,
        coverage: bool = True,
        task: Task | None = None,
        gating_features: int | None = None,
        lambda_ols: float = 1e-3,
        lambda_l1: float = 0.0,
        lambda_entropy: float = 0.0,
        lambda_orth: float = 0.0,
        orthogonality: Penalty = penalties.srip,
        memory_budget: int = MEMORY_BUDGET,
    ) -> None:
        super().__init__()
        self.in_features = at_least_one("in_features", in_features)
        self.out_features = at_least_one("out_features", out_features)
        self.gating_features = at_least_one("gating_features", gating_features or in_features)
        self.basis_size = at_least_one("basis_size", basis_size)
        self.auto = num_bases == "auto"
        self.max_bases, used = _room(num_bases, max_bases)
        self.kernel = kernel if kernel is not None else Gaussian(math.sqrt(2 * self.gating_features))
        self.gate = gate if gate is not None else CosineGate()
        self.task = task
        self.lambda_ols = _not_negative("lambda_ols", lambda_ols)
        self.lambda_l1 = _not_negative("lambda_l1", lambda_l1)
        self.lambda_entropy = _not_negative("lambda_entropy", lambda_entropy)
        self.lambda_orth = _not_negative("lambda_orth", lambda_orth)
        self.orthogonality = orthogonality
        self.memory_budget = memory_budget

        # As standardised features would lie; the default sigma is their expected distance.
        self.bases = nn.Parameter(torch.randn(self.max_bases, self.basis_size, self.gating_features))
        self.register_buffer("active", torch.arange(self.max_bases) < used)
        numbers = self.out_features * (task.numbers_an_output if task else 1)
        self.experts = experts(self.max_bases, self.in_features, numbers)
        self.shared = experts(1, self.in_features, numbers) if shared else None
        if shared:
            self.experts.start_at_zero()
        self.coverage = Coverage() if shared and coverage else None
        self._records: list[list[GatedOutput]] = []

    @classmethod
    def paper(
        cls,
        in_features: int,
        out_features: int,
        *,
        gate: GateName = "cosine",
        setting: Setting = "digits",
        num_bases: int = 5,
        basis_size: int = 10,
        task: Task | None = None,
    ) -> GatedDomainUnits:
        """The paper's layer: its initialiser, kernel width, gate, penalties and experts, for one of its two settings.

        The digits table has M = 5, its text M = 10: pass ``num_bases=10``. Fine-tuning on digits also takes sigma from
        the data: ``head.fit_sigma(features)``. Expect a warning then: with this initialiser gates are close to dead.
        """
        row = paper_setting(setting, gate)
        head = cls(
            in_features,
            out_features,
            num_bases=num_bases,
            basis_size=basis_size,
            kernel=Gaussian(row.sigma),
            gate=ProjectionGate() if row.kappa is None else cast(type[SoftmaxGate], GATES[gate])(row.kappa),
            experts=partial(LinearExperts, activation=torch.tanh) if row.tanh else LinearExperts,
            shared=False,
            task=task,
            lambda_ols=row.lambda_ols,
            lambda_l1=row.lambda_l1,
            lambda_orth=row.lambda_orth,
            orthogonality=partial(penalties.srip, target="identity"),
        )
        with torch.no_grad():
            head.bases.copy_(paper_normal(num_bases, basis_size, head.gating_features))
        return head

    # -- the layer ---------------------------------------------------------------------------------------------------

    def forward(
        self,
        features: Shaped[Tensor, "*batch features"],
        gating: Shaped[Tensor, "*batch gating"] | None = None,
        *,
        gates: Gates = "sample",
    ) -> Float[Tensor, "*batch outputs"]:
        """The prediction alone; ``gating`` is the view that gates see, the features by default."""
        out = self.evaluate(features, gating, gates=gates)
        for record in self._records:
            record.append(out)
        return out.prediction

    def evaluate(
        self,
        features: Shaped[Tensor, "*batch features"],
        gating: Shaped[Tensor, "*batch gating"] | None = None,
        *,
        gates: Gates = "sample",
    ) -> GatedOutput:
        """Prediction, beta, inner products: everything penalties and people ask for.

        ``gates`` tells what is compared with the bases: each ``"sample"``, the mean of the ``"batch"``, or a stream.
        """
        view = self._checked_view(features, gating)
        lead = features.shape[:-1]
        x, z = features.reshape(-1, self.in_features), view.reshape(-1, self.gating_features)
        own = self._products(z)
        products = own if gates == "sample" else self._pooled(own, z, gates)
        beta = self.gate(products)
        covered = None if self.coverage is None else self._covered(own)
        prediction, variance = self._mix(x, beta, covered)
        if gates == "sample":
            beta = beta.reshape(*lead, self.max_bases)
            products = products._replace(
                self_product=products.self_product.reshape(lead), cross=products.cross.reshape(*lead, self.max_bases)
            )
        return GatedOutput(
            prediction=prediction.reshape(*lead, self.out_features),
            beta=beta,
            products=products,
            variance=None if variance is None else variance.reshape(*lead, self.out_features),
            coverage=None if covered is None else covered.reshape(lead),
        )

    def penalties(self, out: penalties.Gated) -> dict[str, Float[Tensor, ""]]:
        """The penalties in use (those with a lambda above 0), unweighted, by name."""
        return {name: penalty(out) for name, (weight, penalty) in self._weighted().items() if weight > 0}

    def penalty(self, out: penalties.Gated) -> Float[Tensor, ""]:
        """``sum of lambda * penalty``, to be added to the task's loss."""
        total = out.beta.new_zeros(())
        for weight, penalty in self._weighted().values():
            if weight > 0:
                total = total + weight * penalty(out)
        return total

    @contextmanager
    def record(self) -> Iterator[list[GatedOutput]]:
        """Collect what ``forward`` found inside the block, for a head that sits deep in a model.

        >>> with head.record() as outs:
        ...     logits = model(x)
        >>> loss = F.cross_entropy(logits, y) + head.penalty(outs[-1])
        """
        outs: list[GatedOutput] = []
        self._records.append(outs)
        try:
            yield outs
        finally:
            self._records = [record for record in self._records if record is not outs]

    def novelty(
        self, features: Shaped[Tensor, "*batch features"], gating: Shaped[Tensor, "*batch gating"] | None = None
    ) -> Float[Tensor, "*batch"]:
        """``||phi(x) - sum_j beta_j mu_j||^2`` of each sample: what the bases cannot express of it."""
        view = self._checked_view(features, gating)
        return self._residual(self._products(view.reshape(-1, self.gating_features))).reshape(view.shape[:-1])

    @property
    def num_bases(self) -> int:
        """How many bases are in use."""
        return int(self.active.sum())

    @property
    def active_bases(self) -> Float[Tensor, "bases size gating"]:
        """The bases in use."""
        return self.bases[self.active]

    def parameter_groups(self, *, deviation_decay: float = 0.1) -> list[dict[str, object]]:
        """Groups for an optimiser: with a shared expert the deviations get a weight decay of their own."""
        decayed = list(self.experts.parameters()) if self.shared is not None else []
        chosen = {id(parameter) for parameter in decayed}
        rest = [parameter for parameter in self.parameters() if id(parameter) not in chosen]
        groups: list[dict[str, object]] = [{"params": rest}]
        return [*groups, {"params": decayed, "weight_decay": deviation_decay}] if decayed else groups

    # -- what is taken from data -------------------------------------------------------------------------------------

    def fit_bases(
        self,
        features: Shaped[Tensor, "..."],
        *,
        initialiser: Initialiser = kmeans_bases,
        sigma: float | None = None,
        kappa: float | None = None,
        entropy: float = 0.5,
        seed: int = 0,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> GatedDomainUnits:
        """Take bases, sigma, kappa (and their number, for ``num_bases="auto"``) from the view that gates see.

        sigma None: the median distance. kappa None: the one that gives gates a mean entropy of ``entropy * log M``.
        Writes in place and clears what ``optimizer`` remembers of the bases; with several processes rank 0 fits and the
        others receive. Warns (``GateWarning``) when the gates that result do little.
        """

        def fit() -> None:
            x = self._fitting_rows(features)
            used = self._choose(x, seed)
            check_rows(x, at_least=used)
            self.bases[:used] = initialiser(x, used, self.basis_size, seed).to(self.bases.dtype)
            self.active.copy_(torch.arange(self.max_bases, device=self.active.device) < used)
            if sigma is not None or self._takes_sigma:
                cast(Kernel, self.kernel).set_sigma(sigma if sigma is not None else median_sigma(x, seed=seed))
            if isinstance(self.gate, SoftmaxGate):
                self.gate.set_kappa(kappa if kappa is not None else self._matched_kappa(x, entropy, seed))
            self._fit_coverage(x, seed)
            self._health(x, seed).warn(stacklevel=4)

        self._fit_everywhere(fit)
        if optimizer is not None:
            forget(optimizer, self.bases)
        return self

    def fit_sigma(self, features: Shaped[Tensor, "..."], *, seed: int = 0) -> GatedDomainUnits:
        """Take sigma alone from the data, by the median heuristic, as the paper does for fine-tuning."""

        def fit() -> None:
            x = self._fitting_rows(features)
            cast(Kernel, self.kernel).set_sigma(median_sigma(x, seed=seed))
            self._health(x, seed).warn(stacklevel=4)

        self._fit_everywhere(fit)
        return self

    def fit_coverage(self, features: Shaped[Tensor, "..."], *, seed: int = 0) -> GatedDomainUnits:
        """Renew the coverage quantiles on training data, as is due after each epoch and before evaluation."""
        self._fit_everywhere(lambda: self._fit_coverage(self._fitting_rows(features), seed))
        return self

    def health(self, features: Shaped[Tensor, "..."], *, seed: int = 0) -> GateHealth:
        """Measure whether gates do anything on these rows of the gating view."""
        return self._health(self._fitting_rows(features), seed)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _products(self, z: Tensor) -> InnerProducts:
        return inner_products(self.kernel, z, self.bases, active=self.active, budget=self.memory_budget)

    def _pooled(self, own: InnerProducts, z: Tensor, gates: Gates) -> InnerProducts:
        if isinstance(gates, GateStream):
            held = gates.push(z)
            return pooled(self._products(held), self.kernel, held, gates.weights, budget=self.memory_budget)
        if gates != "batch":
            raise ValueError(f"gates must be 'sample', 'batch' or a GateStream, got {gates!r}")
        return pooled(own, self.kernel, z, budget=self.memory_budget)

    def _residual(self, own: InnerProducts) -> Tensor:
        return residual(own, self.gate.explaining(own))

    def _covered(self, own: InnerProducts) -> Tensor:
        detached = InnerProducts(own.self_product.detach(), own.cross.detach(), own.gram.detach(), own.active)
        return cast(Tensor, cast(Coverage, self.coverage)(self._residual(detached)))

    def _mix(self, x: Tensor, beta: Tensor, covered: Tensor | None) -> tuple[Tensor, Tensor | None]:
        outputs = self.experts(x)
        if isinstance(self.task, ProbabilisticRegression):
            if self.shared is not None:
                outputs = self.shared(x) + (outputs if covered is None else outputs * covered[:, None, None])
            weights = simplex(beta, self.active).to(outputs.dtype)
            return match_moments(weights, *self.task.moments(outputs))
        mixed = (beta.to(outputs.dtype).unsqueeze(-1) * outputs).sum(-2)
        if self.shared is not None:
            mixed = mixed if covered is None else mixed * covered.to(mixed.dtype).unsqueeze(-1)
            mixed = self.shared(x).squeeze(-2) + mixed
        return mixed, None

    def _weighted(self) -> dict[str, tuple[float, Penalty]]:
        return {
            "reconstruction": (self.lambda_ols, penalties.reconstruction),
            "sparsity": (self.lambda_l1, penalties.sparsity),
            "entropy": (self.lambda_entropy, penalties.entropy),
            "orthogonality": (self.lambda_orth, self.orthogonality),
        }

    def _checked_view(self, features: Tensor, gating: Tensor | None) -> Tensor:
        """The view that gates see. Shapes and types only: a check of values would stall a GPU and break export."""
        _check_input("features", features, self.in_features)
        if gating is None:
            if self.gating_features != self.in_features:
                raise ValueError(
                    f"the gates of this layer see a view of width {self.gating_features}, the features have "
                    f"{self.in_features}: pass that view as gating="
                )
            return features
        _check_input("gating", gating, self.gating_features)
        if gating.shape[:-1] != features.shape[:-1]:
            raise ValueError(
                f"gating must have a row for each row of features, got {tuple(gating.shape)} and {tuple(features.shape)}"
            )
        return gating

    @property
    def _takes_sigma(self) -> bool:
        return isinstance(self.kernel, Kernel) and not isinstance(self.kernel, PairFunction)

    def _fitting_rows(self, features: Tensor) -> Tensor:
        if features.dim() < 2 or features.shape[-1] != self.gating_features:
            raise ValueError(
                f"expected rows of the gating view with width {self.gating_features}, got shape {tuple(features.shape)}"
            )
        rows = check_rows(features.detach().flatten(0, -2))
        return rows.to(self.bases.device, torch.promote_types(rows.dtype, torch.float32))

    def _choose(self, x: Tensor, seed: int) -> int:
        if self.auto:
            return choose_num_bases(x, range(2, self.max_bases + 1), seed=seed)[0]
        return self.num_bases

    def _matched_kappa(self, x: Tensor, entropy: float, seed: int) -> float:
        products = self._products(subsample(x, _HEALTH_ROWS, seed).to(self.bases.dtype))
        return match_kappa(cast(SoftmaxGate, self.gate).similarity(products)[:, self.active], entropy=entropy)

    def _fit_coverage(self, x: Tensor, seed: int) -> None:
        if self.coverage is not None:
            rows = subsample(x, _COVERAGE_ROWS, seed).to(self.bases.dtype)
            self.coverage.fit(torch.cat([self._residual(self._products(part)) for part in rows.split(_HEALTH_ROWS)]))

    def _health(self, x: Tensor, seed: int) -> GateHealth:
        products = self._products(subsample(x, _HEALTH_ROWS, seed).to(self.bases.dtype))
        return gate_health(products, self.gate(products))

    @torch.no_grad()
    def _fit_everywhere(self, fit: Callable[[], None]) -> None:
        on_first_rank(fit, [self.bases, *self.buffers()])

    def extra_repr(self) -> str:
        room = "" if self.max_bases == self.num_bases else f" (room for {self.max_bases})"
        view = "" if self.gating_features == self.in_features else f", gates see {self.gating_features} features"
        weights = ", ".join(f"{name} {weight:g}" for name, (weight, _) in self._weighted().items() if weight > 0)
        return (
            f"{self.in_features} -> {self.out_features}, {self.num_bases} bases of {self.basis_size}{room}{view}"
            f", task={self.task}, penalties: {weights or 'none'}"
        )


def _room(num_bases: int | Literal["auto"], max_bases: int | None) -> tuple[int, int]:
    """How many bases there is room for, and how many are in use at the start."""
    if num_bases == "auto":
        room = at_least_one("max_bases", _AUTO_MAX_BASES if max_bases is None else max_bases)
        if room < 2:
            raise ValueError(f"num_bases='auto' chooses between 2 and max_bases, got max_bases={room}")
        return room, min(5, room)
    used = at_least_one("num_bases", num_bases)
    room = at_least_one("max_bases", used if max_bases is None else max_bases)
    if room < used:
        raise ValueError(f"max_bases={room} leaves no room for num_bases={used}")
    return room, used


def _not_negative(name: str, value: float) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be finite and at least 0, got {value}")
    return value


def _check_input(name: str, x: Tensor, width: int) -> None:
    if not x.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {x.dtype}; convert them with .float()")
    if x.dim() < 1 or x.shape[-1] != width:
        raise ValueError(f"{name} must have width {width} in the last dimension, got shape {tuple(x.shape)}")
    if any(size == 0 for size in x.shape[:-1]):
        raise ValueError(f"{name} hold an empty batch, shape {tuple(x.shape)}: pass at least one row")
