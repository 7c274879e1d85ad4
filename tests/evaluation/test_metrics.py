"""Every metric against a loop written from its definition, and against scikit-learn and torchmetrics."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torchmetrics.functional.classification as torchmetrics
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn import metrics as sklearn

from gated_domains.data.errors import DataError
from gated_domains.evaluation.formulas import FORMULAS
from gated_domains.evaluation.metrics import METRICS, metric_for, metric_named, metrics_for, significant
from gated_domains.evaluation.scores import has_score

OF_CLASSES = [metric.name for metric in metrics_for("classes")]
OF_NUMBERS = [metric.name for metric in metrics_for("number")]
OF_LABELS = [metric.name for metric in metrics_for("labels")]
CASES = [(2, 40, 0), (3, 50, 1), (7, 60, 2), (5, 8, 3)]  # classes, rows, seed; the last lacks classes


def made(classes: int, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of 32 bits, some of them tied, that know something of the classes."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(classes, size=rows)
    output = rng.dirichlet(np.ones(classes), rows) + 0.3 * np.eye(classes)[targets] * rng.integers(2, size=(rows, 1))
    output = np.round(output / output.sum(axis=1, keepdims=True), 2)
    return (output / output.sum(axis=1, keepdims=True)).astype(np.float32), targets


def made_numbers(rows: int = 30, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    targets = rng.normal(5.0, 2.0, rows)
    return (targets + rng.normal(size=rows))[:, None].astype(np.float32), targets


def made_labels(rows: int = 60, labels: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities, some tied, that know something of labels of which some are unknown; the last is always yes."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(2, size=(rows, labels)).astype(np.float32)
    output = np.round(0.3 * targets + 0.7 * rng.random((rows, labels)), 2).astype(np.float32)
    targets[rng.random(targets.shape) < 0.25] = np.nan
    targets[:, -1] = np.where(np.isnan(targets[:, -1]), np.nan, 1)
    return output, targets


# --- loops, from the definitions ---


def slow_accuracy(output, targets):
    return sum(max(range(len(row)), key=lambda k: row[k]) == y for row, y in zip(output, targets, strict=True)) / len(
        targets
    )


def slow_f1(output, targets):
    said = [max(range(len(row)), key=lambda k: row[k]) for row in output]
    found = []
    for label in sorted(set(targets)):
        right = sum(s == label == y for s, y in zip(said, targets, strict=True))
        false = sum(s == label != y for s, y in zip(said, targets, strict=True))
        missed = sum(s != label == y for s, y in zip(said, targets, strict=True))
        found.append(2 * right / (2 * right + false + missed))
    return sum(found) / len(found)


def slow_auroc(output, targets):
    found = []
    for label in sorted(set(targets)):
        ours = [row[label] for row, y in zip(output, targets, strict=True) if y == label]
        others = [row[label] for row, y in zip(output, targets, strict=True) if y != label]
        found.append(sum((o > r) + 0.5 * (o == r) for o in ours for r in others) / (len(ours) * len(others)))
    return sum(found) / len(found)


def slow_average_precision(output, targets):
    found = []
    for label in [1] if len(output[0]) == 2 else sorted(set(targets)):
        ranked = [(row[label], y == label) for row, y in zip(output, targets, strict=True)]
        positives, area, recall = sum(hit for _, hit in ranked), 0.0, 0.0
        for threshold in sorted({score for score, _ in ranked}, reverse=True):
            above = [hit for score, hit in ranked if score >= threshold]
            area += (sum(above) / positives - recall) * sum(above) / len(above)
            recall = sum(above) / positives
        found.append(area)
    return sum(found) / len(found)


def slow_ece(output, targets):
    bins: dict[int, list[tuple[float, bool]]] = {}
    for row, y in zip(output, targets, strict=True):
        confidence = max(row)
        place = min(int(confidence * 15), 15)
        bins.setdefault(place, []).append((confidence, row.index(confidence) == y))
    gaps = [abs(sum(hit for _, hit in found) - sum(sure for sure, _ in found)) for found in bins.values()]
    return sum(gaps) / len(targets)


def slow_log_loss(output, targets):
    return sum(-math.log(row[y]) for row, y in zip(output, targets, strict=True)) / len(targets)


def slow_mse(output, targets):
    return sum((row[0] - y) ** 2 for row, y in zip(output, targets, strict=True)) / len(targets)


def slow_rmse(output, targets):
    return math.sqrt(slow_mse(output, targets))


def slow_pearson(output, targets):
    said = [row[0] for row in output]
    mean_said, mean = sum(said) / len(said), sum(targets) / len(targets)
    joint = sum((s - mean_said) * (y - mean) for s, y in zip(said, targets, strict=True))
    spread_said, spread = sum((s - mean_said) ** 2 for s in said), sum((y - mean) ** 2 for y in targets)
    return joint / math.sqrt(spread_said * spread)


def over_labels(score, output, targets):
    """The mean over labels that are known to be both yes and no, each over the rows where it is known."""
    found = []
    for label in range(len(targets[0])):
        known = [(row[label], y[label]) for row, y in zip(output, targets, strict=True) if y[label] == y[label]]
        if {y for _, y in known} == {0.0, 1.0}:
            found.append(score([[1 - said, said] for said, _ in known], [int(y) for _, y in known]))
    return sum(found) / len(found)


def slow_mean_average_precision(output, targets):
    return over_labels(slow_average_precision, output, targets)


def slow_mean_auroc(output, targets):
    return over_labels(slow_auroc, output, targets)


SLOW: dict[str, Callable] = {name: globals()[f"slow_{name}"] for name in METRICS}


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", OF_CLASSES)
def test_a_metric_of_classes_is_what_its_loop_computes(name: str, case: tuple[int, int, int]) -> None:
    output, targets = made(*case)
    if name == "log_loss":
        output = output.clip(1e-3)
    assert FORMULAS[name](output, targets) == pytest.approx(SLOW[name](output.tolist(), targets.tolist()), rel=1e-6)


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_a_metric_of_numbers_is_what_its_loop_computes(name: str) -> None:
    output, targets = made_numbers()
    assert FORMULAS[name](output, targets) == pytest.approx(SLOW[name](output.tolist(), targets.tolist()), rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", OF_LABELS)
def test_a_metric_of_labels_is_what_its_loop_computes(name: str, seed: int) -> None:
    output, targets = made_labels(seed=seed)
    assert FORMULAS[name](output, targets) == pytest.approx(SLOW[name](output.tolist(), targets.tolist()), rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_scikit_learn_says_the_same_of_labels(seed: int) -> None:
    output, targets = made_labels(seed=seed)
    expected: dict[str, list[float]] = {"mean_average_precision": [], "mean_auroc": []}
    for said, true in zip(output.T[:-1], targets.T[:-1], strict=True):
        known = ~np.isnan(true)
        expected["mean_average_precision"].append(sklearn.average_precision_score(true[known], said[known]))
        expected["mean_auroc"].append(sklearn.roc_auc_score(true[known], said[known]))
    for name, values in expected.items():
        assert FORMULAS[name](output, targets) == pytest.approx(np.mean(values), rel=1e-6), name


@pytest.mark.parametrize("name", OF_LABELS)
def test_what_is_said_where_nobody_knows_changes_nothing(name: str) -> None:
    output, targets = made_labels()
    other = np.where(np.isnan(targets), 1 - output, output)
    assert FORMULAS[name](other, targets) == FORMULAS[name](output, targets)
    assert FORMULAS[name](output[:, :-1], targets[:, :-1]) == FORMULAS[name](output, targets)  # a label always yes


@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_scikit_learn_says_the_same_of_classes(case: tuple[int, int, int]) -> None:
    output, targets = made(*case)
    wide = output.astype(np.float64).clip(1e-6)
    wide /= wide.sum(axis=1, keepdims=True)
    positive = wide[:, 1] if case[0] == 2 else wide
    expected = {
        "accuracy": sklearn.accuracy_score(targets, wide.argmax(axis=1)),
        "f1": sklearn.f1_score(targets, wide.argmax(axis=1), average="macro", labels=np.unique(targets)),
        "auroc": sklearn.roc_auc_score(targets, positive, multi_class="ovr"),
        "average_precision": sklearn.average_precision_score(targets, positive),
        "log_loss": sklearn.log_loss(targets, wide),
    }
    for name, value in expected.items():
        assert FORMULAS[name](wide, targets) == pytest.approx(value, rel=1e-6), name


def test_scikit_learn_and_numpy_say_the_same_of_numbers() -> None:
    output, targets = made_numbers()
    assert FORMULAS["mse"](output, targets) == pytest.approx(sklearn.mean_squared_error(targets, output[:, 0]))
    assert FORMULAS["pearson"](output, targets) == pytest.approx(np.corrcoef(output[:, 0], targets)[0, 1])


@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_where_all_classes_occur_torchmetrics_own_means_are_the_same(case: tuple[int, int, int]) -> None:
    output, targets = made(*case)
    given, true, classes = torch.from_numpy(output), torch.from_numpy(targets), case[0]
    assert FORMULAS["accuracy"](output, targets) == pytest.approx(
        float(torchmetrics.multiclass_accuracy(given, true, classes, average="micro")), rel=1e-6
    )
    assert FORMULAS["f1"](output, targets) == pytest.approx(
        float(torchmetrics.multiclass_f1_score(given, true, classes, average="macro")), rel=1e-6
    )
    assert FORMULAS["auroc"](output, targets) == pytest.approx(
        float(torchmetrics.multiclass_auroc(given, true, classes)), rel=1e-6
    )


def test_every_metric_has_a_formula_and_every_formula_a_metric() -> None:
    assert list(FORMULAS) == list(METRICS)


# --- what holds for all of them ---


@st.composite
def classified(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    classes, rows = draw(st.integers(2, 5)), draw(st.integers(2, 25))
    cells = draw(st.lists(st.integers(0, 6), min_size=rows * classes, max_size=rows * classes))
    weights = np.array(cells, np.float64).reshape(rows, classes) + 0.5
    targets = draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows))
    return weights / weights.sum(axis=1, keepdims=True), np.array(targets)


@pytest.mark.parametrize("name", OF_CLASSES)
@given(data=classified(), seed=st.integers(0, 99))
def test_the_order_of_rows_changes_nothing(name: str, data: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    output, targets = data
    assume(has_score(METRICS[name], targets))
    order = np.random.default_rng(seed).permutation(len(targets))
    assert FORMULAS[name](output[order], targets[order]) == pytest.approx(FORMULAS[name](output, targets), abs=1e-6)


@pytest.mark.parametrize("name", ["accuracy", "f1", "average_precision", "auroc", "ece"])
@given(data=classified())
def test_shares_lie_between_nothing_and_all(name: str, data: tuple[np.ndarray, np.ndarray]) -> None:
    assume(has_score(METRICS[name], data[1]))
    assert -1e-6 <= FORMULAS[name](*data) <= 1 + 1e-6


@pytest.mark.parametrize("name", ["accuracy", "f1", "auroc", "ece", "log_loss"])
@given(data=classified(), seed=st.integers(0, 99))
def test_the_names_of_classes_change_nothing(name: str, data: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    output, targets = data
    assume(has_score(METRICS[name], targets))
    # Among equals the first is taken, which a new name may change: here one is always the likeliest.
    output = 0.9 * output + 0.1 * np.eye(output.shape[1])[output.argmax(axis=1)]
    order = np.random.default_rng(seed).permutation(output.shape[1])
    renamed = np.argsort(order)[targets]
    assert FORMULAS[name](output[:, order], renamed) == pytest.approx(FORMULAS[name](output, targets), abs=1e-6)


@pytest.mark.parametrize("name", ["auroc", "average_precision"])
@given(data=classified())
def test_ranks_alone_count(name: str, data: tuple[np.ndarray, np.ndarray]) -> None:
    output, targets = data
    assume(has_score(METRICS[name], targets))
    assert FORMULAS[name](output**2, targets) == pytest.approx(FORMULAS[name](output, targets), abs=1e-6)


@pytest.mark.parametrize("name", OF_CLASSES)
def test_a_sure_and_right_answer_is_the_best_there_is(name: str) -> None:
    targets = np.array([0, 1, 2, 1])
    best = 1.0 if METRICS[name].higher_is_better else 0.0
    assert FORMULAS[name](np.eye(3)[targets], targets) == pytest.approx(best)


@given(scale=st.floats(0.1, 1e6), shift=st.floats(-1e6, 1e6))
def test_a_correlation_knows_no_unit(scale: float, shift: float) -> None:
    output, targets = made_numbers()
    moved = output.astype(np.float64) * scale + shift
    assert FORMULAS["pearson"](moved, targets) == pytest.approx(FORMULAS["pearson"](output, targets), rel=1e-5)
    assert FORMULAS["pearson"](-moved, targets) == pytest.approx(-FORMULAS["pearson"](output, targets), rel=1e-5)


# --- what is not there, and what is on the edge ---


@pytest.mark.parametrize("name", [*OF_CLASSES, *OF_NUMBERS])
def test_rows_that_share_one_target_have_a_score_or_none_whatever_is_said_of_them(name: str) -> None:
    one, two = (np.zeros(4, int), np.array([0, 0, 1, 0]))
    assert has_score(METRICS[name], two)
    assert has_score(METRICS[name], one) == (name not in ("auroc", "average_precision", "pearson"))


@pytest.mark.parametrize("name", OF_LABELS)
@pytest.mark.parametrize(
    ("targets", "scored"),
    [
        ([[1, 0], [1, 0]], False),
        ([[1, np.nan], [np.nan, 0]], False),
        ([[np.nan, np.nan], [np.nan, np.nan]], False),
        ([[1, np.nan], [0, np.nan]], True),
        ([[1, 0], [1, 1]], True),
    ],
)
def test_labels_have_a_score_where_one_of_them_is_known_to_be_both(name: str, targets: list, scored: bool) -> None:
    assert has_score(METRICS[name], np.array(targets, np.float32)) == scored


def test_an_output_that_never_varies_has_no_correlation() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert FORMULAS["pearson"](np.full((4, 1), 2.5), np.arange(4.0)) == 0.0


@pytest.mark.parametrize("name", ["f1", "auroc", "average_precision"])
def test_a_class_that_does_not_occur_takes_no_part(name: str) -> None:
    output, targets = made(3, 30, 5)
    fourth = np.concatenate([output, np.zeros((30, 1), np.float32)], axis=1)
    assert FORMULAS[name](fourth, targets) == pytest.approx(FORMULAS[name](output, targets))


def test_a_class_that_is_said_and_does_not_occur_is_a_miss_of_the_true_one_alone() -> None:
    output = np.eye(3)[[0, 0, 1, 2]]
    assert FORMULAS["f1"](output, np.array([0, 0, 1, 1])) == pytest.approx((1 + 2 / 3) / 2)


def test_a_probability_above_one_by_rounding_is_no_logit() -> None:
    output, targets = made(3, 30, 6)
    above = output.copy()
    row = int(output.max(axis=1).argmax())
    above[row] = [1 + 1e-6, 0, 0]
    exact = above.clip(0, 1)
    for name in OF_CLASSES:
        assert FORMULAS[name](above, targets) == pytest.approx(FORMULAS[name](exact, targets), abs=1e-6), name


def test_a_probability_of_zero_has_a_large_and_finite_loss() -> None:
    found = FORMULAS["log_loss"](np.array([[1.0, 0.0]], np.float32), np.array([1]))
    assert found == pytest.approx(-math.log(np.finfo(np.float32).tiny))


def test_accuracy_and_f1_are_exact_to_64_bits() -> None:
    targets = np.array([0, 0, 0, 1, 1, 1, 1])
    output = np.eye(2, dtype=np.float32)[[0, 0, 1, 1, 1, 0, 0]]
    assert FORMULAS["accuracy"](output, targets) == 4 / 7
    assert FORMULAS["f1"](output, targets) == pytest.approx((4 / 7 + 4 / 7) / 2, rel=1e-15)


# --- their names ---


def test_classes_get_accuracy_and_numbers_their_error() -> None:
    assert metric_for("classes").name == "accuracy"
    assert metric_for("number").name == "rmse"
    assert metric_for("labels").name == "mean_average_precision"
    assert metric_for("labels", "mean_auroc") is METRICS["mean_auroc"]
    assert metric_for("classes", "ece") is METRICS["ece"]
    with pytest.raises(DataError, match="did you mean 'accuracy'"):
        metric_named("ACCURACY")


@pytest.mark.parametrize(
    ("task", "name", "message"),
    [
        ("number", "auroc", "'auroc' scores classes, and here a number is predicted; .*: rmse, mse, pearson"),
        ("classes", "pearson", "'pearson' scores numbers, and here classes are predicted; .*: accuracy, f1"),
        ("labels", "accuracy", "'accuracy' scores classes, and here labels are predicted; .*: mean_average_precision"),
        ("classes", "mean_auroc", "'mean_auroc' scores labels, and here classes are predicted; .*: accuracy, f1"),
    ],
)
def test_a_metric_of_another_task_is_refused_with_those_that_apply(task, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        metric_for(task, name)


def test_gain_better_and_worst_follow_the_direction() -> None:
    accuracy, rmse = METRICS["accuracy"], METRICS["rmse"]
    assert accuracy.better(0.9, 0.8)
    assert not accuracy.better(0.8, 0.8)
    assert rmse.better(0.8, 0.9)
    assert accuracy.as_gain(0.3) == -rmse.as_gain(0.3) == 0.3
    assert (accuracy.worst_of([0.1, 0.3]), rmse.worst_of([0.1, 0.3]), rmse.best_of([0.1, 0.3])) == (0.1, 0.3, 0.1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.500"),
        (12.345, "12.3"),
        (12345.0, "12300"),
        (0.00123, "0.00123"),
        (9.999, "10.0"),
        (-2.0, "-2.00"),
        (0.0, "0.00"),
        (1.5e-7, "1.50e-07"),
        (2e12, "2.00e+12"),
        (math.inf, "inf"),
    ],
)
def test_three_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


def test_percent_has_one_decimal_and_a_rounded_zero_no_sign() -> None:
    accuracy = METRICS["accuracy"]
    assert accuracy.shown(0.71249) == "71.2"
    assert accuracy.shown_difference(0.003) == "+0.3"
    assert accuracy.shown_difference(-0.003) == "-0.3"
    assert accuracy.shown_difference(-0.0001) == accuracy.shown_difference(0.0001) == "0.0"
    assert METRICS["rmse"].shown_difference(-0.0123) == "-0.0123"
