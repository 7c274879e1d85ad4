"""What a layer takes from data, in torch: sigma, bases, their number, kappa.

``check_rows`` refuses rows that nothing can be fitted to; ``on_first_rank`` fits once where several processes train.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor

from gated_domains.common.assignment import cheapest_assignment
from gated_domains.layer.kernels import Scalars, shown, squared_distances

# Row counts up to which a heuristic looks at everything; beyond, at a random subsample of that size.
_MEDIAN_ROWS = 2_000
_CLUSTER_ROWS = 10_000

Initialiser = Callable[[Tensor, int, int, int], Tensor]


def check_tensor(name: str, x: object) -> None:
    """Refuse what is no tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(x).__name__}; convert with torch.as_tensor(...)")


def check_rows(x: Tensor, *, at_least: int = 1, purpose: str = "fitting") -> Tensor:
    """The rows, refused unless they are a floating-point matrix, finite, and enough."""
    if x.dim() != 2:
        raise ValueError(f"expected rows of features with shape (rows, features), got shape {tuple(x.shape)}")
    if not x.is_floating_point():
        raise TypeError(f"features must be floating point, got {x.dtype}; convert them with .float()")
    if len(x) < at_least:
        raise ValueError(f"{purpose} needs at least {at_least} rows, got {len(x)}; pass more rows")
    finite = torch.isfinite(x)
    if not bool(finite.all()):
        rows = int((~finite).any(-1).sum())
        raise ValueError(f"features hold NaN or infinity in {rows} of {len(x)} rows; clean or drop those rows first")
    return x


def median_sigma(features: Float[Tensor, "rows features"], *, max_rows: int = _MEDIAN_ROWS, seed: int = 0) -> float:
    """``sigma^2 = median of ||x_i - x_j||^2, i != j``, on a random subsample."""
    x = exact(subsample(check_rows(features, at_least=2, purpose="the median distance"), max_rows, seed))
    squared = squared_distances(x, x)
    above = torch.triu_indices(len(x), len(x), offset=1, device=x.device)
    ordered = squared[above[0], above[1]].sort().values
    median = float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    if median <= 0:
        raise ValueError(
            f"the median distance between {len(x)} rows is 0: more than half of the pairs are identical; "
            "drop duplicate rows or set sigma yourself"
        )
    return math.sqrt(median)


def typical_distance(rows: Float[Tensor, "rows features"]) -> float:
    """The median distance between rows; their root mean square distance where most rows are alike."""
    try:
        return median_sigma(rows)
    except ValueError:
        spread = math.sqrt(2 * float(rows.double().var(0).sum())) if len(rows) > 1 else 0.0
        return spread if math.isfinite(spread) and spread > 0 else 1.0


def kmeans(
    x: Float[Tensor, "rows features"], clusters: int, *, seed: int = 0, restarts: int = 3, max_iterations: int = 100
) -> tuple[Float[Tensor, "clusters features"], Int[Tensor, " rows"]]:
    """Centres and labels of the best of several Lloyd runs, each started by k-means++."""
    precise = exact(check_rows(x, at_least=clusters, purpose=f"k-means with {clusters} clusters"))
    middle = precise.mean(0)
    precise = precise - middle
    norms = precise.square().sum(1)  # once: rows are centred and exact, and a pass over them is what each step costs
    starts = [_plus_plus(precise, norms, clusters, seed + run) for run in range(restarts)]
    runs = [lloyd(precise, norms, start, max_iterations) for start in starts]
    centres, labels, _ = min(runs, key=lambda run: run[2])
    return (centres + middle).to(x.dtype), labels


def davies_bouldin(x: Float[Tensor, "rows features"], labels: Int[Tensor, " rows"]) -> float:
    """Mean over clusters of the worst ``(s_i + s_j) / d_ij``: small when clusters are tight and far apart."""
    present, labels = torch.unique(labels, return_inverse=True)
    if len(present) < 2:
        raise ValueError(f"the Davies-Bouldin score needs at least 2 clusters, got {len(present)}")
    centres = _cluster_means(x, labels, len(present))
    counts = torch.bincount(labels, minlength=len(present)).to(x.dtype)
    to_own = torch.linalg.vector_norm(x - centres[labels], dim=-1)
    scatter = torch.zeros_like(counts).index_add_(0, labels, to_own) / counts
    apart = squared_distances(centres, centres).sqrt()
    ratio = (scatter.unsqueeze(0) + scatter.unsqueeze(1)) / apart
    ratio.fill_diagonal_(0)
    return float(ratio.amax(1).mean())


def choose_num_bases(
    features: Float[Tensor, "rows features"], candidates: Iterable[int], *, seed: int = 0
) -> tuple[int, dict[int, float]]:
    """The candidate with the lowest Davies-Bouldin score of its k-means clusters, and all scores."""
    x = subsample(check_rows(features, at_least=3, purpose="a choice of num_bases"), _CLUSTER_ROWS, seed)
    wanted = list(candidates)
    tried = [k for k in wanted if 2 <= k < len(x)]
    if not tried:
        raise ValueError(f"no candidate lies between 2 and {len(x) - 1} clusters for {len(x)} rows, got {wanted}")
    scores = {k: davies_bouldin(x, kmeans(x, k, seed=seed)[1]) for k in tried}
    return min(scores, key=lambda k: math.inf if math.isnan(scores[k]) else scores[k]), scores


def kmeans_bases(
    features: Float[Tensor, "rows features"], num_bases: int, basis_size: int, seed: int
) -> Float[Tensor, "bases size features"]:
    """Each basis from one k-means cluster: ``basis_size`` of its members at random."""
    x = subsample(check_rows(features, at_least=num_bases, purpose=f"{num_bases} bases"), _CLUSTER_ROWS, seed)
    return drawn_from_clusters(x, kmeans(x, num_bases, seed=seed)[1], basis_size, seed)


def drawn_from_clusters(
    x: Float[Tensor, "rows features"], labels: Int[Tensor, " rows"], basis_size: int, seed: int
) -> Float[Tensor, "bases size features"]:
    """A basis from each cluster: ``basis_size`` of its members at random."""
    generator = torch.Generator().manual_seed(seed)
    members = [torch.nonzero(labels == j).squeeze(-1) for j in range(int(labels.max()) + 1)]
    return torch.stack([x[_draw(own, basis_size, generator)] for own in members])


def nearest_places(
    centres: Float[Tensor, "bases features"], before: Float[Tensor, "bases features"]
) -> Int[Tensor, " bases"]:
    """For each place the new centre that takes it: the assignment with the smallest sum of squared distances.

    Which one that is changes neither with a shift of all centres nor with their scale.
    """
    cost = squared_distances(exact(before), exact(centres))
    return torch.tensor(cheapest_assignment(cost.tolist()), device=centres.device)


def random_bases(
    features: Float[Tensor, "rows features"], num_bases: int, basis_size: int, seed: int
) -> Float[Tensor, "bases size features"]:
    """Each basis a random sample of all rows."""
    check_rows(features, at_least=num_bases, purpose=f"{num_bases} bases")
    generator = torch.Generator().manual_seed(seed)
    everything = torch.arange(len(features), device=features.device)
    drawn = _draw(everything, num_bases * basis_size, generator)
    return features[drawn].reshape(num_bases, basis_size, -1)


def paper_bases(
    features: Float[Tensor, "rows features"], num_bases: int, basis_size: int, seed: int
) -> Float[Tensor, "bases size features"]:
    """The paper's start, which does not look at the data: see ``paper_normal``."""
    generator = torch.Generator().manual_seed(seed)
    return paper_normal(num_bases, basis_size, features.shape[-1], generator).to(features)


def paper_normal(
    num_bases: int, basis_size: int, width: int, generator: torch.Generator | None = None
) -> Float[Tensor, "bases size features"]:
    """Basis j drawn from ``N(0.5 j (-1)^j, (0.1 (j + 1))^2)``."""
    j = torch.arange(num_bases, dtype=torch.get_default_dtype()).reshape(-1, 1, 1)
    noise = torch.randn(num_bases, basis_size, width, generator=generator)
    return 0.5 * j * (-1.0) ** j + 0.1 * (j + 1) * noise


def match_kappa(
    similarity: Float[Tensor, "rows bases"], *, entropy: float = 0.5, low: float = 1e-3, high: float = 1e6
) -> float:
    """The kappa for which the mean entropy of ``softmax(kappa H)`` is ``entropy * log M``, by bisection.

    So gates are never dead and never one-hot by accident. Entropy falls as kappa grows; a target out of reach between
    ``low`` and ``high`` gives the nearer end. For one basis, 1.
    """
    if not 0 < entropy < 1:
        raise ValueError(f"entropy is a share of log M between 0 and 1, got {entropy}")
    if similarity.shape[-1] == 1:
        return 1.0
    h = similarity.detach().double()
    wanted = entropy * math.log(h.shape[-1])
    bottom, top = math.log(low), math.log(high)
    for _ in range(50):
        middle = (bottom + top) / 2
        beta = (math.exp(middle) * h).softmax(-1)
        mean_entropy = float(torch.special.entr(beta).sum(-1).mean())
        bottom, top = (middle, top) if mean_entropy > wanted else (bottom, middle)
    return math.exp((bottom + top) / 2)


def subsample(x: Float[Tensor, "rows features"], max_rows: int, seed: int) -> Float[Tensor, "kept features"]:
    """At most ``max_rows`` rows at random; the same rows for the same seed on every device."""
    if len(x) <= max_rows:
        return x
    kept = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:max_rows]
    return x[kept.to(x.device)]


def exact(x: Tensor) -> Tensor:
    """In float64 where the device has it: one far-off row would cost all others their distances in float32."""
    return x if x.device.type == "mps" else x.double()


def on_first_rank(fit: Callable[[], object], state: Sequence[Tensor]) -> None:
    """Run ``fit`` on rank 0 and broadcast the tensors it wrote; a failure there is raised everywhere."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        fit()
        return
    failure: Exception | None = None
    if dist.get_rank() == 0:
        try:
            fit()
        except Exception as error:  # raised again below, once the other ranks no longer wait
            failure = error
    succeeded = torch.tensor([int(failure is None)], device=state[0].device)
    dist.broadcast(succeeded, src=0)
    if failure is not None:
        raise failure
    if not int(succeeded):
        raise RuntimeError("fitting failed on rank 0; its own error says why")
    for tensor in state:
        dist.broadcast(tensor.detach(), src=0)


def _plus_plus(x: Tensor, norms: Tensor, clusters: int, seed: int) -> Tensor:
    """k-means++: each next centre a row drawn with probability proportional to its squared distance to those so far."""
    generator = torch.Generator().manual_seed(seed)
    first = int(torch.randint(len(x), (1,), generator=generator))
    chosen = [first]
    nearest = _to_row(x, norms, first)
    for _ in range(clusters - 1):
        shares = nearest.double().cpu().cumsum(0)
        point = float(torch.rand((), generator=generator, dtype=torch.float64)) * float(shares[-1])
        row = min(int(torch.searchsorted(shares, point, right=True)), len(x) - 1)
        chosen.append(row)
        nearest = torch.minimum(nearest, _to_row(x, norms, row))
    return x[torch.tensor(chosen, device=x.device)]


def _to_row(x: Tensor, norms: Tensor, row: int) -> Tensor:
    """The squared distance of every row to one of them."""
    squared = (norms + norms[row] - 2 * (x @ x[row])).clamp_min(0)
    # What rounding leaves of no distance at all would let a copy of the row be drawn beside it.
    return squared.masked_fill(squared <= 1e-12 * (norms + norms[row]), 0)


def lloyd(x: Tensor, norms: Tensor, centres: Tensor, max_iterations: int) -> tuple[Tensor, Tensor, float]:
    """k-means from given centres; ``norms`` are the squared lengths of the rows. Centres, labels, sum of squares."""
    labels = torch.full((len(x),), -1, device=x.device)
    for _ in range(max_iterations):
        nearest, assigned = (centres.square().sum(1) - 2 * (x @ centres.T)).min(1)
        distance = (norms + nearest).clamp_min(0)
        assigned = _without_empty(assigned, distance, len(centres))
        if torch.equal(assigned, labels):
            break
        labels = assigned
        centres = _cluster_means(x, labels, len(centres))
    inertia = float((x - centres[labels]).square().sum())
    return centres, labels, inertia


def _without_empty(labels: Tensor, distance: Tensor, clusters: int) -> Tensor:
    """Give each empty cluster the row that lies farthest from its own centre, in a cluster that can spare it."""
    counts = torch.bincount(labels, minlength=clusters)
    for empty in torch.nonzero(counts == 0).flatten().tolist():
        spare = counts[labels] > 1
        row = int(torch.where(spare, distance, -1.0).argmax())
        counts[labels[row]] -= 1
        counts[empty] += 1
        labels[row] = empty
        distance[row] = 0
    return labels


def _cluster_means(x: Tensor, labels: Tensor, clusters: int) -> Tensor:
    members = (labels == torch.arange(clusters, device=x.device).unsqueeze(1)).to(x.dtype)
    return (members @ x) / members.sum(1, keepdim=True).clamp_min(1)


def _draw(candidates: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """``count`` of the candidates at random, without repetition while there are enough."""
    if len(candidates) >= count:
        picked = torch.randperm(len(candidates), generator=generator)[:count]
    else:
        picked = torch.randint(len(candidates), (count,), generator=generator)
    return candidates[picked.to(candidates.device)]


INITIALISERS: dict[str, Initialiser] = {"kmeans": kmeans_bases, "random": random_bases, "paper": paper_bases}


# torch.quantile refuses more values than this.
_QUANTILE_LIMIT = 2**24

_UNFITTED = 2e4  # beyond any residual, so that an unfitted layer never falls back


class Coverage(Scalars):
    """How familiar a sample is, from 1 (like the training data) to 0 (unlike anything the bases express).

    ``c = clip((q97 - r) / max(q97 - q50, eps), 0, 1)`` of the residual r, with quantiles of training residuals.

    Before ``fit`` every sample is covered: c = 1.
    """

    q50: Tensor
    q97: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_scalar("q50", _UNFITTED / 2)
        self.add_scalar("q97", _UNFITTED)

    @property
    def fitted(self) -> bool:
        """Whether quantiles were taken of data."""
        return float(self.q97) < 0.99 * _UNFITTED  # half precision rounds it

    def forward(self, residual: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        q50, q97 = self.q50.to(residual.dtype), self.q97.to(residual.dtype)
        width = (q97 - q50).clamp_min(torch.finfo(residual.dtype).eps)
        return ((q97 - residual) / width).clamp(0, 1)

    @torch.no_grad()
    def fit(self, residual: Float[Tensor, " rows"]) -> None:
        """Set the quantiles from the residuals of training data."""
        kept = residual.detach().flatten()
        kept = kept[:: 1 + kept.numel() // _QUANTILE_LIMIT]
        levels = torch.tensor([0.5, 0.97], dtype=kept.dtype, device=kept.device)
        q50, q97 = torch.quantile(kept, levels)
        self.q50.copy_(q50)
        self.q97.copy_(q97)

    def extra_repr(self) -> str:
        return f"q50={shown(self.q50)}, q97={shown(self.q97)}"
