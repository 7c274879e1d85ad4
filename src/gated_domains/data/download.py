"""One file from any of several mirrors: resumed after a cut, checked by its digest, there whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    UnknownHandler,
)

from gated_domains.data.catalogue import RemoteFile
from gated_domains.data.errors import DataError, written_whole
from gated_domains.data.progress import progress

_BLOCK = 1 << 16
_MOST_ROUNDS = 200  # on one mirror, each of which must bring something new
_MOST_BYTES = 5 * 10**9  # of a file whose size nobody tells
Say = Callable[[str], None]
Advance = Callable[[int], None]


class _MirrorError(Exception):
    """Why one mirror did not give the file."""


def download(
    file: RemoteFile,
    folder: str | os.PathLike[str],
    *,
    offline: bool = False,
    timeout: float = 30.0,
    say: Say | None = None,
) -> Path:
    """Have ``file`` in ``folder``, fetched where it is not there and intact, and return its path.

    What arrives lies in ``<name>.part`` until its size and digest are right, and the next call goes on from there. A
    mirror that fails is passed over with a line to ``say`` (standard error by default). ``timeout`` is for silence, in
    seconds. With ``offline`` nothing is fetched.
    """
    say = say or to_stderr
    path = Path(folder) / file.name
    wrong = fault(path, file) if path.is_file() else None
    if path.is_file() and wrong is None:
        _remember(path, file, say)
        return path
    if offline:
        what = f"is there but wrong ({wrong})" if wrong else "is not there"
        raise DataError(f"{path} {what}, and nothing is fetched offline; put it there by hand, or fetch it online")
    if wrong:
        aside = path.with_name(f"{path.name}.wrong")
        os.replace(path, aside)
        say(f"{path}: {wrong}; moved to {aside.name}, and fetched again")
    path.parent.mkdir(parents=True, exist_ok=True)
    reasons = []
    for url in file.mirrors:
        try:
            _from_mirror(url, path, file, timeout=timeout)
        except _MirrorError as error:
            say(f"{url}: {error}; passed over")
            reasons.append(f"{url}: {error}")
        else:
            _remember(path, file, say)
            return path
    raise DataError(
        f"{file.name} could not be fetched. {'. '.join(reasons)}. "
        f"Try again later (what has arrived is kept), or put the file there by hand: {path}"
    )


def fault(path: Path, file: RemoteFile) -> str | None:
    """What is wrong with a file on disk: its size or its digest. None when nothing is, as far as anyone can tell."""
    size = path.stat().st_size
    if file.size is not None and size != file.size:
        return f"it has {size:,} bytes instead of {file.size:,}"
    if file.about is not None and not 0.9 * file.about <= size <= 1.1 * file.about:
        return f"it has {size:,} bytes instead of about {file.about:,}"
    kind, expected = _expected(path, file)
    if expected is None:
        return None
    found = _digest(path, kind)
    return None if found == expected.lower() else f"its {kind} is {found} instead of {expected}"


def to_stderr(line: str) -> None:
    """Say something without getting into the way of what is printed."""
    print(line, file=sys.stderr)


def _expected(path: Path, file: RemoteFile) -> tuple[str, str | None]:
    if file.sha256 is not None:
        return "sha256", file.sha256
    if file.md5 is not None:
        return "md5", file.md5
    record = _record(path)
    return "sha256", record.read_text("ascii", "replace").partition(" ")[0] if record.is_file() else None


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name.removesuffix('.part')}.sha256")


def _remember(path: Path, file: RemoteFile, say: Say) -> None:
    """Keep the digest of a file that nobody published one for, so that it can be checked from now on."""
    if file.sha256 is None and file.md5 is None and not _record(path).is_file():
        digest = _digest(path, "sha256")
        with written_whole(_record(path)) as draft:
            draft.write_text(f"{digest}  {path.name}\n", "ascii")
        say(f"{path.name}: no digest of it is published. Its SHA-256 is {digest}; kept in {_record(path).name}")


def _digest(path: Path, kind: str) -> str:
    state = hashlib.new(kind)
    with open(path, "rb") as content:
        while block := content.read(1 << 20):
            state.update(block)
    return state.hexdigest()


def _from_mirror(url: str, path: Path, file: RemoteFile, *, timeout: float) -> None:
    """Fetch the file from one mirror, or say why that is not to be had."""
    if not url.lower().startswith(("http://", "https://")):
        raise _MirrorError("only http and https are fetched")
    part = path.with_name(f"{path.name}.part")
    # What another mirror sent may be of another file. A digest would tell, afterwards; nothing else would. A large
    # one that comes from one place alone is gone on with: its archive is found damaged if that was wrong.
    alone = file.about is not None and len(file.mirrors) == 1
    if file.sha256 is None and file.md5 is None and not alone:
        part.unlink(missing_ok=True)
    resumed = _size(part) > 0
    _receive(url, part, file, timeout=timeout)
    wrong = fault(part, file)
    if wrong and resumed:
        part.unlink()
        _receive(url, part, file, timeout=timeout)
        wrong = fault(part, file)
    if wrong:
        part.unlink()
        raise _MirrorError(f"it sends a wrong file ({wrong})")
    with open(part, "rb+") as content:
        os.fsync(content.fileno())
    os.replace(part, path)


def _receive(url: str, part: Path, file: RemoteFile, *, timeout: float) -> None:
    """Fill ``part``, asking again for the rest as long as every answer brings something new."""
    with progress(f"fetching {file.name}", total=file.size or file.about, unit="bytes") as advance:
        advance(_size(part))
        for _ in range(_MOST_ROUNDS):
            before = _size(part)
            if file.size is not None and before >= file.size:
                return
            cut = _ask(url, part, file, timeout=timeout, advance=advance)
            if cut is None:
                return
            if _size(part) <= before:
                if (file.sha256 or file.md5) and part.is_file() and fault(part, file) is None:
                    return  # the mirror promised more than there is
                raise _MirrorError(cut)
    raise _MirrorError(f"the connection was cut {_MOST_ROUNDS} times")


def _ask(url: str, part: Path, file: RemoteFile, *, timeout: float, advance: Advance) -> str | None:
    """Add to ``part`` what one request brings. None when that is all, else why it is not."""
    have = _size(part)
    try:
        response = _open(url, start=have, timeout=timeout)
    except _BeyondTheEndError as answer:
        if file.size is None and answer.total == have:
            return None
        return _ask_anew(url, part, file, timeout=timeout, advance=advance)
    with response:
        if response.headers.get_content_type() == "text/html":
            raise _MirrorError("it sends a web page instead of the file")
        start, total = _extent(response)
        if start not in (0, have):
            if have == 0:
                raise _MirrorError(f"it sends what begins at byte {start:,}, though all was asked for")
            return _ask_anew(url, part, file, timeout=timeout, advance=advance)
        if start != have:
            advance(-have)  # it does not resume; all comes again
        return _append(response, part, file, start=start, total=total, advance=advance)


def _ask_anew(url: str, part: Path, file: RemoteFile, *, timeout: float, advance: Advance) -> str | None:
    advance(-_size(part))
    part.unlink(missing_ok=True)
    return _ask(url, part, file, timeout=timeout, advance=advance)


def _append(
    response: http.client.HTTPResponse,
    part: Path,
    file: RemoteFile,
    *,
    start: int,
    total: int | None,
    advance: Advance,
) -> str | None:
    limit = _limit(file)
    expected = total if file.size is None else file.size
    received = start
    with open(part, "ab" if start else "wb") as target:
        while True:
            try:
                block = response.read1(_BLOCK)
            except TimeoutError:
                return f"nothing more came after {received:,} bytes"
            except (OSError, http.client.HTTPException) as error:
                return f"the connection broke after {received:,} bytes ({error})"
            if not block:
                break
            received += len(block)
            if received > limit:
                part.unlink()
                raise _MirrorError(f"it sends more than {limit:,} bytes")
            target.write(block)
            advance(len(block))
    if expected is None or received == expected:
        return None
    if received == total:
        return f"it has {received:,} bytes instead of {expected:,}"
    return f"the connection was cut after {received:,} of {expected:,} bytes"


def _limit(file: RemoteFile) -> int:
    if file.size is not None:
        return file.size
    return file.most or (_MOST_BYTES if file.about is None else int(1.1 * file.about))


class _BeyondTheEndError(Exception):
    """A mirror's word that its file ends before the byte asked for, and how many there are, if it tells."""

    def __init__(self, total: int | None) -> None:
        super().__init__(total)
        self.total = total


def _open(url: str, *, start: int, timeout: float) -> http.client.HTTPResponse:
    headers = {"User-Agent": "gated-domains", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    opener = OpenerDirector()  # not urlopen: that follows a mirror to ftp too
    for handler in (
        ProxyHandler(),
        HTTPHandler(),
        HTTPSHandler(),
        HTTPRedirectHandler(),
        HTTPErrorProcessor(),
        HTTPDefaultErrorHandler(),
        UnknownHandler(),
    ):
        opener.add_handler(handler)
    try:
        response = opener.open(Request(url, headers=headers), timeout=timeout)
    except HTTPError as error:
        with error:
            if error.code == 416 and start:
                raise _BeyondTheEndError(_total(error.headers.get("Content-Range"))) from error
            raise _MirrorError(f"it answers {error.code} {error.reason}") from error
    except TimeoutError as error:
        raise _MirrorError(f"it does not answer within {timeout:g} s") from error
    except (URLError, OSError, http.client.HTTPException, ValueError) as error:
        raise _MirrorError(f"it cannot be reached ({getattr(error, 'reason', None) or error})") from error
    assert isinstance(response, http.client.HTTPResponse)
    return response


def _extent(response: http.client.HTTPResponse) -> tuple[int, int | None]:
    """The byte at which an answer begins, and how many the whole file has, if it tells."""
    if response.status != 206:
        return 0, response.length
    span = response.headers.get("Content-Range", "")
    match = re.match(r"bytes (\d+)-", span)
    return int(match[1]) if match else -1, _total(span)


def _total(content_range: str | None) -> int | None:
    match = re.search(r"/(\d+)$", content_range or "")
    return int(match[1]) if match else None


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0
