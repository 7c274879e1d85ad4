"""The shapes in our signatures are checked while tests run; were the hook to come too late, nobody would notice."""

from __future__ import annotations

import jaxtyping
import pytest
import torch

from gated_domains.layer import LinearExperts
from gated_domains.layer.gates import inner_products
from gated_domains.layer.kernels import Gaussian


def test_rows_of_two_widths_are_caught():
    with pytest.raises(jaxtyping.TypeCheckError):
        Gaussian(1.0)(torch.randn(5, 3), torch.randn(4, 2))
    with pytest.raises(jaxtyping.TypeCheckError):
        inner_products(Gaussian(1.0), torch.randn(5, 3), torch.randn(2, 2, 4))


def test_a_wrong_number_of_dimensions_is_caught():
    with pytest.raises(jaxtyping.TypeCheckError):
        LinearExperts(3, 4, 2)(torch.randn(2, 5, 4))
