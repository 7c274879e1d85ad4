"""The shift test: its statistic against loops over pairs, its level on rows without a shift, its power on others."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from scipy.stats import binom

from gated_domains.data.errors import DataError
from gated_domains.insight.shift import mean_difference, rows, two_sample
from gated_domains.insight.shift.two_sample import two_sample_test
from gated_domains.layer.kernels import Gaussian


def squared(kernel, a, b) -> float:
    """``||mu_a - mu_b||^2``, pair by pair."""

    def product(x, z):
        return sum(float(kernel(one[None], other[None])) for one in x for other in z) / (len(x) * len(z))

    return product(a, a) - 2 * product(a, b) + product(b, b)


def sides(reference=9, new=6, shift=0.3, width=3):
    return torch.randn(reference, width), torch.randn(new, width) + shift


def test_over_pairs_the_distance_is_what_a_loop_over_all_pairs_gives(make_kernel, monkeypatch):
    monkeypatch.setattr(rows, "BLOCK", 4)  # so that rows are cut into blocks
    kernel, (reference, new) = make_kernel(), sides()
    found = two_sample_test(kernel, reference, new, by="pairs", permutations=19)
    assert found.squared == pytest.approx(squared(kernel, reference.double(), new.double()), rel=1e-4, abs=1e-6)
    assert found.distance == pytest.approx(max(0, found.squared) ** 0.5)
    assert (found.by, found.rows, found.permutations) == ("pairs", (9, 6), 19)


def test_with_every_row_a_landmark_nothing_is_lost(make_kernel, monkeypatch):
    monkeypatch.setattr(rows, "BLOCK", 4)
    kernel, (reference, new) = make_kernel(), [side.double() for side in sides(20, 15)]
    whole = two_sample_test(kernel, reference, new, by="pairs", permutations=19)
    seen = two_sample_test(kernel, reference, new, by="landmarks", landmarks=1_000, permutations=19)
    assert seen.by == "landmarks"
    assert seen.squared == pytest.approx(whole.squared, rel=1e-7)


def test_landmarks_see_a_part_of_the_distance_and_most_of_it_with_many():
    reference, new = sides(200, 150, width=5)
    kernel = Gaussian(3.0)
    whole = two_sample_test(kernel, reference, new, by="pairs", permutations=19).squared
    few, many = (
        two_sample_test(kernel, reference, new, by="landmarks", landmarks=count, permutations=19).squared
        for count in (5, 100)
    )
    assert 0 < few < many <= whole * (1 + 1e-5)
    assert many > 0.98 * whole


@pytest.mark.usefixtures("without_shape_checks")
def test_every_labelling_is_measured_as_if_it_were_the_truth():
    pooled = torch.randn(14, 3, dtype=torch.float64)
    kernel = Gaussian(2.0)
    labels = torch.zeros(2, 14)
    for row in labels:
        row[torch.randperm(14)[:5]] = 1
    ways = (
        mean_difference.ByPairs(kernel, pooled[:9], pooled[9:], 14),
        mean_difference.ByLandmarks(kernel, pooled[:9], pooled[9:], 14, torch.Generator(), torch.arange(14)),
    )
    for way in ways:
        for row, found in zip(labels.bool(), way(labels), strict=True):
            scale = (1 / 5 + 1 / 9) ** 2
            assert scale * float(found) == pytest.approx(squared(kernel, pooled[row], pooled[~row]), rel=1e-9)


def false_alarms(by, reference, new, *, repeats, permutations=99, landmarks=16, same_seed=False):
    """How many of so many pairs of sides without a shift get p <= 0.05."""
    generator = torch.Generator().manual_seed(7)
    mix = torch.randn(3, 3, generator=generator)
    alarms = 0
    for repeat in range(repeats):
        pooled = torch.randn(reference + new, 3, generator=generator) @ mix  # columns that hang together
        found = two_sample_test(
            Gaussian(2.0),
            pooled[:reference],
            pooled[reference:],
            by=by,
            permutations=permutations,
            landmarks=landmarks,
            seed=0 if same_seed else repeat,
        )
        alarms += found.p_value <= 0.05
    return alarms


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("by", ["pairs", "landmarks"])
@pytest.mark.parametrize(("reference", "new"), [(15, 15), (50, 8)])
def test_without_a_shift_five_in_a_hundred_are_false_alarms(by, reference, new):
    repeats = 250
    alarms = false_alarms(by, reference, new, repeats=repeats, permutations=19)
    low, high = binom.interval(0.99, repeats, 0.05)
    assert low <= alarms <= high


@pytest.mark.slow
@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("same_seed", [False, True])
@pytest.mark.parametrize("by", ["pairs", "landmarks"])
@pytest.mark.parametrize(("reference", "new"), [(40, 40), (300, 20), (12, 50)])
def test_the_level_is_exact_over_a_thousand_batches(by, reference, new, same_seed):
    repeats = 1_000
    alarms = false_alarms(by, reference, new, repeats=repeats, permutations=99, landmarks=24, same_seed=same_seed)
    low, high = binom.interval(0.99, repeats, 0.05)
    assert low <= alarms <= high


@pytest.mark.usefixtures("without_shape_checks")
def test_with_one_seed_for_all_batches_the_level_holds_too():
    # Landmarks then always lie in the same places, 6 of them on the side of 8 rows.
    repeats = 250
    alarms = false_alarms("landmarks", 30, 8, repeats=repeats, permutations=19, landmarks=12, same_seed=True)
    low, high = binom.interval(0.99, repeats, 0.05)
    assert low <= alarms <= high


def clustered_alarms(by, *, together, repeats):
    """How many of so many pairs of sides get p <= 0.05, where 10 rows of a patient are nearly the same."""
    generator, found = torch.Generator().manual_seed(5), 0
    labels = (np.arange(200) // 10, np.arange(100) // 10)
    for repeat in range(repeats):
        patients = torch.randn(30, 1, 3, generator=generator)
        rows = (patients + 0.3 * torch.randn(30, 10, 3, generator=generator)).reshape(300, 3)
        tested = two_sample_test(
            Gaussian(2.0), rows[:200], rows[200:], by=by, permutations=39, landmarks=40, seed=repeat,
            groups=labels if together else None,
        )  # fmt: skip
        found += tested.p_value <= 0.05
    return found


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("by", ["pairs", "landmarks"])
def test_rows_of_a_patient_that_are_kept_together_keep_the_level(by):
    assert clustered_alarms(by, together=False, repeats=20) > 15
    low, high = binom.interval(0.99, 150, 0.05)
    assert low <= clustered_alarms(by, together=True, repeats=150) <= high


def test_every_row_a_group_of_its_own_is_no_grouping():
    reference, new = sides(30, 12)
    plain = two_sample_test(Gaussian(2.0), reference, new)
    assert two_sample_test(Gaussian(2.0), reference, new, groups=(np.arange(30), np.arange(12))) == plain
    with pytest.raises(DataError, match="a label for each of 12 new rows"):
        two_sample_test(Gaussian(2.0), reference, new, groups=(np.arange(30), np.arange(3)))


def test_groups_of_unequal_sizes_are_measured_by_their_rows():
    """Three groups and one new: with all labellings of one group of four tried, p is the place among the four."""
    sizes = (2, 3, 5, 4)
    parts = [torch.randn(size, 2) + place for place, size in enumerate(sizes)]
    labels = np.repeat(np.arange(3), sizes[:3])
    kernel, reference = Gaussian(1.0), torch.cat(parts[:3])
    found = two_sample_test(kernel, reference, parts[3], groups=(labels, np.zeros(4)), permutations=1_999)
    all_of_them = [squared(kernel, part, torch.cat([*parts[:k], *parts[k + 1 :]])) for k, part in enumerate(parts)]
    place = sum(value >= all_of_them[3] - 1e-9 for value in all_of_them)
    assert found.squared == pytest.approx(all_of_them[3], rel=1e-4)
    assert found.p_value == pytest.approx(place / 4, abs=0.04)


@pytest.mark.parametrize("by", ["pairs", "landmarks"])
def test_a_clear_shift_gets_the_smallest_p_value_that_there_is(by):
    reference, new = sides(80, 30, shift=2.0)
    found = two_sample_test(Gaussian(2.0), reference, new, by=by, permutations=199, landmarks=40)
    assert found.p_value == 1 / 200


def test_both_ways_hold_the_same_against_the_same_labellings_in_double_precision():
    reference, new = [side.double() for side in sides(30, 12, shift=0.4)]
    whole, seen = (two_sample_test(Gaussian(2.0), reference, new, by=by, landmarks=42) for by in ("pairs", "landmarks"))
    assert seen.p_value == pytest.approx(whole.p_value, abs=0.005)


@pytest.mark.parametrize("by", ["pairs", "landmarks"])
def test_the_same_seed_gives_the_same_p_value_and_another_seed_another(by):
    reference, new = sides(50, 20, shift=0.2)
    found = [two_sample_test(Gaussian(2.0), reference, new, by=by, landmarks=30, seed=seed) for seed in (0, 0, 1)]
    assert found[0] == found[1]
    assert found[0].p_value != found[2].p_value


@pytest.mark.parametrize("by", ["pairs", "landmarks"])
def test_rows_that_are_all_alike_are_no_shift(by):
    alike = torch.full((30, 4), 3.3)
    found = two_sample_test(Gaussian(1.0), alike[:20], alike[20:], by=by, permutations=39, landmarks=8)
    assert found.p_value == 1
    assert found.distance < 1e-4


@pytest.mark.parametrize("by", ["pairs", "landmarks"])
def test_values_that_are_equal_but_for_rounding_count_as_at_least_as_large(by):
    # 7 rows of each of two kinds, 3 and 1 of them new. Labellings with 2 and 2 alone lie nearer: 441 of 1,001.
    kinds = torch.randn(2, 5)
    reference, new = kinds[[0] * 6 + [1] * 4], kinds[[0] + [1] * 3]
    found = two_sample_test(Gaussian(1.0), reference, new, by=by, permutations=1_999, landmarks=14)
    assert found.p_value == pytest.approx(1 - 441 / 1_001, abs=0.04)


def test_few_rows_are_held_pair_by_pair_and_many_by_landmarks(monkeypatch):
    monkeypatch.setattr(two_sample, "PAIRS_UP_TO", 20)
    assert two_sample_test(Gaussian(2.0), *sides(10, 10), permutations=19).by == "pairs"
    assert two_sample_test(Gaussian(2.0), *sides(11, 10), permutations=19).by == "landmarks"


def test_many_rows_never_meet_all_at_once():
    largest = 0

    class Watched(Gaussian):
        def forward(self, x, z):
            nonlocal largest
            largest = max(largest, x.numel(), z.numel(), len(x) * len(z))
            return super().forward(x, z)

    reference, new = torch.randn(20_000, 40), torch.randn(3_000, 40)
    two_sample_test(Watched(6.0), reference, new, landmarks=50, permutations=19)
    assert largest <= rows.BLOCK * 50  # of 920,000 numbers and 529 million pairs


def test_a_kernel_of_the_user_with_weights_of_its_own_gets_rows_in_their_precision():
    weights = torch.randn(3, 2)
    found = two_sample_test(lambda x, z: (x @ weights) @ (z @ weights).mT, *sides(), permutations=19)
    assert found.squared > 0


def test_half_precision_and_whole_numbers_are_rows_too():
    reference, new = sides(20, 10)
    plain = two_sample_test(Gaussian(2.0), (3 * reference).round(), (3 * new).round(), permutations=19)
    for kind in (torch.float16, torch.int64):
        again = two_sample_test(
            Gaussian(2.0), (3 * reference).round().to(kind), (3 * new).round().to(kind), permutations=19
        )
        assert again == plain


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"new": torch.zeros(1, 3)}, "new: 1 rows are too few; at least 2"),
        ({"reference": torch.zeros(0, 3)}, "reference: 0 rows are too few; at least 2"),
        ({"new": torch.zeros(5, 4)}, "new: rows have 4 columns, those that they are compared with 3"),
        ({"new": torch.tensor([[0.0, 1, 2], [0, float("nan"), 1]])}, "new: row 1 is not finite"),
        ({"reference": torch.zeros(5)}, "expected a tensor of rows and columns"),
        ({"permutations": 18}, "permutations=18 can give no p-value below 0.053; take 19 or more"),
        ({"landmarks": 0, "by": "landmarks"}, "landmarks must be 1 or more, got 0"),
        ({"by": "all"}, "by must be 'auto', 'pairs' or 'landmarks', got 'all'"),
        ({"kernel": lambda x, z: torch.full((len(x), len(z)), torch.nan)}, "values that are not finite"),
    ],
)
@pytest.mark.usefixtures("without_shape_checks")
def test_what_cannot_be_tested_is_refused_with_the_cure(change, words):
    given = {"kernel": Gaussian(1.0), "reference": torch.zeros(5, 3), "new": torch.ones(4, 3), **change}
    with pytest.raises(DataError, match=re.escape(words)):
        two_sample_test(given.pop("kernel"), given.pop("reference"), given.pop("new"), **given)


def test_more_pairs_than_fit_are_refused_with_the_cure():
    many = torch.zeros(two_sample.MOST_PAIRED, 1)
    with pytest.raises(DataError, match="take by='landmarks'"):
        two_sample_test(Gaussian(1.0), many, many[:5], by="pairs")
