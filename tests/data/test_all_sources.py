"""Nothing held out: every row trains or validates a model that is to be used, with domains and without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features, Images
from gated_domains.data.splits import all_sources


def data(sizes: dict[str, int], **changed: Any) -> DomainDataset:
    """Rows of every domain in one random order, all different, with random labels of two classes."""
    rng = np.random.default_rng(0)
    domains = rng.permutation(np.repeat(np.arange(len(sizes)), list(sizes.values())))
    given: dict[str, Any] = {
        "name": "sites",
        "inputs": Features(np.arange(2.0 * len(domains)).reshape(-1, 2)),
        "targets": rng.integers(2, size=len(domains)),
        "class_names": ("no", "yes"),
        "domains": domains,
        "domain_names": tuple(sizes),
    }
    return DomainDataset(**{**given, **changed})


THREE = {"a": 60, "b": 90, "c": 150}


def without_domains(**changed: Any) -> DomainDataset:
    return replace(data(THREE), domains=None, domain_names=(), **changed)


def test_every_row_trains_or_validates_and_none_is_scored():
    split = all_sources(data(THREE))
    assert (split.name, split.held_out, split.sources) == ("none", (), ("a", "b", "c"))
    assert sorted([*split.train, *split.validation]) == list(range(300))
    assert split.test.tolist() == []
    assert split.test.dtype == np.int64
    assert (split.left_out, split.unseen_classes) == (0, ())


def test_validation_has_its_share_of_every_domain():
    dataset = data(THREE)
    split = all_sources(dataset, validation=0.3)
    assert np.bincount(dataset.domains[split.validation]) == pytest.approx([18, 27, 45], abs=2)


def test_data_without_domains_are_divided_too():
    split = all_sources(without_domains())
    assert (split.name, split.held_out, split.sources) == ("none", (), ())
    assert sorted([*split.train, *split.validation]) == list(range(300))
    assert len(split.validation) == 60


def test_one_domain_is_enough():
    split = all_sources(data({"only": 50}))
    assert split.sources == ("only",)
    assert len(split.validation) == 10


def test_a_domain_without_rows_is_no_source():
    assert all_sources(data({"a": 30, "empty": 0, "b": 30})).sources == ("a", "b")


def test_the_seed_decides_and_the_same_seed_decides_alike():
    first, again, other = (all_sources(data(THREE), seed=seed).validation.tolist() for seed in (0, 0, 1))
    assert first == again != other


@pytest.mark.parametrize("known", [True, False], ids=["with domains", "without"])
def test_rows_that_the_publisher_set_aside_validate(known):
    aside = np.arange(300) % 4 == 0
    dataset = data(THREE, official_test=aside) if known else without_domains(official_test=aside)
    split = all_sources(replace(dataset, scored_whole=frozenset({"a"})))
    assert split.validation.tolist() == np.flatnonzero(aside).tolist()
    assert split.train.tolist() == np.flatnonzero(~aside).tolist()


def test_groups_are_not_divided():
    patients = np.random.default_rng(1).integers(40, size=300)
    dataset = without_domains(metadata={"patient": patients})
    for split in (
        all_sources(dataset, keep_together="patient"),
        all_sources(replace(dataset, keep_together="patient")),
    ):
        assert not set(patients[split.train]) & set(patients[split.validation])
        assert 40 < len(split.validation) < 80


def test_copies_are_not_divided_unless_told_so():
    pictures = np.random.default_rng(2).integers(0, 256, (40, 2, 2, 3), dtype=np.uint8)
    twice = np.concatenate([pictures, pictures])
    dataset = DomainDataset.from_arrays(twice, np.arange(80) % 2)
    assert isinstance(dataset.inputs, Images)
    split = all_sources(dataset)
    assert set(split.validation % 40) & set(split.train % 40) == set()
    loose = all_sources(dataset, copies=False)
    assert set(loose.validation % 40) & set(loose.train % 40) != set()


def test_copies_of_rows_set_aside_do_not_train():
    pictures = np.random.default_rng(2).integers(0, 256, (40, 2, 2, 3), dtype=np.uint8)
    pictures[1] = pictures[0]
    dataset = replace(DomainDataset.from_arrays(pictures, np.arange(40) % 2), official_test=np.arange(40) % 5 == 0)
    split = all_sources(dataset)
    assert 1 not in split.train
    assert split.left_out == 1


@pytest.mark.parametrize(
    ("dataset", "settings", "message"),
    [
        (data(THREE), {"validation": 1.0}, "validation must lie between 0 and 1.*1.0"),
        (data(THREE), {"seed": -1}, "seed must be 0 or more, got -1"),
        (data(THREE), {"keep_together": "patient"}, "no metadata column 'patient'"),
        (data({"a": 2}), {}, "with nothing held out, validation=0.2 of 2 source rows leaves no row for validation"),
        (data(THREE, official_test=np.ones(300, np.bool_)), {}, "with nothing held out, no row is left for train"),
        (
            data(THREE, targets=np.zeros(300, np.int64)),
            {},
            "with nothing held out, all 240 training rows are of one class, 'no'.*add rows of another class",
        ),
    ],
    ids=["share", "seed", "column", "too few", "all set aside", "one class"],
)
def test_what_cannot_be_divided_is_refused_with_the_cure(dataset, settings, message):
    with pytest.raises(DataError, match=message):
        all_sources(dataset, **settings)
