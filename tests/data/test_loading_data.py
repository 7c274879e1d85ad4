"""One door to all data: a name, a file, a folder, a card, or a sentence that says why not."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gated_domains.data import loading
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Numbers
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.data.named import DATASETS, Known


@pytest.fixture
def known(monkeypatch):
    """A data set by the name of ``toy``, and what it was asked for with."""
    asked: list[tuple[object, int]] = []

    def load(data_dir: object, seed: int, reading: Reading) -> DomainDataset:
        asked.append((data_dir, seed))
        return DomainDataset.from_arrays(np.ones((2, 2)), [0, 1], name="toy")

    monkeypatch.setitem(loading.DATASETS, "toy", Known("a toy", load, embedded=True))
    return asked


def test_a_name_is_looked_up_with_its_seed_and_folder(known, tmp_path):
    assert load_data("toy", data_dir=tmp_path, seed=7).name == "toy"
    assert load_data("toy").name == "toy"
    assert known == [(tmp_path, 7), (None, 0)]


def test_a_name_wins_over_a_file_so_called_unless_it_is_written_as_a_path(known, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy").mkdir()
    assert load_data("toy").name == "toy"
    with pytest.raises(DataError, match="domain/class"):
        load_data("./toy")


def test_options_mean_nothing_for_a_named_data_set(known):
    with pytest.raises(DataError, match="--target means nothing for the data set 'toy'"):
        load_data("toy", Reading(target="y"))


def test_a_name_unlike_any_is_answered_with_the_nearest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"digit is neither a file or folder here nor .* did you mean 'digits'"):
        load_data("digit")
    with pytest.raises(DataError, match="there are digits, digits5, digits5-small, spurious, synthetic"):
        load_data("zzzzzzzz")


@pytest.mark.parametrize("folder", ["", "files"])
def test_a_slip_in_the_name_of_a_file_is_answered_with_the_file_beside_it(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    Path(folder).mkdir(exist_ok=True)
    for name in ("heart.csv", "lungs.csv"):
        Path(folder, name).write_text("age,num\n1,2\n")
    with pytest.raises(DataError, match=f"hearts.csv is neither .*; did you mean '{Path(folder, 'heart.csv')}'?"):
        load_data(str(Path(folder, "hearts.csv")))


def test_every_known_data_set_says_what_it_is():
    ours = {name for name in DATASETS if not name.startswith("wilds/")}
    assert ours == {"digits", "digits5", "digits5-small", "synthetic", "spurious"}
    assert all(known.what for known in DATASETS.values())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("photo.png", "one image is no data set; give the folder"),
        ("model.pkl", "files of this kind cannot be read; a folder domain/class/"),
        ("noending", "files of this kind cannot be read"),
        ("sheet.xlsx", "files of this kind cannot be read"),
        ("array.npy", r"files of this kind cannot be read.*\.npz"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_what_can_be_read(tmp_path, name, message):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(DataError, match=f"{name}: {message}"):
        load_data(tmp_path / name)


def test_a_pickle_is_never_opened(tmp_path):
    (tmp_path / "model.pkl").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(DataError, match="cannot be read"):
        load_data(tmp_path / "model.pkl")


def test_home_is_known_by_its_sign(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    np.savez(tmp_path / "d.npz", X=np.ones((2, 2)), y=[0, 1])
    assert len(load_data("~/d.npz")) == 2


def test_the_home_of_nobody_is_refused():
    with pytest.raises(DataError, match=r"~nobody-of-this-name/d.npz: .*home"):
        load_data("~nobody-of-this-name/d.npz")


def test_a_path_that_goes_through_a_file_is_no_path(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match="neither a file or folder"):
        load_data(tmp_path / "file" / "d.csv")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_really_without_permission_is_named(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("x,y\n1,0\n2,1\n")
    path.chmod(0)
    with pytest.raises(PermissionError, match=r"d\.csv"):
        load_data(path, Reading(target="y"))


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".yaml", ".csv.gz", ".csv.zip", ".csv.zst", ".parquet"])
def test_a_folder_by_the_name_of_a_file_is_taken_for_a_folder(tmp_path, suffix):
    (tmp_path / f"d{suffix}").mkdir()
    with pytest.raises(DataError, match="images are expected as domain/class"):
        load_data(tmp_path / f"d{suffix}")


@pytest.fixture
def bench():
    return runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "loading.py"))


def test_a_table_holds_what_pandas_reads(bench, tmp_path):
    bench["write_table"](tmp_path / "table.csv", 500)
    ours, theirs = bench["table_by_ours"](tmp_path), bench["table_by_pandas"](tmp_path)
    assert theirs.shape == (500, 50)
    assert len(ours.inputs.columns) == 48
    for column in ours.inputs.columns:
        expected = theirs[column.name]
        if isinstance(column, Numbers):
            np.testing.assert_array_equal(column.values, expected.to_numpy(np.float64, na_value=np.nan))
        else:
            assert [(*column.levels, None)[code] for code in column.values] == [
                value if isinstance(value, str) else None for value in expected
            ]
    assert [ours.domain_names[index] for index in ours.domains] == theirs["site"].tolist()


def test_a_folder_holds_what_a_loop_over_pil_reads(bench, tmp_path):
    bench["write_images"](tmp_path / "images", 45)
    ours, theirs = bench["images_by_ours"](tmp_path), bench["images_by_pil"](tmp_path)
    np.testing.assert_array_equal(ours.inputs.values, np.stack(theirs))
    assert ours.counts().sum() == 45


def test_importing_data_brings_none_of_its_heavy_libraries():
    code = (
        "import sys, gated_domains.data; from gated_domains.data import load_data, DataError, Reading;"
        "print(sorted({'torch', 'pandas', 'pyarrow', 'PIL', 'matplotlib', 'sklearn', 'scipy', 'rich', 'yaml',"
        "'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "data.csv")
    with pytest.raises(DataError, match="neither a file nor a folder but a pipe or a device"):
        load_data(tmp_path / "data.csv")


def test_no_name_at_all_is_refused():
    with pytest.raises(DataError, match="no data are named; there are digits"):
        load_data("")


def test_a_folder_of_tables_is_refused_with_the_cure(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(DataError, match=r"holds tables \(a.csv\); join them into one, with a column for the domain"):
        load_data(tmp_path)


def test_every_public_name_of_data_is_there():
    import gated_domains.data

    for name in gated_domains.data.__all__:
        assert getattr(gated_domains.data, name) is not None
    with pytest.raises(AttributeError, match="no_such_thing"):
        gated_domains.data.no_such_thing  # noqa: B018
