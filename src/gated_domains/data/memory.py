"""How much memory there is to be had."""

from __future__ import annotations

import os
from pathlib import Path

_MEMINFO, _CONTAINER = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
_UNKNOWN = 4 * 2**30
# The limit, what is used, and what of that is files kept in memory only until somebody needs the room.
_LIMITS = (
    ("memory.max", "memory.current", "memory.stat", ("active_file", "inactive_file")),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        ("total_active_file", "total_inactive_file"),
    ),
)


def available_bytes() -> int:
    """Memory to be had without pushing others out, as far as the system tells; in a container, what that allows."""
    return min([_of_machine(), *(left for limit in _LIMITS if (left := _of_container(*limit)) is not None)])


def _of_machine() -> int:
    if _MEMINFO.exists():
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    if hasattr(os, "sysconf"):  # not Linux: ask more coarsely
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return _UNKNOWN


def _of_container(limit: str, used: str, stat: str, files: tuple[str, ...]) -> int | None:
    """What a container allows beyond what it uses; None where there is no container, or no limit ("max")."""
    try:
        allowed = (_CONTAINER / limit).read_text().strip()
        taken = int((_CONTAINER / used).read_text())
        entries = dict(line.split() for line in (_CONTAINER / stat).read_text().splitlines())
    except (OSError, ValueError):
        return None
    in_files = sum(int(entries.get(name, 0)) for name in files)
    return max(0, int(allowed) - taken + in_files) if allowed.isdigit() else None
