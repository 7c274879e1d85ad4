"""Columns -> numbers for a model: every statistic from the training rows, and the same numbers again from JSON."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gated_domains.data import encoding as table
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import NumberCode, TableEncoding, encoding_from, fit_encoding
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Categories, Features, Images, Inputs, Numbers, Table
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.data.splits import hold_outs

NAN = float("nan")


def dataset(inputs: Inputs) -> DomainDataset:
    return DomainDataset(
        name="rows", inputs=inputs, targets=np.arange(len(inputs)) % 2, class_names=("no", "yes"),
    )  # fmt: skip


def numbers(values: list[float], name: str = "x") -> Numbers:
    return Numbers(name, np.array(values, np.float64))


def words(values: list[str | None], name: str = "word") -> Categories:
    levels = sorted({value for value in values if value is not None})
    codes = [-1 if value is None else levels.index(value) for value in values]
    return Categories(name, np.array(codes, np.int32), tuple(levels))


def fit(*columns: Numbers | Categories, rows: list[int] | None = None) -> TableEncoding:
    chosen = np.arange(len(columns[0].values)) if rows is None else np.array(rows, np.int64)
    return fit_encoding(dataset(Table(columns)), chosen)


def encoded(encoding: TableEncoding, *columns: Numbers | Categories) -> dict[str, list[float]]:
    values = encoding.prepare(Table(columns)).values
    return {name: values[:, place].tolist() for place, name in enumerate(encoding.names)}


# -- nothing is learned from other rows ------------------------------------------------------------------------------

cells = st.one_of(st.just(NAN), st.floats(-1e300, 1e300))
names = st.one_of(st.none(), st.sampled_from(["a", "b", "c", "zz", "new", "Älter"]))


@given(
    train=st.lists(st.tuples(cells, names), min_size=2, max_size=12),
    before=st.lists(st.tuples(cells, names), min_size=1, max_size=8),
    after=st.lists(st.tuples(cells, names), min_size=1, max_size=8),
)
def test_other_rows_change_neither_the_codes_nor_the_encoded_training_rows(train, before, after):
    def made(others: list[tuple[float, str | None]]) -> tuple[TableEncoding, np.ndarray] | str:
        number, name = zip(*others, *train, strict=True)
        columns = (numbers(list(number)), words(list(name)))
        rows = np.arange(len(others), len(others) + len(train))
        try:
            encoding = fit_encoding(dataset(Table(columns)), rows)
        except DataError as error:
            return str(error)
        return encoding, encoding.prepare(Table(columns)).values[rows]

    first, second = made(before), made(after)
    if isinstance(first, str):
        assert first == second
        return
    assert first[0].describe() == second[0].describe()
    assert first[1].tobytes() == second[1].tobytes()


def table_file(folder: Path, away: list[str]) -> DomainDataset:
    """A table with rows of two sources, and these lines for the domain to be held out."""
    rng = np.random.default_rng(0)
    lines = ["age,dose,stain,flag,site,y"]
    for row in range(60):
        dose = "" if row % 7 == 0 else f"{rng.normal():.6f}"
        stain = ["H&E", "PAS", ""][rng.integers(3)]
        lines.append(f"{rng.integers(20, 90)},{dose},{stain},1,{'ab'[row % 2]},{row % 3 // 2}")
    folder.mkdir()
    (folder / "table.csv").write_text("\n".join(lines + away) + "\n")
    return load_data(folder / "table.csv", Reading(target="y", domain="site"))


def test_rows_of_the_held_out_domain_in_a_file_leave_no_trace(tmp_path):
    tame = ["50,0.5,H&E,1,away,0", "51,0.25,PAS,1,away,1"]
    wild = ["999999,-1e30,never seen,77,away,0", ",,,,away,1", "-5,1e30,other,0,away,0", "3,,zz,,away,1"]
    made = []
    for folder, away in (("tame", tame), ("wild", wild)):
        data = table_file(tmp_path / folder, away)
        (split,) = hold_outs(data, "away", seed=3)
        encoding = fit_encoding(data, split.train)
        prepared = encoding.prepare(data.inputs)
        made.append((split.train, encoding.describe(), prepared.values[split.train].tobytes(), encoding.names))
        assert np.isfinite(prepared.values).all()
    np.testing.assert_array_equal(made[0][0], made[1][0])
    assert made[0][1:] == made[1][1:]
    assert not any("never seen" in name or "flag" in name for name in made[0][3])


def test_validation_rows_leave_no_trace_either():
    column = numbers([1, 2, 3, 1e6, NAN])
    code = fit(column, rows=[0, 1, 2]).codes[0]
    assert (code.mean, code.flag) == (2.0, False)


# -- numbers ---------------------------------------------------------------------------------------------------------


def test_training_rows_are_standardised_as_a_loop_would():
    values, rows = [3.0, -1.0, 7.5, NAN, 2.0, 30.0], [0, 1, 2, 3, 4]
    known = [values[row] for row in rows if values[row] == values[row]]
    mean = sum(known) / len(known)
    scale = (sum((value - mean) ** 2 for value in known) / len(known)) ** 0.5
    found = encoded(fit(numbers(values), rows=rows), numbers(values))
    expected = [0.0 if value != value else (value - mean) / scale for value in values]
    np.testing.assert_allclose(found["x"], expected, rtol=1e-6)
    assert found["x is missing"] == [0, 0, 0, 1, 0, 0]


def test_a_value_missing_only_elsewhere_is_the_mean_and_has_no_flag():
    found = encoded(fit(numbers([1, 3, NAN]), rows=[0, 1]), numbers([1, 3, NAN]))
    assert found == {"x": [-1.0, 1.0, 0.0]}


def test_a_column_constant_in_training_is_left_out_even_if_it_varies_elsewhere():
    encoding = fit(numbers([1, 2, 3]), numbers([5, 5, 9], "level"), words(["a", "a", "b"]), rows=[0, 1])
    assert encoding.left_out == ("level", "word")
    assert encoding.names == ("x",)


def test_a_column_missing_in_all_training_rows_is_left_out():
    encoding = fit(numbers([1, 2, 3]), numbers([NAN, NAN, 9], "ca"), words([None, None, "b"]), rows=[0, 1])
    assert encoding.left_out == ("ca", "word")


def test_of_a_constant_that_is_missing_at_times_the_flag_is_kept():
    column = numbers([4, NAN, 4, 5])
    assert encoded(fit(column, rows=[0, 1, 2]), column) == {"x is missing": [0, 1, 0, 0]}


def test_a_value_out_of_all_proportion_elsewhere_is_cut_at_twenty_deviations():
    column = numbers([-1, 1, 50, -1e300, 7])
    assert encoded(fit(column, rows=[0, 1]), column) == {"x": [-1.0, 1.0, 20.0, -20.0, 7.0]}


@pytest.mark.parametrize("sizes", [{"height": "big"}, {"width": -1}, {"channels": 0}, {"height": 2.5}])
def test_sizes_that_make_no_sense_are_refused(without_shape_checks, sizes):
    described = {"kind": "images", "height": 4, "width": 4, "channels": 3, **sizes}
    with pytest.raises(DataError, match=r"must be a whole number from 1 on, got"):
        encoding_from(described)


@pytest.mark.parametrize(("mean", "scale", "flag"), [(NAN, 1.0, False), (0.0, 0.0, False), (0.0, -1.0, True),
                                                     (0.0, float("inf"), True), (0.0, None, False)])  # fmt: skip
def test_a_code_that_makes_no_sense_is_refused(mean, scale, flag):
    with pytest.raises(DataError, match=r"column 'x': a mean of .* and a scale of .* make no sense"):
        NumberCode("x", mean, scale, flag)


def test_a_table_constant_in_training_is_refused():
    with pytest.raises(DataError, match="every column is constant in the training rows: x, word"):
        fit(numbers([1, 1, 2]), words(["a", "a", "b"]), rows=[0, 1])


@pytest.mark.parametrize(
    "values",
    [[1e308, -1e308, 1e308], [5e-324, 0, 1e-323], [1, 1 + 2**-52, -1e308], [0, 1e-300, 1e300]],
    ids=["huge", "tiny", "nearly constant", "wide"],
)
def test_numbers_of_any_size_stay_finite_and_nobody_is_warned(values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = encoded(fit(numbers(values), rows=[0, 1]), numbers(values))
    assert np.isfinite(found["x"]).all()


# -- categories ------------------------------------------------------------------------------------------------------


def test_a_level_is_one_column_and_a_missing_one_has_its_own():
    column = words(["b", "a", None, "b"])
    assert encoded(fit(column), column) == {
        "word = a": [0, 1, 0, 0],
        "word = b": [1, 0, 0, 1],
        "word is missing": [0, 0, 1, 0],
    }


def test_a_level_never_seen_in_training_is_zero_everywhere():
    column = words(["a", "b", "new", None])
    assert encoded(fit(column, rows=[0, 1]), column) == {"word = a": [1, 0, 0, 0], "word = b": [0, 1, 0, 0]}


def test_levels_are_found_by_name_where_other_data_number_them_otherwise():
    encoding = fit(words(["b", "d", "b"]))
    assert encoded(encoding, words(["a", "b", "c", "d"])) == {"word = b": [0, 1, 0, 0], "word = d": [0, 0, 0, 1]}


def test_of_very_many_levels_the_most_frequent_get_a_column(monkeypatch):
    monkeypatch.setattr(table, "MOST_LEVELS", 2)
    column = words(["rare", "z", "z", "often", "often", "often"])
    assert fit(column).names == ("word = often", "word = z")
    assert encoded(fit(column), column)["word = z"] == [0, 1, 1, 0, 0, 0]


def test_the_order_of_rows_changes_no_column():
    values, levels = [1.0, 2.0, 4.0, NAN], ["b", "c", "a", None]
    forward = fit(numbers(values), words(levels))
    backward = fit(numbers(values[::-1]), words(levels[::-1]))
    assert forward.names == backward.names
    assert (
        encoded(forward, numbers(values), words(levels)).keys()
        == encoded(backward, numbers(values), words(levels)).keys()
    )


# -- other tables ----------------------------------------------------------------------------------------------------


def test_columns_are_found_by_name_in_another_order():
    first, second = numbers([1, 2, 3]), numbers([5, 1, 4], "z")
    encoding = fit(first, second)
    assert encoded(encoding, second, first) == encoded(encoding, first, second)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((numbers([1, 2], "other"),), "columns seen in training are missing here: x, word"),
        ((words(["a", "b"], "x"), words(["a", "b"])), "'x' held numbers in training, and now holds names"),
        ((numbers([1, 2]), numbers([1, 2], "word")), "'word' held names in training, and now holds numbers"),
    ],
    ids=["missing", "names", "numbers"],
)
def test_a_table_of_other_columns_is_refused(columns, message):
    with pytest.raises(DataError, match=message):
        fit(numbers([1, 2]), words(["a", "b"])).prepare(Table(columns))


def test_what_is_no_table_is_refused():
    with pytest.raises(DataError, match="made for a table, got features, 2 numbers each"):
        fit(numbers([1, 2])).prepare(Features(np.ones((3, 2))))


def test_rows_encoded_in_pieces_are_the_same(monkeypatch):
    columns = (numbers(list(range(10))), words([*"abcab", None, *"aacb"]))
    whole = fit(*columns).prepare(Table(columns)).values
    monkeypatch.setattr(table, "_ROWS_AT_ONCE", 3)
    np.testing.assert_array_equal(fit(*columns).prepare(Table(columns)).values, whole)


# -- images and features, and JSON -----------------------------------------------------------------------------------


def test_images_become_floats_from_minus_one_to_one_with_channels_first():
    images = np.zeros((2, 3, 4, 3), np.uint8)
    images[1, 2, 3, 0] = 255
    encoding = fit_encoding(dataset(Images(images)), np.array([0]))
    assert encoding.shape == (3, 3, 4)
    found = encoding.tensor(torch.from_numpy(images))
    assert found.shape == (2, 3, 3, 4)
    assert found[1, 0, 2, 3] == 1.0
    assert found.sum() == -(2 * 36 - 1) + 1


def test_features_become_float32():
    encoding = fit_encoding(dataset(Features(np.ones((2, 5), np.float16))), np.array([0]))
    assert encoding.shape == (5,)
    assert encoding.tensor(torch.ones(2, 5, dtype=torch.float16)).dtype == torch.float32


def inputs_of_every_kind() -> dict[str, Inputs]:
    return {
        "table": Table([numbers([0.1, 1e300, NAN, -7]), words(["ä", '"', None, "\u2028"]), numbers([1] * 4, "same")]),
        "images": Images(np.zeros((4, 3, 5, 1), np.uint8)),
        "features": Features(np.random.default_rng(0).normal(size=(4, 3))),
    }


@pytest.mark.parametrize("kind", ["table", "images", "features"])
def test_an_encoding_comes_back_from_json_and_encodes_the_same(kind):
    inputs = inputs_of_every_kind()[kind]
    encoding = fit_encoding(dataset(inputs), np.arange(4))
    again = encoding_from(json.loads(json.dumps(encoding.describe())))
    assert type(again) is type(encoding)
    assert again.shape == encoding.shape
    assert again.describe() == encoding.describe()
    first, second = (torch.from_numpy(each.prepare(inputs).read(np.arange(4))) for each in (encoding, again))
    assert torch.equal(encoding.tensor(first), again.tensor(second))


def test_an_unknown_encoding_is_refused_with_the_nearest_name():
    with pytest.raises(DataError, match="no encoding 'tablee'; did you mean 'table'"):
        encoding_from({"kind": "tablee"})


@pytest.mark.parametrize("kind", ["table", "images", "features"])
@pytest.mark.parametrize("change", ["drop a field", "add a field"])
def test_a_description_that_was_edited_badly_is_refused(kind, change):
    description = fit_encoding(dataset(inputs_of_every_kind()[kind]), np.arange(4)).describe()
    if change == "add a field":
        description["speed"] = 3
    else:
        description.popitem()
    with pytest.raises(DataError, match=f"the description of the encoding '{kind}' is damaged"):
        encoding_from(description)


def test_an_encoding_needs_training_rows():
    with pytest.raises(DataError, match="no training rows"):
        fit_encoding(dataset(Features(np.ones((2, 2)))), np.array([], np.int64))
