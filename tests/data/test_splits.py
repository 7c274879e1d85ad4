"""Hold-outs against slow loops over rows: nothing leaks, shares are kept, every domain has its turn."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features, Images
from gated_domains.data.splits import HoldOut, hold_outs, kept_apart
from made_published import divided


class People(Features):
    """Rows of a table: two people may agree in every number."""

    repeats_are_copies = False


def data(sizes: dict[str, int], classes: int = 2, *, seed: int = 0, **more: Any) -> DomainDataset:
    """Rows of every domain in one random order, all different, with random labels."""
    rng = np.random.default_rng(seed)
    domains = rng.permutation(np.repeat(np.arange(len(sizes)), list(sizes.values())))
    given: dict[str, Any] = {
        "name": "sites",
        "inputs": Features(np.arange(2.0 * len(domains)).reshape(-1, 2)),
        "targets": rng.integers(classes, size=len(domains)),
        "class_names": tuple(f"c{index}" for index in range(classes)),
        "domains": domains,
        "domain_names": tuple(sizes),
    }
    return DomainDataset(**{**given, **more})


def names(splits: list[HoldOut]) -> list[str]:
    return [split.name for split in splits]


def domains_of(dataset: DomainDataset, rows: np.ndarray) -> set[str]:
    return {dataset.domain_names[dataset.domains[row]] for row in rows}


FIVE = {"a": 30, "b": 40, "c": 50, "d": 60, "e": 70}


# Which domains are held out


def test_each_domain_has_its_turn():
    splits = hold_outs(data(FIVE), "each")
    assert names(splits) == list(FIVE)
    for split in splits:
        assert split.held_out == (split.name,)
        assert split.sources == tuple(name for name in FIVE if name != split.name)


def test_names_separated_by_commas_have_their_turn_and_names_joined_by_plus_go_together():
    splits = hold_outs(data(FIVE), "b, e+a,c")
    assert [(split.name, split.held_out) for split in splits] == [("b", ("b",)), ("e+a", ("e", "a")), ("c", ("c",))]
    assert splits[1].sources == ("b", "c", "d")


def test_a_sequence_of_names_is_taken_one_by_one():
    assert names(hold_outs(data(FIVE), ["d", "a+b"])) == ["d", "a+b"]


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ("Bonn, Rhein", [("Bonn, Rhein",)]),
        ("Bonn, Rhein,x", [("Bonn, Rhein",), ("x",)]),
        ("x,Bonn, Rhein+x+y+z", [("x",), ("Bonn, Rhein", "x+y", "z")]),
        ("x+y", [("x+y",)]),
        ("z+x+y", [("z", "x+y")]),
        (["x+y", "Bonn, Rhein"], [("x+y",), ("Bonn, Rhein",)]),
    ],
)
def test_an_exact_name_wins_over_splitting_at_commas_and_plus(which, expected):
    # "x" is a domain too: the longest name that is there is taken.
    sizes = {"Bonn, Rhein": 20, "x+y": 20, "x": 20, "z": 20, "rest": 20}
    assert [split.held_out for split in hold_outs(data(sizes), which)] == expected


def test_a_domain_called_like_a_keyword_is_reached_by_a_sequence():
    dataset = data({"each": 20, "default": 20, "third": 20})
    assert names(hold_outs(dataset)) == ["each", "default", "third"]
    assert names(hold_outs(dataset, ["each"])) == ["each"]


def test_the_same_hold_out_named_twice_is_made_once():
    assert names(hold_outs(data(FIVE), "a,b+c,a,c+b")) == ["a", "b+c"]
    assert hold_outs(data(FIVE), "a+a")[0].held_out == ("a",)


def test_up_to_32_domains_are_held_out_one_by_one_and_more_in_five_folds():
    few, many = ({f"s{index}": 6 for index in range(count)} for count in (32, 33))
    assert names(hold_outs(data(few))) == list(few)
    assert names(hold_outs(data(many))) == [f"fold {index}" for index in range(1, 6)]


@given(st.lists(st.integers(4, 60), min_size=3, max_size=25), st.integers(2, 6), st.integers(0, 9))
def test_folds_hold_every_domain_out_once_and_are_balanced_by_rows(sizes, folds, seed):
    folds = min(folds, len(sizes))
    dataset = data({f"s{index}": size for index, size in enumerate(sizes)})
    splits = hold_outs(dataset, f"folds:{folds}", seed=seed)
    assert len(splits) == folds
    assert Counter(name for split in splits for name in split.held_out) == Counter(dataset.domain_names)
    rows = [len(split.test) for split in splits]
    assert max(rows) - min(rows) <= max(sizes)


def test_folds_of_many_domains_are_nearly_equal_and_another_seed_deals_otherwise():
    sizes = {f"s{index}": 10 + index for index in range(40)}
    dealt = [[split.held_out for split in hold_outs(data(sizes), "folds:4", seed=seed)] for seed in (0, 0, 1)]
    assert dealt[0] == dealt[1] != dealt[2]
    for folds in dealt:
        rows = [sum(sizes[name] for name in fold) for fold in folds]
        assert max(rows) <= 1.05 * min(rows)


# Nothing leaks


def check_no_leak(dataset: DomainDataset, split: HoldOut, groups: np.ndarray | None = None) -> None:
    """Pair by pair: no row in two parts, no held-out domain in training, no copy and no group on two sides."""
    parts = {"train": split.train, "validation": split.validation, "test": split.test}
    for rows in parts.values():
        assert rows.dtype == np.int64
        assert list(rows) == sorted(set(rows.tolist()))
    for one, other in combinations(parts.values(), 2):
        assert not set(one.tolist()) & set(other.tolist())
    assert not (domains_of(dataset, split.train) | domains_of(dataset, split.validation)) & set(split.held_out)
    held_out = dataset.rows_of(*split.held_out)
    sides = [split.train.tolist(), split.validation.tolist(), held_out.tolist()]
    values = dataset.inputs.read(np.arange(len(dataset)))
    for one, other in combinations(sides, 2):
        for i in one:
            for j in other:
                if dataset.inputs.repeats_are_copies:
                    assert (values[i] != values[j]).any(), f"rows {i} and {j} are copies"
                if groups is not None:
                    assert groups[i] != groups[j], f"rows {i} and {j} are of group {groups[i]}"


def slow_left_out(dataset: DomainDataset, split: HoldOut, groups: np.ndarray | None = None) -> set[int]:
    values = dataset.inputs.read(np.arange(len(dataset)))
    held_out = dataset.rows_of(*split.held_out).tolist()
    left_out = set()
    for row in set(range(len(dataset))) - set(held_out):
        for other in held_out:
            copy = dataset.inputs.repeats_are_copies and (values[row] == values[other]).all()
            if copy or (groups is not None and groups[row] == groups[other]):
                left_out.add(row)
    return left_out


@given(st.data())
def test_nothing_leaks_whatever_is_copied_and_grouped(draw):
    rows = draw.draw(st.integers(30, 60))
    column = st.lists(st.integers(0, draw.draw(st.integers(10, 80))), min_size=rows, max_size=rows)
    values, groups = (np.array(draw.draw(column)) for _ in range(2))
    dataset = DomainDataset(
        name="sites",
        inputs=Features(values[:, None].astype(float)),
        targets=np.arange(rows) % 2,
        class_names=("no", "yes"),
        domains=np.arange(rows) % 5,
        domain_names=tuple("abcde"),
        metadata={"patient": groups},
    )
    together = draw.draw(st.sampled_from([None, "patient"]))
    try:
        which = draw.draw(st.sampled_from(["each", "folds:2", "a+c"]))
        splits = hold_outs(dataset, which, keep_together=together, copies=True)
    except DataError:  # so many copies that a side is empty or of one class; a test of its own below
        return
    for split in splits:
        check_no_leak(dataset, split, groups if together else None)
        left_out = slow_left_out(dataset, split, groups if together else None)
        assert split.left_out == len(left_out)
        used = {*split.train.tolist(), *split.validation.tolist(), *split.test.tolist()}
        assert used == set(range(rows)) - left_out


def copied(dataset: DomainDataset, pairs: list[tuple[int, int]], kind: type[Features] = Features) -> DomainDataset:
    values = dataset.inputs.read(np.arange(len(dataset))).copy()
    for original, copy in pairs:
        values[copy] = values[original]
    return dataset.with_inputs(kind(values))


def test_source_rows_that_are_copies_of_held_out_ones_are_left_out_and_counted():
    dataset = data(FIVE)
    a, b, c = (dataset.rows_of(name) for name in "abc")
    dataset = copied(dataset, [(a[0], b[0]), (a[0], b[1]), (a[1], c[0])])
    split = hold_outs(dataset, "a")[0]
    assert split.left_out == 3
    assert not set(split.train) | set(split.validation) >= {b[0]}
    check_no_leak(dataset, split)
    assert hold_outs(dataset, "d")[0].left_out == 0


def test_rows_of_a_table_that_agree_are_not_taken_for_copies():
    dataset = data(FIVE)
    a, b = dataset.rows_of("a"), dataset.rows_of("b")
    split = hold_outs(copied(dataset, [(a[0], b[0])], People), "a")[0]
    assert split.left_out == 0


def test_copies_stay_on_one_side_of_train_and_validation():
    dataset = data({"a": 40, "b": 40, "c": 40})
    b, c = dataset.rows_of("b"), dataset.rows_of("c")
    dataset = copied(dataset, [(b[i], c[i]) for i in range(20)])
    split = hold_outs(dataset, "a", validation=0.5)[0]
    check_no_leak(dataset, split)
    assert split.left_out == 0
    assert abs(len(split.validation) - 40) <= 2


def test_a_group_stays_on_one_side_and_leaves_when_the_held_out_domain_has_it():
    dataset = data(FIVE, metadata={"patient": np.array([f"p{row % 60}" for row in range(250)])})
    split = hold_outs(dataset, "a", keep_together="patient")[0]
    groups = dataset.metadata["patient"]
    check_no_leak(dataset, split, groups)
    assert split.left_out == len(slow_left_out(dataset, split, groups)) > 0


def test_groups_linked_by_copies_stay_on_one_side():
    # Rows 0 and 1 are patient 0, rows 2 and 3 patient 1 and so on; rows 1 and 2 are copies, so are 3 and 4, up to 18.
    values = np.arange(80.0)
    values[2:20:2] = values[1:19:2]
    dataset = DomainDataset(
        name="sites",
        inputs=Features(values[:, None]),
        targets=np.arange(80) % 2,
        class_names=("no", "yes"),
        domains=np.repeat([0, 1], 40),
        domain_names=("a", "b"),
        metadata={"patient": np.where(np.arange(80) < 20, np.arange(80) // 2, 100 + np.arange(80))},
    )
    for seed in range(10):
        split = hold_outs(dataset, "b", keep_together="patient", copies=True, seed=seed, validation=0.4)[0]
        assert len({row in split.validation for row in range(20)}) == 1


def test_vectors_that_are_often_equal_by_chance_are_no_copies():
    """Two bits a sample: taken for copies, nothing would be left to train on."""
    bits = np.random.default_rng(0).integers(0, 2, (300, 2)).astype(float)
    dataset = DomainDataset.from_arrays(bits, np.arange(300) % 2, np.arange(300) % 3)
    assert [split.left_out for split in hold_outs(dataset)] == [0, 0, 0]
    assert [len(split.train) + len(split.validation) for split in hold_outs(dataset)] == [200, 200, 200]
    with pytest.raises(DataError, match="left out"):
        hold_outs(dataset, copies=True)


def test_copies_across_domains_are_copies_however_many_they_are():
    values = np.random.default_rng(0).normal(size=(100, 3))
    dataset = DomainDataset.from_arrays(np.tile(values, (3, 1)), np.arange(300) % 2, np.repeat([0, 1, 2], 100))
    with pytest.raises(DataError, match="left out"):
        hold_outs(dataset)
    assert hold_outs(dataset, copies=False)[0].left_out == 0


def test_the_same_rows_are_drawn_whatever_form_the_samples_have():
    """As images or as features of them: else a cache of features would mix up training and validation."""
    dataset = data(FIVE)
    forms = [
        dataset,
        dataset.with_inputs(Features(np.random.default_rng(1).normal(size=(len(dataset), 7)))),
        dataset.with_inputs(Images(np.random.default_rng(2).integers(0, 256, (len(dataset), 4, 4), np.uint8))),
    ]
    drawn = [[split.validation.tolist() for split in hold_outs(form, seed=5)] for form in forms]
    assert drawn[0] == drawn[1] == drawn[2]
    plain = [split.validation.tolist() for split in hold_outs(dataset, seed=5, copies=False)]
    assert drawn[0] == plain


def test_a_data_set_may_say_itself_what_is_kept_together():
    dataset = data(FIVE, metadata={"patient": np.arange(250) // 2}, keep_together="patient")
    for split in hold_outs(dataset):
        assert not set(split.train // 2) & set(split.validation // 2)


def test_digests_are_computed_once_for_all_hold_outs(monkeypatch):
    calls = []
    original = Features.digests
    monkeypatch.setattr(Features, "digests", lambda self: calls.append(1) or original(self))
    hold_outs(data(FIVE), "each")
    assert len(calls) == 1


# Validation inside the sources


def strata(dataset: DomainDataset, rows: np.ndarray) -> Counter[tuple[int, int]]:
    return Counter((int(dataset.domains[row]), int(dataset.targets[row])) for row in rows)


@given(
    st.lists(st.integers(10, 60), min_size=2, max_size=6),
    st.integers(2, 4),
    st.sampled_from([0.1, 0.2, 1 / 3]),
    st.integers(0, 5),
)
def test_validation_has_its_share_of_every_domain_and_class(sizes, classes, fraction, seed):
    dataset = data({f"s{index}": size for index, size in enumerate([40, *sizes])}, classes, seed=seed)
    split = hold_outs(dataset, "s0", validation=fraction, seed=seed)[0]
    sources = np.concatenate([split.train, split.validation])
    whole, drawn = strata(dataset, sources), strata(dataset, split.validation)
    singles = sum(1 for rows in whole.values() if rows == 1)
    assert abs(len(split.validation) - fraction * len(sources)) <= 0.5
    # The rows of strata with one row are drawn from the others instead.
    share = fraction * len(sources) / (len(sources) - singles)
    for stratum, rows in whole.items():
        if rows == 1:
            assert drawn[stratum] == 0
        else:
            assert abs(drawn[stratum] - share * rows) < 1 + 1e-9
            assert drawn[stratum] < rows


@pytest.mark.parametrize("fraction", [0.5, 0.7, 0.95])
def test_a_large_validation_share_leaves_a_row_of_every_domain_and_class_to_train_on(fraction):
    dataset = data(FIVE, classes=8)
    split = hold_outs(dataset, "a", validation=fraction)[0]
    assert set(strata(dataset, split.train)) == set(strata(dataset, np.flatnonzero(dataset.domains != 0)))
    assert len(split.validation) <= round(fraction * 220)


def test_over_many_seeds_a_row_is_drawn_as_often_as_the_fraction_says():
    dataset = data({"a": 10, "b": 12, "c": 13}, seed=3)
    drawn = np.zeros(len(dataset))
    for seed in range(600):
        drawn[hold_outs(dataset, "a", validation=0.3, seed=seed)[0].validation] += 1
    frequency = drawn[np.flatnonzero(dataset.domains != 0)] / 600
    standard_error = np.sqrt(0.3 * 0.7 / 600)
    assert np.abs(frequency - 0.3).max() < 5 * standard_error


def test_small_strata_do_not_all_round_the_same_way():
    # Half a row each: without care every first class of a domain would get none and every second one.
    sizes = {f"s{index}": 10 for index in range(9)}
    targets = np.arange(90) % 2
    dataset = data(sizes, targets=targets, domains=np.repeat(np.arange(9), 10))
    drawn = strata(dataset, hold_outs(dataset, "s0", validation=0.1)[0].validation)
    by_class = Counter()
    for (_, label), rows in drawn.items():
        by_class[label] += rows
    assert by_class[0] + by_class[1] == 8
    assert min(by_class[0], by_class[1]) >= 2


def test_where_many_strata_have_one_row_the_others_make_up_the_share():
    # Domain b has 30 rows of one class, and one row of each of 30 others.
    targets = np.concatenate([np.arange(31) % 2, np.zeros(30, np.int64), np.arange(1, 31)])
    dataset = data({"a": 31, "b": 60}, 31, targets=targets, domains=np.repeat([0, 1], [31, 60]))
    split = hold_outs(dataset, "a", validation=0.2)[0]
    assert strata(dataset, split.validation) == {(1, 0): 12}


def test_a_group_of_several_classes_counts_for_the_one_it_has_most_of():
    # Ten rows a patient: of every other patient nine are of class 0 and one of class 1, of the rest all of class 1.
    targets = np.tile([0] * 9 + [1] * 11, 30)
    patients = np.repeat(np.arange(60), 10)
    dataset = data({"a": 200, "b": 400}, targets=targets, domains=np.repeat([0, 1], [200, 400]))
    dataset = replace(dataset, metadata={"patient": patients})
    for seed in range(5):
        drawn = hold_outs(dataset, "a", keep_together="patient", seed=seed)[0].validation
        assert Counter(patient % 2 for patient in set(patients[drawn])) == {0: 4, 1: 4}


def test_numbers_to_predict_are_stratified_by_domain_alone():
    dataset = data(FIVE, targets=np.linspace(0, 1, 250), class_names=None)
    split = hold_outs(dataset, "a", validation=0.25)[0]
    drawn = Counter(dataset.domains[split.validation].tolist())
    assert (drawn[1], drawn[3]) == (10, 15)
    assert (drawn[2], drawn[4]) in {(12, 18), (13, 17)}
    assert split.unseen_classes == ()


def test_the_seed_alone_decides():
    dataset = data(FIVE)
    first, again, other = (hold_outs(dataset, "a", seed=seed)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.validation, again.validation)
    assert set(first.validation.tolist()) != set(other.validation.tolist())


def test_a_split_depends_on_the_sources_alone():
    """Another held-out domain, of another size and name, moves no source row to the other side."""
    inputs = np.random.default_rng(1).normal(size=(200, 3))
    labels = np.random.default_rng(2).integers(2, size=200)
    domains = np.array(["b", "c"]).repeat(100)
    splits = []
    for extra, name in ((30, "a"), (55, "z")):
        dataset = DomainDataset.from_arrays(
            np.concatenate([inputs, np.random.default_rng(3).normal(size=(extra, 3))]),
            np.concatenate([labels, np.arange(extra) % 2]),
            np.concatenate([domains, np.full(extra, name)]),
        )
        splits.append(hold_outs(dataset, name)[0])
    np.testing.assert_array_equal(splits[0].validation, splits[1].validation)


def test_a_source_is_divided_nearly_alike_whatever_is_held_out():
    dataset = data(FIVE)
    without_a, without_b = (hold_outs(dataset, name)[0] for name in "ab")
    for name in "cde":
        rows = dataset.rows_of(name)
        one, other = (set(rows) & set(split.validation) for split in (without_a, without_b))
        assert len(one ^ other) <= 2  # one by rounding, for each class


# What the publisher set aside


def published(sizes: dict[str, int], **more: Any) -> DomainDataset:
    dataset = data(sizes, **more)
    return data(sizes, **more, official_test=np.arange(len(dataset)) % 3 == 0)


def test_with_an_official_test_set_sources_validate_on_theirs_and_the_held_out_one_is_scored_on_its():
    dataset = published(FIVE, scored_whole=frozenset({"b"}))
    for split in hold_outs(dataset, "a,b,a+b"):
        train, validation, test = [], [], []
        for row in range(len(dataset)):
            name, set_aside = dataset.domain_names[dataset.domains[row]], dataset.official_test[row]
            if name not in split.held_out:
                (validation if set_aside else train).append(row)
            elif set_aside or name == "b":
                test.append(row)
        assert [split.train.tolist(), split.validation.tolist(), split.test.tolist()] == [train, validation, test]
        assert split.left_out == 0


def test_copies_between_an_official_training_and_test_set_leave_training():
    dataset = published(FIVE)
    b, c = dataset.rows_of("b"), dataset.rows_of("c")
    train = [row for row in c if not dataset.official_test[row]]
    test = [row for row in b if dataset.official_test[row]]
    unscored = [row for row in dataset.rows_of("a") if not dataset.official_test[row]]
    dataset = copied(dataset, [(test[0], train[0]), (unscored[0], train[1])])
    split = hold_outs(dataset, "a")[0]
    check_no_leak(dataset, split)
    assert split.left_out == 2
    assert test[0] in split.validation


# What is refused, and what is told


def test_classes_that_no_training_row_has_are_told():
    dataset = data(FIVE, classes=4)
    targets = dataset.targets % 2
    targets[dataset.rows_of("a")[:2]] = [3, 2]
    splits = hold_outs(data(FIVE, classes=4, targets=targets), "a,b")
    assert [split.unseen_classes for split in splits] == [("c2", "c3"), ()]


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("hospitl", ["'hospitl'", "did you mean 'hospital'?"]),
        ("hospital,clnic", ["'clnic'", "did you mean 'clinic'?"]),
        ("hospital+", ["''", "hospital"]),
        ("", ["''", "hospital"]),
        ([], ["no domain is named"]),
        ("Each", ["did you mean 'each'?"]),
        ("folds", ["did you mean 'folds:3'?"]),
        ("folds:1", ["folds:1", "2 to 3"]),
        ("folds:4", ["folds:4", "2 to 3"]),
        ("folds:few", ["folds:few", "2 to 3"]),
        ("folds:2.5", ["folds:2.5", "2 to 3"]),
        ("folds:-2", ["folds:-2", "2 to 3"]),
        ("hospital+clinic+school", ["hospital+clinic+school", "train"]),
    ],
)
def test_a_hold_out_that_cannot_be_is_refused_with_the_cure(which, words):
    with pytest.raises(DataError) as caught:
        hold_outs(data({"hospital": 20, "clinic": 20, "school": 20}), which)
    for word in words:
        assert word in str(caught.value)


def test_data_without_domains_is_refused():
    dataset = DomainDataset.from_arrays(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(DataError, match=r"no domains.*--domain COLUMN"):
        hold_outs(dataset)


@pytest.mark.parametrize("sizes", [{"only": 20}, {"only": 20, "empty": 0}])
def test_one_domain_is_refused(sizes):
    with pytest.raises(DataError, match=r"'only'.*train"):
        hold_outs(data(sizes), "only")


def test_a_held_out_domain_without_rows_is_refused_and_named():
    dataset = data({"a": 20, "b": 20, "empty": 0})
    for which in ("empty", "each", "a+empty", "folds:2"):
        with pytest.raises(DataError, match="'empty' has no rows"):
            hold_outs(dataset, which)
    assert hold_outs(dataset, "a")[0].sources == ("b",)


def test_a_held_out_domain_without_official_test_rows_is_refused_unless_it_is_scored_whole():
    aside = np.arange(250) % 3 == 0
    domains = data(FIVE).domains
    aside[domains == 0] = False
    with pytest.raises(DataError, match=r"'a'.*no test rows"):
        hold_outs(data(FIVE, official_test=aside), "a")
    whole = hold_outs(data(FIVE, official_test=aside, scored_whole=frozenset("a")), "a")[0]
    assert len(whole.test) == 30


def test_training_data_of_one_class_is_refused_with_the_class_and_the_hold_out():
    targets = np.where(data(FIVE).domains == 1, 1, 0)
    with pytest.raises(DataError, match=r"'b'.*'c0'"):
        hold_outs(data(FIVE, targets=targets), "b")
    assert hold_outs(data(FIVE, targets=targets), "a")[0].unseen_classes == ()


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_validation_share_outside_0_and_1_is_refused(fraction):
    with pytest.raises(DataError, match=f"validation.*{fraction}"):
        hold_outs(data(FIVE), validation=fraction)


def test_a_validation_share_that_leaves_no_row_on_a_side_is_refused():
    tiny = data({"a": 10, "b": 12})
    with pytest.raises(DataError, match=r"'a'.*0.01.*validation"):
        hold_outs(tiny, "a", validation=0.01)
    aside = np.ones(22, bool)
    with pytest.raises(DataError, match=r"'a'.*no row.*train"):
        hold_outs(data({"a": 10, "b": 12}, official_test=aside), "a")
    with pytest.raises(DataError, match=r"'a'.*validation"):
        hold_outs(data({"a": 10, "b": 12}, official_test=~aside, scored_whole=frozenset("a")), "a")


def test_when_copies_leave_nothing_to_train_on_the_message_says_so():
    dataset = data({"a": 10, "b": 12})
    same = dataset.with_inputs(Features(np.ones((22, 2))))
    with pytest.raises(DataError, match=r"'a'.*12 .*left out"):
        hold_outs(same, "a", copies=True)


def test_a_column_to_keep_together_that_is_not_there_is_refused_with_the_nearest():
    dataset = data(FIVE, metadata={"patient": np.arange(250)})
    with pytest.raises(DataError, match=r"'pateint'.*did you mean 'patient'"):
        hold_outs(dataset, keep_together="pateint")


@pytest.mark.parametrize(
    "column",
    [
        np.array([1.0, *[np.nan] * 249]),
        np.array(["x", *[""] * 249]),
        np.array(["x", *[None] * 249], object),
    ],
)
def test_a_missing_group_is_refused_with_its_row(column):
    with pytest.raises(DataError, match=r"row 2 .*patient.*249"):
        hold_outs(data(FIVE, metadata={"patient": column}), keep_together="patient")


def test_groups_may_be_numbers_text_or_mixed():
    rows = np.arange(250) % 60
    columns = [
        rows,
        rows.astype(float),
        rows.astype(str),
        np.array([int(r) if r % 2 else f"p{r}" for r in rows], object),
    ]
    parts = [hold_outs(data(FIVE, metadata={"g": g}), "a", keep_together="g")[0] for g in columns]
    assert len({part.left_out for part in parts}) == 1


def test_a_negative_seed_is_refused():
    with pytest.raises(DataError, match=r"seed.*-1"):
        hold_outs(data(FIVE), seed=-1)


def test_a_column_that_differs_from_row_to_row_is_no_domain():
    data = DomainDataset.from_arrays(np.arange(20.0).reshape(10, 2), np.arange(10) % 2, np.arange(10) / 7)
    with pytest.raises(DataError, match=r"10 domains in 10 rows .* no domain"):
        hold_outs(data)


# The publisher's own division


def test_the_official_hold_out_is_the_publishers_division_and_the_default_where_there_is_one():
    dataset = divided()
    published = dataset.published
    for which in ("official", ["official"], ("official",), "default"):
        (split,) = hold_outs(dataset, which)
        assert (split.name, split.key, split.held_out, split.pooled) == ("official", "official", ("test",), True)
        assert split.train.tolist() == published.rows("train").tolist()
        assert split.validation.tolist() == published.rows("val").tolist()
        assert split.test.tolist() == published.rows("test").tolist()
        assert {name: rows.tolist() for name, rows in split.also.items()} == {
            "id_val": published.rows("id_val").tolist(),
            "id_test": published.rows("id_test").tolist(),
        }
        assert split.left_out == 0


def test_the_official_sources_are_the_domains_that_train_and_unseen_classes_are_found():
    dataset = divided()
    train, test = dataset.published.rows("train"), dataset.published.rows("test")
    domains, targets = dataset.domains.copy(), dataset.targets.copy()
    domains[train], domains[test], targets[train] = 1, 3, 0
    (split,) = hold_outs(replace(dataset, domains=domains, targets=targets), "official")
    assert split.sources == ("b",)
    assert split.unseen_classes == ("yes",)
    (split,) = hold_outs(replace(dataset, domains=None, domain_names=()), "official")
    assert split.sources == ()


def test_rows_of_no_part_are_used_nowhere():
    dataset = divided()
    parts = np.where(np.arange(len(dataset)) % 16 == 0, -1, dataset.published.parts).astype(np.int8)
    (split,) = hold_outs(replace(dataset, published=replace(dataset.published, parts=parts)), "official")
    used = np.concatenate([split.train, split.validation, split.test, *split.also.values()])
    assert sorted(used.tolist()) == [row for row in range(len(dataset)) if row % 16 != 0]


def test_published_data_can_be_held_out_by_domain_too():
    (split,) = hold_outs(divided(), "b")
    assert (split.name, split.key, split.pooled, dict(split.also)) == ("b", "b", False, {})
    assert domains_of(divided(), split.test) == {"b"}


@pytest.mark.parametrize("which", ["official", ["official"]])
def test_without_a_published_division_there_is_no_official_hold_out(which):
    with pytest.raises(DataError, match="sites has no published division; hold out a domain by its name"):
        hold_outs(data(FIVE), which)


# Very many domains


def many(domains: int = 1200, rows: int = 3600) -> DomainDataset:
    return data({f"user {place}": rows // domains for place in range(domains)})


def test_a_fold_of_very_many_domains_is_scored_as_one_and_its_key_alone_gives_it_again():
    dataset = many()
    splits = hold_outs(dataset, "default", seed=3)
    assert [split.key for split in splits] == [f"fold {place} of 5" for place in range(1, 6)]
    assert [(split.name, split.held_out) for split in splits] == [(f"fold {n}", (f"fold {n}",)) for n in range(1, 6)]
    assert all(split.pooled for split in splits)
    assert sorted(np.concatenate([split.test for split in splits]).tolist()) == list(range(len(dataset)))
    for split in splits[::4]:
        assert not domains_of(dataset, split.test) & set(split.sources)
        for which in (split.key, [split.key]):
            (again,) = hold_outs(dataset, which, seed=3)
            assert (again.name, again.key, again.held_out) == (split.name, split.key, split.held_out)
            for part in ("train", "validation", "test"):
                assert np.array_equal(getattr(again, part), getattr(split, part))
    assert not np.array_equal(hold_outs(dataset, "fold 1 of 5", seed=4)[0].test, splits[0].test)


def test_up_to_200_domains_of_a_fold_are_scored_one_by_one_under_their_own_names():
    (split, _) = hold_outs(many(400, 1200), "folds:2")
    assert len(split.held_out) == 200
    assert not split.pooled
    assert split.key == "+".join(split.held_out)
    (split, _) = hold_outs(many(402, 1206), "folds:2")
    assert (split.pooled, split.key) == (True, "fold 1 of 2")


def test_very_many_domains_that_are_named_are_one_too_and_go_by_their_names():
    dataset = many(400, 1200)
    names = "+".join(dataset.domain_names[:201])
    (split,) = hold_outs(dataset, [names])
    assert (split.pooled, split.key) == (True, names)
    (again,) = hold_outs(dataset, [split.key])
    assert np.array_equal(again.test, split.test)


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("fold 6 of 5", "there is no fold 6 of 5; folds are counted from 1 to 5"),
        ("fold 0 of 5", "there is no fold 0 of 5"),
        ("fold 1 of 1", "number of folds must be a whole number from 2 to 1200"),
        ("fold 1 of 9999", "from 2 to 1200"),
        ("fold 1", "there is no domain 'fold 1'"),
    ],
)
def test_a_fold_that_is_none_is_refused(which: str, message: str):
    with pytest.raises(DataError, match=message):
        hold_outs(many(), which)


def test_a_domain_that_is_called_like_a_fold_is_that_domain():
    (split,) = hold_outs(data({"fold 1 of 2": 40, "b": 40, "c": 40}), "fold 1 of 2")
    assert split.held_out == ("fold 1 of 2",)
    assert not split.pooled


def test_a_validation_domain_cannot_be_kept_apart_from_a_fold_or_the_official_division():
    for dataset, held_out, apart in ((divided(), "official", "a"), (many(), "fold 1 of 5", "user 3")):
        with pytest.raises(DataError, match=f"{held_out} is selected by its own validation rows"):
            kept_apart(dataset, held_out, apart, validation=0.2, seed=0)
        with pytest.raises(DataError, match=f"{held_out} is no source domain; name one"):
            kept_apart(dataset, None, held_out, validation=0.2, seed=0)


def test_fifteen_thousand_domains_cost_next_to_nothing():
    dataset = many(15_000, 45_000)
    began = time.process_time()
    hold_outs(dataset, "fold 2 of 5")
    assert time.process_time() - began < 4  # less than one, where nothing else runs
