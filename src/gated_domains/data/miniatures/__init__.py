"""Miniatures of the eight WILDS benchmarks: made-up data in the layout and schema that the ``wilds`` package reads.

Each has a signal that a small network learns within a minute, and a shift between splits of the kind of the original:
the whole road from files to scores can be walked without the real data. No number measured on them means anything.
"""

from __future__ import annotations

import os
from pathlib import Path

from gated_domains.data.errors import DataError, did_you_mean, expanded
from gated_domains.data.miniatures import (
    amazon,
    camelyon17,
    civilcomments,
    fmow,
    iwildcam,
    molpcba,
    poverty,
    rxrx1,
)
from gated_domains.data.miniatures.miniature import Miniature
from gated_domains.data.miniatures.whole import written_folder

MINIATURES: dict[str, Miniature] = {
    "amazon": amazon.MINIATURE,
    "camelyon17": camelyon17.MINIATURE,
    "civilcomments": civilcomments.MINIATURE,
    "fmow": fmow.MINIATURE,
    "iwildcam": iwildcam.MINIATURE,
    "ogb-molpcba": molpcba.MINIATURE,
    "poverty": poverty.MINIATURE,
    "rxrx1": rxrx1.MINIATURE,
}
MARK = "MINIATURE.txt"  # in the folder of each, so that nobody takes one for the real data
_ALSO = {"molpcba": "ogb-molpcba", "ogbg-molpcba": "ogb-molpcba"}


def write_miniature(
    name: str,
    destination: str | os.PathLike[str],
    *,
    seed: int = 0,
    rows: int | None = None,
    side: int | None = None,
    smiles: str | os.PathLike[str] | None = None,
) -> Path:
    """Write ``wilds/NAME`` (or plain ``NAME``) into a new folder of ``destination``; return that folder.

    - ``rows``: about how many, those of all splits together
    - ``side``: pixels of a picture, for a faster first try; the original's if left out (but 64 for poverty, whose class
      needs thousands of rows)
    - ``smiles``: a CSV file with a SMILES column for the molecules of ogb-molpcba; a built-in list if left out

    The same arguments give the same bytes. What is there already is left as it is when it was made by the same
    arguments, and refused otherwise.
    """
    plain = name.removeprefix("wilds/")
    plain = _ALSO.get(plain, plain)
    if plain not in MINIATURES:
        raise DataError(f"there is no miniature of {name!r}{did_you_mean(plain, MINIATURES)}")
    made = MINIATURES[plain]
    path = None if smiles is None else expanded(smiles)
    order = made.order(plain, seed=seed, rows=rows, side=side, smiles=path)
    about = {"seed": order.seed, "rows": order.rows, "side": order.side, "smiles": path.name if path else None}
    chosen = ", ".join(f"{key} {value}" for key, value in about.items() if value is not None)
    mark = f"A miniature of wilds/{plain}, made up by gated-domains ({chosen}). Not the real data.\n"
    folder = expanded(destination) / made.folder
    with written_folder(folder, mark=MARK, text=mark) as draft:
        if draft is not None:
            made.write(draft, order)
            (draft / made.release).write_text(mark, "utf-8")
    return folder


def is_miniature(folder: str | os.PathLike[str]) -> bool:
    """Whether this folder of a data set was written by ``write_miniature``."""
    return (Path(folder) / MARK).is_file()
