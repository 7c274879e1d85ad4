"""What gates look at where a run predicts: each sample, a batch of one domain, or a stream of rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gated_domains.applying.of_run import RunPredictor
from gated_domains.applying.predictor import Predictor
from gated_domains.data.batches import place
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Features
from gated_domains.data.new_data import NewData
from gated_domains.data.sampling import InOrder
from gated_domains.evaluation.scores import Predicted
from gated_domains.experiments.model import Model
from gated_domains.layer.stream import GateStream
from gated_domains.runs.folder import RunFolder
from made_runs import recipe, runner, vectors


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, RunFolder]:
    made = runner(vectors(), tmp_path_factory.mktemp("runs"))
    return {name: made.run(recipe(name)) for name in ("gdu", "erm", "arm-bn")} | {
        "by batch": made.run(recipe("gdu", settings={"test_gates": "batch"}))
    }


def site(rows: slice, *, domains: bool = False) -> NewData:
    data = vectors()
    taken = np.arange(len(data))[rows]
    others = {"domains": np.arange(len(taken)) % 2, "domain_names": ("a", "b")} if domains else {}
    return NewData(
        name="site", inputs=Features(np.asarray(data.inputs.read(taken))), class_names=data.class_names, **others
    )


def by(run: RunFolder, gates: str | GateStream | None) -> RunPredictor:
    return RunPredictor(Model.load(run.path), gates=gates)


def equal(one: Predicted, other: Predicted) -> bool:
    return all(np.array_equal(value, other.arrays()[name]) for name, value in one.arrays().items())


@pytest.mark.parametrize("window", [1, 50, 256])
def test_a_stream_is_the_layers_own_pushed_by_hand(runs, window):
    model = Model.load(runs["gdu"].path)
    stream = GateStream(window)
    said = []
    with torch.no_grad():
        samples = place(site(slice(0, 100)), model.schema.encoding)
        for inputs in samples.input_batches(InOrder(np.arange(100), 32)):
            out = model.method.evaluate(inputs, gates=stream)
            said.append((model.method.task.read(out), out.beta.expand(len(inputs), -1), out.coverage))
    found = by(runs["gdu"], GateStream(window)).predict(site(slice(0, 100)))
    for name, parts in zip(("output", "beta", "coverage"), zip(*said, strict=True), strict=True):
        np.testing.assert_allclose(found.arrays()[name], torch.cat(parts).numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("size", [32, 64, 128])
def test_a_stream_goes_on_from_part_to_part(runs, size):
    whole = by(runs["gdu"], "stream").predict(site(slice(0, 150)))
    following = by(runs["gdu"], "stream")
    parts = [following.predict(site(slice(start, min(150, start + size)))) for start in range(0, 150, size)]
    for name, values in whole.arrays().items():
        np.testing.assert_array_equal(np.concatenate([part.arrays()[name] for part in parts]), values)
    anew = by(runs["gdu"], "stream").predict(site(slice(size, 150)))
    assert not np.array_equal(anew.beta, whole.beta[size:])  # the rows before were not seen


def test_coverage_stays_each_rows_own(runs):
    by_sample, by_batch, by_stream = (
        by(runs["gdu"], gates).predict(site(slice(0, 90))) for gates in ("sample", "batch", "stream")
    )
    np.testing.assert_allclose(by_stream.coverage, by_sample.coverage, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(by_batch.coverage, by_sample.coverage, rtol=1e-5, atol=1e-6)
    assert len(np.unique(by_stream.beta, axis=0)) == 3  # steps of 32 rows
    assert len(np.unique(by_batch.beta, axis=0)) == 1
    assert len(np.unique(by_sample.beta, axis=0)) > 50


def test_batches_are_of_one_domain_where_domains_are_known(runs):
    found = by(runs["gdu"], "batch").predict(site(slice(0, 60), domains=True))
    assert len(np.unique(found.beta, axis=0)) == 2
    assert len(np.unique(found.beta[::2], axis=0)) == 1


def test_by_default_a_run_predicts_as_it_was_trained_to(runs):
    rows = site(slice(0, 60))
    assert equal(by(runs["gdu"], None).predict(rows), by(runs["gdu"], "sample").predict(rows))
    assert equal(by(runs["by batch"], None).predict(rows), by(runs["by batch"], "batch").predict(rows))
    assert not equal(by(runs["by batch"], None).predict(rows), by(runs["by batch"], "sample").predict(rows))


def test_a_method_without_gates_says_so(runs):
    rows = site(slice(0, 60))
    assert equal(by(runs["erm"], None).predict(rows), by(runs["erm"], "sample").predict(rows))
    for name, gates, words in (
        ("erm", "batch", "ERM has no gates: it cannot be gated by batch; leave --gates out"),
        ("erm", "stream", "ERM has no gates"),
        ("arm-bn", "sample", "ARM-BN has no gates, and says of a row what the rows beside it make likely"),
    ):
        with pytest.raises(DataError, match=words):
            by(runs[name], gates)


def test_a_run_is_a_predictor(runs):
    assert isinstance(by(runs["gdu"], None), Predictor)
