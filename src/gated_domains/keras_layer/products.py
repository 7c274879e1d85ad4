"""The three inner products that everything else reads, computed once a batch.

self_product[i] = k(x_i, x_i)
cross[i, j]     = <phi(x_i), mu_j>  = mean_n k(x_i, v_jn)
gram[j, l]      = <mu_j, mu_l>      = mean_nm k(v_jn, v_lm)
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from gated_domains.keras_layer.arrays import Array, full_precision, mean_of, ops
from gated_domains.keras_layer.kernels import Kernel


class InnerProducts(NamedTuple):
    """self_product, cross and gram of one batch; ``active`` marks the bases in use (None: all of them)."""

    self_product: Annotated[Array, "*batch"]
    cross: Annotated[Array, "*batch bases"]
    gram: Annotated[Array, "bases bases"]
    active: Annotated[Array, "bases"] | None = None

    @property
    def norms(self) -> Annotated[Array, "bases"]:
        """``||mu_j||^2``, the diagonal of the Gram matrix."""
        return ops.diagonal(self.gram)


def inner_products(
    kernel: Kernel,
    x: Annotated[Array, "batch features"],
    bases: Annotated[Array, "bases size features"],
    *,
    active: Annotated[Array, "bases"] | None = None,
) -> InnerProducts:
    """The inner products of every row of x with every basis."""
    num_bases, size, width = bases.shape
    vectors = ops.reshape(bases, (num_bases * size, width))
    to_vectors = ops.reshape(kernel(vectors, vectors), (num_bases, size, num_bases, size))
    return InnerProducts(
        self_product=kernel.diagonal(x),
        cross=mean_of(ops.reshape(kernel(x, vectors), (-1, num_bases, size)), axis=-1),
        gram=mean_of(to_vectors, axis=(1, 3)),
        active=active,
    )


def pooled(products: InnerProducts, kernel: Kernel, x: Annotated[Array, "batch features"]) -> InnerProducts:
    """The products of the batch's mean embedding in place of each row's own: a leading size of 1."""
    return products._replace(
        self_product=ops.reshape(mean_of(kernel(x, x)), (1,)), cross=mean_of(products.cross, axis=0, keepdims=True)
    )


def residual(products: InnerProducts, beta: Annotated[Array, "*batch bases"]) -> Annotated[Array, "*batch"]:
    """``||phi(x_i) - sum_j beta_ij mu_j||^2``: what the bases cannot express of a sample."""
    explained = ops.sum(beta * products.cross, axis=-1)
    with full_precision():
        spread = ops.sum((beta @ products.gram) * beta, axis=-1)
    return products.self_product - 2 * explained + spread
