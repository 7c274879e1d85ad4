"""Slow loops, written from the formulas of the specification in plain Python and float64.

Nothing here imports ``gated_domains``: these are what its vectorised code is held against. Rows are lists of floats,
matrices lists of rows; ``rows`` takes a tensor apart, ``assert_matches`` compares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

Row = Sequence[float]
Rows = Sequence[Row]
Bases = Sequence[Rows]
Kernel = Callable[[Row, Row], float]


def rows(value: torch.Tensor) -> list:
    return value.detach().double().tolist()


def assert_matches(actual: torch.Tensor, expected: object, *, tolerance: float = 1e-10) -> None:
    """The vectorised result equals the loop's, in float64 and shape too."""
    torch.testing.assert_close(
        actual.detach(), torch.tensor(expected, dtype=torch.float64), rtol=tolerance, atol=tolerance
    )


# -- kernels ---------------------------------------------------------------------------------------------------------


def squared_distance(x: Row, z: Row) -> float:
    return math.fsum((a - b) ** 2 for a, b in zip(x, z, strict=True))


def gaussian(squared: float, sigma: float) -> float:
    return math.exp(-squared / (2 * sigma**2))


def laplacian(squared: float, sigma: float) -> float:
    return math.exp(-math.sqrt(squared) / sigma)


def rational_quadratic(squared: float, sigma: float, alpha: float = 1.0) -> float:
    return (1 + squared / (2 * alpha * sigma**2)) ** -alpha


def matern32(squared: float, sigma: float) -> float:
    s = math.sqrt(3 * squared) / sigma
    return (1 + s) * math.exp(-s)


def matern52(squared: float, sigma: float) -> float:
    s = math.sqrt(5 * squared) / sigma
    return (1 + s + s**2 / 3) * math.exp(-s)


def inverse_multiquadric(squared: float, sigma: float) -> float:
    return (1 + squared / sigma**2) ** -0.5


RADIAL: dict[str, Callable[[float, float], float]] = {
    "gaussian": gaussian,
    "laplacian": laplacian,
    "rational_quadratic": rational_quadratic,
    "matern32": matern32,
    "matern52": matern52,
    "inverse_multiquadric": inverse_multiquadric,
}


def radial_kernel(name: str, sigma: float) -> Kernel:
    return lambda x, z: RADIAL[name](squared_distance(x, z), sigma)


def average_kernel(kernels: Sequence[Kernel]) -> Kernel:
    return lambda x, z: sum(k(x, z) for k in kernels) / len(kernels)


def scaled_kernel(kernel: Kernel, scale: float) -> Kernel:
    return lambda x, z: scale * kernel(x, z)


def kernel_matrix(k: Kernel, x: Rows, z: Rows) -> list[list[float]]:
    return [[k(x_i, z_j) for z_j in z] for x_i in x]


# -- inner products --------------------------------------------------------------------------------------------------


def self_product(k: Kernel, x: Rows) -> list[float]:
    return [k(x_i, x_i) for x_i in x]


def cross(k: Kernel, x: Rows, bases: Bases) -> list[list[float]]:
    """<phi(x_i), mu_j> = mean_n k(x_i, v_jn)."""
    table = []
    for x_i in x:
        row = []
        for basis in bases:
            total = 0.0
            for vector in basis:
                total += k(x_i, vector)
            row.append(total / len(basis))
        table.append(row)
    return table


def gram(k: Kernel, bases: Bases) -> list[list[float]]:
    """<mu_j, mu_l> = mean_{n,m} k(v_jn, v_lm)."""
    table = []
    for one in bases:
        row = []
        for other in bases:
            total = 0.0
            for v in one:
                for w in other:
                    total += k(v, w)
            row.append(total / (len(one) * len(other)))
        table.append(row)
    return table


def weighted_self_product(k: Kernel, x: Rows, weights: Row) -> float:
    """||sum_i w_i phi(x_i)||^2 with the weights brought to sum one."""
    total = sum(weights)
    value = 0.0
    for w_i, x_i in zip(weights, x, strict=True):
        for w_l, x_l in zip(weights, x, strict=True):
            value += w_i / total * w_l / total * k(x_i, x_l)
    return value


def weighted_cross(k: Kernel, x: Rows, bases: Bases, weights: Row) -> list[float]:
    """<sum_i w_i phi(x_i), mu_j> with the weights brought to sum one."""
    each, total = cross(k, x, bases), sum(weights)
    value = []
    for j in range(len(bases)):
        value.append(sum(w * row[j] for w, row in zip(weights, each, strict=True)) / total)
    return value


def half_life_weights(count: int, half_life: float | None) -> list[float]:
    """Oldest first; the newest weighs 1 before normalising, one ``half_life`` rows older weighs 1/2."""
    return [1.0 if half_life is None else 0.5 ** ((count - 1 - i) / half_life) for i in range(count)]


# -- gates -----------------------------------------------------------------------------------------------------------


def softmax(values: Row) -> list[float]:
    top = max(values)
    powers = [math.exp(value - top) for value in values]
    return [power / sum(powers) for power in powers]


def cosine_similarity(own: Row, cross: Rows, gram: Rows) -> list[list[float]]:
    table = []
    for s_i, row in zip(own, cross, strict=True):
        table.append([row[j] / math.sqrt(s_i * gram[j][j]) for j in range(len(row))])
    return table


def mmd_similarity(own: Row, cross: Rows, gram: Rows) -> list[list[float]]:
    table = []
    for s_i, row in zip(own, cross, strict=True):
        table.append([-(s_i - 2 * row[j] + gram[j][j]) for j in range(len(row))])
    return table


def cosine_gate(own: Row, cross: Rows, gram: Rows, kappa: float) -> list[list[float]]:
    return [softmax([kappa * h for h in row]) for row in cosine_similarity(own, cross, gram)]


def mmd_gate(own: Row, cross: Rows, gram: Rows, kappa: float) -> list[list[float]]:
    return [softmax([kappa * h for h in row]) for row in mmd_similarity(own, cross, gram)]


def projection_gate(cross: Rows, gram: Rows) -> list[list[float]]:
    return [[row[j] / gram[j][j] for j in range(len(row))] for row in cross]


def exact_projection_gate(cross: Rows, gram: Rows, ridge: float) -> list[list[float]]:
    matrix = [list(row) for row in gram]
    for j in range(len(matrix)):
        matrix[j][j] += ridge
    return [solve(matrix, row) for row in cross]


def solve(matrix: Rows, right: Row) -> list[float]:
    """Gaussian elimination with pivoting."""
    size = len(right)
    table = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda r: abs(table[r][column]))
        table[column], table[pivot] = table[pivot], table[column]
        for below in range(column + 1, size):
            factor = table[below][column] / table[column][column]
            for position in range(column, size + 1):
                table[below][position] -= factor * table[column][position]
    solution = [0.0] * size
    for r in reversed(range(size)):
        known = sum(table[r][c] * solution[c] for c in range(r + 1, size))
        solution[r] = (table[r][size] - known) / table[r][r]
    return solution


def simplex(beta: Row) -> list[float]:
    """max(beta, 0) / sum."""
    kept = [max(value, 0.0) for value in beta]
    return [value / sum(kept) for value in kept]


# -- prediction ------------------------------------------------------------------------------------------------------


def linear(x: Row, weight: Rows, bias: Row | None, activation: Callable[[float], float] | None = None) -> list[float]:
    values = []
    for o, weights in enumerate(weight):
        value = sum(w * a for w, a in zip(weights, x, strict=True)) + (0.0 if bias is None else bias[o])
        values.append(value if activation is None else activation(value))
    return values


def mixture(beta: Rows, outputs: Sequence[Rows]) -> list[list[float]]:
    """sum_j beta_ij f(x_i, theta_j), with outputs[i][j] the numbers of expert j for sample i."""
    table = []
    for weights, experts in zip(beta, outputs, strict=True):
        row = []
        for o in range(len(experts[0])):
            row.append(sum(weights[j] * experts[j][o] for j in range(len(weights))))
        table.append(row)
    return table


def shared_mixture(beta: Rows, shared: Rows, deviations: Sequence[Rows], covered: Row) -> list[list[float]]:
    """f_0(x_i) + c(x_i) sum_j beta_ij d_j(x_i)."""
    table = []
    for c, base, row in zip(covered, shared, mixture(beta, deviations), strict=True):
        table.append([b + c * d for b, d in zip(base, row, strict=True)])
    return table


def moment_match(weights: Row, means: Rows, scales: Rows) -> tuple[list[float], list[float]]:
    """Mean sum w mu, variance sum w (s^2 + mu^2) - mean^2, for one sample."""
    mean, variance = [], []
    for o in range(len(means[0])):
        centre = sum(w * mu[o] for w, mu in zip(weights, means, strict=True))
        second = sum(w * (s[o] ** 2 + mu[o] ** 2) for w, mu, s in zip(weights, means, scales, strict=True))
        mean.append(centre)
        variance.append(second - centre**2)
    return mean, variance


# -- penalties -------------------------------------------------------------------------------------------------------


def residual(own: Row, cross: Rows, gram: Rows, beta: Rows) -> list[float]:
    """self_product_i - 2 sum_j beta_ij cross_ij + beta_i' gram beta_i."""
    values = []
    for s_i, row, weights in zip(own, cross, beta, strict=True):
        value = s_i
        for j, b_j in enumerate(weights):
            value -= 2 * b_j * row[j]
            for other, b_other in enumerate(weights):
                value += b_j * gram[j][other] * b_other
        values.append(value)
    return values


def reconstruction(own: Row, cross: Rows, gram: Rows, beta: Rows) -> float:
    return sum(residual(own, cross, gram, beta)) / len(beta)


def sparsity(beta: Rows) -> float:
    return sum(abs(value) for weights in beta for value in weights) / len(beta)


def entropy(beta: Rows) -> float:
    total = 0.0
    for weights in beta:
        total -= sum(w * math.log(w) for w in simplex(weights) if w > 0)
    return total / len(beta)


def off_target(gram: Rows, target: str) -> list[list[float]]:
    """K - I, or K - diag(K)."""
    table = [list(row) for row in gram]
    for j in range(len(table)):
        table[j][j] -= 1.0 if target == "identity" else table[j][j]
    return table


def soft_orthogonality(gram: Rows, target: str) -> float:
    return sum(value**2 for row in off_target(gram, target) for value in row)


def srip(gram: Rows, target: str) -> float:
    return float(np.linalg.svd(np.array(off_target(gram, target)), compute_uv=False)[0])


def mutual_coherence(gram: Rows) -> float:
    worst = 0.0
    for i in range(len(gram)):
        for j in range(len(gram)):
            if i != j:
                worst = max(worst, abs(gram[i][j]) / math.sqrt(gram[i][i] * gram[j][j]))
    return worst


def distributional_variance(gram: Rows) -> float:
    size = len(gram)
    return sum(gram[j][j] for j in range(size)) / size - sum(value for row in gram for value in row) / size**2


# -- coverage --------------------------------------------------------------------------------------------------------


def quantile(values: Row, level: float) -> float:
    """By linear interpolation between order statistics."""
    ordered = sorted(values)
    place = level * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def coverage(residuals: Row, q50: float, q97: float, eps: float = 1e-15) -> list[float]:
    """clip((q97 - r) / max(q97 - q50, eps), 0, 1)."""
    return [min(1.0, max(0.0, (q97 - r) / max(q97 - q50, eps))) for r in residuals]


# -- methods that compare domains ------------------------------------------------------------------------------------


def by_domain(values: Sequence, domains: Sequence[int]) -> dict[int, list]:
    """The rows of each domain that has any."""
    found: dict[int, list] = {}
    for value, domain in zip(values, domains, strict=True):
        found.setdefault(domain, []).append(value)
    return found


def mean_and_covariance(x: Rows) -> tuple[list[float], list[list[float]]]:
    """Of the columns, the covariance by n - 1."""
    width = len(x[0])
    mean = [math.fsum(row[j] for row in x) / len(x) for j in range(width)]
    covariance = [
        [math.fsum((row[j] - mean[j]) * (row[k] - mean[k]) for row in x) / (len(x) - 1) for k in range(width)]
        for j in range(width)
    ]
    return mean, covariance


def moments_apart(x: Rows, domains: Sequence[int]) -> float:
    """mean_{a<b} (|mu_a - mu_b|^2 / d + |C_a - C_b|^2 / d^2) over domains with two rows or more."""
    moments = [mean_and_covariance(part) for part in by_domain(x, domains).values() if len(part) > 1]
    width, found = len(x[0]), []
    for a, (mean_a, covariance_a) in enumerate(moments):
        for mean_b, covariance_b in moments[:a]:
            means = squared_distance(mean_a, mean_b) / width
            rows = zip(covariance_a, covariance_b, strict=True)
            found.append(means + math.fsum(squared_distance(p, q) for p, q in rows) / width**2)
    return math.fsum(found) / len(found) if found else 0.0


def cross_entropy(logits: Row, target: int) -> float:
    return math.log(math.fsum(math.exp(value) for value in logits)) - logits[target]


def cross_entropy_slope(logits: Row, target: int) -> float:
    """d/dw of the cross-entropy of w times the logits, at 1: sum_k p_k z_k - z_y."""
    return math.fsum(p * z for p, z in zip(softmax(logits), logits, strict=True)) - logits[target]


def squared_error_slope(said: float, target: float) -> float:
    """d/dw (w said - target)^2 at 1."""
    return 2 * (said - target) * said


def irm_penalty(slopes: Row, domains: Sequence[int]) -> float:
    """The mean over domains with two rows or more of mean_{i != j} s_i s_j."""
    found = []
    for part in by_domain(slopes, domains).values():
        pairs = [s * t for i, s in enumerate(part) for j, t in enumerate(part) if i != j]
        if pairs:
            found.append(math.fsum(pairs) / len(pairs))
    return math.fsum(found) / len(found) if found else 0.0


def domain_risks(losses: Row, domains: Sequence[int]) -> dict[int, float]:
    return {domain: math.fsum(part) / len(part) for domain, part in by_domain(losses, domains).items()}


def grown(weights: Row, gains: dict[int, float]) -> list[float]:
    """q_g exp(gain_g), brought to sum 1; domains without a gain keep their part."""
    raised = [weight * math.exp(gains.get(domain, 0.0)) for domain, weight in enumerate(weights)]
    return [value / math.fsum(raised) for value in raised]


def weighed_risk(weights: Row, risks: dict[int, float]) -> float:
    """sum_g q_g R_g over the domains that are there, times G / B."""
    return math.fsum(weights[domain] * risk for domain, risk in risks.items()) * len(weights) / len(risks)


def group_dro_gains(risks: dict[int, float], rows: Sequence[int], eta: float, adjustment: float) -> dict[int, float]:
    """eta (R_g + C / sqrt(n_g))."""
    return {domain: eta * (risk + adjustment / math.sqrt(rows[domain])) for domain, risk in risks.items()}


def linear_softmax_gradient(x: Rows, targets: Sequence[int], weight: Rows, bias: Row) -> list[float]:
    """The mean over rows of (p - y) (x, 1)', as one row: the gradient of the cross-entropy of a linear head."""
    total = [0.0] * (len(weight) * (len(x[0]) + 1))
    for row, target in zip(x, targets, strict=True):
        chances = softmax(linear(row, weight, bias))
        errors = [p - (c == target) for c, p in enumerate(chances)]
        for place, value in enumerate([e * a for e in errors for a in row] + errors):
            total[place] += value / len(x)
    return total


def cosine(a: Row, b: Row) -> float:
    dot = math.fsum(p * q for p, q in zip(a, b, strict=True))
    return dot / math.sqrt(math.fsum(p * p for p in a) * math.fsum(q * q for q in b))


def cgd_weights(rows: Sequence[int], adjustment: float) -> list[float]:
    """w_j ~ exp(C / sqrt(n_j)), to sum 1."""
    return softmax([adjustment / math.sqrt(count) for count in rows])


def cgd_gains(
    risks: dict[int, float], gradients: dict[int, Row], rows: Sequence[int], eta: float, adjustment: float
) -> dict[int, float]:
    """eta sum_j w_j sqrt(R_i R_j) cos(g_i, g_j), with w brought to sum 1 over the domains that are there."""
    w = cgd_weights(rows, adjustment)
    there, gains = math.fsum(w[j] for j in risks), {}
    for i in risks:
        helped = [w[j] / there * math.sqrt(risks[i] * risks[j]) * cosine(gradients[i], gradients[j]) for j in risks]
        gains[i] = eta * math.fsum(helped)
    return gains
