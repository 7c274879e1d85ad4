"""Bodies for tokens and for graphs that need no library: what tests share that run without the extras."""

from __future__ import annotations

import torch

from gated_domains.backbones import Body


class Words(Body):
    """Tokens -> the mean of their embeddings: a body for tokens that needs no library."""

    takes = "tokens"
    features = 5

    def __init__(self, shape: tuple[int, ...], vocabulary: int = 40) -> None:
        super().__init__(shape)
        self.vocabulary = vocabulary
        self.table = torch.nn.Embedding(vocabulary, self.features)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.table(inputs).mean(1)


class Atoms(Words):
    """Rows of graphs -> features of how large they are."""

    takes = "graphs"
    norms_by_sample = False

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.norm = torch.nn.BatchNorm1d(self.features)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.norm(self.table(inputs[:, :2].long()).mean(1))


def tokens(rows: int = 4, length: int = 7, *, seed: int = 0) -> torch.Tensor:
    """Texts of the same length, without padding."""
    return torch.randint(1, 40, (rows, length), generator=torch.Generator().manual_seed(seed))
