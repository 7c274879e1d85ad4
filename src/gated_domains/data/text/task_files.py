"""Task files: ``books.task.train`` and ``books.task.test``, a label, a tab and a text a line, one pair a domain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.archives import is_archive, member_names, read_members
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, naming
from gated_domains.data.labels import Reading, as_targets
from gated_domains.data.readers.cells import number
from gated_domains.data.text.forms import check_form, notes_on, seen_as
from gated_domains.data.text.inputs import Text

_NAME = re.compile(r"(?P<domain>[^/.][^/]*)\.task\.(?P<part>train|test)")
_READ = ("positive", "task", "form", "tokens", "tokenizer")


@dataclass(frozen=True, eq=False)
class Tasks:
    """What lies in task files. ``labels`` are as they are written; ``domains`` are indices into ``domain_names``."""

    texts: Text
    labels: NDArray[Any]
    domains: NDArray[np.int64]
    domain_names: tuple[str, ...]
    is_test: NDArray[np.bool_]
    notes: tuple[str, ...]


def holds_task_files(path: Path) -> bool:
    """Whether there are task files in a folder (or in one below it), or in an archive."""
    if path.is_dir():
        return bool(_in_folder(path))
    return is_archive(path) and any(_NAME.fullmatch(PurePosixPath(name).name) for name in member_names(path))


def read_task_files(path: Path, reading: Reading) -> DomainDataset:
    """A data set of the task files in a folder, or in an archive, of which nothing is unpacked to disk."""
    reading.refuse_all_but(*_READ, what="task files")
    check_form(reading)
    found = tasks_in(path)
    with naming(path):
        targets, class_names = as_targets(found.labels, positive=reading.positive, task=reading.task, what="label")
        tested = {found.domain_names[index] for index in np.unique(found.domains[found.is_test])}
        return DomainDataset(
            name=path.name,
            inputs=seen_as(found.texts, reading),
            targets=targets,
            class_names=class_names,
            classes_found=reading.positive is None,
            domains=found.domains,
            domain_names=found.domain_names,
            official_test=found.is_test if tested else None,
            scored_whole=frozenset(set(found.domain_names) - tested) if tested else frozenset(),
            notes=found.notes,
            reading=reading,
        )


def tasks_in(path: Path) -> Tasks:
    """All that lies in the task files; a line that is none is refused, with its file and number."""
    files = dict(_contents(path))
    if not files:
        raise DataError(f"{path} holds no files such as books.task.train")
    names = sorted({domain for domain, _ in files})
    gathered = _Gathered()
    with naming(path):
        for domain, part in sorted(files):
            gathered.add(f"{domain}.task.{part}", files.pop((domain, part)), names.index(domain), part == "test")
    if not gathered.texts:
        raise DataError(f"{path}: all task files are empty")
    texts = Text(gathered.texts)
    return Tasks(
        texts=texts,
        labels=_plain_labels(gathered.labels),
        domains=np.repeat(np.array(gathered.domains, np.int64), gathered.rows),
        domain_names=tuple(names),
        is_test=np.repeat(np.array(gathered.tests, np.bool_), gathered.rows),
        notes=(*gathered.notes(), *notes_on(texts)),
    )


@dataclass
class _Gathered:
    """The lines of all files so far."""

    texts: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    domains: list[int] = field(default_factory=list)
    tests: list[bool] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def add(self, name: str, content: bytes, domain: int, is_test: bool) -> None:
        before = len(self.texts)
        # Not by splitlines, which also cuts at letters that stand inside a text.
        for line, written in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
            if not written.strip():
                continue
            label, tab, text = self._decoded(written, f"{name}, line {line}").strip("\r\n").partition("\t")
            if not tab or not label.strip():
                wrong = "no tab" if not tab else "no label"
                raise DataError(
                    f"{name}, line {line}: {wrong} in {written[:40]!r}; a line must be a label, a tab and a text"
                )
            self.labels.append(label.strip())
            self.texts.append(text)
        self.rows.append(len(self.texts) - before)
        self.domains.append(domain)
        self.tests.append(is_test)

    def _decoded(self, written: bytes, where: str) -> str:
        try:
            return written.decode()
        except UnicodeDecodeError:
            self.foreign.append(where)
            # Windows-1252, as other files here are read, and its few bytes that mean nothing there as Latin-1.
            return written.decode("cp1252" if not set(written) & _NOT_IN_1252 else "latin-1")

    def notes(self) -> list[str]:
        if not self.foreign:
            return []
        return [f"lines that are not UTF-8 are read as Windows-1252: {len(self.foreign):,} (first {self.foreign[0]})"]


_NOT_IN_1252 = {0x81, 0x8D, 0x8F, 0x90, 0x9D}


def _contents(path: Path) -> Iterator[tuple[tuple[str, str], bytes]]:
    """Domain and part of every task file, with what is in it."""
    seen: dict[tuple[str, str], str] = {}
    for name, content in _files(path):
        found = _NAME.fullmatch(PurePosixPath(name).name)
        assert found is not None
        key = (found["domain"], found["part"])
        if key in seen:
            raise DataError(
                f"{path}: {seen[key]} and {name} are both called {'.task.'.join(key)}; give one another name"
            )
        seen[key] = name
        yield key, content


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        for file in _in_folder(path):
            yield str(file.relative_to(path)), file.read_bytes()
    else:
        yield from read_members(path, lambda name: _NAME.fullmatch(PurePosixPath(name).name) is not None)


def _in_folder(path: Path) -> list[Path]:
    """The task files of a folder, and of those right below it."""
    found = [file for pattern in ("*.task.*", "*/*.task.*") for file in path.glob(pattern)]
    return [file for file in found if _NAME.fullmatch(file.name) and file.is_file()]


def _plain_labels(written: list[str]) -> NDArray[Any]:
    """Labels as numbers where all of them are."""
    numbers = {label: number(label) for label in set(written)}
    if not all(np.isfinite(value) for value in numbers.values()):
        return np.array(written)
    values = np.array([numbers[label] for label in written])
    return values.astype(np.int64) if (values == np.round(values)).all() else values
