"""Is a new site unlike what the model has seen, what is it made of, and how will the model do there."""

from gated_domains.insight.shift.accuracy import AccuracyCalibration, AccuracyEstimate, LeftOut, calibrate_accuracy
from gated_domains.insight.shift.fallback import Fallback, fallback
from gated_domains.insight.shift.mixture import SiteMixture, site_mixture
from gated_domains.insight.shift.novelty import auroc, batch_novelty, sample_novelty
from gated_domains.insight.shift.outside import Outside, outside_span
from gated_domains.insight.shift.simplex import project_on_simplex
from gated_domains.insight.shift.two_sample import TwoSample, two_sample_test

__all__ = [
    "AccuracyCalibration",
    "AccuracyEstimate",
    "Fallback",
    "LeftOut",
    "Outside",
    "SiteMixture",
    "TwoSample",
    "auroc",
    "batch_novelty",
    "calibrate_accuracy",
    "fallback",
    "outside_span",
    "project_on_simplex",
    "sample_novelty",
    "site_mixture",
    "two_sample_test",
]
