"""When the fused path is taken: by kernel, device, precision and size, and never while exporting or under vmap."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from gated_domains.training.population import Population

from fused_problems import problem
from gated_domains.layer import fused, products
from gated_domains.layer.fused import KINDS, fused_path, wins
from gated_domains.layer.kernels import KERNELS, Average, Gaussian, RationalQuadratic, Scaled
from gated_domains.layer.products import inner_products, mean_gram
from gated_domains.layer.transforms import inside_transform
from made_heads import heads
from small_trainings import weights


class FakeCuda:
    """What ``wins`` looks at, of a tensor on a GPU."""

    is_cuda, requires_grad = True, False

    def __init__(self, *shape, dtype=torch.float32, device="cuda:0"):
        self.shape, self.dtype, self.device = torch.Size(shape), dtype, torch.device(device)

    def numel(self):
        return self.shape.numel()


@pytest.fixture
def on_a_gpu(monkeypatch, without_shape_checks):
    monkeypatch.setattr(fused, "_TRITON", True)
    monkeypatch.setattr(fused, "_tf32_allowed", lambda: False)

    def ask(kernel=None, **changed):
        kernel = Gaussian(1.0) if kernel is None else kernel
        for module in kernel.modules() if isinstance(kernel, torch.nn.Module) else ():
            if "sigma" in module._buffers:
                module._buffers["sigma"] = FakeCuda(device=changed.get("kernel_on", "cuda:0"))
        x = FakeCuda(*changed.get("x", (4096, 2048)), dtype=changed.get("dtype", torch.float32))
        bases = FakeCuda(*changed.get("bases", (100, 50, 2048)), dtype=changed.get("bases_dtype", torch.float32))
        return wins(kernel, x, bases)

    return ask


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_large_products_of_radial_kernels_on_a_gpu_are_fused(on_a_gpu, kind, dtype):
    assert on_a_gpu(kind(1.0), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [419, 420])
def test_from_a_size_on_products_are_fused(on_a_gpu, rows, dtype):
    """2^33 multiplications are 419.4 rows of 2048 features to 10,000 vectors."""
    assert on_a_gpu(x=(rows, 2048), bases=(100, 100, 2048), dtype=dtype) == (rows == 420)


@pytest.mark.parametrize(
    ("dtype", "bases_dtype", "fused_then"),
    [
        (torch.float32, torch.float32, False),
        (torch.bfloat16, torch.bfloat16, True),
        (torch.float16, torch.float16, True),
        (torch.bfloat16, torch.float32, True),
    ],
    ids=["float32", "bfloat16", "float16", "bfloat16_to_float32_bases"],
)
def test_where_tf32_is_allowed_float32_is_left_to_the_plain_path(on_a_gpu, monkeypatch, dtype, bases_dtype, fused_then):
    assert on_a_gpu(dtype=dtype, bases_dtype=bases_dtype)
    monkeypatch.setattr(fused, "_tf32_allowed", lambda: True)
    assert on_a_gpu(dtype=dtype, bases_dtype=bases_dtype) == fused_then
    with fused_path("on"):
        assert on_a_gpu(dtype=dtype, bases_dtype=bases_dtype)


@pytest.fixture
def torchs_settings():
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("precision", "allowed"), [("highest", False), ("high", True)])
def test_tf32_is_read_from_torchs_settings(torchs_settings, precision, allowed):
    torch.set_float32_matmul_precision(precision)
    assert fused._tf32_allowed() == allowed


def test_every_registered_kernel_has_a_kind():
    assert set(KINDS) == set(KERNELS.values())


@pytest.mark.parametrize(
    "changed",
    [
        {"x": (512, 2048), "bases": (10, 10, 2048)},
        {"x": (0, 2048)},
        {"dtype": torch.float64},
        {"bases_dtype": torch.float64},
        {"kernel_on": "cpu"},
    ],
    ids=["small", "empty", "float64", "float64_bases", "kernel_elsewhere"],
)
def test_what_does_not_suit_the_fused_path_is_left_to_the_plain_one(on_a_gpu, changed):
    assert on_a_gpu()
    assert not on_a_gpu(**changed)


class Steeper(Gaussian):
    """A kernel of a user's, whose values only it knows."""

    def radial(self, squared):
        return torch.exp(-squared)


@pytest.mark.parametrize(
    "kernel",
    [Steeper(1.0), Average([Gaussian(1.0)]), Scaled(Gaussian(1.0), 2.0), lambda x, z: x @ z.mT],
    ids=["subclass", "average", "scaled", "function"],
)
def test_kernels_that_triton_does_not_know_are_left_to_the_plain_path(on_a_gpu, kernel):
    assert not on_a_gpu(kernel)


@pytest.mark.parametrize(("kind", "name"), [*((kind, "sigma") for kind in KINDS), (RationalQuadratic, "alpha")])
def test_a_scalar_that_is_learned_takes_the_plain_path_and_gets_its_gradient(kind, name):
    x, bases = problem((6, 3, 4, 5), dtype=torch.float64)
    kernel = kind(2.0).double()
    scalar = getattr(kernel, name)

    def loss():
        return inner_products(kernel, x, bases).cross.sum() + mean_gram(kernel, bases).square().sum()

    with fused_path("on"):
        assert wins(kernel, x, bases)
        scalar.requires_grad_()
        assert not wins(kernel, x, bases)
        (found,) = torch.autograd.grad(loss(), scalar)
    beside = []
    with torch.no_grad():
        for step in (1e-5, -2e-5):
            scalar.add_(step)
            beside.append(loss())
    assert float(found) == pytest.approx(float((beside[0] - beside[1]) / 2e-5), rel=1e-5)
    assert float(found) != 0


def test_nothing_is_fused_without_triton(on_a_gpu, monkeypatch):
    monkeypatch.setattr(fused, "_TRITON", False)
    assert not on_a_gpu()


def test_nothing_is_fused_while_exporting_or_inside_a_transform(on_a_gpu, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "_is_exporting_flag", True)
        assert not on_a_gpu()
    with monkeypatch.context() as patch:  # in older versions of torch
        patch.setattr(fused, "_FLAG_TELLS_EXPORT", False)
        patch.setattr(fused, "exporting", lambda: True)
        assert not on_a_gpu()
    seen = []
    torch.vmap(lambda row: (seen.append(on_a_gpu()), row)[1])(torch.zeros(2, 3))
    assert seen == [False]
    assert on_a_gpu()


def test_under_vmap_and_grad_the_plain_path_is_taken():
    members = torch.randn(3, 4, 5, 6)
    x, kernel = torch.randn(7, 6), Gaussian(2.0)

    def loss(bases):
        return inner_products(kernel, x, bases).cross.square().sum() + mean_gram(kernel, bases).square().sum()

    with fused_path("on"):
        assert wins(kernel, x, members[0])
        found = torch.vmap(torch.func.grad(loss))(members)
        alone = [torch.autograd.grad(loss(bases), bases)[0] for bases in members.clone().requires_grad_().unbind()]
    torch.testing.assert_close(found, torch.stack(alone))


@pytest.mark.parametrize("head", ["paper mmd", "recommended"])
def test_a_population_takes_the_plain_path(head, monkeypatch):
    asked, ended = [], []

    def watched(*given):
        answer = wins(*given)
        if inside_transform():
            asked.append(answer)
        return answer

    monkeypatch.setattr(products, "wins", watched)
    for mode in ("off", "on"):
        with fused_path(mode), heads(head, [{"epochs": 2}, {"epochs": 2}]) as members:
            Population(members).run()
            ended.append([weights(member.method) for member in members])
    assert asked
    assert not any(asked)
    torch.testing.assert_close(*ended)


def test_the_switch_decides_over_the_size_and_is_put_back(on_a_gpu):
    small = {"x": (2, 3), "bases": (1, 1, 3)}
    with fused_path("off"):
        assert not on_a_gpu()
    with fused_path("on"):
        assert on_a_gpu(**small)
        assert not on_a_gpu(dtype=torch.float64)
    assert on_a_gpu()
    assert not on_a_gpu(**small)


def test_a_cpu_takes_the_plain_path_of_its_own_accord(monkeypatch):
    monkeypatch.setattr(fused, "WINS_FROM", 0)
    monkeypatch.setattr(products, "fused_mean_kernel", None)
    x, bases = problem((6, 3, 4, 5), dtype=torch.float32)
    assert not wins(Gaussian(2.0), x, bases)
    assert inner_products(Gaussian(2.0), x, bases).cross.shape == (6, 3)


@pytest.mark.parametrize(
    "told", ["on", *(pytest.param(told, marks=pytest.mark.slow) for told in ("off", "auto", "sometimes"))]
)
def test_the_environment_sets_the_switch(told):
    code = "from gated_domains.layer import fused; print(fused._Switch.mode)"
    environment = {"GATED_DOMAINS_FUSED": told, "PYTHONPATH": ":".join(sys.path), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    if told == "sometimes":
        assert "GATED_DOMAINS_FUSED must be auto, on or off, got 'sometimes'" in done.stderr
    else:
        assert done.stdout.strip() == told


DECIDED = """
import torch
from gated_domains.layer import fused

large, small = torch.empty(4096, 2048), torch.empty(512, 2048)
bases, few = torch.empty(100, 50, 2048), torch.empty(10, 10, 2048)


@torch.compile(fullgraph=True, backend="eager")
def decided(x, bases):
    return x.new_ones(()) if fused._pays(x, bases) else x.new_zeros(())


def told():
    half = large.bfloat16()
    return [int(decided(*given)) for given in ((large, bases), (small, few), (half, bases))]


print(*told())
torch.backends.cuda.matmul.allow_tf32 = True
print(*told())
torch.backends.cuda.matmul.allow_tf32 = False
print(*told())
if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
    torch._dynamo.reset()
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    print(*told())
"""


@pytest.mark.slow
def test_the_decision_can_be_compiled_and_follows_a_change_of_tf32():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", DECIDED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    without, allowed = "1 0 1", "0 0 1"
    assert done.stdout.splitlines()[:3] == [without, allowed, without]
    assert done.stdout.splitlines()[3:] in ([], [allowed])
