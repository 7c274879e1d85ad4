"""TensorBoard itself reads back what was written: curves, final scores, settings and the recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gated_domains.data.dataset import DomainDataset
from gated_domains.experiments.tracking import Tracking
from gated_domains.experiments.tracking.about_run import curve_of, finals_of, settings_of, title_of
from gated_domains.experiments.tracking.names import legal
from gated_domains.runs.folder import RunFolder
from made_runs import call, changed, recipe, runner, table, vectors
from made_tracking import cut_off, follow, tracked_comparison

pytestmark = pytest.mark.extras

pytest.importorskip("tensorboard")
ODD = ("a/b", "<script>alert(1)</script>", "100 %")


def events(folder: Path) -> Any:
    """All that TensorBoard finds there."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found = events(folder)
    return {tag: [(point.step, point.value) for point in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def assert_is_the_run(folder: Path, run: RunFolder) -> None:
    """Every scalar of the run is there once, in single precision, and no other."""
    expected: dict[str, list[tuple[int, float]]] = {}
    for epoch, scalars in curve_of(run):
        for name, value in scalars.items():
            expected.setdefault(name, []).append((epoch, float(np.float32(value))))
    for name, value in finals_of(run).items():
        expected[name] = [(len(run.metrics()) - 1, float(np.float32(value)))]
    assert curves(folder) == expected


def oddly_named() -> DomainDataset:
    return replace(vectors(), domain_names=ODD)


def test_curves_and_final_scores_are_those_of_the_run(tmp_path: Path):
    made, asked = runner(vectors(), tmp_path), [recipe("gdu", training={"epochs": 3})]
    with Tracking(["tensorboard"], tmp_path) as tracking, follow(tracking, made, asked) as made.callback:
        run = made.run(asked[0])
    assert_is_the_run(tmp_path / "tensorboard" / run.name, run)
    assert {"train/task", "validation/overall", "validation/domain/south", "selection", "rate"} <= curves(
        tmp_path / "tensorboard" / run.name
    ).keys()


def test_settings_stand_beside_the_scores_and_the_recipe_can_be_read(tmp_path: Path):
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    run = runner(vectors(), tmp_path).run(recipe("erm", seed=2))
    with Tracking(["tensorboard"], tmp_path) as tracking:
        tracking.finish(run)
    found = events(tmp_path / "tensorboard" / run.name)
    content = found.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    begun = HParamsPluginData.FromString(content).session_start_info.hparams
    settings = settings_of(run)
    assert begun["training.rate"].number_value == settings["training.rate"]
    assert begun["method.name"].string_value == "erm"
    assert begun["seed"].number_value == 2
    assert begun["title"].string_value == title_of(run)
    assert "training.ema" not in begun
    shown = HParamsPluginData.FromString(found.SummaryMetadata(metadata.EXPERIMENT_TAG).plugin_data.content)
    assert "held_out/domain/north" in {info.name.tag for info in shown.experiment.metric_infos}
    text = found.Tensors("recipe/text_summary")[0].tensor_proto.string_val[0].decode()
    assert [line.removeprefix("    ") for line in text.splitlines()] == (
        (run.path / "recipe.yaml").read_text().splitlines()
    )


def test_odd_names_of_domains_stay_apart(tmp_path: Path):
    made = runner(oddly_named(), tmp_path)
    run = made.run(recipe(hold_out="100 %"))
    with Tracking(["tensorboard"], tmp_path) as tracking:
        tracking.finish(run)
    found = curves(tmp_path / "tensorboard" / run.name)
    last = run.metrics()[-1]["validation"]["by_domain"]
    for name in ODD[:2]:
        assert found[f"validation/domain/{legal(name)}"][-1][1] == pytest.approx(last[name])
    assert f"held_out/domain/{legal(ODD[2])}" in found


def test_the_same_command_again_adds_nothing(tmp_path: Path):
    data, out = table(tmp_path / "t.csv"), tmp_path / "out"
    asked = tracked_comparison(data, out, "tensorboard")

    def written() -> dict[str, int]:
        return {str(path): path.stat().st_size for path in sorted((out / "tensorboard").rglob("*")) if path.is_file()}

    assert call(*asked).code == 0
    first = written()
    assert len({Path(path).parent for path in first}) == 2  # the head, and the body that it stands on
    assert call(*asked).code == 0
    assert written() == first


def test_a_training_that_was_cut_off_goes_on_with_one_curve(tmp_path: Path):
    asked = [recipe(training={"epochs": 4})]
    cut_off(asked[0], tmp_path, "tensorboard")
    half = curves(next((tmp_path / "tensorboard").iterdir()))
    assert 0 < len(half["selection"]) < 4
    again = runner(vectors(), tmp_path)
    with Tracking(["tensorboard"], tmp_path) as tracking, follow(tracking, again, asked) as again.callback:
        run = again.run(asked[0])
    assert_is_the_run(tmp_path / "tensorboard" / run.name, run)


def test_a_run_that_was_made_anew_takes_the_place_of_the_old_one(tmp_path: Path):
    run = runner(vectors(), tmp_path).run(recipe())
    for seconds in (1.0, 2.0):
        changed(run.path / "result.json", seconds=seconds)
        with Tracking(["tensorboard"], tmp_path) as tracking:
            tracking.finish(run)
        assert curves(tmp_path / "tensorboard" / run.name)["cost/seconds"][0][1] == seconds
        assert len(list((tmp_path / "tensorboard" / run.name).glob("events*"))) == 1
