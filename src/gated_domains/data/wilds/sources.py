"""Where the eight are served, and how to know the right file.

- The official host, CodaLab, packs an archive when it is asked for one: its size is known roughly, its digest not at
  all. It has been down, or has served an expired certificate, since the middle of 2025 (wilds issues 171 to 175).
- ``pangwei/wilds-*`` on Hugging Face are copies by the first author of WILDS, each with a file ``SHA256SUMS`` that
  names its archives and their digests (amazon's and rxrx1's cards were read; the others go by
  the same pattern).
- iWildCam: ``emmilly/iwildcam-wilds-v2`` and ``FARBench/iwildcam-wilds-v2`` there hold the archive under its own name;
  the card of the first states its size and SHA-256.
- CivilComments is one CSV file, which ``shlomihod/civil-comments-wilds`` there holds; no digest of it is stated.
- The molecules come from OGB, which states no digest.

Other copies in other forms (Parquet, web datasets of the test part alone) are not listed: they are not the same files.
"""

from __future__ import annotations

from dataclasses import dataclass

from gated_domains.data.catalogue import RemoteFile
from gated_domains.data.wilds.sets import WILDS

_HUB = "https://huggingface.co/datasets/"
_CODALAB = "https://worksheets.codalab.org/rest/bundles/{}/contents/blob/"
_BUNDLES = {
    "camelyon17": "0xe45e15f39fb54e9d9e919556af67aabe",
    "fmow": "0xaec91eb7c9d548ebb15e1b5e60f966ab",
    "amazon": "0xe3ed909786d34ee79d430d065582aa29",
    "iwildcam": "0x6313da2b204647e79a14b468131fcd64",
    "rxrx1": "0x6b7a05a3056a434498f0bb1252eb8440",
    "civilcomments": "0x8cd3de0634154aeaad2ee6eb96723c6e",
    "poverty": "0xfc0aa86ad9af4eb08c42dfc40eacf094",
}
SUMS = "SHA256SUMS"


@dataclass(frozen=True)
class Listed:
    """A folder on the net with a file ``SHA256SUMS``, which tells what else lies in it."""

    address: str


@dataclass(frozen=True)
class Files:
    """Files to fetch: an archive, or the files themselves, with the place each belongs to below the folder."""

    files: tuple[RemoteFile, ...]
    to: tuple[str, ...] = ()  # empty: an archive of everything


Source = Listed | Files


def _archive(name: str) -> str:
    return f"{WILDS[name].folder}.tar.gz"


def _official(name: str) -> Files:
    address = _CODALAB.format(_BUNDLES[name])
    return Files((RemoteFile(_archive(name), (address,), about=WILDS[name].bytes),))


_IWILDCAM = Files(
    (
        RemoteFile(
            _archive("iwildcam"),
            tuple(
                f"{_HUB}{owner}/iwildcam-wilds-v2/resolve/main/{_archive('iwildcam')}"
                for owner in ("emmilly", "FARBench")
            ),
            size=11_957_415_473,
            sha256="05c872f46eee44315f79bc90f4098c69ae3799a2b95116db02292ea1b4e370d2",
        ),
    )
)
_CIVILCOMMENTS = Files(
    (
        RemoteFile(
            "all_data_with_identities.csv",
            (
                _HUB + "shlomihod/civil-comments-wilds/resolve/3fbfeca80bad0f3aec37e72fa07eff222b6e752f/"
                "all_data_with_identities.csv",
            ),
            about=273_000_000,
        ),
    ),
    to=("all_data_with_identities.csv",),
)
_OGB = "snap.stanford.edu/ogb/data/"
MOLECULES = RemoteFile(
    "pcba.zip", tuple(f"{scheme}://{_OGB}graphproppred/csv_mol_download/pcba.zip" for scheme in ("https", "http"))
)
SCAFFOLDS = RemoteFile(
    "scaffold_group.npy",
    tuple(f"{scheme}://{_OGB}misc/ogbg_molpcba/scaffold_group.npy" for scheme in ("https", "http")),
)

# Those that can be checked come first.
SOURCES: dict[str, tuple[Source, ...]] = {
    name: (
        *((_IWILDCAM,) if name == "iwildcam" else ()),
        Listed(f"{_HUB}pangwei/wilds-{name}/resolve/main/"),
        *((_CIVILCOMMENTS,) if name == "civilcomments" else ()),
        _official(name),
    )
    for name in _BUNDLES
}
