"""What a printed layer says."""

from __future__ import annotations

import torch
from sklearn.datasets import make_blobs

from gated_domains.layer import CosineGate, GatedDomainUnits, GateStream, LinearExperts, ProjectionGate
from gated_domains.layer.experts import MultiClass
from gated_domains.layer.kernels import Gaussian, RationalQuadratic, Scaled


def test_a_layer_says_its_sizes_kernel_gate_and_penalties():
    text = repr(
        GatedDomainUnits(12, 3, num_bases=4, basis_size=7, kernel=Gaussian(1.25), gate=CosineGate(3.5), lambda_orth=0.2)
    )
    for part in ("12 -> 3", "4 bases of 7", "sigma=1.25", "kappa=3.5", "reconstruction 0.001", "orthogonality 0.2"):
        assert part in text
    assert "sparsity" not in text
    assert "room" not in text
    assert "gates see" not in text


def test_a_layer_says_which_view_its_gates_see():
    assert "gates see 5 features" in repr(GatedDomainUnits(12, 3, gating_features=5))


def test_a_layer_says_its_task():
    assert "task=MultiClass()" in repr(GatedDomainUnits(12, 3, task=MultiClass()))


def test_a_layer_without_penalties_says_so():
    assert "penalties: none" in repr(GatedDomainUnits(12, 3, lambda_ols=0.0, lambda_dev=0.0))


def test_a_layer_with_room_says_how_many_bases_it_uses_and_could_use():
    head = GatedDomainUnits(2, 3, num_bases="auto", max_bases=6)
    x, _ = make_blobs(60, centers=[[0, 0], [9, 0], [0, 9]], cluster_std=0.3, random_state=0)
    head.fit_bases(torch.tensor(x, dtype=torch.float32))
    assert "3 bases of 10 (room for 6)" in repr(head)


def test_a_layer_says_its_coverage_once_fitted():
    head = GatedDomainUnits(2, 3)
    head.coverage.q50.fill_(0.25)
    head.coverage.q97.fill_(0.75)
    assert "q50=0.25, q97=0.75" in repr(head)


def test_parts_say_their_own_sizes():
    assert "5 x (8 -> 2), bias=False" in repr(LinearExperts(5, 8, 2, bias=False))
    assert "ridge=0.01" in repr(ProjectionGate(ridge=0.01))
    assert "sigma=2, alpha=3" in repr(RationalQuadratic(2.0, alpha=3.0))
    assert "scale=4" in repr(Scaled(Gaussian(), 4.0))


def test_a_stream_says_how_much_it_holds():
    stream = GateStream(8, half_life=2.0)
    stream.push(torch.randn(3, 2))
    assert repr(stream) == "GateStream(size=8, half_life=2.0, held=3)"


def test_a_layer_without_memory_can_be_printed_too():
    assert "12 -> 3" in repr(GatedDomainUnits(12, 3).to("meta"))
