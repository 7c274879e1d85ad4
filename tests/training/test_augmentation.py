"""Images mirrored, turned, cropped and exposed: as numpy does it, each as often, and nothing else touched."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from gated_domains.data.errors import DataError
from gated_domains.training import optimizers
from gated_domains.training.augmentation import augmented, cropped, exposed, turned
from small_trainings import build, identical, material, pictures, train, vectors, weights


def batch(rows: int = 64, *, height: int = 5, width: int = 5) -> torch.Tensor:
    return torch.arange(float(rows * 2 * height * width)).reshape(rows, 2, height, width)


def found_among(images: torch.Tensor, before: torch.Tensor, ways: dict[str, object]) -> Counter[str]:
    """Which of these ways, by numpy, leads from each image before to the one after; always exactly one does."""
    counted: Counter[str] = Counter()
    for after, image in zip(images.numpy(), before.numpy(), strict=True):
        names = [name for name, way in ways.items() if np.array_equal(way(image), after)]  # type: ignore[operator]
        assert len(names) == 1
        counted[names[0]] += 1
    return counted


FLIPS = {"as it was": lambda image: image, "mirrored": lambda image: image[:, :, ::-1]}
TURNS = {
    f"{name} {quarter}": lambda image, way=way, quarter=quarter: way(np.rot90(image, quarter, (1, 2)))
    for quarter in range(4)
    for name, way in FLIPS.items()
}


@pytest.mark.parametrize("shape", [(5, 5), (4, 7)])
def test_flips_mirror_about_half_of_the_images_from_left_to_right(shape):
    whole = batch(400, height=shape[0], width=shape[1])
    counted = found_among(augmented(whole, "flips"), whole, FLIPS)
    assert 150 < counted["mirrored"] < 250


def test_turns_are_the_eight_ways_a_square_can_lie_each_as_often():
    whole = batch(800)
    counted = found_among(augmented(whole, "turns"), whole, TURNS)
    assert set(counted) == set(TURNS)
    assert all(60 < count < 140 for count in counted.values())


def test_each_image_is_turned_by_its_own_number_of_right_angles():
    images, quarters = batch(40), torch.arange(40) % 4
    found = turned(images, quarters)
    for image, quarter, after in zip(images, quarters, found, strict=True):
        assert np.array_equal(np.rot90(image.numpy(), int(quarter), (1, 2)), after.numpy())


@pytest.mark.parametrize("how", ["flips", "turns", "photos"])
def test_the_images_handed_in_stay_as_they_are_and_a_generator_leaves_the_global_one_alone(how):
    whole = batch()
    before, state = whole.clone(), torch.get_rng_state()
    found = augmented(whole, how, torch.Generator().manual_seed(1))
    assert torch.equal(whole, before)
    assert found.dtype == before.dtype
    assert torch.equal(torch.get_rng_state(), state)


def pixels(rows: int = 6, height: int = 7, width: int = 10) -> torch.Tensor:
    return torch.rand(rows, 3, height, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 - 1


def cropped_by_loop(image: np.ndarray, side: float, corner: list[float], mirrored: bool) -> np.ndarray:
    """Each pixel's centre in the window, and the four pixels around it; beyond the edge, the pixel at the edge."""
    _, height, width = image.shape
    left, top = corner[0] * (1 - side) * width, corner[1] * (1 - side) * height
    found = np.empty_like(image)
    for row in range(height):
        for column in range(width):
            place = width - 1 - column if mirrored else column
            x, y = left + (place + 0.5) * side - 0.5, top + (row + 0.5) * side - 0.5
            x, y = min(max(x, 0), width - 1), min(max(y, 0), height - 1)
            x0, y0 = int(x), int(y)
            x1, y1, across, down = min(x0 + 1, width - 1), min(y0 + 1, height - 1), x - x0, y - y0
            upper = (1 - across) * image[:, y0, x0] + across * image[:, y0, x1]
            lower = (1 - across) * image[:, y1, x0] + across * image[:, y1, x1]
            found[:, row, column] = (1 - down) * upper + down * lower
    return found


def test_crops_are_bilinear_windows_of_the_image():
    images = pixels()
    side = torch.tensor([0.8, 0.83, 0.9, 0.95, 0.99, 1.0], dtype=torch.float64)
    corner = torch.tensor([[0, 0], [1, 1], [0.3, 0.8], [0.5, 0], [1, 0.2], [0.4, 0.6]], dtype=torch.float64)
    mirrored = torch.tensor([False, True, True, False, True, True])
    found = cropped(images, side, corner, mirrored)
    for after, image, a, b, c in zip(found, images, side, corner, mirrored, strict=True):
        np.testing.assert_allclose(after, cropped_by_loop(image.numpy(), float(a), b.tolist(), bool(c)), atol=1e-12)


def test_the_whole_image_as_it_was_exposed_is_the_image():
    images, ones = pixels(), torch.ones(6, dtype=torch.float64)
    same = cropped(images, ones, torch.rand(6, 2, dtype=torch.float64), torch.zeros(6, dtype=torch.bool))
    torch.testing.assert_close(exposed(same, ones, ones), images, rtol=0, atol=1e-12)


def test_brightness_multiplies_pixels_and_contrast_their_distance_from_the_mean():
    images, brightness, contrast = pixels(), torch.linspace(0.7, 1.3, 6).double(), torch.linspace(1.3, 0.7, 6).double()
    found = exposed(images, brightness, contrast)
    for after, image, b, c in zip(found, images, brightness, contrast, strict=True):
        bright = float(b) * (image.numpy() + 1) / 2
        expected = np.clip(bright.mean() + float(c) * (bright - bright.mean()), 0, 1)
        np.testing.assert_allclose((after.numpy() + 1) / 2, expected, atol=1e-12)


def test_photos_differ_from_image_to_image_within_their_range():
    torch.manual_seed(0)
    ramp = torch.linspace(-0.5, 0.5, 50).expand(400, 3, 50, 50)  # brighter from left to right
    found = augmented(ramp.contiguous(), "photos")
    assert found.shape == ramp.shape
    assert 150 < int((found[:, 0, 0, 0] > found[:, 0, 0, -1]).sum()) < 250  # mirrored
    slope = (found[:, 0, 0, -1] - found[:, 0, 0, 0]).abs()  # side times brightness times contrast
    assert 0.8 * 0.7**2 - 0.03 < float(slope.min()) < 0.5
    assert 1.2 < float(slope.max()) < 1.3**2 + 0.03
    mean = (found.mean((1, 2, 3)) + 1) / 2
    assert 0.3 < float(mean.min()) < 0.38  # 0.7 times 0.5, less where the crop is at the dark end
    assert 0.62 < float(mean.max()) < 0.73


@pytest.mark.parametrize("how", ["turns", "photos"])
def test_the_same_random_numbers_give_the_same_images(how):
    found = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        found.append(augmented(pixels(8, 6, 6).float(), how))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("how", ["flips", "turns", "photos"])
def test_vectors_are_refused(how):
    with pytest.raises(DataError, match=f"augment {how} moves images, and these samples have 1 dimensions"):
        augmented(torch.ones(4, 6), how)


def test_oblong_images_cannot_be_turned(without_shape_checks):
    with pytest.raises(DataError, match=r"images of 7 x 4 pixels cannot be turned .*--image-size.*flips"):
        augmented(batch(height=4, width=7), "turns")


# -- in a training -----------------------------------------------------------------------------------------------------


def test_a_training_augments_training_batches_alone(monkeypatch):
    seen = []

    def watched(images, how, generator):
        seen.append((how, len(images)))
        return augmented(images, how, generator)

    monkeypatch.setattr(optimizers, "augmented", watched)
    data = material(pictures(100), train=64, validation=30)
    train(build("erm", data.dataset), data, epochs=2, augment="flips")
    assert seen == [("flips", 32)] * 4  # two batches an epoch, and no validation rows
    seen.clear()
    train(build("erm", data.dataset), data, epochs=1)
    assert seen == []


def test_features_of_a_frozen_body_are_trained_on_as_they_were_taken():
    data = material(vectors(100), train=64, validation=30)
    found = []
    for how in ("none", "turns"):
        method = build("erm", data.dataset)
        train(method, data, epochs=1, augment=how)
        found.append(weights(method))
    assert identical(*found)
