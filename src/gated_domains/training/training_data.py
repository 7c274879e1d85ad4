"""What a training reads: samples and rows, or the cached features of a backbone that stays as it is."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gated_domains import __version__
from gated_domains.backbones.backbone import Backbone, Body, CachedBackbone, View, evaluating
from gated_domains.data.batches import Samples, place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import FeatureEncoding
from gated_domains.data.errors import DataError, cache_dir, decoding, written_whole
from gated_domains.data.inputs import Features, Rows
from gated_domains.data.progress import progress
from gated_domains.data.sampling import InOrder, Shuffled
from gated_domains.layer.kernels import autocast_off
from gated_domains.methods.method import Method

LOOKED_AT = 20_000  # training rows that a method looks at between epochs


LOOK_BATCH = 512


LARGE_LOOKED_AT, LARGE_BATCH = 2_048, 128  # the same where a large body may have to run for it
MOST_BYTES = 20 * 10**9  # of all entries together


_A_WHILE = 100  # batches; fewer are done before anybody wonders


_ABANDONED = 24 * 3600  # seconds after which nobody works on a draft any more


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingData:
    """What is trained on, and the rows that select an epoch. No others are read.

    The rows held out are never among ``train``, and among ``validation`` for the oracle alone.
    """

    dataset: DomainDataset
    samples: Samples
    train: Rows
    validation: Rows


def sample_inputs(material: TrainingData, seed: int, *, large: bool = False) -> Iterator[Tensor]:
    """Training inputs for a method to look at: all, or as many as are enough, in random order."""
    rows = sample_rows(material, seed, large=large)
    return material.samples.input_batches(InOrder(rows, LARGE_BATCH if large else LOOK_BATCH))


def sample_rows(material: TrainingData, seed: int, *, large: bool = False) -> Rows:
    """Row numbers of the training inputs that ``sample_inputs`` yields."""
    order = Shuffled(material.train, LOOK_BATCH, seed=seed, drop_last=False)
    return np.concatenate(list(order.batches(0)))[: LARGE_LOOKED_AT if large else LOOKED_AT]


def has_large_body(method: nn.Module) -> bool:
    """Whether a body in it is so large that few samples at a time must do."""
    return any(isinstance(part, Body) and part.large for part in method.modules())


class Frozen(nn.Module):
    """A module that does not move: no gradients, always in evaluation mode, so no dropout and no new statistics.

    ``train()`` on it or on anything around it changes nothing. The wrapped module, itself and no copy, is ``module``.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> Frozen:
        """Stay in evaluation mode."""
        super().train(False)
        return self

    def forward(self, *inputs: Any) -> Any:
        if any(part.training for part in self.module.modules()):  # somebody reached in and called train()
            self.module.eval()
        with torch.no_grad():
            return self.module(*inputs)


def freeze(module: nn.Module) -> Frozen:
    """The module, frozen; one that is already comes back as it is."""
    return module if isinstance(module, Frozen) else Frozen(module)


class FrozenBody(Body):
    """A body that does not move, as fine-tuning stands heads on it."""

    def __init__(self, body: Body) -> None:
        nn.Module.__init__(self)
        self.frozen = freeze(body)
        self.shape, self.features = body.shape, body.features
        self.takes, self.large, self.static = body.takes, body.large, body.static
        self.vocabulary, self.pad, self.norms_by_sample = body.vocabulary, body.pad, body.norms_by_sample
        self.early = tuple(f"frozen.module.{name}" for name in body.early)

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.frozen(inputs)
        return features


@dataclass(frozen=True, eq=False)
class CachedFeatures:
    """Rows ``[features | gating]`` that are read from disk when needed; ``gating`` 0: the gates see the features."""

    values: NDArray[np.float32]
    features: int
    gating: int


def cached_features(
    backbone: nn.Module,
    samples: Samples,
    *,
    key: str,
    device: str | torch.device,
    folder: Path | None = None,
    batch_size: int = 512,
) -> CachedFeatures:
    """What the backbone, in eval mode on ``device``, gives for all samples; it runs only where nobody asked before.

    ``key`` stands for the samples: the fingerprint of the data and how they are encoded. Any change of it, of the
    backbone (``module_hash``), the kind of device or the version of torch makes a new entry.
    """
    folder = cache_dir() / "features" if folder is None else folder
    parts = (__version__, torch.__version__, torch.device(device).type, module_hash(backbone), key)
    name = hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()
    kept = _kept(folder, name, len(samples))
    if kept is not None:
        return kept
    extracted = _extracted(backbone, samples, torch.device(device), batch_size)
    with torch.no_grad(), evaluating(backbone), closing(extracted):
        path = _write(folder, name, extracted, len(samples))
    trim(folder, MOST_BYTES, keep=path)
    return _read(path, len(samples))


def module_hash(module: nn.Module) -> str:
    """A hash of all that a module's outputs depend on: its classes, their settings, and every parameter and buffer.

    The same in every process and on every device. The code of the classes is not part of it.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, part in module.named_modules(remove_duplicate=False):
        digest.update(repr((name, _named(type(part)), _places_removed(part.extra_repr()), _settings(part))).encode())
    tensors = {**module.state_dict(), **dict(module.named_buffers(remove_duplicate=False))}
    for name, value in tensors.items():
        if isinstance(value, Tensor):
            digest.update(repr((name, str(value.dtype), tuple(value.shape))).encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        else:  # the extra state that a module may have
            digest.update(_places_removed(repr((name, value))).encode())
    return digest.hexdigest()


def trim(folder: Path, most_bytes: int, *, keep: Path | None = None) -> None:
    """Remove entries, those that were not used for longest first, until the rest takes up ``most_bytes`` at most.

    ``keep`` stays in any case. What a process that died left half-written goes after a day.
    """
    entries = []
    for path in folder.glob("*.npy"):
        with suppress(OSError):  # another process may remove it meanwhile
            found = path.stat()
            if not path.name.startswith("."):
                entries.append((found.st_mtime, found.st_size, path))
            elif found.st_mtime < time.time() - _ABANDONED:
                path.unlink()
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total > most_bytes and path != keep:
            with suppress(OSError):
                path.unlink()
                total -= size


def _extracted(
    backbone: nn.Module, samples: Samples, device: torch.device, batch_size: int
) -> Generator[tuple[NDArray[np.float32], int], None, None]:
    """The rows of every batch, and how many of their columns are features."""
    start = 0
    order = InOrder(np.arange(len(samples)), batch_size)
    quiet = nullcontext(lambda steps: None)
    with quiet if len(order) < _A_WHILE else progress("extracting features", len(order)) as advance:
        for inputs in samples.input_batches(order):
            inputs = inputs.to(device)
            with autocast_off(inputs):
                view: View = backbone(inputs)
            columns = [view.features.float()] + ([] if view.gating is None else [view.gating.float()])
            rows = torch.cat(columns, dim=1).cpu().numpy()
            _refuse_non_finite(rows, start, backbone)
            start += len(rows)
            yield rows, view.features.shape[1]
            advance(1)


def _write(folder: Path, name: str, batches: Iterator[tuple[NDArray[np.float32], int]], rows: int) -> Path:
    first, features = next(batches)
    width = first.shape[1]
    path = folder / f"{name}-{features}-{width - features}.npy"
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
    # Not as a memory map: on a full disk writing to one ends the process, and this raises an error.
    with written_whole(path) as draft, open(draft, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part, _ in chain([(first, features)], batches):
            file.write(np.ascontiguousarray(part, "<f4").data)
    return path


def _kept(folder: Path, name: str, rows: int) -> CachedFeatures | None:
    """The entry of this name, where there is a whole one."""
    for path in folder.glob(f"{name}-*.npy"):
        try:
            found = _read(path, rows)
        except (DataError, FileNotFoundError):  # it is made again, or another process has just removed it
            continue
        with suppress(OSError):  # a cache that may only be read
            os.utime(path)
        return found
    return None


def _read(path: Path, rows: int) -> CachedFeatures:
    with decoding(path):
        values = np.load(path, mmap_mode="r", allow_pickle=False)
        widths = re.fullmatch(r"[0-9a-f]+-(\d+)-(\d+)", path.stem)
        if widths is None:
            raise DataError(f"{path} is no entry of the feature cache")
        features, gating = int(widths[1]), int(widths[2])
        form = (values.dtype, values.shape, values.flags.c_contiguous, path.stat().st_size)
        if form != (np.float32, (rows, features + gating), True, values.offset + values.nbytes):
            raise DataError(f"{path} has {values.dtype} of shape {values.shape}")
    return CachedFeatures(values, features, gating)


def _refuse_non_finite(rows: NDArray[np.float32], start: int, backbone: nn.Module) -> None:
    finite = np.isfinite(rows)
    if finite.all():
        return
    row, column = (int(place) for place in np.argwhere(~finite)[0])
    broken = [name for name, value in backbone.state_dict().items() if _not_finite(value)]
    cause = (
        f"its weights are not finite ({broken[0]}): the training that made them went astray; train the backbone again"
        if broken
        else "its weights are finite, so the sample lies far outside what it was trained on: look at that row"
    )
    raise DataError(f"the backbone makes {rows[row, column]} of row {start + row} (column {column}); {cause}")


def _not_finite(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and not bool(value.isfinite().all())


def _settings(module: nn.Module) -> list[str]:
    """Plain public attributes, such as a stride that ``extra_repr`` does not tell."""
    public = {name: value for name, value in vars(module).items() if name != "training" and not name.startswith("_")}
    return [f"{name}={_plain(value)}" for name, value in sorted(public.items()) if _plain(value) is not None]


def _plain(value: Any) -> str | None:
    if isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        items = [_plain(item) for item in value]
        return None if None in items else f"({', '.join(map(str, items))})"
    return _named(value) if hasattr(value, "__qualname__") else None  # a function or a class


def _named(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '')}.{thing.__qualname__}"


def _places_removed(text: str) -> str:
    """Without addresses in memory and names of devices, which differ from process to process."""
    return re.sub(r" at 0x[0-9a-fA-F]+| \(\w+:\d+\)|\.cuda(?=\.\w+Tensor)", "", text)


@contextmanager
def on_cached_features(method: Method, material: TrainingData, *, key: str, seed: int) -> Iterator[TrainingData]:
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
        whole.fit_view(sample_inputs(material, seed, large=large))
    batch_size = LARGE_BATCH if large else LOOK_BATCH
    cache = cached_features(whole, material.samples, key=key, device=device, batch_size=batch_size)
    dataset = material.dataset.with_inputs(Features(cache.values))
    samples = place(dataset, FeatureEncoding(cache.values.shape[1]), device=device)
    method.backbone = CachedBackbone(cache.features, cache.gating)
    try:
        yield replace(material, dataset=dataset, samples=samples)
    finally:
        method.backbone = whole
