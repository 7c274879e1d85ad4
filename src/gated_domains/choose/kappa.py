"""The sharpness kappa of softmax gates, from the similarities that they weigh."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, softmax

_HALVINGS = 50


def match_kappa(similarity: ArrayLike, *, entropy: float = 0.5, low: float = 1e-3, high: float = 1e6) -> float:
    """The kappa for which the mean entropy of ``softmax(kappa H)`` is ``entropy * log M``, by bisection.

    ``H`` has a row for each sample and a column for each of the M bases. So gates are never dead and never one-hot by
    accident. Entropy falls as kappa grows; a target out of reach between ``low`` and ``high`` gives the nearer end.
    For one basis, 1.
    """
    if not 0 < entropy < 1:
        raise ValueError(f"entropy is a share of log M between 0 and 1, got {entropy}")
    if not 0 < low < high < math.inf:
        raise ValueError(f"kappa is sought between low and high, 0 < low < high, got low={low} and high={high}")
    h = np.asarray(similarity, dtype=np.float64)
    if h.ndim != 2 or h.size == 0:
        raise ValueError(f"expected similarities with shape (rows, bases), at least one of each, got shape {h.shape}")
    if not np.isfinite(h).all():
        broken = int((~np.isfinite(h)).any(axis=1).sum())
        raise ValueError(f"similarities hold NaN or infinity in {broken} of {len(h)} rows; leave out bases not in use")
    if h.shape[1] == 1:
        return 1.0
    wanted = entropy * math.log(h.shape[1])
    bottom, top = math.log(low), math.log(high)
    for _ in range(_HALVINGS):
        middle = (bottom + top) / 2
        mean_entropy = float(entr(softmax(math.exp(middle) * h, axis=1)).sum(axis=1).mean())
        bottom, top = (middle, top) if mean_entropy > wanted else (bottom, middle)
    return math.exp((bottom + top) / 2)
