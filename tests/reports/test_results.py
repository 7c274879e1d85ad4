"""Results are found again as they were written; unfinished runs are passed over, others' formats and damage refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_results import result

from gated_domains.data.errors import DataError
from gated_domains.evaluation.metrics import METRICS
from gated_domains.reports import RunResult, read_results
from gated_domains.runs.result import Scores


def write(folder: Path, found: RunResult) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "result.json"
    path.write_text(json.dumps(found.to_json()))
    return path


def test_a_result_survives_its_file(tmp_path: Path) -> None:
    found = result(test={"a": 1 / 3, "b": 0.7}, hold_out="a+b", notes=("one note",), best_epoch=None)
    write(tmp_path / "abc", found)
    assert read_results(tmp_path) == [found]


def test_the_file_is_what_was_agreed() -> None:
    assert result(score=0.95).to_json() == {
        "format": 1,
        "run": "erm-mnist-0",
        "data": "digits",
        "method": "erm",
        "label": "ERM",
        "seed": 0,
        "hold_out": "mnist",
        "held_out": ["mnist"],
        "sources": ["usps"],
        "domain_names": [],
        "metric": "accuracy",
        "higher_is_better": True,
        "test": {"metric": "accuracy", "by_domain": {"mnist": 0.95}, "overall": None},
        "validation": {"metric": "accuracy", "by_domain": {"usps": 0.97}, "overall": 0.97},
        "also": {},
        "mode": "end_to_end",
        "body": "",
        "selection_score": None,
        "averaged": None,
        "selection": "source validation accuracy",
        "protocol": "leave one domain out",
        "best_epoch": 7,
        "epochs": 8,
        "stopped": "early",
        "seconds": 12.5,
        "peak_memory": None,
        "parameters": {"trained": 72_042, "all": 72_042},
        "uses_domains": False,
        "notes": [],
        "score_by": [],
        "all_metrics": {},
        "oracle": False,
        "temperature": 1.0,
        "statistic": "overall",
        "split_seed": None,
        "batchwise": False,
    }


KEPT = {
    "validation": {"f1": Scores({"usps": 0.9}, 0.9), "accuracy": Scores({"usps": 0.97}, 0.97)},
    "test": {"f1": Scores({"mnist": 1 / 3}, 0.3), "accuracy": Scores({"mnist": 0.5}, 0.5)},
}


def test_scores_in_all_metrics_and_by_group_survive_their_file(tmp_path: Path) -> None:
    found = result(
        all_metrics=KEPT,
        oracle=True,
        temperature=1.7,
        by_group={"mnist, a": 0.25},
        score_by=("domain", "ward"),
        domain_names=("mnist", "usps"),
        peak_memory=3 * 2**30,
    )
    write(tmp_path / "abc", found)
    assert read_results(tmp_path) == [found]


def test_how_it_was_trained_and_what_has_no_score_survive_their_file(tmp_path: Path) -> None:
    found = result(
        mode="fine_tune",
        body="mlp",
        averaged=(3, 9),
        selection_score=0.96,
        test_overall=0.94,
        by_group={"mnist, a": 0.25},
        unscored_groups=("mnist, b",),
        validation_by_group={"usps, a": 0.5},
        validation_unscored=("svhn",),
        validation_unscored_groups=("usps, b",),
        score_by=("domain", "ward"),
        also={"id_test": {"metric": "accuracy", "by_domain": {}, "overall": 0.9}},
    )
    write(tmp_path / "abc", found)
    assert read_results(tmp_path) == [found]


def test_a_held_out_domain_may_have_no_score_where_that_is_said(tmp_path: Path) -> None:
    some = result(hold_out="a+b", test={"a": 0.5}, held_out=("a", "b"), unscored=("b",))
    none = result(hold_out="b", seed=1, test={}, held_out=("b",), unscored=("b",))
    write(tmp_path / "some", some)
    write(tmp_path / "none", none)
    assert read_results(tmp_path) == [some, none]


def test_under_another_metric_a_run_has_its_scores() -> None:
    found = result(all_metrics=KEPT, by_group={"a": 0.1}, score_by=("ward",)).under(METRICS["f1"])
    assert (found.metric, found.test, found.validation_overall) == ("f1", {"mnist": 1 / 3}, 0.9)
    assert (found.by_group, found.score_by) == (None, ())
    assert found.under(METRICS["accuracy"]).test == {"mnist": 0.5}


def test_under_its_own_metric_a_run_stays_as_it_is() -> None:
    found = result()
    assert found.under(METRICS["accuracy"]) is found


def test_a_run_that_was_scored_by_one_metric_has_no_other() -> None:
    with pytest.raises(DataError, match="erm-mnist-0 has no macro F1; metrics it was scored by: none but its own"):
        result().under(METRICS["f1"])


def test_whole_numbers_in_json_are_scores_too() -> None:
    stored = {**result().to_json(), "test": {"by_domain": {"mnist": 1}, "overall": 1}, "seconds": 3}
    found = RunResult.from_json(stored)
    assert (found.test, found.test_overall, found.seconds) == ({"mnist": 1.0}, 1.0, 3.0)


def test_unfinished_runs_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "done", result())
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "run.json").write_text("{}")
    assert [found.run for found in read_results(tmp_path)] == ["erm-mnist-0"]


def test_what_lies_inside_a_run_is_no_run_of_its_own(tmp_path: Path) -> None:
    write(tmp_path / "abc", result())
    write(tmp_path / "abc" / "members" / "1", result(seed=1))
    assert [found.seed for found in read_results(tmp_path)] == [0]


def test_runs_come_in_reading_order_whatever_their_folders_are_called(tmp_path: Path) -> None:
    for place, (hold_out, seed) in enumerate([("fold 10", 0), ("fold 2", 1), ("fold 2", 0), ("Fold 1", 0)]):
        write(tmp_path / f"{place}", result(hold_out=hold_out, seed=seed))
    assert [(found.hold_out, found.seed) for found in read_results(tmp_path)] == [
        ("Fold 1", 0),
        ("fold 2", 0),
        ("fold 2", 1),
        ("fold 10", 0),
    ]


def test_folders_keep_the_order_they_are_given_in(tmp_path: Path) -> None:
    for name in ("zebra", "ant", "cow"):
        write(tmp_path / name, result(hold_out=name))
    found = read_results(tmp_path / name for name in ("cow", "zebra", "ant"))
    assert [run.hold_out for run in found] == ["cow", "zebra", "ant"]


def test_a_run_with_nothing_held_out_is_a_result_too(tmp_path: Path) -> None:
    found = result(hold_out="none", test={})
    assert json.loads(write(tmp_path / "abc", found).read_text())["test"] is None
    assert read_results(tmp_path) == [found]


def test_several_folders_are_read_and_none_twice(tmp_path: Path) -> None:
    write(tmp_path / "one" / "x", result(seed=0))
    write(tmp_path / "two" / "deeper" / "y", result(seed=1))
    folders = [tmp_path / "one", tmp_path / "two", tmp_path / "one" / "x", str(tmp_path)]
    assert [found.seed for found in read_results(folders)] == [0, 1]


def test_an_empty_folder_has_no_results_and_a_missing_one_is_refused(tmp_path: Path) -> None:
    assert read_results(tmp_path) == []
    with pytest.raises(DataError, match="nowhere: there is no such folder"):
        read_results(tmp_path / "nowhere")


@pytest.mark.parametrize(("version", "cure"), [(2, "update gated-domains"), (0, "train it again"), ("x", "train it")])
def test_another_format_is_refused_with_folder_version_and_cure(tmp_path: Path, version: object, cure: str) -> None:
    path = write(tmp_path / "abc", result())
    path.write_text(json.dumps({**result().to_json(), "format": version}))
    with pytest.raises(DataError, match=rf"abc: .*format {version!r}.*reads format 1; {cure}"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[1]", "a list where"),
        ("{}", "which format"),
        ('{"format": 1}', "it lacks 'parameters'"),
    ],
)
def test_a_damaged_file_is_refused_with_its_name_and_the_cure(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path / "abc", result()).write_text(text)
    with pytest.raises(DataError, match=rf"abc/result\.json: .*{message}.*delete its folder"):
        read_results(tmp_path)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "abc", result()).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"abc/result\.json"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("seed", "two", "two"),
        ("label", 3, "label should be text and is 3"),
        ("held_out", "mnist", "held_out should be a list"),
        ("test", {"by_domain": {"mnist": float("nan")}}, "the score of 'mnist' is nan"),
        ("test", {"by_domain": {}}, r"\['mnist'\] were held out, but there are scores for \[\]"),
        ("test", None, r"\['mnist'\] were held out, but"),
        ("test", 3, "result.json"),
        ("parameters", {"trained": 3}, "lacks 'all'"),
        ("test", {"by_domain": {"mnist": 0.5}, "unscored": ["usps"]}, r"\['mnist'\] were held out, but"),
        ("test", {"by_domain": {"mnist": 0.5}, "by_group": {"a": "x"}}, "could not convert"),
        ("all_metrics", {"test": {"f1": {"overall": 1.0}}}, "lacks 'by_domain'"),
        ("all_metrics", 3, "result.json"),
    ],
)
def test_a_field_that_cannot_be_is_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        RunResult.from_json({**result().to_json(), field: value})


@pytest.mark.parametrize("field", sorted(result().to_json().keys() - {"format"}))
def test_a_field_that_is_missing_is_refused(field: str) -> None:
    stored = result().to_json()
    del stored[field]
    with pytest.raises(DataError, match=f"it lacks '{field}'"):
        RunResult.from_json(stored)


def test_reports_and_evaluation_need_no_torch_and_pay_for_matplotlib_late() -> None:
    code = (
        "import sys, gated_domains.reports, gated_domains.evaluation; print({'torch', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
