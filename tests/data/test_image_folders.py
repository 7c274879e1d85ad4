"""Image folders ``domain/class/*``: every kind of image becomes RGB bytes of one size, and a bad one is named."""

from __future__ import annotations

import inspect
import os
import struct
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Images
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.data.readers import folders
from gated_domains.data.readers.folders import ImageFiles, read_image


def picture(seed: int = 0, *, height: int = 6, width: int = 8) -> np.ndarray:
    """A smooth picture, so that lossy formats keep it nearly."""
    rng = np.random.default_rng(seed)
    ramp = np.linspace(60, 190, height)[:, None, None] + np.linspace(-30, 30, width)[None, :, None]
    return (ramp + rng.uniform(-20, 20, 3)).astype(np.uint8)


def save(path: Path, pixels: np.ndarray, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


def small_folder(root: Path) -> Path:
    """Two domains, two classes, two images each, all of one size."""
    seed = 0
    for domain in ("night", "day"):
        for group in ("dog", "cat"):
            for name in ("b.png", "a.png"):
                save(root / domain / group / name, picture(seed))
                seed += 1
    return root


def load(root: Path, **said: object) -> DomainDataset:
    return load_data(root, Reading(**said))


# -- what lies where -------------------------------------------------------------------------------------------------


def test_rows_are_sorted_by_domain_class_and_name(tmp_path):
    data = load(small_folder(tmp_path / "pets"))
    assert data.name == "pets"
    assert data.domain_names == ("day", "night")
    assert data.class_names == ("cat", "dog")
    assert data.domains.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert data.targets.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert isinstance(data.inputs, Images)
    order = [7, 6, 5, 4, 3, 2, 1, 0]  # made in the opposite order
    np.testing.assert_array_equal(data.inputs.values, [picture(seed) for seed in order])
    assert data.notes == ()


@pytest.mark.parametrize("written", ["pets", "./pets", "pets/", "."])
def test_every_row_knows_its_file(tmp_path, monkeypatch, written):
    monkeypatch.chdir(small_folder(tmp_path / "pets") if written == "." else small_folder(tmp_path / "pets").parent)
    data = load_data(written)
    assert list(data.metadata["file"][:3]) == ["day/cat/a.png", "day/cat/b.png", "day/dog/a.png"]
    assert data.name == "pets"


def test_images_deeper_in_a_class_belong_to_it(tmp_path):
    root = small_folder(tmp_path)
    save(root / "day" / "cat" / "2020" / "may" / "z.png", picture(50))
    data = load(root)
    assert data.counts().tolist() == [[3, 2], [2, 2]]


def test_folders_nested_deeper_than_python_recurses_are_read(tmp_path):
    root = small_folder(tmp_path)
    save(root / "day" / "cat" / "/".join("d" * 200) / "z.png", picture(50))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 150)
    try:
        assert load(root).counts().tolist() == [[3, 2], [2, 2]]
    finally:
        sys.setrecursionlimit(limit)


def test_hidden_files_are_as_if_they_were_not_there(tmp_path):
    root = small_folder(tmp_path)
    for hidden in (".thumbs/cat/a.png", "day/.cache/a.png", "day/cat/._a.png", "__MACOSX/cat/a.png"):
        (root / hidden).parent.mkdir(parents=True, exist_ok=True)
        (root / hidden).write_bytes(b"no image")
    data = load(root)
    assert len(data) == 8
    assert data.notes == ()


def test_files_that_are_no_images_are_passed_over_with_a_note(tmp_path):
    root = small_folder(tmp_path)
    (root / "day" / "cat" / "notes.txt").write_text("hello")
    (root / "day" / "cat" / "Thumbs.db").write_bytes(b"\0")
    data = load(root)
    assert len(data) == 8
    assert data.notes == ("2 files are not images and were skipped: day/cat/Thumbs.db, day/cat/notes.txt",)


def test_links_are_followed_but_not_in_circles(tmp_path):
    root = small_folder(tmp_path / "data")
    elsewhere = save(tmp_path / "elsewhere" / "cat" / "far.png", picture(60))
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    (root / "day" / "dog" / "linked.png").symlink_to(elsewhere)
    (root / "day" / "dog" / "circle").symlink_to(root)
    (root / "day" / "dog" / "broken.png").symlink_to(tmp_path / "nothing")
    data = load(root)
    assert data.domain_names == ("day", "linked", "night")
    assert data.counts().tolist() == [[2, 3], [1, 0], [2, 2]]


def test_positive_classes_become_one(tmp_path):
    root = small_folder(tmp_path)
    save(root / "day" / "cow" / "a.png", picture(70))
    data = load(root, positive=("cat", "dog"))
    assert data.class_names == ("cow", "cat or dog")
    with pytest.raises(DataError, match="no row has the class 'dgo', named as positive; did you mean 'dog'"):
        load(root, positive=("dgo",))


def test_names_that_are_no_unicode_can_still_be_printed(tmp_path):
    root = small_folder(tmp_path)
    os.rename(root / "day", os.path.join(os.fsencode(root), b"d\xe4y"))
    data = load(root)
    assert len(data) == 8
    assert all(name.encode("utf-8") for name in data.domain_names)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "expected as domain/class/.*, but none was found; sort them into such folders"),
        (["a.png", "b.jpg"], "but 2 images lie in it directly"),
        (["cat/a.png", "dog/a.png"], "but 2 images lie one folder deep, in cat, dog"),
        (["day/cat/readme.txt"], "but none was found"),
        (["day/cat/a.png", "night/cat/a.png"], "every image is of one class, 'cat'"),
    ],
    ids=["empty", "flat", "one level", "no image", "one class"],
)
def test_a_folder_laid_out_otherwise_is_refused(tmp_path, files, message):
    for file in files:
        save(tmp_path / file, picture()) if file.endswith("g") else (tmp_path / file).parent.mkdir(parents=True)
    with pytest.raises(DataError, match=message):
        load(tmp_path)


def test_options_for_tables_are_refused(tmp_path):
    with pytest.raises(DataError, match="--domain means nothing for an image folder"):
        load(small_folder(tmp_path), domain="site")


# -- every kind of image ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tif", ".tiff", ".ppm", ".PNG"])
def test_lossless_formats_come_back_exactly(tmp_path, suffix):
    path = save(tmp_path / f"image{suffix}", picture())
    np.testing.assert_array_equal(read_image(path, height=6, width=8), picture())


@pytest.mark.parametrize("suffix", [".jpg", ".jpeg", ".webp", ".gif"])
def test_lossy_formats_come_back_nearly(tmp_path, suffix):
    path = save(tmp_path / f"image{suffix}", picture(height=60, width=80))
    assert np.abs(read_image(path, height=60, width=80).astype(int) - picture(height=60, width=80)).max() < 25


def test_a_format_is_known_by_its_content_not_by_its_name(tmp_path):
    path = save(tmp_path / "image.png", picture())
    path.rename(tmp_path / "image.jpg")
    np.testing.assert_array_equal(read_image(tmp_path / "image.jpg", height=6, width=8), picture())


@pytest.mark.parametrize("mode", ["P", "L", "1", "LA", "RGBA", "CMYK"])
def test_every_mode_becomes_rgb(tmp_path, mode):
    path = tmp_path / ("image.tif" if mode == "CMYK" else "image.png")
    image = Image.fromarray(picture()).convert(mode)
    image.save(path)
    expected = np.asarray(image.convert("RGB"))
    found = read_image(path, height=6, width=8)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, expected)


def test_grey_of_sixteen_bits_is_scaled_not_cut_off(tmp_path):
    values = np.array([[0, 257, 257 * 128, 65535]], np.uint16)
    path = save(tmp_path / "image.png", values)
    np.testing.assert_array_equal(read_image(path, height=1, width=4)[0, :, 0], [0, 1, 128, 255])


def test_grey_of_floats_is_scaled(tmp_path):
    path = save(tmp_path / "image.tif", np.array([[0, 0.5, 1]], np.float32))
    np.testing.assert_array_equal(read_image(path, height=1, width=3)[0, :, 0], [0, 127, 255])


def test_an_image_of_floats_that_are_not_finite_is_named(tmp_path):
    path = save(tmp_path / "image.tif", np.array([[0, np.nan, 1]], np.float32))
    with pytest.raises(DataError, match=r"image.tif: .*NaN or infinity"):
        read_image(path, height=1, width=3)


@pytest.mark.parametrize("suffix", [".jpg", ".webp", ".tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photograph_taken_on_its_side_is_set_upright(tmp_path, suffix, orientation):
    """Light at the top left in the scene, wherever the camera wrote it."""
    scene = np.full((40, 60, 3), 40, np.uint8)
    scene[:12, :20] = 240
    written = {
        1: scene, 2: scene[:, ::-1], 3: scene[::-1, ::-1], 4: scene[::-1],
        5: scene.transpose(1, 0, 2), 6: np.rot90(scene), 7: scene[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(scene, -1),
    }[orientation]  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    for domain in "ab":
        for group in "cd":
            path = save(tmp_path / domain / group / f"x{suffix}", np.ascontiguousarray(written), exif=exif)
    data = load(tmp_path)
    assert data.inputs.values.shape == (4, 40, 60, 3)
    assert np.abs(read_image(path, height=40, width=60).astype(int) - scene).mean() < 5


def test_reading_warns_nobody(tmp_path):
    root = small_folder(tmp_path)
    palette = Image.fromarray(picture()).convert("P")
    palette.info["transparency"] = bytes(range(256))
    palette.save(root / "day" / "cat" / "p.png", transparency=bytes([0, 128, 255]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load(root)) == 9


# -- sizes -----------------------------------------------------------------------------------------------------------


def test_images_of_one_size_keep_it(tmp_path):
    assert load(small_folder(tmp_path)).inputs.describe() == "images, 8 x 6, RGB"


def test_images_of_many_sizes_become_squares_of_the_usual_side_and_that_is_said(tmp_path):
    root = small_folder(tmp_path)
    for place in range(5):
        save(root / "day" / "cat" / f"large{place}.png", picture(height=30, width=20 + place))
    data = load(root)
    assert data.inputs.values.shape[1:] == (6, 6, 3)
    (note,) = data.notes
    assert "from 8 x 6 to 24 x 30" in note
    assert "6 x 6" in note
    assert "--image-size" in note


def test_very_large_images_of_many_sizes_become_no_larger_than_the_usual_side(tmp_path):
    root = tmp_path
    for place, group in enumerate(("cat", "dog")):
        save(root / "day" / group / "a.png", picture(height=300 + place, width=300))
    assert load(root).inputs.values.shape[1:] == (224, 224, 3)


def test_a_size_can_be_chosen_and_is_said_no_more(tmp_path):
    data = load(small_folder(tmp_path), image_size=5)
    assert data.inputs.values.shape[1:] == (5, 5, 3)
    assert data.notes == ()


def test_an_image_is_cut_around_the_middle_not_squeezed(tmp_path):
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 200  # the middle third is a square
    path = save(tmp_path / "image.png", wide)
    assert (read_image(path, height=10, width=10) == 200).all()


@pytest.mark.parametrize("size", [0, -3, 5000])
def test_a_size_out_of_reason_is_refused(tmp_path, size):
    with pytest.raises(DataError, match=f"image size must be 1 to 4096 pixels, got {size}"):
        load(small_folder(tmp_path), image_size=size)


# -- in memory or file by file ---------------------------------------------------------------------------------------


def test_images_that_do_not_fit_into_memory_are_read_when_asked_for(tmp_path, monkeypatch):
    root = small_folder(tmp_path)
    save(root / "day" / "cat" / "large.png", picture(height=30, width=20))
    here = load(root, image_size=7)
    monkeypatch.setattr(folders, "available_bytes", lambda: 2 * 9 * 7 * 7 * 3)
    there = load(root, image_size=7)
    assert isinstance(here.inputs, Images)
    assert isinstance(there.inputs, ImageFiles)
    assert there.inputs.nbytes == here.inputs.nbytes
    assert there.inputs.describe() == here.inputs.describe()
    rows = np.array([8, 0, 3, 3])
    np.testing.assert_array_equal(there.inputs.read(rows), here.inputs.read(rows))
    np.testing.assert_array_equal(there.inputs.read(np.arange(9)), here.inputs.values)
    np.testing.assert_array_equal(there.targets, here.targets)


def test_copies_are_known_whether_in_memory_or_not(tmp_path, monkeypatch):
    root = small_folder(tmp_path)
    original = root / "day" / "cat" / "a.png"
    (root / "night" / "cat" / "copy.png").write_bytes(original.read_bytes())
    for free in (10**12, 0):
        monkeypatch.setattr(folders, "available_bytes", lambda free=free: free)
        digests = load(root).inputs.digests()
        assert digests[0] == digests[6]
        assert len(set(digests.tolist())) == len(digests) - 1


def test_many_images_are_shared_among_threads_and_all_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_SHARE", 3)
    monkeypatch.setattr(folders, "_LITTLE", 5)
    done: list[int] = []
    folders.in_threads(done.append, range(20), "counting")
    assert sorted(done) == list(range(20))


# -- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 5, 30, 0.5, 0.8])
def test_a_truncated_image_is_named(tmp_path, keep):
    root = small_folder(tmp_path)
    noise = np.random.default_rng(0).integers(256, size=(6, 8, 3), dtype=np.uint8)
    bad = save(root / "night" / "dog" / "bad.png", noise)
    whole = bad.read_bytes()
    bad.write_bytes(whole[: keep if isinstance(keep, int) else int(keep * len(whole))])
    with pytest.raises(
        DataError, match=r"night/dog/bad.png: .*cut short, damaged, or not what its name says"
    ) as caught:
        load(root)
    assert str(caught.value).count("bad.png") == 1
    assert "<_io" not in str(caught.value)


def png_that_claims(width: int, height: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(b"\0" * 100))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [9_450, 10_500, 100_000])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_an_image_that_claims_to_be_huge_is_refused_unread(tmp_path, side):
    root = small_folder(tmp_path)
    (root / "day" / "cat" / "huge.png").write_bytes(png_that_claims(side, side))
    with pytest.raises(DataError, match=r"huge.png: .*more than 89,000,000 pixels; scale it down"):
        load(root)


def test_an_image_that_claims_a_large_size_and_holds_none_of_it_is_named(tmp_path):
    root = small_folder(tmp_path)
    (root / "day" / "cat" / "hollow.png").write_bytes(png_that_claims(2_000, 2_000))
    with pytest.raises(DataError, match=r"hollow.png: .*cut short, damaged"):
        load(root, image_size=8)


def test_a_folder_without_permission_is_named(tmp_path, monkeypatch):
    root = small_folder(tmp_path)
    scandir = os.scandir

    def guarded(path: object) -> object:
        if str(path).endswith("night"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    with pytest.raises(PermissionError, match="night"):
        load(root)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_really_without_permission_is_named(tmp_path):
    root = small_folder(tmp_path)
    (root / "night").chmod(0)
    try:
        with pytest.raises(PermissionError, match="night"):
            load(root)
    finally:
        (root / "night").chmod(0o700)
