"""Kernels: k(x, z) for all pairs of rows of x and z.

Any callable with that signature serves as a kernel; those here are stable far from the origin, compute distances in
float32 or better whatever the input's precision, and give exactly k(x, x) for identical rows.

Also here: what keeps full precision under autocast and half precision, for distances, small products and for scalar
buffers such as sigma.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gated_domains.common.validation import known_name, positive

KernelLike = Callable[[Tensor, Tensor], Tensor]


def at_least_float32(x: Tensor) -> Tensor:
    """The tensor itself, or in float32 if it came in half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def autocast_off(like: Tensor) -> AbstractContextManager[object]:
    """No autocast on this tensor's kind of device; entered only where one is on, which keeps exported graphs clean."""
    if like.device.type != "meta" and torch.is_autocast_enabled(like.device.type):
        return torch.autocast(like.device.type, enabled=False)
    return nullcontext()


class Scalars(nn.Module):
    """A module whose scalar buffers follow the device but keep their float64 precision.

    A width of 0.7 stays 0.7 for float64 features and under ``.half()``: a scalar never decides the type of a result.
    """

    def add_scalar(self, name: str, value: float | Tensor) -> None:
        self.register_buffer(name, torch.tensor(float(value), dtype=torch.float64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Scalars:
        exact = {name: value for name, value in self._buffers.items() if value is not None and value.dim() == 0}
        for name in exact:
            del self._buffers[name]
        try:
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        finally:
            self._buffers.update(exact)
        self._buffers.update({name: _moved(value, fn) for name, value in exact.items()})
        return self


def shown(value: Tensor) -> str:
    """A scalar as a person reads it."""
    return "?" if value.is_meta else f"{value.item():.4g}"


def _moved(value: Tensor, fn: Callable[[Tensor], Tensor]) -> Tensor:
    try:
        moved = fn(value)
    except TypeError:  # a device that knows no float64
        return fn(value.float())
    return moved if moved.dtype == value.dtype else value.to(moved.device)


def squared_distances(
    x: Float[Tensor, "*lead rows features"], z: Float[Tensor, "*lead others features"]
) -> Float[Tensor, "*lead rows others"]:
    """``||x_i - z_j||^2``, by centring on the mean of z and then expanding the square."""
    x, z = at_least_float32(x), at_least_float32(z)
    with autocast_off(x):
        # Not torch.cdist: it loses all precision far from the origin and breaks export with a dynamic batch.
        centre = z.detach().mean(dim=-2, keepdim=True)
        return _ExpandedSquare.apply(x - centre, z - centre)  # type: ignore[no-untyped-call]


class _ExpandedSquare(torch.autograd.Function):
    """``||x_i||^2 + ||z_j||^2 - 2 <x_i, z_j>``, with rounding noise set to 0 where two rows are the same.

    The gradients, ``2 (sum_j g_ij x_i - sum_j g_ij z_j)`` and its mirror image, are written out: autograd's own would
    pass over x five times instead of twice. They are made of differentiable steps, so second derivatives exist.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, z: Tensor) -> Tensor:
        norms = _square_norms(x).unsqueeze(-1) + _square_norms(z).unsqueeze(-2)
        squared = norms - 2 * (x @ z.mT)
        return squared.masked_fill(squared <= rounding(x) * norms, 0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, z = ctx.saved_tensors
        doubled = 2 * gradient
        with autocast_off(x):
            to_x = doubled.sum(-1, keepdim=True) * x - doubled @ z if ctx.needs_input_grad[0] else None
            to_z = doubled.sum(-2).unsqueeze(-1) * z - doubled.mT @ x if ctx.needs_input_grad[1] else None
        return to_x, to_z


def rounding(x: Tensor) -> float:
    """The share of the squared norms that rounding alone can leave of a distance of 0; grows as sqrt(features)."""
    return (8 + math.sqrt(x.shape[-1])) * torch.finfo(x.dtype).eps


def _square_norms(x: Tensor) -> Tensor:
    if torch.compiler.is_compiling():  # fused with its neighbours
        return x.square().sum(-1)
    return torch.linalg.vector_norm(x, dim=-1).square()  # one pass over x, where x * x would take two and a copy


class Kernel(Scalars):
    """What our own kernels share: a call for all pairs, the diagonal k(x, x), and a width that data can set."""

    def forward(
        self, x: Float[Tensor, "*lead rows features"], z: Float[Tensor, "*lead others features"]
    ) -> Float[Tensor, "*lead rows others"]:
        raise NotImplementedError

    def diagonal(self, x: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch"]:
        """``k(x_i, x_i)``."""
        return torch.ones(x.shape[:-1], dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)

    @property
    def has_width(self) -> bool:
        """Whether ``set_sigma`` has something to set."""
        return True

    def get_sigma(self) -> float:
        """The width now; for an average, the geometric mean of its members' widths."""
        raise NotImplementedError

    def set_sigma(self, sigma: float | Tensor) -> None:
        """Write a new width, in place."""
        raise NotImplementedError

    def __mul__(self, scale: float) -> Scaled:
        return Scaled(self, scale=scale)

    __rmul__ = __mul__


class RadialKernel(Kernel):
    """A function of the distance and one width, with k(x, x) = 1."""

    sigma: Tensor

    def __init__(self, sigma: float | Tensor = 1.0) -> None:
        super().__init__()
        self.add_scalar("sigma", positive("sigma", sigma))

    def forward(
        self, x: Float[Tensor, "*lead rows features"], z: Float[Tensor, "*lead others features"]
    ) -> Float[Tensor, "*lead rows others"]:
        return self.radial(squared_distances(x, z))

    def radial(self, squared: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """k as a function of the squared distance."""
        raise NotImplementedError

    def get_sigma(self) -> float:
        return float(self.sigma)

    def set_sigma(self, sigma: float | Tensor) -> None:
        self.sigma.fill_(positive("sigma", sigma))

    def width(self, like: Tensor) -> Tensor:
        """sigma in the precision of the distances."""
        return self.sigma.to(like.dtype)

    def extra_repr(self) -> str:
        return f"sigma={shown(self.sigma)}"


class Gaussian(RadialKernel):
    """``exp(-d^2 / (2 sigma^2))``."""

    def radial(self, squared: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return torch.exp(squared * (-0.5 / self.width(squared).square()))


class Laplacian(RadialKernel):
    """``exp(-d / sigma)``, with gradient 0 at d = 0."""

    def radial(self, squared: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        apart, distance = _safe_root(squared)
        return torch.where(apart, torch.exp(-distance / self.width(squared)), 1.0)


class RationalQuadratic(RadialKernel):
    """``(1 + d^2 / (2 alpha sigma^2))^-alpha``."""

    alpha: Tensor

    def __init__(self, sigma: float | Tensor = 1.0, alpha: float | Tensor = 1.0) -> None:
        super().__init__(sigma)
        self.add_scalar("alpha", positive("alpha", alpha))

    def radial(self, squared: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        alpha = self.alpha.to(squared.dtype)
        return torch.exp(-alpha * torch.log1p(squared / (2 * alpha * self.width(squared).square())))

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, alpha={shown(self.alpha)}"


class Matern32(RadialKernel):
    """``(1 + s) exp(-s)``, ``s = sqrt(3) d / sigma``."""

    def radial(self, squared: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        scaled = 3 * squared / self.width(squared).square()
        apart, s = _safe_root(scaled)
        # At d = 0 the series 1 - s^2 / 2 carries the first and second derivative that the root would turn into NaN.
        return torch.where(apart, (1 + s) * torch.exp(-s), 1 - scaled / 2)


class Matern52(RadialKernel):
    """``(1 + s + s^2 / 3) exp(-s)``, ``s = sqrt(5) d / sigma``."""

    def radial(self, squared: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        scaled = 5 * squared / self.width(squared).square()
        apart, s = _safe_root(scaled)
        return torch.where(apart, (1 + s + s.square() / 3) * torch.exp(-s), 1 - scaled / 6)


class InverseMultiquadric(RadialKernel):
    """``(1 + d^2 / sigma^2)^(-1/2)``."""

    def radial(self, squared: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return torch.rsqrt(1 + squared / self.width(squared).square())


class Average(Kernel):
    """The mean of several kernels; radial ones share one computation of the distances.

    >>> Average([Gaussian(s) for s in (0.5, 1.0, 2.0)])  # several widths
    """

    def __init__(self, kernels: Sequence[KernelLike]) -> None:
        super().__init__()
        if not kernels:
            raise ValueError("Average needs at least one kernel, got none")
        self.members = nn.ModuleList(as_kernel(kernel) for kernel in kernels)

    def forward(
        self, x: Float[Tensor, "*lead rows features"], z: Float[Tensor, "*lead others features"]
    ) -> Float[Tensor, "*lead rows others"]:
        radial = [member for member in self.members if isinstance(member, RadialKernel)]
        values = [member(x, z) for member in self.members if not isinstance(member, RadialKernel)]
        if radial:
            squared = squared_distances(x, z)
            values += [member.radial(squared) for member in radial]
        return torch.stack(values).mean(0)

    def diagonal(self, x: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch"]:
        return torch.stack([member.diagonal(x) for member in self._kernels()]).mean(0)

    @property
    def has_width(self) -> bool:
        return all(member.has_width for member in self._kernels())

    def get_sigma(self) -> float:
        return math.exp(sum(math.log(member.get_sigma()) for member in self._kernels()) / len(self.members))

    def set_sigma(self, sigma: float | Tensor) -> None:
        """Scale all widths alike, so that their geometric mean becomes sigma."""
        if not self.has_width:
            raise ValueError(f"not every member has a width to set: {self}")
        factor = positive("sigma", sigma) / self.get_sigma()
        for member in self._kernels():
            member.set_sigma(member.get_sigma() * factor)

    def _kernels(self) -> list[Kernel]:
        return [cast(Kernel, member) for member in self.members]


class Scaled(Kernel):
    """``scale * k(x, z)``."""

    scale: Tensor

    def __init__(self, kernel: KernelLike, scale: float | Tensor) -> None:
        super().__init__()
        self.kernel = as_kernel(kernel)
        self.add_scalar("scale", positive("scale", scale))

    def forward(
        self, x: Float[Tensor, "*lead rows features"], z: Float[Tensor, "*lead others features"]
    ) -> Float[Tensor, "*lead rows others"]:
        value = self.kernel(x, z)
        return value * self.scale.to(value.dtype)

    def diagonal(self, x: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch"]:
        value = self.kernel.diagonal(x)
        return value * self.scale.to(value.dtype)

    @property
    def has_width(self) -> bool:
        return self.kernel.has_width

    def get_sigma(self) -> float:
        return self.kernel.get_sigma()

    def set_sigma(self, sigma: float | Tensor) -> None:
        self.kernel.set_sigma(sigma)

    def extra_repr(self) -> str:
        return f"scale={shown(self.scale)}"


class PairFunction(Kernel):
    """Any callable of two sets of rows, dressed as a kernel."""

    def __init__(self, function: KernelLike) -> None:
        super().__init__()
        self.function = function

    def forward(
        self, x: Float[Tensor, "*lead rows features"], z: Float[Tensor, "*lead others features"]
    ) -> Float[Tensor, "*lead rows others"]:
        return self.function(x, z)

    def diagonal(self, x: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch"]:
        own = torch.vmap(lambda row: self.function(row[None], row[None])[0, 0])(x.reshape(-1, x.shape[-1]))
        return own.reshape(x.shape[:-1])

    @property
    def has_width(self) -> bool:
        return False

    def set_sigma(self, sigma: float | Tensor) -> None:
        raise ValueError(f"{self.function!r} has no width that data could set")


def as_kernel(kernel: KernelLike) -> Kernel:
    """One of our kernels as it is, any other callable dressed as one."""
    return kernel if isinstance(kernel, Kernel) else PairFunction(kernel)


def _safe_root(squared: Tensor) -> tuple[Tensor, Tensor]:
    """Where the rows differ, and the distance there (1 elsewhere, so that no gradient becomes infinite)."""
    apart = squared > 0
    return apart, torch.sqrt(torch.where(apart, squared, 1.0))


KERNELS: dict[str, type[RadialKernel]] = {
    "gaussian": Gaussian,
    "laplacian": Laplacian,
    "rational_quadratic": RationalQuadratic,
    "matern32": Matern32,
    "matern52": Matern52,
    "inverse_multiquadric": InverseMultiquadric,
}


def kernel_like(kernel: str | KernelLike, sigma: float) -> KernelLike:
    """The kernel of that name with this width, or the one given, which keeps its own."""
    if isinstance(kernel, str):
        return KERNELS[known_name("kernel", kernel, KERNELS)](sigma)
    if not callable(kernel) or isinstance(kernel, type):
        raise TypeError(f"kernel must be a kernel, its name or a callable k(x, z), got {kernel!r}; try Gaussian(sigma)")
    return kernel
