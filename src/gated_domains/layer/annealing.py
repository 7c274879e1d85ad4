"""Adaptive M: rounds that split, merge and prune the bases of a layer while it is trained, through its mask."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from gated_domains.common.validation import positive
from gated_domains.layer.fitting import drawn_from_clusters, exact, on_first_rank, subsample
from gated_domains.layer.from_data import FitsData
from gated_domains.layer.gates import MMDGate, SoftmaxGate
from gated_domains.layer.kernels import squared_distances
from gated_domains.layer.regrouping import Regrouped, critical_temperature, regroup

Units = TypeVar("Units", bound="Anneals")

ROUNDS = 64
"""How many rounds a layer remembers, and makes at most until it takes itself for settled."""

_ROWS = 10_000  # that a round looks at
_AT_A_TIME = 2_000
_AT_HOME = 0.75  # the share of its vectors that must lie among the rows of a basis, or it is drawn anew


class Adapted(NamedTuple):
    """A round: what it did, how many bases it left, and whether their number is found."""

    round: int
    temperature: float
    splits: int
    merges: int
    prunes: int
    num_bases: int
    settled: bool


class Anneals(FitsData):
    """The part of ``GatedDomainUnits`` that finds the number of bases in training: ``num_bases="adaptive"``.

    A layer begins with one basis. In every round a basis owns the rows nearest to it; one that is wide for the
    temperature is split where its rows fall apart, and both parts keep its expert. See ``regrouping``.
    """

    experts: nn.Module
    annealed: Float[Tensor, "rounds numbers"]

    def _remember_rounds(self) -> None:
        # A buffer, so that a training that is cut goes on as it would have; of adaptive layers alone, so that what
        # others have saved still fits.
        self.register_buffer("annealed", torch.zeros(ROUNDS, len(Adapted._fields)))

    @property
    def history(self) -> list[Adapted]:
        """The rounds since ``fit_bases``, the last 64 of them."""
        rows = self.annealed.tolist() if self.adaptive else []
        return [
            Adapted(int(number), temperature, int(splits), int(merges), int(prunes), int(bases), bool(settled))
            for number, temperature, splits, merges, prunes, bases, settled in rows
            if number > 0
        ]

    @property
    def settled(self) -> bool:
        """Whether the last round found nothing left to do; without adaptive bases there never is."""
        rounds = self.history
        return not self.adaptive or (bool(rounds) and rounds[-1].settled)

    def adapt_bases(
        self,
        features: Shaped[Tensor, "..."],
        *,
        kappa: float | None = None,
        entropy: float = 0.5,
        optimizer: torch.optim.Optimizer | None = None,
        followers: Iterable[Tensor] = (),
        seed: int = 0,
    ) -> Adapted:
        """One round on training rows of the view that gates see; ``fit_bases`` comes first.

        A new basis is some of its rows, with the expert of the basis it was a part of; where bases join, with the mean
        of their experts. So are ``followers``, other tensors with a row for each basis (deviations and moments of gated
        norms), and what ``optimizer`` remembers of them all. sigma stays: the median distance does not depend on M.
        kappa (None: by ``entropy``, as in ``fit_bases``) and coverage are refit. All is written in place; with
        several processes rank 0 decides and the others receive.
        """
        if not self.adaptive:
            raise ValueError(f"these units have {self.num_bases} bases for good; build them with num_bases='adaptive'")
        if kappa is not None and not isinstance(self.gate, SoftmaxGate):
            raise ValueError(f"kappa={kappa} cannot be set: {self.gate} has none; leave kappa out")
        sharpness = None if kappa is None else positive("kappa", kappa)
        takes_over = torch.eye(self.max_bases, device=self.bases.device)

        def adapt() -> None:
            x = subsample(self._fitting_rows(features), _ROWS, seed)
            found = self._regrouped(x)
            if found.changed:
                self._move_in(x, found, seed)
                self._set_kappa(x, sharpness, entropy, seed)
                self._fit_coverage(x, seed)
            for new, shares in found.heirs.items():
                takes_over[new] = 0
                for old, share in shares.items():
                    takes_over[new, old] = share
            self._write_down(found)

        with torch.no_grad():
            on_first_rank(adapt, [self.bases, *self.buffers(), takes_over])
            for tensor in self._handed_on([*followers], optimizer):
                hand_on(tensor, takes_over)
        return self.history[-1]

    def grow_bases(
        self: Units,
        features: Shaped[Tensor, "..."],
        *,
        sigma: float | None = None,
        kappa: float | None = None,
        entropy: float = 0.5,
        seed: int = 0,
    ) -> Units:
        """``fit_bases``, then rounds until the number is found: for rows that are all there before training."""
        self.fit_bases(features, sigma=sigma, kappa=kappa, entropy=entropy, seed=seed)
        while not self.adapt_bases(features, kappa=kappa, entropy=entropy, seed=seed).settled:
            pass
        return self

    def _forget_rounds(self) -> None:
        self.annealed.zero_()

    def _rescale_rounds(self, factor: float) -> None:
        # Temperatures are squared distances.
        self.annealed[:, Adapted._fields.index("temperature")] *= factor**2

    def _regrouped(self, x: Tensor) -> Regrouped:
        """What the next round makes of the rows that each basis owns."""
        rounds = self.history
        rows = exact(x)
        rows = rows - rows.mean(0)
        return regroup(
            rows,
            self._owners(x),
            used=set(torch.nonzero(self.active).flatten().tolist()),
            places=self.max_bases,
            temperature=rounds[-1].temperature if rounds else critical_temperature(rows),
            least=self.basis_size,
            round_=len(rounds) + 1,
        )

    def _owners(self, x: Tensor) -> Int[Tensor, " rows"]:
        """The basis whose embedding is nearest to each row."""
        nearest = [
            MMDGate().similarity(self._products(part)).masked_fill(~self.active, -torch.inf).argmax(-1)
            for part in torch.split(x.to(self.bases.dtype), _AT_A_TIME)
        ]
        return torch.cat(nearest)

    def _move_in(self, x: Tensor, found: Regrouped, seed: int) -> None:
        """Draw bases of rows that changed hands, and of those whose vectors now lie among the rows of others."""
        used = sorted(found.used)
        centres = torch.stack([exact(x[found.groups == place]).mean(0) for place in used])
        drawn = []
        for number, place in enumerate(used):
            nearest = squared_distances(exact(self.bases[place].detach()), centres).argmin(-1)
            if place in found.heirs or float((nearest == number).float().mean()) < _AT_HOME:
                drawn.append(place)
        if drawn:
            moved = torch.isin(found.groups, torch.tensor(drawn, device=x.device))
            labels = torch.unique(found.groups[moved], return_inverse=True)[1]
            bases = drawn_from_clusters(x[moved], labels, self.basis_size, seed)
            self.bases[torch.tensor(drawn, device=self.bases.device)] = bases.to(self.bases.dtype)
        self.active.zero_()
        self.active[torch.tensor(used, device=self.active.device)] = True

    def _write_down(self, found: Regrouped) -> None:
        rounds = self.history
        number = rounds[-1].round + 1 if rounds else 1
        if len(rounds) == ROUNDS:
            self.annealed.copy_(self.annealed.roll(-1, 0))
        counts = found.splits, found.merges, found.prunes, len(found.used)
        done = Adapted(number, found.temperature, *counts, settled=found.over or number >= ROUNDS)
        self.annealed[min(number, ROUNDS) - 1] = torch.tensor(done, dtype=self.annealed.dtype)

    def _handed_on(self, followers: list[Tensor], optimizer: torch.optim.Optimizer | None) -> list[Tensor]:
        """All that has a row for each place, and is not a basis itself."""
        held = [*self.experts.parameters(), *followers]
        state = [tensor for owner in (self.bases, *held) for tensor in _remembered(optimizer, owner)]
        statistics = [buffer for buffer in self.experts.buffers() if buffer.is_floating_point()]
        return [tensor for tensor in (*held, *state, *statistics) if tensor.shape[:1] == (self.max_bases,)]


def _remembered(optimizer: torch.optim.Optimizer | None, parameter: Tensor) -> list[Tensor]:
    """What the optimiser remembers of every single number of a parameter: its moments."""
    state = {} if optimizer is None else optimizer.state.get(parameter, {})
    return [value for value in state.values() if isinstance(value, Tensor) and value.shape == parameter.shape]


@torch.no_grad()
def hand_on(tensor: Shaped[Tensor, "places ..."], takes_over: Float[Tensor, "places before"]) -> None:
    """Make each row the sum of its shares of the rows before, in place; rows that take over themselves stay."""
    shares = takes_over.tolist()
    before = {old: tensor[old].clone() for row in shares for old, share in enumerate(row) if share}
    for new, row in enumerate(shares):
        parts = [share * before[old] for old, share in enumerate(row) if share]
        if row[new] != 1:
            tensor[new] = torch.stack(parts).sum(0)
