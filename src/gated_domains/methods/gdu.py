"""Gated Domain Units as a method, with a shared expert and gated norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, cast

import torch
from jaxtyping import Float, Int64
from pydantic import Field, model_validator
from torch import Tensor, nn

from gated_domains.backbones.backbone import Backbone, default_gating, unmoved_buffers
from gated_domains.backbones.gated_norm import (
    Statistics,
    as_second_moments,
    deviation_parameters,
    gate_norms,
    mixing,
    running_moments,
    why_not_gated,
)
from gated_domains.backbones.gating import GATINGS
from gated_domains.common.paper import GateName
from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.layer import penalties
from gated_domains.layer.experts import Prediction, Task
from gated_domains.layer.fitting import exact, lloyd, match_kappa, on_first_rank, subsample, typical_distance
from gated_domains.layer.gates import GATES, GatedOutput, SoftmaxGate, Weighed, residual
from gated_domains.layer.kernels import as_kernel, squared_distances
from gated_domains.layer.penalties import mean_square_by_basis
from gated_domains.layer.stream import ROWS_AT_A_TIME, GateStream
from gated_domains.layer.units import LAMBDA_DEV, GatedDomainUnits, Gates
from gated_domains.methods.method import Looks, Method, Mode, Problem, Terms
from gated_domains.settings import Settings
from gated_domains.settings.search import Between

_ROUNDS = 3  # at the start of an epoch, until the number of adaptive bases is found
_CLUSTER_STEPS = 50  # of k-means at most, for pseudo-domains
_COVERED = 2_048  # random rows for the quantiles of familiarity, where the view that gates see does not change

Gating = Literal["auto", "features", "style", "filters", "input", "projection", "tokens", "graphs"]


class GDUSettings(Settings):
    """Settings of GDU. ``sigma`` and ``kappa`` None: from the data.

    sigma is then ``sigma_of_median`` times the median distance, and kappa gives gates a mean entropy of
    ``entropy * log M``. ``gating`` "auto" is a fixed function of the raw input: filters of images, the vector itself, a
    projection of wide ones, statistics of tokens or of atoms. ``gated_norm`` None: where it can be (end to end, gates
    that see the raw input, a body with batch norm over samples) and the body is not a large one. ``norm_statistics``
    "basis": gated norms normalise by moments weighted by beta instead of by those of the whole batch. ``test_gates``
    "batch": predictions are gated by the mean of a batch of one domain instead of by each sample. ``train_gates``
    "batch": training is gated by the mean of the rows of each pseudo-domain in a batch, and prediction by batch too.
    Pseudo-domains are clusters of the training rows in the view that gates see, as many as bases, and need no domain
    labels. ``num_bases`` "adaptive" begins with one and finds their number in the first epochs, ``max_bases`` (12) at
    most; "auto" takes it from a Davies-Bouldin score before them.

    ``gates`` "constant" trains and predicts with beta fixed at its mean over the training data: the control for any
    claim about gating. ``lambda_dev`` weighs the ridge penalty on the deviations from the shared expert and of gated
    norms. ``coverage`` multiplies the deviations by the familiarity of a sample, which is reported either way.
    """

    gate: GateName = "cosine"
    gates: Literal["learned", "constant"] = "learned"
    num_bases: Annotated[Annotated[int, Field(ge=1)] | Literal["auto", "adaptive"], Between(2, 10, whole=True)] = 5
    max_bases: int | None = Field(default=None, ge=1)
    basis_size: int = Field(default=10, ge=1)
    gating: Gating = "auto"
    sigma: float | None = Field(default=None, gt=0)
    sigma_of_median: Annotated[float, Between(0.25, 1.0, log=True)] = Field(default=0.5, gt=0)
    kappa: float | None = Field(default=None, gt=0)
    entropy: Annotated[float, Between(0.2, 0.8)] = Field(default=0.5, gt=0, lt=1)
    shared: bool = True
    coverage: bool = False
    gated_norm: bool | None = None
    norm_statistics: Statistics = "basis"
    test_gates: Literal["sample", "batch"] = "sample"
    train_gates: Literal["sample", "batch"] = "sample"
    lambda_dev: Annotated[float, Between(0.01, 1.0, log=True)] = Field(default=LAMBDA_DEV, ge=0)
    lambda_ols: Annotated[float, Between(1e-4, 0.1, log=True)] = Field(default=1e-3, ge=0)
    lambda_l1: float = Field(default=0.0, ge=0)
    lambda_entropy: float = Field(default=0.0, ge=0)
    lambda_orth: float = Field(default=0.0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _predict_as_trained(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and fields.get("train_gates") == "batch":
            return {"test_gates": "batch", **fields}
        return fields

    @model_validator(mode="after")
    def _check_train_gates(self) -> GDUSettings:
        if self.train_gates == "batch" and self.test_gates != "batch":
            raise ValueError(
                f"test_gates={self.test_gates} does not go with train_gates=batch: experts trained with the gates of "
                "batches expect them in prediction; leave test_gates out, or train_gates"
            )
        if self.train_gates == "batch" and self.gates == "constant":
            raise ValueError(
                "train_gates=batch does not go with gates=constant: constant gates do not look at batches; leave one "
                "of them out"
            )
        return self


class GDU(Method):
    """``f_0(x) + sum_j beta_j(x) d_j(x)``, gated batch norm in the body, and the layer's penalties."""

    name = "gdu"
    label = "GDU"
    what = "gated domain units: gates on style, a shared expert, small deviations from it"
    settings_type: ClassVar[type[Settings]] = GDUSettings

    units: GatedDomainUnits
    test_gates: Gates
    fixed_beta: Tensor | None
    pseudo_domains: Tensor | None

    def __init__(
        self,
        backbone: Backbone,
        units: GatedDomainUnits,
        task: Task,
        settings: Any,
        *,
        norms: bool = False,
        test_gates: Gates = "sample",
    ) -> None:
        super().__init__(task)
        self.backbone: nn.Module = backbone
        self.units = units
        self.settings = settings
        self.norms = norms
        self._notes: tuple[str, ...] = ()
        self.predict_by(test_gates)
        # Where gates are constant, the beta of every sample.
        constant = getattr(settings, "gates", "learned") == "constant"
        self.register_buffer("fixed_beta", torch.ones(units.max_bases) / units.max_bases if constant else None)
        # Where training is gated by batch, the centre of each pseudo-domain in the view that gates see.
        by_batch = getattr(settings, "train_gates", "sample") == "batch"
        self.register_buffer("pseudo_domains", units.bases.detach().mean(1) if by_batch else None)
        self._static: Tensor | None = None  # a view of the raw input does not move: looked at once, and not saved
        self._covered: Tensor | None = None  # the bases that coverage was fitted with, where nothing else can move it

    @classmethod
    def build(cls, settings: Any, problem: Problem, *, mode: Mode) -> GDU:
        name = default_gating(problem.kind) if settings.gating == "auto" else settings.gating
        body = problem.make_body()
        backbone = Backbone(body, GATINGS[name](body, problem.shape))
        gate = GATES[settings.gate]()
        if settings.kappa is not None and not isinstance(gate, SoftmaxGate):
            raise DataError(f"kappa={settings.kappa:g} cannot be set: the gate {settings.gate} has none; leave it out")
        units = GatedDomainUnits(
            backbone.features,
            problem.outputs,
            num_bases=settings.num_bases,
            max_bases=settings.max_bases,
            basis_size=settings.basis_size,
            gate=gate,
            shared=settings.shared,
            coverage=settings.coverage,
            gating_features=backbone.gating_features,
            lambda_ols=settings.lambda_ols,
            lambda_l1=settings.lambda_l1,
            lambda_entropy=settings.lambda_entropy,
            lambda_orth=settings.lambda_orth,
            lambda_dev=settings.lambda_dev,
        )
        if settings.train_gates == "batch" and mode == "end_to_end" and not backbone.sees_raw_input:
            raise DataError(
                f"train_gates=batch needs gates that see the raw input, and with gating={name} what they see moves in "
                "training; leave gating out"
            )
        frozen = mode != "end_to_end"
        why = "the norms of a frozen body cannot be gated (mode fine_tune)" if frozen else why_not_gated(backbone)
        if settings.gated_norm and why is not None:
            raise DataError(f"gated_norm cannot be switched on: {why}; leave gated_norm out")
        if why is None and body.large and settings.gated_norm is None:
            # There they double the time of a step, and no gain that is worth it was measured.
            why = f"the batch norms of a large body ({type(body).__name__}) are gated with gated_norm=true only"
        norms = why is None and settings.gated_norm is not False
        if norms:
            gate_norms(backbone.body, units.max_bases, statistics=settings.norm_statistics)
        made = cls(backbone, units, problem.task, settings, norms=norms, test_gates=settings.test_gates)
        if why is not None and settings.gated_norm is None and mode == "end_to_end":
            made._notes = (f"gates act on the head alone: {why}",)
        return made

    def predict_by(self, gates: Gates) -> None:
        """Let predictions be gated by each sample, by the mean of a batch of one domain, or by a stream of rows."""
        self.test_gates = gates
        self.batchwise = gates == "batch"
        self.in_steps = ROWS_AT_A_TIME if isinstance(gates, GateStream) else None

    def evaluate(self, inputs: Tensor, *, gates: Gates = "sample", by_pseudo_domain: bool = False) -> GatedOutput:
        """Everything one pass finds; the gates are weighed once, for the norms of the body and for the head.

        ``by_pseudo_domain``: the rows of each pseudo-domain are gated as a batch of their own, as in training with
        ``train_gates="batch"``.
        """
        if not self.norms:
            view = self.backbone(inputs)
            seen = view.features if view.gating is None else view.gating
            return self.units.mix(view.features, self._weigh(seen, gates, by_pseudo_domain))
        weighed = self._weigh(cast(Backbone, self.backbone).look(inputs), gates, by_pseudo_domain)
        return self.units.mix(self._gated_features(inputs, weighed), weighed)

    def _weigh(self, seen: Tensor, gates: Gates, by_pseudo_domain: bool) -> Weighed:
        if by_pseudo_domain:
            return self.units.weigh(seen, gates="batch", blocks=self._pseudo_domain_of(seen))
        return self._fixed(self.units.weigh(seen, gates=gates))

    @torch.no_grad()
    def _pseudo_domain_of(self, seen: Float[Tensor, "batch gating"]) -> Int64[Tensor, " batch"]:
        """The index of the pseudo-domain whose centre is nearest to each row, without a device synchronisation."""
        assert self.pseudo_domains is not None
        distances = squared_distances(seen.to(self.pseudo_domains.dtype), self.pseudo_domains)
        return distances.masked_fill(~self.units.active, torch.inf).argmin(1)

    def _fixed(self, weighed: Weighed) -> Weighed:
        """The weighing with the beta of constant gates, where they are."""
        if self.fixed_beta is None:
            return weighed
        used = self.fixed_beta * self.units.active
        return weighed._replace(beta=(used / used.sum()).to(weighed.beta.dtype).expand_as(weighed.beta))

    def features(self, inputs: Tensor) -> Float[Tensor, "batch features"]:
        """What experts see of each sample by itself."""
        if not self.norms:
            return self.backbone(inputs).features
        return self._gated_features(inputs, self._fixed(self.units.weigh(cast(Backbone, self.backbone).look(inputs))))

    def _gated_features(self, inputs: Tensor, weighed: Weighed) -> Tensor:
        body = cast(Backbone, self.backbone).body
        with mixing(body, weighed.mixture, beta=weighed.beta, active=self.units.active):
            return body(inputs)

    def _evaluate_in_training(self, inputs: Tensor) -> GatedOutput:
        """With the gates of training, by sample or by pseudo-domain: rows of many domains are never one batch."""
        return self.evaluate(inputs, by_pseudo_domain=self.pseudo_domains is not None)

    def objective(self, batch: DomainBatch) -> Terms:
        out = self._evaluate_in_training(batch.inputs)
        return {"task": self.task.loss(out, batch.targets), **self.penalties(out), **self.consistency(out, batch)}

    def penalties(self, out: GatedOutput) -> Terms:
        """The weighted penalties of the layer; that on deviations is over those of gated norms too."""
        terms = self.units.weighted_penalties(out)
        if self.norms and self.units.lambda_dev > 0:
            of_norms = mean_square_by_basis(deviation_parameters(self.backbone), self.units.active)
            terms["deviations"] = terms.get("deviations", 0.0) + self.units.lambda_dev * of_norms
        return terms

    def predict(self, inputs: Tensor) -> Prediction:
        # In training mode it predicts for training batches: as a teacher, or while batch norms are renewed.
        out = self._evaluate_in_training(inputs) if self.training else self.evaluate(inputs, gates=self.test_gates)
        left = residual(out.products, self.units.gate.explaining(out.products))
        rows = inputs.shape[0]  # not len: that would fix the batch of an exported graph
        # Of batch gates there is one beta, which is that of every row.
        return Prediction(
            output=self.task.read(out),
            beta=out.beta.expand(rows, -1),
            residual=left.expand(rows),
            coverage=out.coverage,
        )

    def notes(self) -> Sequence[str]:
        return self._notes

    def prepare(self, looks: Looks) -> None:
        self._fit(self._viewed(looks), None)

    def renew(self, looks: Looks, *, epoch: int, optimizer: torch.optim.Optimizer | None) -> None:
        if optimizer is not None and epoch == 1 and not self._stands_still:
            # What gates see has become features of data rather than of random weights: look again, once.
            self._fit(self._viewed(looks), optimizer)
        elif self.units.shared is not None and not self._covers_already:
            self.units.fit_coverage(self._rows(looks))
            self._covered = self.units.bases.detach().clone() if self._stands_still else None
        # Features of random weights tell nothing of how many bases there are.
        early = epoch == 0 and not self._stands_still
        if self.units.adaptive and optimizer is not None and not early and not self.units.settled:
            self._adapt(self._looked(looks), optimizer)

    def readings(self, inputs: Tensor) -> dict[str, Tensor]:
        out = self._evaluate_in_training(inputs)
        found = {
            "gate_entropy": penalties.entropy(out),
            "beta_std": out.beta.std(0).max() if len(out.beta) > 1 else out.beta.new_zeros(()),
            "reconstruction": penalties.reconstruction(out),
            "srip": penalties.srip(out, target=self.units.orthogonality_target),
            "distributional_variance": penalties.distributional_variance(out),
        }
        if out.coverage is not None:
            found["coverage"] = out.coverage.mean()
        if self.units.adaptive:
            found["num_bases"] = self.units.active.sum()
        return found

    def per_rank(self) -> list[str]:
        return [*super().per_rank(), *(["gates of batches"] if self.pseudo_domains is not None else [])]

    @property
    def _stands_still(self) -> bool:
        return bool(self.backbone.sees_raw_input)

    @property
    def _covers_already(self) -> bool:
        """Whether coverage was fitted with the current bases: an epoch begins as the last evaluation ended."""
        return self._covered is not None and torch.equal(self._covered, self.units.bases)

    def _fit(self, rows: Tensor, optimizer: torch.optim.Optimizer | None) -> None:
        chosen = self.settings
        sigma = chosen.sigma
        if sigma is None and as_kernel(self.units.kernel).has_width:
            sigma = chosen.sigma_of_median * typical_distance(rows)
        try:
            self.units.fit_bases(rows, sigma=sigma, kappa=chosen.kappa, entropy=chosen.entropy, optimizer=optimizer)
        except ValueError as error:
            raise DataError(f"gates cannot be fitted to these data: {error}; try gdu[num_bases=2]") from error
        self._fix_at_mean(rows)
        self._fit_pseudo_domains(rows)

    def _adapt(self, rows: Tensor, optimizer: torch.optim.Optimizer) -> None:
        chosen = self.settings
        norms = [*deviation_parameters(self.backbone), *running_moments(self.backbone)] if self.norms else []
        with as_second_moments(self.backbone):
            for _ in range(_ROUNDS):
                self.units.adapt_bases(
                    rows, kappa=chosen.kappa, entropy=chosen.entropy, optimizer=optimizer, followers=norms
                )
                if self.units.settled:
                    break
        self._covered = None
        self._fix_at_mean(rows)
        self._fit_pseudo_domains(rows)

    @torch.no_grad()
    def _fix_at_mean(self, rows: Tensor) -> None:
        """Where gates are constant, set beta to its mean over these rows of the gating view."""
        if self.fixed_beta is not None:
            betas = [self.units.weigh(part.to(self.units.bases)).beta for part in rows.split(_COVERED)]
            self.fixed_beta.copy_(torch.cat(betas).mean(0))

    @torch.no_grad()
    def _fit_pseudo_domains(self, rows: Tensor) -> None:
        """Where training is gated by batch, find pseudo-domains: k-means of these rows, started at the bases in use.

        The mean of a batch is nearer to one basis than its samples are, so kappa is matched to the gates of batches.
        """
        centres, units = self.pseudo_domains, self.units
        if centres is None:
            return

        def fit() -> None:
            x = exact(rows.to(centres.device))
            middle = x.mean(0)
            x = x - middle
            starts = units.active_bases.mean(1).to(x) - middle
            found, _, _ = lloyd(x, x.square().sum(1), starts, _CLUSTER_STEPS)
            centres[units.active] = (found + middle).to(centres.dtype)
            if isinstance(units.gate, SoftmaxGate) and self.settings.kappa is None:
                some = subsample(rows, _COVERED, 0).to(units.bases)
                products = units.weigh(some, gates="batch", blocks=self._pseudo_domain_of(some)).products
                similarity = units.gate.similarity(products)[:, units.active]
                units.gate.set_kappa(match_kappa(similarity, entropy=self.settings.entropy))

        on_first_rank(fit, [centres, *units.gate.buffers()])
        if units.shared is not None:
            units.fit_coverage(rows)  # familiarity depends on kappa

    def _viewed(self, looks: Looks) -> Float[Tensor, "rows gating"]:
        """Training rows of the view that gates see, standardised by them from now on."""
        rows = cast(Backbone, self.backbone).fit_view(looks())
        self._static = rows[:_COVERED] if self._stands_still else None
        return rows

    @torch.no_grad()
    def _rows(self, looks: Looks) -> Float[Tensor, "rows gating"]:
        """Training rows of the view that gates see, in the mode the method is in."""
        if self._static is None:
            rows = self._looked(looks)
            if not self._stands_still:
                return rows
            self._static = rows[:_COVERED]
        return self._static

    @torch.no_grad()
    def _looked(self, looks: Looks) -> Float[Tensor, "rows gating"]:
        with unmoved_buffers(self.backbone):
            return torch.cat([cast(Backbone, self.backbone).look(inputs) for inputs in looks()])
