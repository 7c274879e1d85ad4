"""Where gates send samples that lie far from every basis."""

from __future__ import annotations

import pytest
import torch

from gated_domains import GatedDomainUnits
from gated_domains.layer import CosineGate, MMDGate


def layer(gate: CosineGate | MMDGate) -> GatedDomainUnits:
    """Bases around one place, of which the third is spread out most."""
    head = GatedDomainUnits(4, 2, num_bases=3, gate=gate)
    with torch.no_grad():
        head.bases.copy_(torch.randn(head.bases.shape) * torch.tensor([0.1, 0.5, 2.0])[:, None, None])
    return head


def test_an_mmd_gate_sends_them_to_the_basis_that_is_spread_out_most():
    head, far = layer(MMDGate(3.0)), torch.full((5, 4), 1e4) * torch.tensor([1, -1, 2, -2, 3])[:, None]
    with torch.no_grad():
        found = head.weigh(far)
    expected = torch.softmax(-3.0 * found.products.norms, -1)
    torch.testing.assert_close(found.beta, expected.expand(5, -1))
    assert int(expected.argmax()) == 2
    assert float(expected.max()) > 0.5


def test_a_cosine_gate_weighs_all_bases_the_same():
    assert layer(CosineGate(3.0)).weigh(torch.full((1, 4), 1e4)).beta.tolist() == [[pytest.approx(1 / 3)] * 3]
