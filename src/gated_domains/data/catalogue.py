"""What can be fetched: files, where they are served, and how to know the right one.

Every digest below is the one that public sources state for the file. SHA-256 decides where it is known. An MD5, which
does not stop somebody who means harm, decides where no SHA-256 is published; where nothing is, what arrives is checked
by the reader alone, and its SHA-256 is kept beside it for the next time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RemoteFile:
    """A file, the addresses it is served at (the next is tried when one fails), its bytes and its digest, if known.

    ``about`` are the bytes of one whose size is known but roughly, by a tenth; ``most`` those that are ever taken.
    """

    name: str
    mirrors: tuple[str, ...]
    size: int | None = None
    sha256: str | None = None
    md5: str | None = None
    about: int | None = None
    most: int | None = None


_MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
_USPS = (
    "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/",
    "https://media.githubusercontent.com/media/Lallapallooza/cycle_adv_ot/8842cfb7ec5b4ec119f2f589f6501095e472b044/data/",
)
_USPS_TEXT = (
    "https://hastie.su.domains/ElemStatLearn/datasets/",
    "https://web.stanford.edu/~hastie/ElemStatLearn/datasets/",
)
_SVHN = ("http://ufldl.stanford.edu/housenumbers/", "https://ufldl.stanford.edu/housenumbers/")
_SYN = (
    "https://media.githubusercontent.com/media/domainadaptation/datasets/91ff02225a73db330883843bc41ee3aca59a19d9/synth/",
    "https://github.com/domainadaptation/datasets/raw/master/synth/",
)


def _file(
    name: str, folders: tuple[str, ...], size: int | None = None, sha256: str | None = None, *, md5: str | None = None
) -> RemoteFile:
    return RemoteFile(name, tuple(folder + name for folder in folders), size, sha256, md5)


# A part of digits5 -> the sets of files that make it up. The first set that can be had is enough.
DIGITS5: Mapping[str, tuple[tuple[RemoteFile, ...], ...]] = {
    "mnist": (
        (
            _file(
                "train-images-idx3-ubyte.gz",
                _MNIST,
                9_912_422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            _file(
                "train-labels-idx1-ubyte.gz",
                _MNIST,
                28_881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            _file(
                "t10k-images-idx3-ubyte.gz",
                _MNIST,
                1_648_877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            _file(
                "t10k-labels-idx1-ubyte.gz",
                _MNIST,
                4_542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
    ),
    "mnistm": (
        (
            RemoteFile(
                "MNIST-M.zip",
                (
                    "https://media.githubusercontent.com/media/mashaan14/MNIST-M/ff293ab6260c2e138e9c3b971923da47ad06d7e5/MNIST-M.zip",
                    "https://github.com/mashaan14/MNIST-M/raw/main/MNIST-M.zip",
                ),
                146_914_983,
                "bd899e2c286f1267955a73f6a374f31fc98764380bb8928dbfee37d8ab0393d6",
            ),
        ),
        (
            RemoteFile(
                "mnist_m.tar.gz",
                (
                    "https://cornell.box.com/shared/static/jado7quprg6hzzdubvwzh9umr75damwi",
                    "https://drive.google.com/uc?export=download&confirm=t&id=0B_tExHiYS-0veklUZHFYT19KYjg",
                ),
                md5="859df31c91afe82e80e5012ba928f279",
            ),
        ),
    ),
    "svhn": (
        (
            _file(
                "train_32x32.mat",
                _SVHN,
                182_040_794,
                "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            ),
            _file(
                "test_32x32.mat",
                _SVHN,
                64_275_384,
                "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            ),
        ),
    ),
    "usps": (
        (
            _file("usps.bz2", _USPS, 6_579_383, "3771e9dd6ba685185f89867b6e249233dd74652389f263963b3b741e994b034f"),
            _file("usps.t.bz2", _USPS, 1_831_726, "a9c0164e797d60142a50604917f0baa604f326e9a689698763793fa5d12ffc4e"),
        ),
        (_file("zip.train.gz", _USPS_TEXT), _file("zip.test.gz", _USPS_TEXT)),
    ),
    "syn": (
        (
            _file(
                "synth_train_32x32.mat",
                _SYN,
                895_578_032,
                "e0e0924ecd0c0b5a55ed6485aaa7d39937af982397717b89a3d91777aca9433c",
            ),
            _file(
                "synth_test_32x32.mat",
                _SYN,
                17_851_156,
                "6285fe9a1c6f27b379a47263907a37899b59ce86948fd343a5b904435cde5bcc",
            ),
        ),
    ),
}
