"""Images mirrored and turned: each a turn that numpy makes of it, all of them as often, and nothing else touched."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.training import loop
from gated_domains.training.augmenting import augmented, turned
from small_trainings import build, identical, material, pictures, train, vectors, weights


def batch(rows: int = 64, *, height: int = 5, width: int = 5) -> DomainBatch:
    images = torch.arange(float(rows * 2 * height * width)).reshape(rows, 2, height, width)
    return DomainBatch(images, torch.arange(rows) % 3, torch.arange(rows) % 2, 4)


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
    counted = found_among(augmented(whole, "flips").inputs, whole.inputs, FLIPS)
    assert 150 < counted["mirrored"] < 250


def test_turns_are_the_eight_ways_a_square_can_lie_each_as_often():
    whole = batch(800)
    counted = found_among(augmented(whole, "turns").inputs, whole.inputs, TURNS)
    assert set(counted) == set(TURNS)
    assert all(60 < count < 140 for count in counted.values())


def test_each_image_is_turned_by_its_own_number_of_right_angles():
    images, quarters = batch(40).inputs, torch.arange(40) % 4
    found = turned(images, quarters)
    for image, quarter, after in zip(images, quarters, found, strict=True):
        assert np.array_equal(np.rot90(image.numpy(), int(quarter), (1, 2)), after.numpy())


@pytest.mark.parametrize("how", ["flips", "turns"])
def test_targets_domains_blocks_and_the_images_handed_in_stay_as_they_are(how):
    whole = batch()
    before = whole.inputs.clone()
    found = augmented(whole, how)
    assert torch.equal(whole.inputs, before)
    assert found.targets is whole.targets
    assert found.domains is whole.domains
    assert found.blocks == 4
    assert found.inputs.dtype == before.dtype


def test_the_same_random_numbers_give_the_same_images():
    found = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        found.append(augmented(batch(), "turns").inputs)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("how", ["flips", "turns"])
def test_vectors_are_refused(how):
    vector = DomainBatch(torch.ones(4, 6), torch.zeros(4), None)
    with pytest.raises(DataError, match=f"augment {how} moves images, and these samples have 1 dimensions"):
        augmented(vector, how)


def test_oblong_images_cannot_be_turned(without_shape_checks):
    with pytest.raises(DataError, match=r"images of 7 x 4 pixels cannot be turned .*--image-size.*flips"):
        augmented(batch(height=4, width=7), "turns")


# -- in a training -----------------------------------------------------------------------------------------------------


def test_a_training_augments_training_batches_alone(monkeypatch):
    seen = []

    def watched(batch: DomainBatch, how: str) -> DomainBatch:
        seen.append((how, len(batch)))
        return augmented(batch, how)

    monkeypatch.setattr(loop, "augmented", watched)
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
