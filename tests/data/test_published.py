"""The publisher's division and labels: what is refused, what is asked for, and what is left when rows are taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Categories, Features, Images, Inputs, Numbers, Table, fingerprint
from gated_domains.data.published import STATISTICS, Grouping, Published
from gated_domains.data.readers.folders import ImageFiles
from made_published import LABELS, PARTS, divided, division, labelled

# -- the division ------------------------------------------------------------------------------------------------------


def test_a_part_has_its_rows_in_order_and_rows_of_no_part_are_nowhere():
    parts = np.array([2, 0, -1, 1, 0, 2], np.int8)
    found = division(6, parts=parts, part_names=("train", "val", "test"), groupings=(), statistic="overall")
    assert [found.rows(part).tolist() for part in ("train", "val", "test")] == [[1, 4], [3], [0, 5]]
    assert found.others() == {}


def test_the_parts_in_distribution_are_the_others_and_empty_ones_are_not_there():
    found = division(80)
    assert {name: rows.tolist() for name, rows in found.others().items()} == {
        "id_val": [row for row in range(80) if row % 8 == 5],
        "id_test": [row for row in range(80) if row % 8 == 7],
    }
    without = division(80, parts=np.where(found.parts == PARTS.index("id_val"), 0, found.parts))
    assert list(without.others()) == ["id_test"]


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_a_division_without_rows_in_a_part_is_refused(part: str):
    parts = division(80).parts
    with pytest.raises(DataError, match=f"sites: the published division has no rows in {part}"):
        division(80, parts=np.where(parts == PARTS.index(part), PARTS.index("id_val"), parts))
    with pytest.raises(DataError, match=f"no rows in {part}"):
        division(80, part_names=tuple(f"no {name}" if name == part else name for name in PARTS))


@pytest.mark.parametrize("others", [{"groupings": ()}, {"statistic": "median"}])
def test_a_statistic_without_groups_or_unknown_is_refused(others: dict[str, Any], without_shape_checks):
    with pytest.raises(DataError, match="needs groups, or is not known"):
        division(80, **others)


def test_there_are_words_for_every_statistic():
    assert {name: f"{words}accuracy" for name, words in STATISTICS.items()} == {
        "overall": "accuracy",
        "worst_group": "worst-group accuracy",
        "percentile_10": "10th-percentile accuracy",
    }


def test_what_is_taken_keeps_part_and_group_of_every_row():
    whole, rows = division(80), np.array([42, 3, 3, 0, 17, 9])
    part = whole.take(rows)
    assert part.parts.tolist() == [whole.parts[row] for row in rows]
    assert part.groupings[0].index.tolist() == [whole.groupings[0].index[row] for row in rows]
    assert (part.part_names, part.metric, part.statistic, part.runs) == (PARTS, "accuracy", "worst_group", 3)


# -- of a data set -----------------------------------------------------------------------------------------------------


def test_a_division_of_other_rows_is_refused():
    with pytest.raises(DataError, match="240 inputs but 80 published parts"):
        replace(divided(240), published=division(80))


def test_what_is_taken_of_a_data_set_is_the_same_rows_of_everything():
    whole = replace(
        divided(80),
        metadata={"patient": np.arange(80) // 2},
        official_test=np.arange(80) % 5 == 0,
        keep_together="patient",
        notes=("said",),
    )
    rows = np.array([3, 79, 1, 8, 40])
    part = whole.take(rows)
    assert len(part) == 5
    assert np.array_equal(part.inputs.read(np.arange(5)), whole.inputs.read(rows))
    for name in ("targets", "domains", "official_test"):
        assert getattr(part, name).tolist() == getattr(whole, name)[rows].tolist()
    assert part.metadata["patient"].tolist() == (rows // 2).tolist()
    assert part.published is not None
    assert part.published.parts.tolist() == [2, 4, 1, 0, 0]
    assert (part.class_names, part.domain_names) == (whole.class_names, whole.domain_names)  # their numbers are kept
    assert (part.keep_together, part.notes, part.name) == ("patient", ("said",), "sites")


def test_data_without_domains_division_and_set_aside_rows_can_be_taken_of():
    whole = DomainDataset(name="plain", inputs=Features(np.eye(4)), targets=np.arange(4.0))
    part = whole.take(np.array([2]))
    assert (part.domains, part.official_test, part.published) == (None, None, None)
    assert part.targets.tolist() == [2.0]


def test_no_rows_are_no_data():
    with pytest.raises(DataError, match="no samples"):
        labelled().take(np.array([], np.int64))


def test_the_division_is_part_of_the_fingerprint():
    data = divided()
    published = data.published
    assert published is not None
    moved = np.where(np.arange(len(data)) == 5, 4, published.parts).astype(np.int8)
    (regions,) = published.groupings
    changes: list[dict[str, Any]] = [
        {"parts": moved},
        {"metric": "f1"},
        {"statistic": "percentile_10"},
        {"groupings": (Grouping(("x", "y", "z"), regions.index),)},
        {"groupings": (Grouping(regions.names, np.arange(240) % 3),)},
    ]
    others = [replace(data, published=replace(published, **change)) for change in changes]
    others.append(replace(data, published=None))
    found = [fingerprint(one) for one in [data, divided(), *others]]
    assert found[0] == found[1]
    assert len(set(found)) == len(others) + 1


# -- labels ------------------------------------------------------------------------------------------------------------


def test_what_is_predicted_and_in_how_many_numbers():
    numbers = DomainDataset(name="numbers", inputs=Features(np.eye(3)), targets=np.arange(3.0))
    assert [(one.task, one.outputs, one.num_classes) for one in (divided(), labelled(), numbers)] == [
        ("classes", 2, 2),
        ("labels", 3, None),
        ("number", 1, None),
    ]
    assert "3 labels" in repr(labelled())
    assert "a number to predict" in repr(numbers)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (np.zeros((180, 2), np.float32), r"must be floats of shape \(rows, 3\), got float32 of shape \(180, 2\)"),
        (np.zeros(180, np.float32), r"shape \(180,\)"),
        (np.zeros((180, 3), np.int64), "got int64"),
        (np.full((180, 3), 0.5, np.float32), "label 'toxic' of row 1 is 0.5; a label is 0, 1, or NaN where unknown"),
        (np.full((180, 3), np.inf, np.float32), "label 'toxic' of row 1 is inf"),
    ],
)  # fmt: skip
def test_targets_that_are_no_labels_are_refused(targets: np.ndarray, message: str):
    with pytest.raises(DataError, match=message):
        labelled(targets=targets)


def test_labels_change_the_fingerprint_by_name_and_by_what_is_known():
    data = labelled()
    known = data.targets.copy()
    known[7] = 0
    others = [labelled(label_names=("x", *LABELS[1:])), labelled(targets=known), data]
    assert len({fingerprint(one) for one in others}) == 3
    assert fingerprint(labelled()) == fingerprint(data)


# -- fewer samples, by kind --------------------------------------------------------------------------------------------


def image_files(folder: Path) -> ImageFiles:
    rng = np.random.default_rng(0)
    files = []
    for place in range(6):
        files.append(str(folder / f"{place}.png"))
        Image.fromarray(rng.integers(256, size=(5, 4, 3), dtype=np.uint8)).save(files[-1])
    return ImageFiles(files, height=5, width=4)


def every_kind(folder: Path) -> list[Inputs]:
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(6, 5, 4, 3), dtype=np.uint8)
    age = Numbers("age", np.array([1.0, np.nan, 3, 4, 5, 6]))
    table = Table([age, Categories("kind", np.array([0, 1, 1, -1, 0, 1], np.int32), ("a", "b"))])
    known = Images(images, digests=np.arange(6, dtype=np.uint64))
    return [Images(images), known, Features(rng.normal(size=(6, 3))), table, image_files(folder)]


def test_inputs_of_every_kind_give_the_samples_asked_for_in_that_order(tmp_path):
    rows = np.array([4, 1, 1, 0])
    for inputs in every_kind(tmp_path):
        part = inputs.take(rows)
        assert type(part) is type(inputs)
        assert (len(part), part.kind) == (4, inputs.kind)
        assert part.digests().tolist() == inputs.digests()[rows].tolist()
        assert part.digests()[1] == part.digests()[2] != part.digests()[0]
        if isinstance(inputs, Table):
            assert [column.name for column in part.columns] == ["age", "kind"]
            np.testing.assert_array_equal(part.columns[0].values, [5, np.nan, np.nan, 1])
            assert part.columns[1].values.tolist() == [0, 1, 1, 0]
            assert part.columns[1].levels == ("a", "b")
        else:
            np.testing.assert_array_equal(part.read(np.arange(4)), inputs.read(rows))


def test_what_is_taken_twice_is_taken_of_what_was_taken(tmp_path):
    for inputs in every_kind(tmp_path):
        twice = inputs.take(np.array([5, 3, 1])).take(np.array([2, 0]))
        assert twice.digests().tolist() == inputs.digests()[[1, 5]].tolist()


def test_a_division_is_told_apart_by_its_name_in_an_error():
    with pytest.raises(DataError, match="amazon: the published division"):
        Published(name="amazon", parts=np.zeros(3, np.int8), part_names=("train",), metric="accuracy")
