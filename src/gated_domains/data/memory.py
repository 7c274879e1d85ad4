"""How much memory there is to be had."""

from __future__ import annotations

import os
from pathlib import Path

_MEMINFO, _CONTAINER = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Memory to be had without pushing others out, as far as the system tells; in a container, what that allows."""
    machine = _of_machine()
    allowed, used = (_number(_CONTAINER / name) for name in ("memory.max", "memory.current"))
    return machine if allowed is None or used is None else max(0, min(machine, allowed - used))


def _of_machine() -> int:
    if _MEMINFO.exists():
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2  # not Linux: ask more coarsely


def _number(path: Path) -> int | None:
    """What a container's limit says; None where there is no container, or no limit ("max")."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
