"""The seal at the end of a file tells whether all of it is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gated_domains.data.errors import DataError
from gated_domains.export.sealing import ABOUT, sealed, unsealed

WHERE = Path("model.onnx")


@given(st.binary())
def test_what_was_sealed_comes_back(content):
    assert unsealed(sealed(content), WHERE) == content


@given(st.binary(min_size=1), st.data())
def test_any_byte_that_changes_is_found(content, data):
    whole = bytearray(sealed(content))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DataError):
        unsealed(bytes(whole), WHERE)


@given(st.binary(min_size=1), st.data())
def test_any_cut_is_found(content, data):
    whole = sealed(content)
    with pytest.raises(DataError):
        unsealed(whole[: data.draw(st.integers(0, len(whole) - 1))], WHERE)


def test_each_is_told_what_it_is():
    content = b"a model" * 50 + ABOUT.encode() + b"its record"
    whole = sealed(content)
    with pytest.raises(DataError, match=r"model\.onnx was changed after it was exported.*export it again"):
        unsealed(b"b" + whole[1:], WHERE)
    with pytest.raises(DataError, match="cut short"):
        unsealed(whole[:-10], WHERE)
    with pytest.raises(DataError, match="cut short, or something was put after its end"):
        unsealed(whole + b"more", WHERE)
    with pytest.raises(DataError, match="not exported by gated-domains"):
        unsealed(b"somebody else's file", WHERE)
    with pytest.raises(DataError, match="not exported by gated-domains"):
        unsealed(b"", WHERE)


def test_the_seal_is_an_entry_that_protobuf_reads():
    record = sealed(b"")
    assert record[0] == 14 << 3 | 2
    assert record[1] == len(record) - 2
    key = b"gated_domains_sha256"
    assert record[2:].startswith(bytes([1 << 3 | 2, len(key)]) + key)
    assert len(record.split(key + bytes([2 << 3 | 2, 64]))[1]) == 64
