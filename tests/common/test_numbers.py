"""Numbers in settings: what is taken comes back as a plain number, what is not is refused by its name and value."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from gated_domains.common.validation import at_least_one, flag, not_negative, positive

ONE_NUMBER = [2, 2.0, Fraction(2), np.float32(2), np.array(2.0), torch.tensor(2.0)]


@pytest.mark.parametrize("value", ONE_NUMBER, ids=lambda value: type(value).__name__)
def test_a_positive_number_of_any_kind_becomes_a_float(value):
    number = positive("sigma", value)
    assert type(number) is float
    assert number == 2


@pytest.mark.parametrize("value", [0.0, -1.5, math.nan, math.inf, -math.inf])
def test_what_is_not_positive_and_finite_is_refused(value):
    with pytest.raises(ValueError, match=f"sigma must be positive and finite, got {value}"):
        positive("sigma", value)


@pytest.mark.parametrize("value", [1, 7, np.int64(7)], ids=repr)
@pytest.mark.usefixtures("without_shape_checks")
def test_a_count_of_one_or_more_becomes_an_int(value):
    number = at_least_one("num_bases", value)
    assert type(number) is int
    assert number == value


@pytest.mark.parametrize("value", [0, -3, True, 2.0, "2", None], ids=repr)
@pytest.mark.usefixtures("without_shape_checks")
def test_what_is_no_count_is_refused_as_it_was_given(value):
    with pytest.raises(ValueError, match=f"num_bases must be a whole number of at least 1, got {value!r}"):
        at_least_one("num_bases", value)


@pytest.mark.parametrize("value", [0, 0.0, 1e-8, 3])
@pytest.mark.usefixtures("without_shape_checks")
def test_zero_and_more_is_not_negative(value):
    assert not_negative("lambda_ols", value) == value


@pytest.mark.parametrize("value", [-1e-8, math.nan, math.inf])
def test_what_is_negative_or_no_number_is_refused(value):
    with pytest.raises(ValueError, match=f"lambda_ols must be finite and at least 0, got {value}"):
        not_negative("lambda_ols", value)


@pytest.mark.parametrize("wrong", ["no", "True", None, 0, 1])
def test_what_is_neither_true_nor_false_is_no_flag(wrong):
    with pytest.raises(ValueError, match=f"shared must be True or False, got {wrong!r}"):
        flag("shared", wrong)


def test_a_flag_of_numpy_is_one():
    assert flag("shared", np.bool_(True)) is True
    assert flag("shared", False) is False


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("check", [positive, not_negative])
@pytest.mark.parametrize("wrong", ["1", "much", None, [1]])
def test_what_is_no_number_is_refused_by_name(check, wrong):
    with pytest.raises(ValueError, match="alpha must be a number, got"):
        check("alpha", wrong)
