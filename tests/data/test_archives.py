"""Archives: what is unpacked, and what is refused without a trace."""

from __future__ import annotations

import contextlib
import gzip
import io
import stat
import tarfile
import zipfile
from random import Random

import pytest

from gated_domains.data import archives
from gated_domains.data.archives import UnsafeArchiveError, is_archive, member_names, unpack
from gated_domains.data.errors import DataError

CONTENT = {"a.txt": b"first", "deep/er/b.bin": bytes(range(256)) * 500, "deep/empty": b""}
TAR_MODES = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.bz2": "w:bz2", ".tar.xz": "w:xz"}


def a_zip(path, content=CONTENT):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, data in content.items():
            pack.writestr(name, data)
    return path


def a_tar(path, content=CONTENT, *, mode="w:gz", extra=()):
    with tarfile.open(path, mode) as pack:
        for name, data in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            pack.addfile(info, io.BytesIO(data))
        for info in extra:
            pack.addfile(info)
    return path


def a_link(name, target, *, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def a_zipped_link(path, name, target, content=CONTENT):
    a_zip(path, content)
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as pack:
        pack.writestr(info, target)
    return path


def read(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(archive, tmp_path, match, error=UnsafeArchiveError, **settings):
    """Refused, with nothing left anywhere but the archive."""
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error, match=match) as caught:
        unpack(archive, tmp_path / "out" / "dest", **settings)
    assert archive.name in str(caught.value)
    (tmp_path / "out").rmdir()  # which only works when it is empty
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("suffix", [".zip", *TAR_MODES])
def test_every_kind_of_archive_is_unpacked_whole(tmp_path, suffix):
    make = a_zip if suffix == ".zip" else a_tar
    settings = {} if suffix == ".zip" else {"mode": TAR_MODES[suffix]}
    archive = make(tmp_path / f"pack{suffix.upper()}", **settings)
    assert is_archive(archive)
    assert sorted(member_names(archive)) == sorted(CONTENT)
    assert unpack(archive, tmp_path / "dest") == tmp_path / "dest"
    assert read(tmp_path / "dest") == CONTENT
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_only_the_members_asked_for_are_unpacked(tmp_path):
    for archive in (a_zip(tmp_path / "p.zip"), a_tar(tmp_path / "p.tar.gz")):
        dest = unpack(archive, tmp_path / f"dest-{archive.name}", only=lambda name: name.endswith(".txt"))
        assert read(dest) == {"a.txt": b"first"}


def test_an_empty_folder_is_filled_and_a_full_one_is_left_alone(tmp_path):
    archive = a_zip(tmp_path / "p.zip")
    (tmp_path / "empty").mkdir()
    assert read(unpack(archive, tmp_path / "empty")) == CONTENT
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("keep me")
    with pytest.raises(DataError, match="already there; remove it"):
        unpack(archive, tmp_path / "full")
    assert read(tmp_path / "full") == {"mine": b"keep me"}


NAMES_OUTSIDE = ["../evil", "a/../../evil", "/tmp/evil", "C:/evil", "c:evil", "..\\evil", "a\\..\\..\\evil", "\\evil"]


@pytest.mark.parametrize("name", NAMES_OUTSIDE)
@pytest.mark.parametrize("make", [a_zip, a_tar])
def test_a_name_that_leads_outside_is_refused(tmp_path, make, name):
    archive = make(tmp_path / f"evil{'.zip' if make is a_zip else '.tar.gz'}", {"good": b"x", name: b"evil"})
    refused(archive, tmp_path, "would land outside the folder")
    with pytest.raises(UnsafeArchiveError, match="would land outside"):
        member_names(archive)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../secret", "C:\\secret", "..\\..\\secret"])
def test_a_link_that_leads_outside_is_refused(tmp_path, target):
    refused(a_tar(tmp_path / "sym.tar", mode="w", extra=[a_link("deep/link", target)]), tmp_path, "would land outside")
    hard = a_link("link", target, kind=tarfile.LNKTYPE)
    refused(a_tar(tmp_path / "hard.tar", mode="w", extra=[hard]), tmp_path, "would land outside")
    refused(a_zipped_link(tmp_path / "sym.zip", "deep/link", target), tmp_path, "would land outside")


def test_a_file_is_never_written_through_a_link(tmp_path):
    (tmp_path / "outside").mkdir()
    archive = tmp_path / "through.tar"
    with tarfile.open(archive, "w") as pack:
        pack.addfile(a_link("door", "."))
        pack.addfile(a_link("door/way", ".."))
        info = tarfile.TarInfo("door/way/outside/evil")
        info.size = 4
        pack.addfile(info, io.BytesIO(b"evil"))
    refused(archive, tmp_path, "would land outside|is a file and a folder|no file in it", error=DataError)
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_link_to_a_file_of_the_archive_becomes_a_copy(tmp_path):
    links = [a_link("deep/x", "../a.txt"), a_link("y", "deep/x"), a_link("z", "a.txt", kind=tarfile.LNKTYPE)]
    expected = {**CONTENT, "deep/x": b"first", "y": b"first", "z": b"first"}
    dest = unpack(a_tar(tmp_path / "p.tar", mode="w", extra=links), tmp_path / "dest")
    assert read(dest) == expected
    assert not any(path.is_symlink() for path in dest.rglob("*"))
    dest = unpack(a_zipped_link(tmp_path / "p.zip", "deep/x", "../a.txt"), tmp_path / "dest2")
    assert read(dest) == {**CONTENT, "deep/x": b"first"}


def test_a_link_to_nothing_or_in_a_circle_is_refused(tmp_path):
    refused(a_tar(tmp_path / "nothing.tar", mode="w", extra=[a_link("x", "gone")]), tmp_path, "no file in it")
    circle = [a_link("x", "y"), a_link("y", "x")]
    refused(a_tar(tmp_path / "circle.tar", mode="w", extra=circle), tmp_path, "no file in it")


def test_a_device_is_refused(tmp_path):
    device = tarfile.TarInfo("null")
    device.type, device.devmajor, device.devminor = tarfile.CHRTYPE, 1, 3
    refused(a_tar(tmp_path / "device.tar", mode="w", extra=[device]), tmp_path, "'null' is neither a file nor a folder")


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz", ".tar.xz"])
def test_an_archive_that_swells_beyond_measure_is_refused(tmp_path, suffix):
    zeros = {"zeros": bytes(5_000_000)}
    archive = tmp_path / f"bomb{suffix}"
    a_zip(archive, zeros) if suffix == ".zip" else a_tar(archive, zeros, mode=TAR_MODES[suffix])
    refused(archive, tmp_path, "swells to more than 1,000,000 bytes", most_bytes=1_000_000)
    assert len(read(unpack(archive, tmp_path / "dest", most_bytes=5_000_000))["zeros"]) == 5_000_000


def test_the_limit_counts_all_members_and_copies_together(tmp_path):
    many = {f"{number}": bytes(400_000) for number in range(5)}
    refused(a_zip(tmp_path / "many.zip", many), tmp_path, "swells", most_bytes=1_500_000)
    links = [a_link(f"copy{number}", "0") for number in range(5)]
    copies = a_tar(tmp_path / "copies.tar", {"0": bytes(400_000)}, mode="w", extra=links)
    refused(copies, tmp_path, "swells", most_bytes=1_500_000)


def test_the_limit_holds_for_what_is_declared_and_for_what_comes(tmp_path):
    def never():
        raise AssertionError("a member that says it is too large is not even opened")

    archive = a_zip(tmp_path / "p.zip")
    for member in (
        archives._Member("declared", size=10**12, read=never),
        archives._Member("lying", size=1, read=lambda: io.BytesIO(bytes(10**6))),
    ):
        with pytest.raises(UnsafeArchiveError, match="swells to more than 1,000 bytes"):
            archives._copy(archive, member, tmp_path / "x", budget=1_000, limit=1_000)


def test_the_limit_is_a_thousand_times_the_archive_between_one_and_twenty_gigabytes():
    assert archives._allowed(10) == 10**9
    assert archives._allowed(5 * 10**6) == 5 * 10**9
    assert archives._allowed(10**9) == 20 * 10**9


def test_too_many_members_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_MEMBERS", 2)
    refused(a_zip(tmp_path / "p.zip"), tmp_path, "more than 2 members")


def test_a_name_nested_without_end_is_refused(tmp_path):
    refused(a_zip(tmp_path / "deep.zip", {"a/" * 900 + "b": b""}), tmp_path, "nested 901 deep")


def test_an_encrypted_zip_is_refused(tmp_path):
    archive = a_zip(tmp_path / "secret.zip", {"a": b"x"})
    raw = bytearray(archive.read_bytes())
    for signature, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        raw[raw.index(signature) + offset] |= 1
    archive.write_bytes(raw)
    refused(archive, tmp_path, "'a' is encrypted; unpack the archive by hand", error=DataError)


@pytest.mark.parametrize("suffix", [".zip", *TAR_MODES])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_a_truncated_archive_is_named_and_leaves_nothing(tmp_path, suffix, share):
    archive = tmp_path / f"cut{suffix}"
    noise = {f"{number}.bin": Random(number).randbytes(30_000) for number in range(4)}
    a_zip(archive, noise) if suffix == ".zip" else a_tar(archive, noise, mode=TAR_MODES[suffix])
    whole = archive.read_bytes()
    archive.write_bytes(whole[: int(len(whole) * share)])
    refused(archive, tmp_path, "damaged or cut short", error=DataError)


def test_a_tar_cut_between_two_members_is_not_taken_for_a_whole_one(tmp_path):
    archive = a_tar(tmp_path / "cut.tar", {"a": b"x" * 512, "b": b"y" * 512}, mode="w")
    archive.write_bytes(archive.read_bytes()[:1024])
    refused(archive, tmp_path, "cut short, after 'a'", error=DataError)
    with pytest.raises(DataError, match="cut short, after 'a'"):
        member_names(archive)


def test_a_broken_header_in_a_tar_is_not_taken_for_its_end(tmp_path):
    for suffix, pack in ((".tar", bytes), (".tar.gz", gzip.compress)):
        archive = a_tar(tmp_path / f"broken{suffix}", {"a": b"x" * 512, "b": b"y" * 512}, mode="w")
        raw = bytearray(archive.read_bytes())
        raw[1024:1100] = b"#" * 76
        archive.write_bytes(pack(bytes(raw)))
        refused(archive, tmp_path, "cut short, after 'a'", error=DataError)


def test_a_damaged_member_is_named(tmp_path):
    archive = tmp_path / "p.zip"
    with zipfile.ZipFile(archive, "w") as pack:
        pack.writestr("whole", b"fine")
        pack.writestr("broken", b"0123456789")
    raw = archive.read_bytes()
    archive.write_bytes(raw.replace(b"0123456789", b"0123456780"))
    refused(archive, tmp_path, "'broken' is damaged", error=DataError)


def test_a_name_that_is_a_file_and_a_folder_is_refused(tmp_path):
    refused(
        a_zip(tmp_path / "p.zip", {"a": b"", "a/b": b""}), tmp_path, "'a/b' is a file and a folder", error=DataError
    )


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    refused(
        tmp_path / "notes.txt", tmp_path, r"is no archive that can be unpacked; those end in \.zip", error=DataError
    )
    (tmp_path / "fake.zip").write_text("hello")
    refused(tmp_path / "fake.zip", tmp_path, "damaged or cut short", error=DataError)


def test_a_full_disk_is_not_blamed_on_the_archive(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    archive = a_zip(tmp_path / "p.zip")
    monkeypatch.setattr(archives, "_copy", full)
    with pytest.raises(OSError, match="No space left"):
        unpack(archive, tmp_path / "out" / "dest")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tar.gz"])
def test_changed_bytes_give_files_or_a_clear_message(tmp_path, suffix):
    """A hundred archives with a few bytes changed each."""
    archive = tmp_path / f"fuzzed{suffix}"
    a_zip(archive) if suffix == ".zip" else a_tar(archive, mode=TAR_MODES[suffix])
    whole, chance = archive.read_bytes(), Random(0)
    for number in range(100):
        changed = bytearray(whole)
        for _ in range(chance.randint(1, 12)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        archive.write_bytes(changed)
        with contextlib.suppress(DataError):
            unpack(archive, tmp_path / "out" / str(number))
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([archive.name, "out"])
