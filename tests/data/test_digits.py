"""The embedded digits: real ones, blended ones, rendered ones; made once, kept, and made again when damaged."""

from __future__ import annotations

import gzip
import importlib
import lzma
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from gated_domains.data.digits import blended, digits, kept, mnist, numbers, optical, street
from gated_domains.data.digits.backgrounds import _regions, textured
from gated_domains.data.digits.drawing import SIDE, as_bytes, brightness, painted, seen, softened, standing_out, views
from gated_domains.data.digits.glyphs import CELL, DIGIT_HEIGHT, LINE_WIDTH, Face, glyphs, line
from gated_domains.data.digits.parts import Sizes
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Images

# Not by "import ... as": the name of the package is that of its function, too.
package = importlib.import_module("gated_domains.data.digits")
FOLDER = Path(package.__file__).parent
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "make_mnist_subset.py"
SMALL = Sizes(train=60, test=30)


def quiet(steps):
    """Hears of progress and says nothing."""


@pytest.fixture
def small(monkeypatch, tmp_path):
    """`digits` with few images a domain, kept in a folder of its own."""
    monkeypatch.setattr(package, "Sizes", lambda: SMALL)
    monkeypatch.setenv("GATED_DOMAINS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def made():
    return package._made(0, SMALL)


def of(made, name):
    return made.domains == package.DOMAINS.index(name)


# What is in it


def test_five_domains_of_ten_digits_come_in_order(small):
    data = digits()
    assert data.name == "digits"
    assert data.domain_names == ("mnist", "optical", "blended", "numbers", "street")
    assert data.class_names == tuple("0123456789")
    assert data.inputs.describe() == "images, 32 x 32, RGB"
    assert data.counts().sum(1).tolist() == [90, 1797, 90, 90, 90]
    assert "real" in data.notes[0]
    assert "in code" in data.notes[0]


def test_a_domain_has_3000_images_to_train_on_and_1000_to_test_on():
    assert Sizes() == Sizes(train=3000, test=1000)


@pytest.mark.parametrize("name", ["mnist", "blended", "numbers", "street"])
def test_every_digit_comes_as_often_in_training_and_in_test(made, name):
    for for_test, each in ((False, 6), (True, 3)):
        labels = made.labels[of(made, name) & (made.official_test == for_test)]
        assert np.bincount(labels, minlength=10).tolist() == [each] * 10


def test_optical_digits_stay_in_their_order_and_the_last_500_are_for_tests():
    from sklearn.datasets import load_digits

    domain = optical.make()
    original = load_digits()
    np.testing.assert_array_equal(domain.labels, original.target)
    assert domain.for_test.tolist() == [False] * 1297 + [True] * 500
    assert domain.images[original.images[:, 3, 3] == 16, 12:16, 12:16].mean() > 200  # a full square stays bright
    assert domain.images[original.images.max(1).max(1) == 16].max() == 255


def test_no_image_comes_twice(made):
    assert len(np.unique(Images(made.images).digests())) == len(made.images)


def test_no_image_of_the_shipped_mnist_comes_twice():
    images, labels = mnist.subset()
    assert len(np.unique(Images(images).digests())) == len(images) == 8000
    assert np.bincount(labels[:6000]).tolist() == [600] * 10
    assert np.bincount(labels[6000:]).tolist() == [200] * 10


@pytest.mark.parametrize("seed", [0, 1])
def test_mnist_and_blended_share_no_image_and_keep_training_and_test_apart(seed):
    own, other = mnist.halves(seed, Sizes())
    every = np.concatenate([own.all, other.all])
    assert sorted(every) == list(range(8000))
    for rows in (own, other):
        assert (len(rows.train), len(rows.test)) == (3000, 1000)
        assert rows.train.max() < 6000 <= rows.test.min()


def test_blended_on_black_is_the_other_half_of_mnist(monkeypatch):
    monkeypatch.setattr(blended, "mixed", lambda rng, count, **_: np.zeros((count, SIDE, SIDE, 3), np.float32))
    plain, own = blended.make(0, SMALL, advance=quiet), mnist.make(0, SMALL)
    images, labels = mnist.subset()
    _, rows = mnist.halves(0, SMALL)
    np.testing.assert_array_equal(plain.images[:, 2:-2, 2:-2, 1], images[rows.all])
    np.testing.assert_array_equal(plain.labels, labels[rows.all])
    assert not np.isin(Images(plain.images).digests(), Images(own.images).digests()).any()


def test_blended_is_the_distance_of_digit_and_background(monkeypatch):
    monkeypatch.setattr(blended, "mixed", lambda rng, count, **_: np.full((count, SIDE, SIDE, 3), 200, np.float32))
    _, rows = mnist.halves(0, SMALL)
    expected = np.abs(200 - mnist.centred(rows.all).astype(int))
    np.testing.assert_array_equal(blended.make(0, SMALL, advance=quiet).images[..., 2], expected)


def test_backgrounds_to_test_on_come_from_other_parts_of_the_photographs():
    for train, test in zip(_regions(for_test=False), _regions(for_test=True), strict=True):
        assert train.shape[1] + test.shape[1] == 640
        assert min(train.shape[1], test.shape[1]) >= 4 * SIDE


@pytest.mark.parametrize(("module", "maker"), [(blended, "mixed"), (street, "walls")], ids=["blended", "street"])
def test_only_images_to_test_on_get_those_backgrounds(monkeypatch, module, maker):
    asked = []

    def grey(rng, count, *, for_test, **_):
        asked.append((count, for_test))
        return np.full((count, SIDE, SIDE, 3), 128, np.float32)

    monkeypatch.setattr(module, maker, grey)
    module.make(0, SMALL, advance=quiet)
    assert asked == [(60, False), (30, True)]


def test_textures_are_of_many_kinds():
    images = as_bytes(textured(np.random.default_rng(0), 40))
    assert images.shape == (40, SIDE, SIDE, 3)
    assert len(np.unique(Images(images).digests())) == 40
    assert images.std() > 40


@pytest.mark.parametrize("name", ["mnist", "optical"])
def test_real_digits_can_be_learned_from_pixels(name):
    domain = mnist.make(0, Sizes(train=800, test=200)) if name == "mnist" else optical.make()
    pixels = domain.images[:, ::2, ::2, 0].reshape(len(domain.images), -1) / 255
    model = LogisticRegression(max_iter=200).fit(pixels[~domain.for_test], domain.labels[~domain.for_test])
    assert model.score(pixels[domain.for_test], domain.labels[domain.for_test]) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("module", [numbers, street], ids=["numbers", "street"])
def test_the_label_of_a_rendered_number_can_be_learned_from_what_it_covers(module):
    rng = np.random.default_rng(0)
    labels = np.arange(1500) % 10
    cover = module._masks(labels, rng)[0 if module is numbers else 1]
    middle = cover[:, 4:28:2, 6:26:2].reshape(len(labels), -1) / 255
    model = LogisticRegression(max_iter=200).fit(middle[:1200], labels[:1200])
    assert model.score(middle[1200:], labels[1200:]) > 0.7


# The same seed, the same bytes


def test_the_same_seed_gives_the_same_bytes(made):
    again = package._made(0, SMALL)
    for name in ("images", "labels", "domains", "official_test"):
        np.testing.assert_array_equal(getattr(again, name), getattr(made, name))


def test_another_seed_gives_other_images_of_all_but_the_optical_digits(made):
    other = package._made(1, SMALL)
    for name in package.DOMAINS:
        shared = np.isin(*(Images(one.images[of(one, name)]).digests() for one in (other, made))).mean()
        assert shared == 1 if name == "optical" else shared < 0.05


def test_a_negative_seed_is_refused():
    with pytest.raises(DataError, match="-3"):
        digits(seed=-3)


# What is shipped


def test_the_folder_takes_at_most_3_megabytes():
    files = [path for path in FOLDER.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {"mnist-subset.xz", "NOTICE"} <= {path.name for path in files}
    assert sum(path.stat().st_size for path in files) <= 3_000_000


@pytest.mark.parametrize(
    "words",
    [
        *("LeCun", "Cortes", "Burges", "CC BY-SA 3.0", "subset", "No pixel was changed"),
        *("Alpaydin", "Kaynak", "CC BY 4.0", "scikit-learn"),
        *("china.jpg", "flower.jpg", "danielbuechele", "vultilion", "CC BY 2.0"),
        *("matplotlib", "DejaVu", "STIX", "BaKoMa"),
    ],
)
def test_the_notice_names_every_ingredient(words):
    assert words in (FOLDER / "NOTICE").read_text()


def test_a_damaged_mnist_file_is_named(monkeypatch, tmp_path):
    cut, other = tmp_path / "cut.xz", tmp_path / "other.xz"
    cut.write_bytes(mnist.FILE.read_bytes()[:-1000])
    other.write_bytes(lzma.compress(b"something else"))
    for file, words in ((cut, "cut.xz is damaged"), (other, "other.xz is not the file that was shipped")):
        monkeypatch.setattr(mnist, "FILE", file)
        with pytest.raises(DataError, match=words):
            mnist.subset.__wrapped__()


def idx(values):
    return b"\0\0\x08" + bytes([values.ndim]) + np.array(values.shape, ">u4").tobytes() + values.tobytes()


def test_the_script_picks_as_many_of_each_digit_from_idx_files(tmp_path):
    rng = np.random.default_rng(0)
    for part, count in (("train", 7000), ("t10k", 2500)):
        labels = rng.permutation(np.arange(count) % 10).astype(np.uint8)
        images = np.repeat(labels, 28 * 28).reshape(count, 28, 28)
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels))
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images), 1))
    content = runpy.run_path(str(SCRIPT))["content_from"](tmp_path)
    labels = np.frombuffer(content, np.uint8, 8000)
    assert np.bincount(labels[:6000]).tolist() == [600] * 10
    assert np.bincount(labels[6000:]).tolist() == [200] * 10
    np.testing.assert_array_equal(np.frombuffer(content, np.uint8, offset=8000).reshape(8000, -1)[:, 5], labels)


# Kept for next time


def never(*_):
    raise AssertionError("it was made again")


def test_it_is_made_once_and_read_the_next_time(small, monkeypatch):
    first = digits()
    (file,) = small.iterdir()
    assert file.name.startswith("digits-v1-seed0-")
    monkeypatch.setattr(package, "_made", never)
    second = digits()
    np.testing.assert_array_equal(first.inputs.values, second.inputs.values)
    np.testing.assert_array_equal(first.targets, second.targets)
    np.testing.assert_array_equal(first.domains, second.domains)
    np.testing.assert_array_equal(first.official_test, second.official_test)
    assert list(small.iterdir()) == [file]


def test_each_seed_and_each_recipe_is_kept_in_a_file_of_its_own(monkeypatch):
    names = {kept.kept_at(0).name, kept.kept_at(1).name}
    monkeypatch.setattr(kept, "version", lambda library: "0.0")
    assert len(names | {kept.kept_at(0).name}) == 3


def test_nothing_is_read_or_kept_without_a_cache(small, made, monkeypatch):
    monkeypatch.setattr(package, "_made", lambda seed, sizes: made)
    monkeypatch.setattr(kept, "read", never)
    digits(cache=False)
    assert not small.exists()


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path.read_bytes()


@pytest.mark.parametrize(
    "damage", ["a bit", "the end", "everything", "empty", "foreign", "one array", "another recipe", "shape"]
)
def test_a_damaged_or_foreign_file_is_made_again_with_a_word(small, made, monkeypatch, capsys, tmp_path, damage):
    monkeypatch.setattr(package, "_made", lambda seed, sizes: made)
    digits()
    path = kept.kept_at(0)
    content = path.read_bytes()
    parts = {"images": made.images, "labels": made.labels, "domains": made.domains, "official_test": made.official_test}
    recipe = {"recipe": np.array(kept.recipe())}
    scratch = tmp_path / "scratch.npz"
    np.save(tmp_path / "one.npy", made.labels)
    path.write_bytes(
        {
            "a bit": lambda: flipped(content),
            "the end": lambda: content[:-2000],
            "everything": lambda: b"nonsense" * 100,
            "empty": lambda: b"",
            "foreign": lambda: npz(scratch, X=made.images),
            "one array": lambda: (tmp_path / "one.npy").read_bytes(),
            "another recipe": lambda: npz(scratch, recipe=np.array("digits 0"), **parts),
            "shape": lambda: npz(scratch, **recipe, **{**parts, "images": made.images[:, :16]}),
        }[damage]()
    )
    capsys.readouterr()
    data = digits()
    words = capsys.readouterr().err
    assert f"{path} cannot be used" in words
    assert "making it again" in words
    np.testing.assert_array_equal(data.inputs.values, made.images)
    assert path.read_bytes() == content or damage not in ("a bit", "the end")
    monkeypatch.setattr(package, "_made", never)
    digits()


def test_a_cache_that_cannot_be_written_is_said_and_the_data_still_come(made, monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GATED_DOMAINS_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(package, "_made", lambda seed, sizes: made)
    assert len(digits()) == len(made.images)
    words = capsys.readouterr().err
    assert "could not be kept" in words
    assert "GATED_DOMAINS_CACHE" in words


def test_importing_it_brings_none_of_the_heavy_libraries():
    heavy = {"PIL", "sklearn", "matplotlib", "rich", "torch"}
    code = f"import sys, gated_domains.data.digits; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# Rendered numbers


def test_numbers_are_rendered_one_a_label_and_progress_is_told():
    heard = []
    labels = np.arange(600) % 10
    images = numbers.render(labels, seed=5, advance=heard.append)
    assert images.shape == (600, 32, 32, 3)
    assert images.dtype == np.uint8
    assert sum(heard) == 600
    np.testing.assert_array_equal(images, numbers.render(labels, seed=5))
    assert not (images == numbers.render(labels, seed=6)).all((1, 2, 3)).any()


def test_no_labels_give_no_images():
    assert numbers.render(np.empty(0, np.int64), seed=0).shape == (0, 32, 32, 3)


@pytest.mark.parametrize("labels", [np.array([3, 10]), np.array([-1]), np.array([[1, 2]])], ids=["10", "-1", "axes"])
def test_labels_that_are_no_digits_are_refused(labels):
    with pytest.raises(DataError, match="0 to 9"):
        numbers.render(labels, seed=0)


@pytest.mark.parametrize("face", dict.fromkeys(numbers.FACES + street.FACES), ids=lambda face: face.file + face.zero)
def test_a_face_has_ten_digits_that_differ_and_fit_their_cell(face):
    drawn = glyphs(face)
    for masks in (drawn.plain, drawn.outlined):
        assert len(np.unique(Images(masks).digests())) == 10
        assert not masks[:, [0, -1]].any()
        assert not masks[:, :, [0, -1]].any()
    heights = drawn.plain.any(2).sum(1)
    assert (np.abs(heights - DIGIT_HEIGHT) <= 9).all()  # lining digits; the 4 of an italic goes below the line
    assert (drawn.outlined.sum((1, 2)) > drawn.plain.sum((1, 2))).all()
    assert ((drawn.widths > 12) & (drawn.widths < 40)).all()


def test_street_has_other_faces_than_numbers():
    assert not set(street.FACES) & set(numbers.FACES)


def test_a_missing_font_is_named():
    with pytest.raises(DataError, match=r"NoSuchFont\.ttf is missing"):
        glyphs(Face("NoSuchFont.ttf"))


def test_a_digit_stands_in_the_middle_of_its_line_between_its_neighbours():
    face = Face("DejaVuSans.ttf")
    alone, _ = line(face, 4, neighbours=np.array([-1, -1]), tracking=0.0)
    between, outlined = line(face, 4, neighbours=np.array([1, 7]), tracking=8.0)
    start = (LINE_WIDTH - CELL) // 2
    np.testing.assert_array_equal(alone[:, start : start + CELL], glyphs(face).plain[4])
    assert not alone[:, :start].any()
    columns = slice(LINE_WIDTH // 2 - 12, LINE_WIDTH // 2 + 12)
    np.testing.assert_array_equal(between[:, columns], alone[:, columns])
    assert (outlined >= between).all()
    left_alone, _ = line(face, 4, neighbours=np.array([1, -1]), tracking=8.0)
    np.testing.assert_array_equal(left_alone[:, : columns.start], between[:, : columns.start])
    assert left_alone[:, : columns.start].any()
    assert between[:, columns.stop :].any()
    assert not left_alone[:, columns.stop :].any()


# Steps


def plain_view(**changes):
    settings = {name: np.zeros(1) for name in ("degrees", "slant")}
    settings |= {"height": np.array([32.0]), "aspect": np.ones(1), "shift": np.zeros((1, 2)), "tilt": np.zeros((1, 2))}
    return views(**settings | changes)[0]


def test_a_view_leads_from_the_middle_of_the_image_to_the_middle_of_the_line():
    view = plain_view(shift=np.array([[3.0, -2.0]]), degrees=np.array([20.0]), tilt=np.array([[0.2, 0.1]]))
    across, down, scale = view @ (SIDE / 2 + 3, SIDE / 2 - 2, 1)
    np.testing.assert_allclose((across / scale, down / scale), (LINE_WIDTH / 2, CELL / 2))


def test_a_digit_is_seen_as_high_as_asked():
    mask, _ = line(Face("DejaVuSans.ttf"), 0, neighbours=np.array([-1, -1]), tracking=0.0)
    for height in (12.0, 24.0):
        rows = (seen(mask, plain_view(height=np.array([height]))) > 100).any(1)
        assert abs(rows.sum() - height) <= 1
        assert abs(np.flatnonzero(rows).mean() - (SIDE - 1) / 2) <= 1


def test_ink_stands_out_from_its_paper():
    rng = np.random.default_rng(0)
    paper = rng.uniform(0, 255, (200, 3))
    ink = standing_out(paper, by=60.0, rng=rng)
    assert (np.abs(brightness(ink) - brightness(paper)) >= 60).mean() > 0.98


def test_blur_keeps_an_even_image_and_spreads_a_point():
    even = np.full((1, SIDE, SIDE, 3), 90, np.float32)
    np.testing.assert_allclose(softened(even, np.array([1.0])), even, rtol=1e-5)
    point = np.zeros((2, SIDE, SIDE, 3), np.float32)
    point[:, 16, 16] = 100
    sharp, soft = softened(point, np.array([0.0, 1.0]))
    np.testing.assert_allclose(sharp, point[0], atol=1e-4)
    assert soft[16, 16, 0] < 20
    np.testing.assert_allclose(soft.sum(), 300, rtol=1e-4)


def test_paint_covers_as_much_as_its_mask_says():
    masks = np.zeros((1, SIDE, SIDE), np.uint8)
    masks[0, 0, :3] = (0, 51, 255)
    image = painted(np.full((1, SIDE, SIDE, 3), 100, np.float32), masks, np.array([[200.0, 0.0, 100.0]]))
    np.testing.assert_allclose(image[0, 0, :3], [[100, 100, 100], [120, 80, 100], [200, 0, 100]], rtol=1e-5)


def test_bytes_are_cut_off_not_wrapped():
    image = np.full((1, SIDE, SIDE, 3), 300, np.float32)
    image[..., 0] = -5
    assert as_bytes(image)[0, 0, 0].tolist() == [0, 255, 255]


@pytest.mark.slow
def test_of_the_whole_set_no_image_comes_twice():
    data = digits(cache=False)
    assert data.counts().sum(1).tolist() == [4000, 1797, 4000, 4000, 4000]
    assert len(np.unique(data.inputs.digests())) == len(data)
