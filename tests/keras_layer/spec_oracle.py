"""The layer as the specification has it, in plain NumPy: differences broadcast, loops over bases, no cleverness.

Nothing here imports ``gated_domains``, torch or keras: their layers are held against this. Derivatives are taken by
complex steps, ``f'(t) = imag f(t + 1e-30 i) / 1e-30``, which knows no cancellation and is exact to rounding. For that
every function here takes complex arrays: comparisons look at the real part, and what is detached is computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Kernel = Callable[[Array, Array], Array]
Parameters = Mapping[str, Array]

STEP = 1e-30


# -- functions with a kink, which complex numbers do not have of themselves ------------------------------------------


def relu(value: Array) -> Array:
    return np.where(value.real > 0, value, 0)


def magnitude(value: Array) -> Array:
    """|value|."""
    return np.where(value.real < 0, -value, value)


def softmax(values: Array) -> Array:
    powers = np.exp(values - values.real.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def softplus(value: Array) -> Array:
    return np.log(1 + np.exp(value))


# -- kernels: k(x, z) for all pairs of rows --------------------------------------------------------------------------


def squared_distance(x: Array, z: Array) -> Array:
    return ((x[:, None] - z) ** 2).sum(-1)


def distance(x: Array, z: Array) -> Array:
    """d, with a derivative of 0 where two rows are the same."""
    squared = squared_distance(x, z)
    apart = squared.real > 0
    return np.where(apart, np.sqrt(np.where(apart, squared, 1)), 0)


def gaussian(sigma: float) -> Kernel:
    return lambda x, z: np.exp(-squared_distance(x, z) / (2 * sigma**2))


def laplacian(sigma: float) -> Kernel:
    return lambda x, z: np.exp(-distance(x, z) / sigma)


def rational_quadratic(sigma: float, alpha: float) -> Kernel:
    return lambda x, z: (1 + squared_distance(x, z) / (2 * alpha * sigma**2)) ** -alpha


def matern32(sigma: float) -> Kernel:
    def k(x: Array, z: Array) -> Array:
        s = np.sqrt(3) * distance(x, z) / sigma
        return (1 + s) * np.exp(-s)

    return k


def matern52(sigma: float) -> Kernel:
    def k(x: Array, z: Array) -> Array:
        s = np.sqrt(5) * distance(x, z) / sigma
        return (1 + s + s**2 / 3) * np.exp(-s)

    return k


def inverse_multiquadric(sigma: float) -> Kernel:
    return lambda x, z: (1 + squared_distance(x, z) / sigma**2) ** -0.5


def average(*kernels: Kernel) -> Kernel:
    return lambda x, z: sum(k(x, z) for k in kernels) / len(kernels)


def scaled(kernel: Kernel, scale: float) -> Kernel:
    return lambda x, z: scale * kernel(x, z)


def polynomial(slope: float, constant: float) -> Kernel:
    """``(slope <x, z> + constant)^2``: a function of two sets of rows, as a user may bring one."""
    return lambda x, z: (slope * (x[:, None] * z).sum(-1) + constant) ** 2


# -- inner products --------------------------------------------------------------------------------------------------


class Products(NamedTuple):
    """k(x_i, x_i), <phi(x_i), mu_j> and <mu_j, mu_l>."""

    self_product: Array
    cross: Array
    gram: Array


def inner_products(k: Kernel, x: Array, bases: Array) -> Products:
    count, size, _ = bases.shape
    vectors = bases.reshape(count * size, -1)
    cross = k(x, vectors).reshape(-1, count, size).mean(2)
    gram = k(vectors, vectors).reshape(count, size, count, size).mean((1, 3))
    return Products(np.diag(k(x, x)), cross, gram)


def of_the_batch(k: Kernel, x: Array, products: Products) -> Products:
    """Those of the batch's mean embedding, in one row."""
    return Products(k(x, x).mean()[None], products.cross.mean(0)[None], products.gram)


def residual(products: Products, beta: Array) -> Array:
    """``||phi(x_i) - sum_j beta_ij mu_j||^2``."""
    quadratic = (beta[:, :, None] * products.gram * beta[:, None, :]).sum((1, 2))
    return products.self_product - 2 * (beta * products.cross).sum(1) + quadratic


# -- gates -----------------------------------------------------------------------------------------------------------


def cosine_gate(products: Products, kappa: float) -> Array:
    lengths = products.self_product[:, None] * np.diag(products.gram)
    return softmax(kappa * products.cross / np.sqrt(lengths))


def mmd_gate(products: Products, kappa: float) -> Array:
    return softmax(-kappa * (products.self_product[:, None] - 2 * products.cross + np.diag(products.gram)))


def paper_projection(products: Products) -> Array:
    return products.cross / np.diag(products.gram)


def exact_projection(products: Products, ridge: float) -> Array:
    matrix = products.gram + ridge * np.eye(len(products.gram))
    return np.linalg.solve(matrix, products.cross.T).T


def on_the_simplex(beta: Array) -> Array:
    """``max(beta, 0) / sum``."""
    kept = relu(beta)
    return kept / kept.sum(-1, keepdims=True)


# -- penalties -------------------------------------------------------------------------------------------------------


def off_diagonal(gram: Array) -> Array:
    """K - diag(K)."""
    return gram - np.diag(np.diag(gram))


def off_identity(gram: Array) -> Array:
    """K - I."""
    return gram - np.eye(len(gram))


def entropy(beta: Array) -> Array:
    weights = on_the_simplex(beta)
    there = weights.real > 0
    return -np.where(there, weights * np.log(np.where(there, weights, 1)), 0).sum(1).mean()


def largest_singular_value(symmetric: Array) -> Array:
    """``|u' A u|`` with u the leading eigenvector, along which the value's derivative lies."""
    values, vectors = np.linalg.eigh(symmetric.real)
    u = vectors[:, np.abs(values).argmax()]
    return magnitude(u @ symmetric @ u)


def mutual_coherence(gram: Array) -> Array:
    """``max_{i != j} |K_ij| / sqrt(K_ii K_jj)``."""
    size = len(gram)
    pairs = [
        magnitude(gram[i, j]) / np.sqrt(gram[i, i] * gram[j, j]) for i in range(size) for j in range(size) if i != j
    ]
    return max(pairs, key=np.real) if pairs else np.zeros(())


PENALTIES: dict[str, Callable[[Products, Array], Array]] = {
    "reconstruction": lambda products, beta: residual(products, beta).mean(),
    "sparsity": lambda products, beta: magnitude(beta).sum(1).mean(),
    "entropy": lambda products, beta: entropy(beta),
    "soft_orthogonality": lambda products, beta: (off_diagonal(products.gram) ** 2).sum(),
    "soft_orthogonality_to_identity": lambda products, beta: (off_identity(products.gram) ** 2).sum(),
    "srip": lambda products, beta: largest_singular_value(off_diagonal(products.gram)),
    "srip_to_identity": lambda products, beta: largest_singular_value(off_identity(products.gram)),
    "mutual_coherence": lambda products, beta: mutual_coherence(products.gram),
    "distributional_variance": lambda products, beta: np.diag(products.gram).mean() - products.gram.mean(),
}


# -- experts: the numbers of every basis for every row ---------------------------------------------------------------


def linear(p: Parameters, x: Array) -> Array:
    """``W_j x + b_j``, with W of (bases, outputs, features)."""
    outputs = np.stack([x @ weight.T for weight in p["weight"]], axis=1)
    return outputs + p["bias"] if "bias" in p else outputs


def linear_tanh(p: Parameters, x: Array) -> Array:
    return np.tanh(linear(p, x))


def one_hidden_layer(p: Parameters, x: Array, activation: Callable[[Array], Array]) -> Array:
    """``W_j act(U_j x + a_j) + b_j``, with W of (bases, hidden, outputs)."""
    hidden = activation(linear(under("first", p), x))
    outputs = np.stack([hidden[:, j] @ weight for j, weight in enumerate(p["weight"])], axis=1)
    return outputs + p["bias"] if "bias" in p else outputs


def mlp_relu(p: Parameters, x: Array) -> Array:
    return one_hidden_layer(p, x, relu)


def mlp_tanh(p: Parameters, x: Array) -> Array:
    return one_hidden_layer(p, x, np.tanh)


def stacked_network(p: Parameters, x: Array) -> Array:
    """Two linear layers with a tanh between, each with W of (bases, outputs, features)."""
    hidden = np.tanh(linear(under("lower", p), x))
    outputs = [linear(only(j, under("upper", p)), hidden[:, j]) for j in range(len(p["upper.weight"]))]
    return np.concatenate(outputs, axis=1)


def under(name: str, p: Parameters) -> Parameters:
    """The parameters whose names start so, by the rest of their names."""
    return {key.removeprefix(f"{name}."): value for key, value in p.items() if key.startswith(f"{name}.")}


def only(j: int, p: Parameters) -> Parameters:
    """Those of one basis."""
    return {name: value[j : j + 1] for name, value in p.items()}


# -- prediction ------------------------------------------------------------------------------------------------------


class Settings(NamedTuple):
    """What a layer is made of, besides its parameters."""

    kernel: Kernel
    gate: str
    """cosine, mmd, or projection."""
    experts: Callable[[Parameters, Array], Array]
    kappa: float = 2.0
    ridge: float | None = None
    """Of the projection; None is the paper's."""
    shared: bool = False
    quantiles: tuple[float, float] | None = None
    """q50 and q97 of the residuals; None: every sample is covered."""
    min_scale: float | None = None
    """Of a probabilistic head; None: there is none."""
    pooled: bool = False
    """Whether gates compare the mean of the batch with the bases, instead of each sample."""
    used: int | None = None
    """How many of the bases are in use, the first ones; None: all."""
    penalties: tuple[str, ...] = tuple(PENALTIES)
    """Which of them are in the loss."""


def gate(products: Products, settings: Settings) -> Array:
    if settings.gate == "cosine":
        return cosine_gate(products, settings.kappa)
    if settings.gate == "mmd":
        return mmd_gate(products, settings.kappa)
    return paper_projection(products) if settings.ridge is None else exact_projection(products, settings.ridge)


def novelty(products: Products, settings: Settings) -> Array:
    """r(x), detached: of the gate's own beta, or of the exact projection where the gate has the paper's."""
    fixed = Products(*(np.real(value) for value in products))
    if settings.gate == "projection" and settings.ridge is None:
        return residual(fixed, exact_projection(fixed, 1e-6))
    return residual(fixed, gate(fixed, settings))


def coverage(novelty: Array, q50: float, q97: float) -> Array:
    return np.clip((q97 - novelty) / max(q97 - q50, np.finfo(float).eps), 0, 1)


class Weighed(NamedTuple):
    """What gates find of a batch, from the view that they see alone."""

    products: Products
    beta: Array
    coverage: Array
    penalties: dict[str, Array]


def weigh(bases: Array, view: Array, settings: Settings) -> Weighed:
    own = inner_products(settings.kernel, view, bases[: settings.used])
    covered = (
        np.ones(len(view)) if settings.quantiles is None else coverage(novelty(own, settings), *settings.quantiles)
    )
    products = of_the_batch(settings.kernel, view, own) if settings.pooled else own
    beta = gate(products, settings)
    return Weighed(products, beta, covered, {name: PENALTIES[name](products, beta) for name in settings.penalties})


def mix(parameters: Parameters, features: Array, weighed: Weighed, settings: Settings) -> dict[str, Array]:
    """The prediction, and its variance where the head is probabilistic."""
    used = {name: value[: settings.used] for name, value in under("experts", parameters).items()}
    outputs = settings.experts(used, features)
    shared = settings.experts(under("shared", parameters), features) if settings.shared else None
    if settings.min_scale is None:
        return {"prediction": mixture(weighed, outputs, shared)}
    return moments(weighed, outputs, shared, settings.min_scale)


def evaluate(parameters: Parameters, features: Array, gating: Array | None, settings: Settings) -> dict[str, Array]:
    """Everything the layer finds: prediction, variance, coverage, beta, products, penalties.

    Only the bases in use are looked at: beta and products have no columns for others.
    """
    weighed = weigh(parameters["bases"], features if gating is None else gating, settings)
    covered = {"coverage": weighed.coverage} if settings.shared else {}
    gated = {"beta": weighed.beta, **weighed.products._asdict(), **covered, **weighed.penalties}
    return {**mix(parameters, features, weighed, settings), **gated}


def mixture(weighed: Weighed, outputs: Array, shared: Array | None) -> Array:
    """``sum_j beta_ij f_j(x_i)``, or ``f_0(x_i) + c(x_i) sum_j beta_ij d_j(x_i)``."""
    mixed = (weighed.beta[:, :, None] * outputs).sum(1)
    return mixed if shared is None else shared[:, 0] + weighed.coverage[:, None] * mixed


def moments(weighed: Weighed, outputs: Array, shared: Array | None, min_scale: float) -> dict[str, Array]:
    """Those of the mixture of Gaussians that the experts give; deviations are added before the softplus."""
    raw = outputs if shared is None else shared + weighed.coverage[:, None, None] * outputs
    half = raw.shape[-1] // 2
    mean, scale = raw[..., :half], softplus(raw[..., half:]) + min_scale
    w = on_the_simplex(weighed.beta)[:, :, None]
    centre = (w * mean).sum(1)
    return {"prediction": centre, "variance": (w * (scale**2 + mean**2)).sum(1) - centre**2}


def deviation_norm(parameters: Parameters, used: int) -> float:
    """``mean_j ||d_j||^2`` over the bases in use."""
    total = 0.0
    for j in range(used):
        for value in under("experts", parameters).values():
            total += sum(float(number) ** 2 for number in value[j].ravel())
    return total / used


# -- a loss, and its derivatives -------------------------------------------------------------------------------------

# Unlike each other, so that no penalty can stand in for another.
PENALTY_WEIGHTS = {
    "reconstruction": 1.3,
    "sparsity": 0.7,
    "entropy": 0.9,
    "soft_orthogonality": 0.5,
    "soft_orthogonality_to_identity": 0.4,
    "srip": 1.1,
    "srip_to_identity": 0.6,
    "mutual_coherence": 0.8,
    "distributional_variance": 1.7,
}


@cache
def weights_of_the_loss(shape: tuple[int, ...]) -> tuple[Array, Array]:
    """What each number of the prediction, and of its variance, weighs in the loss."""
    prediction, variance = np.random.default_rng(20).normal(size=(2, *shape))
    return prediction, variance


def loss_of(predicted: Mapping[str, Array], penalties: Mapping[str, Array]) -> Array:
    """A linear functional of prediction and variance, and the penalties times their weights."""
    of_prediction, of_variance = weights_of_the_loss(predicted["prediction"].shape)
    total = (of_prediction * predicted["prediction"]).sum()
    if "variance" in predicted:
        total = total + (of_variance * predicted["variance"]).sum()
    return total + sum(PENALTY_WEIGHTS[name] * value for name, value in penalties.items())


def loss(parameters: Parameters, features: Array, gating: Array | None, settings: Settings) -> Array:
    weighed = weigh(parameters["bases"], features if gating is None else gating, settings)
    return loss_of(mix(parameters, features, weighed, settings), weighed.penalties)


def gradient(parameters: Parameters, features: Array, gating: Array | None, settings: Settings) -> dict[str, Array]:
    """The derivative of the loss by every number of every parameter, of ``features`` and of ``gating``."""
    inputs = {**parameters, "features": features} | ({} if gating is None else {"gating": gating})
    seen = "features" if gating is None else "gating"
    resting = weigh(inputs["bases"], inputs[seen], settings)

    def slope(name: str, place: tuple[int, ...]) -> float:
        moved = inputs[name].astype(complex)
        moved[place] += STEP * 1j
        now = {**inputs, name: moved}
        # What gates do not see does not move them.
        weighed = weigh(now["bases"], now[seen], settings) if name in ("bases", seen) else resting
        return loss_of(mix(now, now["features"], weighed, settings), weighed.penalties).imag / STEP

    found = {name: np.zeros(value.shape) for name, value in inputs.items()}
    for name, slopes in found.items():
        for place in np.ndindex(slopes.shape):
            slopes[place] = slope(name, place)
    return found
