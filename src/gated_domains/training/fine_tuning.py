"""Fine-tuning: features of a frozen body are taken once, and heads are trained on those."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from torch import Tensor

from gated_domains.backbones.backbone import Backbone
from gated_domains.backbones.cached import CachedBackbone
from gated_domains.data.batches import Samples, place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import FeatureEncoding
from gated_domains.data.inputs import Features, Rows
from gated_domains.methods.method import Method
from gated_domains.training.feature_cache import cached_features, module_hash, placed_features
from gated_domains.training.material import LARGE_BATCH, LOOK_BATCH, Material, has_large_body, looks


@contextmanager
def on_cached_features(
    method: Method, material: Material, *, key: str, seed: int, tables: FeatureTables | None = None
) -> Iterator[Material]:
    """Inside, the method has a feature cache in place of its backbone, and the material is the cache.

    The backbone runs once over all samples, in eval mode, or not at all where the cache knows it: ``key`` stands for
    the data and their encoding. Heads that share ``tables`` share the samples of a backbone, too. After the block the
    method has its backbone again, untouched.
    """
    whole = method.backbone
    assert isinstance(whole, Backbone)
    device = material.samples.device
    whole.to(device)
    large = has_large_body(whole)
    if whole.gating is not None:
        whole.fit_view(looks(material, seed, large=large))
    batch_size = LARGE_BATCH if large else LOOK_BATCH
    tables = FeatureTables() if tables is None else tables
    dataset, samples, backbone = tables.of(whole, material, key=key, batch_size=batch_size)
    method.backbone = backbone
    try:
        yield replace(material, dataset=dataset, samples=samples)
    finally:
        method.backbone = whole


class FeatureTables:
    """Features that several heads are trained on, of each backbone once: ready samples, with the data set of them.

    ``on_device`` leaves them on a GPU alone, where they were made; else they come from the cache on disk.
    """

    def __init__(self, *, on_device: bool = False) -> None:
        self.on_device = on_device
        self._made: dict[tuple[str, str], tuple[DomainDataset, Samples, int, int]] = {}

    def of(
        self, backbone: Backbone, material: Material, *, key: str, batch_size: int
    ) -> tuple[DomainDataset, Samples, CachedBackbone]:
        """The features of a backbone, and what stands in its place for a head on them."""
        name = (module_hash(backbone), key)
        if name not in self._made:
            make = self._placed if self.on_device and material.samples.device.type == "cuda" else self._cached
            self._made[name] = make(backbone, material, key, batch_size)
        dataset, samples, features, gating = self._made[name]
        return dataset, samples, CachedBackbone(features, gating)

    def _cached(
        self, backbone: Backbone, material: Material, key: str, batch_size: int
    ) -> tuple[DomainDataset, Samples, int, int]:
        device = material.samples.device
        cache = cached_features(backbone, material.samples, key=key, device=device, batch_size=batch_size)
        dataset = material.dataset.with_inputs(Features(cache.values))
        samples = place(dataset, FeatureEncoding(cache.values.shape[1]), device=device)
        return dataset, samples, cache.features, cache.gating

    def _placed(
        self, backbone: Backbone, material: Material, key: str, batch_size: int
    ) -> tuple[DomainDataset, Samples, int, int]:
        device = material.samples.device
        made = placed_features(backbone, material.samples, device=device, batch_size=batch_size)
        return material.dataset, PlacedSamples(material.dataset, made.values), made.features, made.gating


class PlacedSamples(Samples):
    """Features that lie on a device, as samples of the data set that they were made of."""

    resident = True

    def __init__(self, dataset: DomainDataset, values: Tensor) -> None:
        super().__init__(dataset, FeatureEncoding(values.shape[1]), device=values.device, workers=0)
        self.values = values

    def _raw(self, order: Sequence[Rows], picks: Sequence[Tensor]) -> Iterator[Tensor]:
        return (self.values.index_select(0, pick) for pick in picks)
