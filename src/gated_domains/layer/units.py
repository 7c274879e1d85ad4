"""GatedDomainUnits: the layer that stands where ``nn.Linear`` stood."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal, cast

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor, nn

from gated_domains.common.paper import PAPER_BASES, GateName, Setting, paper_setting
from gated_domains.common.validation import at_least_one, not_negative, room, room_to_grow
from gated_domains.layer import penalties
from gated_domains.layer.annealing import Anneals
from gated_domains.layer.experts import (
    ExpertsFactory,
    LinearExperts,
    ProbabilisticRegression,
    Task,
    as_task,
    match_moments,
    start_at_zero,
)
from gated_domains.layer.fitting import Coverage, check_tensor, paper_normal
from gated_domains.layer.gates import (
    GATES,
    MEMORY_BUDGET,
    Gate,
    GatedOutput,
    InnerProducts,
    ProjectionGate,
    SoftmaxGate,
    Weighed,
    as_gate,
    pooled,
    pooled_by_block,
    simplex,
)
from gated_domains.layer.kernels import Gaussian, KernelLike, kernel_like
from gated_domains.layer.penalties import Gated, Penalty, Target, as_orthogonality, mean_square_by_basis
from gated_domains.layer.stream import GateStream

Gates = Literal["sample", "batch"] | GateStream

LAMBDA_DEV = 0.1
"""The default weight of the ridge penalty on deviations."""


class GatedDomainUnits(Anneals):
    """A gated ensemble of learning machines, one for each learned basis of a latent elementary distribution.

        prediction = sum_j beta_j(x) f(x, theta_j)                    shared=False, the paper's form
        prediction = f_0(x) + sum_j beta_j(x) d_j(x)                  shared=True, the default
        prediction = f_0(x) + c(x) sum_j beta_j(x) d_j(x)             shared=True, coverage=True

    beta comes from kernel inner products between ``gating`` (the features unless another view is given) and the
    ``bases``. With a shared expert f_0 the experts d_j are deviations that start at zero, and the penalty
    ``lambda_dev * mean_j ||d_j||^2`` keeps them small. The familiarity c(x) of a sample is reported in the output;
    it scales the deviations only with ``coverage=True``, which cost accuracy on digits.

    ``kernel``, ``gate``, ``task`` and ``orthogonality`` are objects or their names: ``gate="mmd"``, ``MMDGate(kappa)``.

    Call ``fit_bases`` with training features before training: bases, sigma and kappa then fit the data. With
    ``num_bases="adaptive"`` that is one basis; ``adapt_bases`` then splits, merges and prunes between epochs.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        num_bases: int | Literal["auto", "adaptive"] = 5,
        basis_size: int = 10,
        max_bases: int | None = None,
        kernel: str | KernelLike = "gaussian",
        gate: str | Gate = "cosine",
        experts: ExpertsFactory = LinearExperts,
        shared: bool = True,
        coverage: bool = False,
        task: str | Task | None = None,
        gating_features: int | None = None,
        lambda_ols: float = 1e-3,
        lambda_l1: float = 0.0,
        lambda_entropy: float = 0.0,
        lambda_orth: float = 0.0,
        lambda_dev: float = LAMBDA_DEV,
        orthogonality: str | Penalty = "srip",
        orthogonality_target: Target = "diagonal",
        memory_budget: int = MEMORY_BUDGET,
    ) -> None:
        super().__init__()
        self.in_features = at_least_one("in_features", in_features)
        self.out_features = at_least_one("out_features", out_features)
        self.gating_features = at_least_one(
            "gating_features", in_features if gating_features is None else gating_features
        )
        self.basis_size = at_least_one("basis_size", basis_size)
        self.auto, self.adaptive = num_bases == "auto", num_bases == "adaptive"
        self.max_bases, used = room_to_grow(max_bases) if num_bases == "adaptive" else room(num_bases, max_bases)
        # Places that were never fitted to anything, and perhaps lie far from the data.
        self.spare = self.auto or self.max_bases > used
        self.kernel = kernel_like(kernel, math.sqrt(2 * self.gating_features))
        self.gate = as_gate(gate)
        self.task = None if task is None else as_task(task)
        self.lambda_ols = not_negative("lambda_ols", lambda_ols)
        self.lambda_l1 = not_negative("lambda_l1", lambda_l1)
        self.lambda_entropy = not_negative("lambda_entropy", lambda_entropy)
        self.lambda_orth = not_negative("lambda_orth", lambda_orth)
        self.lambda_dev = not_negative("lambda_dev", lambda_dev)
        self.orthogonality_target = orthogonality_target
        self.orthogonality = as_orthogonality(orthogonality, orthogonality_target)
        self.memory_budget = memory_budget

        # As standardised features would lie; the default sigma is their expected distance.
        self.bases = nn.Parameter(torch.randn(self.max_bases, self.basis_size, self.gating_features))
        self.register_buffer("active", torch.arange(self.max_bases) < used)
        if self.adaptive:
            self._remember_rounds()
        numbers = self.out_features * (self.task.numbers_an_output if self.task else 1)
        self.experts = experts(self.max_bases, self.in_features, numbers)
        self.shared = experts(1, self.in_features, numbers) if shared else None
        if shared:
            start_at_zero(self.experts, self.in_features)
        self.coverage = Coverage()
        self.applies_coverage = shared and coverage
        self._records: list[list[GatedOutput]] = []

    @classmethod
    def paper(
        cls,
        in_features: int,
        out_features: int,
        *,
        gate: GateName = "cosine",
        setting: Setting = "digits",
        num_bases: int = PAPER_BASES,
        basis_size: int = 10,
        task: str | Task | None = None,
        gating_features: int | None = None,
    ) -> GatedDomainUnits:
        """The paper's layer: its initialiser, kernel width, gate, penalties and experts, for one of its two settings.

        M is 10, as in the paper's text and code; its table of settings has 5. Experts have no bias, as in its code.
        Fine-tuning on digits also takes sigma from the data: ``head.fit_sigma(features)``. Expect a warning then: with
        this initialiser gates are nearly constant.
        """
        row = paper_setting(setting, gate)
        head = cls(
            in_features,
            out_features,
            num_bases=num_bases,
            basis_size=basis_size,
            kernel=Gaussian(row.sigma),
            gate=ProjectionGate() if row.kappa is None else cast(type[SoftmaxGate], GATES[gate])(row.kappa),
            experts=partial(LinearExperts, activation=torch.tanh if row.tanh else None, bias=False),
            shared=False,
            task=task,
            gating_features=gating_features,
            lambda_ols=row.lambda_ols,
            lambda_l1=row.lambda_l1,
            lambda_orth=row.lambda_orth,
            orthogonality_target="identity",
        )
        with torch.no_grad():
            head.bases.copy_(paper_normal(num_bases, basis_size, head.gating_features))
        head._origin = "kept"  # `renew` leaves the paper's bases alone
        return head

    def forward(
        self,
        features: Shaped[Tensor, "*batch features"],
        gating: Shaped[Tensor, "*rows gating"] | None = None,
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
        gating: Shaped[Tensor, "*rows gating"] | None = None,
        *,
        gates: Gates = "sample",
    ) -> GatedOutput:
        """Prediction, beta, inner products: everything penalties and people ask for.

        ``gates`` tells what is compared with the bases: each ``"sample"``, the mean of the ``"batch"``, or a stream.
        """
        return self.mix(features, self.weigh(self._checked_view(features, gating), gates=gates))

    def weigh(
        self,
        gating: Shaped[Tensor, "*batch gating"],
        *,
        gates: Gates = "sample",
        blocks: Int64[Tensor, "*batch"] | None = None,
    ) -> Weighed:
        """The first half of ``evaluate``: inner products, beta and coverage, from the gating view alone.

        For whoever needs them before there are features: a body with gated norms mixes by them, and ``mix`` after it.

        ``blocks``, with ``gates="batch"``, numbers the block that each row belongs to: every block is then gated like a
        batch of its own. Beta and the products have a row for each sample, the same within a block.
        """
        _check_input("gating", gating, self.gating_features)
        lead, z = gating.shape[:-1], gating.reshape(-1, self.gating_features)
        own = self._products(z)
        if blocks is not None:
            products = self._pooled_by_block(own, z, gates, lead, blocks)
        else:
            products = own if gates == "sample" else self._pooled(own, z, gates)
        beta = self.gate(products)
        covered = None if self.shared is None else self._covered(own)
        if gates == "sample" or blocks is not None:
            beta = beta.reshape(*lead, self.max_bases)
            products = products._replace(
                self_product=products.self_product.reshape(lead), cross=products.cross.reshape(*lead, self.max_bases)
            )
        return Weighed(
            products=products,
            beta=beta,
            coverage=None if covered is None else covered.reshape(lead),
            applies_coverage=self.applies_coverage,
        )

    def mix(self, features: Shaped[Tensor, "*batch features"], weighed: Weighed) -> GatedOutput:
        """The second half of ``evaluate``: what the experts say of the features, mixed as ``weigh`` found."""
        _check_input("features", features, self.in_features)
        lead = features.shape[:-1]
        self._check_weighed(lead, weighed)
        applied = weighed.coverage if weighed.applies_coverage else None
        covered = None if applied is None else applied.reshape(-1)
        prediction, variance = self._mix(
            features.reshape(-1, self.in_features), weighed.beta.reshape(-1, self.max_bases), covered
        )
        return GatedOutput(
            prediction=prediction.reshape(*lead, self.out_features),
            beta=weighed.beta,
            products=weighed.products,
            variance=None if variance is None else variance.reshape(*lead, self.out_features),
            coverage=weighed.coverage,
        )

    def penalty_terms(self, out: Gated) -> dict[str, Float[Tensor, ""]]:
        """The penalties in use (those with a lambda above 0), unweighted, by name."""
        return {name: penalty(out) for name, (weight, penalty) in self._weighted().items() if weight > 0}

    def deviation_norm(self) -> Float[Tensor, ""]:
        """``mean_j ||d_j||^2`` over the bases in use, of the weights of the deviations from the shared expert."""
        return mean_square_by_basis(self.experts.parameters(), self.active)

    def weighted_penalties(self, out: Gated) -> dict[str, Float[Tensor, ""]]:
        """The penalties in use, each times its lambda, by name: terms of a loss."""
        return {name: weight * penalty(out) for name, (weight, penalty) in self._weighted().items() if weight > 0}

    def penalty(self, out: Gated) -> Float[Tensor, ""]:
        """``sum of lambda * penalty``, to be added to the task's loss."""
        return sum(self.weighted_penalties(out).values(), out.beta.new_zeros(()))

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
        self, features: Shaped[Tensor, "*batch features"], gating: Shaped[Tensor, "*rows gating"] | None = None
    ) -> Float[Tensor, "*batch"]:
        """``||phi(x) - sum_j beta_j mu_j||^2`` of each sample: what the bases cannot express of it."""
        view = self._checked_view(features, gating)
        return self._residual(self._products(view.reshape(-1, self.gating_features))).reshape(view.shape[:-1])

    def familiarity(
        self, features: Shaped[Tensor, "*batch features"], gating: Shaped[Tensor, "*rows gating"] | None = None
    ) -> Float[Tensor, "*batch"]:
        """Novelty calibrated on training data: 1 for a sample like those, 0 for one unlike anything seen."""
        return cast(Tensor, self.coverage(self.novelty(features, gating)))

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_records": []}  # a copy made while a record is open is not recorded

    def _pooled(self, own: InnerProducts, z: Tensor, gates: Gates) -> InnerProducts:
        if isinstance(gates, GateStream):
            held = gates.push(z)
            return pooled(self._products(held), self.kernel, held, gates.weights, budget=self.memory_budget)
        if gates != "batch":
            raise ValueError(f"gates must be 'sample', 'batch' or a GateStream, got {gates!r}")
        return pooled(own, self.kernel, z, budget=self.memory_budget)

    def _pooled_by_block(
        self, own: InnerProducts, z: Tensor, gates: Gates, lead: torch.Size, blocks: Tensor
    ) -> InnerProducts:
        if gates != "batch":
            raise ValueError(f"blocks are for gates='batch', got gates={gates!r}; leave blocks out")
        if blocks.shape != lead:
            raise ValueError(
                f"blocks must have a number for each row of gating, got shape {tuple(blocks.shape)} for gating of "
                f"shape {(*lead, self.gating_features)}"
            )
        return pooled_by_block(own, self.kernel, z, blocks.reshape(-1), budget=self.memory_budget)

    def _covered(self, own: InnerProducts) -> Tensor:
        detached = InnerProducts(own.self_product.detach(), own.cross.detach(), own.gram.detach(), own.active)
        return cast(Tensor, self.coverage(self._residual(detached)))

    def _mix(self, x: Tensor, beta: Tensor, covered: Tensor | None) -> tuple[Tensor, Tensor | None]:
        outputs = self.experts(x)
        if isinstance(self.task, ProbabilisticRegression):
            if self.shared is not None:
                scale = None if covered is None else covered.to(outputs.dtype)[:, None, None]
                outputs = self.shared(x) + (outputs if scale is None else outputs * scale)
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
            "deviations": (0.0 if self.shared is None else self.lambda_dev, lambda _: self.deviation_norm()),
        }

    def _checked_view(self, features: Tensor, gating: Tensor | None) -> Tensor:
        """The view that gates see."""
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
                f"gating must have a row for each row of features, got shapes {tuple(gating.shape)} and "
                f"{tuple(features.shape)}"
            )
        return gating

    def _check_weighed(self, lead: torch.Size, weighed: Weighed) -> None:
        """Refuse a weighing of other rows or by other units."""
        beta, coverage = weighed.beta.shape, None if weighed.coverage is None else weighed.coverage.shape
        if beta[-1] != self.max_bases:
            raise ValueError(f"weighed has {beta[-1]} bases, these units {self.max_bases}: weigh with the same units")
        # One row for all is what a batch or a stream gives; asked last, as an exported graph knows no batch of one.
        if (beta[:-1] != lead and beta[:-1] != (1,)) or coverage not in (None, lead):
            raise ValueError(
                f"weighed must have a row for each row of features, got beta of shape {tuple(beta)} for features of "
                f"shape {(*lead, self.in_features)}: weigh the view of the same batch"
            )

    def extra_repr(self) -> str:
        used = self.max_bases if self.active.is_meta else self.num_bases
        room = "" if self.max_bases == used else f" (room for {self.max_bases})"
        view = "" if self.gating_features == self.in_features else f", gates see {self.gating_features} features"
        weights = ", ".join(f"{name} {weight:g}" for name, (weight, _) in self._weighted().items() if weight > 0)
        return (
            f"{self.in_features} -> {self.out_features}, {used} bases of {self.basis_size}{room}{view}"
            f", task={self.task}, penalties: {weights or 'none'}"
        )


def _check_input(name: str, x: Tensor, width: int) -> None:
    """Refuse what is no batch of that width, by shape and type: reading values would stall a GPU and break export."""
    check_tensor(name, x)
    if not x.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {x.dtype}; convert them with .float()")
    if x.dim() < 1 or x.shape[-1] != width:
        another = f"; for such a view build GatedDomainUnits(..., gating_features={x.shape[-1]})" if x.dim() else ""
        raise ValueError(
            f"{name} must have width {width} in the last dimension, got shape {tuple(x.shape)}"
            + (another if name == "gating" else "")
        )
    if any(size == 0 for size in x.shape[:-1]):
        raise ValueError(f"{name} hold an empty batch, shape {tuple(x.shape)}: pass at least one row")
