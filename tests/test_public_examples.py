"""The examples in the docstrings of the Python API run, and give what they say."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

import gated_domains as gd

API = ("compare", "train", "open_run", "load_model", "load_dataset", "Comparison")


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("name", API)
def test_the_examples_of_a_docstring_run(name: str, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = [test for test in doctest.DocTestFinder(recurse=False).find(getattr(gd, name), name) if test.examples]
    assert found
    for test in found:
        assert not any(doctest.SKIP in example.options for example in test.examples)
        assert doctest.DocTestRunner(verbose=False).run(test).failed == 0, capsys.readouterr().out


def test_every_name_of_the_front_can_be_imported():
    for name in gd.__all__:
        assert getattr(gd, name) is not None
