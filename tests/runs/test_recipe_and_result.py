"""What a run is, as plain data: results written and read again the same, and none of it needs torch."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

import gated_domains.runs
from gated_domains.data.dataset import DomainDataset
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.result import RunResult, read_results
from made_published import divided
from made_runs import made_up_result, recipe, runner, vectors


def one_sided() -> DomainDataset:
    """All rows of north are of one class, so that it has no AUROC."""
    data = vectors(240)
    targets = data.targets.copy()
    targets[data.rows_of("north")] = 1
    return replace(data, targets=targets)


RUNS = {
    "held out": (vectors, {"score_by": ("class",)}),
    "two held out": (vectors, {"hold_out": "north+west"}),
    "all sources": (vectors, {"hold_out": None}),
    "an unscored domain": (one_sided, {"hold_out": "north+west", "metric": "auroc"}),
    "unscored altogether": (one_sided, {"metric": "auroc", "score_by": ("class",)}),
    "averaged": (vectors, {"training": {"swad": True, "epochs": 4}}),
    "official": (divided, {"hold_out": "official", "selection": "auto"}),
    "calibrated": (vectors, {"calibrate": True}),
}


@pytest.mark.parametrize("what", RUNS)
def test_a_result_is_read_as_it_was_written(what: str, tmp_path: Path):
    data, options = RUNS[what]
    run = runner(data(), tmp_path).run(recipe("erm", **options))
    result = run.result()
    assert RunResult.from_json(result.to_json()) == result
    assert RunResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    assert result.to_json() == json.loads((run.path / "result.json").read_text())
    assert read_results(tmp_path) == [result]
    said = {
        "held out": set(result.by_group or ()) == {"no", "yes"},
        "two held out": set(result.test) == {"north", "west"},
        "all sources": result.to_json()["test"] is None and result.test == {},
        "an unscored domain": (result.unscored, set(result.test)) == (("north",), {"west"}),
        "unscored altogether": (result.unscored, dict(result.test), result.test_overall) == (("north",), {}, None),
        "averaged": result.averaged is not None,
        "official": set(result.also) == {"id_val", "id_test"},
        "calibrated": result.temperature != 1.0,
    }
    assert said[what]  # the run is of the kind that this is about


def test_every_field_of_a_result_is_written(tmp_path: Path):
    """Each in turn changed, the file is another, and what is read is what was changed."""
    usual = made_up_result()
    changes = {
        "run": "other", "data": "other", "method": "gdu", "label": "GDU", "seed": 3, "hold_out": "other",
        "sources": ("a",), "metric": "f1", "higher_is_better": False, "validation": {"a": 0.25},
        "validation_overall": None, "selection": "other", "protocol": "other", "best_epoch": None, "epochs": 7,
        "stopped": "other", "seconds": 9.0, "parameters_trained": 5, "parameters_all": 7, "uses_domains": True,
        "notes": ("a note",), "by_group": {"no": 0.5}, "score_by": ("class",), "oracle": True, "temperature": 2.0,
        "batchwise": True, "domain_names": ("a", "b"), "peak_memory": 12, "split_seed": 4, "statistic": "worst_group",
        "mode": "fine_tune", "body": "mlp", "test_overall": 0.5, "unscored_groups": ("no",),
        "validation_by_group": {"no": 0.5}, "validation_unscored": ("a",), "validation_unscored_groups": ("no",),
        "also": {"id_test": {"metric": "accuracy", "by_domain": {"a": 0.5}, "overall": 0.5}}, "averaged": (3, 8),
        "selection_score": 0.75, "test": {"north": 0.125},
    }  # fmt: skip
    together = {"held_out": {"held_out": ("x",), "test": {"x": 0.5}}, "unscored": {"unscored": ("north",), "test": {}}}
    shaped = {"all_metrics"}  # of scores, held to what is written by the runs above
    assert {field.name for field in fields(RunResult)} == changes.keys() | together.keys() | shaped
    for name, others in {**{name: {name: value} for name, value in changes.items()}, **together}.items():
        changed = replace(usual, **others)
        assert changed.to_json() != usual.to_json(), name
        assert RunResult.from_json(changed.to_json()) == changed, name


def test_a_result_goes_by_the_name_of_its_folder(tmp_path: Path):
    folder = RunFolder.open(tmp_path, {"seed": 0}, data={"name": "vectors"})
    folder.finish(made_up_result(run="somebody else"))
    assert folder.result() == made_up_result(run=folder.name)


def test_no_module_of_runs_imports_torch():
    names = [module.name for module in pkgutil.walk_packages(gated_domains.runs.__path__, "gated_domains.runs.")]
    assert {"gated_domains.runs.recipe", "gated_domains.runs.result", "gated_domains.runs.folder"} <= set(names)
    script = f"""
import sys
from importlib import import_module
for name in {names!r}:
    import_module(name)
    assert "torch" not in sys.modules, name
print(len({names!r}))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(len(names))
