"""MixStyle in a training: which styles its rows have, and who is told of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from lightning_fabric import Fabric
from torch import Tensor

from gated_domains.backbones.backbone import Backbone
from gated_domains.backbones.mixstyle import StyleMixer, mix_styles, mixes_by_domain
from gated_domains.data.batches import DomainBatch, Samples
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Rows
from gated_domains.data.labels import CLASS, Groups, groups_among
from gated_domains.data.sampling import InOrder
from gated_domains.methods.method import Method, Objective, Terms
from gated_domains.training.engine import as_computed

_AT_ONCE = 512


class Mixing:
    """Steps of a method with styles mixed. The mixer learns the domains of a batch, whatever the method may know.

    ``styles`` says of each of a batch's groups which style its rows have; None where that is not asked for.
    """

    def __init__(self, mixer: StyleMixer, styles: Tensor | None) -> None:
        self.mixer, self.styles = mixer, styles

    def step(self, method: Method, objective: Objective, batch: DomainBatch, optimizer: torch.optim.Optimizer) -> Terms:
        """One step of the method."""
        with self.mixer.told(self._styles(batch)):
            own = batch if method.uses_domains else batch.without_domains()
            return method.step(_Telling(self, objective), own, optimizer)

    def told(self, batch: DomainBatch) -> AbstractContextManager[None]:
        """Inside, the body is called with these rows; where their domains are not known, with those told before."""
        return nullcontext() if batch.domains is None else self.mixer.told(self._styles(batch))

    def notes(self, world: int) -> tuple[str, ...]:
        """What differs from one process with the same batch."""
        if world == 1 or self.mixer.needs_domains:
            return ()
        return (f"with {world} processes, styles are mixed within each process's share of a batch",)

    def _styles(self, batch: DomainBatch) -> Tensor | None:
        if batch.domains is None or self.styles is None:
            return None
        return self.styles.index_select(0, batch.domains)


class _Telling:
    """An objective that a step may call with parts of its batch: the mixer is told whose rows those are."""

    def __init__(self, mixing: Mixing, objective: Objective) -> None:
        self.mixing, self.objective = mixing, objective

    def __call__(self, batch: DomainBatch) -> Terms:
        with self.mixing.told(batch):
            return self.objective(batch)

    def backward(self, loss: Tensor) -> None:
        self.objective.backward(loss)


def styles_among(dataset: DomainDataset, train: Rows, group_by: tuple[str, ...]) -> Groups | None:
    """What stands for the domains whose styles are mixed: the groups of the training, but for the class."""
    by = tuple(column for column in group_by if column != CLASS)
    if group_by and not by:
        raise DataError(
            "mixstyle mixes vectors between domains, and groups by class say nothing of those; group by both"
        )
    return groups_among(dataset, train, by)


def start_mixing(
    method: Method,
    probability: float,
    *,
    dataset: DomainDataset,
    samples: Samples,
    train: Rows,
    group_by: tuple[str, ...],
    fabric: Fabric,
) -> Mixing:
    """Put a mixer on the method's backbone, where it stays until it is removed.

    Rows are grouped as the training groups them, but for the class: styles of two classes are not to be mixed.
    """
    backbone = method.backbone
    if not isinstance(backbone, Backbone):
        raise DataError(
            f"mixstyle stands on the body of a backbone, and that of {method.label} is a {type(backbone).__name__}; "
            "leave mixstyle out"
        )
    if not mixes_by_domain(backbone):
        return Mixing(mix_styles(backbone, probability), None)
    groups, styles = groups_among(dataset, train, group_by), styles_among(dataset, train, group_by)
    if groups is None or styles is None:
        return Mixing(mix_styles(backbone, probability), None)
    style_of_group = torch.zeros(len(groups), dtype=torch.int64)
    style_of_group[torch.from_numpy(groups.index[train])] = torch.from_numpy(styles.index[train])
    index = torch.from_numpy(styles.index).to(samples.device)

    def rows() -> Iterator[tuple[Tensor, Tensor]]:
        for batch in samples.batches(InOrder(train, _AT_ONCE), groups=index):
            assert batch.domains is not None
            yield as_computed(batch.inputs, fabric), batch.domains

    mixer = mix_styles(backbone, probability, domains=len(styles), training_rows=rows)
    return Mixing(mixer, style_of_group.to(samples.device))
