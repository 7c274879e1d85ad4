"""What every test shares: shapes checked at run time, one seed a test, a quiet hypothesis."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec

import hypothesis
import jaxtyping
import pytest
import torch
from torch import nn

# Keras reads the signatures of its layers, which the checks would hide; and its shapes are not all known.
_UNCHECKED = ("keras_layer",)
jaxtyping.install_import_hook(
    [
        f"gated_domains.{module.name}"
        for module in pkgutil.iter_modules(find_spec("gated_domains").submodule_search_locations)
        if module.name not in _UNCHECKED
    ],
    "beartype.beartype",
)

hypothesis.settings.register_profile("gated_domains", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("gated_domains")


def pytest_configure(config: pytest.Config) -> None:
    from gated_domains.torchvision_operators import let_torchvision_import  # after the hook is installed

    let_torchvision_import()
    torch.set_num_threads(1)  # small matrices: threads only get in each other's way
    # Here and not in pyproject.toml: pytest would import the package to find the class before the hook is installed.
    config.addinivalue_line("filterwarnings", "error::gated_domains.layer.GateWarning")


@pytest.fixture(autouse=True, scope="session")
def a_cache_of_our_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is read from or written to the cache of whoever runs the tests; what is made is made once for all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GATED_DOMAINS_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("GATED_DOMAINS_DATA", raising=False)
        yield


@pytest.fixture(autouse=True)
def one_seed_a_test() -> None:
    torch.manual_seed(0)


@pytest.fixture
def without_shape_checks() -> Iterator[None]:
    """As users run: no shape checks, so that our own error messages answer for bad input."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def every_kernel() -> dict[str, Callable[[], object]]:
    """Name -> maker, for every registered kernel, the composed ones, and a plain function."""
    from gated_domains.layer.kernels import KERNELS, Average, Gaussian, Scaled

    return {
        **{name: partial(kind, 2.0) for name, kind in KERNELS.items()},
        "average": lambda: Average([Gaussian(1.0), KERNELS["matern32"](3.0)]),
        "scaled": lambda: Scaled(Gaussian(2.0), 1.5),
        "plain_function": lambda: lambda x, z: (0.1 * (x @ z.mT) + 1) ** 2,
    }


def every_gate() -> dict[str, Callable[[], object]]:
    """Name -> maker, for every registered gate and the exact projections."""
    from gated_domains.layer.gates import GATES, ProjectionGate

    return {**GATES, "exact": partial(ProjectionGate, 0.0), "exact_ridge": partial(ProjectionGate, 1e-3)}


def every_experts() -> dict[str, Callable[[int, int, int], nn.Module]]:
    """Name -> factory, for every kind of experts."""
    from gated_domains.layer.experts import LinearExperts, MLPExperts, StackedExperts

    def network(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(inputs, 5), nn.Tanh(), nn.Linear(5, outputs))

    return {
        "linear": LinearExperts,
        "linear_no_bias": partial(LinearExperts, bias=False),
        "linear_tanh": partial(LinearExperts, activation=torch.tanh),
        "mlp": partial(MLPExperts, hidden=6),
        "mlp_no_bias": partial(MLPExperts, hidden=6, activation=torch.tanh, bias=False),
        "stacked": partial(StackedExperts, factory=network),
        "stacked_linear": partial(StackedExperts, factory=nn.Linear),
    }


def every_task() -> dict[str, Callable[[], object]]:
    """Name -> maker, for every registered task."""
    from gated_domains.layer.experts import TASKS

    return dict(TASKS)


def every_head() -> dict[str, Callable[..., nn.Module]]:
    """Name -> builder of a small head, in which one part at a time differs from a plain one, and shared or not."""
    from gated_domains.layer import GatedDomainUnits

    def builder(part: str, make: Callable[[], object], **fixed: object) -> Callable[..., nn.Module]:
        def build(**settings: object) -> nn.Module:
            torch.manual_seed(1)
            base = {"num_bases": 3, "basis_size": 2, "lambda_ols": 0.1, part: make(), **fixed}
            outputs = 1 if base.get("task") is not None and type(base["task"]).__name__ == "Binary" else 2
            return GatedDomainUnits(4, outputs, **{**base, **settings})

        return build

    modes = {"plain": {"shared": False}, "shared": {"coverage": False}, "covered": {}}
    heads = {f"{name}_kernel": builder("kernel", make, shared=False) for name, make in every_kernel().items()}
    for mode, fixed in modes.items():
        heads |= {f"{name}_gate-{mode}": builder("gate", make, **fixed) for name, make in every_gate().items()}
        if mode == "shared":  # nothing but the gates bears on it
            continue
        heads |= {f"{name}-{mode}": builder("task", make, **fixed) for name, make in every_task().items()}
        for name, factory in every_experts().items():
            heads[f"{name}_experts-{mode}"] = builder("experts", partial(lambda factory: factory, factory), **fixed)
    return heads


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with an argument of one of these names runs over all of its kind."""
    sources = {
        "make_kernel": every_kernel,
        "make_gate": every_gate,
        "make_experts": every_experts,
        "make_task": every_task,
        "build_head": every_head,
    }
    for name, source in sources.items():
        if name in metafunc.fixturenames:
            cases = source()
            metafunc.parametrize(name, list(cases.values()), ids=list(cases))
