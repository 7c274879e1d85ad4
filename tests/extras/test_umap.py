"""The map of UMAP, which comes with the extra ``viz``."""

from __future__ import annotations

import numpy as np
import pytest

from gated_domains.insight.planes import plane

pytestmark = pytest.mark.extras


def test_umap_keeps_neighbours_together():
    pytest.importorskip("umap")
    side = np.arange(60) % 2
    found = plane(np.random.default_rng(0).normal(size=(60, 8)) + 20 * side[:, None], kind="umap")
    assert found.shape == (60, 2)
    middle = [found[side == one].mean(axis=0) for one in (0, 1)]
    assert np.linalg.norm(middle[0] - middle[1]) > found[::2].std()
