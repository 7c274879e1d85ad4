"""``gated-domains data``: exit codes that mean something, sentences instead of tracebacks, nothing left behind."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from gated_domains import __version__, cli
from gated_domains.data import errors

COMMAND = Path(sys.executable).parent / "gated-domains"
REAL = Path(__file__).parents[3] / "shared" / "data"
needs_real_data = pytest.mark.skipif(not REAL.is_dir(), reason="real data (../shared/data) are not here")

HEADER, ROWS = (
    "age,dose,site,num",
    [f"{20 + row * 7 % 50},{row * 0.37:.2f},{'abc'[row % 3]},{row % 4}" for row in range(90)],
)


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _a_place_of_its_own(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("GATED_DOMAINS_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("GATED_DOMAINS_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


@pytest.fixture
def run(monkeypatch, capsys) -> Callable[..., Done]:
    """The command line in this process."""

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["gated-domains", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        printed = capsys.readouterr()
        return Done(code, printed.out, printed.err)

    return call


@pytest.fixture
def table(tmp_path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text("\n".join([HEADER, *ROWS]) + "\n")
    return path


@pytest.fixture
def pets(tmp_path) -> Path:
    rng = np.random.default_rng(0)
    for domain in ("day", "night"):
        for group in ("cat", "dog"):
            (tmp_path / "pets" / domain / group).mkdir(parents=True)
            for number in range(21):
                pixels = rng.integers(256, size=(5, 5, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "pets" / domain / group / f"{number}.png")
    return tmp_path / "pets"


def assert_refused(done: Done, *words: str) -> None:
    """Exit code 2 and one sentence, on standard error."""
    assert done.code == 2, done
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.out + done.err
    assert done.err.count("\n") == 1
    for word in words:
        assert word in done.err


# -- check -----------------------------------------------------------------------------------------------------------


def test_check_says_what_there_is_and_what_a_run_would_do(run, table):
    done = run("data", "check", table, "--target", "num", "--domain", "site")
    assert done.code == 0
    assert done.err == ""
    lines = done.out.splitlines()
    assert lines[0] == "table.csv: 90 rows, a table of 2 columns of numbers"
    assert lines[1].split() == ["domain", "rows", "0", "1", "2", "3"]
    assert lines[2].split() == ["a", "30", "8", "7", "7", "8"]
    assert "a run would" in lines
    assert "  hold out each of 3 domains in turn" in lines
    assert any(line.startswith("    b: ") for line in lines)


def test_check_takes_positive_values_and_lists_of_columns(run, table):
    done = run("data", "check", table, "--target", "num", "--domain", "site", "--positive", "1, 2,3",
               "--categorical", "age", "--drop", "dose")  # fmt: skip
    assert done.code == 0, done
    assert "1 or 2 or 3" in done.out
    assert "a table of 1 column of categories" in done.out


def test_check_prints_json_that_parses(run, table):
    done = run("data", "check", table, "--target", "num", "--domain", "site", "--json")
    assert done.code == 0
    said = json.loads(done.out)
    assert said["rows"] == 90
    assert said["domains"] == ["a", "b", "c"]
    assert said["broken"] is False


def test_check_exits_with_2_where_a_run_would_stop_but_says_all_it_found(run, table):
    table.write_text("\n".join([HEADER, *(row for row in ROWS if ",a," in row)]) + "\n")
    done = run("data", "check", table, "--target", "num", "--domain", "site")
    assert done.code == 2
    assert "✗ a run would stop: table.csv has rows of one domain only, 'a'" in done.out
    again = run("data", "check", table, "--target", "num", "--domain", "site", "--json")
    assert again.code == 2
    assert json.loads(again.out)["broken"] is True


def test_check_lists_every_unreadable_image(run, pets):
    for bad in ("day/cat/3.png", "night/dog/7.png"):
        (pets / bad).write_bytes(b"\x89PNG\r\n\x1a\n")
    done = run("data", "check", pets)
    assert done.code == 2
    assert done.out.count("✗ cannot be read: ") == 2
    assert "day/cat/3.png" in done.out
    assert "night/dog/7.png" in done.out
    assert "Traceback" not in done.err


def test_check_takes_an_image_size(run, pets):
    done = run("data", "check", pets, "--image-size", "3")
    assert done.code == 0
    assert "images, 3 x 3, RGB" in done.out


def test_check_finds_nothing_to_complain_about_in_good_data(run, pets):
    done = run("data", "check", pets)
    assert done.code == 0
    assert "nothing to complain about" in done.out


def test_names_are_printed_as_they_are_not_as_markup(run, table):
    path = table.with_name("[red]table[blue].csv")
    path.write_text(table.read_text().replace(",a,", ",[bold]a[/],"))
    done = run("data", "check", path, "--target", "num", "--domain", "site")
    assert done.code == 0
    assert "[red]table[blue].csv" in done.out
    assert "[bold]a[/]" in done.out
    assert_refused(run("data", "check", path, "--target", "[/]"), "[red]table[blue].csv", "'[/]'")


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--target", "numb"], ["no column 'numb' (--target)", "did you mean 'num'?"]),
        (["--target", "num", "--domain", "sight"], ["no column 'sight' (--domain)", "did you mean 'site'?"]),
        ([], ["Name it with --target", "age, dose, site, num"]),
        (["--target", "num", "--positive", "9"], ["no row has the target 'num' '9'"]),
        (["--target", "num", "--task", "guess"], ["no task 'guess'"]),
        (["--target", "num", "--image-size", "3"], ["--image-size means nothing for a table"]),
    ],
    ids=["target", "domain", "no target", "positive", "task", "image size"],
)
@pytest.mark.parametrize("command", ["check", "show"])
def test_options_that_do_not_fit_are_refused_with_the_cure(run, table, command, options, words):
    assert_refused(run("data", command, table, *options), "table.csv" if "--image-size" not in options else "", *words)
    assert os.listdir() == []


@pytest.mark.parametrize("command", ["check", "show"])
def test_what_is_not_there_is_refused(run, command):
    assert_refused(run("data", command, "nowhere.csv"), "nowhere.csv is neither a file or folder here")
    assert_refused(run("data", command, "digitz"), "did you mean 'digits'?")


def test_infinity_is_refused_by_column_and_row(run, table):
    table.write_text(table.read_text().replace("\n", "\ninf,1,a,0\n", 1))
    refused = run("data", "check", table, "--target", "num")
    assert_refused(refused, "column 'age', row 1, line 2 of the file", "inf", "--drop age")


@pytest.mark.parametrize(
    "arguments",
    [
        ["data", "inspectt"],
        ["data", "check"],
        ["data", "check", "digits", "--seed", "-1"],
        ["data", "check", "digits", "--image-size", "large"],
        ["data", "check", "digits", "--colour", "red"],
        ["data", "prepare", "digits5"],
    ],
    ids=" ".join,
)
def test_a_command_line_that_makes_no_sense_exits_with_2(run, arguments):
    done = run(*arguments)
    assert done.code == 2
    assert "Traceback" not in done.err


def test_only_digits5_can_be_prepared(run):
    assert_refused(run("data", "prepare", "digits4", "--from", "."), "'digits4' cannot be prepared", "digits5")


# -- the disk --------------------------------------------------------------------------------------------------------


def test_a_folder_without_permission_is_refused(run, pets, monkeypatch):
    scandir = os.scandir

    def guarded(path: object) -> object:
        if str(path).endswith("night"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    assert_refused(run("data", "check", pets), "pets/night: permission denied; give yourself the right to it")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_really_without_permission_is_refused(run, pets):
    (pets / "night").chmod(0)
    try:
        assert_refused(run("data", "check", pets), "pets/night: permission denied")
    finally:
        (pets / "night").chmod(0o700)


def test_a_full_disk_is_refused_and_nothing_is_left(run, table, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(errors.os, "fsync", full)
    done = run("data", "show", table, "--target", "num", "--out", "new.png")
    assert_refused(done, "the disk is full; free some space", "Nothing was left half-written")
    assert os.listdir() == []


def test_a_file_that_may_grow_no_further_is_refused_and_nothing_is_left(table):
    """A real limit of the system, in a real process."""
    Path("old.png").write_bytes(b"old")
    done = subprocess.run(
        [COMMAND, "data", "show", table, "--target", "num", "--out", "old.png"],
        capture_output=True,
        text=True,
        # Else Python's own compiled modules would be cut short, for every process after this one.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000)),
    )
    assert done.returncode == 2, done
    assert "larger than allowed here" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir() == ["old.png"]
    assert Path("old.png").read_bytes() == b"old"


# -- show ------------------------------------------------------------------------------------------------------------


def test_show_writes_a_picture_by_the_name_of_the_data(run, table, pets):
    done = run("data", "show", table, "--target", "num", "--domain", "site")
    assert done.code == 0
    assert done.out.splitlines()[-1] == "wrote table.png"
    assert run("data", "show", pets, "--out", "sub/sheet.png").code == 0
    assert sorted(os.listdir()) == ["sub", "table.png"]
    for path in ("table.png", "sub/sheet.png"):
        with Image.open(path) as image:
            image.load()


def test_show_names_a_picture_of_the_folder_one_stands_in(run, pets, monkeypatch):
    monkeypatch.chdir(pets)
    assert run("data", "show", ".").out.splitlines()[-1] == "wrote pets.png"


def test_show_refuses_a_picture_of_another_kind(run, table):
    assert_refused(run("data", "show", table, "--target", "num", "--out", "x.bmp"), "x.bmp", ".png, .svg, .pdf")
    assert os.listdir() == []


# -- list, help, version ---------------------------------------------------------------------------------------------


def test_list_names_every_data_set_and_where_it_is(run, tmp_path):
    (tmp_path / "digits5").mkdir()
    (tmp_path / "digits5-small").mkdir()
    for domain in ("mnist", "mnistm", "svhn", "usps", "syn"):
        (tmp_path / "digits5" / f"{domain}.npz").touch()
    (tmp_path / "digits5-small" / "usps.npz").touch()
    done = run("data", "list", "--data-dir", tmp_path)
    assert done.code == 0
    rows = {line.split()[0]: line for line in done.out.splitlines() if line[:1].isalpha()}
    assert {"digits", "digits5", "digits5-small", "synthetic", "spurious"} <= set(rows)
    assert "here, always" in rows["digits"]
    assert rows["digits5"].rstrip().endswith(str(tmp_path / "digits5"))
    assert "digits5-small, but only" in rows["digits5-small"]  # the rest may stand in the next line


def test_every_command_explains_itself(run):
    assert "Train a model on several sources" in run("--help").out
    for command in ("list", "show", "check", "prepare", "fetch"):
        assert command in run("data", "--help").out
        done = run("data", command, "-h")
        assert done.code == 0
        assert f"data {command}" in done.out
    assert run("--version").out.strip() == __version__


# -- faults of ours, and the real command ----------------------------------------------------------------------------


def test_a_fault_of_ours_is_called_one_and_exits_with_1(run, monkeypatch):
    def fault(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("gated_domains.data.check.check_data", fault)
    done = run("data", "check", "digits")
    assert done.code == 1
    assert "Traceback" in done.err
    assert "This is a fault of gated-domains, not of your input" in done.err


def real(*arguments: object, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, **more)


def test_the_real_command_exits_with_0_and_with_2(table):
    good = real("data", "check", table, "--target", "num", "--domain", "site")
    assert (good.returncode, good.stderr) == (0, "")
    bad = real("data", "check", table, "--target", "numb")
    assert bad.returncode == 2
    assert bad.stdout == ""
    assert bad.stderr.startswith("error: ")
    assert "Traceback" not in bad.stderr


def test_a_terminal_without_our_letters_is_served_too(table):
    table.write_text("\n".join([HEADER, *(row for row in ROWS if ",a," in row)]).replace(",a,", ",Köln,") + "\n")
    plain = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    done = real("data", "check", table, "--target", "num", "--domain", "site", env=plain)
    assert done.returncode == 2
    assert "a run would stop" in done.stdout
    assert "Traceback" not in done.stderr


def test_names_that_are_no_unicode_are_printed_somehow(pets):
    os.rename(pets / "day", os.path.join(os.fsencode(pets), b"d\xe4y"))
    (pets / "night" / "cat" / "3.png").write_bytes(b"")
    os.rename(pets / "night" / "cat" / "3.png", os.path.join(os.fsencode(pets / "night" / "cat"), b"\xe4.png"))
    done = real("data", "check", pets)
    assert done.returncode == 2
    assert "cannot be read" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_fault():
    """As in `| head`: here nobody reads at all."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([COMMAND, "data", "list"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@needs_real_data
def test_the_real_command_knows_the_real_data():
    heart = real("data", "check", REAL / "heart_disease_4hospitals.csv", "--target", "num", "--domain", "hospital")
    assert heart.returncode == 0
    assert "920 rows" in heart.stdout
    molecules = real("data", "check", REAL / "mol_hiv41127.csv.xz", "--target", "ACTIVE")
    assert molecules.returncode == 2
    assert "--smiles SMILES" in molecules.stderr
