"""The eight, in a table: where each lies, what it holds, and how WILDS divides and scores it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gated_domains.data.errors import DataError, did_you_mean
from gated_domains.data.published import Statistic

PREFIX = "wilds/"
FOLDS = ("A", "B", "C", "D", "E")
"""PovertyMap's five divisions into countries; ``wilds/poverty:B`` is the second, ``wilds/poverty`` the first."""

Kind = Literal["images", "text", "bands", "graphs"]


@dataclass(frozen=True, kw_only=True)
class WildsSet:
    """One of the eight.

    ``folder`` is where the ``wilds`` package (or OGB) looks below its root, ``version`` the file that says the folder
    is whole, ``files`` what must lie in it besides the samples. ``domain`` are the metadata fields that WILDS groups
    training rows by, ``groups`` those it scores by. ``rows`` are the published sizes of the parts (of fold A),
    ``bytes`` those of the archive, roughly. ``image_size`` and ``tokens`` are what WILDS feeds its models.
    """

    name: str
    title: str
    what: str
    folder: str
    version: str
    kind: Kind
    files: tuple[str, ...]
    domain: tuple[str, ...]
    groups: tuple[str, ...]
    metric: str
    statistic: Statistic
    runs: int
    rows: Mapping[str, int]
    bytes: int
    image_size: int | None = None
    tokens: int | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """The fields of ``Reading`` that mean something here."""
        return {
            "images": ("image_size",),
            "bands": ("image_size",),
            "text": ("form", "tokens", "tokenizer"),
            "graphs": (),
        }[self.kind]


_ALL = (
    WildsSet(
        name="camelyon17",
        title="Camelyon17",
        what="tumour or not, from patches of tissue; domains: hospitals",
        folder="camelyon17_v1.0",
        version="RELEASE_v1.0.txt",
        kind="images",
        files=("metadata.csv",),
        domain=("hospital",),
        groups=("slide",),
        metric="accuracy",
        statistic="overall",
        runs=10,
        rows={"train": 302_436, "id_val": 33_560, "val": 34_904, "test": 85_054},
        bytes=10_658_709_504,
        image_size=96,
    ),
    WildsSet(
        name="fmow",
        title="FMoW",
        what="land use from satellite images; domains: years; the worst region counts",
        folder="fmow_v1.1",
        version="RELEASE_v1.1.txt",
        kind="images",
        files=("rgb_metadata.csv", "country_code_mapping.csv"),
        domain=("year",),
        groups=("region",),
        metric="accuracy",
        statistic="worst_group",
        runs=3,
        rows={"train": 76_863, "id_val": 11_483, "id_test": 11_327, "val": 19_915, "test": 22_108},
        bytes=53_893_324_800,
        image_size=224,
    ),
    WildsSet(
        name="amazon",
        title="Amazon",
        what="stars of reviews; domains: reviewers; their 10th percentile counts",
        folder="amazon_v2.1",
        version="RELEASE_v2.1.txt",
        kind="text",
        files=("reviews.csv", "splits/user.csv"),
        domain=("user",),
        groups=("user",),
        metric="accuracy",
        statistic="percentile_10",
        runs=3,
        rows={"train": 245_502, "id_val": 46_950, "id_test": 46_950, "val": 100_050, "test": 100_050},
        bytes=1_989_805_589,
        tokens=512,
    ),
    WildsSet(
        name="iwildcam",
        title="iWildCam",
        what="animals in pictures of camera traps; domains: cameras",
        folder="iwildcam_v2.0",
        version="RELEASE_v2.0.txt",
        kind="images",
        files=("metadata.csv",),
        domain=("location",),
        groups=("location",),
        metric="f1",
        statistic="overall",
        runs=3,
        rows={"train": 129_809, "id_val": 7_314, "id_test": 8_154, "val": 14_961, "test": 42_791},
        bytes=11_957_420_032,
        image_size=448,
    ),
    WildsSet(
        name="rxrx1",
        title="RxRx1",
        what="genetic treatments from images of cells; domains: experiments",
        folder="rxrx1_v1.0",
        version="RELEASE_v1.0.txt",
        kind="images",
        files=("metadata.csv",),
        domain=("experiment",),
        groups=("cell_type",),
        metric="accuracy",
        statistic="overall",
        runs=3,
        rows={"train": 40_612, "id_test": 40_612, "val": 9_854, "test": 34_432},
        bytes=7_413_123_845,
        image_size=256,
    ),
    WildsSet(
        name="ogb-molpcba",
        title="OGB-MolPCBA",
        what="128 assays of molecules, most unknown; domains: scaffolds",
        folder="ogbg_molpcba",
        version="RELEASE_v1.txt",
        kind="graphs",
        files=(
            *(f"raw/{name}.csv.gz" for name in ("num-node-list", "num-edge-list", "node-feat", "edge", "edge-feat")),
            "raw/graph-label.csv.gz",
            "raw/scaffold_group.npy",
            *(f"split/scaffold/{part}.csv.gz" for part in ("train", "valid", "test")),
        ),
        domain=("scaffold",),
        groups=(),
        metric="mean_average_precision",
        statistic="overall",
        runs=3,
        rows={"train": 350_343, "val": 43_793, "test": 43_793},
        bytes=43_000_000,
    ),
    WildsSet(
        name="civilcomments",
        title="CivilComments",
        what="toxic comments; the worst of 16 groups by identity and label counts",
        folder="civilcomments_v1.0",
        version="RELEASE_v1.0.txt",
        kind="text",
        files=("all_data_with_identities.csv",),
        domain=("black", "y"),
        groups=("male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white"),
        metric="accuracy",
        statistic="worst_group",
        runs=5,
        rows={"train": 269_038, "val": 45_180, "test": 133_782},
        bytes=90_644_480,
        tokens=300,
    ),
    WildsSet(
        name="poverty",
        title="PovertyMap",
        what="wealth from 8-band satellite images; domains: countries; folds :A to :E",
        folder="poverty_v1.1",
        version="RELEASE_v1.1.txt",
        kind="bands",
        files=("dhs_metadata.csv",),
        domain=("country",),
        groups=("urban",),
        metric="pearson",
        statistic="worst_group",
        runs=1,  # of each of five folds
        rows={"train": 9_797, "id_val": 1_000, "id_test": 1_000, "val": 3_909, "test": 3_963},
        bytes=13_091_823_616,
        image_size=224,
    ),
)
WILDS: Mapping[str, WildsSet] = {one.name: one for one in _ALL}


def is_wilds(what: object) -> bool:
    """Whether this is the name of one of the eight: ``wilds/fmow``, ``wilds/poverty:B``."""
    return isinstance(what, str) and what in names()


def names() -> tuple[str, ...]:
    """All names that data go by: the eight, and the folds of the one that has some."""
    return (*(PREFIX + name for name in WILDS), *(f"{PREFIX}poverty:{fold}" for fold in FOLDS))


def wilds_set(name: str) -> tuple[WildsSet, str | None]:
    """The data set of a name, with or without ``wilds/``, and its fold where it has folds."""
    bare, _, fold = name.removeprefix(PREFIX).partition(":")
    if PREFIX + bare + (f":{fold}" if fold else "") not in names():
        raise DataError(f"there is no WILDS data set {name!r}{did_you_mean(PREFIX + bare, names())}")
    return WILDS[bare], (fold or FOLDS[0]) if bare == "poverty" else None
