"""Maps in the plane: neighbours stay neighbours, always in the same places, whatever the rows."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gated_domains.data.errors import DataError
from gated_domains.insight.planes import plane, principal


def clusters(rows: int = 60, width: int = 8) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, width)) + 20 * (np.arange(rows) % 2)[:, None]


def test_clusters_stay_apart_and_lie_where_they_lay():
    found = plane(clusters())
    assert found.shape == (60, 2)
    assert found.dtype == np.float32
    distances = np.linalg.norm(found[:, None] - found, axis=-1) + np.diag(np.full(60, np.inf))
    assert (distances.argmin(axis=1) % 2 == np.arange(60) % 2).all()
    np.testing.assert_array_equal(found, plane(clusters()))


@pytest.mark.parametrize("values", [clusters(1), clusters(2), clusters(5), clusters(30, 1), np.ones((9, 3))])
def test_few_rows_and_rows_that_are_all_the_same_have_a_place_too(values):
    found = plane(values)
    assert found.shape == (len(values), 2)
    assert np.isfinite(found).all()


def test_principal_directions_keep_distances_and_order_variance():
    values = clusters(30, 5) * [1, 2, 3, 4, 5]
    found = principal(values, 50)
    apart = np.linalg.norm(values[:, None] - values, axis=-1)
    np.testing.assert_allclose(np.linalg.norm(found[:, None] - found, axis=-1), apart, atol=1e-9)
    assert (np.diff(found.var(axis=0)) <= 0).all()
    assert principal(values, 3).shape == (30, 3)


def test_umap_that_is_not_installed_and_maps_that_do_not_exist_are_refused_with_the_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(DataError, match=r"gated-domains\[viz\]"):
        plane(clusters(), kind="umap")


def test_an_unknown_kind_is_refused(without_shape_checks):
    import gated_domains.insight.planes as planes

    unchecked = getattr(planes.plane, "__wrapped__", planes.plane)
    with pytest.raises(DataError, match="did you mean 'umap'"):
        unchecked(clusters(), kind="umpa")
