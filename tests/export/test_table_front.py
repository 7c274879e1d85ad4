"""The front of a graph for tables gives what ``TableEncoding.prepare`` gives, whatever the table."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gated_domains.data.encoding import TableEncoding
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Categories, Features, Numbers, Table
from gated_domains.export.table_front import MISSING, NEVER_SEEN, TableFront, table_arrays

LEVELS = ("a", "b", "c", "d")
number = st.one_of(
    st.just(float("nan")),
    st.floats(-1e3, 1e3),
    st.floats(1_700_000_000, 1_700_000_100),
    st.floats(-1e300, 1e300),
)


def a_pair(first: int, second: int) -> st.SearchStrategy[tuple]:
    """The same column in two tables."""
    numbers = [st.lists(number, min_size=rows, max_size=rows) for rows in (first, second)]
    named = [
        st.tuples(
            st.lists(st.integers(-1, 2), min_size=rows, max_size=rows),
            st.sampled_from([LEVELS, LEVELS[::-1], LEVELS[1:]]),
        )
        for rows in (first, second)
    ]
    return st.one_of(st.tuples(*numbers), st.tuples(*named))


def as_table(columns) -> Table:
    return Table(
        [
            Categories(f"x{place}", np.array(column[0], np.int32), column[1])
            if isinstance(column, tuple)
            else Numbers(f"x{place}", np.array(column, np.float64))
            for place, column in enumerate(columns)
        ]
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(a_pair(6, 4), min_size=1, max_size=4))
def test_the_front_gives_what_the_encoding_gives(pairs):
    known, new = (as_table(columns) for columns in zip(*pairs, strict=True))
    try:
        encoding = TableEncoding.fit(known, np.arange(6))
    except DataError:  # every column is constant
        return
    arrays = table_arrays(encoding, new)
    found = TableFront(encoding)(*(torch.from_numpy(values) for values in arrays.values()))
    np.testing.assert_array_equal(found.numpy(), encoding.prepare(new).values)


def a_table() -> Table:
    return Table(
        [
            Categories("kind", np.array([0, 1, -1, 1], np.int32), ("a", "b")),
            Numbers("age", np.array([1.0, 2.0, np.nan, 4.0])),
            Numbers("constant", np.array([5.0, np.nan, 5.0, 5.0])),
        ]
    )


def test_columns_become_inputs_by_kind():
    encoding = TableEncoding.fit(a_table(), np.arange(4))
    strange = Table(
        [
            Categories("kind", np.array([1, 0, -1], np.int32), ("z", "b")),
            Numbers("age", np.array([np.nan, 1.0, 2.0])),
            Numbers("constant", np.array([5.0, 5.0, np.nan])),
        ]
    )
    arrays = table_arrays(encoding, strange)
    assert arrays["names"].tolist() == [[1], [NEVER_SEEN], [MISSING]]
    np.testing.assert_array_equal(arrays["numbers"], [[np.nan, 5.0], [1.0, 5.0], [2.0, np.nan]])
    assert arrays["numbers"].dtype == np.float64


def test_a_table_of_one_kind_has_one_input():
    numbers = Table([Numbers("age", np.array([1.0, 2.0]))])
    names = Table([Categories("kind", np.array([0, 1], np.int32), ("a", "b"))])
    assert list(table_arrays(TableEncoding.fit(numbers, np.arange(2)), numbers)) == ["numbers"]
    assert list(table_arrays(TableEncoding.fit(names, np.arange(2)), names)) == ["names"]


def test_a_column_that_is_not_there_is_named():
    encoding = TableEncoding.fit(a_table(), np.arange(4))
    with pytest.raises(DataError, match="missing here: kind, constant"):
        table_arrays(encoding, Table([Numbers("age", np.array([1.0]))]))


def test_a_column_that_holds_something_else_is_refused():
    encoding = TableEncoding.fit(a_table(), np.arange(4))
    swapped = Table([Numbers("kind", np.array([1.0])), *a_table().take(np.array([0])).columns[1:]])
    with pytest.raises(DataError, match="'kind' held names in training"):
        table_arrays(encoding, swapped)
    with pytest.raises(DataError, match="made for a table"):
        table_arrays(encoding, Features(np.ones((2, 3))))
