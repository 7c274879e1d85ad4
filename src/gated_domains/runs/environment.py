"""Where a run was made: versions, machine, command. No environment variables, and nobody's home folder."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import gated_domains


def environment(device: str) -> dict[str, Any]:
    """What a run folder keeps of its surroundings, for a training on a device (``"cpu"``, ``"cuda:0"``)."""
    return {
        "gated_domains": gated_domains.__version__,
        "revision": _revision(),
        "python": platform.python_version(),
        "torch": _version("torch"),
        "numpy": _version("numpy"),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": _cores(),
        "device": device,
        "gpu": _gpu(device),
        "command": _command(sys.argv),
    }


def machine(device: str = "cpu") -> str:
    """This machine in one line, for captions: ``2 CPU cores (AMD EPYC), torch 2.13.0``."""
    return machine_of({"gpu": _gpu(device), "cores": _cores(), "cpu": _cpu(), "torch": _version("torch")})


def first_process() -> bool:
    """Whether this is the first of several processes, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def machine_of(kept: Mapping[str, Any]) -> str:
    """The same of the machine that a run was made on, from what its folder keeps of it."""
    cores = f"{kept['cores']} CPU core{'' if kept['cores'] == 1 else 's'} ({kept['cpu']})"
    return f"{kept['gpu'] or cores}, torch {str(kept['torch']).split('+')[0]}"


def _command(arguments: list[str]) -> list[str]:
    """The command line without where the program lies, whose home it is, or a password in an address."""
    if not arguments:
        return []
    home = str(Path.home())
    said = [re.sub(r"//[^/@\s]+@", "//", argument) for argument in arguments[1:]]
    at_home = re.compile(rf"(?<![\w./\\-]){re.escape(home)}(?=/|\\|$)") if len(home) > 1 else None
    return [Path(arguments[0]).name, *(at_home.sub("~", word) if at_home else word for word in said)]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _gpu(device: str) -> str | None:
    if not device.startswith("cuda"):
        return None
    import torch

    return torch.cuda.get_device_name(device) if torch.cuda.is_available() else None


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _cpu() -> str:
    """The processor's name, as far as the system tells."""
    listed = Path("/proc/cpuinfo")
    if listed.exists():
        names = re.findall(r"^model name\s*:\s*(.+)$", listed.read_text("utf-8", "replace"), re.MULTILINE)
        if names:
            return " ".join(names[0].split())
    if sys.platform == "darwin" and (name := _said(["sysctl", "-n", "machdep.cpu.brand_string"])):
        return name
    return platform.processor() or platform.machine() or "unknown"


@cache
def _revision() -> str | None:
    """The commit that the package runs from, with a ``+`` where files were changed; None when it was installed."""
    root = Path(gated_domains.__file__).resolve().parents[2]
    if not ((root / ".git").exists() and (root / "pyproject.toml").exists()):
        return None
    revision = _said(["git", "-C", str(root), "rev-parse", "HEAD"])
    changed = _said(["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"])
    return f"{revision}+" if revision and changed else revision or None


def _said(command: list[str]) -> str:
    """What a program prints; nothing when it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError, ValueError):
        return ""
    return done.stdout.strip()
