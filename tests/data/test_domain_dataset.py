"""Data in memory: what a DomainDataset holds, counts and refuses."""

from __future__ import annotations

import numpy as np
import pytest

from gated_domains.data import inputs as inputs_module
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Categories, Features, Images, Numbers, Table

VALUES = np.arange(12.0).reshape(6, 2)
GIVEN = {
    "name": "sites",
    "inputs": Features(VALUES),
    "targets": np.array([0, 1, 2, 0, 1, 1]),
    "class_names": ("cat", "dog", "cow"),
    "domains": np.array([0, 0, 1, 1, 1, 0]),
    "domain_names": ("day", "night"),
}


# -- what it holds ---------------------------------------------------------------------------------------------------


def test_rows_are_counted_by_domain_and_class():
    data = DomainDataset(**GIVEN)
    assert len(data) == 6
    assert data.num_classes == 3
    assert data.counts().tolist() == [[1, 2, 0], [1, 1, 1]]
    assert data.rows_of("night").tolist() == [2, 3, 4]
    assert data.rows_of("night", "day").tolist() == [0, 1, 2, 3, 4, 5]


def test_some_rows_are_counted_alone():
    data = DomainDataset.from_arrays(VALUES, [0, 1, 0, 1, 0, 1], ["a", "a", "b", "b", "b", "b"])
    assert data.counts(np.array([1, 2, 4])).tolist() == [[0, 1], [2, 0]]


def test_text_as_pandas_holds_it_is_text():
    data = DomainDataset.from_arrays(VALUES, np.array(["no", "yes"] * 3, object), np.array(["a", "b", "c"] * 2, object))
    assert (data.class_names, data.domain_names) == (("no", "yes"), ("a", "b", "c"))
    with pytest.raises(DataError, match="must be numbers or text, got object"):
        DomainDataset.from_arrays(VALUES, np.array(["no", None] * 3, object))


def test_images_with_their_channels_first_are_refused_with_the_cure():
    with pytest.raises(DataError, match=r"channels first; turn them: X\.transpose\(0, 2, 3, 1\)"):
        Images(np.zeros((6, 3, 16, 16), np.uint8))


def test_without_domains_or_classes_there_is_one_row_or_column():
    bare = {**GIVEN, "domains": None, "domain_names": ()}
    assert DomainDataset(**bare).counts().tolist() == [[2, 3, 1]]
    quantity = {**bare, "targets": np.arange(6.0), "class_names": None}
    assert DomainDataset(**quantity).counts().tolist() == [[6]]
    assert DomainDataset(**quantity).num_classes is None


def test_a_domain_by_a_wrong_name_is_refused_with_the_nearest():
    with pytest.raises(DataError, match="sites has no domain 'nightt'; did you mean 'night'"):
        DomainDataset(**GIVEN).rows_of("nightt")


def test_rows_of_domains_need_domains():
    bare = DomainDataset(**{**GIVEN, "domains": None, "domain_names": ()})
    with pytest.raises(DataError, match="sites has no domains; name the column that holds them"):
        bare.rows_of("day")


def test_the_same_samples_can_be_seen_otherwise():
    other = DomainDataset(**GIVEN).with_inputs(Features(VALUES * 2))
    assert other.inputs.values[1, 1] == 6
    assert other.domain_names == ("day", "night")
    with pytest.raises(DataError, match="2 inputs but 6 targets"):
        DomainDataset(**GIVEN).with_inputs(Features(VALUES[:2]))


def test_it_prints_what_a_person_wants_to_know():
    assert repr(DomainDataset(**GIVEN)) == (
        "<sites: 6 rows, features, 2 numbers each, 3 classes, 2 domains (day, night)>"
    )
    bare = {**GIVEN, "domains": None, "domain_names": (), "targets": np.arange(6.0), "class_names": None}
    assert repr(DomainDataset(**bare)) == "<sites: 6 rows, features, 2 numbers each, a number to predict, no domains>"


# -- from arrays -----------------------------------------------------------------------------------------------------


def test_plain_lists_are_enough():
    data = DomainDataset.from_arrays([[1, 2], [3, 4], [5, 6]], ["b", "a", "b"], ["x", "y", "x"])
    assert data.class_names == ("a", "b")
    assert data.targets.tolist() == [1, 0, 1]
    assert data.domain_names == ("x", "y")
    assert data.inputs.values.dtype == np.float32


def test_bytes_with_three_or_four_axes_are_images():
    assert isinstance(DomainDataset.from_arrays(np.zeros((2, 3, 3), np.uint8), [0, 1]).inputs, Images)
    assert isinstance(DomainDataset.from_arrays(np.zeros((2, 3), np.uint8), [0, 1]).inputs, Features)


def test_given_names_belong_to_indices():
    data = DomainDataset.from_arrays(VALUES, [0, 1, 2, 0, 1, 1], [1, 1, 1, 0, 0, 0], class_names=["a", "b", "c", "d"],
                                     domain_names=["x", "y", "z"], name="six")  # fmt: skip
    assert data.num_classes == 4
    assert data.domain_names == ("x", "y", "z")
    assert data.name == "six"


def test_the_task_can_be_chosen():
    assert DomainDataset.from_arrays(VALUES, [0, 1, 2, 0, 1, 1], task="regression").class_names is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1, 2], [3, float("nan")]], "row 2, column 1 holds nan"),
        (np.array([["a"], ["b"]]), "features must be numbers, got <U1"),
        (np.array([[None], [1]]), "features must be numbers, got object"),
        ([1.0, 2.0], r"features must have shape \(rows, features\)"),
        (np.zeros((2, 3, 3)), r"features must have shape \(rows, features\), got \(2, 3, 3\)"),
    ],
    ids=["nan", "text", "objects", "one axis", "float images"],
)
def test_inputs_that_are_no_numbers_are_refused(values, message):
    with pytest.raises(DataError, match=message):
        DomainDataset.from_arrays(values, [0, 1])


# -- what it refuses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": np.array([0, 1])}, "6 inputs but 2 targets; there must be one for each"),
        ({"domains": np.array([0, 1])}, "6 inputs but 2 domains"),
        ({"metadata": {"patient": np.arange(4)}}, "6 inputs but 4 patient"),
        ({"official_test": np.zeros(3, bool)}, "6 inputs but 3 official_test"),
        (
            {"targets": np.array([0, 1, 3, 0, -1, 0])},
            r"label 3 of row 3 is outside 0 to 2 \(such rows: 2;.*cat, dog, cow",
        ),
        ({"targets": np.arange(6.0)}, "labels must be one whole number a row, got float64"),
        ({"targets": np.zeros((6, 2), int)}, r"labels must be one whole number a row, got int64 of shape \(6, 2\)"),
        ({"domains": np.array([0, 0, 0, 0, 0, 2])}, "domain 2 of row 6 is outside 0 to 1"),
        ({"domain_names": ("day", "day")}, "two domains are called 'day'; give each its own name"),
        ({"class_names": ("cat", "cat", "cow")}, "two classes are called 'cat'; give each its own name"),
        ({"class_names": None, "targets": np.array([0, 1, np.nan, 2, 3, 4])}, "the target of row 3 is nan"),
        ({"class_names": None, "targets": np.array([0, 1, 2, 2, -np.inf, 4])}, "the target of row 5 is -inf"),
        ({"class_names": None, "targets": np.array(list("abcdef"))}, "targets must be one number a row, got <U1"),
        ({"class_names": None, "targets": np.zeros((6, 2))}, r"targets must be one number a row, got .*\(6, 2\)"),
        ({"inputs": Features(VALUES[:0])}, "there are no samples"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_parts_that_do_not_fit_are_refused(change, message):
    with pytest.raises(DataError, match=f"sites: .*{message}"):
        DomainDataset(**{**GIVEN, **change})


# -- inputs ----------------------------------------------------------------------------------------------------------


def test_equal_samples_have_equal_digests_and_others_do_not():
    values = np.random.default_rng(0).normal(size=(40, 3))
    values[7] = values[31]
    digests = Features(values).digests()
    assert digests.dtype == np.uint64
    assert digests[7] == digests[31]
    assert len(set(digests.tolist())) == 39


def test_a_value_that_is_not_finite_is_found_in_a_later_piece(monkeypatch):
    monkeypatch.setattr(inputs_module, "_CHUNK", 64)
    values = np.zeros((100, 2))
    values[83, 1] = np.inf
    with pytest.raises(DataError, match="row 84, column 1 holds inf"):
        Features(values)


def table() -> Table:
    return Table(
        [
            Numbers("age", np.array([1.0, np.nan, 1.0])),
            Categories("word", np.array([0, -1, 0], np.int32), ("red", "blue")),
        ]
    )


def test_a_table_reads_numbers_and_places_side_by_side():
    np.testing.assert_array_equal(table().read(np.array([1, 0])), [[np.nan, -1], [1, 0]])
    assert table().describe() == "a table of 1 column of numbers and 1 column of categories"
    assert table().nbytes == 3 * 8 + 3 * 4


def test_equal_rows_of_a_table_have_equal_digests_but_are_no_copies():
    digests = table().digests()
    assert digests[0] == digests[2] != digests[1]
    assert not table().repeats_are_copies


def test_a_table_needs_columns_of_one_length():
    with pytest.raises(DataError, match="no column is left"):
        Table([])
    with pytest.raises(DataError, match=r"columns have different lengths: x 2, y 3"):
        Table([Numbers("x", np.zeros(2)), Numbers("y", np.zeros(3))])
