"""Fourier mixing: the amplitude spectrum of an image is mixed with another's, and its phase is kept.

Amplitudes carry style (colours, contrast, texture), phases carry shapes. Mixing them gives styles between those of the
sources, which no source shows. The mix is made at the input, so gates see the mixed style too.

Q. Xu, R. Zhang, Y. Zhang, Y. Wang and Q. Tian (2021), "A Fourier-based framework for domain generalization" (FACT).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError
from gated_domains.layer.kernels import at_least_float32, autocast_off

_ROUNDING = 0.7  # of the largest amplitude times the machine's precision: smaller ones are rounding errors


def mix_amplitudes(
    images: Float[Tensor, "batch channels height width"],
    partners: Int64[Tensor, " batch"],
    shares: Float[Tensor, " batch"],
    *,
    black: float | None = None,
) -> Float[Tensor, "batch channels height width"]:
    """``A' = (1 - l) |F(x_i)| + l |F(x_k)|`` with the phase of ``F(x_i)``, per channel over the image.

    Parameters
    ----------
    images
        Of any size and number of channels.
    partners
        Index k of the image whose amplitudes are mixed into each image i.
    shares
        l, between 0 and 1; an image with l = 0 is returned unchanged.
    black
        The value of a black pixel, None: the minimum of each channel over the batch. Spectra are those of
        ``images - black``: where pixels can be negative, the phase of the mean is a sign, and mixing could flip it.

    Notes
    -----
    A coefficient that is 0 up to rounding error has no phase and becomes 0. The mean of an image is mixed by itself, as
    beside it smaller coefficients would be lost in rounding. Spectra are computed in float32 at least. The result is
    not clamped.
    """
    with autocast_off(images):
        values = at_least_float32(images)
        floor = values.amin((0, 2, 3), keepdim=True) if black is None else black
        share = shares.to(values.dtype).reshape(-1, 1, 1, 1)
        means = (values - floor).mean((2, 3), keepdim=True)
        mixed_means = torch.lerp(means.abs(), means.abs().index_select(0, partners), share) * means.sgn()
        spectra = torch.fft.rfft2(values - floor - means)
        amplitudes = spectra.abs()
        rounding = _ROUNDING * torch.finfo(values.dtype).eps * amplitudes.amax((2, 3), keepdim=True)
        phases = torch.sgn(spectra) * (amplitudes > rounding)
        mixed_spectra = torch.lerp(amplitudes, amplitudes.index_select(0, partners), share) * phases
        mixed = torch.fft.irfft2(mixed_spectra, s=values.shape[-2:]) + mixed_means + floor
        return torch.where(share > 0, mixed, values).to(images.dtype)


class FourierMix:
    """Mixes each image of a batch, with a probability, with a random image of it; shares are uniform on [0, 1].

    Random numbers come from torch's generator of the images' device and nothing waits for that device, so that a
    recorded step draws new ones at each replay.
    """

    def __init__(self, probability: float, *, black: float | None = None) -> None:
        if not 0 <= probability <= 1:
            raise DataError(f"fourier_mix is the probability that an image is mixed, 0 to 1, got {probability}")
        self.probability, self.black = probability, black

    def __call__(self, batch: DomainBatch) -> DomainBatch:
        """The same samples, some of them in mixed styles; targets and domains are theirs."""
        return replace(batch, inputs=self.mix(batch.inputs))

    def notes(self, world: int) -> tuple[str, ...]:
        """What differs from one process with the same batch."""
        return (
            (f"with {world} processes, images are mixed within each process's share of a batch",) if world > 1 else ()
        )

    def mix(
        self, images: Float[Tensor, "batch channels height width"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "batch channels height width"]:
        """The images, some of them in mixed styles."""
        draws, shares, order = torch.rand(3, len(images), device=images.device, generator=generator)
        partners = order.argsort()  # not randperm, which makes the host wait for a GPU
        return mix_amplitudes(images, partners, shares * (draws < self.probability), black=self.black)
