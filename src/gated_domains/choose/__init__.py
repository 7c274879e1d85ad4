"""What to choose before training, from features alone: the number of bases and the kernel width. Needs no torch."""

from gated_domains.choose.num_bases import SCORES, NumBasesCurve, suggest_num_bases
from gated_domains.choose.plots import plot_num_bases, plot_sigma
from gated_domains.choose.sigma import SigmaSuggestion, suggest_sigma

__all__ = [
    "SCORES",
    "NumBasesCurve",
    "SigmaSuggestion",
    "plot_num_bases",
    "plot_sigma",
    "suggest_num_bases",
    "suggest_sigma",
]
