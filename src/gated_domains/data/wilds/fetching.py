"""The eight brought to where they are read from: fetched from whoever serves them, checked, and unpacked whole."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gated_domains.data.archives import is_archive, unpack
from gated_domains.data.catalogue import RemoteFile
from gated_domains.data.download import download, to_stderr
from gated_domains.data.errors import DataError, data_folder, written_whole
from gated_domains.data.wilds import places
from gated_domains.data.wilds.sets import PREFIX, WildsSet, wilds_set
from gated_domains.data.wilds.sources import MOLECULES, SCAFFOLDS, SOURCES, SUMS, Files, Listed

Say = Callable[[str], None]
_MOST_SUMS = 10**6
_PART = r"\.(?:part[-_.]?)?(?:\d{1,4}|[a-z]{2})$"  # how the names of parts of an archive end
_SWELLING = 6  # the unpacked data of the eight are at most some four times their archives


def fetch_wilds(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    offline: bool = False,
    timeout: float = 30.0,
    say: Say | None = None,
) -> Path:
    """Have ``wilds/NAME`` in ``<data dir>/wilds``, and return its folder. What is there already is not fetched.

    Archives that are fetched lie below ``<data dir>/originals/wilds/NAME`` until they are unpacked, and go then; one
    that was put there by hand is used, and stays. With ``offline`` nothing else is.
    """
    chosen, _ = wilds_set(name)
    say = say or to_stderr
    there = places.find(chosen, data_dir)
    if there is not None and not places.missing_files(there, places.required(chosen)):
        say(f"{PREFIX + chosen.name} is already there: {there}")
        return there
    if there is not None:
        raise DataError(
            f"{there} is there, but not whole ({', '.join(places.missing_files(there, places.required(chosen))[:3])} "
            "missing); move it away first: nothing is unpacked over it"
        )
    target = places.roots(data_dir)[0] / chosen.folder
    originals = data_folder(data_dir) / "originals" / places.ROOT / chosen.name
    bring = _Bringing(chosen, originals, target, offline=offline, timeout=timeout, say=say)
    if chosen.kind == "graphs":
        bring.molecules()
    else:
        bring.from_any()
    say(f"{PREFIX + chosen.name} is in {target}")
    return target


class _Bringing:
    """One data set on its way: where its archives lie, and where it goes."""

    def __init__(
        self, chosen: WildsSet, originals: Path, target: Path, *, offline: bool, timeout: float, say: Say
    ) -> None:
        self.chosen, self.originals, self.target = chosen, originals, target
        self.offline, self.timeout, self.say = offline, timeout, say

    def from_any(self) -> None:
        """From the archive that is there, else from the first source that has the data; else why none has."""
        by_hand = self.originals / f"{self.chosen.folder}.tar.gz"
        if by_hand.is_file():
            self._unpack(by_hand)
            return
        self._look_at_room()
        reasons = []
        for number, source in enumerate(SOURCES[self.chosen.name]):
            # Each in a folder of its own: what one host has begun to send, another cannot go on with.
            folder = self.originals / str(number)
            try:
                if isinstance(source, Listed):
                    self._listed(source, folder)
                else:
                    self._files(source, folder)
                shutil.rmtree(self.originals)
                return
            except DataError as error:
                reasons.append(str(error))
        raise DataError("\n".join([*reasons, self._by_hand(by_hand)]))

    def molecules(self) -> None:
        """OGB's archive and the scaffolds, which it keeps apart."""
        try:
            archive, scaffolds = (self._have(file, self.originals) for file in (MOLECULES, SCAFFOLDS))
        except DataError as error:
            raise DataError(f"{error}\n{self._by_hand(self.originals / MOLECULES.name)}") from error
        with self._draft() as draft:
            unpack(archive, draft / "all")
            inside = _holder(draft / "all", "raw/edge.csv.gz")
            shutil.copyfile(scaffolds, inside / "raw" / SCAFFOLDS.name)
            self._arrive(inside)

    def _listed(self, source: Listed, folder: Path) -> None:
        if self.offline:
            raise DataError(f"{source.address}: nothing is fetched offline")
        sums = folder / SUMS
        for earlier in (sums, folder / f"{SUMS}.sha256"):
            earlier.unlink(missing_ok=True)  # it may say something else today
        list_of_sums = RemoteFile(SUMS, (source.address + SUMS,), most=_MOST_SUMS)
        download(list_of_sums, folder, timeout=self.timeout, say=lambda line: None)  # what it says, an error repeats
        wanted = archives_in(sums.read_text("utf-8", "replace"), source, self.chosen)
        parts = [self._have(file, folder) for file in wanted]
        self._unpack_fetched(parts[0] if len(parts) == 1 else _joined(parts))

    def _files(self, source: Files, folder: Path) -> None:
        found = [self._have(file, folder) for file in source.files]
        if not source.to:
            self._unpack_fetched(found[0])
            return
        with self._draft() as draft:
            for path, place in zip(found, source.to, strict=True):
                (draft / place).parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, draft / place)
            self._arrive(draft)

    def _look_at_room(self) -> None:
        self.originals.mkdir(parents=True, exist_ok=True)
        free, needed = shutil.disk_usage(self.originals).free, 2 * self.chosen.bytes
        if free < needed and not self.offline:
            self.say(
                f"{self.originals}: {free / 1e9:,.1f} GB are free, and the archive and what is in it take "
                f"{needed / 1e9:,.1f} GB or more"
            )

    def _have(self, file: RemoteFile, folder: Path) -> Path:
        return download(file, folder, offline=self.offline, timeout=self.timeout, say=self.say)

    def _unpack_fetched(self, archive: Path) -> None:
        try:
            self._unpack(archive)
        except DataError:
            archive.unlink()  # else the next call would take it for the right one,
            archive.with_name(f"{archive.name}.sha256").unlink(missing_ok=True)  # and no other
            raise

    def _unpack(self, archive: Path) -> None:
        """Into the data set's folder, whether the archive holds that folder or what lies in it."""
        with self._draft() as draft:
            unpack(archive, draft / "all", most_bytes=_SWELLING * max(archive.stat().st_size, 10**9))
            self._arrive(_holder(draft / "all", self.chosen.files[0]))

    def _arrive(self, folder: Path) -> None:
        missing = places.missing_files(folder, self.chosen.files)
        if missing:
            raise DataError(f"what was fetched has no {missing[0]}: it is not {self.chosen.title} as it is known here")
        version = folder / self.chosen.version
        if not version.is_file():  # not in every copy; the package asks for it
            version.write_text(f"{self.chosen.title}, fetched by gated-domains\n", "utf-8")
        os.replace(folder, self.target)

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        draft = self.target.with_name(f".{self.target.name}.{os.getpid()}-{secrets.token_hex(4)}")
        draft.mkdir()
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _by_hand(self, archive: Path) -> str:
        return (
            f"{self.chosen.title} could not be had. The official host of WILDS has been down for months (wilds issues "
            f"171 to 175). Try again later; or put an archive from elsewhere at {archive} and give this command again; "
            f"or unpack it yourself, so that {self.target / self.chosen.files[0]} is there"
        )


def archives_in(sums: str, source: Listed, chosen: WildsSet) -> list[RemoteFile]:
    """The labelled archive of this version that a ``SHA256SUMS`` names, in one file or in parts, in order."""
    found = {}
    for line in sums.splitlines():
        match = re.fullmatch(r"([0-9a-fA-F]{64})\s+\*?(?:\./)?(\S.*?)\s*", line)
        if match:
            found[match[2]] = match[1]
    ours = {path: digest for path, digest in found.items() if _is_ours(path, chosen)}
    if not ours:
        raise DataError(f"{source.address}{SUMS} names no archive of {chosen.folder}; it names {sorted(found)[:6]}")
    stems = {_whole(path) for path in ours}
    if len(stems) > 1:
        raise DataError(f"{source.address}{SUMS} names several archives of {chosen.folder}: {sorted(stems)[:6]}")
    return [
        RemoteFile(Path(path).name, (source.address + path,), sha256=ours[path], most=2 * chosen.bytes)
        for path in sorted(ours)
    ]


def _is_ours(path: str, chosen: WildsSet) -> bool:
    """Whether a file is the archive with labels, or a part of it; there are unlabelled ones and older versions too."""
    if not is_archive(_whole(path)) or "unlabeled" in path.lower() or ".." in path or path.startswith("/"):
        return False
    version = chosen.folder.rpartition("_v")[2]
    return chosen.folder in path or re.search(rf"v?{re.escape(version)}(?!\d)", path) is not None


def _whole(path: str) -> str:
    """The name of the archive that this is, or is a part of."""
    return path if is_archive(path) else re.sub(_PART, "", path)


def _joined(parts: list[Path]) -> Path:
    """Parts of an archive as one file; they go once that is whole."""
    whole = parts[0].with_name(_whole(parts[0].name))
    with written_whole(whole) as draft, open(draft, "wb") as target:
        for part in parts:
            with open(part, "rb") as content:
                shutil.copyfileobj(content, target, 1 << 22)
    for part in parts:
        part.unlink()
    return whole


def _holder(folder: Path, wanted: str) -> Path:
    """The folder in which a file lies: this one, or the only one below that has it."""
    below = [folder, *(entry for entry in folder.iterdir() if entry.is_dir())]
    return next((place for place in below if (place / wanted).is_file()), folder)
