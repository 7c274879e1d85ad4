"""GatedDomainUnits: the layer that stands where ``Dense`` stood."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from gated_domains.common.paper import PAPER_BASES, GateName, Setting, paper_setting
from gated_domains.common.validation import at_least_one, not_negative, room
from gated_domains.keras_layer import penalties
from gated_domains.keras_layer.arguments import (
    Penalty,
    Shape,
    a_gate,
    a_kernel,
    a_task,
    an_orthogonality,
    check_views,
    known_width,
    two_shapes,
    two_views,
)
from gated_domains.keras_layer.arrays import Array, at_least_float32, keras, mean_of, ops, registered
from gated_domains.keras_layer.coverage import Coverage
from gated_domains.keras_layer.experts import Experts, LinearExperts
from gated_domains.keras_layer.fitting import FitsData
from gated_domains.keras_layer.gates import Gate, simplex
from gated_domains.keras_layer.initialisers import PaperNormal
from gated_domains.keras_layer.kernels import KernelLike, name_of, serialise
from gated_domains.keras_layer.output import GatedOutput
from gated_domains.keras_layer.penalties import ORTHOGONALITY, Target
from gated_domains.keras_layer.products import InnerProducts, pooled
from gated_domains.keras_layer.recording import Recorded
from gated_domains.keras_layer.tasks import ProbabilisticRegression, match_moments

Gates = Literal["sample", "batch"]

# Settings that a configuration holds as configurations of their own.
_NESTED = ("kernel", "gate", "experts", "task", "bases_initializer", "orthogonality")


@registered
class GatedDomainUnits(FitsData, Recorded):
    """A gated ensemble of learning machines, one for each learned basis of a latent elementary distribution.

        prediction = sum_j beta_j(x) f(x, theta_j)                    shared=False, the paper's form
        prediction = f_0(x) + sum_j beta_j(x) d_j(x)                  shared=True, the default
        prediction = f_0(x) + c(x) sum_j beta_j(x) d_j(x)             shared=True, coverage=True

    beta comes from kernel inner products between ``gating`` (the features unless another view is given, as a second
    input) and the ``bases``. With a shared expert f_0 the experts d_j are deviations that start at zero, and the
    penalty ``lambda_dev * mean_j ||d_j||^2`` keeps them small. The familiarity c(x) of a sample is reported in the
    output; it scales the deviations only with ``coverage=True``.

    Train with the callback ``RenewHead``, or call ``fit_bases`` with training features: bases, sigma and kappa then fit
    the data. The penalties join the model's loss by themselves; ``evaluate`` and ``penalty`` are there for a loop of
    your own.
    """

    #: Each penalty and its weight, in the order of ``penalty_scales``.
    LAMBDAS: ClassVar[dict[str, str]] = {
        "reconstruction": "lambda_ols",
        "sparsity": "lambda_l1",
        "entropy": "lambda_entropy",
        "orthogonality": "lambda_orth",
        "deviations": "lambda_dev",
    }
    PENALTIES: ClassVar[tuple[str, ...]] = tuple(LAMBDAS)

    def __init__(
        self,
        units: int,
        *,
        num_bases: int | Literal["auto"] = 5,
        basis_size: int = 10,
        max_bases: int | None = None,
        kernel: str | KernelLike | None = None,
        sigma: float | None = None,
        gate: str | Gate = "cosine",
        kappa: float | None = None,
        experts: Experts | None = None,
        shared: bool = True,
        coverage: bool = False,
        task: str | ProbabilisticRegression | None = None,
        activation: Any = None,
        lambda_ols: float = 1e-3,
        lambda_l1: float = 0.0,
        lambda_entropy: float = 0.0,
        lambda_orth: float = 0.0,
        lambda_dev: float = 0.1,
        orthogonality: str | Penalty = "srip",
        orthogonality_target: Target = "diagonal",
        bases_initializer: Any = None,
        trainable: bool = True,
        dtype: Any = None,
        name: str | None = None,
    ) -> None:
        # Casting inputs is ours to do: experts may take half precision, distances may not.
        super().__init__(trainable=trainable, dtype=dtype, autocast=False, name=name)
        self.supports_masking = True  # as Dense does; what is masked still counts in the penalties
        self.units = at_least_one("units", units)
        self.basis_size = at_least_one("basis_size", basis_size)
        self.auto = num_bases == "auto"
        self.max_bases, self.start_bases = room(num_bases, max_bases)
        # Places that were never fitted to anything, and perhaps lie far from the data.
        self.spare = self.auto or self.max_bases > self.start_bases
        self.kernel = a_kernel(kernel, sigma)
        self.width_from_features = sigma is None and (kernel is None or isinstance(kernel, str))
        self.gate = a_gate(gate, kappa)
        self.kind_of_experts = LinearExperts() if experts is None else experts
        if not isinstance(self.kind_of_experts, Experts):
            raise TypeError(f"experts must be a kind of experts, got {experts!r}; try LinearExperts(activation='tanh')")
        self.has_shared = shared
        if shared:
            self.kind_of_experts.check_zero()
        self.coverage = Coverage()
        self.applies_coverage = shared and coverage
        self.task = a_task(task)
        self.activation = keras.activations.get(activation)
        if self.task is not None and activation is not None:
            raise ValueError(f"activation={activation!r} would distort mean and variance; leave it out, or the task")
        self.lambda_ols = not_negative("lambda_ols", lambda_ols)
        self.lambda_l1 = not_negative("lambda_l1", lambda_l1)
        self.lambda_entropy = not_negative("lambda_entropy", lambda_entropy)
        self.lambda_orth = not_negative("lambda_orth", lambda_orth)
        self.lambda_dev = not_negative("lambda_dev", lambda_dev)
        self.orthogonality = an_orthogonality(orthogonality)
        self.orthogonality_target = penalties.check_target(orthogonality_target)
        if bases_initializer is None:
            # As standardised features would lie; the default sigma is their expected distance.
            bases_initializer = keras.initializers.RandomNormal(0.0, 1.0)
        self.bases_initializer = keras.initializers.get(bases_initializer)

    @classmethod
    def paper(
        cls,
        units: int,
        *,
        gate: GateName = "cosine",
        setting: Setting = "digits",
        num_bases: int = PAPER_BASES,
        basis_size: int = 10,
        task: str | ProbabilisticRegression | None = None,
        activation: Any = None,
        name: str | None = None,
    ) -> GatedDomainUnits:
        """The paper's layer: its initialiser, kernel width, gate, penalties and experts, for one of its two settings.

        M is 10, as in the paper's text and code; its table of settings has 5. Experts have no bias, as in its code.
        Fine-tuning on digits also takes sigma from the data: ``head.fit_sigma(features)``. Expect a warning then: with
        this initialiser gates are nearly constant.
        """
        row = paper_setting(setting, gate)
        return cls(
            units,
            num_bases=num_bases,
            basis_size=basis_size,
            sigma=row.sigma,
            gate=gate,
            kappa=row.kappa,
            experts=LinearExperts("tanh" if row.tanh else None, bias=False),
            shared=False,
            task=task,
            activation=activation,
            lambda_ols=row.lambda_ols,
            lambda_l1=row.lambda_l1,
            lambda_orth=row.lambda_orth,
            orthogonality_target="identity",
            bases_initializer=PaperNormal(),
            name=name,
        )

    def build(self, features_shape: Any, gating_shape: Any = None) -> None:
        features_shape, gating_shape = two_shapes(features_shape, gating_shape)
        self.in_features = known_width("features", features_shape)
        self.gating_features = self.in_features if gating_shape is None else known_width("gating", gating_shape)
        exact = self.exact_dtype
        self.bases = self.add_weight(
            name="bases",
            shape=(self.max_bases, self.basis_size, self.gating_features),
            initializer=self.bases_initializer,
            autocast=False,
        )
        self.active = self.add_weight(
            name="active",
            shape=(self.max_bases,),
            dtype="bool",
            trainable=False,
            autocast=False,
            initializer=lambda shape, dtype=None: ops.arange(self.max_bases) < self.start_bases,
        )
        self.penalty_scales = self.add_weight(
            name="penalty_scales",
            shape=(len(self.PENALTIES),),
            dtype=exact,
            trainable=False,
            autocast=False,
            initializer="ones",
        )
        if self.width_from_features:
            self.kernel.set_sigma(math.sqrt(2 * self.gating_features))
        for numbers in (self.kernel, self.gate, self.coverage):
            numbers.grow(self, exact)
        self.experts = self._bank(self.max_bases, zero=self.has_shared, name="experts")
        self.shared = self._bank(1, zero=False, name="shared") if self.has_shared else None

    def call(
        self,
        features: Annotated[Array, "*batch features"],
        gating: Annotated[Array, "*batch gating"] | None = None,
        gates: Gates = "sample",
        training: bool | None = None,
    ) -> Annotated[Array, "*batch outputs"]:
        """The prediction alone; ``gating`` is the view that gates see, the features by default.

        With a probabilistic task means and variances side by side.
        """
        features, gating = two_views(features, gating)
        out = self._evaluate(features, gating, gates, training)
        for penalty in self.weighted_penalties(out).values():
            self.add_loss(penalty)
        self._note(features if gating is None else gating, out)
        return out.prediction if out.variance is None else ops.concatenate([out.prediction, out.variance], axis=-1)

    def compute_output_shape(self, features_shape: Any, gating_shape: Any = None) -> Shape:
        features_shape, _ = two_shapes(features_shape, gating_shape)
        return (*features_shape[:-1], self._numbers)

    def compute_output_spec(self, features: Any, gating: Any = None, **_: Any) -> keras.KerasTensor:
        shapes = keras.tree.map_structure(lambda tensor: tuple(tensor.shape), features), None
        # The variance of half-precision numbers need not be one.
        dtype = self.compute_dtype if self.task is None else self.exact_dtype
        return keras.KerasTensor(self.compute_output_shape(*shapes), dtype=dtype)

    def evaluate(
        self,
        features: Annotated[Array, "*batch features"],
        gating: Annotated[Array, "*batch gating"] | None = None,
        *,
        gates: Gates = "sample",
        training: bool | None = None,
    ) -> GatedOutput:
        """Prediction, beta, inner products: everything penalties and people ask for.

        ``gates`` tells what is compared with the bases: each ``"sample"`` or the mean of the ``"batch"``.
        """
        features, gating = self._taken(features, gating)
        return self._evaluate(features, gating, gates, training)

    @property
    def penalties_in_use(self) -> tuple[str, ...]:
        """The names of the penalties with a lambda above 0; there are deviations only from a shared expert."""
        return tuple(name for name, (weight, _) in self._weighted().items() if weight > 0)

    def deviation_norm(self) -> Annotated[Array, ""]:
        """``mean_j ||d_j||^2`` over the bases in use, of the weights of the deviations from the shared expert."""
        squares = self.experts.squares()
        if not self.spare:
            return mean_of(squares)
        used = ops.cast(ops.convert_to_tensor(self.active), squares.dtype)
        return ops.sum(squares * used) / ops.sum(used)

    def penalty_terms(self, out: GatedOutput) -> dict[str, Annotated[Array, ""]]:
        """The penalties in use (those with a lambda above 0), unweighted, by name."""
        return {name: penalty(out) for name, (weight, penalty) in self._weighted().items() if weight > 0}

    def weighted_penalties(self, out: GatedOutput) -> dict[str, Annotated[Array, ""]]:
        """The penalties in use, each times its lambda and its scale, by name: terms of a loss."""
        weighted = self._weighted()
        terms = {}
        for place, name in enumerate(self.PENALTIES):
            weight, penalty = weighted[name]
            if weight > 0:
                value = penalty(out)
                terms[name] = weight * ops.cast(self.penalty_scales[place], value.dtype) * value
        return terms

    def penalty(self, out: GatedOutput) -> Annotated[Array, ""]:
        """``sum of lambda * penalty``, to be added to the task's loss."""
        return sum(self.weighted_penalties(out).values(), ops.zeros((), dtype=out.beta.dtype))

    def novelty(
        self, features: Annotated[Array, "*batch features"], gating: Annotated[Array, "*batch gating"] | None = None
    ) -> Annotated[Array, "*batch"]:
        """``||phi(x) - sum_j beta_j mu_j||^2`` of each sample: what the bases cannot express of it."""
        features, gating = self._taken(features, gating)
        check_views(features, gating, self.in_features, self.gating_features)
        view = features if gating is None else gating
        return ops.reshape(self._residual(self._products(self._rows(view))), ops.shape(view)[:-1])

    def familiarity(
        self, features: Annotated[Array, "*batch features"], gating: Annotated[Array, "*batch gating"] | None = None
    ) -> Annotated[Array, "*batch"]:
        """Novelty calibrated on training data: 1 for a sample like those, 0 for one unlike anything seen."""
        return self.coverage(self.novelty(features, gating))

    def get_config(self) -> dict[str, Any]:
        given = self.orthogonality
        return {
            **super().get_config(),
            "units": self.units,
            "num_bases": "auto" if self.auto else self.start_bases,
            "basis_size": self.basis_size,
            "max_bases": self.max_bases,
            "kernel": name_of(self.kernel) if self.width_from_features else serialise(self.kernel),
            "gate": keras.saving.serialize_keras_object(self.gate),
            "experts": keras.saving.serialize_keras_object(self.kind_of_experts),
            "shared": self.has_shared,
            "coverage": self.applies_coverage,
            "task": None if self.task is None else keras.saving.serialize_keras_object(self.task),
            "activation": keras.activations.serialize(self.activation),
            "lambda_ols": self.lambda_ols,
            "lambda_l1": self.lambda_l1,
            "lambda_entropy": self.lambda_entropy,
            "lambda_orth": self.lambda_orth,
            "lambda_dev": self.lambda_dev,
            "orthogonality": given if isinstance(given, str) else keras.saving.serialize_keras_object(given),
            "orthogonality_target": self.orthogonality_target,
            "bases_initializer": keras.initializers.serialize(self.bases_initializer),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> GatedDomainUnits:
        known = {
            name: keras.saving.deserialize_keras_object(value) for name, value in config.items() if name in _NESTED
        }
        activation = keras.activations.deserialize(config["activation"]) if "activation" in config else None
        linear = activation in (None, keras.activations.linear)
        return cls(**{**config, **known, "activation": None if linear else activation})

    @property
    def _numbers(self) -> int:
        """How many numbers the layer gives for a row, and an expert too."""
        return self.units * (1 if self.task is None else self.task.numbers_a_unit)

    def _bank(self, num_bases: int, *, zero: bool, name: str) -> keras.layers.Layer:
        bank = self.kind_of_experts.bank(num_bases, self._numbers, zero=zero, dtype=self.dtype_policy, name=name)
        bank.build((None, self.in_features))
        return bank

    def _taken(self, features: Any, gating: Any) -> tuple[Array, Array | None]:
        """Both views as tensors, and the layer built for them."""
        features, gating = two_views(features, gating)
        features = ops.convert_to_tensor(features)
        gating = None if gating is None else ops.convert_to_tensor(gating)
        if not self.built:
            self.build(tuple(features.shape), None if gating is None else tuple(gating.shape))
        return features, gating

    def _evaluate(self, features: Array, gating: Array | None, gates: Gates, training: bool | None) -> GatedOutput:
        check_views(features, gating, self.in_features, self.gating_features)
        lead = ops.shape(features)[:-1]
        z = self._rows(features if gating is None else gating)
        own = self._products(z)
        if gates not in ("sample", "batch"):
            raise ValueError(f"gates must be 'sample' or 'batch', got {gates!r}")
        products = own if gates == "sample" else pooled(own, self.kernel, z)
        beta = self.gate(products)
        covered = None if self.shared is None else self._covered(own)
        x = ops.reshape(ops.cast(features, self.compute_dtype), (-1, self.in_features))
        prediction, variance = self._mix(x, beta, covered if self.applies_coverage else None, training)
        if gates == "sample":
            beta = ops.reshape(beta, (*lead, self.max_bases))
            products = products._replace(
                self_product=ops.reshape(products.self_product, lead),
                cross=ops.reshape(products.cross, (*lead, self.max_bases)),
            )
        return GatedOutput(
            prediction=ops.reshape(self.activation(prediction), (*lead, self.units)),
            beta=beta,
            products=products,
            variance=None if variance is None else ops.reshape(variance, (*lead, self.units)),
            coverage=None if covered is None else ops.reshape(covered, lead),
        )

    def _covered(self, own: InnerProducts) -> Array:
        still = InnerProducts(
            ops.stop_gradient(own.self_product),
            ops.stop_gradient(own.cross),
            ops.stop_gradient(own.gram),
            own.active,
        )
        return self.coverage(self._residual(still))

    def _mix(self, x: Array, beta: Array, covered: Array | None, training: bool | None) -> tuple[Array, Array | None]:
        outputs = self._said(self.experts, x, training)
        shared = None if self.shared is None else self._said(self.shared, x, training)
        if self.task is not None:
            # Squares of half-precision numbers leave their range too soon.
            outputs = at_least_float32(outputs)
            if shared is not None:
                held = outputs if covered is None else outputs * ops.cast(covered, outputs.dtype)[:, None, None]
                outputs = at_least_float32(shared) + held
            weights = ops.cast(simplex(beta, None if not self.spare else self.active), outputs.dtype)
            return match_moments(weights, *self.task.moments(outputs))
        mixed = ops.sum(ops.expand_dims(ops.cast(beta, outputs.dtype), -1) * outputs, axis=-2)
        if shared is not None:
            mixed = mixed if covered is None else mixed * ops.cast(covered, mixed.dtype)[:, None]
            mixed = shared[:, 0] + mixed
        return mixed, None

    def _said(self, bank: keras.layers.Layer, x: Array, training: bool | None) -> Array:
        said = bank(x, training=training) if bank._call_has_training_arg else bank(x)
        return ops.cast(said, self.compute_dtype)  # experts of the user's may have a precision of their own

    def _weighted(self) -> dict[str, tuple[float, Penalty]]:
        return {
            "reconstruction": (self.lambda_ols, penalties.reconstruction),
            "sparsity": (self.lambda_l1, penalties.sparsity),
            "entropy": (self.lambda_entropy, penalties.entropy),
            "orthogonality": (self.lambda_orth, self._orthogonality_penalty),
            "deviations": (self.lambda_dev if self.has_shared else 0.0, lambda _: self.deviation_norm()),
        }

    def _orthogonality_penalty(self, out: GatedOutput) -> Array:
        if not isinstance(self.orthogonality, str):
            return self.orthogonality(out)
        takes_target = self.orthogonality != "mutual_coherence"  # a ratio of entries, with no target to subtract
        more = {"target": self.orthogonality_target} if takes_target else {}
        return ORTHOGONALITY[self.orthogonality](out, **more)

    def _rows(self, view: Array) -> Array:
        """The view as rows, in the precision that kernels want."""
        return ops.reshape(ops.cast(view, self.exact_dtype), (-1, self.gating_features))
