"""What the methods that compare source domains share: ERM's network, and the risk of each domain."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from gated_domains.backbones.backbone import Backbone
from gated_domains.data.batches import DomainBatch
from gated_domains.data.sampling import Sampling
from gated_domains.layer.experts import Logits, Task
from gated_domains.methods.by_domain import DomainMeans, domain_means, domains_of
from gated_domains.methods.erm import ERM
from gated_domains.methods.method import Mode, Problem, source_domains

Own = TypeVar("Own", bound="AcrossDomains")


class AcrossDomains(ERM):
    """The network of ERM, trained with the source domain of every row known; it predicts without.

    ``rows`` are the training rows of each source domain.
    """

    uses_domains = True
    sampling: ClassVar[Sampling] = "groups"

    settings: Any

    def __init__(self, backbone: Backbone, outputs: int, task: Task, settings: Any, *, rows: tuple[int, ...]) -> None:
        super().__init__(backbone, outputs, task, tanh=settings.activation == "tanh")
        self.settings, self.rows = settings, rows

    @classmethod
    def build(cls: type[Own], settings: Any, problem: Problem, *, mode: Mode) -> Own:
        source_domains(problem, cls)
        return cls(Backbone(problem.make_body()), problem.outputs, problem.task, settings, rows=problem.domains)

    def risks(self, out: Logits, batch: DomainBatch) -> DomainMeans:
        """The mean loss of each source domain in the batch."""
        return domain_means(self.task.losses(out, batch.targets), domains_of(batch), len(self.rows))
