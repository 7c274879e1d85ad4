"""What a trained model has seen: no backbone may have met the rows that another run holds out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, decoding, written_whole
from gated_domains.data.inputs import Rows
from gated_domains.data.splits import HoldOut, are_copies
from gated_domains.runs.json_files import run_hash

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
