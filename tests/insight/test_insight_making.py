"""An insight as a whole, of every kind of method and of data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_gates import inputs_of, looked_into

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.encoding import fit_encoding
from gated_domains.data.inputs import Features
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.data.splits import hold_outs
from gated_domains.data.text.inputs import Text
from gated_domains.evaluation.scores import metric_for
from gated_domains.insight import insight_of
from gated_domains.insight.discrepancy import mmd_matrix
from gated_domains.insight.views import view
from gated_domains.runs.insight import Insight
from made_runs import table
from small_trainings import DATASETS, identical, pictures, vectors, weights


def labels() -> DomainDataset:
    made = vectors(120)
    rng = np.random.default_rng(0)
    yes = (rng.random((120, 4)) < 0.5).astype(np.float32)
    yes[::7, 2] = np.nan
    return replace(made, targets=yes, class_names=None, label_names=("a", "b", "c", "d"))


def no_domains() -> DomainDataset:
    return replace(vectors(120), domains=None, domain_names=())


def texts() -> DomainDataset:
    made, rng = vectors(120), np.random.default_rng(1)
    words = np.array(["one", "two", "three", "four", "five", "six", "seven"])
    return replace(made, inputs=Text([" ".join(rng.permutation(words)[:4]) for _ in range(120)]))


def checked(insight: Insight, dataset: DomainDataset) -> None:
    """Shapes and bounds that every insight has."""
    rows, bases, domains = len(insight.rows), insight.bases, len(insight.domain_names)
    classes, near = len(insight.class_names), insight.nearest.shape[1]
    assert insight.beta.shape == (rows, bases)
    assert insight.map_rows.shape == (rows, 2)
    assert np.isfinite(insight.map_rows).all()
    assert np.isfinite(insight.map_bases).all()
    assert insight.map_bases.shape == (len(insight.map_basis_of), 2)
    assert insight.mmd.shape == (domains + bases, domains + bases)
    assert insight.domain_share.shape == (bases, domains)
    assert insight.class_share.shape == (bases, classes)
    np.testing.assert_allclose(insight.domain_share.sum(axis=1), 1, atol=1e-5)
    assert (insight.domain_share[:, insight.unseen] == 0).all()
    if classes:
        np.testing.assert_allclose(insight.class_share.sum(axis=1), 1, atol=1e-5)
    assert insight.dropping.shape == (bases, 2)
    assert insight.coverage.shape in ((rows,), (0,))
    assert insight.nearest.shape == insight.nearest_domains.shape == (bases, near)
    np.testing.assert_array_equal(insight.targets, dataset.targets[insight.rows])
    np.testing.assert_array_equal(insight.nearest_targets, dataset.targets[insight.nearest])
    if dataset.domains is not None:
        wanted = np.array(dataset.domain_names)[dataset.domains[insight.nearest]]
        np.testing.assert_array_equal(insight.domain_names[insight.nearest_domains], wanted)


EVERY_DATA = {**DATASETS, "labels": labels, "no domains": no_domains, "texts": texts}
EVERY_METHOD = {
    "recommended": {},
    "batch gates": {"test_gates": "batch"},
    "one basis": {"num_bases": 1},
    "bases chosen": {"num_bases": "auto"},
    "coverage applied": {"coverage": True},
    "no shared expert": {"shared": False},
    "projection": {"gate": "projection"},
    "gates on features": {"gating": "features"},
    "paper": {"name": "gdu-paper"},
    "frozen body": {"mode": "fine_tune"},
}


@pytest.mark.parametrize("name", EVERY_DATA)
def test_every_kind_of_data_has_an_insight(name, tmp_path: Path):
    dataset = EVERY_DATA[name]()
    insight, *_ = looked_into(dataset)
    checked(insight, dataset)
    insight.write(tmp_path)
    again = Insight.read(tmp_path)
    assert again is not None
    for field, value in vars(insight).items():
        np.testing.assert_array_equal(getattr(again, field), value)


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_every_form_of_gates_has_an_insight(name):
    dataset = vectors(120)
    insight, method, _, samples = looked_into(dataset, **EVERY_METHOD[name])
    checked(insight, dataset)
    assert insight.bases == method.units.num_bases
    if name != "batch gates":
        out = method.predict(inputs_of(samples, insight.rows))
        np.testing.assert_allclose(insight.beta, out.beta[:, method.units.active].detach(), atol=1e-5)
        np.testing.assert_array_equal(insight.predicted, out.output.argmax(1))
    assert (insight.coverage.size > 0) == (name not in ("no shared expert", "paper"))


def test_with_batch_gates_all_rows_of_a_domain_have_one_beta():
    insight, *_ = looked_into(vectors(120), test_gates="batch")
    for domain in range(3):
        own = insight.beta[insight.domains == domain]
        assert np.ptp(own, axis=0).max() < 1e-6


def test_the_matrix_is_of_domains_and_then_of_bases():
    insight, method, _, samples = looked_into(vectors(120))
    seen = view(method, samples, insight.rows)
    groups = [seen[torch.from_numpy(insight.domains == domain)] for domain in range(3)]
    wanted = mmd_matrix(method.units.kernel, [*groups, *method.units.bases.detach()])
    np.testing.assert_allclose(insight.mmd, wanted, atol=1e-5)


def test_the_method_is_left_as_it_was():
    dataset = pictures(120)
    _, method, split, _ = looked_into(dataset)
    before = weights(method)
    insight_of(method, fit_encoding(dataset, split.train), dataset, split, metric=metric_for(dataset.task))
    assert identical(before, weights(method))


def test_pictures_are_those_of_their_rows():
    dataset = pictures(120)
    insight, *_ = looked_into(dataset)
    np.testing.assert_array_equal(insight.pictures, dataset.inputs.read(insight.rows))
    np.testing.assert_array_equal(insight.nearest_pictures[1], dataset.inputs.read(insight.nearest[1]))
    assert insight.texts.size == insight.nearest_values.size == 0


def test_rows_of_a_table_are_shown_by_their_cells(tmp_path: Path):
    dataset = load_data(table(tmp_path / "sick.csv"), Reading(target="sick", domain="site"))
    insight, *_ = looked_into(dataset)
    checked(insight, dataset)
    assert insight.nearest_columns.tolist() == ["age", "dose", "kind"]
    age = dataset.inputs.columns[0].values[insight.nearest]
    np.testing.assert_allclose(insight.nearest_values[..., 0].astype(float), age, rtol=1e-4)
    assert insight.texts[0].startswith("age ")


def test_numbers_and_labels_have_no_classes():
    number, *_ = looked_into(DATASETS["numbers"](120))
    several, *_ = looked_into(labels())
    assert number.class_share.shape == several.class_share.shape == (3, 0)
    assert number.predicted.dtype.kind == "f"
    assert several.predicted.size == 0


class OnDisk(Features):
    """Vectors of which a few are taken, and counted."""

    in_memory = False
    taken = 0

    def take(self, rows):
        OnDisk.taken += len(rows)
        return Features(self.values[rows])

    def read(self, rows):
        raise AssertionError("the whole is never read")


def test_only_a_sample_of_many_rows_is_read():
    _, method, few, _ = looked_into(vectors(120))
    dataset = vectors(9_000)
    split = hold_outs(dataset, ["2"], copies=False)[0]
    encoding = fit_encoding(dataset, few.train)
    on_disk = replace(dataset, inputs=OnDisk(dataset.inputs.values))
    insight = insight_of(method, encoding, on_disk, split, metric=metric_for("classes"))
    assert len(insight.rows) == 1_200
    assert OnDisk.taken <= 1_200 + 2_048 + 2 * 500
