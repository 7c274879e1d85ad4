"""CORAL: features whose mean and covariance are the same in every source domain."""

from __future__ import annotations

from typing import Annotated

from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from gated_domains.data.batches import DomainBatch
from gated_domains.layer.kernels import at_least_float32, autocast_off
from gated_domains.methods.across_domains import AcrossDomains
from gated_domains.methods.by_domain import membership, rows_of_all, told_apart
from gated_domains.methods.erm import ERMSettings
from gated_domains.methods.method import Terms
from gated_domains.settings.search import Between


class CORALSettings(ERMSettings):
    """``weight`` is that of the penalty beside the loss."""

    weight: Annotated[float, Between(0.1, 10, log=True)] = Field(default=1.0, ge=0)


class CORAL(AcrossDomains):
    """``mean_i loss_i + weight * mean_{a<b} (|mu_a - mu_b|^2 / d + |C_a - C_b|^2 / d^2)`` over pairs of source domains.

    mu_a and C_a are the mean and the covariance (by n - 1) of the d features of a domain's rows in the batch; a domain
    with one row has no covariance and is left out. B. Sun and K. Saenko (2016), "Deep CORAL: correlation alignment for
    deep domain adaptation"; with means as well, and over all pairs of sources, as domain generalisation uses it.

    The penalty bears on the body alone: on frozen features nothing could move it and CORAL would be ERM, so there is no
    such mode.
    """

    name = "coral"
    label = "CORAL"
    what = "ERM, and a penalty on source domains whose features differ in mean or covariance"
    settings_type = CORALSettings
    modes = ("end_to_end",)

    settings: CORALSettings

    def objective(self, batch: DomainBatch) -> Terms:
        features = self.backbone(batch.inputs).features
        apart = moments_apart(features, *told_apart(batch, len(self.rows)))
        out = self.of_features(features)
        return {
            "task": self.task.loss(out, batch.targets),
            "coral": self.settings.weight * apart,
            **self.consistency(out, batch),
        }


def moments_apart(
    features: Float[Tensor, "batch features"], domains: Int64[Tensor, " batch"], count: int
) -> Float[Tensor, ""]:
    """The mean over pairs of domains of ``|mu_a - mu_b|^2 / d + |C_a - C_b|^2 / d^2``, over all processes.

    For P vectors v the mean over pairs of ``|v_a - v_b|^2`` is ``2 / (P - 1) sum_a |v_a - mean v|^2``: no pairs.
    And with centred rows ``<C_a, C_b> = sum_{i in a, j in b} (x_i . x_j)^2 / ((n_a - 1) (n_b - 1))``: no covariances,
    which for 2,048 features would have four million entries each, many times what a batch has.
    """
    with autocast_off(features):
        x, width = rows_of_all(at_least_float32(features)), features.shape[1]
        which = membership(rows_of_all(domains), count, like=x)
        rows = which.sum(0)
        several = (rows > 1).to(x.dtype)
        many, fewer = several.sum().clamp_min(1), several.sum().sub(1).clamp_min(1)
        means = (which.T @ x) / rows.clamp_min(1).unsqueeze(1)
        shares = which * (several / rows.sub(1).clamp_min(1))
        centred = x - which @ means
        middle = (several @ means) / many
        between_means = (several @ (means - middle).square()).sum()
        products = shares.T @ (centred @ centred.T).square() @ shares
        between_covariances = products.diagonal().sum() - products.sum() / many
    return 2 / fewer * (between_means / width + between_covariances / width**2)
