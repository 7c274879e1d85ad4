"""What to choose before training, from features alone: kernel width, bases and their number, sharpness of the gates.

Needs no torch.
"""

from gated_domains.choose.bases import (
    INITIALISERS,
    Initialiser,
    kmeans_bases,
    paper_bases,
    paper_normal,
    random_bases,
)
from gated_domains.choose.kappa import match_kappa
from gated_domains.choose.num_bases import SCORES, NumBasesCurve, suggest_num_bases
from gated_domains.choose.plots import plot_num_bases, plot_sigma
from gated_domains.choose.sigma import SigmaSuggestion, suggest_sigma

__all__ = [
    "INITIALISERS",
    "SCORES",
    "Initialiser",
    "NumBasesCurve",
    "SigmaSuggestion",
    "kmeans_bases",
    "match_kappa",
    "paper_bases",
    "paper_normal",
    "plot_num_bases",
    "plot_sigma",
    "random_bases",
    "suggest_num_bases",
    "suggest_sigma",
]
