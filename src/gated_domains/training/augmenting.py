"""Augmentation of images on their device: mirrored, or turned by right angles and mirrored."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from gated_domains.data.batches import DomainBatch
from gated_domains.data.errors import DataError


def augmented(batch: DomainBatch, how: str) -> DomainBatch:
    """The batch with each image mirrored by chance ("flips"), or turned by a multiple of 90 degrees first ("turns")."""
    images = batch.inputs
    if images.ndim != 4:
        raise DataError(
            f"augment {how} moves images, and these samples have {images.ndim - 1} dimensions; leave it out"
        )
    if how == "turns":
        images = turned(images, torch.randint(4, (len(images),), device=images.device))
    mirrored = torch.rand(len(images), device=images.device) < 0.5
    return replace(batch, inputs=torch.where(_for_images(mirrored), images.flip(-1), images))


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


def _for_images(of_each: Tensor) -> Tensor:
    return of_each.reshape(-1, 1, 1, 1)
