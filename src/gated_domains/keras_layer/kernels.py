"""Kernels: k(x, z) for all pairs of rows of x and z.

Any callable with that signature serves as a kernel; those here are stable far from the origin, compute distances in
float32 or better whatever the input's precision, and give exactly k(x, x) for identical rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from gated_domains.common.validation import positive
from gated_domains.keras_layer.arrays import (
    Array,
    Scalars,
    at_least_float32,
    float_info,
    full_precision,
    keras,
    mean_of,
    ops,
    registered,
)

KernelLike = Callable[[Array, Array], Array]


def squared_distances(
    x: Annotated[Array, "rows features"], z: Annotated[Array, "others features"]
) -> Annotated[Array, "rows others"]:
    """``||x_i - z_j||^2``, by centring on the mean of z and then expanding the square."""
    x, z = at_least_float32(x), at_least_float32(z)
    centre = ops.stop_gradient(mean_of(z, axis=0, keepdims=True))
    x, z = x - centre, z - centre
    norms = ops.sum(ops.square(x), axis=1)[:, None] + ops.sum(ops.square(z), axis=1)[None, :]
    with full_precision():
        # Not ops.matmul, here as elsewhere: on PyTorch it multiplies float64 matrices in float32.
        squared = norms - 2 * (x @ ops.transpose(z))
    # What rounding alone can leave of a distance of 0; it grows as sqrt(features).
    rounding = (8 + math.sqrt(x.shape[-1])) * float(float_info(x).eps)
    return ops.where(squared <= ops.stop_gradient(rounding * norms), ops.zeros_like(squared), squared)


class Kernel(Scalars):
    """What our own kernels share: a call for all pairs, the diagonal k(x, x), and a width that data can set."""

    def __call__(
        self, x: Annotated[Array, "rows features"], z: Annotated[Array, "others features"]
    ) -> Annotated[Array, "rows others"]:
        raise NotImplementedError

    def diagonal(self, x: Annotated[Array, "rows features"]) -> Annotated[Array, "rows"]:
        """``k(x_i, x_i)``."""
        return ops.ones_like(at_least_float32(x)[:, 0])

    @property
    def has_width(self) -> bool:
        """Whether ``set_sigma`` has something to set."""
        return True

    def get_sigma(self) -> float:
        """The width now; for an average, the geometric mean of its members' widths."""
        return self.get("sigma")

    def set_sigma(self, sigma: float) -> None:
        """Write a new width, in place."""
        self.set_positive("sigma", sigma)


class RadialKernel(Kernel):
    """A function of the distance and one width, with k(x, x) = 1."""

    def __init__(self, sigma: float = 1.0, **others: float) -> None:
        super().__init__(sigma=positive("sigma", sigma), **others)

    def __call__(
        self, x: Annotated[Array, "rows features"], z: Annotated[Array, "others features"]
    ) -> Annotated[Array, "rows others"]:
        return self.radial(squared_distances(x, z))

    def radial(self, squared: Annotated[Array, "*shape"]) -> Annotated[Array, "*shape"]:
        """k as a function of the squared distance."""
        raise NotImplementedError

    def scaled(self, squared: Annotated[Array, "*shape"]) -> Annotated[Array, "*shape"]:
        """``d^2 / sigma^2``."""
        sigma = self.scalar("sigma", squared)
        return squared / (sigma * sigma)


@registered
class Gaussian(RadialKernel):
    """``exp(-d^2 / (2 sigma^2))``."""

    def radial(self, squared: Annotated[Array, "*shape"]) -> Annotated[Array, "*shape"]:
        return ops.exp(-0.5 * self.scaled(squared))


@registered
class Laplacian(RadialKernel):
    """``exp(-d / sigma)``, with gradient 0 at d = 0."""

    def radial(self, squared: Annotated[Array, "*shape"]) -> Annotated[Array, "*shape"]:
        apart, s = _safe_root(self.scaled(squared))
        return ops.where(apart, ops.exp(-s), ops.ones_like(s))


@registered
class RationalQuadratic(RadialKernel):
    """``(1 + d^2 / (2 alpha sigma^2))^-alpha``."""

    def __init__(self, sigma: float = 1.0, alpha: float = 1.0) -> None:
        super().__init__(sigma, alpha=positive("alpha", alpha))

    def radial(self, squared: Annotated[Array, "*shape"]) -> Annotated[Array, "*shape"]:
        alpha = self.scalar("alpha", squared)
        return ops.exp(-alpha * ops.log1p(self.scaled(squared) / (2 * alpha)))


@registered
class Matern32(RadialKernel):
    """``(1 + s) exp(-s)``, ``s = sqrt(3) d / sigma``."""

    def radial(self, squared: Annotated[Array, "*shape"]) -> Annotated[Array, "*shape"]:
        scaled = 3 * self.scaled(squared)
        apart, s = _safe_root(scaled)
        # At d = 0 the series 1 - s^2 / 2 carries the first and second derivative that the root would turn into NaN.
        return ops.where(apart, (1 + s) * ops.exp(-s), 1 - scaled / 2)


@registered
class Matern52(RadialKernel):
    """``(1 + s + s^2 / 3) exp(-s)``, ``s = sqrt(5) d / sigma``."""

    def radial(self, squared: Annotated[Array, "*shape"]) -> Annotated[Array, "*shape"]:
        scaled = 5 * self.scaled(squared)
        apart, s = _safe_root(scaled)
        return ops.where(apart, (1 + s + ops.square(s) / 3) * ops.exp(-s), 1 - scaled / 6)


@registered
class InverseMultiquadric(RadialKernel):
    """``(1 + d^2 / sigma^2)^(-1/2)``."""

    def radial(self, squared: Annotated[Array, "*shape"]) -> Annotated[Array, "*shape"]:
        return ops.rsqrt(1 + self.scaled(squared))


@registered
class Average(Kernel):
    """The mean of several kernels; radial ones share one computation of the distances.

    >>> Average([Gaussian(s) for s in (0.5, 1.0, 2.0)])  # several widths
    """

    def __init__(self, kernels: Sequence[KernelLike]) -> None:
        super().__init__()
        if not kernels:
            raise ValueError("Average needs at least one kernel, got none")
        self.members = tuple(as_kernel(kernel) for kernel in kernels)

    def grow(self, layer: keras.layers.Layer, dtype: str, prefix: str = "") -> None:
        for place, member in enumerate(self.members):
            member.grow(layer, dtype, f"{prefix}member_{place}_")

    def __call__(
        self, x: Annotated[Array, "rows features"], z: Annotated[Array, "others features"]
    ) -> Annotated[Array, "rows others"]:
        radial = [member for member in self.members if isinstance(member, RadialKernel)]
        values = [member(x, z) for member in self.members if not isinstance(member, RadialKernel)]
        if radial:
            squared = squared_distances(x, z)
            values += [member.radial(squared) for member in radial]
        return sum(values[1:], values[0]) / len(values)

    def diagonal(self, x: Annotated[Array, "rows features"]) -> Annotated[Array, "rows"]:
        values = [member.diagonal(x) for member in self.members]
        return sum(values[1:], values[0]) / len(values)

    @property
    def has_width(self) -> bool:
        return all(member.has_width for member in self.members)

    def get_sigma(self) -> float:
        return math.exp(sum(math.log(member.get_sigma()) for member in self.members) / len(self.members))

    def set_sigma(self, sigma: float) -> None:
        """Scale all widths alike, so that their geometric mean becomes sigma."""
        if not self.has_width:
            raise ValueError(f"not every member has a width to set: {self}")
        factor = positive("sigma", sigma) / self.get_sigma()
        for member in self.members:
            member.set_sigma(member.get_sigma() * factor)

    def copy(self) -> Average:
        return Average([member.copy() for member in self.members])

    def get_config(self) -> dict[str, Any]:
        return {"kernels": [serialise(member) for member in self.members]}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Average:
        return cls([keras.saving.deserialize_keras_object(member) for member in config["kernels"]])

    def __repr__(self) -> str:
        return f"Average({list(self.members)})"


@registered
class Scaled(Kernel):
    """``scale * k(x, z)``."""

    def __init__(self, kernel: KernelLike, scale: float) -> None:
        super().__init__(scale=positive("scale", scale))
        self.kernel = as_kernel(kernel)

    def grow(self, layer: keras.layers.Layer, dtype: str, prefix: str = "") -> None:
        super().grow(layer, dtype, prefix)
        self.kernel.grow(layer, dtype, f"{prefix}scaled_")

    def __call__(
        self, x: Annotated[Array, "rows features"], z: Annotated[Array, "others features"]
    ) -> Annotated[Array, "rows others"]:
        value = self.kernel(x, z)
        return value * self.scalar("scale", value)

    def diagonal(self, x: Annotated[Array, "rows features"]) -> Annotated[Array, "rows"]:
        value = self.kernel.diagonal(x)
        return value * self.scalar("scale", value)

    @property
    def has_width(self) -> bool:
        return self.kernel.has_width

    def get_sigma(self) -> float:
        return self.kernel.get_sigma()

    def set_sigma(self, sigma: float) -> None:
        self.kernel.set_sigma(sigma)

    def copy(self) -> Scaled:
        return Scaled(self.kernel.copy(), self.get("scale"))

    def get_config(self) -> dict[str, Any]:
        return {"kernel": serialise(self.kernel), **super().get_config()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Scaled:
        return cls(keras.saving.deserialize_keras_object(config["kernel"]), config["scale"])

    def __repr__(self) -> str:
        return f"Scaled({self.kernel}, scale={self.get('scale'):.4g})"


class PairFunction(Kernel):
    """Any callable of two sets of rows, dressed as a kernel."""

    def __init__(self, function: KernelLike) -> None:
        super().__init__()
        self.function = function

    def __call__(
        self, x: Annotated[Array, "rows features"], z: Annotated[Array, "others features"]
    ) -> Annotated[Array, "rows others"]:
        return self.function(at_least_float32(x), at_least_float32(z))

    def diagonal(self, x: Annotated[Array, "rows features"]) -> Annotated[Array, "rows"]:
        rows = at_least_float32(x)[:, None, :]
        return ops.vectorized_map(lambda row: self.function(row, row)[0, 0], rows)

    def copy(self) -> PairFunction:
        return PairFunction(self.function)

    @property
    def has_width(self) -> bool:
        return False

    def set_sigma(self, sigma: float) -> None:
        raise ValueError(f"{self.function!r} has no width that data could set")

    def __repr__(self) -> str:
        return f"PairFunction({self.function!r})"


def as_kernel(kernel: KernelLike) -> Kernel:
    """One of our kernels as it is, any other callable dressed as one."""
    return kernel if isinstance(kernel, Kernel) else PairFunction(kernel)


def serialise(kernel: Kernel) -> Any:
    """What a saved model says of a kernel; a function goes by the name it was registered under."""
    return keras.saving.serialize_keras_object(kernel.function if isinstance(kernel, PairFunction) else kernel)


def _safe_root(squared: Array) -> tuple[Array, Array]:
    """Where the rows differ, and the distance there (1 elsewhere, so that no gradient becomes infinite)."""
    apart = squared > 0
    return apart, ops.sqrt(ops.where(apart, squared, ops.ones_like(squared)))


KERNELS: dict[str, type[RadialKernel]] = {
    "gaussian": Gaussian,
    "laplacian": Laplacian,
    "rational_quadratic": RationalQuadratic,
    "matern32": Matern32,
    "matern52": Matern52,
    "inverse_multiquadric": InverseMultiquadric,
}


def name_of(kernel: Kernel) -> str | None:
    """The name that a kernel goes by in ``KERNELS``."""
    return next((name for name, kind in KERNELS.items() if type(kernel) is kind), None)
