"""Archives unpacked with care: nothing leaves the folder, nothing swells without end, nothing is left half-written."""

from __future__ import annotations

import errno
import lzma
import os
import re
import secrets
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from gated_domains.data.errors import DataError, listing
from gated_domains.data.memory import available_bytes
from gated_domains.data.progress import progress

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tbz", ".tar.xz", ".txz")
MOST_BYTES = 20 * 10**9
# Honest archives of small images and numbers shrink tenfold, seldom a hundredfold.
MOST_SWELLING = 1_000
NEVER_TOO_LARGE = 10**9
MOST_MEMBERS = 1_000_000
_DEEPEST = 64
# What zipfile, tarfile and the decompressors raise over damaged bytes.
_FAULTS = (
    zipfile.BadZipFile,
    tarfile.TarError,
    lzma.LZMAError,
    zlib.error,
    struct.error,
    EOFError,
    ArithmeticError,
    LookupError,
    MemoryError,
    RuntimeError,  # NotImplementedError is one
    ValueError,
)
_BLOCK = 1 << 20


class UnsafeArchiveError(DataError):
    """An archive that tries to write outside its folder, or to fill the disk."""


@dataclass(frozen=True)
class _Member:
    name: str
    size: int
    is_folder: bool = False
    link_to: str | None = None  # relative to the top of the archive
    read: Callable[[], IO[bytes] | None] | None = None  # None: neither file, folder nor link


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether a name ends as that of an archive does: ``.zip``, ``.tar``, ``.tar.gz`` and so on."""
    return os.fspath(path).lower().endswith(SUFFIXES)


def member_names(archive: str | os.PathLike[str]) -> list[str]:
    """The names of the files in an archive, every one of them safe. Nothing is unpacked."""
    archive = Path(archive)
    with _faults_named(archive), _members(archive) as members:
        return [str(_inside(archive, member.name)) for member in members if not member.is_folder]


def read_members(archive: str | os.PathLike[str], only: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """The name and the content of every file that ``only`` chooses; what ``unpack`` refuses is refused here too.

    Links are passed over. All that comes out together must fit into the memory that is free.
    """
    archive = Path(archive)
    limit = min(_allowed(archive.stat().st_size), available_bytes())
    budget = limit
    with _faults_named(archive), _members(archive) as members:
        for member in members:
            name = str(_inside(archive, member.name))
            if member.read is None or not only(name):
                continue
            with _faults_named(archive, member.name):
                opened = member.read()
                assert opened is not None
                with opened as source:
                    content = source.read(budget + 1)
            budget -= len(content)
            if budget < 0:
                raise _swollen(archive, limit)
            yield name, content


def unpack(
    archive: str | os.PathLike[str],
    dest: str | os.PathLike[str],
    *,
    only: Callable[[str], bool] | None = None,
    most_bytes: int | None = None,
) -> Path:
    """Unpack a zip or tar archive into the new folder ``dest``: all of it, or nothing at all.

    ``only`` chooses members by name. Refused are names that lead out of the folder, links to anything but a file
    of the archive (those become copies: no link is ever made), devices, encrypted members, and more than ``most_bytes``
    (by default 20 GB, and beyond 1 GB a thousand times the archive).
    """
    archive, dest = Path(archive), Path(dest)
    if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
        raise DataError(f"{dest} is already there; remove it, or choose another place to unpack {archive.name}")
    limit = _allowed(archive.stat().st_size) if most_bytes is None else most_bytes
    dest.parent.mkdir(parents=True, exist_ok=True)
    draft = dest.with_name(f".{dest.name}.{os.getpid()}-{secrets.token_hex(4)}")
    draft.mkdir()
    try:
        with _faults_named(archive), _members(archive) as members, progress(f"unpacking {archive.name}") as advance:
            _write(archive, members, draft, only=only, limit=limit, advance=advance)
        if dest.is_dir():
            dest.rmdir()  # an empty one; not every system renames onto it
        os.replace(draft, dest)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return dest


def _allowed(archive_bytes: int) -> int:
    return min(MOST_BYTES, max(NEVER_TOO_LARGE, MOST_SWELLING * archive_bytes))


def _write(
    archive: Path,
    members: Iterator[_Member],
    folder: Path,
    *,
    only: Callable[[str], bool] | None,
    limit: int,
    advance: Callable[[int], None],
) -> None:
    links: dict[PurePosixPath, PurePosixPath] = {}
    budget = limit
    for member in members:
        name = _inside(archive, member.name)
        if only is not None and not only(str(name)):
            continue
        with _faults_named(archive, member.name):
            if member.is_folder:
                (folder / name).mkdir(parents=True, exist_ok=True)
            elif member.link_to is not None:
                links[name] = _inside(archive, member.link_to, of_link=member.name)
            elif member.read is None:
                raise UnsafeArchiveError(f"{archive}: {member.name!r} is neither a file nor a folder; it is refused")
            else:
                budget = _copy(archive, member, folder / name, budget=budget, limit=limit)
        advance(1)
    _copy_links(archive, links, folder, budget=budget, limit=limit)


def _copy(archive: Path, member: _Member, path: Path, *, budget: int, limit: int) -> int:
    """Write one file and return how many bytes may still follow."""
    if member.size > budget:
        raise _swollen(archive, limit)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = member.read() if member.read is not None else None
    assert content is not None
    with content as source, open(path, "wb") as target:
        while block := source.read(_BLOCK):
            budget -= len(block)
            if budget < 0:
                raise _swollen(archive, limit)
            target.write(block)
    return budget


def _copy_links(
    archive: Path, links: dict[PurePosixPath, PurePosixPath], folder: Path, *, budget: int, limit: int
) -> None:
    while links:
        ready = {name: target for name, target in links.items() if (folder / target).is_file()}
        if not ready:
            name, target = next(iter(links.items()))
            raise UnsafeArchiveError(f"{archive}: {str(name)!r} is a link to {str(target)!r}, which is no file in it")
        for name, target in ready.items():
            budget -= (folder / target).stat().st_size
            if budget < 0:
                raise _swollen(archive, limit)
            with _faults_named(archive, str(name)):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                if name != target:
                    shutil.copyfile(folder / target, folder / name)
            del links[name]


def _swollen(archive: Path, limit: int) -> UnsafeArchiveError:
    return UnsafeArchiveError(
        f"{archive} ({archive.stat().st_size:,} bytes) swells to more than {limit:,} bytes; it is not unpacked. "
        "If you trust it, unpack it by hand"
    )


def _inside(archive: Path, name: str, *, of_link: str | None = None) -> PurePosixPath:
    """A member's name as a path that stays in the folder."""
    # A backslash separates names on one system and not on another: it separates here, so that no system is fooled.
    plain = name.replace("\\", "/")
    path = PurePosixPath(plain)
    what = f"member {name!r}" if of_link is None else f"link {of_link!r} to {name!r}"
    if path.is_absolute() or re.match(r"[A-Za-z]:", plain) or ".." in path.parts or "\0" in plain:
        raise UnsafeArchiveError(f"{archive}: the {what} would land outside the folder; the archive is refused")
    if len(path.parts) > _DEEPEST:
        raise UnsafeArchiveError(f"{archive}: the {what} is nested {len(path.parts)} deep; the archive is refused")
    return path


@contextmanager
def _faults_named(archive: Path, member: str | None = None) -> Iterator[None]:
    """What the readers of archives raise, as an error that names the archive and the member."""
    where = str(archive) if member is None else f"{archive}: the member {member!r}"
    try:
        yield
    except DataError:
        raise
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        if member is None:
            raise
        raise DataError(f"{where} is a file and a folder at once; the archive is damaged") from error
    except _FAULTS as error:
        raise DataError(f"{where} is damaged or cut short ({error}); fetch the archive again") from error
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # a full disk, a missing permission: not the archive's fault
            raise
        raise DataError(f"{where} is damaged or cut short ({error}); fetch the archive again") from error


@contextmanager
def _members(archive: Path) -> Iterator[Iterator[_Member]]:
    if not is_archive(archive):
        raise DataError(f"{archive} is no archive that can be unpacked; those end in {listing(SUFFIXES)}")
    if archive.name.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as pack:
            yield _limited(archive, _zip_members(archive, pack))
    else:
        with tarfile.open(archive, "r:*") as pack:
            yield _limited(archive, _tar_members(archive, pack))


def _limited(archive: Path, members: Iterator[_Member]) -> Iterator[_Member]:
    for count, member in enumerate(members):
        if count >= MOST_MEMBERS:
            raise UnsafeArchiveError(f"{archive} holds more than {MOST_MEMBERS:,} members; it is not unpacked")
        yield member


def _zip_members(archive: Path, pack: zipfile.ZipFile) -> Iterator[_Member]:
    for info in pack.infolist():
        if info.flag_bits & 0x1:
            raise DataError(f"{archive}: the member {info.filename!r} is encrypted; unpack the archive by hand")
        kind = stat.S_IFMT(info.external_attr >> 16)
        if info.is_dir():
            yield _Member(info.filename, 0, is_folder=True)
        elif kind == stat.S_IFLNK:
            if info.file_size > 4096:
                raise UnsafeArchiveError(f"{archive}: the link {info.filename!r} is {info.file_size:,} bytes long")
            target = pack.read(info).decode("utf-8", "surrogateescape")
            yield _Member(info.filename, 0, link_to=_beside(info.filename, target))
        elif kind in (0, stat.S_IFREG):
            yield _Member(info.filename, info.file_size, read=partial(pack.open, info))
        else:
            yield _Member(info.filename, 0)


def _tar_members(archive: Path, pack: tarfile.TarFile) -> Iterator[_Member]:
    last = ""
    for info in pack:
        last = f", after {info.name!r}"
        if info.isdir():
            yield _Member(info.name, 0, is_folder=True)
        elif info.issym():
            yield _Member(info.name, 0, link_to=_beside(info.name, info.linkname))
        elif info.islnk():
            yield _Member(info.name, 0, link_to=info.linkname)
        elif info.isreg():
            yield _Member(info.name, info.size, read=partial(pack.extractfile, info))
        else:
            yield _Member(info.name, 0)
    # tarfile takes a broken header, and the end of the file, for the end of the archive; a whole one ends in zeros.
    assert pack.fileobj is not None
    pack.fileobj.seek(pack.offset)
    ending = pack.fileobj.read(tarfile.BLOCKSIZE)
    if not ending or ending.strip(b"\0"):
        raise DataError(f"{archive} is damaged or cut short{last}; fetch the archive again")


def _beside(name: str, target: str) -> str:
    """A symbolic link's target, seen from the top of the archive; as it is when it leads out of it."""
    if target.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", target):
        return target
    parts: list[str] = list(PurePosixPath(name.replace("\\", "/")).parent.parts)
    for part in PurePosixPath(target.replace("\\", "/")).parts:
        if part == ".." and (not parts or parts[-1] == ".."):
            return target
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)
