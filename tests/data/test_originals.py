"""The public originals of Digits-5: tiny files in every form, read back equal, prepared, and refused when wrong."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import os
import struct
import subprocess
import sys
import tarfile
import zipfile

import numpy as np
import pytest
import scipy.io
from PIL import Image

from gated_domains.data import originals
from gated_domains.data.archives import UnsafeArchiveError
from gated_domains.data.digits5 import digits5
from gated_domains.data.errors import DataError
from gated_domains.data.originals import prepare, prepare_digits5

RNG = np.random.default_rng(0)
LABELS = (np.arange(30, dtype=np.uint8) % 10, np.arange(20, dtype=np.uint8)[::-1] % 10)


def images(*shape):
    """Images for training and test."""
    return tuple(RNG.integers(256, size=(len(labels), *shape), dtype=np.uint8) for labels in LABELS)


def parts(pictures, labels=LABELS):
    return pictures[0], labels[0], pictures[1], labels[1]


def one_hot(labels):
    return np.eye(10)[labels]


def ten_for_zero(labels):
    return np.where(labels == 0, 10, labels)[:, None].astype(np.uint8)


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_mnist(folder, pictures, *, zipped=True, dotted=False):
    for split, images, labels in zip(("train", "t10k"), pictures, LABELS, strict=True):
        for name, array in ((f"{split}-images-idx3-ubyte", images), (f"{split}-labels-idx1-ubyte", labels)):
            name = name.replace("-idx", ".idx") if dotted else name
            path = folder / f"{name}{'.gz' if zipped else ''}"
            path.write_bytes(gzip.compress(idx(array), mtime=0) if zipped else idx(array))
    return tuple(
        folder / f"{name}{'.gz' if zipped else ''}"
        for name in (
            "train-images-idx3-ubyte",
            "train-labels-idx1-ubyte",
            "t10k-images-idx3-ubyte",
            "t10k-labels-idx1-ubyte",
        )
    )


def libsvm(pictures, labels):
    """Lines as LIBSVM writes them: labels from 1, values -1 to 1, zeros left out."""
    values = pictures.reshape(len(labels), -1) / 127.5 - 1
    rows = [" ".join(f"{k + 1}:{value:.6f}" for k, value in enumerate(row) if value != 0) for row in values]
    return "".join(f"{label + 1} {row} \n" for label, row in zip(labels, rows, strict=True)).encode()


def text(pictures, labels):
    values = pictures.reshape(len(labels), -1) / 127.5 - 1
    rows = [" ".join(f"{value:.4f}" for value in row) for row in values]
    return "".join(f"{label}.0000 {row} \n" for label, row in zip(labels, rows, strict=True)).encode()


def write_usps(folder, pictures):
    paths = folder / "usps.bz2", folder / "usps.t.bz2"
    for path, images, labels in zip(paths, pictures, LABELS, strict=True):
        path.write_bytes(bz2.compress(libsvm(images, labels)))
    return paths


def write_svhn(folder, pictures, *, prefix=""):
    paths = folder / f"{prefix}train_32x32.mat", folder / f"{prefix}test_32x32.mat"
    for path, images, labels in zip(paths, pictures, LABELS, strict=True):
        scipy.io.savemat(path, {"X": images.transpose(1, 2, 3, 0), "y": ten_for_zero(labels)}, do_compression=True)
    return paths


def write_mnistm(folder, pictures):
    for split, images, labels in zip(("train", "test"), pictures, LABELS, strict=True):
        (folder / f"mnist_m_{split}").mkdir(parents=True)
        lines = [f"{row:08}.png {label}" for row, label in enumerate(labels)]
        (folder / f"mnist_m_{split}_labels.txt").write_text("\n".join(lines) + "\n")
        for row, image in enumerate(images):
            Image.fromarray(image).save(folder / f"mnist_m_{split}" / f"{row:08}.png")
    return folder / "mnist_m_train_labels.txt", folder / "mnist_m_test_labels.txt"


def write_class_folders(folder, pictures):
    for split, images, labels in zip(("training", "testing"), pictures, LABELS, strict=True):
        for row, (image, label) in enumerate(zip(images, labels, strict=True)):
            (folder / split / str(label)).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(folder / split / str(label) / f"{row:08}.png")
    return folder / "training", folder / "testing"


def write_originals(folder):
    """All but SYN, each in its first form, and what is in them."""
    folder.mkdir(exist_ok=True)
    pictures = {
        "mnist": images(28, 28),
        "mnistm": images(32, 32, 3),
        "svhn": images(32, 32, 3),
        "usps": images(16, 16),
    }
    write_mnist(folder, pictures["mnist"])
    write_mnistm(folder, pictures["mnistm"])
    write_svhn(folder, pictures["svhn"])
    write_usps(folder, pictures["usps"])
    return pictures


def assert_same(read, expected):
    assert len(read) == 4
    for array, wanted in zip(read, expected, strict=True):
        assert array.dtype == np.uint8
        np.testing.assert_array_equal(array, wanted)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GATED_DOMAINS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GATED_DOMAINS_DATA", raising=False)


@pytest.fixture
def rendered(monkeypatch):
    """SYN drawn by a stand-in: rendering tens of thousands takes a minute, and is tested elsewhere."""
    monkeypatch.setattr(prepare, "ROWS", {"training": 40, "test": 20})
    monkeypatch.setattr(prepare, "SMALL_ROWS", {"training": 20, "test": 10})
    calls = []

    def render(labels, *, seed, advance=None):
        calls.append((labels, seed))
        return np.repeat(labels.astype(np.uint8), 3072).reshape(-1, 32, 32, 3)

    monkeypatch.setattr("gated_domains.data.digits.numbers.render", render)
    return calls


# Readers


@pytest.mark.parametrize("zipped", [True, False])
def test_mnist_is_read_as_it_was_written(tmp_path, zipped):
    pictures = images(28, 28)
    assert_same(originals.read_mnist(*write_mnist(tmp_path, pictures, zipped=zipped)), parts(pictures))


def test_usps_of_libsvm_is_read_as_it_was_written(tmp_path):
    pictures = images(16, 16)
    assert_same(originals.read_usps_libsvm(*write_usps(tmp_path, pictures)), parts(pictures))


def test_what_libsvm_leaves_out_is_zero_which_is_grey(tmp_path):
    for name in ("usps", "usps.t"):
        (tmp_path / name).write_text("3 1:-1 256:1\n10 2:0.5\n")
    train, labels, _, _ = originals.read_usps_libsvm(tmp_path / "usps", tmp_path / "usps.t")
    assert labels.tolist() == [2, 9]
    assert (train[0, 0, 0], train[0, 15, 15], train[1, 0, 1], train[1, 7, 7]) == (0, 255, 191, 128)


@pytest.mark.parametrize("zipped", [True, False])
def test_usps_of_the_textbook_is_read_as_it_was_written(tmp_path, zipped):
    pictures = images(16, 16)
    paths = tmp_path / "zip.train.gz", tmp_path / "zip.test.gz"
    for path, pixels, labels in zip(paths, pictures, LABELS, strict=True):
        path.write_bytes(gzip.compress(text(pixels, labels), mtime=0) if zipped else text(pixels, labels))
    assert_same(originals.read_usps_text(*paths), parts(pictures))


@pytest.mark.skipif(importlib.util.find_spec("h5py") is None, reason="h5py is not installed")
def test_usps_in_hdf5_is_read_as_it_was_written(tmp_path):
    import h5py

    pictures = images(16, 16)
    with h5py.File(tmp_path / "usps.h5", "w") as file:
        for split, pixels, labels in zip(("train", "test"), pictures, LABELS, strict=True):
            file[f"{split}/data"] = (pixels.reshape(len(labels), -1) / 255).astype(np.float32)
            file[f"{split}/target"] = labels.astype(np.int64)
    assert_same(originals.read_usps_h5(tmp_path / "usps.h5"), parts(pictures))
    with h5py.File(tmp_path / "usps.h5", "a") as file:
        del file["test/target"]
    with pytest.raises(DataError, match=r"usps\.h5 is damaged, or lacks train and test with data and target"):
        originals.read_usps_h5(tmp_path / "usps.h5")


def test_without_h5py_the_pip_line_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "usps.h5").write_bytes(b"")
    with pytest.raises(DataError, match=r"usps\.h5 is an HDF5 file, which h5py reads: pip install h5py"):
        originals.read_usps_h5(tmp_path / "usps.h5")


def test_svhn_is_read_as_it_was_written_and_ten_means_zero(tmp_path):
    pictures = images(32, 32, 3)
    assert_same(originals.read_svhn(*write_svhn(tmp_path, pictures)), parts(pictures))


def test_mnistm_is_read_by_its_lists(tmp_path):
    pictures = images(32, 32, 3)
    assert_same(originals.read_mnistm_lists(*write_mnistm(tmp_path, pictures)), parts(pictures))


def test_mnistm_is_read_from_class_folders(tmp_path):
    pictures = images(32, 32, 3)
    order = [np.argsort(labels, kind="stable") for labels in LABELS]
    read = originals.read_mnistm_folders(*write_class_folders(tmp_path, pictures))
    expected = tuple(array[rows] for array, rows in zip(pictures, order, strict=True))
    assert_same(read, parts(expected, tuple(array[rows] for array, rows in zip(LABELS, order, strict=True))))


def digit_five(pictures, **more):
    return {"label_train": one_hot(LABELS[0]), "label_test": one_hot(LABELS[1]), **more}


def test_digit_five_mnist_is_read_from_its_own_28_pixels(tmp_path):
    small, large = images(28, 28), images(32, 32)
    content = digit_five(small, train_28=small[0][..., None], test_28=small[1][..., None])
    content |= {"train_32": large[0], "test_32": large[1]}
    scipy.io.savemat(tmp_path / "mnist_data.mat", content)
    assert_same(originals.read_digit_five_mnist(tmp_path / "mnist_data.mat"), parts(small))
    del content["train_28"]
    scipy.io.savemat(tmp_path / "mnist_data.mat", content)
    assert_same(originals.read_digit_five_mnist(tmp_path / "mnist_data.mat"), parts(large))


def test_digit_five_mnistm_is_read_as_it_was_written(tmp_path):
    pictures = images(28, 28, 3)
    scipy.io.savemat(tmp_path / "m.mat", digit_five(pictures, train=pictures[0], test=pictures[1]))
    assert_same(originals.read_digit_five_mnistm(tmp_path / "m.mat"), parts(pictures))


def test_digit_five_usps_is_read_from_its_cells(tmp_path):
    pictures = images(28, 28)
    cells = np.empty((2, 2), object)
    for row, (pixels, labels) in enumerate(zip(pictures, LABELS, strict=True)):
        cells[row, 0], cells[row, 1] = (pixels / 255.0)[:, None], labels[:, None].astype(np.int64)
    scipy.io.savemat(tmp_path / "usps_28x28.mat", {"dataset": cells})
    assert_same(originals.read_digit_five_usps(tmp_path / "usps_28x28.mat"), parts(pictures))


def test_digit_five_syn_is_read_as_it_was_written(tmp_path):
    pictures = images(32, 32, 3)
    content = {"train_data": pictures[0], "test_data": pictures[1]}
    content |= {"train_label": LABELS[0][:, None], "test_label": LABELS[1][:, None]}
    scipy.io.savemat(tmp_path / "syn_number.mat", content)
    assert_same(originals.read_digit_five_syn(tmp_path / "syn_number.mat"), parts(pictures))


# Readers, and files that are wrong


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: b"", "is no IDX file"),
        (lambda raw: b"GIF8" + raw, "is no IDX file: it begins with b'GIF8'"),
        (lambda raw: b"\0\0\x0d" + raw[3:], "holds type 0x0d, but MNIST's files hold bytes"),
        (lambda raw: raw[:10], "its header is incomplete"),
        (lambda raw: raw[:-1], r"holds 23,519 of the 23,520 bytes of its shape \(30, 28, 28\)"),
        (lambda raw: raw + b"x", "holds more than the 23,520 bytes"),
        (lambda raw: raw[:4] + b"\xff" * 12 + raw[16:], "that is no MNIST file"),
        (lambda raw: gzip.compress(raw, mtime=0)[:-500], "is damaged or cut short"),
        (
            lambda raw: idx(np.zeros((30, 32, 32), np.uint8)),
            r"images must be 28 x 28, got an array of shape \(30, 32, 32\)",
        ),
        (lambda raw: idx(np.zeros((29, 28, 28), np.uint8)), "29 images but 30 labels"),
    ],
)
def test_a_wrong_idx_file_is_named(tmp_path, change, message):
    paths = write_mnist(tmp_path, images(28, 28), zipped=False)
    paths[0].write_bytes(change(paths[0].read_bytes()))
    with pytest.raises(DataError, match=message) as caught:
        originals.read_mnist(*paths)
    assert "train-" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds nothing"),
        (b"1 1:0.5 257:1\n", r"usps, line 1: an index is outside 1 to 256"),
        (b"1 1:0.5\n2 x:1\n", "usps, line 2: could not convert"),
        (b"1 1:0.5 2\n", "usps, line 1: .*; a line reads `label index:value ...`"),
        (b"11 1:0.5\n", "label 10.0 of image 0 is not a digit"),
        (b"1 1:1.5\n", "pixels must lie between -1 and 1, got 0 to 1.5"),
        (b"1 1:nan\n", "pixels must lie between -1 and 1"),
        (bz2.compress(b"1 1:0.5\n" * 1000)[:-20], "is damaged or cut short"),
        (gzip.compress(b"1 1:0.5\n" * 1000, mtime=0)[:-20], "is damaged or cut short"),
    ],
)
def test_a_wrong_usps_file_is_named(tmp_path, content, message):
    (tmp_path / "usps").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        originals.read_usps_libsvm(tmp_path / "usps", tmp_path / "usps")
    assert str(tmp_path / "usps") in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1 2 3\n", "the digit and 256 values, got 3 numbers"),
        (b"1 2 x\n", "a line holds the digit and 256 values"),
        (b"5 " + b"0 " * 256 + b"\n1 2\n", "a line holds the digit and 256 values"),
    ],
)
def test_a_wrong_textbook_file_is_named(tmp_path, content, message):
    (tmp_path / "zip.train").write_bytes(content)
    with pytest.raises(DataError, match=message):
        originals.read_usps_text(tmp_path / "zip.train", tmp_path / "zip.train")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"X": np.zeros((32, 32, 3, 4), np.uint8)}, "lacks y; it is not the file its name says"),
        ({"X": np.zeros((4, 4), np.uint8), "y": [1]}, r"X must have shape \(32, 32, 3, rows\), got \(4, 4\)"),
        ({"X": np.zeros((30, 30, 3, 1), np.uint8), "y": [1]}, r"images must be 32 x 32 x 3, got .* \(1, 30, 30, 3\)"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [1]}, "2 images but 1 labels"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [1, 11]}, "label 11 of image 1 is not a digit"),
        ({"X": np.full((32, 32, 3, 2), 300), "y": [1, 2]}, "pixels must lie between 0 and 255, got 300 to 300"),
        ({"X": np.full((32, 32, 3, 2), np.nan), "y": [1, 2]}, "pixels must lie between 0 and 255"),
    ],
)
def test_a_wrong_matlab_file_is_named(tmp_path, content, message):
    path = tmp_path / "train_32x32.mat"
    scipy.io.savemat(path, content)
    with pytest.raises(DataError, match=message) as caught:
        originals.read_svhn(path, path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.95])
def test_a_truncated_matlab_file_is_named(tmp_path, share):
    path, _ = write_svhn(tmp_path, images(32, 32, 3))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(DataError, match=r"train_32x32\.mat is damaged, cut short, or no MATLAB file"):
        originals.read_svhn(path, path)


def test_a_matlab_file_of_the_newest_kind_is_refused_with_the_cure(tmp_path):
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + struct.pack("<H", 0x0200) + b"IM" + bytes(200))
    with pytest.raises(DataError, match=r"is a MATLAB 7\.3 file, .* save it again with -v7"):
        originals.read_svhn(path, path)


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda folder: (folder / "00000003.png").write_bytes(b"no image"), DataError, r"00000003\.png is no image"),
        (lambda folder: os.truncate(folder / "00000003.png", 300), DataError, r"00000003\.png is damaged or cut short"),
        (lambda folder: (folder / "00000003.png").unlink(), FileNotFoundError, r"00000003\.png"),
        (
            lambda folder: Image.new("RGB", (64, 64)).save(folder / "00000003.png"),
            DataError,
            r"00000003\.png is 64 x 64; MNIST-M's images are 32 x 32",
        ),
        (
            lambda folder: Image.new("RGB", (28, 28)).save(folder / "00000003.png"),
            DataError,
            r"00000003\.png is of shape \(28, 28, 3\), but 00000000\.png of \(32, 32, 3\)",
        ),
    ],
)
def test_a_wrong_image_of_mnistm_is_named(tmp_path, spoil, error, message):
    lists = write_mnistm(tmp_path, images(32, 32, 3))
    spoil(tmp_path / "mnist_m_train")
    with pytest.raises(error, match=message):
        originals.read_mnistm_lists(*lists)


@pytest.mark.parametrize("line", ["00000000.png", "00000000.png five", "../secret.png 5", "/etc/x.png 1"])
def test_a_wrong_line_in_a_list_is_named(tmp_path, line):
    lists = write_mnistm(tmp_path, images(32, 32, 3))
    lists[0].write_text(f"00000000.png 5\n{line}\n")
    with pytest.raises(DataError, match=r"mnist_m_train_labels\.txt, line 2: .* does not read `name.png digit`"):
        originals.read_mnistm_lists(*lists)


# Preparing


def assert_prepared(folder, pictures, *, labels=LABELS):
    for domain, expected in pictures.items():
        with np.load(folder / f"{domain}.npz") as pack:
            assert_same([pack[key] for key in pack.files if key not in ("note", "seed")], parts(expected, labels))


def test_originals_in_a_folder_are_prepared_and_syn_is_rendered(tmp_path, rendered):
    pictures = write_originals(tmp_path / "from")
    done = prepare_digits5(tmp_path / "from", data_dir=tmp_path)
    assert done.folder == tmp_path / "digits5"
    assert done.missing == {}
    assert list(done.domains) == ["mnist", "mnistm", "svhn", "usps", "syn"]
    assert_prepared(done.folder, pictures)
    assert done.domains["usps"].sources == ("usps.bz2", "usps.t.bz2")
    assert (done.domains["svhn"].train_rows, done.domains["svhn"].test_rows) == (30, 20)
    data = digits5(data_dir=tmp_path)
    assert "syn is rendered from fonts: the original file was missing" in data.notes
    assert (data.counts()[4] == 6).all()
    assert len({seed for _, seed in rendered}) == 2  # training and test images are not drawn alike
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits5", "from"]


def test_names_in_capitals_and_deep_below_are_found(tmp_path, rendered):
    pictures = write_originals(tmp_path / "flat")
    deep = tmp_path / "from" / "x" / "y"
    deep.mkdir(parents=True)
    for path in (tmp_path / "flat").iterdir():
        path.rename(deep / (path.name.upper() if path.is_file() and "mnist_m" not in path.name else path.name))
    assert_prepared(prepare_digits5(tmp_path / "from", data_dir=tmp_path).folder, pictures)


def test_mnist_with_dots_in_its_names_is_found(tmp_path, rendered):
    pictures = images(28, 28)
    write_mnist(tmp_path, pictures, zipped=False, dotted=True)
    done = prepare_digits5(tmp_path, data_dir=tmp_path / "data", domains=["mnist"])
    assert_prepared(done.folder, {"mnist": pictures})


def test_fashion_under_the_names_of_mnist_is_not_taken(tmp_path, rendered):
    (tmp_path / "from" / "FashionMNIST").mkdir(parents=True)
    write_mnist(tmp_path / "from" / "FashionMNIST", images(28, 28))
    with pytest.raises(DataError, match="no original of digits5 was found"):
        prepare_digits5(tmp_path / "from", data_dir=tmp_path, domains=["mnist"])
    (tmp_path / "from" / "MNIST" / "raw").mkdir(parents=True)
    pictures = images(28, 28)
    write_mnist(tmp_path / "from" / "MNIST" / "raw", pictures)
    done = prepare_digits5(tmp_path / "from", data_dir=tmp_path, domains=["mnist"])
    assert_prepared(done.folder, {"mnist": pictures})


def test_files_of_one_domain_come_from_one_folder(tmp_path, rendered):
    """Half a set lies in the first folder, a whole one in the second."""
    for name in ("a", "b"):
        (tmp_path / "from" / name).mkdir(parents=True)
    (tmp_path / "from" / "a" / "train_32x32.mat").write_bytes(b"half a set")
    pictures = images(32, 32, 3)
    write_svhn(tmp_path / "from" / "b", pictures)
    done = prepare_digits5(tmp_path / "from", data_dir=tmp_path, domains=["svhn"])
    assert done.domains["svhn"].sources == ("b/train_32x32.mat", "b/test_32x32.mat")
    assert_prepared(done.folder, {"svhn": pictures})


@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tar.gz", ".tar.xz"])
def test_originals_inside_an_archive_are_prepared_and_nothing_stays_unpacked(tmp_path, rendered, suffix):
    pictures = write_originals(tmp_path / "loose")
    (tmp_path / "from").mkdir()
    archive = tmp_path / "from" / f"everything{suffix}"
    if suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as pack:
            for path in (tmp_path / "loose").rglob("*"):
                pack.write(path, f"in/{path.relative_to(tmp_path / 'loose')}")
    else:
        with tarfile.open(archive, "w:" + suffix.removeprefix(".tar").removeprefix(".")) as pack:
            pack.add(tmp_path / "loose", "in")
    done = prepare_digits5(tmp_path / "from", data_dir=tmp_path / "data")
    assert_prepared(done.folder, pictures)
    assert done.domains["usps"].sources == (f"{archive.name}: in/usps.bz2", f"{archive.name}: in/usps.t.bz2")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["digits5"]
    done = prepare_digits5(archive, data_dir=tmp_path / "again")  # the archive itself may be named
    assert_prepared(done.folder, pictures)


def test_class_folders_of_mnistm_inside_a_zip_are_found(tmp_path, rendered):
    pictures = images(32, 32, 3)
    write_class_folders(tmp_path / "loose", pictures)
    (tmp_path / "from").mkdir()
    with zipfile.ZipFile(tmp_path / "from" / "MNIST-M.zip", "w") as pack:
        for path in (tmp_path / "loose").rglob("*.png"):
            pack.write(path, f"MNIST-M/{path.relative_to(tmp_path / 'loose')}")
    done = prepare_digits5(tmp_path / "from", data_dir=tmp_path, domains=["mnistm"])
    order = [np.argsort(labels, kind="stable") for labels in LABELS]
    labels = tuple(array[rows] for array, rows in zip(LABELS, order, strict=True))
    expected = tuple(array[rows] for array, rows in zip(pictures, order, strict=True))
    assert_prepared(done.folder, {"mnistm": expected}, labels=labels)


def test_class_folders_of_something_else_are_not_taken_for_mnistm(tmp_path, rendered):
    write_class_folders(tmp_path / "from" / "cats", images(32, 32, 3))
    with pytest.raises(DataError, match="no original of digits5"):
        prepare_digits5(tmp_path / "from", data_dir=tmp_path)


def test_loose_files_come_before_archives_which_then_stay_closed(tmp_path, rendered):
    pictures = write_originals(tmp_path / "from")
    write_svhn(tmp_path / "from", images(32, 32, 3), prefix="synth_")
    (tmp_path / "from" / "broken.zip").write_bytes(b"no archive")
    done = prepare_digits5(tmp_path / "from", data_dir=tmp_path)
    assert done.passed_over == ()
    assert_prepared(done.folder, pictures)


def test_an_archive_that_leads_outside_is_refused_and_nothing_is_written(tmp_path, rendered):
    write_originals(tmp_path / "from")
    with zipfile.ZipFile(tmp_path / "from" / "evil.zip", "w") as pack:
        pack.writestr("../evil.txt", "evil")
    with pytest.raises(UnsafeArchiveError, match=r"evil\.zip: the member '\.\./evil\.txt' would land outside"):
        prepare_digits5(tmp_path / "from", data_dir=tmp_path / "data")
    assert not list((tmp_path / "data").glob("**/*"))
    assert not (tmp_path / "evil.txt").exists()


def test_an_archive_that_cannot_be_read_is_passed_over_with_a_word(tmp_path, rendered):
    write_originals(tmp_path / "from")
    (tmp_path / "from" / "broken.tar.gz").write_bytes(b"no archive")
    said = []
    done = prepare_digits5(tmp_path / "from", data_dir=tmp_path, say=said.append)
    assert len(done.domains) == 5
    assert len(done.passed_over) == 1
    assert "broken.tar.gz is damaged or cut short" in done.passed_over[0]
    assert done.passed_over[0] in said


def test_a_pickle_is_named_and_never_opened(tmp_path, rendered):
    write_originals(tmp_path / "from")
    trap = b"cos\nsystem\n(S'touch " + str(tmp_path / "sprung").encode() + b"'\ntR."
    for name in ("keras_mnistm.pkl", "syn.pickle", "synth_train.pt.gz"):
        (tmp_path / "from" / name).write_bytes(trap)
    done = prepare_digits5(tmp_path / "from", data_dir=tmp_path)
    assert not (tmp_path / "sprung").exists()
    assert len(done.passed_over) == 1
    for word in ("keras_mnistm.pkl", "syn.pickle", "synth_train.pt.gz", "runs code when it is opened, so it never is"):
        assert word in done.passed_over[0]


def test_missing_originals_are_reported_and_the_rest_is_written(tmp_path, rendered):
    (tmp_path / "from").mkdir()
    write_usps(tmp_path / "from", images(16, 16))
    done = prepare_digits5(tmp_path / "from", data_dir=tmp_path)
    assert list(done.domains) == ["usps", "syn"]
    assert list(done.missing) == ["mnist", "mnistm", "svhn"]
    assert "train_32x32.mat + test_32x32.mat" in done.missing["svhn"]
    assert "mnistm_with_label.mat" in done.missing["mnistm"]
    assert str(done).splitlines() == [
        f"{tmp_path / 'digits5'}:",
        "  usps: 30 training and 20 test images, from usps.bz2, usps.t.bz2",
        "  syn: 40 training and 20 test images, rendered "
        "(note: syn is rendered from fonts: the original file was missing)",
        *(f"  {name}: missing; it is made from {' or '.join(names)}" for name, names in done.missing.items()),
    ]


def test_where_nothing_is_found_every_name_that_would_be_taken_is_said(tmp_path, rendered):
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "notes.pkl").write_bytes(b"")
    with pytest.raises(DataError) as caught:
        prepare_digits5(tmp_path / "from", data_dir=tmp_path)
    for word in ("train-images-idx3-ubyte.gz", "usps.bz2", "usps.h5", "synth_train_32x32.mat", "notes.pkl", "from"):
        assert word in str(caught.value)
    assert rendered == []
    assert not (tmp_path / "digits5").exists()


def test_a_place_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"nowhere is not there; name the folder .*--from"):
        prepare_digits5(tmp_path / "nowhere", data_dir=tmp_path)
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(DataError, match=r"file\.txt is no folder and no archive"):
        prepare_digits5(tmp_path / "file.txt", data_dir=tmp_path)
    with pytest.raises(DataError, match="no domain 'mnst'; did you mean 'mnist'"):
        prepare_digits5(tmp_path, data_dir=tmp_path, domains=["mnst"])
    with pytest.raises(DataError, match="seed must be 0 or more, got -1"):
        prepare_digits5(tmp_path, data_dir=tmp_path, seed=-1)


def test_syn_is_taken_from_its_original_where_there_is_one(tmp_path, rendered):
    write_originals(tmp_path / "from")
    prepare_digits5(tmp_path / "from", data_dir=tmp_path)
    pictures = images(32, 32, 3)
    write_svhn(tmp_path / "from", pictures, prefix="synth_")
    done = prepare_digits5(tmp_path / "from", data_dir=tmp_path)  # a rendered SYN gives way
    assert_prepared(done.folder, {"syn": pictures})
    assert done.domains["syn"].sources == ("synth_train_32x32.mat", "synth_test_32x32.mat")
    assert not any("rendered" in note for note in digits5(data_dir=tmp_path).notes)


def test_as_many_rows_as_the_paper_has_are_drawn_by_seed(tmp_path, rendered, monkeypatch):
    pictures = write_originals(tmp_path / "from")
    monkeypatch.setattr(prepare, "ROWS", {"training": 12, "test": 7})
    drawn = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        folder = prepare_digits5(tmp_path / "from", data_dir=tmp_path / name, seed=seed).folder
        drawn[name] = {domain: dict(np.load(folder / f"{domain}.npz")) for domain in ("mnist", "svhn", "usps")}
    mnist = drawn["a"]["mnist"]
    assert (len(mnist["train_images"]), len(mnist["test_images"])) == (12, 7)
    assert len(drawn["a"]["usps"]["train_images"]) == 30  # whole
    for key, array in mnist.items():
        np.testing.assert_array_equal(array, drawn["b"]["mnist"][key])
    assert not np.array_equal(mnist["train_images"], drawn["c"]["mnist"]["train_images"])
    for image, label in zip(mnist["train_images"], mnist["train_labels"], strict=True):
        rows = [row for row, other in enumerate(pictures["mnist"][0]) if np.array_equal(image, other)]
        assert len(rows) == 1  # drawn without replacement, and its label came with it
        assert LABELS[0][rows[0]] == label


def test_fewer_originals_than_the_paper_has_are_said_so(tmp_path, rendered):
    write_originals(tmp_path / "from")
    done = prepare_digits5(tmp_path / "from", data_dir=tmp_path)
    note = "svhn has 30 training images instead of 40: the originals held no more"
    assert done.domains["svhn"].note == note
    assert note in digits5(data_dir=tmp_path).notes
    assert done.domains["usps"].note is None


def test_a_small_set_has_as_many_of_each_digit(tmp_path, rendered):
    write_originals(tmp_path / "from")
    done = prepare_digits5(tmp_path / "from", data_dir=tmp_path, small=True)
    assert done.folder == tmp_path / "digits5-small"
    data = digits5(data_dir=tmp_path, small=True)
    assert (data.counts() == 3).all()
    assert data.official_test.sum() == 50


def test_files_drawn_with_another_seed_are_kept_but_said(tmp_path, rendered):
    write_originals(tmp_path / "from")
    prepare_digits5(tmp_path / "from", data_dir=tmp_path)
    said = []
    done = prepare_digits5(tmp_path / "from", data_dir=tmp_path, seed=7, say=said.append)
    assert all(domain.kept for domain in done.domains.values())
    assert sum("was drawn with seed 0 and is kept; --force draws it anew with seed 7" in line for line in said) == 5


def test_what_is_there_and_intact_is_kept_unless_forced(tmp_path, rendered):
    write_originals(tmp_path / "from")
    prepare_digits5(tmp_path / "from", data_dir=tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "digits5").iterdir()}
    os.truncate(tmp_path / "digits5" / "usps.npz", 1000)
    said = []
    done = prepare_digits5(tmp_path / "from", data_dir=tmp_path, say=said.append)
    assert [name for name, domain in done.domains.items() if not domain.kept] == ["usps"]
    assert any("made again" in line and "usps.npz" in line for line in said)
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "digits5").iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"usps.npz"}
    done = prepare_digits5(tmp_path / "from", data_dir=tmp_path, force=True)
    assert not any(domain.kept for domain in done.domains.values())
    assert len(rendered) == 4


def test_a_full_disk_leaves_nothing_half_written(tmp_path, rendered, monkeypatch):
    write_originals(tmp_path / "from")
    real = np.savez

    def full(draft, **arrays):
        real(draft, **arrays)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        prepare_digits5(tmp_path / "from", data_dir=tmp_path)
    assert list((tmp_path / "digits5").iterdir()) == []


def test_syn_is_really_rendered(tmp_path, monkeypatch):
    numbers = pytest.importorskip("gated_domains.data.digits.numbers", reason="the renderer is not there")
    monkeypatch.setattr(prepare, "SMALL_ROWS", {"training": 20, "test": 10})
    done = prepare_digits5(tmp_path, data_dir=tmp_path / "data", domains=["syn"], small=True)
    with np.load(done.domains["syn"].path) as pack:
        assert pack["train_images"].shape == (20, 32, 32, 3)
        assert np.bincount(pack["test_labels"], minlength=10).tolist() == [1] * 10
        assert pack["train_images"].std() > 10
    assert callable(numbers.render)


def test_importing_the_readers_is_quick():
    """None of the heavy packages is imported before it is needed."""
    heavy = "('scipy', 'PIL', 'pandas', 'torch', 'rich', 'matplotlib', 'h5py')"
    code = f"import sys, gated_domains.data.originals; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
