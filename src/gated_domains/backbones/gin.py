"""GIN: a network for molecules that passes messages along bonds, with a virtual node that every atom is tied to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from gated_domains.backbones.backbone import Body
from gated_domains.backbones.graphs_in_rows import ATOM_SIZES, BOND_SIZES, Graphs, unpacked
from gated_domains.common.validation import at_least_one
from gated_domains.data.errors import DataError


class GIN(Body):
    """``h' = norm(MLP((1 + e) h_i + sum_j relu(h_j + b_ij)))``, five times, then the mean over atoms.

    ``h`` starts as the sum of the embeddings of an atom's features, and ``b_ij`` is that of its bonds, learned for each
    layer. Before each layer the virtual node of its graph is added to every atom; after each but the last it becomes an
    MLP of itself and the sum of its atoms. This is gin-virtual of OGB (Hu et al., 2020), which WILDS takes for
    molecules (Xu et al., 2019, "How Powerful are Graph Neural Networks?").
    """

    takes = "graphs"
    static = False  # every batch has another number of atoms
    norms_by_sample = False  # they see atoms

    def __init__(self, shape: Sequence[int], *, layers: int = 5, width: int = 300, dropout: float | int = 0.5) -> None:
        super().__init__(shape)
        if not 0 <= dropout < 1:
            raise DataError(f"dropout is a share from 0 to below 1, got {dropout}")
        layers, width = at_least_one("layers", layers), at_least_one("width", width)
        self._architecture = {"layers": layers, "width": width, "dropout": dropout}
        self.features, self.dropout = width, nn.Dropout(dropout)
        conv = _torch_geometric().GINEConv
        self.atoms = SumOfEmbeddings(ATOM_SIZES, width)
        self.bonds = nn.ModuleList(SumOfEmbeddings(BOND_SIZES, width) for _ in range(layers))
        self.convolutions = nn.ModuleList(conv(_widened(width), train_eps=True) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.virtual = nn.Parameter(torch.zeros(width))
        self.virtual_updates = nn.ModuleList(
            nn.Sequential(*_widened(width), nn.BatchNorm1d(width), nn.ReLU()) for _ in range(layers - 1)
        )

    def forward(self, inputs: Int[Tensor, "batch columns"]) -> Float[Tensor, "batch features"]:
        graphs = unpacked(inputs)
        return _torch_geometric().global_mean_pool(self.nodes(graphs, len(inputs)), graphs.graph, len(inputs))

    def nodes(self, graphs: Graphs, batch: int) -> Float[Tensor, "nodes features"]:
        """The features of every atom of so many graphs."""
        pool = _torch_geometric().global_add_pool
        h, virtual = self.atoms(graphs.x), self.virtual.expand(batch, -1)
        last = len(self.convolutions) - 1
        parts = zip(self.bonds, self.convolutions, self.norms, strict=True)
        for layer, (bonds, convolution, norm) in enumerate(parts):
            told = h + virtual.index_select(0, graphs.graph)
            h = norm(convolution(told, graphs.edge_index, bonds(graphs.edge_attr)))
            h = self.dropout(h if layer == last else F.relu(h))
            if layer < last:
                update = self.virtual_updates[layer]
                virtual = self.dropout(update(pool(told, graphs.graph, batch) + virtual))
        return h

    def architecture(self) -> dict[str, Any]:
        return dict(self._architecture)


class SumOfEmbeddings(nn.Module):
    """The sum of one embedding for each of several features, all in one table."""

    offsets: Tensor

    def __init__(self, sizes: Sequence[int], width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(sum(sizes), width))
        for part in self.weight.detach().split(tuple(sizes)):
            nn.init.xavier_uniform_(part)
        self.register_buffer("offsets", torch.tensor([0, *sizes[:-1]]).cumsum(0), persistent=False)

    def forward(self, values: Int[Tensor, "rows parts"]) -> Float[Tensor, "rows width"]:
        return F.embedding_bag(values + self.offsets, self.weight, mode="sum")


def _widened(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 2 * width), nn.BatchNorm1d(2 * width), nn.ReLU(), nn.Linear(2 * width, width))


def _torch_geometric() -> Any:
    try:
        import torch_geometric.nn
    except ImportError as error:
        raise DataError(
            "the body gin stands on torch_geometric, which is not installed: pip install 'gated-domains[wilds]'; "
            "or read molecules as fingerprints (--as fingerprints), for which there is the body mlp"
        ) from error
    return torch_geometric.nn
