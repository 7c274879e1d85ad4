"""Augmentation of images on their device: mirrored, turned by right angles, or cropped and exposed as photographs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from gated_domains.data.errors import DataError

_SMALLEST_CROP = 0.8  # of a side
_JITTER = 0.3  # of brightness and contrast


def augmented(images: Tensor, how: str, generator: torch.Generator | None = None) -> Tensor:
    """Images augmented at random, each by itself.

    "flips" mirrors half of the images. "turns" turns them by a multiple of 90 degrees and mirrors half. "photos" crops
    80 to 100 % of each side, resized to the whole image, mirrors half, and changes brightness and contrast by up to
    30 %. Sizes stay as they are, and the host never waits for the device.
    """
    if images.ndim != 4:
        raise DataError(
            f"augment {how} moves images, and these samples have {images.ndim - 1} dimensions; leave it out"
        )
    if how == "photos":
        return _random_photos(images, generator)
    if how == "turns":
        images = turned(images, torch.randint(4, (len(images),), device=images.device, generator=generator))
    mirrored = torch.rand(len(images), device=images.device, generator=generator) < 0.5
    return torch.where(_for_images(mirrored), images.flip(-1), images)


def cropped(
    images: Float[Tensor, "batch channels height width"],
    side: Float[Tensor, " batch"],
    corner: Float[Tensor, "batch 2"],
    mirrored: Bool[Tensor, " batch"],
) -> Float[Tensor, "batch channels height width"]:
    """A window of each image, resized to the whole image (bilinear), from left to right or mirrored.

    Parameters
    ----------
    images
        Of any size.
    side
        Height and width of the window as shares of the image's.
    corner
        Where the window lies across and down: 0 at the left or top edge, 1 at the right or bottom edge.
    mirrored
        Which images are mirrored.
    """
    height, width = images.shape[2:]
    centre = (1 - side).unsqueeze(1) * (2 * corner - 1)  # of the window, in an image from -1 to 1
    direction = torch.where(mirrored, -side, side)
    # Not affine_grid, which multiplies matrices: in TF32 that would move pixels.
    across = centre[:, :1] + direction.unsqueeze(1) * _pixel_centres(width, images)
    down = centre[:, 1:] + side.unsqueeze(1) * _pixel_centres(height, images)
    grid = torch.stack(torch.broadcast_tensors(across.unsqueeze(1), down.unsqueeze(2)), dim=3)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def exposed(
    images: Float[Tensor, "batch channels height width"],
    brightness: Float[Tensor, " batch"],
    contrast: Float[Tensor, " batch"],
) -> Float[Tensor, "batch channels height width"]:
    """Images with other brightness and contrast, clamped to the range of pixels.

    For pixels u from 0 to 1: ``v = brightness * u``, then ``contrast * v + (1 - contrast) * mean(v)``, with the mean
    over channels and positions. The images themselves are from -1 to 1.
    """
    pixels = _for_images(brightness) * (images + 1) / 2
    mean = pixels.mean((1, 2, 3), keepdim=True)
    return torch.lerp(mean, pixels, _for_images(contrast)).clamp(0, 1) * 2 - 1


def turned(
    images: Float[Tensor, "batch channels side side"], quarters: Tensor
) -> Float[Tensor, "batch channels side side"]:
    """Each image turned by its number of right angles."""
    if images.shape[-1] != images.shape[-2]:
        raise DataError(
            f"images of {images.shape[-1]} x {images.shape[-2]} pixels cannot be turned by right angles; "
            "make them square (--image-size), or augment by flips"
        )
    found = images
    for quarter in (1, 2, 3):
        found = torch.where(_for_images(quarters == quarter), images.rot90(quarter, (2, 3)), found)
    return found


def _random_photos(images: Tensor, generator: torch.Generator | None) -> Tensor:
    draws = torch.rand(6, len(images), device=images.device, generator=generator).to(images.dtype)
    side, across, down, mirror, brightness, contrast = draws
    side = _SMALLEST_CROP + (1 - _SMALLEST_CROP) * side
    images = cropped(images, side, torch.stack((across, down), dim=1), mirror < 0.5)
    return exposed(images, 1 + _JITTER * (2 * brightness - 1), 1 + _JITTER * (2 * contrast - 1))


def _pixel_centres(count: int, like: Tensor) -> Tensor:
    """Centres of ``count`` pixels, in coordinates from -1 to 1."""
    return (2 * torch.arange(count, device=like.device, dtype=like.dtype) + 1) / count - 1


def _for_images(of_each: Tensor) -> Tensor:
    return of_each.reshape(-1, 1, 1, 1)
