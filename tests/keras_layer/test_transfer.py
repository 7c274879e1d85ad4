"""Layers that go from Keras to PyTorch and back: the same predictions, the same bits, or an error that says why not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("keras")
torch = pytest.importorskip("torch")

import keras  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from backends import on_every_backend  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import gated_domains.layer as in_torch  # noqa: E402
from gated_domains.keras_layer import (  # noqa: E402
    CosineGate,
    GatedDomainUnits,
    LinearExperts,
    MLPExperts,
    MMDGate,
    ProbabilisticRegression,
    ProjectionGate,
    StackedExperts,
    kernels,
)
from gated_domains.keras_layer import gates as keras_gates  # noqa: E402
from gated_domains.keras_layer import penalties as keras_penalties  # noqa: E402
from gated_domains.keras_layer.transfer import (  # noqa: E402
    ACTIVATIONS,
    copy_from_torch,
    copy_to_torch,
    from_torch,
    to_torch,
)
from gated_domains.layer import experts as torch_tasks  # noqa: E402
from gated_domains.layer import gates as torch_gates  # noqa: E402
from gated_domains.layer import kernels as torch_kernels  # noqa: E402
from gated_domains.layer import penalties as torch_penalties  # noqa: E402
from gated_domains.layer.experts import LinearExperts as TorchLinear  # noqa: E402
from gated_domains.layer.experts import MLPExperts as TorchMLP  # noqa: E402
from gated_domains.layer.experts import StackedExperts as TorchStacked  # noqa: E402
from test_without_torch import without_torch  # noqa: E402

ROWS, FEATURES, GATING = 12, 5, 4
TOLERANCES = {"float32": 1e-5, "float64": 1e-10, "float16": 1e-2, "bfloat16": 1e-1}

KERNELS: dict[str, Callable[[], Any]] = {
    **{name: partial(kind, 1.7) for name, kind in kernels.KERNELS.items()},
    "rational_quadratic": lambda: kernels.RationalQuadratic(1.7, alpha=0.6),
    "average": lambda: kernels.Average([kernels.Gaussian(0.9), kernels.Scaled(kernels.Matern52(2.1), 1.4)]),
    "scaled": lambda: kernels.Scaled(kernels.Average([kernels.Laplacian(1.3), kernels.Gaussian(0.7)]), 0.8),
}
GATES: dict[str, Callable[[], Any]] = {
    "cosine": lambda: CosineGate(5.3),
    "mmd": lambda: MMDGate(3.1),
    "projection": ProjectionGate,
    "exact": lambda: ProjectionGate(0.0),
    "exact_ridge": lambda: ProjectionGate(0.01),
}
EXPERTS: dict[str, Callable[[], Any]] = {
    "linear": LinearExperts,
    "linear_no_bias": lambda: LinearExperts(bias=False),
    "linear_relu": lambda: LinearExperts("relu"),
    "mlp": lambda: MLPExperts(hidden=6),
    "mlp_no_bias": lambda: MLPExperts(hidden=6, activation="silu", bias=False),
}
MODES = {"plain": {"shared": False}, "shared": {"coverage": False}, "covered": {"coverage": True}}
PENALTIES = {"lambda_ols": 0.3, "lambda_l1": 0.2, "lambda_entropy": 0.1, "lambda_orth": 0.4, "lambda_dev": 0.6}


@pytest.fixture(params=["float32", "float64"])
def precision(request: pytest.FixtureRequest) -> Iterator[str]:
    """JAX has float64 only where it is switched on."""
    if keras.backend.backend() != "jax":
        yield request.param
        return
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", request.param == "float64")
    yield request.param
    jax.config.update("jax_enable_x64", before)


def numbers(x: Any) -> np.ndarray[Any, Any]:
    found = x.detach().double().numpy() if isinstance(x, Tensor) else keras.ops.convert_to_numpy(x)
    return np.asarray(found).astype("float64")


def views(precision: str = "float32") -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    return tuple(rng.normal(size=(ROWS, width)).astype(precision) for width in (FEATURES, GATING))


def layer_of(precision: str = "float32", *, seed: int = 0, **settings: Any) -> GatedDomainUnits:
    """A Keras layer whose weights are all random, and none of them zero."""
    layer = GatedDomainUnits(
        3, **{"num_bases": 4, "basis_size": 3, "dtype": precision, "name": "units", **PENALTIES, **settings}
    )
    layer.build((None, FEATURES), (None, GATING))
    rng = np.random.default_rng(seed)
    for variable in layer.trainable_variables:
        variable.assign(rng.normal(size=variable.shape))
    layer.fit_coverage(rng.normal(size=(40, GATING)))
    return layer


def units_of(**settings: Any) -> in_torch.GatedDomainUnits:
    """A PyTorch layer whose weights are all random, and none of them zero."""
    size = {"num_bases": 4, "basis_size": 3, "gating_features": GATING}
    units = in_torch.GatedDomainUnits(FEATURES, 3, **{**size, **PENALTIES, **settings})
    for parameter in units.parameters():
        nn.init.normal_(parameter)
    return units.fit_coverage(torch.randn(40, units.gating_features))


def assert_agree(layer: GatedDomainUnits, units: in_torch.GatedDomainUnits, precision: str, **more: Any) -> None:
    """Everything that one evaluation finds, and the penalties, are the same on both sides."""
    features, gating = views("float64" if precision == "float64" else "float32")
    kind = getattr(torch, precision)
    ours = layer.evaluate(features, gating, **more)
    theirs = units.evaluate(torch.tensor(features).to(kind), torch.tensor(gating).to(kind), **more)
    for part in ("prediction", "beta", "variance", "coverage"):
        one, other = getattr(ours, part), getattr(theirs, part)
        assert (one is None) == (other is None), part
        if one is not None:
            assert_close(one, other, precision, part)
    one, other = layer.weighted_penalties(ours), units.weighted_penalties(theirs)
    assert set(one) == set(other)
    for name in one:
        assert_close(one[name], other[name], precision, name)


def assert_close(one: Any, other: Any, precision: str, what: str) -> None:
    """Equal but for rounding, measured by the largest number among them."""
    expected = numbers(other)
    within = TOLERANCES[precision] * max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(numbers(one), expected, rtol=0, atol=within, err_msg=what)


NAMED = [
    *({"gate": name} for name in torch_gates.GATES),
    *({"kernel": name} for name in torch_kernels.KERNELS),
    *(
        {"orthogonality": name, "orthogonality_target": target}
        for name in torch_penalties.ORTHOGONALITY
        for target in ("diagonal", "identity")
    ),
    {"task": "probabilistic_regression"},
]


def test_both_sides_know_the_same_names():
    assert list(kernels.KERNELS) == list(torch_kernels.KERNELS)
    assert list(keras_gates.GATES) == list(torch_gates.GATES)
    assert list(keras_penalties.ORTHOGONALITY) == list(torch_penalties.ORTHOGONALITY)


@pytest.mark.parametrize("settings", NAMED, ids=lambda settings: "-".join(settings.values()))
def test_a_name_means_the_same_on_both_sides(settings):
    layer, units = layer_of(**settings), units_of(**settings)
    assert layer.kernel.get_sigma() == pytest.approx(units.kernel.get_sigma())
    if settings.get("gate") != "projection":
        assert layer.gate.get_kappa() == pytest.approx(float(units.gate.kappa))
    copy_to_torch(layer, units)
    assert_agree(layer, units, "float32")


def assert_same_bits(one: Any, other: Any) -> None:
    """Two layers of the same side have the same weights, bit for bit."""
    if isinstance(one, nn.Module):
        ours, theirs = one.state_dict(), other.state_dict()
    else:
        ours, theirs = ({v.path.partition("/")[2]: v for v in layer.weights} for layer in (one, other))
    assert list(ours) == list(theirs)
    for name in ours:
        assert ours[name].dtype == theirs[name].dtype, name
        assert np.array_equal(numbers(ours[name]), numbers(theirs[name])), name


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_goes_over_and_back(kernel, precision):
    layer = layer_of(precision, kernel=KERNELS[kernel]())
    units = to_torch(layer)
    assert_agree(layer, units, precision)
    back = from_torch(units, name="units")
    assert_agree(back, units, precision)
    assert_same_bits(layer, back)


@pytest.mark.parametrize("mode", on_every_backend(["covered"], of=MODES))
@pytest.mark.parametrize("gate", GATES)
def test_every_gate_goes_over_and_back(gate, mode, precision):
    layer = layer_of(precision, gate=GATES[gate](), **MODES[mode])
    units = to_torch(layer)
    assert_agree(layer, units, precision)
    assert_same_bits(layer, from_torch(units, name="units"))


@pytest.mark.parametrize("mode", on_every_backend(["covered"], of=MODES))
@pytest.mark.parametrize("experts", EXPERTS)
def test_all_experts_go_over_and_back(experts, mode, precision):
    layer = layer_of(precision, experts=EXPERTS[experts](), **MODES[mode])
    units = to_torch(layer)
    assert_agree(layer, units, precision)
    assert_same_bits(layer, from_torch(units, name="units"))


def test_gates_of_a_whole_batch_agree_too(precision):
    layer = layer_of(precision)
    assert_agree(layer, to_torch(layer), precision, gates="batch")


@pytest.mark.parametrize("shared", [True, False])
def test_a_probabilistic_head_keeps_mean_variance_and_smallest_scale(shared, precision):
    layer = layer_of(precision, task=ProbabilisticRegression(0.07), shared=shared)
    units = to_torch(layer)
    assert isinstance(units.task, torch_tasks.ProbabilisticRegression)
    assert units.task.min_scale == 0.07
    assert_agree(layer, units, precision)
    assert from_torch(units).task.min_scale == 0.07


def test_bases_that_are_not_in_use_stay_out_of_use(precision):
    layer = layer_of(precision, num_bases=2, max_bases=4)
    units = to_torch(layer)
    assert (units.num_bases, units.max_bases, units.spare) == (2, 4, True)
    assert_agree(layer, units, precision)
    assert_same_bits(layer, from_torch(units, name="units"))


def test_a_number_of_bases_that_data_choose_is_still_theirs_to_choose():
    layer = layer_of(num_bases="auto", max_bases=6)
    units = to_torch(layer)
    assert units.auto
    assert from_torch(units).auto
    assert_agree(layer, units, "float32")


def test_a_basis_switched_off_in_pytorch_is_off_in_keras():
    units = units_of()
    units.active[1] = False
    layer = from_torch(units)
    assert layer.num_bases == 3
    assert_agree(layer, units, "float32")


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_half_precision_goes_over_bit_for_bit(half):
    layer = layer_of(half)
    units = to_torch(layer)
    assert units.bases.dtype == getattr(torch, half)
    assert_agree(layer, units, half)
    assert_same_bits(layer, from_torch(units, name="units"))


def test_a_layer_of_mixed_precision_goes_over_in_the_precision_of_its_weights():
    layer = layer_of("mixed_bfloat16")
    units = to_torch(layer)
    assert units.bases.dtype == torch.float32
    assert np.array_equal(numbers(layer.bases), numbers(units.bases))


def test_a_pytorch_layer_comes_back_as_it_was(precision):
    units = units_of(kernel=torch_kernels.Gaussian(1.25), gate=in_torch.MMDGate(4.5)).to(getattr(torch, precision))
    with torch.no_grad():  # numbers that float32 holds
        units.coverage.q50.fill_(0.25)
        units.coverage.q97.fill_(0.75)
    assert_same_bits(units, to_torch(from_torch(units)))


def test_a_width_that_float32_does_not_hold_is_whole_in_the_config_and_rounded_in_the_weights():
    layer = from_torch(units_of(kernel=torch_kernels.Gaussian(0.7)))
    assert layer.get_config()["kernel"]["config"] == {"sigma": 0.7}
    assert layer.kernel.get_sigma() == float(np.float32(0.7))


def test_a_float64_layer_keeps_float64_numbers(precision):
    if precision == "float32":
        pytest.skip("float32 rounds them")
    layer = from_torch(units_of(kernel=torch_kernels.Gaussian(0.7), gate=in_torch.CosineGate(0.1)).double())
    assert (layer.kernel.get_sigma(), layer.gate.get_kappa()) == (0.7, 0.1)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the others have float64 always")
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
def test_float64_on_a_jax_without_it_is_refused_with_the_switch():
    with pytest.raises(ValueError, match="jax_enable_x64"):
        from_torch(units_of().double())


def test_settings_of_training_go_over_too():
    layer = layer_of(orthogonality="soft_orthogonality", orthogonality_target="identity")
    units = to_torch(layer)
    assert {name: getattr(units, name) for name in PENALTIES} == PENALTIES
    assert units.orthogonality.func is torch_penalties.soft_orthogonality
    back = from_torch(units)
    assert {name: getattr(back, name) for name in PENALTIES} == PENALTIES
    assert (back.orthogonality, back.orthogonality_target) == ("soft_orthogonality", "identity")


@pytest.mark.parametrize("orthogonality", ["srip", "soft_orthogonality", "mutual_coherence"])
@pytest.mark.parametrize("target", ["diagonal", "identity"])
def test_every_orthogonality_penalty_agrees(orthogonality, target):
    layer = layer_of(orthogonality=orthogonality, orthogonality_target=target)
    assert_agree(layer, to_torch(layer), "float32")


@pytest.mark.one_backend
@pytest.mark.parametrize("gate", ["cosine", "mmd", "projection"])
@pytest.mark.parametrize("setting", ["digits", "wilds"])
def test_the_papers_layers_go_over_from_either_side(gate, setting):
    features, gating = views()
    layer = GatedDomainUnits.paper(3, gate=gate, setting=setting)
    layer(features, gating)
    assert_agree(layer, to_torch(layer), "float32")
    units = in_torch.GatedDomainUnits.paper(FEATURES, 3, gate=gate, setting=setting, gating_features=GATING)
    assert_agree(from_torch(units), units, "float32")


@pytest.mark.one_backend
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_of_the_table_is_the_same_function_on_both_sides(name):
    layer = layer_of(experts=LinearExperts(name), shared=False)
    units = to_torch(layer)
    assert_agree(layer, units, "float32")
    assert from_torch(units).kind_of_experts.activation is getattr(keras.activations, name)


FORMS = {
    "none": (None, "linear"),
    "identity": (nn.Identity(), "linear"),
    "torch.relu": (torch.relu, "relu"),
    "F.relu": (F.relu, "relu"),
    "Tensor.relu": (Tensor.relu, "relu"),
    "nn.ReLU": (nn.ReLU(), "relu"),
    "nn.ReLU in place": (nn.ReLU(inplace=True), "relu"),
    "torch.tanh": (torch.tanh, "tanh"),
    "F.tanh": (F.tanh, "tanh"),
    "nn.Tanh": (nn.Tanh(), "tanh"),
    "F.gelu": (F.gelu, "gelu"),
    "nn.GELU": (nn.GELU(), "gelu"),
    "nn.ELU": (nn.ELU(), "elu"),
    "F.silu": (F.silu, "silu"),
    "nn.SiLU": (nn.SiLU(), "silu"),
    "nn.Softplus": (nn.Softplus(), "softplus"),
}


@pytest.mark.one_backend
@pytest.mark.parametrize("form", FORMS)
def test_a_pytorch_activation_is_known_in_each_of_its_forms(form):
    activation, name = FORMS[form]
    units = units_of(experts=partial(TorchLinear, activation=activation), shared=False)
    layer = from_torch(units)
    assert layer.kind_of_experts.activation is getattr(keras.activations, name)
    assert_agree(layer, units, "float32")


UNKNOWN = {
    "a function": lambda x: x * 2,
    "another approximation": nn.GELU(approximate="tanh"),
    "another alpha": nn.ELU(alpha=0.5),
    "another slope": nn.LeakyReLU(0.3),
    "arguments of its own": partial(F.elu, alpha=0.5),
    "weights of its own": nn.PReLU(),
}


@pytest.mark.parametrize("form", UNKNOWN)
def test_an_activation_without_counterpart_is_refused_with_those_that_have_one(form):
    units = units_of(experts=partial(TorchMLP, activation=UNKNOWN[form], hidden=4))
    with pytest.raises(TypeError, match=r"the activation .* no counterpart .*relu, .*tanh"):
        from_torch(units)


def test_a_keras_activation_without_counterpart_is_refused_with_those_that_have_one():
    with pytest.raises(TypeError, match=r"the activation .*leaky_relu.* no counterpart .*relu, .*tanh"):
        to_torch(layer_of(experts=LinearExperts("leaky_relu")))


def test_an_activation_of_the_mixed_prediction_is_refused_with_the_cure():
    with pytest.raises(TypeError, match=r"activation='softmax' of the mixed prediction .*apply it to the prediction"):
        to_torch(layer_of(activation="softmax"))


@keras.saving.register_keras_serializable("test_transfer")
def product(x: Any, z: Any) -> Any:
    return keras.ops.matmul(x, keras.ops.transpose(z))


@pytest.mark.parametrize("kernel", [product, kernels.Average([kernels.Gaussian(), product])], ids=["alone", "inside"])
def test_a_function_as_kernel_is_refused_in_keras(kernel):
    with pytest.raises(TypeError, match=r"the kernel .*product.* no counterpart .*gaussian, .*Average, Scaled"):
        to_torch(layer_of(kernel=kernel))


def test_a_function_as_kernel_is_refused_in_pytorch():
    with pytest.raises(TypeError, match=r"the kernel .* no counterpart .*gaussian, .*Average, Scaled"):
        from_torch(units_of(kernel=lambda x, z: x @ z.mT))


class Doubled(CosineGate):
    """A gate of somebody's own."""


class Twice(in_torch.CosineGate):
    """A gate of somebody's own."""


def test_a_gate_of_somebodys_own_is_refused_on_either_side():
    with pytest.raises(TypeError, match=r"the gate Doubled.* no counterpart .*cosine, mmd, projection"):
        to_torch(layer_of(gate=Doubled(2.0)))
    with pytest.raises(TypeError, match=r"the gate Twice.* no counterpart .*cosine, mmd, projection"):
        from_torch(units_of(gate=Twice(2.0)))


def test_stacked_experts_are_refused_on_either_side():
    with pytest.raises(TypeError, match=r"the experts StackedExperts.* no counterpart .*LinearExperts, MLPExperts"):
        to_torch(layer_of(experts=StackedExperts(keras.layers.Dense(3))))
    with pytest.raises(TypeError, match=r"the experts StackedExperts.* no counterpart .*LinearExperts, MLPExperts"):
        from_torch(units_of(experts=partial(TorchStacked, factory=nn.Linear)))


def test_a_penalty_of_somebodys_own_is_refused_on_either_side():
    def nothing(out: Any) -> Any:
        return out.beta.sum() * 0

    with pytest.raises(TypeError, match=r"the orthogonality .*nothing.* no counterpart .*srip, soft_orthogonality"):
        to_torch(layer_of(orthogonality=nothing))
    with pytest.raises(TypeError, match=r"the orthogonality .*nothing.* no counterpart .*srip, soft_orthogonality"):
        from_torch(units_of(orthogonality=nothing))


@pytest.mark.parametrize("task", [torch_tasks.MultiClass(), torch_tasks.MultiLabel(), torch_tasks.Regression()])
def test_a_task_that_is_a_loss_alone_stays_behind(task):
    units = units_of(task=task)
    layer = from_torch(units)
    assert layer.task is None
    assert_agree(layer, units, "float32")


def test_a_task_with_more_numbers_an_output_is_refused():
    class Wider(torch_tasks.ProbabilisticRegression):
        pass

    with pytest.raises(TypeError, match=r"the task Wider\(\) has no counterpart .*ProbabilisticRegression"):
        from_torch(units_of(task=Wider()))


def test_weights_of_several_precisions_are_refused():
    units = units_of()
    units.experts.half()
    with pytest.raises(TypeError, match=r"one precision.*float16 and float32: .*\.float\(\)"):
        from_torch(units)


def test_a_layer_without_weights_is_refused():
    with pytest.raises(ValueError, match="units has no weights yet: call it on a batch"):
        to_torch(GatedDomainUnits(3, name="units"))


@pytest.mark.usefixtures("without_shape_checks")
def test_what_is_no_layer_of_ours_is_refused():
    with pytest.raises(TypeError, match=r"expected the Keras layer GatedDomainUnits, got <Dense"):
        to_torch(keras.layers.Dense(3))
    with pytest.raises(TypeError, match=r"expected the PyTorch layer GatedDomainUnits, got Linear\("):
        from_torch(nn.Linear(2, 3))


def test_weights_alone_go_into_a_layer_that_exists_and_leave_its_settings():
    layer, units = layer_of(), units_of(lambda_ols=0.9)
    parameters = list(units.parameters())
    copy_to_torch(layer, units)
    assert units.lambda_ols == 0.9
    assert all(one is other for one, other in zip(units.parameters(), parameters, strict=True))
    other = layer_of(seed=1)
    copy_from_torch(units, other)
    assert_same_bits(layer, other)
    units.lambda_ols = layer.lambda_ols
    assert_agree(layer, units, "float32")


def test_weights_are_copied_in_the_precision_of_who_receives_them():
    layer, units = layer_of(), units_of().double()
    copy_to_torch(layer, units)
    assert units.bases.dtype == torch.float64
    assert np.array_equal(numbers(units.bases), numbers(layer.bases))


OTHERWISE: dict[str, tuple[dict[str, Any], str]] = {
    "kernel": ({"kernel": torch_kernels.Laplacian()}, r"kernel is 'gaussian' in Keras and 'laplacian' in PyTorch"),
    "ridge": ({"gate": in_torch.ProjectionGate(0.1)}, r"gate is \('cosine', None\) .* \('projection', 0\.1\)"),
    "basis_size": ({"basis_size": 7}, "basis_size is 3 in Keras and 7 in PyTorch"),
    "bases": ({"max_bases": 9}, "max_bases is 4 in Keras and 9 in PyTorch"),
    "view": ({"gating_features": FEATURES}, "gating_features is 4 in Keras and 5 in PyTorch"),
    "bias": ({"experts": partial(TorchLinear, bias=False)}, r"experts is .*bias=True.* and .*bias=False"),
    "activation": ({"experts": partial(TorchLinear, activation=F.relu)}, r"experts is .*None.* and .*'relu'"),
    "shared": ({"shared": False}, "shared is True in Keras and False in PyTorch"),
    "coverage": ({"coverage": True}, "coverage is False in Keras and True in PyTorch"),
    "task": ({"task": torch_tasks.ProbabilisticRegression(0.5)}, r"min_scale is None in Keras and 0\.5 in PyTorch"),
}


@pytest.mark.parametrize("otherwise", OTHERWISE)
def test_layers_that_differ_are_named_and_nothing_is_written(otherwise):
    settings, said = OTHERWISE[otherwise]
    layer, units = layer_of(), units_of(**settings)
    ours = [numbers(variable) for variable in layer.weights]
    theirs = {name: value.clone() for name, value in units.state_dict().items()}
    with pytest.raises(ValueError, match=rf"nothing was copied, the layers differ: .*{said}"):
        copy_to_torch(layer, units)
    with pytest.raises(ValueError, match=rf"nothing was copied, the layers differ: .*{said}"):
        copy_from_torch(units, layer)
    assert all(np.array_equal(one, numbers(other)) for one, other in zip(ours, layer.weights, strict=True))
    assert all(torch.equal(theirs[name], value) for name, value in units.state_dict().items())


def test_bases_out_of_use_are_not_copied_into_a_layer_that_uses_all_of_its_own():
    layer, units = layer_of(), units_of()
    units.active[2] = False
    before = numbers(layer.bases)
    with pytest.raises(ValueError, match=r"3 of its 4 bases in use.* num_bases=3, max_bases=4"):
        copy_from_torch(units, layer)
    assert np.array_equal(before, numbers(layer.bases))


def test_what_goes_over_owns_its_weights():
    layer = layer_of()
    units = to_torch(layer)
    back = from_torch(units)
    with torch.no_grad():
        units.bases.zero_()
    assert np.abs(numbers(layer.bases)).min() > 0
    assert np.abs(numbers(back.bases)).min() > 0


def test_a_layer_from_pytorch_serves_in_a_model_that_is_saved_and_loaded(tmp_path):
    units = units_of(gating_features=FEATURES)
    model = keras.Sequential([keras.Input((FEATURES,)), from_torch(units, name="from_pytorch")])
    assert model.layers[-1].name == "from_pytorch"
    model.save(tmp_path / "model.keras")
    features, _ = views()
    expected = numbers(units(torch.tensor(features)))
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded.predict(features, verbose=0), expected, rtol=1e-5, atol=1e-5)


def test_who_lacks_torch_is_told_how_to_get_it(monkeypatch):
    layer = layer_of()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="pip install torch"):
        to_torch(layer)


@pytest.mark.one_backend
@pytest.mark.skipif(keras.backend.backend() == "torch", reason="this backend is torch")
def test_the_module_is_imported_without_torch():
    done = without_torch("import gated_domains.keras_layer.transfer")
    assert done.returncode == 0, done.stderr


def test_both_sides_have_the_same_defaults():
    ours, theirs = (signature(side.__init__).parameters for side in (GatedDomainUnits, in_torch.GatedDomainUnits))
    shared = (set(ours) & set(theirs)) - {"self", "kernel", "experts"}  # None stands for the same kernel and experts
    assert {name: ours[name].default for name in shared} == {name: theirs[name].default for name in shared}
    assert {"coverage", "lambda_dev", "num_bases", "shared"} <= shared
    papers = [
        signature(side.paper).parameters["num_bases"].default for side in (GatedDomainUnits, in_torch.GatedDomainUnits)
    ]
    assert papers == [10, 10]
