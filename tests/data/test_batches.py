"""Batches against a loop over samples: resident and streamed alike, in the sampler's order, errors as they were."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from gated_domains.data import batches as module
from gated_domains.data.batches import DomainBatch, ResidentSamples, Samples, StreamedSamples, fits, place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import FeatureEncoding, ImageEncoding
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features, Inputs, Rows
from gated_domains.data.readers.folders import ImageFiles
from gated_domains.data.sampling import DomainBalanced, InOrder, Shuffled

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Lazy(Inputs):
    """Samples that are not in memory as an array. Row 13 may be broken."""

    kind = "images"

    def __init__(self, values: np.ndarray, broken: Exception | None = None) -> None:
        self.values, self.broken = values, broken

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def read(self, rows: Rows) -> np.ndarray:
        if self.broken is not None and 13 in rows:
            raise self.broken
        return self.values[rows]

    def digests(self) -> np.ndarray:
        raise NotImplementedError

    def take(self, rows: Rows) -> "Lazy":
        return Lazy(self.values[rows], self.broken)


IMAGES = np.random.default_rng(0).integers(0, 256, size=(40, 4, 5, 3), dtype=np.uint8)
ENCODING = ImageEncoding(4, 5, 3)


def images(**more: Any) -> DomainDataset:
    return DomainDataset.from_arrays(IMAGES, np.arange(40) % 3, np.arange(40) % 4, **more)


def lazy(broken: Exception | None = None) -> DomainDataset:
    return images().with_inputs(Lazy(IMAGES, broken))


def slow_image(row: int) -> list[list[list[float]]]:
    """Bytes 0 to 255 -> -1 to 1, channels first, number by number."""
    return [[[IMAGES[row, i, j, c] / 127.5 - 1 for j in range(5)] for i in range(4)] for c in range(3)]


def check(samples: Samples, sampler: Any, epoch: int = 0) -> None:
    """Every batch is what a loop over its rows says."""
    expected = list(sampler.batches(epoch))
    found = list(samples.batches(sampler, epoch))
    assert len(found) == len(expected) == len(sampler)
    for batch, rows in zip(found, expected, strict=True):
        assert batch.inputs.dtype == torch.float32
        assert batch.targets.dtype == batch.domains.dtype == torch.int64
        np.testing.assert_allclose(batch.inputs.cpu().numpy(), [slow_image(row) for row in rows], atol=1e-6)
        assert batch.targets.tolist() == [row % 3 for row in rows]
        assert batch.domains.tolist() == [row % 4 for row in rows]


SAMPLER = DomainBalanced(np.arange(3, 33), np.arange(40) % 4, 7, seed=0)


@pytest.mark.parametrize(("resident", "workers"), [(True, 0), (False, 0), (False, 2), (True, 2)])
def test_batches_are_those_of_a_loop_however_they_are_read(resident, workers, monkeypatch):
    monkeypatch.setattr(module, "_TOGETHER", 400)  # of 2,400 bytes in all
    for dataset in (images(), lazy()):
        samples = place(dataset, ENCODING, resident=resident, workers=workers)
        assert samples.resident is resident
        assert len(samples) == 40
        check(samples, SAMPLER, epoch=0)
        check(samples, SAMPLER, epoch=3)


@pytest.mark.parametrize("resident", [True, False])
def test_an_epoch_can_be_taken_up_where_it_was_left(resident):
    samples = place(images(), ENCODING, resident=resident)
    whole = list(samples.batches(SAMPLER, 3))
    rest = list(samples.batches(SAMPLER, 3, start=2))
    assert len(rest) == len(whole) - 2
    for one, other in zip(rest, whole[2:], strict=True):
        torch.testing.assert_close(one.inputs, other.inputs)
        torch.testing.assert_close(one.targets, other.targets)
    assert list(samples.batches(SAMPLER, 3, start=len(whole))) == []


def test_a_short_last_batch_comes_as_it_is():
    for resident in (True, False):
        samples = place(images(), ENCODING, resident=resident)
        assert [len(batch) for batch in samples.batches(InOrder(np.arange(10), 4))] == [4, 4, 2]


def test_numbers_to_predict_are_floats_and_unknown_domains_none():
    values = np.random.default_rng(0).normal(size=(20, 3))
    dataset = DomainDataset.from_arrays(values, np.linspace(0, 1, 20), task="regression")
    for resident in (True, False):
        batch = next(place(dataset, FeatureEncoding(3), resident=resident).batches(InOrder(np.arange(20), 20)))
        assert batch.domains is None
        assert batch.targets.dtype == batch.inputs.dtype == torch.float32
        np.testing.assert_array_equal(batch.inputs.numpy(), values.astype(np.float32))
        np.testing.assert_array_equal(batch.targets.numpy(), np.linspace(0, 1, 20).astype(np.float32))


def test_bytes_stay_bytes_and_an_array_in_memory_is_not_copied():
    dataset = images()
    samples = place(dataset, ENCODING, resident=True)
    assert samples.values.dtype == torch.uint8
    assert samples.values.data_ptr() == dataset.inputs.values.ctypes.data


def test_all_batches_draw_from_one_tensor_and_may_be_changed_without_harm():
    values = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    before = values.copy()
    samples = place(DomainDataset.from_arrays(values, np.arange(20) % 2), FeatureEncoding(3))
    train, validation = InOrder(np.arange(15), 5), InOrder(np.arange(15, 20), 5)
    for batch in [*samples.batches(train), *samples.batches(validation)]:
        batch.inputs.zero_()
        batch.targets.zero_()
    np.testing.assert_array_equal(values, before)
    assert next(samples.batches(InOrder(np.arange(4), 4))).targets.tolist() == [0, 1, 0, 1]


def test_an_array_that_must_not_be_written_to_is_read_without_a_warning(recwarn):
    values = np.ones((4, 3), np.float32)
    values.flags.writeable = False
    turned = np.arange(12.0).reshape(4, 3)[::-1]
    for array in (values, turned):
        samples = place(DomainDataset.from_arrays(array, [0, 1, 0, 1]), FeatureEncoding(3))
        np.testing.assert_array_equal(next(samples.batches(InOrder(np.arange(4), 4))).inputs.numpy(), array)
    assert not recwarn.list


@pytest.mark.parametrize("resident", [True, False])
def test_several_epochs_may_be_under_way_at_a_time(resident):
    samples = place(lazy(), ENCODING, resident=resident, workers=0)
    forward, backward = (samples.batches(InOrder(rows.copy(), 4)) for rows in (np.arange(40), np.arange(40)[::-1]))
    for start, (one, other) in enumerate(zip(forward, backward, strict=True)):
        assert one.targets.tolist() == [row % 3 for row in range(4 * start, 4 * start + 4)]
        assert other.targets.tolist() == [(39 - row) % 3 for row in range(4 * start, 4 * start + 4)]


def test_inputs_are_prepared_once():
    class Counting(FeatureEncoding):
        calls = 0

        def prepare(self, inputs: Inputs) -> Inputs:
            Counting.calls += 1
            return Features(2 * inputs.values)

    samples = place(DomainDataset.from_arrays(np.eye(4), [0, 1, 0, 1]), Counting(4))
    for epoch in range(3):
        assert next(samples.batches(InOrder(np.arange(4), 4), epoch)).inputs.trace() == 8
    assert Counting.calls == 1


# Reading in other processes


@pytest.fixture
def no_process_left() -> Iterator[None]:
    yield
    for child in multiprocessing.active_children():
        child.join(10)
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "error", [DataError("b/7/x.png: the image is cut off; replace it"), FileNotFoundError(2, "No such file", "x.png")]
)
def test_an_error_of_the_data_comes_back_as_it_was(error, workers):
    samples = place(lazy(error), ENCODING, resident=False, workers=workers)
    found = samples.batches(InOrder(np.arange(40), 5))
    assert [len(next(found)) for _ in range(2)] == [5, 5]
    with pytest.raises(type(error)) as caught:
        next(found)
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    with pytest.raises(type(error)):
        place(lazy(error), ENCODING, resident=True, workers=workers)


@pytest.mark.usefixtures("no_process_left")
def test_an_epoch_left_half_way_leaves_no_process_and_the_next_is_whole():
    samples = place(lazy(), ENCODING, resident=False, workers=2)
    epoch = samples.batches(SAMPLER, 1)
    next(epoch)
    epoch.close()
    check(samples, SAMPLER, 1)


@pytest.mark.parametrize("workers", [0, 1])
def test_reading_does_not_move_the_global_random_state(workers):
    samples = place(lazy(), ENCODING, resident=False, workers=workers)
    before = torch.random.get_rng_state()
    list(samples.batches(SAMPLER, 0))
    assert torch.equal(before, torch.random.get_rng_state())


def test_image_files_are_read_by_processes(tmp_path: Path):
    for row, values in enumerate(IMAGES):
        Image.fromarray(values).save(tmp_path / f"{row}.png")
    files = ImageFiles([tmp_path / f"{row}.png" for row in range(40)], height=4, width=5)
    check(place(images().with_inputs(files), ENCODING, resident=False, workers=1), SAMPLER)
    (tmp_path / "20.png").write_bytes((tmp_path / "20.png").read_bytes()[:60])
    broken = place(images().with_inputs(files), ENCODING, resident=False, workers=1)
    with pytest.raises(DataError, match=r"20\.png") as caught:
        list(broken.batches(InOrder(np.arange(40), 8)))
    assert "Traceback" not in str(caught.value)


# What is decided where nothing is said


def test_samples_are_resident_where_they_fit(monkeypatch):
    monkeypatch.setattr(module, "available_bytes", lambda: 2 * IMAGES.nbytes)
    assert isinstance(place(lazy(), ENCODING), ResidentSamples)
    monkeypatch.setattr(module, "available_bytes", lambda: 2 * IMAGES.nbytes - 1)
    assert isinstance(place(lazy(), ENCODING), StreamedSamples)
    assert place(lazy(), ENCODING, resident=True).resident


def test_an_array_in_memory_fits_into_memory(monkeypatch):
    monkeypatch.setattr(module, "available_bytes", lambda: 0)
    assert place(images(), ENCODING).resident
    assert not place(images(), ENCODING, resident=False).resident


def test_half_of_the_free_memory_of_the_device_may_be_used(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 9000))
    monkeypatch.setattr(module, "available_bytes", lambda: 100)
    assert [fits(500, "cuda"), fits(501, "cuda:1"), fits(50, "cpu"), fits(51, "cpu")] == [True, False, True, False]


def test_arrays_are_read_without_processes_and_files_with_as_many_as_cores(monkeypatch):
    for cores, expected in ((1, 1), (3, 3), (64, 8)):
        monkeypatch.setattr(module, "_cores", lambda cores=cores: cores)
        assert place(lazy(), ENCODING, resident=False).workers == expected
    assert place(images(), ENCODING, resident=False).workers == 0
    assert place(lazy(), ENCODING, resident=False, workers=5).workers == 5
    monkeypatch.setattr(multiprocessing, "current_process", lambda: SimpleNamespace(daemon=True))
    assert place(lazy(), ENCODING, resident=False, workers=5).workers == 0


def test_nonsense_is_refused():
    with pytest.raises(DataError, match=r"workers.*-1"):
        place(images(), ENCODING, workers=-1)
    for resident in (True, False):
        samples = place(images(), ENCODING, resident=resident)
        with pytest.raises(IndexError, match=r"0 to 40.*40 samples"):
            next(samples.batches(InOrder(np.arange(41), 8)))
        with pytest.raises(IndexError, match="-1"):
            next(samples.batches(InOrder(np.arange(-1, 4), 8)))


# One batch


def test_a_batch_knows_its_length_and_leaves_its_domains():
    batch = next(place(images(), ENCODING).batches(Shuffled(np.arange(40), 16, seed=0)))
    assert len(batch) == 16
    bare = batch.without_domains()
    assert bare.domains is None
    assert bare.inputs is batch.inputs
    assert len(batch.domains) == 16


@pytest.mark.parametrize("known", [True, False])
def test_a_batch_moves_as_a_whole(known):
    batch = DomainBatch(torch.ones(2, 3), torch.tensor([0, 1]), torch.tensor([1, 0]) if known else None)
    moved = batch.to("meta", non_blocking=True)
    assert moved.inputs.device.type == moved.targets.device.type == "meta"
    assert moved.domains.device.type == "meta" if known else moved.domains is None
    assert batch.inputs.device.type == "cpu"


@on_a_gpu
def test_a_pinned_batch_is_pinned_as_a_whole():
    batch = next(place(images(), ENCODING).batches(InOrder(np.arange(8), 8))).pin_memory()
    assert all(tensor.is_pinned() for tensor in (batch.inputs, batch.targets, batch.domains))


@on_a_gpu
@pytest.mark.parametrize(("resident", "workers"), [(None, None), (True, 2), (False, 0), (False, 2)])
def test_batches_on_a_gpu_are_those_of_a_loop(resident, workers):
    for dataset in (images(), lazy()):
        samples = place(dataset, ENCODING, device="cuda", resident=resident, workers=workers)
        assert samples.resident is (resident is not False)
        assert next(samples.batches(SAMPLER, 0)).inputs.is_cuda
        check(samples, SAMPLER)


@on_a_gpu
@pytest.mark.parametrize(("resident", "workers"), [(True, 0), (False, 0)])
def test_the_host_never_waits_for_the_gpu_inside_an_epoch(resident, workers):
    epoch = place(images(), ENCODING, device="cuda", resident=resident, workers=workers).batches(SAMPLER, 0)
    next(epoch)
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert len(list(epoch)) == len(SAMPLER) - 1
    finally:
        torch.cuda.set_sync_debug_mode("default")


@on_a_gpu
def test_doubles_become_floats_on_a_gpu():
    dataset = DomainDataset.from_arrays(np.eye(4), [0, 1, 0, 1])
    assert place(dataset, FeatureEncoding(4), device="cuda").values.dtype == torch.float32
