"""Fine-tuning: features of a frozen body are taken once, and heads are trained on those."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from gated_domains.backbones.backbone import Backbone, CachedBackbone
from gated_domains.data.batches import place
from gated_domains.data.encoding import FeatureEncoding
from gated_domains.data.inputs import Features
from gated_domains.methods.method import Method
from gated_domains.training.feature_cache import cached_features
from gated_domains.training.material import LARGE_BATCH, LOOK_BATCH, Material, has_large_body, looks


@contextmanager
def on_cached_features(method: Method, material: Material, *, key: str, seed: int) -> Iterator[Material]:
    """Inside, the method has a feature cache in place of its backbone, and the material is the cache.

    The backbone runs once over all samples, in eval mode, or not at all where the cache knows it: ``key`` stands for
    the data and their encoding. After the block the method has its backbone again, untouched.
    """
    whole = method.backbone
    assert isinstance(whole, Backbone)
    device = material.samples.device
    whole.to(device)
    large = has_large_body(whole)
    if whole.gating is not None:
        whole.fit_view(looks(material, seed, large=large))
    batch_size = LARGE_BATCH if large else LOOK_BATCH
    cache = cached_features(whole, material.samples, key=key, device=device, batch_size=batch_size)
    dataset = material.dataset.with_inputs(Features(cache.values))
    samples = place(dataset, FeatureEncoding(cache.values.shape[1]), device=device)
    method.backbone = CachedBackbone(cache.features, cache.gating)
    try:
        yield replace(material, dataset=dataset, samples=samples)
    finally:
        method.backbone = whole
