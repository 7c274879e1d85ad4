"""Files are written whole or not at all, whatever goes wrong; and what went wrong is said in words."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from gated_domains.data import errors
from gated_domains.data.errors import (
    DataError,
    cache_dir,
    data_folder,
    decoding,
    did_you_mean,
    explain,
    first_line,
    listing,
    naming,
    written_whole,
)


def left_in(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# -- whole or not at all ---------------------------------------------------------------------------------------------


def test_a_file_appears_whole_and_alone(tmp_path):
    with written_whole(tmp_path / "new" / "folder" / "a.txt") as draft:
        draft.write_text("all of it")
        assert draft.parent == tmp_path / "new" / "folder"
        assert not (tmp_path / "new" / "folder" / "a.txt").exists()
    assert (tmp_path / "new" / "folder" / "a.txt").read_text() == "all of it"
    assert left_in(tmp_path / "new" / "folder") == ["a.txt"]


def test_a_file_is_replaced_at_once(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with written_whole(path) as draft:
        draft.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, OSError])
@pytest.mark.parametrize("before", [None, "old"])
def test_a_writer_that_fails_leaves_nothing_and_keeps_the_old(tmp_path, error, before):
    path = tmp_path / "a.txt"
    if before:
        path.write_text(before)
    with pytest.raises(error), written_whole(path) as draft:  # noqa: PT012
        draft.write_text("half of")
        raise error("stop")
    assert left_in(tmp_path) == (["a.txt"] if before else [])
    assert not before or path.read_text() == before


def test_a_writer_that_writes_nothing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError), written_whole(tmp_path / "a.txt"):
        pass
    assert left_in(tmp_path) == []


def test_the_suffix_stays_so_that_writers_know_the_format(tmp_path):
    with written_whole(tmp_path / "arrays.npz") as draft:
        np.savez(draft, x=np.ones(3))
    assert left_in(tmp_path) == ["arrays.npz"]


def test_two_writers_do_not_get_in_each_others_way(tmp_path):
    path = tmp_path / "a.txt"
    with written_whole(path) as first, written_whole(path) as second:
        first.write_text("first")
        second.write_text("second")
        assert first != second
    assert path.read_text() == "first"
    assert left_in(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_fills_up_at_the_last_moment_leaves_nothing(tmp_path, monkeypatch, call):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "a.txt").write_text("old")
    monkeypatch.setattr(errors.os, call, full)
    with pytest.raises(OSError, match="No space left"), written_whole(tmp_path / "a.txt") as draft:
        draft.write_text("new")
    assert left_in(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_a_file_that_may_grow_no_further_leaves_nothing(tmp_path):
    """A real limit of the system on the size of files, in a process of its own."""
    code = """
        import resource, sys
        from gated_domains.data.errors import written_whole
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        try:
            with written_whole(sys.argv[1]) as draft:
                draft.write_bytes(bytes(100_000))
        except OSError as error:
            from gated_domains.data.errors import explain
            print(explain(error))
    """
    done = subprocess.run(
        [sys.executable, "-B", "-c", textwrap.dedent(code), str(tmp_path / "a.bin")],  # -B: or compiled modules are cut
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "larger than allowed here" in done.stdout
    assert left_in(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"), written_whole(tmp_path / "file" / "a.txt"):
        pass


# -- where files lie -------------------------------------------------------------------------------------------------


def test_the_cache_is_where_it_was_said_to_be(monkeypatch):
    for name in ("GATED_DOMAINS_CACHE", "XDG_CACHE_HOME", "GATED_DOMAINS_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/ada")
    assert cache_dir() == Path("/home/ada/.cache/gated-domains")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert cache_dir() == Path("/var/cache/gated-domains")
    assert data_folder() == Path("/var/cache/gated-domains/data")
    monkeypatch.setenv("GATED_DOMAINS_CACHE", "~/mine")
    assert cache_dir() == Path("/home/ada/mine")
    monkeypatch.setenv("GATED_DOMAINS_DATA", "~/sets")
    assert data_folder() == Path("/home/ada/sets")
    assert data_folder("/srv") == Path("/srv")


# -- in words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full; free some space"),
        (errno.EDQUOT, "your quota on this disk is used up"),
        (errno.EFBIG, "larger than allowed here"),
        (errno.EACCES, "permission denied; give yourself the right to it"),
        (errno.EPERM, "permission denied"),
        (errno.EROFS, "read-only; choose another place"),
        (errno.ENOENT, "no such file or folder; check the spelling"),
        (errno.ENOTDIR, "is a file, not a folder"),
        (errno.EISDIR, "this is a folder; a file is needed"),
        (errno.ENAMETOOLONG, "the name is too long"),
        (errno.ELOOP, "go round in a circle"),
        (errno.EMFILE, "too many open files"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_an_error_of_the_disk_is_explained_with_its_place(number, words):
    said = explain(OSError(number, os.strerror(number), "/data/a.npz"))
    assert said.startswith("/data/a.npz: ")
    assert words in said


def test_an_error_without_place_or_number_is_said_as_it_is():
    assert explain(OSError("the cable is loose")) == "the cable is loose"
    assert explain(OSError(errno.ENOSPC, "No space left on device")).startswith("the disk is full")


def test_the_nearest_name_is_offered_whatever_its_case():
    assert did_you_mean("Hospitl", ["hospital", "age"]) == "; did you mean 'hospital'?"
    assert did_you_mean("zzz", ["b", "a"]) == "; there are a, b"
    assert did_you_mean("zzz", []) == "; there are none"


def test_long_lists_are_cut_short_with_a_count():
    assert listing(range(3)) == "0, 1, 2"
    assert listing(range(1_012)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 1,000 more"


@pytest.mark.parametrize("error", [EOFError("cut"), KeyError("k"), RecursionError("deep"), OSError("bad data")])
def test_what_a_decoder_raises_names_the_file(error):
    with (
        pytest.raises(DataError, match=r"a\.npz: .*; it is cut short, damaged, or not what its name says"),
        decoding("a.npz"),
    ):
        raise error


def test_too_little_memory_is_said_to_be_that():
    with pytest.raises(DataError, match=r"a\.npz: too large for the memory"), decoding("a.npz"):
        raise MemoryError


@pytest.mark.parametrize(
    "error", [DataError("ours"), PermissionError(errno.EACCES, "no", "a.npz"), KeyboardInterrupt()]
)
def test_what_is_no_damage_passes_through(error):
    with pytest.raises(type(error)) as caught, decoding("a.npz"):
        raise error
    assert caught.value is error


def test_an_error_of_the_disk_gets_the_name_of_the_file():
    with pytest.raises(OSError, match=r"a\.npz"), decoding("a.npz"):
        raise OSError(errno.EIO, "Input/output error")


def test_a_place_before_the_start_of_a_file_is_damage():
    with pytest.raises(DataError, match=r"a\.npz: .*damaged"), decoding("a.npz"):
        raise OSError(errno.EINVAL, "Invalid argument")


def test_a_message_gets_the_name_of_its_file_once():
    for message in ("no labels", "b.npz: no labels", "/a/b.npz: no labels"):
        with pytest.raises(DataError) as caught, naming("/a/b.npz"):
            raise DataError(message)
        assert str(caught.value) == "/a/b.npz: no labels"


def test_the_first_line_of_an_error_is_safe_to_print():
    assert first_line(ValueError("one\ntwo")) == "one"
    assert first_line(ValueError("")) == "ValueError"
    assert first_line(ValueError("a\x1b[31mred\udce4")) == "a?[31mred?"
    assert len(first_line(ValueError("x" * 1_000))) < 250
