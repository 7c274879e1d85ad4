"""Finding units wherever they are in a model, and rows in whatever form they come."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("keras")

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers  # noqa: E402

from gated_domains.keras_layer import GatedDomainUnits, StackedExperts  # noqa: E402
from gated_domains.keras_layer.arrays import as_numpy  # noqa: E402
from gated_domains.keras_layer.finding import (  # noqa: E402
    batches_of,
    check_built,
    chosen_units,
    find_units,
    is_arrays,
    one_units,
)

X = np.arange(20, dtype="float32").reshape(10, 2)


def units(name, **settings):
    return GatedDomainUnits(2, num_bases=2, basis_size=2, name=name, **settings)


def nested():
    """Units in a model in a model, in a layer, and with experts that are models themselves."""
    expert = StackedExperts(keras.Sequential([layers.Dense(3), layers.Dense(2)]))
    inner = keras.Sequential([keras.Input((2,)), units("deep", experts=expert)], name="inner")
    inputs = keras.Input((2,))
    shared = layers.TimeDistributed(units("wrapped"))(layers.Reshape((1, 2))(inputs))
    return keras.Model(
        inputs, layers.Add()([inner(inputs), units("flat")(inputs), layers.Flatten()(shared)]), name="outer"
    )


def test_units_are_found_wherever_they_are():
    found = find_units(nested())
    assert set(found) == {"deep", "flat", "wrapped"}
    assert all(isinstance(layer, GatedDomainUnits) for layer in found.values())
    assert found["flat"].name == "flat"


def test_two_of_one_name_are_told_apart():
    parts = [keras.Sequential([keras.Input((2,)), units("head")], name=name) for name in ("left", "right")]
    model = keras.Sequential([keras.Input((2,)), *parts])
    found = find_units(model)
    assert list(found) == ["head", "head_1"]
    assert found["head"] is parts[0].layers[0]
    assert one_units(model, "head_1") is parts[1].layers[0]


def test_the_only_units_need_no_name():
    model = keras.Sequential([keras.Input((2,)), layers.Dense(4), units("head")])
    assert one_units(model) is one_units(model, "head") is one_units(model, model.layers[-1]) is model.layers[-1]


def test_of_several_one_must_be_named():
    model = nested()
    with pytest.raises(ValueError, match=r"'outer' has 3 GatedDomainUnits layers, .*'flat'.* layer="):
        one_units(model)
    assert one_units(model, "flat").name == "flat"
    assert set(chosen_units(model)) == {"deep", "flat", "wrapped"}
    assert set(chosen_units(model, "deep")) == {"deep"}


@pytest.mark.parametrize("layer", ["nobody", units("stranger"), 3])
def test_what_is_not_in_the_model_is_refused_with_what_is(layer):
    with pytest.raises(ValueError, match=r"is no GatedDomainUnits layer of the model 'outer'; it has .*'flat'"):
        chosen_units(nested(), layer)


def test_a_model_without_units_is_refused_with_the_cure():
    model = keras.Sequential([keras.Input((2,)), layers.Dense(2)], name="plain")
    assert find_units(model) == {}
    with pytest.raises(ValueError, match=r"'plain' has no GatedDomainUnits layer; .*replace_head"):
        one_units(model)


def test_what_is_no_model_is_refused():
    with pytest.raises(TypeError, match="expected a Keras model, got ndarray"):
        find_units(X)


def test_a_model_without_weights_is_told_from_one_with_them():
    model = keras.Sequential([layers.Dense(4, name="first"), units("head")])
    with pytest.raises(ValueError, match=r"no weights yet in .*keras\.Input"):
        check_built(model)
    model(X)
    check_built(model)


def read(inputs, *sizes):
    return [
        keras.tree.map_structure(lambda part: as_numpy(part).tolist(), batch) for batch in batches_of(inputs, *sizes)
    ]


@pytest.mark.parametrize("kind", [np.asarray, keras.ops.convert_to_tensor], ids=["array", "tensor"])
def test_an_array_comes_in_batches_and_all_of_it(kind):
    batches = read(kind(X), 4)
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert [row for batch in batches for row in batch] == X.tolist()


def test_of_more_rows_than_asked_for_those_at_even_distances_come():
    assert [row for batch in read(X, 2, 4) for row in batch] == X[[0, 3, 6, 9]].tolist()
    assert [row for batch in read(X, 2, 1) for row in batch] == X[[0]].tolist()
    assert [row for batch in read(X, 4, 99) for row in batch] == X.tolist()


def test_lists_and_dicts_of_arrays_keep_their_form():
    assert read([X, X[:, :1]], 10, 2) == [[X[[0, 9]].tolist(), X[[0, 9], :1].tolist()]]
    assert read({"a": X, "b": X[:, 0]}, 10, 2) == [{"a": X[[0, 9]].tolist(), "b": X[[0, 9], 0].tolist()}]


def test_a_table_of_pandas_is_an_array():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=["a", "b"], index=range(10, 20))
    assert [row for batch in read(table, 4) for row in batch] == X.tolist()


def test_of_batches_the_first_part_is_the_input():
    batches = [(X[:4], "targets"), [X[4:8], "targets", "weights"], ({"a": X[8:]},), X[:2]]
    assert read(batches) == [X[:4].tolist(), X[4:8].tolist(), {"a": X[8:].tolist()}, X[:2].tolist()]
    assert read(batches, 512, 5) == [X[:4].tolist(), X[4:5].tolist()]
    assert read(iter(batches[:2]), 512, 8) == [X[:4].tolist(), X[4:8].tolist()]


def test_no_more_batches_are_read_than_needed():
    asked = []

    def endless():
        while True:
            asked.append(1)
            yield (X,)

    assert [len(batch) for batch in read(endless(), 512, 20)] == [10, 10]
    assert len(asked) == 2


def test_a_keras_dataset_without_end_stops_too():
    class Endless(keras.utils.PyDataset):
        num_batches = None

        def __getitem__(self, place):
            return X + place, None

    assert [len(batch) for batch in read(Endless(), 512, 25)] == [10, 10, 5]


def test_what_is_arrays_and_what_is_batches():
    assert is_arrays(X)
    assert is_arrays([X, X])
    assert is_arrays({"a": X})
    assert not is_arrays([(X,), (X,)])
    assert not is_arrays([{"a": X}])
    assert not is_arrays(iter([X]))


@pytest.mark.parametrize(
    ("inputs", "error", "says"),
    [
        ((X, X), TypeError, "came as a tuple"),
        ({"a": [1, 2]}, TypeError, "inputs must be an array"),
        (b"x", TypeError, "inputs must be an array"),
        (None, TypeError, "inputs must be an array.* got NoneType"),
        ([X, X[:4]], ValueError, r"as many rows each, got \[10, 4\]; batches go into a list as tuples"),
        (X[:0], ValueError, "no rows"),
        ([("x",)], TypeError, "a batch must be what the model takes"),
        ([()], TypeError, "a batch must be what the model takes"),
        (iter(()), ValueError, "gave no batch"),
    ],
    ids=["tuple", "dict of lists", "bytes", "none", "unlike lengths", "no rows", "text", "empty", "read"],
)
def test_what_is_no_input_is_refused_with_the_cure(inputs, error, says):
    with pytest.raises(error, match=says):
        read(inputs)


@pytest.mark.parametrize("sizes", [(0,), (4, 0)])
def test_sizes_must_be_whole_numbers(sizes):
    with pytest.raises(ValueError, match="must be a whole number of at least 1, got 0"):
        read(X, *sizes)
