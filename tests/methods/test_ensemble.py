"""A real ensemble, of networks trained one by one, does better than its members do on average."""

from __future__ import annotations

import numpy as np

from gated_domains.data.dataset import DomainDataset
from gated_domains.methods import Ensemble
from gated_domains.training.prediction import predict_rows
from small_trainings import build, material, train

MEMBERS = 5


def blurred(seed: int) -> DomainDataset:
    """Three classes that overlap, in twelve numbers of which three tell them."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(3, size=900)
    values = rng.normal(size=(900, 12))
    values[np.arange(900), classes] += 1.5
    return DomainDataset.from_arrays(values, classes, np.arange(900) % 2, name="blurred", task="classification")


def test_an_ensemble_beats_its_members_on_average():
    data = material(blurred(seed=0), train=100, validation=40)
    unseen = np.arange(140, 900)
    true = data.dataset.targets[unseen]
    members = []
    for number in range(MEMBERS):
        members.append(build("erm", data.dataset, seed=number))
        train(members[-1], data, epochs=8, seed=number)
    said = [predict_rows(one, data.samples, unseen).output for one in (*members, Ensemble(members, members[0].task))]
    right = [float((output.argmax(1) == true).mean()) for output in said]
    log_loss = [float(-np.log(output[np.arange(len(true)), true]).mean()) for output in said]
    assert right[-1] > np.mean(right[:-1]) + 0.01
    assert log_loss[-1] < np.mean(log_loss[:-1]) - 0.01
