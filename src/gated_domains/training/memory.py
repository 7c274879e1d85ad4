"""The most memory that a training took: of its GPU, else of its process."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_FORGET_PEAK = "5"  # what Linux takes for: let the peak of resident memory begin anew


class PeakMemory:
    """The peak from now on, in bytes: of what torch takes on a GPU, on a CPU of what the process holds in memory.

    Where the peak of a process cannot begin anew, what it reached before hides all that stays below: it is then known
    only once it has risen.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._hidden_below = 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        elif not _forgotten():
            self._hidden_below = _resident_peak() or 0

    def bytes(self) -> int | None:
        """The peak so far; None where it cannot be told."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        peak = _resident_peak()
        return None if peak is None or peak <= self._hidden_below else peak


def _forgotten() -> bool:
    """Let the peak of this process begin anew; False where the system has no such thing, or does not allow it."""
    try:
        _CLEAR.write_text(_FORGET_PEAK)
    except OSError:
        return False
    return True


def _resident_peak() -> int | None:
    """The most bytes that this process had in memory; None where nobody counts them."""
    try:
        lines = _STATUS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return _peak_of_usage()
    found = next((line.split() for line in lines if line.startswith("VmHWM:")), None)
    return _peak_of_usage() if found is None else int(found[1]) * 1024


def _peak_of_usage() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
