"""Estimators with gated domain units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gated_domains.common.paper import GateName
from gated_domains.estimators.classification import NetworkClassifier
from gated_domains.estimators.estimator import NetworkEstimator, keep
from gated_domains.estimators.making import Units, fit_units, gated_network, num_bases_for
from gated_domains.estimators.material import Material
from gated_domains.estimators.network import GatedNetwork, Network
from gated_domains.estimators.reference import Reference, rows_asked_for
from gated_domains.estimators.regression import NetworkRegressor
from gated_domains.estimators.scaling import Scaling
from gated_domains.estimators.shift_score import ShiftScore, calibrated_accuracy, coverage_of, shift_score
from gated_domains.layer.experts import Task
from gated_domains.layer.gates import SoftmaxGate
from gated_domains.layer.kernels import as_kernel

if TYPE_CHECKING:
    from gated_domains.insight.shift.accuracy import AccuracyCalibration, AccuracyEstimate

Own = TypeVar("Own", bound="GDUClassifier")


class Gated(NetworkEstimator):
    """What estimators with units have in common."""

    network_: GatedNetwork
    reference_: NDArray[np.float32]
    reference_domains_: NDArray[Any] | None
    reference_rows: int

    def gates(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """beta: the weight of each basis for every row."""
        return self._found(X, "beta")

    def novelty(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """How unlike anything the bases express each row is: ``||phi(x) - sum_j beta_j mu_j||^2``."""
        return self._found(X, "residual")

    def familiarity(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Novelty calibrated on training rows: 1 for a row like those, 0 for one unlike anything seen."""
        source = self._rows(X)
        units = self.network_.units
        found = self._asked(source, lambda x: {"familiarity": units.familiarity(self.network_.standard(x))})
        return found["familiarity"]

    def shift_score(
        self,
        X: Any,  # noqa: N803
        *,
        groups: Any = None,
        permutations: int = 999,
        seed: int = 0,
    ) -> ShiftScore:
        """How unlike the rows of training these are together: ``score``, ``rank``, ``p_value``, ``novelty``...

        Compared with ``reference_``, the rows that were kept of training. ``groups`` name what each new row belongs to
        (a patient): rows of a group are permuted together.
        """
        return shift_score(self, X, groups=groups, permutations=permutations, seed=seed)

    def standard(self, X: Any) -> Tensor:  # noqa: N803
        """The rows as gates and experts see them: standardised, on the CPU."""
        found = self._asked(self._rows(X), lambda x: {"standard": self.network_.standard(x)})
        return torch.from_numpy(found["standard"])

    @property
    def bases_(self) -> NDArray[Any]:
        """The bases, in the units of the columns: (bases, vectors, columns)."""
        check_is_fitted(self)
        bases = self.network_.units.bases.detach()
        return self.network_.inputs.undo(bases.flatten(0, 1)).reshape(bases.shape).numpy()

    @property
    def num_bases_(self) -> int:
        """How many bases there are."""
        check_is_fitted(self)
        return self.network_.units.num_bases

    @property
    def sigma_(self) -> float:
        """The width of the kernel, on standardised columns."""
        check_is_fitted(self)
        return as_kernel(self.network_.units.kernel).get_sigma()

    @property
    def kappa_(self) -> float | None:
        """The sharpness of the gates; None for projections, which have none."""
        check_is_fitted(self)
        gate = self.network_.units.gate
        return float(gate.kappa) if isinstance(gate, SoftmaxGate) else None

    def _found(self, X: Any, name: str) -> NDArray[Any]:  # noqa: N803
        found: NDArray[Any] = getattr(self.predicted(X), name)
        return found

    def _build(
        self,
        inputs: Scaling,
        outputs: Scaling,
        task: Task,
        *,
        look: Callable[[], Tensor],
        dtype: torch.dtype,
        seed: int,
    ) -> GatedNetwork:
        chosen, rows = Units.of(self), look()
        rows_asked_for(self.reference_rows)
        network = self._empty(inputs, outputs, task, num_bases=num_bases_for(rows, chosen, seed=seed))
        network.units.to(rows.device, dtype)
        fit_units(network, rows, chosen, seed=seed)
        return network

    def _empty(self, inputs: Scaling, outputs: Scaling, task: Task, *, num_bases: int) -> GatedNetwork:
        return gated_network(inputs, outputs, task, chosen=Units.of(self), num_bases=num_bases, alpha=self.alpha)

    def _keep_rows(self, material: Material, network: Network, *, first: bool, seed: int) -> None:
        self.__dict__.pop("accuracy_", None)  # it was that of the model before
        before = Reference.none(self.n_features_in_) if first else Reference(self.reference_, self.reference_domains_)
        most = rows_asked_for(self.reference_rows)
        self.reference_, self.reference_domains_ = before.joined_by(material, network, most=most, seed=seed)


class GDUClassifier(Gated, NetworkClassifier):
    """A classifier that holds up on a domain it has not seen: gated domain units on the columns of ``X``.

        logits = f_0(x) + sum_j beta_j(x) d_j(x)

    with a linear machine f_0 that all rows share, linear deviations d_j of each basis, and gates beta by a kernel.
    Minimised is the mean loss plus ``alpha / 2 ||f_0||^2`` plus ``deviation_alpha / 2 ||d||^2`` plus the penalties of
    the units (``lambda_*``).

    Parameters
    ----------
    num_bases : how many bases; ``"auto"``: as Davies-Bouldin finds, 2 to 10; ``"adaptive"``: as many as the rows have
        modes, 1 to 10.
    basis_size : vectors in a basis.
    gate : ``"cosine"``, ``"mmd"`` or ``"projection"``.
    sigma : width of the Gaussian kernel on standardised columns; ``"median"``: the median distance of rows.
    kappa : sharpness of the gates; ``"auto"``: their mean entropy is half of log M.
    shared : f_0 above; without it the paper's form, ``sum_j beta_j f_j(x)``.
    coverage : multiply the deviations of a row by its familiarity, which is reported either way.
    learn_bases : move the bases in training; without, they stay where k-means put them, and the objective is convex.
    standardize : give columns mean 0 and deviation 1 first.
    class_weight : ``"balanced"``, or a weight for each class.
    domain_weight : ``"balanced"``: every domain of ``sample_domain`` counts the same.
    solver : ``"lbfgs"``, deterministic, on all rows at once; ``"adam"``, in mini-batches; ``"auto"`` by size.
    max_iter, tol : iterations of L-BFGS at most, and the largest gradient at which it is done.
    epochs, batch_size, learning_rate : of Adam.
    early_stopping : keep ``validation_fraction`` of the rows apart, of every class and domain, and stop after
        ``n_iter_no_change`` iterations or epochs without a validation loss better by ``tol``.
    device : ``"auto"``: a GPU where there is one.
    verbose : print a line every so many iterations or epochs.
    reference_rows : rows of the training data that are kept, at random, to compare new ones with (``shift_score``);
        fewer of very wide ones, 0: none. They are rows of your data, standardised, and travel with a saved or pickled
        model: whoever has it can read them.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_ : as in scikit-learn.
    bases_, num_bases_, sigma_, kappa_ : what came of the units; bases in the units of the columns.
    domains_, domain_counts_ : names and numbers of rows of the domains, where ``sample_domain`` told them.
    solver_, n_iter_, loss_curve_, validation_curve_ : how training went.
    reference_, reference_domains_ : the rows kept of training, standardised, and their domains (None: not given).
        ``partial_fit`` keeps rows of the first parts, until there are as many.
    accuracy_ : how accuracy is estimated, once ``calibrate_accuracy`` has measured it.
    network_ : the torch module itself.
    """

    accuracy_: AccuracyCalibration

    def __init__(
        self,
        *,
        num_bases: int | Literal["auto", "adaptive"] = "auto",
        basis_size: int = 10,
        gate: GateName = "cosine",
        sigma: float | Literal["median"] = "median",
        kappa: float | Literal["auto"] = "auto",
        shared: bool = True,
        coverage: bool = False,
        learn_bases: bool = False,
        alpha: float = 1e-2,
        deviation_alpha: float = 1e-2,
        lambda_ols: float = 1e-3,
        lambda_l1: float = 0.0,
        lambda_entropy: float = 0.0,
        lambda_orth: float = 0.0,
        standardize: bool = True,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        domain_weight: Literal["balanced"] | None = None,
        solver: Literal["auto", "lbfgs", "adam"] = "auto",
        max_iter: int = 1000,
        epochs: int = 20,
        tol: float = 1e-4,
        batch_size: int | Literal["auto"] = "auto",
        learning_rate: float = 1e-3,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        random_state: Any = None,
        verbose: int = 0,
        reference_rows: int = 1000,
    ) -> None:
        keep(self, locals())

    def calibrate_accuracy(
        self: Own,
        X: Any,  # noqa: N803
        y: Any,
        *,
        sample_domain: Any,
        sample_weight: Any = None,
    ) -> Own:
        """Measure how well the accuracy at a new site can be estimated, on the rows of training.

        The same classifier is fitted without each domain in turn and asked about it. Kept as ``accuracy_`` until the
        next fit, and saved with the model.
        """
        self.accuracy_ = calibrated_accuracy(self, X, y, sample_domain=sample_domain, sample_weight=sample_weight)
        return self

    def estimate_accuracy(self, X: Any) -> AccuracyEstimate:  # noqa: N803
        """The accuracy that this classifier will probably have on rows like these, from confidence and familiarity."""
        said = self.predicted(X)
        if not hasattr(self, "accuracy_"):
            raise ValueError(
                "it was not measured how well its accuracy can be estimated; call "
                "calibrate_accuracy(X, y, sample_domain=...) with the rows of training first"
            )
        return self.accuracy_.estimate(said.output.max(1), coverage_of(self.network_.units, said))


class GDURegressor(Gated, NetworkRegressor):
    """A regressor that holds up on a domain it has not seen; see ``GDUClassifier``, with squared error in place of
    cross-entropy. ``y`` may have several columns.
    """

    def __init__(
        self,
        *,
        num_bases: int | Literal["auto", "adaptive"] = "auto",
        basis_size: int = 10,
        gate: GateName = "cosine",
        sigma: float | Literal["median"] = "median",
        kappa: float | Literal["auto"] = "auto",
        shared: bool = True,
        coverage: bool = False,
        learn_bases: bool = False,
        alpha: float = 1e-2,
        deviation_alpha: float = 1e-2,
        lambda_ols: float = 1e-3,
        lambda_l1: float = 0.0,
        lambda_entropy: float = 0.0,
        lambda_orth: float = 0.0,
        standardize: bool = True,
        domain_weight: Literal["balanced"] | None = None,
        solver: Literal["auto", "lbfgs", "adam"] = "auto",
        max_iter: int = 1000,
        epochs: int = 20,
        tol: float = 1e-4,
        batch_size: int | Literal["auto"] = "auto",
        learning_rate: float = 1e-3,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        random_state: Any = None,
        verbose: int = 0,
        reference_rows: int = 1000,
    ) -> None:
        keep(self, locals())
