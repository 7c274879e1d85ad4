"""ONNX of texts, molecules and estimators: the same predictions from the same files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import made_exports
import made_runs
from gated_domains.applying.of_onnx import OnnxPredictor
from gated_domains.applying.of_run import predict_new
from gated_domains.data import Reading, load_data
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.data.like import read_like
from gated_domains.export.exporting import export_model
from gated_domains.export.parity import TOLERANCE

pytestmark = [pytest.mark.extras, pytest.mark.usefixtures("without_shape_checks")]
pytest.importorskip("onnxruntime")
WORDS = {0: "bad poor dull weak sad grim", 1: "good fine bright strong glad light"}


@pytest.fixture(autouse=True)
def nothing_is_downloaded(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path_factory.mktemp("hub")))
    monkeypatch.setenv("GATED_DOMAINS_CACHE", str(tmp_path_factory.mktemp("cache")))


def texts(path, rows: int = 90) -> str:
    rng = np.random.default_rng(0)
    lines = ["text,site,label"]
    for row in range(rows):
        label = int(rng.integers(2))
        chosen = rng.choice([*WORDS[label].split(), "film", "book", "page"], rng.integers(3, 12))
        lines.append(f"{' '.join(chosen)},{made_runs.DOMAINS[row % 3]},{('no', 'yes')[label]}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def assert_same(dataset: DomainDataset, tmp_path, **others) -> None:
    model = made_exports.model(dataset, tmp_path / "runs", **others)
    export_model(model, tmp_path / "model.onnx")
    data = made_exports.new_data(dataset)
    expected, found = predict_new(model, data).arrays(), OnnxPredictor(tmp_path / "model.onnx").predict(data).arrays()
    assert expected.keys() == found.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=TOLERANCE, err_msg=name)


def test_words(tmp_path):
    reading = Reading(text="text", domain="site", target="label", form="words")
    assert_same(load_data(texts(tmp_path / "texts.csv"), reading), tmp_path)
    assert "splitting texts into words is not in the graph" in (tmp_path / "model.onnx.md").read_text()


@pytest.mark.parametrize("method", ["gdu", pytest.param("erm", marks=pytest.mark.slow)])
def test_tokens(tmp_path, method):
    pytest.importorskip("transformers")
    reading = Reading(text="text", domain="site", target="label", form="tokens", tokens=16)
    dataset = load_data(texts(tmp_path / "texts.csv", 48), reading)
    assert_same(dataset, tmp_path, method=method, shrunk=True)


def test_fingerprints_of_molecules(tmp_path):
    pytest.importorskip("rdkit")
    rings = ["c1ccccc1", "c1ccncc1", "C1CCCCC1"]
    lines = ["SMILES,site,active"]
    lines += [f"{'C' * (row % 7)}{rings[row % 3]},{made_runs.DOMAINS[row % 3]},{row % 2}" for row in range(60)]
    (tmp_path / "molecules.csv").write_text("\n".join(lines) + "\n")
    reading = Reading(smiles="SMILES", domain="site", target="active", form="fingerprints")
    assert_same(load_data(str(tmp_path / "molecules.csv"), reading), tmp_path)


# -- estimators --------------------------------------------------------------------------------------------------------


def rows(count: int = 120) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Two classes; the first column lies far from 0, as years do."""
    rng = np.random.default_rng(0)
    label, site = rng.integers(2, size=count), np.arange(count) % 3
    x = rng.normal(size=(count, 3)) + 1.5 * label[:, None] + 0.5 * site[:, None]
    return x + np.array([2_000.0, 0.0, 0.0]), label, site


@pytest.mark.parametrize("gates", ["sample", "batch"])
def test_a_classifier_with_gates(tmp_path, gates):
    from gated_domains.estimators.gated import GDUClassifier

    x, label, site = rows()
    x += np.array([1e6, 0.0, 0.0])  # what it varies by, float32 would round
    estimator = GDUClassifier(random_state=0).fit(x, np.array(["no", "yes"])[label], sample_domain=site)
    estimator.save(tmp_path / "estimator")
    export_model(tmp_path / "estimator", tmp_path / "model.onnx", gates=gates)
    np.savez(tmp_path / "new.npz", X=x, domain=np.zeros(len(x), int))
    predictor = OnnxPredictor(tmp_path / "model.onnx")
    found = predictor.predict(read_like(tmp_path / "new.npz", predictor.schema, targets=False)).arrays()
    expected = estimator.predicted(x, gates=gates).arrays()
    assert predictor.schema.class_names == ("no", "yes")
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=TOLERANCE, err_msg=name)
    card = (tmp_path / "model.onnx.md").read_text()
    assert "rows: 120" in card
    assert "0 (40 rows), 1 (40 rows), 2 (40 rows)" in card
    assert "None are known." in card


@pytest.mark.parametrize("kind", ["GDURegressor", "ERMRegressor"])
def test_a_regressor_of_named_columns_reads_a_table(tmp_path, kind):
    from gated_domains import estimators

    x, _, site = rows()
    frame = pd.DataFrame(x, columns=["year", "dose", "age"])
    target = 5_000 + 300 * x[:, 1]
    estimator = getattr(estimators, kind)().fit(frame, target, sample_domain=site)
    export_model(estimator, tmp_path / "model.onnx", scores={"site 9": 0.25})
    frame[["age", "year", "dose"]].to_csv(tmp_path / "new.csv", index=False)
    predictor = OnnxPredictor(tmp_path / "model.onnx")
    found = predictor.predict(read_like(tmp_path / "new.csv", predictor.schema, targets=False))
    np.testing.assert_allclose(found.output[:, 0] / 300, estimator.predict(frame) / 300, rtol=0, atol=3e-5)
    assert "| site 9 | 0.25 |" in (tmp_path / "model.onnx.md").read_text()
    frame.loc[3, "dose"] = np.nan
    frame.to_csv(tmp_path / "holes.csv", index=False)
    with pytest.raises(DataError, match=r"holes\.csv: numbers are missing in the columns dose"):
        predictor.predict(read_like(tmp_path / "holes.csv", predictor.schema, targets=False))
