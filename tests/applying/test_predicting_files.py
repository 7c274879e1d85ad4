"""Files of any size become one table: in parts or at once, CSV or Parquet, all of it or nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from gated_domains.applying import predicting
from gated_domains.applying.of_run import RunPredictor
from gated_domains.applying.opening import open_model
from gated_domains.applying.predicting import Summary, predict_files
from gated_domains.applying.tables import fitted
from gated_domains.data import blocks
from gated_domains.data.errors import DataError
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.data.new_data import NewData
from gated_domains.evaluation.scores import Predicted
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.recipe import DataSettings
from made_runs import recipe, runner, table

pytestmark = pytest.mark.usefixtures("without_shape_checks")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    folder = tmp_path_factory.mktemp("trained")
    path, reading = table(folder / "clinic.csv"), Reading(target="sick", domain="site")
    chosen = recipe("gdu", "north", settings={"num_bases": 3}, data=DataSettings.of(path, reading))
    return runner(load_data(path, reading), folder / "runs").run(chosen)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def in_parts(monkeypatch) -> None:
    monkeypatch.setattr(blocks, "LARGE", 0)


def same(one: pa.Table, other: pa.Table) -> None:
    assert one.schema.names == other.schema.names
    for name in one.schema.names:
        mine, theirs = one.column(name).to_pylist(), other.column(name).to_pylist()
        assert mine == (pytest.approx(theirs, rel=1e-5, abs=1e-6) if isinstance(mine[0], float) else theirs), name


@pytest.mark.parametrize("gates", [None, "stream"])
def test_in_parts_and_at_once_are_the_same(run, monkeypatch, gates):
    path = table(Path("new.csv"), 100, start=150)
    reading = Reading(metadata=("sick", "age"))
    predict_files(open_model(run.path, gates=gates), [path], Path("whole.parquet"), reading=reading)
    monkeypatch.setattr(blocks, "LARGE", 0)
    done = predict_files(open_model(run.path, gates=gates), [path], Path("parts.parquet"), reading=reading, rows=32)
    whole, parts = (pa.parquet.read_table(name) for name in ("whole.parquet", "parts.parquet"))
    same(whole, parts)
    assert whole.schema == parts.schema
    assert parts.column("row").to_pylist() == list(range(100))
    assert (done.rows, done.with_coverage) == (100, 100)
    assert done.covered == pytest.approx(sum(parts.column("coverage").to_pylist()), rel=1e-4)


@pytest.mark.usefixtures("in_parts")
def test_csv_and_parquet_hold_the_same_in_whatever_parts(run):
    files = [table(Path("a.csv"), 40, start=150), table(Path("b.csv"), 20, domain=False, start=300)]
    for name in ("out.csv", "out.parquet"):
        predict_files(open_model(run.path), files, Path(name), rows=7)
    one, other = pa.parquet.read_table("out.parquet"), pa.csv.read_csv("out.csv")
    assert one.schema.names[:3] == ["row", "file", "domain"]
    assert one.column("row").to_pylist() == [*range(40), *range(20)]
    assert one.column("file").to_pylist() == ["a.csv"] * 40 + ["b.csv"] * 20
    assert one.column("domain").null_count == 20
    same(one.drop_columns("domain"), other.drop_columns("domain"))  # what is null in one is "" in the other


def test_of_many_rows_parquet_has_groups(run, monkeypatch):
    monkeypatch.setattr("gated_domains.applying.writing._ROW_GROUP", 30)
    files = [table(Path(f"{number}.csv"), 20, start=150) for number in range(4)]
    predict_files(open_model(run.path), files, Path("out.parquet"))
    assert [pa.parquet.ParquetFile("out.parquet").metadata.row_group(place).num_rows for place in (0, 1)] == [40, 40]


def test_batches_never_mix_two_files(run):
    one, other = table(Path("a.csv"), 40, domain=False, start=150), table(Path("b.csv"), 40, domain=False, start=300)
    predict_files(open_model(run.path, gates="batch"), [one, other], Path("both.parquet"))
    predict_files(open_model(run.path, gates="batch"), [other], Path("alone.parquet"))
    both, alone = pa.parquet.read_table("both.parquet"), pa.parquet.read_table("alone.parquet")
    assert both.column("gate 1").to_pylist()[40:] == alone.column("gate 1").to_pylist()
    assert len(set(both.column("gate 1").to_pylist())) == 2


def left_alone() -> bool:
    return Path("out.csv").read_text() == "old" and not [path for path in Path().iterdir() if path.name[0] == "."]


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("fault", [KeyboardInterrupt, MemoryError, DataError])
def test_an_end_half_way_leaves_the_old_table_and_nothing_else(run, monkeypatch, fault):
    path = table(Path("new.csv"), 40, start=150)
    Path("out.csv").write_text("old")
    predict, calls = RunPredictor.predict, []

    def twice(self: RunPredictor, data: NewData) -> Predicted:
        calls.append(len(data))
        if len(calls) == 3:
            raise fault("enough")
        return predict(self, data)

    monkeypatch.setattr(RunPredictor, "predict", twice)
    monkeypatch.setattr("gated_domains.applying.writing._ROW_GROUP", 8)
    with pytest.raises(fault):
        predict_files(open_model(run.path), [path], Path("out.csv"), rows=10)
    assert calls == [10, 10, 10]
    assert left_alone()


def test_a_table_is_not_written_over_its_data(run):
    files = [table(Path("a.csv"), 9), table(Path("b.csv"), 9)]
    with pytest.raises(DataError, match=r"b.csv holds the data themselves"):
        predict_files(open_model(run.path), files, Path("./b.csv"))
    with pytest.raises(DataError, match="no files are named"):
        predict_files(open_model(run.path), [], Path("out.csv"))


def test_a_table_is_not_written_over_what_a_card_leads_to(run):
    table(Path("card_data.csv"), 9)
    before = Path("card_data.csv").read_bytes()
    Path("card.yaml").write_text("path: card_data.csv\n")
    with pytest.raises(DataError, match=r"card_data.csv holds the data themselves"):
        predict_files(open_model(run.path), ["card.yaml"], Path("card_data.csv"))
    assert Path("card_data.csv").read_bytes() == before
    predict_files(open_model(run.path), ["card.yaml"], Path("out.csv"))


def test_a_table_is_not_written_over_a_file_of_a_folder_but_may_lie_beside_them():
    Path("sites").mkdir()
    np.savez("sites/a.npz", X=np.zeros((3, 4)))
    Path("out.csv").symlink_to("sites/a.npz")
    with pytest.raises(DataError, match=r"out.csv holds the data themselves"):
        predicting.check_paths(["sites"], Path("out.csv"))
    Path("sites/predictions.csv").write_text("of last time")
    predicting.check_paths(["sites"], Path("sites/predictions.csv"))
    predicting.check_paths(["digits", "nowhere.csv"], Path("out.csv"))


@pytest.mark.parametrize("domain", [True, False])
def test_batches_are_the_same_in_whatever_form_a_file_is_and_however_it_is_read(run, monkeypatch, domain):
    path = table(Path("new.csv"), 200, domain=domain, start=150)
    pa.parquet.write_table(pa.csv.read_csv(path), "new.parquet")
    model = open_model(run.path, gates="batch")
    predict_files(model, ["new.parquet"], Path("whole.parquet"), rows=64)
    monkeypatch.setattr(blocks, "LARGE", 0)
    predict_files(model, [path], Path("parts.parquet"), rows=64)
    whole, parts = (pa.parquet.read_table(name) for name in ("whole.parquet", "parts.parquet"))
    same(whole, parts)
    windows = {(row // 64, name) for row, name in enumerate(_domains(whole))}
    assert len({tuple(gates) for gates in _gates(whole)}) == len(windows)


def _domains(found: pa.Table) -> list[str]:
    return found.column("domain").to_pylist() if "domain" in found.column_names else [""] * len(found)


def _gates(found: pa.Table) -> list[list[float]]:
    names = [name for name in found.column_names if name.startswith("gate ")]
    return np.stack([found.column(name).to_numpy() for name in names], 1).round(6).tolist()


def test_notes_are_told_once_and_cut_short(run):
    data = NewData(name="n", inputs=load_data("synthetic").inputs, class_names=("a", "b"), notes=("mind the gap",))
    done, said = Summary(), Predicted(np.zeros((len(data), 2)))
    for _ in range(3):
        done.add(data, said, file=None)
    assert done.few_notes() == ["mind the gap"]
    for number in range(20):
        done.add(data, said, file=f"{number}.csv")
    assert done.few_notes()[1] == "0.csv: mind the gap"
    assert done.few_notes()[-1] == "and 11 more"
    assert (done.rows, done.with_coverage) == (23 * len(data), 0)


# -- columns of several files ------------------------------------------------------------------------------------------


def test_what_a_later_file_lacks_is_empty_and_numbers_stay_whole():
    first = pa.schema([("row", pa.int64()), ("age", pa.int64()), ("domain", pa.string())])
    found = fitted(pa.table({"row": [0, 1], "age": [41.0, float("nan")]}), first, where="b.csv")
    assert found.schema == first
    assert found.to_pydict() == {"row": [0, 1], "age": [41, None], "domain": [None, None]}


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ({"age": ["old"]}, "b.csv: column 'age' holds string, but int64 in the files before it"),
        ({"age": [1.5]}, "b.csv: column 'age' holds double, but int64"),
        ({"new": [1]}, "b.csv has a column 'new' that the files before it lack"),
    ],
)
def test_columns_that_do_not_go_together_are_refused(column, words):
    with pytest.raises(DataError, match=words):
        fitted(pa.table({"row": [0], **column}), pa.schema([("row", pa.int64()), ("age", pa.int64())]), where="b.csv")


def test_many_files_are_counted(run, monkeypatch, capsys):
    monkeypatch.setattr(predicting, "_MANY", 2)
    files = [table(Path(f"{number}.csv"), 5) for number in range(2)]
    predict_files(open_model(run.path), files, Path("out.csv"))
    assert "predicting files ..." in capsys.readouterr().err
