"""LISA: samples mixed with others of the same label from another domain, or of another label from the same domain."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from jaxtyping import Bool, Float, Int64, Shaped
from pydantic import Field
from torch import Tensor
from torch.distributions import Beta

from gated_domains.backbones.backbone import Backbone
from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.layer.kernels import at_least_float32
from gated_domains.methods.across_domains import AcrossDomains
from gated_domains.methods.by_domain import domains_of
from gated_domains.methods.erm import ERMSettings
from gated_domains.methods.method import Mode, Problem, Terms, source_domains
from gated_domains.settings.search import Between

Mix = Literal["inputs", "features", "cutmix"]


class LISASettings(ERMSettings):
    """``intra_label`` is the probability that a batch is mixed within labels, across domains; else within domains.

    1 is what the authors use where domains differ, 0.5 where classes are correlated with domains. Shares are drawn from
    Beta(``alpha``, ``alpha``). ``mix`` says what is mixed: the inputs (images, vectors, embeddings of text), the
    features that the body makes of them, or by "cutmix" boxes of images. On a frozen body it is always its features,
    and of tokens and graphs, which have no mean, it is those of the body.
    """

    intra_label: Annotated[float, Between(0.0, 1.0)] = Field(default=1.0, ge=0, le=1)
    alpha: Annotated[float, Between(0.5, 4.0, log=True)] = Field(default=2.0, gt=0)
    mix: Mix = "inputs"


class LISA(AcrossDomains):
    """``mean_i s_i loss(f(x~_i), y_i) + (1 - s_i) loss(f(x~_i), y_j(i))`` with ``x~_i = s_i x_i + (1 - s_i) x_j(i)``.

    The partner j(i) is a random row of the batch with the label of i and another domain (intra-label), or with the
    domain of i and another label (intra-domain). One draw decides for a whole batch, as in the paper; shares ``s_i ~
    Beta(alpha, alpha)`` are drawn for each row. A row without a partner stays as it is (Yao et al., 2022, "Improving
    Out-of-Distribution Robustness via Selective Augmentation").

    Numbers have no labels to share, and of many labels hardly two rows share all: they are mixed within domains alone,
    with any other row. For squared errors the gradient is then that of the mixed target.

    Where groups tell classes apart (``group_by``), no row has a partner in its own domain: batches mixed within domains
    then stay as they are. Batches are of a few domains with many rows each: with many domains of few rows hardly any
    row would find a partner in its own.
    """

    name = "lisa"
    label = "LISA"
    what = "samples mixed with others of the same label from another domain, or of another label from the same domain"
    settings_type = LISASettings

    settings: LISASettings

    @classmethod
    def build(cls, settings: Any, problem: Problem, *, mode: Mode) -> LISA:
        source_domains(problem, cls)
        if mode == "fine_tune":
            settings = settings.model_copy(update={"mix": "features"})
        if problem.kind in ("tokens", "graphs") and settings.mix == "inputs":
            settings = settings.model_copy(update={"mix": "features"})  # half of one token and half of another is none
        if settings.mix == "cutmix" and len(problem.shape) != 3:
            raise DataError("mix=cutmix cuts boxes out of images, and these are vectors; choose inputs or features")
        return cls(Backbone(problem.make_body()), problem.outputs, problem.task, settings, rows=problem.domains)

    def objective(self, batch: DomainBatch) -> Terms:
        inputs, targets, chosen = batch.inputs, batch.targets, self.settings
        within_labels = torch.rand((), device=inputs.device) < chosen.intra_label
        partners = random_partners(targets, domains_of(batch), within_labels=within_labels)
        spread = torch.full(targets.shape[:1], chosen.alpha, dtype=at_least_float32(inputs).dtype, device=inputs.device)
        shares = Beta(spread, spread, validate_args=False).sample()  # checks would make the host wait for the GPU
        if chosen.mix == "features":
            features = self.backbone(inputs).features
            out = self.of_features(mixed(features, features[partners], shares))
        elif chosen.mix == "inputs":
            out = self.logits(mixed(inputs, inputs[partners], shares))
        else:
            inputs, shares = cut_and_pasted(inputs, inputs[partners], shares)
            out = self.logits(inputs)
        own, other = (self.task.losses(out, wanted) for wanted in (targets, targets[partners]))
        terms = {"task": torch.lerp(other, own, shares.to(own)).mean()}
        if batch.soft_targets is None:
            return terms
        # A teacher predicts samples as they are, so those are what its predictions are compared with.
        plain = self.of_features(features) if chosen.mix == "features" else self.logits(batch.inputs)
        return {**terms, **self.consistency(plain, batch)}

    def per_rank(self) -> list[str]:
        return [*super().per_rank(), "partners that samples are mixed with"]


def random_partners(
    targets: Shaped[Tensor, "batch *labels"], domains: Int64[Tensor, " batch"], *, within_labels: Bool[Tensor, ""]
) -> Int64[Tensor, " batch"]:
    """A random row to mix each row with, among those that may be; the row itself where none may."""
    itself = torch.eye(len(targets), dtype=torch.bool, device=targets.device)
    same_domain = domains.unsqueeze(1) == domains
    if targets.is_floating_point():
        allowed = same_domain & ~itself
    else:
        same_label = targets.unsqueeze(1) == targets
        allowed = torch.where(within_labels, same_label & ~same_domain, same_domain & ~same_label)
    scores = torch.rand(allowed.shape, device=targets.device)
    return torch.where(allowed, 2 + scores, itself.to(scores)).argmax(1)


def mixed(
    own: Float[Tensor, "batch *sample"], other: Float[Tensor, "batch *sample"], shares: Float[Tensor, " batch"]
) -> Float[Tensor, "batch *sample"]:
    """``s own + (1 - s) other``."""
    own, other = at_least_float32(own), at_least_float32(other)
    return torch.lerp(other, own, shares.to(own).reshape(-1, *(1 for _ in own.shape[1:])))


def cut_and_pasted(
    own: Float[Tensor, "batch channels height width"],
    other: Float[Tensor, "batch channels height width"],
    shares: Float[Tensor, " batch"],
) -> tuple[Float[Tensor, "batch channels height width"], Float[Tensor, " batch"]]:
    """Images with a box of others, ``1 - s`` of the area where no border cuts it; and the shares that are left."""
    sides = (1 - shares).sqrt()
    rows, columns = (_within(size, sides) for size in own.shape[2:])
    pasted = rows.unsqueeze(2) & columns.unsqueeze(1)
    return torch.where(pasted.unsqueeze(1), other, own), 1 - pasted.to(shares).mean((1, 2))


def _within(size: int, sides: Float[Tensor, " batch"]) -> Bool[Tensor, "batch {size}"]:
    """Which of so many pixels lie in a stretch around a random middle; ``sides`` are its lengths, as shares of all."""
    middles = torch.rand(len(sides), 1, device=sides.device)
    places = (torch.arange(size, device=sides.device) + 0.5) / size
    return (places - middles).abs() < sides.unsqueeze(1) / 2
