"""Digits-5 on disk: what is read, and what is said of files that are missing or wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gated_domains.data.digits5 import DOMAINS, digits5, resize_into
from gated_domains.data.errors import DataError
from gated_domains.data.originals import prepare

SHARED = Path(__file__).parents[3] / "shared" / "data"
SHAPES = {"mnist": (28, 28), "mnistm": (32, 32, 3), "svhn": (32, 32, 3), "usps": (16, 16), "syn": (32, 32, 3)}
needs_shared = pytest.mark.skipif(not (SHARED / "unpack.py").is_file(), reason="../shared/data is not there")


def arrays(domain, rng, *, train=20, test=10):
    return {
        "train_images": rng.integers(256, size=(train, *SHAPES[domain]), dtype=np.uint8),
        "train_labels": rng.integers(10, size=train, dtype=np.uint8),
        "test_images": rng.integers(256, size=(test, *SHAPES[domain]), dtype=np.uint8),
        "test_labels": rng.integers(10, size=test, dtype=np.uint8),
    }


@pytest.fixture
def five(tmp_path):
    """A data directory with all five domains, and what is in them."""
    rng = np.random.default_rng(0)
    content = {domain: arrays(domain, rng, train=20 + k, test=10 + k) for k, domain in enumerate(DOMAINS)}
    (tmp_path / "digits5").mkdir()
    for domain, parts in content.items():
        np.savez(tmp_path / "digits5" / f"{domain}.npz", **parts)
    return tmp_path, content


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GATED_DOMAINS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GATED_DOMAINS_DATA", raising=False)


def rewrite(folder, domain, *, small=False, **changes):
    path = folder / ("digits5-small" if small else "digits5") / f"{domain}.npz"
    with np.load(path) as pack:
        parts = {key: pack[key] for key in pack.files}
    parts = {key: value for key, value in (parts | changes).items() if value is not None}
    np.savez(path, **parts)
    return path


def test_five_domains_become_one_data_set(five):
    folder, content = five
    data = digits5(data_dir=folder)
    assert data.name == "digits5"
    assert data.domain_names == DOMAINS == ("mnist", "mnistm", "svhn", "usps", "syn")
    assert data.class_names == tuple("0123456789")
    assert data.scored_whole == {"usps"}
    assert data.notes == ()
    assert data.inputs.values.shape == (sum(20 + k + 10 + k for k in range(5)), 32, 32, 3)
    for domain, parts in content.items():
        rows = data.rows_of(domain)
        test = data.official_test[rows]
        assert test.sum() == len(parts["test_labels"])
        np.testing.assert_array_equal(data.targets[rows[~test]], parts["train_labels"])
        np.testing.assert_array_equal(data.targets[rows[test]], parts["test_labels"])


def test_colour_images_of_32_pixels_are_taken_as_they_are(five):
    folder, content = five
    data = digits5(data_dir=folder)
    rows = data.rows_of("svhn")
    expected = np.concatenate([content["svhn"]["train_images"], content["svhn"]["test_images"]])
    np.testing.assert_array_equal(data.inputs.read(rows), expected)


@pytest.mark.parametrize(("domain", "shape"), [("mnist", (28, 28)), ("usps", (16, 16)), ("mnistm", (28, 28, 3))])
def test_smaller_images_are_resized_as_pillow_resizes_them(domain, shape):
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(1030, *shape), dtype=np.uint8)  # more than one chunk
    resized = np.empty((len(images), 32, 32, 3), np.uint8)
    resize_into(resized, images)
    for row in (0, 1, 1023, 1024, 1029):
        oracle = Image.fromarray(images[row]).resize((32, 32), Image.Resampling.BILINEAR).convert("RGB")
        assert np.abs(resized[row].astype(int) - np.asarray(oracle)).max() <= 1  # Pillow rounds twice


@pytest.mark.parametrize("side", [16, 28])
def test_a_resized_pixel_is_the_rounded_mean_of_its_four_neighbours(side):
    image = np.random.default_rng(0).integers(256, size=(1, side, side), dtype=np.uint8)
    resized = np.empty((1, 32, 32, 3), np.uint8)
    resize_into(resized, image)
    for row in range(32):
        for column in range(32):
            y, x = (min(max((place + 0.5) * side / 32 - 0.5, 0), side - 1) for place in (row, column))
            top, left = min(int(y), side - 2), min(int(x), side - 2)
            four = image[0, top : top + 2, left : left + 2].astype(float)
            value = np.array([top + 1 - y, y - top]) @ four @ np.array([left + 1 - x, x - left])
            assert (resized[0, row, column] == round(value)).all()


def test_a_constant_image_stays_constant():
    resized = np.empty((1, 32, 32, 3), np.uint8)
    for side in (16, 28, 32):
        resize_into(resized, np.full((1, side, side), 201, np.uint8))
        assert (resized == 201).all()


def test_what_a_file_says_of_itself_becomes_a_note(five):
    folder, _ = five
    rewrite(folder, "syn", note=np.array("syn is rendered from fonts"))
    rewrite(folder, "usps", note=np.array(""))
    assert digits5(data_dir=folder).notes == ("syn is rendered from fonts",)


def test_the_folder_comes_from_the_argument_the_variable_or_the_cache(five, tmp_path, monkeypatch):
    folder, _ = five
    monkeypatch.setenv("GATED_DOMAINS_DATA", str(folder))
    assert len(digits5()) == 170
    monkeypatch.delenv("GATED_DOMAINS_DATA")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "data").symlink_to(folder)
    assert len(digits5()) == 170


def test_missing_files_are_named_with_the_places_and_the_cures(five, tmp_path, monkeypatch):
    folder, _ = five
    monkeypatch.setenv("GATED_DOMAINS_DATA", str(tmp_path / "elsewhere"))
    (folder / "digits5" / "usps.npz").unlink()
    (folder / "digits5" / "syn.npz").unlink()
    with pytest.raises(DataError) as caught:
        digits5(data_dir=folder)
    message = str(caught.value)
    for word in (
        f"usps.npz, syn.npz not found in {folder / 'digits5'}",
        f"--data-dir ({folder})",
        f"$GATED_DOMAINS_DATA ({tmp_path / 'elsewhere'})",
        f"the cache ({tmp_path / 'cache' / 'data'})",
        "gated-domains data fetch digits5",
        "gated-domains data prepare digits5 --from DIR",
    ):
        assert word in message
    with pytest.raises(DataError, match=r"digits5-small: mnist.npz, .* \(not given\).* --from DIR --small"):
        digits5(small=True)


def test_syn_alone_missing_is_rendered_once_and_said(five, tmp_path, monkeypatch):
    folder, _ = five
    (folder / "digits5" / "syn.npz").unlink()
    monkeypatch.setattr(prepare, "ROWS", {"training": 30, "test": 10})
    data = digits5(data_dir=folder)
    assert len(data.rows_of("syn")) == 40
    assert data.notes == ("syn is rendered from fonts: the original file was missing",)
    assert not (folder / "digits5" / "syn.npz").exists()
    monkeypatch.setattr(prepare, "render_syn", lambda *given, **more: pytest.fail("rendered twice"))
    np.testing.assert_array_equal(digits5(data_dir=folder).inputs.values, data.inputs.values)


BROKEN = {
    "a label outside 0 to 9": (
        {"train_labels": np.full(20, 10, np.uint8)},
        r"train_labels\[0\] is 10, but .* \(20 such",
    ),
    "a label below 0": ({"test_labels": np.full(10, -1, np.int8)}, r"test_labels\[0\] is -1"),
    "labels that are no numbers": ({"train_labels": np.full(20, "7")}, "one whole number an image, got <U1"),
    "labels in two columns": ({"train_labels": np.zeros((20, 2), np.uint8)}, r"got uint8 of shape \(20, 2\)"),
    "no labels": ({"test_labels": np.zeros(0, np.uint8)}, r"got uint8 of shape \(0,\)"),
    "floats for images": ({"train_images": np.zeros((20, 28, 28))}, r"must be bytes .* got float64 of shape"),
    "images of another side": (
        {"train_images": np.zeros((20, 30, 30), np.uint8)},
        r"got uint8 of shape \(20, 30, 30\)",
    ),
    "images that are not square": ({"test_images": np.zeros((10, 28, 16), np.uint8)}, r"shape \(10, 28, 16\)"),
    "four channels": ({"test_images": np.zeros((10, 32, 32, 4), np.uint8)}, r"shape \(10, 32, 32, 4\)"),
    "a row too many": ({"test_images": np.zeros((11, 28, 28), np.uint8)}, "11 test_images but 10 test_labels"),
    "a missing key": ({"test_images": None}, "lacks test_images; there are"),
    "a note that is no text": ({"note": np.zeros(3)}, r"note must be one piece of text, got float64"),
    "pickled objects": ({"train_labels": np.array([None] * 20)}, "holds Python objects, which are never read"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_wrong_file_is_named(five, what):
    folder, _ = five
    changes, message = BROKEN[what]
    path = rewrite(folder, "mnist", **changes)
    with pytest.raises(DataError, match=message) as caught:
        digits5(data_dir=folder)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_named(five, share):
    folder, _ = five
    path = folder / "digits5" / "svhn.npz"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(DataError, match=r"(?s)svhn\.npz.*damaged.* --from DIR"):
        digits5(data_dir=folder)


def test_a_file_that_is_no_npz_at_all_is_named(five):
    folder, _ = five
    (folder / "digits5" / "svhn.npz").write_bytes(b"hello, world" * 10)
    with pytest.raises(DataError, match=r"svhn\.npz: File is not a zip file.*damaged"):
        digits5(data_dir=folder)
    with open(folder / "digits5" / "svhn.npz", "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(DataError, match=r"svhn\.npz: File is not a zip file"):
        digits5(data_dir=folder)


def test_changed_bytes_give_a_data_set_or_a_clear_message(five):
    """Two hundred files with a few bytes changed each."""
    folder, _ = five
    path = folder / "digits5" / "usps.npz"
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    said = []
    for _ in range(200):
        changed = bytearray(whole)
        for place in rng.integers(len(whole), size=rng.integers(1, 20)):
            changed[place] = rng.integers(256)
        for place in rng.integers(200, size=2):  # the headers, too
            changed[place] = rng.integers(256)
        path.write_bytes(changed)
        try:
            digits5(data_dir=folder)
        except DataError as error:
            said.append(str(error))
    assert len(said) > 100
    assert all(str(path) in message for message in said)


@needs_shared
def test_the_real_small_pack_is_read(tmp_path):
    command = [sys.executable, SHARED / "unpack.py", tmp_path, "digits5-small"]
    subprocess.run(command, check=True, capture_output=True)
    data = digits5(data_dir=tmp_path, small=True)
    assert data.name == "digits5-small"
    assert len(data) == 10_000
    for test, each in ((False, 150), (True, 50)):
        table = np.zeros((5, 10), int)
        np.add.at(table, (data.domains[data.official_test == test], data.targets[data.official_test == test]), 1)
        assert (table == each).all()
    brightness = [data.inputs.read(data.rows_of(domain)).mean() for domain in DOMAINS]
    assert brightness[0] < 60 < min(brightness[1], brightness[2], brightness[4])  # MNIST is black, mostly
    grey = data.inputs.read(data.rows_of("usps"))
    assert (grey[..., 0] == grey[..., 1]).all()
    assert (grey[..., 0] == grey[..., 2]).all()
