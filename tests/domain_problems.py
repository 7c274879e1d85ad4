"""Made problems of several domains and trainings on them: what tests of methods that compare domains share."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from gated_domains.data.batches import DomainBatch
from gated_domains.data.dataset import DomainDataset
from gated_domains.methods import Method
from gated_domains.methods.method import total


def whole(dataset: DomainDataset, *, dtype: torch.dtype = torch.float32) -> DomainBatch:
    """All rows as one batch."""
    inputs, targets = torch.from_numpy(dataset.inputs.values.copy()).to(dtype), torch.from_numpy(dataset.targets.copy())
    return DomainBatch(inputs, targets, None if dataset.domains is None else torch.from_numpy(dataset.domains.copy()))


def some_rows(batch: DomainBatch, domains: Sequence[int]) -> DomainBatch:
    """Rows of a batch, by the domains that they are to have; no row twice."""
    assert batch.domains is not None
    left = {int(domain): iter(torch.nonzero(batch.domains == domain).flatten().tolist()) for domain in set(domains)}
    pick = torch.tensor([next(left[domain]) for domain in domains])
    return DomainBatch(batch.inputs[pick], batch.targets[pick], batch.domains[pick])


def step(method: Method, batch: DomainBatch, optimizer: torch.optim.Optimizer) -> float:
    """One step, and the loss before it."""
    optimizer.zero_grad()
    loss = total(method.objective(batch))
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def trained(method: Method, batch: DomainBatch, *, steps: int = 120, rate: float = 0.05) -> Method:
    """The method after some steps on the whole batch, ready to predict."""
    optimizer = torch.optim.Adam(method.parameter_groups(), lr=rate)
    for _ in range(steps):
        step(method.train(), batch, optimizer)
    return method.eval()


def assert_gradients_are_those_of_small_differences(method: Method, batch: DomainBatch) -> None:
    """Of every trained parameter; the method must be of doubles, and its loss without chance."""
    method.zero_grad()
    total(method.objective(batch)).backward()
    for name, parameter in method.named_parameters():
        flat, slow = parameter.detach().view(-1), []
        for place in range(len(flat)):
            ends = []
            for change in (1e-5, -2e-5):
                flat[place] += change
                terms = method.objective(batch)
                ends.append(math.fsum(float(term.detach()) for term in terms.values()))  # a total is of floats
            flat[place] += 1e-5
            slow.append((ends[0] - ends[1]) / 2e-5)
        expected = torch.tensor(slow, dtype=parameter.dtype).view_as(parameter)
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-5, atol=1e-7, msg=name)


def half_precision_step(method: Method, batch: DomainBatch) -> None:
    """One step under autocast, after which every gradient is a number."""
    with torch.autocast("cpu", torch.bfloat16):
        terms = method.train().objective(batch)
    total(terms).backward()
    assert all(torch.isfinite(term) and term.dtype == torch.float32 for term in terms.values())
    assert all(torch.isfinite(p.grad).all() for p in method.parameters() if p.requires_grad)


@torch.no_grad()
def accuracies(method: Method, dataset: DomainDataset) -> list[float]:
    """The share of right answers in each domain."""
    batch = whole(dataset)
    right = (method.predict(batch.inputs).output.argmax(1) == batch.targets).numpy()
    return [float(right[dataset.domains == domain].mean()) for domain in np.unique(dataset.domains)]


def two_bits(flips: Sequence[float]) -> DomainDataset:
    """400 rows a domain: the shape tells the label, wrong in 25 of 100, the colour wrong as often as ``flips`` says.

    By count, not by chance: shape and colour are wrong together as often as if neither knew of the other.
    """
    parts = []
    for domain, flip in enumerate(flips):
        for label in (0, 1):
            for wrong_shape, count in ((False, 150), (True, 50)):
                wrong_colour = np.arange(count) < round(flip * count)
                shape, colour = np.full(count, label ^ wrong_shape), label ^ wrong_colour
                bits = np.stack([2 * shape - 1, 2 * colour - 1], 1)
                parts.append((bits, np.full(count, label), np.full(count, domain)))
    return _together(parts)


def directions(
    degrees: Sequence[float], rows: Sequence[int], *, noisy: Sequence[int] = (), seed: int = 0
) -> DomainDataset:
    """Points in the plane; the label of each domain is the side of a line of its own, or by chance where ``noisy``."""
    rng, parts = np.random.default_rng(seed), []
    for domain, (degree, count) in enumerate(zip(degrees, rows, strict=True)):
        x, angle = rng.normal(size=(count, 2)), math.radians(degree)
        label = x @ [math.cos(angle), math.sin(angle)] > 0
        chance = rng.random(count) < 0.5
        parts.append((x, chance if domain in noisy else label, np.full(count, domain)))
    return _together(parts)


def shifted_gaussians(rows: int = 300, *, seed: int = 0) -> DomainDataset:
    """The first of four numbers tells the label; the others have a mean and a covariance of each of two domains."""
    rng, domains = np.random.default_rng(seed), np.arange(rows) % 2
    label, x = rng.integers(2, size=rows), rng.normal(size=(rows, 4))
    x[:, 0] += 3 * (2 * label - 1)
    second = domains == 1
    x[second, 1:] *= 2.5
    x[second, 2] += x[second, 1]
    x[second, 1] += 4
    return _together([(x, label, domains)])


def _together(parts: Sequence[tuple[np.ndarray, ...]]) -> DomainDataset:
    inputs, labels, domains = (np.concatenate(each) for each in zip(*parts, strict=True))
    return DomainDataset.from_arrays(inputs.astype(np.float32), labels.astype(np.int64), domains, task="classification")
