"""Units that no longer learn: the Gram matrix of their bases and its inverse are constants of the graph.

ONNX has no operator that solves linear equations. The bases of a trained model do not move, so neither does
``(gram + ridge I)^-1``: it is computed once, in float64, and the exact projection becomes a product with a matrix.
"""

from __future__ import annotations

import copy

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor, nn

from gated_domains.data.errors import DataError
from gated_domains.layer.gates import EXPLAINING_RIDGE, Gate, InnerProducts, ProjectionGate, mean_kernel
from gated_domains.layer.kernels import as_kernel
from gated_domains.layer.units import GatedDomainUnits, Gates


class FrozenProjection(Gate):
    """A projection gate whose equations were solved once, for every right-hand side there may be.

    The product is in float64: the inverse of nearly parallel bases has large entries that all but cancel.
    """

    inverse: Tensor

    def __init__(
        self,
        gate: ProjectionGate,
        gram: Float[Tensor, "bases bases"],
        active: Bool[Tensor, " bases"],
    ) -> None:
        super().__init__()
        self.gate = gate
        ridge = EXPLAINING_RIDGE if gate.ridge is None else gate.ridge
        self.register_buffer("inverse", inverse_gram(gram, ridge, active=active))

    def forward(self, products: InnerProducts) -> Float[Tensor, "*batch bases"]:
        return self.gate(products) if self.gate.ridge is None else self.explaining(products)

    def explaining(self, products: InnerProducts) -> Float[Tensor, "*batch bases"]:
        """The exact projection."""
        return (products.cross.double() @ self.inverse).to(products.cross.dtype)


def inverse_gram(
    gram: Float[Tensor, "bases bases"], ridge: float, *, active: Bool[Tensor, " bases"]
) -> Float64[Tensor, "bases bases"]:
    """``(gram + ridge I)^-1`` of the active bases, with rows and columns of 0 for the others."""
    used = active.unsqueeze(-1) & active
    identity = torch.eye(len(gram), dtype=torch.float64, device=gram.device)
    found, failed = torch.linalg.inv_ex(torch.where(used, gram.double(), identity) + ridge * identity)
    if bool(failed) or not bool(torch.isfinite(found).all()):
        raise DataError(
            f"the Gram matrix of these bases has no inverse (ridge {ridge:g}): some of them are the same; "
            f"train with fewer bases, or with ProjectionGate(ridge={EXPLAINING_RIDGE:g})"
        )
    return torch.where(used, found, 0.0)


class FrozenUnits(GatedDomainUnits):
    """A copy of trained units that compares samples with its bases, and no longer the bases with each other.

    What gates find is found in float64: coverage is steep, and multiplies what rounding leaves of a residual. Bases are
    few, and that costs little; the experts keep their own precision.
    """

    gram: Tensor

    @classmethod
    def of(cls, units: GatedDomainUnits) -> FrozenUnits:
        """A frozen copy; the units themselves stay as they are."""
        with torch.no_grad():
            frozen = copy.deepcopy(units)
            frozen.bases.data = frozen.bases.data.double()
            gram = frozen._products(frozen.bases.new_zeros(1, frozen.gating_features)).gram
            if not bool(frozen.active.all()):
                # As in training: whatever lies in places not in use then disturbs no number.
                frozen.bases[~frozen.active] = frozen.bases[frozen.active].mean((0, 1))
            if isinstance(frozen.gate, ProjectionGate):
                frozen.gate = FrozenProjection(frozen.gate, gram, frozen.active)
            frozen.register_buffer("gram", gram)
        frozen.__class__ = cls  # the same layer but for where its Gram matrix comes from
        assert isinstance(frozen, cls)
        return frozen

    def _products(self, z: Tensor) -> InnerProducts:
        z = z.double()
        cross = mean_kernel(self.kernel, z, self.bases, budget=self.memory_budget)
        return InnerProducts(as_kernel(self.kernel).diagonal(z), cross, self.gram, self.active)

    def _pooled(self, own: InnerProducts, z: Tensor, gates: Gates) -> InnerProducts:
        return super()._pooled(own, z.double(), gates)


def freeze(model: nn.Module) -> nn.Module:
    """A copy of a model in eval mode, all units in it frozen and nothing left to be trained."""
    frozen = copy.deepcopy(model).eval().requires_grad_(False)
    for parent in list(frozen.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, GatedDomainUnits) and not isinstance(child, FrozenUnits):
                setattr(parent, name, FrozenUnits.of(child))
    return frozen
