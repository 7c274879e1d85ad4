"""What is held of the gates is what they would find anew."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gated_domains.estimators import ERMClassifier, GDUClassifier, mini_batch
from gated_domains.estimators.holding import Held
from gated_domains.estimators.rows import RowSource
from made_estimators import fitted, made_table

PLACES = {"slice": slice(10, 30), "rows": np.array([40, 3, 3, 77])}


def held_and_rows(place, **settings):
    table = made_table()
    network = fitted(GDUClassifier, table, **settings).network_
    source = RowSource(table.x, device=torch.device("cpu"))
    return network, Held(network, source), network.standard(source.take(PLACES[place]))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("settings", [{}, {"coverage": False}, {"shared": False}, {"gate": "projection"}])
def test_held_gates_are_those_found_anew(place, settings):
    network, held, standard = held_and_rows(place, **settings)
    found, anew = held.of(PLACES[place], standard), network.units.weigh(standard)
    torch.testing.assert_close(found.beta, anew.beta)
    torch.testing.assert_close(found.coverage, anew.coverage) if anew.coverage is not None else None
    assert (found.coverage is None) == (anew.coverage is None)
    for one, other in zip(found.products[:3], anew.products[:3], strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(network.units.mix(standard, found).prediction, network.units(standard))


def test_moved_bases_are_weighed_anew_with_the_coverage_that_was():
    network, held, standard = held_and_rows("rows", learn_bases=True, tol=0.05)
    before = network.units.weigh(standard)
    with torch.no_grad():
        network.units.bases.add_(0.5)
    found, anew = held.of(PLACES["rows"], standard), network.units.weigh(standard)
    torch.testing.assert_close(found.beta, anew.beta)
    torch.testing.assert_close(found.coverage, before.coverage)
    assert not torch.equal(anew.coverage, before.coverage)


def test_where_there_are_no_gates_nothing_is_held():
    network = fitted(ERMClassifier).network_
    assert (
        Held(network, RowSource(made_table().x, device=torch.device("cpu"))).of(slice(0, 2), torch.zeros(2, 4)) is None
    )


def test_mini_batches_with_held_gates_are_those_without(monkeypatch):
    def trained():
        return fitted(GDUClassifier, solver="adam", epochs=3, learning_rate=0.01).predict_proba(made_table().x)

    with_held = trained()

    class Nothing(Held):
        def __init__(self, network, source):
            pass

        def of(self, rows, standard):
            return None

    monkeypatch.setattr(mini_batch, "Held", Nothing)
    np.testing.assert_allclose(with_held, trained(), rtol=1e-4, atol=1e-5)
