"""Samples in files of their own: images and bands, what is said of a bad one, and how they are encoded."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import ImageEncoding, encoding_from, fit_encoding
from gated_domains.data.errors import DataError
from gated_domains.data.other_encodings import BandsEncoding
from gated_domains.data.wilds import sample_files
from gated_domains.data.wilds.bands import BandFiles, Bands, averaged, read_bands
from gated_domains.data.wilds.checking import look_at_files, missing, unreadable
from gated_domains.data.wilds.images import HeldImages, WildsImages, read_stretched

CHANCE = np.random.default_rng(0)


def picture(width=20, height=10):
    return CHANCE.integers(0, 256, (height, width, 3), np.uint8)


@pytest.fixture
def images(tmp_path):
    """Four PNG files in two folders, and the pictures in them."""
    pictures = [picture() for _ in range(4)]
    paths = [f"{below}/{number}.png" for number, below in enumerate(("one", "one", "two", "two"))]
    for path, content in zip(paths, pictures, strict=True):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        Image.fromarray(content).save(tmp_path / path)
    return WildsImages(tmp_path, paths, size=8, name="wilds/camelyon17")


@pytest.fixture
def bands(tmp_path):
    """Three files of two bands, and what is in them."""
    values = CHANCE.normal(size=(3, 2, 6, 6)).astype(np.float32)
    for row, content in enumerate(values):
        np.savez_compressed(tmp_path / f"{row}.npz", x=content)
    files = BandFiles(tmp_path, [f"{row}.npz" for row in range(3)], bands=2, side=6, size=6, name="wilds/poverty")
    return files, values


def test_an_image_is_stretched_and_neither_cut_nor_turned(tmp_path):
    halves = np.zeros((10, 20, 3), np.uint8)
    halves[:, 10:] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # "lies on its side", which WILDS does not look at
    Image.fromarray(halves).save(tmp_path / "a.jpg", exif=exif, quality=100, subsampling=0)
    found = read_stretched(tmp_path / "a.jpg", size=10)
    assert found.shape == (10, 10, 3)
    assert (found[:, :4] < 10).all()
    assert (found[:, 6:] > 245).all()


def test_a_grey_image_and_one_with_a_palette_become_rgb(tmp_path):
    for mode in ("L", "P", "RGBA"):
        Image.fromarray(picture(8, 8)).convert(mode).save(tmp_path / f"{mode}.png")
        assert read_stretched(tmp_path / f"{mode}.png", size=8).shape == (8, 8, 3)


def test_rows_are_read_in_the_order_asked_for(images):
    rows = np.array([3, 0])
    expected = [np.asarray(Image.open(images.path(row)).resize((8, 8), Image.Resampling.BILINEAR)) for row in (3, 0)]
    np.testing.assert_array_equal(images.read(rows), expected)
    np.testing.assert_array_equal(images.take(rows).read(np.array([0, 1])), expected)
    assert images.nbytes == 4 * 8 * 8 * 3


def test_few_images_are_held_in_memory_and_many_are_not(images, monkeypatch):
    held = images.at_hand()
    assert isinstance(held, HeldImages)
    np.testing.assert_array_equal(held.values, images.read(np.arange(4)))
    np.testing.assert_array_equal(held.digests(), images.digests())
    np.testing.assert_array_equal(held.take(np.array([2])).digests(), images.digests()[[2]])
    monkeypatch.setattr(sample_files, "FEW", 4)
    assert images.at_hand() is images
    monkeypatch.undo()
    monkeypatch.setattr(sample_files, "LITTLE", images.nbytes)
    assert images.at_hand() is images


def test_a_digest_is_that_of_path_and_size_alone(images, tmp_path):
    before = images.digests()
    assert len(set(before.tolist())) == 4
    content = (tmp_path / "one/0.png").read_bytes()
    (tmp_path / "one/0.png").write_bytes(content[:-1] + b"x")
    np.testing.assert_array_equal(images.digests(), before)
    (tmp_path / "one/0.png").write_bytes(content + b"x")
    assert images.digests()[0] != before[0]
    np.testing.assert_array_equal(images.digests()[1:], before[1:])


def test_paths_travel_to_other_processes(images):
    again = pickle.loads(pickle.dumps(images))
    np.testing.assert_array_equal(again.read(np.arange(4)), images.read(np.arange(4)))


def test_a_missing_image_is_named_with_the_command_that_tells_more(images, tmp_path):
    (tmp_path / "two/2.png").unlink()
    with pytest.raises(DataError, match=r"two/2.png is missing, though the metadata of wilds/camelyon17 .* data check"):
        images.read(np.array([0, 2]))
    with pytest.raises(DataError, match=r"two/2.png is missing"):
        images.at_hand()


def test_a_truncated_image_is_named(images, tmp_path):
    path = tmp_path / "one/1.png"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"one/1.png: .*cut short"):
        images.read(np.array([1]))


@pytest.mark.parametrize("size", [0, 5000])
def test_an_absurd_size_is_refused(tmp_path, size):
    with pytest.raises(DataError, match=f"1 to 4096 pixels, got {size}"):
        WildsImages(tmp_path, ["a.png"], size=size, name="wilds/fmow")


def test_the_check_counts_what_is_missing_and_names_what_is_damaged(images, tmp_path):
    assert [(found.level, found.text) for found in look_at_files(images)] == [("note", "all 4 files are there")]
    (tmp_path / "one/0.png").unlink()
    (tmp_path / "two/2.png").unlink()
    (tmp_path / "two/3.png").write_bytes(b"no image")
    assert missing(images).tolist() == [0, 2]
    counted, damaged = look_at_files(images)
    assert counted.level == damaged.level == "broken"
    assert "2 of 4 files are there; 2 are missing, the first of them" in counted.text
    assert "one/0.png" in counted.text
    assert "two/3.png" in damaged.text


def test_the_check_finds_a_whole_folder_missing(images, tmp_path):
    for path in (tmp_path / "two").iterdir():
        path.unlink()
    (tmp_path / "two").rmdir()
    assert missing(images).tolist() == [2, 3]


def test_of_very_many_files_some_are_opened_from_all_over(images, monkeypatch):
    monkeypatch.setattr("gated_domains.data.wilds.checking.MOST_OPENED", 2)
    assert "2 of 4 files were opened, spread over all" in [found.text for found in look_at_files(images)]
    assert unreadable(images, np.arange(4)) == []


def test_bands_are_read_as_they_are(bands):
    files, values = bands
    np.testing.assert_array_equal(files.read(np.array([2, 0])), values[[2, 0]])
    held = files.at_hand()
    assert isinstance(held, Bands)
    np.testing.assert_array_equal(held.read(np.arange(3)), values)
    np.testing.assert_array_equal(held.take(np.array([1])).values, values[[1]])
    np.testing.assert_array_equal(held.digests(), files.digests())
    assert files.take(np.array([1])).read(np.array([0])).shape == (1, 2, 6, 6)
    assert files.describe() == held.describe() == "images of 2 bands, 6 x 6"


def test_smaller_bands_are_means_of_squares():
    values = CHANCE.normal(size=(2, 6, 6)).astype(np.float32)
    by_hand = values.reshape(2, 3, 2, 3, 2).mean(axis=(2, 4))
    np.testing.assert_allclose(averaged(values, 3), by_hand, rtol=1e-5, atol=1e-6)


def test_where_squares_cut_pixels_these_count_in_part():
    values = np.zeros((1, 3, 3), np.float32)
    values[0, 1, :] = 9.0
    # Of three rows two are made: half of the middle one falls into each, a third of what is averaged.
    np.testing.assert_allclose(averaged(values, 2), np.full((1, 2, 2), 3.0), rtol=1e-6)
    flat = np.full((8, 224, 224), 7.0, np.float32)
    np.testing.assert_allclose(averaged(flat, 64), np.full((8, 64, 64), 7.0), rtol=1e-5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"y": np.zeros((2, 6, 6), np.float32)}, "has no array 'x', only y"),
        ({"x": np.zeros((6, 6), np.float32)}, r"float32 of shape \(6, 6\) are no bands"),
        ({"x": np.full((2, 6, 6), np.nan, np.float32)}, "holds NaN or infinity"),
        ({"x": np.zeros((2, 5, 5), np.float32)}, r"has the shape \(2, 5, 5\) instead of \(2, 6, 6\)"),
        ({"x": np.array([[["a"]]], object)}, "allow_pickle"),
    ],
)
def test_bands_that_are_none_are_named(bands, tmp_path, content, message):
    np.savez(tmp_path / "1.npz", **content)
    with pytest.raises(DataError, match=rf"1\.npz.*{message}"):
        bands[0].read(np.array([1]))


def test_a_truncated_file_of_bands_is_named(bands, tmp_path):
    path = tmp_path / "1.npz"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError, match=r"1.npz: .*cut short"):
        read_bands(str(path))


def test_bands_cannot_be_enlarged(tmp_path):
    with pytest.raises(DataError, match="1 to 6 pixels for wilds/poverty, got 7"):
        BandFiles(tmp_path, ["0.npz"], bands=2, side=6, size=7, name="wilds/poverty")


def test_bands_are_encoded_as_they_are_and_the_encoding_comes_back_from_json(bands):
    data = DomainDataset(name="toy", inputs=bands[0], targets=np.arange(3, dtype=np.float32))
    encoding = fit_encoding(data, np.arange(2))
    assert isinstance(encoding, BandsEncoding)
    assert encoding.shape == (2, 6, 6)
    again = encoding_from(json.loads(json.dumps(encoding.describe())))
    assert again.describe() == encoding.describe()
    raw = torch.from_numpy(bands[1])
    assert again.tensor(raw.double()).dtype == torch.float32
    torch.testing.assert_close(again.tensor(raw), raw)


def test_images_that_ask_for_it_are_standardised_each_by_itself(images, tmp_path):
    asking = WildsImages(tmp_path, images.paths, size=8, name="wilds/rxrx1", standardise=True)
    for inputs in (asking, asking.at_hand(), asking.take(np.arange(4)), asking.at_hand().take(np.arange(4))):
        data = DomainDataset(name="toy", inputs=inputs, targets=np.zeros(4, np.int64), class_names=("a",))
        encoding = fit_encoding(data, np.arange(4))
        assert encoding.describe() == {"kind": "images", "height": 8, "width": 8, "channels": 3, "standardise": True}
        seen = encoding_from(encoding.describe()).tensor(torch.from_numpy(asking.read(np.arange(4))))
        torch.testing.assert_close(seen.mean(dim=(2, 3)), torch.zeros(4, 3), atol=1e-5, rtol=0)
        torch.testing.assert_close(seen.std(dim=(2, 3)), torch.ones(4, 3))


def test_a_black_channel_is_zero_when_standardised():
    raw = torch.from_numpy(picture(4, 4)[None].copy())
    raw[..., 1] = 0
    seen = ImageEncoding(4, 4, 3, standardise=True).tensor(raw)
    assert torch.isfinite(seen).all()
    assert (seen[:, 1] == 0).all()


def test_other_images_are_encoded_as_before(images):
    data = DomainDataset(name="toy", inputs=images, targets=np.zeros(4, np.int64), class_names=("a",))
    encoding = fit_encoding(data, np.arange(4))
    assert encoding.describe() == {"kind": "images", "height": 8, "width": 8, "channels": 3}
    raw = torch.from_numpy(images.read(np.arange(4)))
    torch.testing.assert_close(encoding.tensor(raw), raw.permute(0, 3, 1, 2).float() / 127.5 - 1)
