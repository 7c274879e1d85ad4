"""The numbers of a table, each against a loop written from its definition."""

from __future__ import annotations

import math
import random

import pytest
from made_results import many, result, results

from gated_domains.data.errors import DataError
from gated_domains.evaluation import Record, holm, new_domain_effect, these_domains_effect
from gated_domains.reports import Comparison, RunResult
from gated_domains.reports.summary import MethodNumbers, Numbers

NAN = math.nan
SCORES = {
    "erm": {"mnist": [0.90, 0.92], "svhn": [0.60, 0.64], "usps": [0.80, 0.79], "syn": [0.5, 0.52]},
    "gdu": {"mnist": [0.93, 0.91], "svhn": [0.66, 0.65], "usps": [0.85, 0.81], "syn": [0.5, 0.51]},
}
BY_DOMAIN = {
    hold_out: [gdu - erm for gdu, erm in zip(SCORES["gdu"][hold_out], found, strict=True)]
    for hold_out, found in SCORES["erm"].items()
}


def numbers_of(scores: dict[str, dict[str, list[float]]], **others) -> Numbers:
    return Comparison(results(scores, **others)).numbers


def row_of(numbers: Numbers, method: str) -> MethodNumbers:
    return next(row for row in numbers.rows if row.method == method)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def std(values: list[float]) -> float:
    return math.sqrt(sum((value - mean(values)) ** 2 for value in values) / (len(values) - 1))


@pytest.mark.parametrize("metric", ["accuracy", "rmse"])
def test_cells_mean_and_worst_are_what_loops_compute(metric: str) -> None:
    row = row_of(numbers_of(SCORES, metric=metric), "gdu")
    by_hold_out = SCORES["gdu"]
    for hold_out, found in by_hold_out.items():
        cell = row.cells[hold_out]
        assert (cell.mean, cell.std, cell.n) == pytest.approx((mean(found), std(found), 2))
    means, worsts = [], []
    for seed in (0, 1):
        of_seed = [found[seed] for found in by_hold_out.values()]
        means.append(mean(of_seed))
        worsts.append(min(of_seed) if metric == "accuracy" else max(of_seed))
    assert row.mean is not None
    assert row.worst is not None
    assert (row.mean.mean, row.mean.std) == pytest.approx((mean(means), std(means)))
    assert (row.worst.mean, row.worst.std) == pytest.approx((mean(worsts), std(worsts)))


def test_the_difference_on_a_new_domain_is_over_domains_and_that_on_these_over_seeds() -> None:
    found = row_of(numbers_of(SCORES), "gdu").against
    assert found is not None
    means = [mean(gaps) for gaps in BY_DOMAIN.values()]
    interval = found.new_domain.interval()
    assert interval is not None
    reach = 3.182446305 * std(means) / math.sqrt(4)  # the 97.5 % point of t with 3 degrees of freedom
    assert found.new_domain.difference == pytest.approx(mean(means))
    assert (interval.low, interval.high) == pytest.approx((mean(means) - reach, mean(means) + reach))
    assert found.these_domains == these_domains_effect(dict(sorted(BY_DOMAIN.items())))
    assert (found.new_domain.n, found.these_domains.n) == (4, 8)


def test_a_fold_is_a_mean_in_its_cell_and_one_unit() -> None:
    erm = [result("erm", "fold 1", test={"a": 0.2, "b": 0.4}), result("erm", "fold 2", test={"c": 0.9})]
    gdu = [result("gdu", "fold 1", test={"a": 0.4, "b": 0.5}), result("gdu", "fold 2", test={"c": 0.9})]
    row = row_of(Comparison([*erm, *gdu]).numbers, "erm")
    assert row.cells["fold 1"].mean == pytest.approx(0.3)
    assert row.mean is not None
    assert row.mean.mean == pytest.approx((0.2 + 0.4 + 0.9) / 3)  # over domains, not over folds
    assert row.worst is not None
    assert row.worst.mean == 0.2
    found = row_of(Comparison([*erm, *gdu]).numbers, "gdu").against
    assert found is not None
    assert (found.new_domain.n, found.new_domain.difference) == (2, pytest.approx((0.15 + 0.0) / 2))
    assert found.record == Record(2, 1, 0)  # wins count domains, not folds
    assert Comparison([*erm, *gdu]).numbers.unit == "fold"


def test_a_domain_held_out_twice_is_one_unit() -> None:
    runs = [
        run
        for method in ("erm", "gdu")
        for run in (result(method, "a+b", test={"a": 0.2, "b": 0.4}), result(method, "b", test={"b": 0.6}))
    ]
    _, row = Comparison(runs).numbers.rows
    assert row.mean is not None
    assert row.mean.mean == pytest.approx(0.4)
    assert row.against is not None
    assert (row.against.new_domain.n, Comparison(runs).numbers.unit) == (2, "domain")


def test_rows_and_columns_stand_as_first_met_and_numbers_do_not_depend_on_it() -> None:
    found = many(4, 5, 3)
    mixed = random.Random(0).sample(found, len(found))
    one, other = Comparison(found).numbers, Comparison(mixed).numbers
    assert [row.method for row in one.rows] == ["erm", "method1", "method2", "method3"]
    assert list(other.hold_outs) == list(dict.fromkeys(run.hold_out for run in mixed))
    for row in one.rows:
        twin = row_of(other, row.method)
        assert twin.mean is not None
        assert row.mean is not None
        assert row.mean == twin.mean  # to the last bit, so that every table prints the same
        assert row.against == twin.against
        assert row.best == twin.best


def test_an_incomplete_seed_is_in_its_cells_and_in_no_mean() -> None:
    scores = {**SCORES, "gdu": {**SCORES["gdu"], "svhn": [0.66, NAN]}}
    numbers = numbers_of(scores)
    row = row_of(numbers, "gdu")
    assert row.cells["mnist"].n == 2
    assert row.cells["svhn"].n == 1
    assert row.mean is not None
    assert (row.mean.mean, row.mean.std, row.mean.n) == (pytest.approx(mean([0.93, 0.66, 0.85, 0.5])), None, 1)
    assert row.against is not None
    assert row.against.these_domains.n == 7
    assert numbers.missing == {"GDU": [("svhn", 1)]}


def test_without_a_complete_seed_there_is_no_mean_but_a_difference() -> None:
    scores = {**SCORES, "gdu": {"mnist": [0.93, 0.91], "usps": [0.85, NAN]}}
    row = row_of(numbers_of(scores), "gdu")
    assert row.mean is None
    assert row.worst is None
    assert not row.best
    assert row.against is not None
    assert row.against.these_domains.n == 3


def test_a_seed_that_nobody_finished_is_missing_for_everybody() -> None:
    numbers = numbers_of({"erm": {"a": [0.5, 0.6], "b": [0.5, NAN]}, "gdu": {"a": [0.5, NAN], "b": [0.5, NAN]}})
    assert numbers.missing == {"ERM": [("b", 1)], "GDU": [("a", 1), ("b", 1)]}


def test_the_best_mean_alone_is_marked() -> None:
    scores = {
        "erm": {"a": [0.50, 0.51], "b": [0.60, 0.61], "c": [0.70, 0.73]},
        "near": {"a": [0.80, 0.83], "b": [0.84, 0.79], "c": [0.80, 0.80]},
        "best": {"a": [0.82, 0.81], "b": [0.82, 0.82], "c": [0.83, 0.80]},
    }
    assert [row.best for row in numbers_of(scores).rows] == [False, False, True]


def test_the_best_of_errors_is_the_smallest() -> None:
    scores = {
        "erm": {"a": [2.0, 2.1], "b": [2.0, 2.2], "c": [2.1, 2.0]},
        "gdu": {"a": [1.0, 1.1], "b": [1.0, 1.3], "c": [1.0, 1.2]},
    }
    assert [row.best for row in numbers_of(scores, metric="rmse").rows] == [False, True]


def test_equally_good_means_are_all_marked() -> None:
    scores = {"erm": {"a": [0.5]}, "one": {"a": [0.6]}, "same": {"a": [0.6]}}
    assert [row.best for row in numbers_of(scores).rows] == [False, True, True]


def test_one_method_may_stand_there_with_several_settings() -> None:
    runs = [result("erm"), result("gdu", label="GDU"), result("gdu", label="GDU, paper")]
    assert [row.label for row in Comparison(runs).numbers.rows] == ["ERM", "GDU", "GDU, paper"]


def test_methods_that_share_a_label_are_told_apart_by_name() -> None:
    runs = [result("one", label="Same"), result("two", label="Same")]
    assert [row.label for row in Comparison(runs, baseline="one").numbers.rows] == ["Same (one)", "Same (two)"]


def test_two_runs_of_one_cell_are_refused_with_their_names() -> None:
    with pytest.raises(DataError, match="two runs of ERM with 'mnist' held out and seed 0, first and second"):
        Comparison([result(run="first"), result(run="second")])


@pytest.mark.parametrize("field", ["data", "metric", "protocol", "selection"])
def test_what_cannot_stand_in_one_table_is_refused(field: str) -> None:
    other: RunResult = result("gdu", **{field: "rmse"})
    with pytest.raises(DataError, match=rf"differ in their {field} .*'rmse'"):
        Comparison([result(), other])


def test_nothing_to_compare_is_refused() -> None:
    for runs in ([], [result(hold_out="none", test={})]):
        with pytest.raises(DataError, match="no finished run with a domain held out"):
            Comparison(runs)


def test_a_run_with_nothing_held_out_has_no_place_in_the_table() -> None:
    numbers = Comparison([result(), result("gdu", "none", test={})]).numbers
    assert (numbers.hold_outs, len(numbers.rows)) == (("mnist",), 1)


# --- against the baseline ---


def test_differences_are_those_of_the_statistics_module() -> None:
    numbers = numbers_of(SCORES)
    found = row_of(numbers, "gdu").against
    assert found is not None
    assert found.new_domain == new_domain_effect(dict(sorted(BY_DOMAIN.items())))
    assert found.record == Record(3, 0, 1)
    assert found.sign_flip is None  # of four domains
    assert row_of(numbers, "erm").against is None


def test_holm_counts_the_methods_that_were_tested_and_no_others() -> None:
    scores = {
        **SCORES,
        "other": {"mnist": [0.95, 0.92], "svhn": [0.70, 0.69], "usps": [0.84, 0.80], "syn": [0.5, 0.5]},
        "one domain": {"mnist": [0.9]},
        "elsewhere": {"cifar": [0.9, 0.8]},
    }
    numbers = numbers_of(scores)
    assert numbers.tested == 2
    tested = [row_of(numbers, name).against for name in ("gdu", "other")]
    raw = [found.new_domain.p_value for found in tested if found is not None]
    assert [found.holm for found in tested if found is not None] == holm(raw)
    alone = row_of(numbers, "one domain").against
    assert alone is not None
    assert (alone.holm, alone.verdict) == (None, None)


def test_the_plain_form_of_the_baseline_is_the_baseline() -> None:
    runs = [result("erm", label="ERM + EMA"), result("erm", label="ERM"), result("gdu", label="GDU")]
    numbers = Comparison(runs).numbers
    assert numbers.baseline is not None
    assert numbers.baseline.label == "ERM"


def test_a_preset_of_the_method_is_the_baseline_only_where_it_is_alone() -> None:
    runs = [result("erm", label="recommended"), result("erm", label="ERM + EMA 0.995"), result("gdu", label="GDU")]
    for there, wanted in ((runs, "ERM + EMA 0.995"), (runs[::2], "recommended")):
        numbers = Comparison(there).numbers
        assert numbers.baseline is not None
        assert numbers.baseline.label == wanted


# --- groups ---


@pytest.mark.parametrize("metric", ["accuracy", "rmse"])
def test_groups_are_pooled_over_hold_outs_for_every_seed(metric: str) -> None:
    rng = random.Random(0)
    runs = [
        result("erm", hold_out, seed, 0.5, metric=metric, score_by=("user",),
               by_group={str(user): rng.random() for user in range(10)})
        for hold_out in ("a", "b")
        for seed in range(3)
    ]  # fmt: skip
    (row,) = Comparison(runs).numbers.rows
    worst, tenth = [], []
    for seed in range(3):
        pooled = sorted(value for run in runs if run.seed == seed for value in run.by_group.values())
        pooled = pooled if metric == "accuracy" else pooled[::-1]
        worst.append(pooled[0])
        tenth.append(pooled[1] + 0.9 * (pooled[2] - pooled[1]))  # 10 % of the way over 19 steps
    assert row.worst_group is not None
    assert row.percentile is not None
    assert (row.worst_group.mean, row.worst_group.std) == pytest.approx((mean(worst), std(worst)))
    assert (row.percentile.mean, row.percentile.std) == pytest.approx((mean(tenth), std(tenth)))


def test_without_groups_nothing_is_said_of_them() -> None:
    row = row_of(numbers_of(SCORES), "erm")
    assert (row.worst_group, row.percentile) == (None, None)


def test_runs_grouped_in_two_ways_show_no_groups() -> None:
    runs = [
        result("erm", score_by=("user",), by_group={"a": 0.5}),
        result("gdu", score_by=("ward",), by_group={"a": 0.5}),
    ]
    assert Comparison(runs).numbers.score_by == ()
