"""What gates follow: the domain or the class of a row, where both are known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.insight.doctor.cures import CURES
from gated_domains.insight.doctor.findings import Finding
from gated_domains.insight.doctor.measures import ROWS, Seen, input_information
from gated_domains.layer.fitting import subsample

CLASS_FOLLOWED = 0.1
"""Of what gates tell of the input: a class that explains less than this is no trouble. A convention."""
SIGNIFICANT = 0.05
_PERMUTATIONS = 199


class Explained(NamedTuple):
    """How much labels explain of the gates."""

    information: float
    """I(J; L), in nats."""
    chance: float
    """Its mean over permuted labels: what so few rows would show of labels that mean nothing."""
    p_value: float
    share: float
    """``(information - chance) / I(J; X)``, not below 0: of what gates tell of the input."""


def follows(seen: Seen, domains: NDArray[Any], classes: NDArray[Any] | None, *, seed: int = 0) -> Finding | None:
    """Whether gates follow domains or classes; None where there is one domain only, or gates tell nothing.

    Features of a last layer cluster by class, and gates on them choose an expert by what it is to predict.
    """
    own = _codes(domains, seed)
    whole = input_information(seen.beta)
    if int(own.max()) < 1 or whole <= 1e-9:
        return None
    by_domain = explained(seen.beta, own, whole=whole, seed=seed)
    value: dict[str, Any] = {"input_information": whole, "domain": by_domain._asdict()}
    says = f"of what gates tell of the input, {_words(by_domain)} is explained by the domain"
    if classes is None:
        return Finding(name="domain or class", level="ok", value=value, says=says)
    by_class = explained(seen.beta, _codes(classes, seed), whole=whole, seed=seed)
    value |= {"class": by_class._asdict(), "class_followed_above": CLASS_FOLLOWED}
    says += f", {_words(by_class)} by the class"
    if by_class.share <= max(by_domain.share, CLASS_FOLLOWED) or by_class.p_value > SIGNIFICANT:
        return Finding(name="domain or class", level="ok", value=value, says=says)
    return Finding(
        name="domain or class",
        level="look",
        value=value,
        says=f"gates follow the class more than the domain ({says})",
        cures=CURES["class rather than domain"],
    )


def explained(
    beta: Float[Tensor, "rows bases"], labels: Int64[Tensor, " rows"], *, whole: float, seed: int = 0
) -> Explained:
    """The mutual information of gates and labels, beside that of the same labels in random order."""
    rng = np.random.default_rng(seed)
    found = mutual_information(beta, labels)
    shuffled = [
        mutual_information(beta, labels[torch.from_numpy(rng.permutation(len(labels)))]) for _ in range(_PERMUTATIONS)
    ]
    chance = float(np.mean(shuffled))
    p_value = (1 + sum(other >= found for other in shuffled)) / (1 + _PERMUTATIONS)
    return Explained(found, chance, p_value, max(0.0, found - chance) / whole)


def mutual_information(beta: Float[Tensor, "rows bases"], labels: Int64[Tensor, " rows"]) -> float:
    """``I(J; L) = sum_l p(l) KL(p(. | l) || p(.))`` in nats, with ``p(j | l)`` the mean beta of the rows with label l.

    J is a basis drawn with the probabilities beta of a row. It is never more than ``I(J; X)``, as J depends on a label
    through the row alone.
    """
    counts = torch.bincount(labels).to(beta)
    sums = beta.new_zeros(len(counts), beta.shape[1]).index_add_(0, labels, beta)
    there = counts > 0
    of_label = sums[there] / counts[there, None]
    divergence = (torch.special.xlogy(of_label, of_label) - torch.special.xlogy(of_label, beta.mean(0))).sum(1)
    return float((counts[there] / len(labels)) @ divergence)


def _codes(labels: NDArray[Any], seed: int) -> Int64[Tensor, " rows"]:
    """Labels as numbers from 0, of the rows that were looked at."""
    codes = torch.from_numpy(np.unique(labels, return_inverse=True)[1].astype(np.float64))
    return subsample(codes.unsqueeze(-1), ROWS, seed).squeeze(-1).long()


def _words(found: Explained) -> str:
    return f"{found.share:.0%}{'' if found.p_value <= SIGNIFICANT else ' (not significant)'}"
