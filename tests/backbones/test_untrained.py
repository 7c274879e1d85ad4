"""What gates would see of data before anything is trained."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gated_domains.backbones.gating import RandomFilters
from gated_domains.backbones.untrained import gating_rows_of
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import ImageEncoding
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Categories, Features, Images, Inputs, Numbers, Table


def dataset(inputs: Inputs) -> DomainDataset:
    return DomainDataset(
        name="things", inputs=inputs, targets=np.arange(len(inputs)) % 2, class_names=("no", "yes")
    )  # fmt: skip


def pictures(rows: int = 40) -> Images:
    return Images(np.random.default_rng(0).integers(256, size=(rows, 12, 10, 3), dtype=np.uint8))


def vectors(rows: int = 40) -> Features:
    rng = np.random.default_rng(0)
    return Features((rng.normal(size=(rows, 3)) * [1, 100, 0.01] + [0, -7, 3]).astype(np.float32))


def test_vectors_are_seen_standardised() -> None:
    inputs = vectors()
    seen = gating_rows_of(dataset(inputs))
    values = inputs.values.astype(np.float64)
    np.testing.assert_allclose(seen, (values - values.mean(0)) / values.std(0, ddof=1), atol=1e-4)


def test_the_columns_of_a_table_are_seen_encoded() -> None:
    words = Categories("word", np.arange(40).astype(np.int32) % 3, ("a", "b", "c"))
    seen = gating_rows_of(dataset(Table([Numbers("age", np.arange(40.0)), words])))
    assert seen.shape == (40, 4)
    np.testing.assert_allclose(seen.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(seen.std(0, ddof=1), 1, atol=1e-4)


def test_images_are_seen_through_fixed_filters() -> None:
    inputs = pictures()
    seen = gating_rows_of(dataset(inputs))
    with torch.no_grad():
        raw = RandomFilters((3, 12, 10))(ImageEncoding(12, 10, 3).tensor(torch.from_numpy(inputs.values))).double()
    np.testing.assert_allclose(seen, ((raw - raw.mean(0)) / raw.std(0)).numpy(), atol=1e-3)


def test_rows_that_are_not_asked_for_change_nothing() -> None:
    inputs = vectors()
    poisoned = inputs.values.copy()
    poisoned[20:] = 1e6
    rows = np.arange(20)
    np.testing.assert_array_equal(
        gating_rows_of(dataset(inputs), rows), gating_rows_of(dataset(Features(poisoned)), rows)
    )


def test_at_most_max_rows_are_drawn_and_by_the_seed() -> None:
    first, again, other = (gating_rows_of(dataset(vectors(200)), max_rows=50, seed=seed) for seed in (0, 0, 1))
    assert first.shape == (50, 3)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_constant_column_disturbs_nothing() -> None:
    values = np.column_stack([vectors().values, np.full(40, 12345.678, np.float32)])
    seen = gating_rows_of(dataset(Features(values)))
    np.testing.assert_allclose(seen[:, :3], gating_rows_of(dataset(vectors())), atol=1e-4)
    np.testing.assert_allclose(seen[:, 3], 0, atol=1e-2)


@pytest.mark.parametrize("gating", ["features", "style"])
def test_a_view_that_takes_a_trained_body_is_refused(gating: str) -> None:
    with pytest.raises(DataError, match=f"{gating}.*nothing is trained yet.*'filters'"):
        gating_rows_of(dataset(pictures()), gating=gating)


def test_an_unknown_view_is_refused_with_the_nearest() -> None:
    with pytest.raises(DataError, match=r"no view 'filter' for gates; did you mean 'filters'\?"):
        gating_rows_of(dataset(pictures()), gating="filter")


def test_a_view_of_another_kind_of_inputs_is_refused() -> None:
    with pytest.raises(DataError, match="'filters' and 'style'"):
        gating_rows_of(dataset(pictures()), gating="input")


def test_rows_that_all_look_the_same_are_refused() -> None:
    for inputs in (Features(np.full((30, 4), 3.3)), Images(np.full((30, 9, 9, 3), 7, np.uint8))):
        with pytest.raises(DataError, match="all 30 rows of things look the same to gates"):
            gating_rows_of(dataset(inputs))


def test_a_single_row_is_refused() -> None:
    with pytest.raises(DataError, match="has 1 to look at"):
        gating_rows_of(dataset(vectors()), np.array([3]))
