"""The name of a run: the same for the same fields, another for any other, today and on another machine."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gated_domains.runs.storage import canonical, run_hash

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)


def test_the_hash_is_twelve_hexadecimal_characters_and_never_changes():
    fields = {"seed": 0, "method": {"name": "gdu", "rate": 1e-3}, "hold_out": ["é", "b"]}
    assert run_hash(fields) == "57cd970edf54"


def test_the_order_of_keys_does_not_matter():
    assert run_hash({"a": 1, "b": {"c": 2, "d": 3}}) == run_hash({"b": {"d": 3, "c": 2}, "a": 1})


def test_the_order_of_a_list_does():
    assert run_hash({"a": [1, 2]}) != run_hash({"a": [2, 1]})


def test_a_tuple_is_a_list():
    assert run_hash({"a": (1, 2)}) == run_hash({"a": [1, 2]})


@pytest.mark.parametrize("other", [1.0, "1", True, [1], None, 2])
def test_another_value_is_another_run(other):
    assert run_hash({"a": other}) != run_hash({"a": 1})


def test_floats_are_written_to_the_last_digit():
    assert canonical({"a": 0.1, "b": 1e-07}) == '{"a":0.1,"b":1e-07}'
    assert run_hash({"a": 0.1}) != run_hash({"a": math.nextafter(0.1, 1)})


@given(value=values)
def test_what_went_through_a_file_has_the_same_hash(value):
    assert canonical(json.loads(json.dumps(value, indent=2))) == canonical(value)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(bad):
    with pytest.raises(ValueError, match="JSON"):
        run_hash({"a": [bad]})


def test_keys_are_text():
    with pytest.raises(TypeError, match="got 1"):
        run_hash({"a": [{1: 2}]})


def test_what_json_does_not_know_is_refused():
    with pytest.raises(TypeError):
        run_hash({"a": object()})
