"""Fourier mixing against a loop from the formula, and what it promises of the images that it makes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gated_domains.data.batches import DomainBatch
from gated_domains.data.encoding import ImageEncoding
from gated_domains.data.errors import DataError
from gated_domains.layer.experts import Prediction
from gated_domains.methods import ERM, Classes, Method
from gated_domains.methods.method import Terms
from gated_domains.training.callbacks.ema import training_inputs
from gated_domains.training.mixing import FourierMix, mix_amplitudes
from small_trainings import CLASSES, build, material, pictures, training


def images(rows: int = 4, channels: int = 3, height: int = 8, width: int = 8, seed: int = 0) -> torch.Tensor:
    return torch.rand(rows, channels, height, width, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def batch(rows: int = 32) -> DomainBatch:
    return DomainBatch(images(rows), torch.arange(rows) % 3, torch.arange(rows) % 2)


def slow_mix(pixels: np.ndarray, partners: list[int], shares: list[float], black: float) -> np.ndarray:
    """The formula, one image and one channel at a time, with whole spectra."""
    found = np.empty_like(pixels)
    for i, (k, share) in enumerate(zip(partners, shares, strict=True)):
        for channel in range(pixels.shape[1]):
            own = np.fft.fft2(pixels[i, channel] - black)
            other = np.fft.fft2(pixels[k, channel] - black)
            amplitude = (1 - share) * np.abs(own) + share * np.abs(other)
            found[i, channel] = np.fft.ifft2(amplitude * np.exp(1j * np.angle(own))).real + black
    return found


@given(
    rows=st.integers(1, 4),
    channels=st.integers(1, 5),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_it_is_the_formula_for_images_of_any_size_and_number_of_channels(rows, channels, height, width, seed):
    x = images(rows, channels, height, width, seed).double()
    draw = np.random.default_rng(seed)
    partners, shares = draw.integers(rows, size=rows).tolist(), draw.random(rows).tolist()
    found = mix_amplitudes(x, torch.tensor(partners), torch.tensor(shares, dtype=torch.float64), black=-1.0)
    np.testing.assert_allclose(found.numpy(), slow_mix(x.numpy(), partners, shares, -1.0), atol=1e-9)


def smooth_pictures(side: int) -> torch.Tensor:
    """Four discs with soft edges, in 256 grey values, as most of a drawing or a photograph is."""
    across, centres = torch.linspace(0, 1, side), torch.tensor([0.3, 0.45, 0.55, 0.7])
    far = (across - centres.reshape(-1, 1, 1)).square() + (across.reshape(-1, 1) - 0.47).square()
    return (255 * (-20 * far).exp()).round().unsqueeze(1) / 127.5 - 1


@pytest.mark.parametrize("kind", [images, smooth_pictures], ids=["noise", "smooth"])
@pytest.mark.parametrize("side", [8, 32, 64, 160, 224, 251])
def test_the_phase_is_kept_above_1e_3_and_the_amplitude_lies_between_the_two(side, kind):
    x = images(height=side, width=side) if kind is images else smooth_pictures(side)
    partners, shares = torch.tensor([1, 2, 3, 0]), torch.tensor([0.1, 0.5, 0.9, 1.0])
    mixed = mix_amplitudes(x, partners, shares, black=-1.0)
    before, after = (torch.fft.fft2(part.double() + 1) for part in (x, mixed))
    own, other = before.abs(), before.abs()[partners]
    seen = (own > 1e-3) & (torch.lerp(own, other, shares.double().reshape(-1, 1, 1, 1)) > 1e-3)
    assert seen.double().mean() > 0.9
    assert torch.angle(after * before.conj())[seen].abs().max() < 0.1
    assert (after.abs() <= (1 + 1e-6) * torch.maximum(own, other) + 1e-3).all()
    assert (after.abs() >= (1 - 1e-6) * torch.minimum(own, other) - 1e-3).all()


def test_the_mean_of_a_channel_lies_between_those_of_the_two_images():
    x, partners, shares = images(), torch.tensor([1, 2, 3, 0]), torch.tensor([0.2, 0.5, 0.8, 1.0])
    means = x.mean((2, 3))
    found = mix_amplitudes(x, partners, shares, black=-1.0).mean((2, 3))
    wanted = torch.lerp(means, means[partners], shares.unsqueeze(1))
    assert torch.allclose(found, wanted, atol=1e-5)


def test_without_a_value_for_black_it_is_the_minimum_of_each_channel():
    x = images() * torch.tensor([1.0, 5.0, 0.1]).reshape(1, 3, 1, 1)
    partners, shares = torch.tensor([1, 2, 3, 0]), torch.full((4,), 0.7)
    found = mix_amplitudes(x, partners, shares)
    for channel in range(3):
        alone, black = x[:, channel : channel + 1], float(x[:, channel].min())
        wanted = mix_amplitudes(alone, partners, shares, black=black)
        assert torch.allclose(found[:, channel : channel + 1], wanted, atol=1e-5)


def test_probability_0_and_share_0_change_nothing_and_targets_stay():
    x = batch()
    same = FourierMix(0.0, black=-1.0)(x)
    assert torch.equal(same.inputs, x.inputs)
    mixed = FourierMix(1.0, black=-1.0)(x)
    assert not torch.equal(mixed.inputs, x.inputs)
    assert mixed.targets is x.targets
    assert mixed.domains is x.domains


def test_about_as_many_images_are_mixed_as_the_probability_says():
    x = batch(2_000)
    torch.manual_seed(0)
    mixed = FourierMix(0.3, black=-1.0)(x).inputs
    share = (mixed != x.inputs).flatten(1).any(1).float().mean()
    assert 0.26 < share < 0.34


def test_the_same_seed_gives_the_same_batch_and_another_another():
    def made(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return FourierMix(0.9, black=-1.0)(batch()).inputs

    assert torch.equal(made(1), made(1))
    assert not torch.equal(made(1), made(2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_half_precision_is_mixed_in_float32_and_stays_finite(dtype):
    x = images(16, height=32, width=32).to(dtype)
    partners, shares = torch.arange(16).roll(1), torch.linspace(0, 1, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = mix_amplitudes(x, partners, shares, black=-1.0)
    assert found.dtype == dtype
    assert found.isfinite().all()
    wanted = mix_amplitudes(x.float(), partners, shares, black=-1.0)
    assert torch.allclose(found.float(), wanted, atol=2e-2)


def test_a_black_image_stays_black_rather_than_getting_a_phase_from_nowhere():
    x = torch.stack([torch.full((1, 4, 4), -1.0), images(1, 1, 4, 4)[0]])
    found = mix_amplitudes(x, torch.tensor([1, 0]), torch.tensor([0.5, 0.5]), black=-1.0)
    assert torch.allclose(found[0], x[0])


def test_a_training_knows_the_value_of_black_unless_images_are_standardised():
    prepared = material(pictures(100), train=64, validation=30)
    run = training(build("erm", prepared.dataset), prepared, epochs=1, fourier_mix=0.5)
    black = prepared.samples.encoding.tensor(torch.zeros(1, 8, 8, 3, dtype=torch.uint8))
    assert black.unique().tolist() == [run.update.fourier.black]
    assert ImageEncoding(8, 8, 3, standardise=True).black is None


class Own(Method):
    """A method as a user may write it, on a network that is no backbone of ours."""

    name = label = what = "own"
    build = ERM.build

    def __init__(self) -> None:
        super().__init__(Classes())
        self.backbone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8 * 8 * 3, CLASSES))
        self.seen: list[torch.Tensor] = []

    def objective(self, batch: DomainBatch) -> Terms:
        self.seen.append(batch.inputs)
        return {"task": torch.nn.functional.cross_entropy(self.backbone(batch.inputs), batch.targets)}

    def predict(self, inputs: torch.Tensor) -> Prediction:
        return Prediction(output=self.backbone(inputs).softmax(-1))


@pytest.mark.parametrize("parts", [1, 2])
def test_images_are_mixed_for_a_method_with_any_network(parts):
    seen, images = [], material(pictures(100), train=64, validation=30)
    for probability in (None, 1.0):
        method = Own()
        training(method, images, epochs=1, fourier_mix=probability, accumulate=parts).fit()
        seen.append(torch.cat(method.seen))
    assert seen[0].shape == seen[1].shape
    assert not torch.equal(*seen)


@pytest.mark.parametrize("switch", [{"fourier_mix": 1.0}, {"augment": "photos"}], ids=str)
def test_averaged_weights_take_norm_statistics_from_images_as_they_are_trained_on(switch):
    prepared = material(pictures(100), train=64, validation=30)
    run = training(build("erm", prepared.dataset), prepared, epochs=1, ema=0.9, **switch, precision="32")
    run.fit()
    conv, norm = run.method.backbone.body.blocks[0][:2]

    def mean(inputs):
        with torch.no_grad():
            return conv(torch.cat(list(inputs))).mean((0, 2, 3))

    torch.testing.assert_close(norm.running_mean, mean(training_inputs(run)), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(norm.running_mean, mean(run.sample_inputs()), rtol=1e-4, atol=1e-5)


def test_a_probability_above_1_is_refused():
    with pytest.raises(DataError, match=r"probability.*0 to 1, got 1\.5"):
        FourierMix(1.5)


@pytest.mark.parametrize("side", [7, 28, 32, 35, 97, 179, 224])
def test_a_flat_image_and_a_ramp_stay_so_whatever_rounding_leaves_in_their_spectra(side):
    greys = torch.tensor([0.0, 37, 100, 128, 200, 255]).reshape(-1, 1, 1, 1).expand(-1, 1, side, side)
    ramp = torch.linspace(0, 255, side).round().expand(1, 1, side, side)
    x = torch.cat([torch.cat([greys, ramp]) / 127.5 - 1, images(1, 1, side, side)])
    found = mix_amplitudes(x, torch.full((8,), 7), torch.full((8,), 0.5), black=-1.0)
    grey_value = 1 / 127.5
    assert found[:6].flatten(1).std(1).max() < grey_value / 2
    assert found[6].std(-2).max() < grey_value / 2
