"""What helps, by trouble and by where the model was made: the shell, an estimator, or somebody's own PyTorch code."""

from __future__ import annotations

from typing import Literal, NamedTuple

Origin = Literal["run", "paper", "estimator", "layer"]
"""A run of the command line, one of ``gdu-paper``, a fitted estimator, a layer in PyTorch code."""

_TO_GDU = "train with --method gdu, which fits bases, sigma and kappa to the data; gdu-paper takes them from no data"


class Cure(NamedTuple):
    """One thing to do for each origin. Numbers in braces are filled in by ``given``."""

    run: str
    estimator: str
    layer: str
    paper: str = _TO_GDU

    def given(self, **numbers: int | float) -> Cure:
        """With these numbers in place of their names in braces."""
        return Cure(*(text.format(**numbers) for text in self))

    def at(self, origin: Origin) -> str:
        """The one that can be carried out there."""
        text: str = getattr(self, origin)
        return text


CURES: dict[str, Cure] = {
    "one basis": Cure(
        run="train with two bases or more: --method 'gdu[num_bases=5]'; with one it is a linear head",
        estimator="fit with num_bases='auto'; with one basis it is a linear model",
        layer="use two bases or more (num_bases), or a linear head, which is the same model",
        paper="train with two bases or more: --method 'gdu-paper[num_bases=10]'; with one it is an ordinary head",
    ),
    "gates asleep": Cure(
        run="leave kappa and sigma out, so that both come from the data, gate on the raw input and sharpen the gates: "
        "--method 'gdu[gating=auto,entropy=0.3]'",
        estimator="fit with kappa='auto' and sigma='median', which take both from the data",
        layer="call fit_bases with kappa=None to match kappa to the data, or start the bases from data",
    ),
    "projection asleep": Cure(
        run="take a gate for which bases may overlap: --method 'gdu[gate=cosine]'",
        estimator="take a gate for which bases may overlap: fit with gate='cosine'",
        layer="take a gate for which bases may overlap: CosineGate, MMDGate, or ProjectionGate(ridge=1e-3)",
    ),
    "far from every basis": Cure(
        run="widen the kernel: leave sigma out and train with --method 'gdu[sigma_of_median=1]'",
        estimator="fit with sigma='median', the median distance of rows",
        layer="raise sigma (fit_bases with sigma=None takes the median distance) or start the bases from data",
    ),
    "near every basis": Cure(
        run="narrow the kernel: leave sigma out and train with --method 'gdu[sigma_of_median=0.25]'",
        estimator="fit with sigma='median', the median distance of rows",
        layer="lower sigma (fit_bases with sigma=None takes the median distance)",
    ),
    "one-hot gates": Cure(
        run="soften the gates: leave kappa out and train with --method 'gdu[entropy=0.7]'",
        estimator="soften the gates: fit with kappa={kappa:.3g}",
        layer="lower kappa, or refit it: fit_bases with kappa=None",
    ),
    "uniform gates": Cure(
        run="sharpen the gates: leave kappa out and train with --method 'gdu[entropy=0.3]'",
        estimator="sharpen the gates: fit with kappa={kappa:.3g}",
        layer="raise kappa, or refit it: fit_bases with kappa=None",
    ),
    "few bases in use": Cure(
        run="use fewer bases: --method 'gdu[num_bases={fewer}]'",
        estimator="use fewer bases: fit with num_bases={fewer}",
        layer="use fewer bases (num_bases={fewer}), or start them from data again (fit_bases)",
    ),
    "dead bases": Cure(
        run="use fewer bases, or softer gates: --method 'gdu[num_bases={fewer}]' or 'gdu[entropy=0.7]'",
        estimator="use fewer bases: fit with num_bases={fewer}",
        layer="use fewer bases (num_bases={fewer}) or a smaller kappa",
    ),
    "duplicate bases": Cure(
        run="use fewer bases, or push them apart: --method 'gdu[num_bases={fewer}]' or 'gdu[lambda_orth=0.01]'",
        estimator="use fewer bases: fit with num_bases={fewer}",
        layer="use fewer bases (num_bases={fewer}), or add lambda_orth to push them apart",
    ),
    "all bases alike": Cure(
        run="narrow the kernel: leave sigma out and train with --method 'gdu[sigma_of_median=0.25]'",
        estimator="fit with sigma='median'; where rows are all alike, gates have nothing to tell apart",
        layer="start them from data (fit_bases), with a smaller sigma where it is large",
    ),
    "collapsed bases": Cure(
        run="use fewer bases, so that each has rows of its own: --method 'gdu[num_bases={fewer}]'",
        estimator="use fewer bases, so that each has rows of its own: fit with num_bases={fewer}",
        layer="start them from data (fit_bases); an orthogonality penalty towards the identity pulls vectors together: "
        "leave orthogonality_target at 'diagonal'",
        paper="switch the orthogonality penalty off, which pulls vectors together: "
        "--method 'gdu-paper[lambda_orth=0]'; or train with --method gdu",
    ),
    "overlapping bases": Cure(
        run="take a gate that needs no orthogonality: --method 'gdu[gate=cosine]'",
        estimator="take a gate that needs no orthogonality: fit with gate='cosine'",
        layer="take ProjectionGate(ridge=1e-3), which needs no orthogonality, or raise lambda_orth",
    ),
    "sigma": Cure(
        run="leave sigma out, so that it comes from the data, or train with --method 'gdu[sigma={typical:.3g}]'",
        estimator="fit with sigma='median'",
        layer="take half to once the median distance: fit_bases with sigma={typical:.3g}, and kappa=None with it",
    ),
    "kappa": Cure(
        run="leave kappa out, so that it comes from the data, or train with --method 'gdu[kappa={kappa:.3g}]'; where "
        "that number is huge, bases lie far from the data: 'gdu[gating=auto]'",
        estimator="fit with kappa='auto'",
        layer="refit it: fit_bases with kappa=None; where the matched one is huge, bases lie far from the data",
    ),
    "familiarity never fitted": Cure(
        run="train again, which fits it: --method gdu",
        estimator="fit again, which fits it",
        layer="call fit_coverage (or fit_bases) with training rows",
    ),
    "familiarity out of date": Cure(
        run="let gates see the raw input, which does not move in training: --method 'gdu[gating=auto]'",
        estimator="fit again on these rows, and on those of every domain that is to be familiar",
        layer="renew the quantiles: fit_coverage with training rows, after the bases have moved",
    ),
    "class rather than domain": Cure(
        run="let gates see the raw input, where style is, instead of features that cluster by class: "
        "--method 'gdu[gating=auto]'",
        estimator="gates see the columns of X: leave out those that tell the class rather than the site, or train a "
        "network at the shell: --method 'gdu[gating=auto]'",
        layer="let gates see the raw input or the style of an early layer: replace_head(model, gating=..., example=x)",
        paper="gates on features of the last layer cluster by class: let them see the raw input, --method gdu",
    ),
    "linear head is better": Cure(
        run="train longer (--epochs), keep the deviations smaller (--method 'gdu[lambda_dev=1]'), or take the linear "
        "head (--method erm)",
        estimator="keep the deviations smaller (fit with deviation_alpha=0.1), or take ERMClassifier or ERMRegressor",
        layer="train longer, keep the deviations smaller (lambda_dev=1), or take the linear head",
        paper="train longer (--epochs), or take the linear head (--method erm)",
    ),
    "linear head is not worse": Cure(
        run="take the simpler model (--method erm), or show over several seeds and domains that gates help: "
        "gated-domains compare DATA --methods 'gdu,gdu[gates=constant],erm'",
        estimator="take the simpler model, ERMClassifier or ERMRegressor, or show on more domains that gates help",
        layer="take the linear head, or show over several seeds and domains that gates help",
        paper="take the simpler model (--method erm), or show over several seeds and domains that gates help: "
        "gated-domains compare DATA --methods 'gdu-paper,erm-ensemble,erm'",
    ),
    "frozen gates": Cure(
        run="the test of whether gating helps is a model trained with constant gates: "
        "gated-domains compare DATA --methods 'gdu,gdu[gates=constant],erm'",
        estimator="the test of whether gating helps is a model without gates, ERMClassifier or ERMRegressor: with "
        "constant gates this model is linear, too",
        layer="the test of whether gating helps is a model trained with constant gates",
        paper="the test of whether gating helps is an ensemble without gates, and gates that are fitted to the data: "
        "gated-domains compare DATA --methods 'gdu-paper,erm-ensemble,gdu'",
    ),
}
"""By trouble. Settings, parameters and calls that are named here exist: a test asks for each of them."""
