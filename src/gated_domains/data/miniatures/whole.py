"""A folder that appears whole or not at all, with a mark of what it was made from."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gated_domains.data.errors import DataError


@contextmanager
def written_folder(folder: Path, *, mark: str, text: str) -> Iterator[Path | None]:
    """A new folder beside ``folder`` to fill; moved there at the end, or removed when anything went wrong.

    The file ``mark`` with this text is put into it. Where ``folder`` exists with the same mark there is nothing to do,
    and None is yielded; with anything else in it, it is refused.
    """
    if folder.is_dir() and _text(folder / mark) == text:
        yield None
        return
    _refuse(folder, mark=mark)
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}")
    draft.mkdir()
    try:
        yield draft
        (draft / mark).write_text(text, "utf-8")
        _refuse(folder, mark=mark)  # somebody else may have been faster
        os.replace(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _refuse(folder: Path, *, mark: str) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise DataError(f"{folder} is in the way; remove it, or choose another place")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    there = _text(folder / mark)
    what = f"holds another miniature ({there.strip()})" if there is not None else "exists and is not empty"
    raise DataError(f"{folder} {what}; nothing was written. Choose another place, or remove that folder first")


def _text(path: Path) -> str | None:
    return path.read_text("utf-8", "replace") if path.is_file() else None
