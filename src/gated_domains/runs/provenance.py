"""Where a run comes from: the rows that its model has seen, and the machine that it was made on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gated_domains
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, decoding, written_whole
from gated_domains.data.inputs import Rows
from gated_domains.data.splits import HoldOut, are_copies
from gated_domains.runs.storage import run_hash

SEEN = "seen.npz"
_BY_CHANCE = 0.5  # of the rows of a table, that may agree with others in all that is known of them


@dataclass(frozen=True, eq=False, kw_only=True)
class Provenance:
    """The rows that trained or selected a model, and the samples in them, by the fingerprint of the data they are of.

    There are several data where it started from a model of others. ``samples`` are digests, which tell the same sample
    in other data too: another fold, a part of them, a new version.
    """

    rows: Mapping[str, Rows]
    samples: Mapping[str, NDArray[np.uint64]]

    def write(self, folder: Path) -> None:
        """Put it beside the model."""
        with written_whole(folder / SEEN) as draft, open(draft, "wb") as file:
            kept: dict[str, NDArray[Any]] = {f"rows {of}": rows for of, rows in self.rows.items()}
            kept |= {f"samples {of}": samples for of, samples in self.samples.items()}
            np.savez_compressed(file, allow_pickle=False, **kept)

    @classmethod
    def read(cls, folder: Path) -> Provenance:
        """What a model in a run folder has seen; one that does not say so is refused."""
        path = folder / SEEN
        if not path.is_file():
            raise DataError(
                f"{folder} does not say which rows its model has seen ({SEEN} is not there), so nobody can tell "
                "whether it met those held out here; train it again"
            )
        with decoding(path), np.load(path, allow_pickle=False) as kept:
            data = [name.removeprefix("rows ") for name in kept.files if name.startswith("rows ")]
            return cls(rows={of: kept[f"rows {of}"] for of in data}, samples={of: kept[f"samples {of}"] for of in data})

    def among(self, dataset: DomainDataset, fingerprint: str, digests: NDArray[np.uint64], rows: Rows) -> Rows:
        """Which of these rows it has seen."""
        known = np.isin(rows, self.rows.get(fingerprint, ()))
        # Of the same data the rows tell: a publisher's division may have copies on both sides, for everybody alike.
        elsewhere = [samples for of, samples in self.samples.items() if of != fingerprint]
        if elsewhere:
            alike = np.isin(digests[rows], np.concatenate(elsewhere))
            # Two people of the same age and sex are not the same person; but half of a table is not there by chance.
            if are_copies(dataset, digests) or alike.mean() > _BY_CHANCE:
                known |= alike
        return rows[known]


def seen_by(
    split: HoldOut,
    fingerprint: str,
    digests: NDArray[np.uint64],
    *,
    before: Provenance | None = None,
    oracle: bool = False,
) -> Provenance:
    """What a training on this split sees, with what the backbone it starts from has seen ``before``.

    The ``oracle`` selects by the rows held out, and has seen them too.
    """
    rows = split.seen
    if oracle:
        rows = np.union1d(rows, split.test)
    earlier = before or Provenance(rows={}, samples={})
    if fingerprint in earlier.rows:
        rows = np.union1d(rows, earlier.rows[fingerprint])
    return Provenance(
        rows={**earlier.rows, fingerprint: rows}, samples={**earlier.samples, fingerprint: np.unique(digests[rows])}
    )


def split_hash(split: HoldOut) -> str:
    """A short text that stands for the rows that train, select and are scored."""
    parts = {"train": split.train, "validation": split.validation, "test": split.test}
    return run_hash({name: rows.tolist() for name, rows in parts.items()})


def refuse_leak(
    backbone: Path,
    seen: Provenance,
    *,
    dataset: DomainDataset,
    fingerprint: str,
    digests: NDArray[np.uint64],
    split: HoldOut,
    trained_on: Mapping[str, Any],
) -> None:
    """Refuse a backbone that has seen any of the rows held out here."""
    scored = np.concatenate([split.test, *split.also.values()])
    met = seen.among(dataset, fingerprint, digests, scored)
    if len(met):
        kept_out = trained_on.get("hold_out") or "nothing"
        raise DataError(
            f"the backbone {backbone} has seen {len(met):,} of the {len(scored):,} rows that are held out here "
            f"(it was trained on {trained_on.get('name', 'other data')} with {kept_out} held out, seed "
            f"{trained_on.get('seed')}): every score would be too good; take one trained with the same rows held out"
        )


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
