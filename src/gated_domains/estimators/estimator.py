"""What all estimators share: reading data, fitting a network to them, asking it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from gated_domains.common.validation import flag, not_negative
from gated_domains.estimators.material import Material, known_domains
from gated_domains.estimators.network import GatedNetwork, Network
from gated_domains.estimators.parts import Parts
from gated_domains.estimators.rows import RowSource
from gated_domains.estimators.scaling import Scaling
from gated_domains.estimators.solving import Solving, set_apart, solve
from gated_domains.estimators.threads import step_flops, threads_for
from gated_domains.evaluation.scores import Predicted
from gated_domains.layer.experts import Regression, Task
from gated_domains.layer.stream import ROWS_AT_A_TIME, GateStream
from gated_domains.layer.units import Gates

Own = TypeVar("Own", bound="NetworkEstimator")

DEVICES = ("auto", "cpu", "cuda")


class NetworkEstimator(BaseEstimator):  # type: ignore[misc]
    """A network in scikit-learn's manners. Settings are checked when it is fitted, as everywhere there."""

    network_: Network
    n_features_in_: int
    domains_: NDArray[Any]
    domain_counts_: NDArray[np.int64]
    #: Set by the constructors of the kinds of estimators.
    alpha: float
    standardize: bool
    learning_rate: float
    batch_size: Any
    device: str
    random_state: Any

    def fit(self: Own, X: Any, y: Any, *, sample_domain: Any = None, sample_weight: Any = None) -> Own:  # noqa: N803
        """Fit to rows ``X`` with targets ``y``.

        ``sample_domain`` names the domain of each row. It is not needed: with it, rows that early stopping validates on
        are drawn from every domain, ``domain_weight`` can balance them, and ``domains_`` are remembered.
        """
        with _or_as_before(self):
            how, seed = Solving.of(self), self._seed()
            material, outputs, task = self._read(X, y, sample_domain, sample_weight, reset=True)
            solver = how.chosen(len(material), material.source.width)
            # First of all: neither scaling nor bases may see the rows that validate.
            kept, apart = set_apart(material, how, seed) if how.early_stopping else (material, None)
            with threads_for(0):
                network = self._network_for(kept, outputs, task, seed=seed, double=solver == "lbfgs")
            with threads_for(step_flops(network, how.rows_a_step(kept.source, solver))):
                history = solve(network, kept, how, apart=apart, solver=solver, seed=seed)
            self.solver_, self.n_iter_ = history.solver, history.iterations
            self.loss_curve_, self.validation_curve_ = history.losses, history.validation_losses
            self._parts: Parts | None = None
            self._keep_rows(kept, network, first=True, seed=seed)
            self._settle(network)
        return self

    def _learn_part(
        self,
        X: Any,  # noqa: N803
        y: Any,
        sample_domain: Any,
        sample_weight: Any,
        *,
        classes: Any = None,
    ) -> None:
        """One pass of the mini-batch solver over these rows; the first ones make the network."""
        with _or_as_before(self):
            how, first = Solving.of(self), not hasattr(self, "network_")
            material, outputs, task = self._read(X, y, sample_domain, sample_weight, reset=first, classes=classes)
            if first:
                with threads_for(0):
                    network, parts = self._network_for(material, outputs, task, seed=self._seed(), double=False), None
                self.solver_, self.n_iter_, self.loss_curve_, self.validation_curve_ = "adam", 0, [], []
            else:
                # Copies: a part that turns out to be bad leaves what was learned before it.
                network, parts = deepcopy((self.network_, self._parts))
                if outputs != len(network.outputs.mean):
                    raise ValueError(
                        f"y has {outputs} columns, and {len(network.outputs.mean)} in the parts before this one"
                    )
                network.to(material.source.device)
            self._parts = parts = parts or Parts(network, fitted=not first, seed=self._seed())
            with threads_for(step_flops(network, how.rows_a_step(material.source, "adam"))):
                loss = parts.learn(network, material, batch_size=how.batch_size, rate=how.learning_rate)
            self.loss_curve_ = [*self.loss_curve_, loss]
            self.n_iter_ += 1
            self._keep_rows(material, network, first=first, seed=self.n_iter_)
            self._settle(network)

    def predicted(self, X: Any, *, gates: Gates = "sample") -> Predicted:  # noqa: N803
        """All that the model says of rows, in order: its output, and of its gates beta, residual and coverage.

        ``gates``: by each ``"sample"``, by the mean of all these rows (``"batch"``), or by the last rows of a
        ``GateStream``.
        """
        source = self._rows(X)
        if gates != "sample" and not isinstance(self.network_, GatedNetwork):
            raise ValueError(f"{type(self).__name__} has no gates that could be of a {gates}; leave gates out")

        def ask(x: Tensor) -> dict[str, Tensor | None]:
            network = self.network_
            said = network.predict(x, gates) if isinstance(network, GatedNetwork) else network.predict(x)
            return said._asdict()

        at_once = len(source) if gates == "batch" else ROWS_AT_A_TIME if isinstance(gates, GateStream) else None
        return Predicted(**self._asked(source, ask, at_once))

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator into a folder, as safetensors and JSON; ``load_estimator`` reads it."""
        from gated_domains.estimators.saving import save_estimator

        save_estimator(self, Path(folder))

    # -- what kinds of estimators differ in ----------------------------------------------------------------------------

    @abstractmethod
    def _build(
        self,
        inputs: Scaling,
        outputs: Scaling,
        task: Task,
        *,
        look: Callable[[], Tensor],
        dtype: torch.dtype,
        seed: int,
    ) -> Network:
        """The network, untrained; ``look`` shows some standardised rows."""

    @abstractmethod
    def _empty(self, inputs: Scaling, outputs: Scaling, task: Task, *, num_bases: int) -> Network:
        """A network of this shape, to read saved weights into."""

    @abstractmethod
    def _targets(self, y: NDArray[Any], classes: Any) -> tuple[Tensor, int, Task]:
        """Targets as the loss takes them, how many outputs that needs, and what is minimised."""

    @abstractmethod
    def _asked_for(self) -> tuple[int, Task]:
        """The outputs and the task, once targets are known."""

    @abstractmethod
    def _weights(self, values: Any, targets: Tensor, sample_weight: Any, domains: Any) -> NDArray[np.float64]:
        """How much each row counts, 1 on average."""

    def _keep_rows(self, material: Material, network: Network, *, first: bool, seed: int) -> None:
        """Keep some of the rows of training, where this kind of estimator has a use for them."""

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "network_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _reading(self) -> dict[str, Any]:
        """How scikit-learn is to read the targets."""
        return {}

    # -- reading data --------------------------------------------------------------------------------------------------

    def _read(
        self,
        X: Any,  # noqa: N803
        y: Any,
        sample_domain: Any,
        sample_weight: Any,
        *,
        reset: bool,
        classes: Any = None,
    ) -> tuple[Material, int, Task]:
        """What there is to learn from, the outputs and the task."""
        not_negative("alpha", self.alpha)
        values, answers = validate_data(
            self,
            X,
            y,
            reset=reset,
            accept_sparse="csr",
            dtype=_precision(X),
            # Of one row nothing can be told apart; later parts of a stream may be that small.
            ensure_min_samples=2 if reset else 1,
            **self._reading(),
        )
        targets, outputs, task = self._targets(answers, classes)
        known = known_domains(sample_domain, values)
        names, domains = (None, None) if known is None else known
        weights = self._weights(values, targets, sample_weight, domains)
        device = self._device()
        source = RowSource(values, device=device)
        material = Material(source, targets.to(device), torch.from_numpy(weights).to(device), domains, names)
        if not weights.all():
            material = material.take(np.flatnonzero(weights))  # rows of no weight are not there
        self._remember_domains(names, material.domains, reset=reset)
        return material, outputs, task

    def _rows(self, X: Any) -> RowSource:  # noqa: N803
        """Rows like those of training, to be asked about."""
        check_is_fitted(self)
        values = validate_data(self, X, reset=False, accept_sparse="csr", dtype=_precision(X))
        return RowSource(values, device=self._device())

    def _remember_domains(self, names: NDArray[Any] | None, domains: NDArray[np.int64] | None, *, reset: bool) -> None:
        counts = {} if reset else dict(zip(self.domains_.tolist(), self.domain_counts_.tolist(), strict=True))
        if names is not None and domains is not None:
            for place, count in zip(*np.unique(domains, return_counts=True), strict=True):
                name = names[place].item()
                counts[name] = counts.get(name, 0) + int(count)
        self.domains_ = np.array(list(counts))
        self.domain_counts_ = np.array(list(counts.values()), np.int64)

    # -- fitting and asking --------------------------------------------------------------------------------------------

    def _network_for(self, material: Material, outputs: int, task: Task, *, seed: int, double: bool) -> Network:
        source, device = material.source, material.source.device
        before, after = Scaling(self.n_features_in_).to(device), Scaling(outputs).to(device)
        if flag("standardize", self.standardize):
            before.fit(source, material.weights)
        if isinstance(task, Regression):
            after.fit(RowSource(material.targets.cpu().numpy(), device=device), material.weights)
        # Weights are drawn on the CPU: a GPU's generator is not asked, and has nothing to be put back.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return self._build(
                before,
                after,
                task,
                look=lambda: source.look(before, seed=seed),
                dtype=torch.float64 if double else torch.float32,
                seed=seed,
            ).to(device)

    def _settle(self, network: Network) -> None:
        """Keep what was trained; on the CPU, so that a machine without a GPU can open what is pickled here."""
        self.network_ = network.cpu().eval()

    @torch.no_grad()
    def _asked(
        self, source: RowSource, ask: Callable[[Tensor], Mapping[str, Tensor | None]], at_once: int | None = None
    ) -> dict[str, NDArray[Any]]:
        """What is found of all rows, some at a time, in order; by the names of what is there."""
        found: dict[str, NDArray[Any]] = {}
        self.network_.to(source.device)
        try:
            with threads_for(step_flops(self.network_, min(at_once or source.at_once, len(source)))):
                for part, x in source.parts(at_once):
                    for name, value in ask(x).items():
                        if value is None:
                            continue
                        if name not in found:  # all of it at once: thousands of small pieces would scatter memory
                            found[name] = np.empty((len(source), *value.shape[1:]), _numpy_type(value))
                        found[name][part] = value.cpu().numpy()
                return found
        finally:
            self.network_.cpu()

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _device(self) -> torch.device:
        there = torch.cuda.is_available()
        if self.device == "auto":
            return torch.device("cuda" if there else "cpu")
        if self.device not in DEVICES:
            raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {self.device!r}")
        if self.device == "cuda" and not there:
            raise ValueError("device='cuda', and there is no GPU that torch can use here; take 'auto' or 'cpu'")
        return torch.device(self.device)


def keep(estimator: BaseEstimator, given: Mapping[str, Any]) -> None:
    """Keep the arguments of a constructor as they were given, which is all that scikit-learn lets it do."""
    for name, value in given.items():
        if name not in ("self", "__class__"):
            setattr(estimator, name, value)


@contextmanager
def _or_as_before(estimator: BaseEstimator) -> Iterator[None]:
    """What is done inside is done, or after an error the estimator is what it was."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def _precision(X: Any) -> Any:  # noqa: N803
    """Floats keep their width; half floats get 32 bits, and all else 64, which hold every usual integer."""
    return np.float32 if getattr(X, "dtype", None) == np.float16 else (np.float64, np.float32)


def _numpy_type(value: Tensor) -> Any:
    return np.float64 if value.dtype == torch.float64 else np.float32
