"""``mean_n k(x_i, v_jn)`` without ever holding the (rows, M N) kernel values, for radial kernels on a GPU.

Forward, a tile of distances becomes kernel values and then sums over each basis before anything is written. Backward,
the distances are computed again, some columns at a time: with ``W = G k'(d^2) / N`` (k' the derivative by d^2),

    dL/dx = 2 (rowsum(W) x - W v)        dL/dv = 2 (colsum(W) v - W' x)

``wins`` says when this path is taken; ``products.mean_kernel`` asks it. Everything else, and second derivatives, take
the plain path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gated_domains.layer.fused_reference import TorchTiles
from gated_domains.layer.fused_steps import gradients, mean_values, precision
from gated_domains.layer.kernels import (
    Gaussian,
    InverseMultiquadric,
    KernelLike,
    Laplacian,
    Matern32,
    Matern52,
    RadialKernel,
    RationalQuadratic,
)
from gated_domains.layer.transforms import exporting, inside_transform

# The position is the number by which the Triton kernels know a kind.
KINDS: tuple[type[RadialKernel], ...] = (
    Gaussian, Laplacian, RationalQuadratic, Matern32, Matern52, InverseMultiquadric,
)  # fmt: skip

# Multiplications rows x M x N x features from which the fused path is taken. Measured on an H200 (benchmarks/fused.py):
# at 2^26.6 it loses, 2.9 ms of launches against 1.1 to 2.0 ms; at 2^35.3 it wins, 8.5 ms against 12.2 to 13.8 ms. In
# between, the plain path's time, which grows with the work, reaches those 2.9 ms at about 2^33.
WINS_FROM = 2**33

_TRITON = find_spec("triton") is not None
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_FLAG_TELLS_EXPORT = torch.__version__ >= "2.8"

Mode = Literal["auto", "on", "off"]


class _Switch:
    mode: Mode = "auto"


def _first_mode() -> Mode:
    told = os.environ.get("GATED_DOMAINS_FUSED", "auto")
    if told not in ("auto", "on", "off"):
        raise ValueError(f"GATED_DOMAINS_FUSED must be auto, on or off, got {told!r}")
    return told  # type: ignore[return-value]


_Switch.mode = _first_mode()


@contextmanager
def fused_path(mode: Mode) -> Iterator[None]:
    """The fused path always ("on", wherever it can run), never ("off"), or where it wins ("auto").

    "on" also takes CPU tensors, of any precision, through the same steps in plain torch: the reference of the tests.
    """
    before, _Switch.mode = _Switch.mode, mode
    try:
        yield
    finally:
        _Switch.mode = before


def wins(kernel: KernelLike, x: Float[Tensor, "rows features"], bases: Float[Tensor, "bases size features"]) -> bool:
    """Whether ``mean_kernel`` of these goes the fused way."""
    if _Switch.mode == "off" or _exporting() or inside_transform():
        return False
    if not isinstance(kernel, RadialKernel) or type(kernel) not in KINDS:  # a subclass may mean something else
        return False
    if not (x.device == bases.device == kernel.sigma.device):
        return False
    if any(scalar.requires_grad for scalar in _scalars(kernel)):  # the operators have no gradient for these
        return False
    if 0 in x.shape or 0 in bases.shape:
        return False
    if _Switch.mode == "on" and x.device.type == "cpu":
        return True
    if not (x.is_cuda and _TRITON and x.dtype in _DTYPES and bases.dtype in _DTYPES):
        return False
    return _Switch.mode == "on" or _pays(x, bases)


def _pays(x: Tensor, bases: Tensor) -> bool:
    """Whether the fused path is the faster one, of tensors that it can take."""
    if _both_float32(x, bases) and _tf32_allowed():  # measured: 4.9 ms, against 2.6 ms of the plain path compiled
        return False
    return x.shape[0] * bases.numel() >= WINS_FROM


def _exporting() -> bool:
    # Not is_exporting(): older compilers answer it with True in whatever they trace (pytorch issue 176347, not in
    # torch 2.13). The flag behind it tells export from compiling, and since torch 2.8 all kinds of export set it.
    return torch.compiler._is_exporting_flag if _FLAG_TELLS_EXPORT else exporting()


def fused_mean_kernel(
    kernel: RadialKernel, x: Float[Tensor, "rows features"], bases: Float[Tensor, "bases size features"]
) -> Float[Tensor, "rows bases"]:
    """``mean_n k(x_i, v_jn)`` as one operator, which compiled graphs keep whole."""
    return torch.ops.gated_domains.mean_kernel(x, bases, *_scalars(kernel), KINDS.index(type(kernel)))


def fused_gram(kernel: RadialKernel, bases: Float[Tensor, "bases size features"]) -> Float[Tensor, "bases bases"]:
    """``mean_nm k(v_jn, v_lm)``, likewise; by symmetry its backward pass takes one product less."""
    return torch.ops.gated_domains.mean_gram(bases, *_scalars(kernel), KINDS.index(type(kernel)))


def _scalars(kernel: RadialKernel) -> tuple[Tensor, Tensor]:
    return kernel.sigma, kernel.alpha if isinstance(kernel, RationalQuadratic) else kernel.sigma


def _tiles(x: Tensor, bases: Tensor) -> Any:
    if not x.is_cuda:
        return TorchTiles()
    from gated_domains.layer.fused_tiles import TritonTiles  # here, because triton is there on GPU machines only

    return TritonTiles(3 if _both_float32(x, bases) and not _tf32_allowed() else 2)


def _both_float32(x: Tensor, bases: Tensor) -> bool:
    return x.dtype == bases.dtype == torch.float32


def _tf32_allowed() -> bool:
    try:
        return torch.backends.cuda.matmul.allow_tf32
    except RuntimeError:  # set through the newer of torch's two ways, which the older refuses to read
        return torch.backends.cuda.matmul.fp32_precision == "tf32"


# What torch.compiler.assume_constant_result does, which would import the compiler: it cannot trace the newer way, and
# looks after a change of either by itself.
_tf32_allowed._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _kernel(kind: int, sigma: Tensor, alpha: Tensor) -> RadialKernel:
    made = KINDS[kind]()
    made.sigma = sigma
    if isinstance(made, RationalQuadratic):
        made.alpha = alpha
    return made


def _plain(kernel: RadialKernel, x: Tensor, bases: Tensor) -> Tensor:
    return kernel(x, bases.flatten(0, 1)).reshape(-1, *bases.shape[:2]).mean(-1)


def _cross(x: Tensor, bases: Tensor, sigma: Tensor, alpha: Tensor, kind: int) -> Tensor:
    with torch.cuda.device_of(x):  # Triton launches on the current device, wherever its tensors are
        return mean_values(_tiles(x, bases), x, bases, sigma, alpha, kind=kind)


def _cross_shape(x: Tensor, bases: Tensor, sigma: Tensor, alpha: Tensor, kind: int) -> Tensor:
    return x.new_empty(x.shape[0], bases.shape[0], dtype=precision(x, bases))


def _cross_gradients(
    gradient: Tensor, x: Tensor, bases: Tensor, sigma: Tensor, alpha: Tensor, kind: int, to_x: bool, to_bases: bool
) -> tuple[Tensor, Tensor]:
    tiles = _tiles(x, bases)
    with torch.cuda.device_of(x):
        return gradients(tiles, gradient, x, bases, sigma, alpha, kind=kind, to_x=to_x, to_bases=to_bases)


def _cross_gradients_shape(
    gradient: Tensor, x: Tensor, bases: Tensor, sigma: Tensor, alpha: Tensor, kind: int, to_x: bool, to_bases: bool
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape if to_x else (0,)), bases.new_empty(bases.shape if to_bases else (0,))


def _gram(bases: Tensor, sigma: Tensor, alpha: Tensor, kind: int) -> Tensor:
    return _cross(bases.flatten(0, 1), bases, sigma, alpha, kind).reshape(*bases.shape[:2], -1).mean(1)


def _gram_shape(bases: Tensor, sigma: Tensor, alpha: Tensor, kind: int) -> Tensor:
    return bases.new_empty(bases.shape[0], bases.shape[0], dtype=precision(bases, bases))


def _gram_gradient(gradient: Tensor, bases: Tensor, sigma: Tensor, alpha: Tensor, kind: int) -> Tensor:
    # Every pair of vectors counts twice, once from either side: as rows alone, with both sides' weights.
    size, vectors = bases.shape[1], bases.flatten(0, 1)
    of_rows = ((gradient + gradient.mT) / size).unsqueeze(1).expand(-1, size, -1).flatten(0, 1)
    found, _ = _cross_gradients(of_rows, vectors, bases, sigma, alpha, kind, True, False)
    return found.reshape(bases.shape)


def _gram_gradient_shape(gradient: Tensor, bases: Tensor, sigma: Tensor, alpha: Tensor, kind: int) -> Tensor:
    return bases.new_empty(bases.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.kind = inputs
    ctx.save_for_backward(*tensors)


def _cross_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, bases, sigma, alpha = ctx.saved_tensors
    to_x, to_bases = ctx.needs_input_grad[:2]
    if torch.is_grad_enabled():  # the gradients are to be differentiated again
        wanted = [given for given, asked in ((x, to_x), (bases, to_bases)) if asked]
        cross = _plain(_kernel(ctx.kind, sigma, alpha), x, bases)
        found = iter(torch.autograd.grad(cross, wanted, gradient, create_graph=True))
        return next(found) if to_x else None, next(found) if to_bases else None, None, None, None
    for_x, for_bases = torch.ops.gated_domains.mean_kernel_gradients(
        gradient, x, bases, sigma, alpha, ctx.kind, to_x, to_bases
    )
    return for_x if to_x else None, for_bases if to_bases else None, None, None, None


def _gram_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    bases, sigma, alpha = ctx.saved_tensors
    if torch.is_grad_enabled():
        cross = _plain(_kernel(ctx.kind, sigma, alpha), bases.flatten(0, 1), bases)
        gram = cross.reshape(*bases.shape[:2], -1).mean(1)
        return torch.autograd.grad(gram, bases, gradient, create_graph=True)[0], None, None, None
    found = torch.ops.gated_domains.mean_gram_gradient(gradient, bases, sigma, alpha, ctx.kind)
    return found, None, None, None


# With schemas written out: torch cannot read annotations through a run-time type checker.
_SCALARS = "Tensor sigma, Tensor alpha, int kind"
for _name, _schema, _run, _shape in (
    ("mean_kernel", f"(Tensor x, Tensor bases, {_SCALARS}) -> Tensor", _cross, _cross_shape),
    (
        "mean_kernel_gradients",
        f"(Tensor gradient, Tensor x, Tensor bases, {_SCALARS}, bool to_x, bool to_bases) -> (Tensor, Tensor)",
        _cross_gradients,
        _cross_gradients_shape,
    ),
    ("mean_gram", f"(Tensor bases, {_SCALARS}) -> Tensor", _gram, _gram_shape),
    (
        "mean_gram_gradient",
        f"(Tensor gradient, Tensor bases, {_SCALARS}) -> Tensor",
        _gram_gradient,
        _gram_gradient_shape,
    ),
):
    torch.library.define(f"gated_domains::{_name}", _schema)
    for _device in ("CPU", "CUDA"):
        torch.library.impl(f"gated_domains::{_name}", _device, _run)
    torch.library.register_fake(f"gated_domains::{_name}", _shape)
torch.library.register_autograd("gated_domains::mean_kernel", _cross_backward, setup_context=_remember)
torch.library.register_autograd("gated_domains::mean_gram", _gram_backward, setup_context=_remember)
