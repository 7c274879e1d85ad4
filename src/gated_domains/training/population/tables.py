"""The features that members are trained on, and batches of all members at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gated_domains.training.loop import Training

Picks = Tensor
"""Rows of each member's own table: ``(members, rows)``."""


class Tables:
    """The tables of features of all members, each there once, however many stand on it.

    On a GPU with room for it, several are put together into one, of which each of the samples then holds its part: one
    gather makes a batch of all members, where there would be as many as members.
    """

    def __init__(self, members: Sequence[Training]) -> None:
        samples = {id(member.material.samples): cast(Any, member.material.samples) for member in members}
        self.own: list[Tensor] = [samples[id(member.material.samples)].values for member in members]
        device = members[0].device
        starts = dict(zip(samples, np.cumsum([0, *map(len, samples.values())]).tolist(), strict=False))
        placed = [[starts[id(member.material.samples)]] for member in members]
        self.starts = torch.tensor(placed, dtype=torch.int32, device=device)
        self.targets = torch.cat([one.targets for one in samples.values()])
        self.whole: Tensor | None = self.own[0] if len(samples) == 1 else None
        nbytes = sum(one.values.nbytes for one in samples.values())
        if self.whole is None and device.type == "cuda" and _has_room(nbytes):
            self.whole = torch.cat([one.values for one in samples.values()])
            for key, one in samples.items():
                one.values = self.whole[starts[key] : starts[key] + len(one)]
            self.own = [samples[id(member.material.samples)].values for member in members]

    def inputs(self, picks: Picks, members: Sequence[int] | None = None) -> Tensor:
        """``(members, rows, features)``, of all members or of those numbered."""
        if self.whole is None:
            own = self.own if members is None else [self.own[member] for member in members]
            return torch.stack([table.index_select(0, pick) for table, pick in zip(own, picks, strict=True)])
        return _gathered(self.whole, self._places(picks, members))

    def labels(self, picks: Picks) -> Tensor:
        """The targets of a batch of all members."""
        return _gathered(self.targets, self._places(picks, None))

    def _places(self, picks: Picks, members: Sequence[int] | None) -> Tensor:
        return picks + (self.starts if members is None else self.starts[list(members)])


def _has_room(nbytes: int) -> bool:
    free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return 1.2 * nbytes < free


def _gathered(table: Tensor, places: Tensor) -> Tensor:
    return table.index_select(0, places.flatten()).unflatten(0, places.shape)


class Orders:
    """The rows of every batch of an epoch, drawn once for all members that draw alike."""

    def __init__(self) -> None:
        self._drawn: dict[tuple[int, int, int, int], NDArray[np.int32]] = {}

    def of(self, member: Training, epoch: int) -> NDArray[np.int32]:
        """``(batches, rows)``."""
        key = (member.seed, id(member.material.train), member.settings.batch_size, epoch)
        if key not in self._drawn:
            self._drawn[key] = np.stack(list(member.sampler.batches(epoch))).astype(np.int32)
        return self._drawn[key]

    def forget(self, before: int) -> None:
        """Let go of the epochs before this one."""
        self._drawn = {key: rows for key, rows in self._drawn.items() if key[-1] >= before}
