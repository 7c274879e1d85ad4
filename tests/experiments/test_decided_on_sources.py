"""What a column is and which classes there are is decided on source rows: held-out cells change nothing in a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gated_domains.applying.inside import open_gated
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Numbers, Table
from gated_domains.data.labels import Reading
from gated_domains.data.like import read_like
from gated_domains.data.loading import load_data
from gated_domains.experiments.executors import choose_executor
from gated_domains.experiments.insights import look
from gated_domains.experiments.model import WEIGHTS, Model
from gated_domains.runs.collection import gather
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import DataSettings
from made_runs import NothingIsTrained, digest, recipe, runner

pytestmark = pytest.mark.usefixtures("without_shape_checks")

HEADER = ("age", "seen", "yes", "ward", "visit_id", "code", "record", "site", "y")
READING = Reading(target="y", domain="site")
ROWS, HELD_OUT = 120, "west"
Cells = list[list[str]]


def rows() -> Cells:
    """Rows of three sites, half of them of the one that is held out; ``visit_id`` and ``record`` are identifiers."""
    rng = np.random.default_rng(0)
    made = []
    for row in range(ROWS):
        label = int(rng.integers(3))
        made.append(
            [
                f"{40 + 9 * label + rng.normal():.2f}",
                f"2024-0{1 + label}-{1 + row % 28:02d}",
                ("true", "false")[int(rng.integers(2))],
                "abc"[int(rng.integers(3))],
                str(1000 + row),
                str(int(rng.integers(5))),
                f"{123456789012340000 + row}",
                ("north", HELD_OUT, "south", HELD_OUT)[row % 4],
                str((2, 5, 10)[label]),
            ]
        )
    return made


def scrambled(cells: Cells, how: dict[str, Any]) -> Cells:
    """The same rows, with other cells of the held-out site by column: the same in every row, or one after the other."""
    changed = [list(row) for row in cells]
    held_out = [row for row in changed if row[HEADER.index("site")] == HELD_OUT]
    for number, row in enumerate(held_out):
        for name, content in how.items():
            row[HEADER.index(name)] = content[number % len(content)] if isinstance(content, list) else content
    return changed


def written(folder: Path, cells: Cells) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "clinic.csv"
    path.write_text("\n".join(",".join(row) for row in [list(HEADER), *cells]) + "\n")
    return path


def run(folder: Path, cells: Cells, method: str = "erm", hold_out: str | None = HELD_OUT, **more: Any) -> RunFolder:
    path = written(folder, cells)
    data = DataSettings.of(path, READING)
    return runner(load_data(path, READING), folder / "runs").run(recipe(method, hold_out, data=data, **more))


SCRAMBLES: dict[str, dict[str, Any]] = {
    "words among numbers": {"age": "unknown"},
    "a few words among numbers": {"age": ["unknown", "41", "42", "43"]},
    "words among dates": {"seen": "soon"},
    "words among truth values": {"yes": "maybe"},
    "a name of its own in each row": {"ward": [f"w{row}" for row in range(ROWS)]},
    "the same identifier in each row": {"visit_id": "1", "record": "7"},
    "codes among numbers": {"code": "007"},
    "nothing known": {"age": "", "seen": "", "ward": "", "code": ""},
    "a class of its own": {"y": ["5", "1", "10"]},
    "a class of its own that sorts last": {"y": ["5", "12", "10"]},
    "a class with a name": {"y": ["5", "unclear", "10"]},
    "all at once": {
        **{"age": "x", "seen": "12", "yes": "3", "ward": "4", "visit_id": "id 5", "code": "six", "record": "?"},
        "y": ["0", "5"],
    },
}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    return digest(run(tmp_path_factory.mktemp("plain"), rows()).path / WEIGHTS)


@pytest.mark.parametrize("how", SCRAMBLES)
def test_cells_of_held_out_rows_change_nothing_in_the_model(tmp_path, how, weights):
    made = run(tmp_path, scrambled(rows(), SCRAMBLES[how]))
    assert digest(made.path / WEIGHTS) == weights
    assert made.result().to_json()["test"]["by_domain"].keys() == {HELD_OUT}


def test_cells_of_source_rows_do_change_the_model(tmp_path, weights):
    changed = [["50", *row[1:]] if row[7] == "north" else row for row in rows()]
    assert digest(run(tmp_path, changed).path / WEIGHTS) != weights


def test_a_cell_that_is_not_a_number_counts_as_missing_where_the_sources_have_numbers(tmp_path):
    odd, empty = (run(tmp_path / how, scrambled(rows(), {"age": how})) for how in ("unknown", ""))
    assert np.array_equal(odd.predictions()["output"], empty.predictions()["output"])
    assert any(
        note.startswith("column 'age' holds numbers (decided on the source rows)")
        for note in odd.result().to_json()["notes"]
    )
    # A new table is read as the sources were.
    schema = Model.load(odd.path).schema
    new = read_like(written(tmp_path / "new", rows()), schema, targets=True, reading=Reading())
    assert isinstance(new.inputs, Table)
    assert isinstance(new.inputs.columns[0], Numbers)
    with pytest.raises(DataError, match="column 'age' held numbers in training, but holds 'unknown'"):
        read_like(written(tmp_path / "new", scrambled(rows(), {"age": "unknown"})), schema, targets=False)


def test_an_identifier_of_the_sources_is_left_out_though_it_repeats_elsewhere(tmp_path):
    dataset = load_data(written(tmp_path, scrambled(rows(), {"visit_id": "1000"})), READING)
    made = runner(dataset, tmp_path / "runs")
    assert "visit_id" in [column.name for column in dataset.inputs.columns]
    assert "visit_id" not in [column.name for column in made.planner.view(recipe(hold_out=HELD_OUT)).inputs.columns]
    assert "visit_id" in [column.name for column in made.planner.view(recipe(hold_out="north")).inputs.columns]
    assert made.planner.view(recipe(hold_out=None)) is dataset


def test_rows_of_a_class_that_no_source_has_count_as_wrong_and_are_noted(tmp_path):
    cells = scrambled(rows(), {"y": ["1", "5"]})
    made = run(tmp_path, cells, "gdu", calibrate=True)
    result, said = made.result().to_json(), made.predictions()
    schema = json.loads((made.path / "model.json").read_text())["schema"]
    assert schema["class_names"] == ["2", "5", "10"]
    assert said["output"].shape[1] == 4  # the classes of all rows: 1, 2, 5, 10
    own = said["targets"] == 0
    assert own.sum() == ROWS // 4
    assert (said["output"][:, 0] == 0).all()
    assert np.allclose(said["output"].sum(axis=1), 1)
    right = (said["output"].argmax(1) == said["targets"])[said["part"] == 1]
    assert result["test"]["by_domain"][HELD_OUT] == pytest.approx(right.mean())
    assert result["test"]["by_domain"][HELD_OUT] <= 0.5
    assert (
        "no source has class '1' (30 rows): the model has no output for it, and these rows count as wrong"
        in (result["notes"])
    )
    # The report names all classes; what is looked into are rows of classes that the model knows.
    gathered = gather([tmp_path / "runs"])
    assert gathered.class_names(gathered.results[0]) == ("1", "2", "5", "10")
    dataset = load_data(tmp_path / "clinic.csv", READING)
    assert look(made, runner(dataset, tmp_path / "runs"), recipe("gdu", HELD_OUT, calibrate=True)) is not None
    trained_on = open_gated(made.path).trained_on()
    assert trained_on.held_out is not None
    assert len(trained_on.held_out) == ROWS // 4


@pytest.mark.parametrize("selection", ["oracle", "leave_one_source_out", "worst_class"])
def test_every_selection_works_with_a_class_that_no_source_has(tmp_path, selection):
    made = run(tmp_path, scrambled(rows(), {"age": "unknown", "y": ["1", "5"]}), selection=selection)
    said = made.predictions()
    assert said["output"].shape[1] == 4
    right = (said["output"].argmax(1) == said["targets"])[said["part"] == 1]
    assert made.result().to_json()["test"]["by_domain"][HELD_OUT] == pytest.approx(right.mean())


def test_a_run_is_found_again_and_is_another_where_its_sources_are(tmp_path):
    """Of all rows ``ward`` is an identifier and left out, of the sources it is a category: its cells count."""
    cells = scrambled(rows(), SCRAMBLES["a name of its own in each row"])
    made = run(tmp_path, cells)
    dataset = load_data(written(tmp_path, cells), READING)
    assert "ward" not in [column.name for column in dataset.inputs.columns]
    again = runner(dataset, tmp_path / "runs", callback=NothingIsTrained())
    assert (
        again.run(recipe(hold_out=HELD_OUT, data=DataSettings.of(tmp_path / "clinic.csv", READING))).path == made.path
    )
    cells[0][HEADER.index("ward")] = "b" if cells[0][HEADER.index("ward")] == "a" else "a"
    other = run(tmp_path, cells)
    assert other.path != made.path
    assert digest(other.path / WEIGHTS) != digest(made.path / WEIGHTS)


def test_workers_decide_as_their_caller_does(tmp_path):
    cells = scrambled(rows(), SCRAMBLES["all at once"])
    alone = run(tmp_path / "alone", cells)
    folder = tmp_path / "together"
    dataset = load_data(written(folder, cells), READING)
    made = runner(dataset, folder / "runs")
    chosen = recipe(data=DataSettings.of(folder / "clinic.csv", READING), hold_out=HELD_OUT)
    with choose_executor(made, 2, workers=2) as executor:
        first, _ = executor.run([chosen, chosen.replace(seed=1)])
    assert digest(first.path / WEIGHTS) == digest(alone.path / WEIGHTS)
