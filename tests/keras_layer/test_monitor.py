"""DomainMonitor: what it says of an epoch is what an evaluation by hand says, and training does not notice it."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.extras
pytest.importorskip("keras")

import keras  # noqa: E402
import numpy as np  # noqa: E402
from backends import on_every_backend  # noqa: E402
from keras import layers, optimizers  # noqa: E402
from small_keras_models import (  # noqa: E402
    LOSS,
    Calls,
    body,
    gated,
    moved,
    quick_compile,  # noqa: F401
    rows,
    weights,
)

from gated_domains.keras_layer import GatedDomainUnits, penalties  # noqa: E402
from gated_domains.keras_layer.arrays import as_numpy  # noqa: E402
from gated_domains.keras_layer.callbacks import DomainMonitor, PenaltyRamp, RenewHead  # noqa: E402

X, Y = rows()
UNSEEN, _ = rows(30, seed=5)
FIT = {"batch_size": 16, "verbose": 0}
OF_BASES = ("distributional_variance", "srip", "soft_orthogonality", "mutual_coherence")


def of_gates(split, bases=3):
    return [*(f"{split}_gate_{j}" for j in range(bases)), f"{split}_gate_entropy", f"{split}_reconstruction"]


def by_hand(head, features, split):
    """From the formulas, in NumPy, of what one evaluation of the layer alone found."""
    out = head.evaluate(features)
    beta, cross, gram = (as_numpy(part).astype("float64") for part in (out.beta, out.products.cross, out.products.gram))
    residual = 1 - 2 * (beta * cross).sum(1) + np.einsum("ij,jk,ik->i", beta, gram, beta)
    return {
        **{f"{split}_gate_{j}": beta[:, j].mean() for j in range(beta.shape[1])},
        f"{split}_gate_entropy": -(beta * np.log(beta)).sum(1).mean(),
        f"{split}_reconstruction": residual.mean(),
    }


def bases_by_hand(head):
    v = as_numpy(head.active_bases).astype("float64")
    distances = ((v[:, None, :, None] - v[None, :, None]) ** 2).sum(-1)
    gram = np.exp(-distances / (2 * head.kernel.get_sigma() ** 2)).mean((2, 3))
    norms = gram.diagonal()
    off = gram - np.diag(norms)
    return {
        "distributional_variance": norms.mean() - gram.mean(),
        "srip": np.linalg.svd(off)[1].max(),
        "soft_orthogonality": (off**2).sum(),
        "mutual_coherence": np.abs(off / np.sqrt(norms[:, None] * norms)).max(),
    }


def last(history, names):
    return {name: history[name][-1] for name in names}


def test_the_last_epoch_says_what_an_evaluation_by_hand_says_after_training():
    model, head = gated()
    history = model.fit(X, Y, epochs=2, callbacks=[DomainMonitor(X, UNSEEN, batch_size=7)], **FIT).history
    see = model.get_layer("body")
    expected = {**by_hand(head, see(X), "train"), **by_hand(head, see(UNSEEN), "test"), **bases_by_hand(head)}
    assert set(expected) == {*of_gates("train"), *of_gates("test"), *OF_BASES}
    assert last(history, expected) == pytest.approx(expected, rel=1e-4)


def test_each_epoch_is_measured_as_it_ends():
    model, head = gated(optimizers.SGD(0.5))
    expected = []
    look = Calls(lambda model: expected.append(by_hand(head, model.get_layer("body")(X), "train")), at="on_epoch_end")
    history = model.fit(X, Y, epochs=3, callbacks=[DomainMonitor(X), look], validation_data=(X, Y), **FIT).history
    for name in of_gates("train"):
        assert history[name] == pytest.approx([values[name] for values in expected], rel=1e-4)
    assert len(set(history["train_gate_0"])) == 3
    assert not any(name.startswith("test_") for name in history)


@pytest.mark.one_backend
def test_bases_are_measured_without_any_inputs():
    model, head = gated()
    history = model.fit(X, Y, epochs=2, callbacks=[DomainMonitor()], **FIT).history
    assert set(history) == {"loss", *OF_BASES}
    assert last(history, OF_BASES) == pytest.approx(bases_by_hand(head), rel=1e-4)


@pytest.mark.one_backend
def test_orthogonality_is_measured_against_the_layers_own_target():
    model, head = gated(orthogonality_target="identity")
    history = model.fit(X, Y, callbacks=[DomainMonitor()], **FIT).history
    out = head.evaluate(model.get_layer("body")(X))
    assert history["srip"][0] == pytest.approx(float(as_numpy(penalties.srip(out, target="identity"))), rel=1e-4)
    assert history["srip"][0] != pytest.approx(float(as_numpy(penalties.srip(out))), rel=1e-2)


def test_training_does_not_notice():
    """Weights, statistics, random state, optimiser, losses and metrics: all bit by bit as without the monitor."""
    ends, losses = [], []
    for callbacks in ([], [DomainMonitor(X, [(UNSEEN,)])]):
        model, _ = gated(optimizers.Adam(0.01), dropout=0.3)
        model.compile(model.optimizer, LOSS(), metrics=["accuracy"])
        history = model.fit(X, Y, epochs=3, callbacks=callbacks, validation_data=(X, Y), **FIT).history
        ends.append([np.array(as_numpy(v)) for v in (*model.variables, *model.optimizer.variables)])
        losses.append([history[name] for name in ("loss", "accuracy", "val_loss", "val_accuracy")])
    assert losses[0] == losses[1]
    for one, other in zip(*ends, strict=True):
        np.testing.assert_array_equal(one, other)


def test_measuring_moves_nothing():
    model, _ = gated(dropout=0.3)
    before = weights(model)
    DomainMonitor(X, UNSEEN).measure(model)
    assert moved(before, weights(model)) == set()


@pytest.mark.usefixtures("quick_compile")
def test_it_works_between_compiled_steps_and_with_the_other_callbacks():
    model, head = gated(jit=True)
    callbacks = [RenewHead(X), PenaltyRamp(2), DomainMonitor(X)]
    history = model.fit(X, Y, epochs=2, callbacks=callbacks, **FIT).history
    expected = by_hand(head, model.get_layer("body")(X), "train")
    assert last(history, expected) == pytest.approx(expected, rel=1e-4)
    assert history["penalty_scale"] == [0, 0.5]


@pytest.mark.one_backend
def test_every_other_epoch_beginning_with_the_first():
    model, _ = gated()
    monitor = DomainMonitor(X, every=2)
    history = model.fit(X, Y, epochs=5, initial_epoch=1, callbacks=[monitor], **FIT).history
    assert len(history["loss"]) == 4
    assert len(history["srip"]) == 2
    assert monitor.epochs == [1, 3]
    assert monitor.measured["srip"] == history["srip"]


@pytest.mark.one_backend
def test_a_training_that_goes_on_adds_to_what_was_measured_and_a_new_one_begins_anew():
    model, _ = gated()
    monitor = DomainMonitor(X)
    model.fit(X, Y, epochs=2, callbacks=[monitor], **FIT)
    model.fit(X, Y, epochs=3, initial_epoch=2, callbacks=[monitor], **FIT)
    assert monitor.epochs == [0, 1, 2]
    model.fit(X, Y, epochs=1, callbacks=[monitor], **FIT)
    assert monitor.epochs == [0]
    assert len(monitor.measured["srip"]) == 1


@pytest.mark.one_backend
def test_rows_are_taken_from_all_of_an_array():
    model, head = gated()
    found = DomainMonitor(X, max_rows=4, batch_size=3).measure(model)
    expected = by_hand(head, model.get_layer("body")(X[[0, 16, 31, 47]]), "train")
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4)


class Batches(keras.utils.PyDataset):
    """The rows in batches of 10."""

    def __len__(self):
        return 5

    def __getitem__(self, place):
        return X[10 * place : 10 * place + 10], Y[10 * place : 10 * place + 10]


def dataset_of_the_backend():
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(48).batch(10)
    if keras.backend.backend() == "torch":
        import torch

        rows = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
        return torch.utils.data.DataLoader(rows, batch_size=10, shuffle=True)
    return [(keras.ops.convert_to_tensor(X), Y)]


FORMS = {
    "array": lambda: X,
    "tensor": lambda: keras.ops.convert_to_tensor(X),
    "list of one": lambda: [X],
    "dict of one": lambda: {"x": X},
    "double precision": lambda: X.astype("float64"),
    "batches": lambda: [(X[:20], Y[:20]), (X[20:], Y[20:])],
    "a generator": lambda: ((X[start : start + 6],) for start in range(0, 48, 6)),
    "a Keras dataset": lambda: Batches(),
    "the backend's dataset": dataset_of_the_backend,
}


@pytest.mark.parametrize("form", on_every_backend(["tensor", "a Keras dataset", "the backend's dataset"], of=FORMS))
def test_inputs_may_have_any_form_that_a_model_takes(form):
    model, head = gated()
    monitor = DomainMonitor(FORMS[form]())
    found, again = monitor.measure(model), monitor.measure(model)
    expected = by_hand(head, model.get_layer("body")(X), "train")
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert found == again


def test_batches_stop_at_the_most_rows():
    def endless():
        while True:
            yield X[:10], Y[:10]

    model, head = gated()
    found = DomainMonitor(endless(), max_rows=17).measure(model)
    expected = by_hand(head, model.get_layer("body")(np.concatenate([X[:10], X[:7]])), "train")
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4)


def two_inputs():
    keras.utils.set_random_seed(1)
    inputs = {"pixels": keras.Input((6,), name="pixels"), "style": keras.Input((4,), name="style")}
    head = GatedDomainUnits(3, num_bases=3, basis_size=2, name="head")
    model = keras.Model(inputs, head([inputs["pixels"], inputs["style"]]))
    model.compile(optimizers.SGD(0.05), LOSS())
    return model


@pytest.mark.one_backend
def test_a_dict_with_the_names_of_the_inputs_is_one_input_and_any_other_names_domains():
    model = two_inputs()
    inputs = {"pixels": X, "style": X[:, :4]}
    domains = {"a b": {name: part[:16] for name, part in inputs.items()}, "c": {n: p[16:] for n, p in inputs.items()}}
    history = model.fit(inputs, Y, callbacks=[DomainMonitor(inputs, domains)], **FIT).history
    names = {*of_gates("train"), *of_gates("test_a b"), *of_gates("test_c"), *OF_BASES}
    assert set(history) == {"loss", *names}
    both = (16 * history["test_a b_gate_0"][0] + 32 * history["test_c_gate_0"][0]) / 48
    assert history["train_gate_0"][0] == pytest.approx(both, rel=1e-5)


@pytest.mark.one_backend
def test_a_list_is_several_inputs():
    inputs = [keras.Input((6,)), keras.Input((4,))]
    head = GatedDomainUnits(3, num_bases=2, basis_size=2)
    model = keras.Model(inputs, head(inputs))
    found = DomainMonitor(test=[X, X[:, :4]]).measure(model)
    out = head.evaluate(X, X[:, :4])
    assert found["test_gate_1"] == pytest.approx(float(as_numpy(out.beta)[:, 1].mean()), rel=1e-5)


@pytest.mark.one_backend
def test_domains_may_be_arrays_too():
    model, head = gated()
    history = model.fit(
        X, Y, callbacks=[DomainMonitor(test={"dark": UNSEEN[:15], "bright": UNSEEN[15:]})], **FIT
    ).history
    for name, part in (("dark", UNSEEN[:15]), ("bright", UNSEEN[15:])):
        expected = by_hand(head, model.get_layer("body")(part), f"test_{name}")
        assert last(history, expected) == pytest.approx(expected, rel=1e-4)


def two_heads():
    keras.utils.set_random_seed(1)
    inputs = keras.Input((6,))
    features = body()(inputs)
    inner = keras.Sequential([keras.Input((8,)), GatedDomainUnits(3, num_bases=2, basis_size=2, name="deep")])
    flat = GatedDomainUnits(3, num_bases=4, basis_size=2, name="flat")
    model = keras.Model(inputs, layers.Add()([inner(features), flat(features)]))
    model.compile(optimizers.SGD(0.05), LOSS())
    return model


@pytest.mark.one_backend
def test_of_several_units_each_stands_under_its_name():
    model = two_heads()
    monitor = DomainMonitor(X)
    history = model.fit(X, Y, callbacks=[monitor], **FIT).history
    deep = {f"deep_{name}" for name in (*of_gates("train", 2), *OF_BASES)}
    flat = {f"flat_{name}" for name in (*of_gates("train", 4), *OF_BASES)}
    assert set(history) == {"loss"} | deep | flat
    assert history["flat_train_gate_0"] != history["deep_train_gate_0"]


@pytest.mark.one_backend
def test_one_of_several_needs_no_prefix():
    model = two_heads()
    history = model.fit(X, Y, callbacks=[DomainMonitor(X, layer="deep")], **FIT).history
    assert set(history) == {"loss", *of_gates("train", 2), *OF_BASES}


@pytest.mark.one_backend
def test_spare_bases_are_not_in_use_and_not_shown():
    model, head = gated(num_bases=2, max_bases=5)
    found = DomainMonitor(X).measure(model)
    assert set(found) == {*of_gates("train", 2), *OF_BASES}
    assert {name: found[name] for name in OF_BASES} == pytest.approx(bases_by_hand(head), rel=1e-4)


@pytest.mark.one_backend
def test_units_may_be_called_on_sequences():
    inputs = keras.Input((5, 6))
    head = GatedDomainUnits(3, num_bases=2, basis_size=2)
    model = keras.Model(inputs, head(inputs))
    x = np.random.default_rng(0).normal(size=(7, 5, 6)).astype("float32")
    found = DomainMonitor(x, batch_size=4).measure(model)
    assert {n: v for n, v in found.items() if n not in OF_BASES} == pytest.approx(
        {n: v for n, v in by_hand(head, x.reshape(-1, 6), "train").items() if n not in OF_BASES}, rel=1e-4
    )


@pytest.mark.one_backend
def test_callbacks_that_come_after_can_go_by_what_it_measures(tmp_path):
    model, _ = gated()
    after = [
        keras.callbacks.EarlyStopping("train_reconstruction", mode="min", min_delta=10.0, patience=1),
        keras.callbacks.ModelCheckpoint(
            tmp_path / "{epoch}-{train_gate_entropy:.2f}.keras",
            monitor="train_gate_entropy",
            mode="max",
            save_best_only=True,
        ),
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
    ]
    history = model.fit(X, Y, epochs=5, callbacks=[DomainMonitor(X), *after], **FIT).history
    assert len(history["loss"]) == 2  # stopped: nothing falls by 10
    assert any(f"1-{history['train_gate_entropy'][0]:.2f}" in file.name for file in tmp_path.glob("*.keras"))
    with (tmp_path / "log.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [float(line["train_gate_2"]) for line in table] == pytest.approx(history["train_gate_2"])


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


@pytest.mark.one_backend
def test_tensorboard_reads_what_history_says(tmp_path):
    pytest.importorskip("tensorboard")
    model, _ = gated()
    monitor = DomainMonitor(X, UNSEEN, log_dir=tmp_path / "logs" / "run")
    history = model.fit(X, Y, epochs=3, callbacks=[monitor], **FIT).history
    found = events(tmp_path / "logs" / "run")
    assert set(found) == {f"domains/{name}" for name in history if name != "loss"}
    for tag, scalars in found.items():
        assert [step for step, _ in scalars] == [0, 1, 2]
        assert [value for _, value in scalars] == pytest.approx(history[tag.removeprefix("domains/")], rel=1e-6)


@pytest.mark.one_backend
def test_numbers_are_in_tensorboard_while_training_goes_on(tmp_path):
    pytest.importorskip("tensorboard")
    model, _ = gated()
    seen = []
    look = Calls(lambda _: seen.append(len(events(tmp_path)["domains/srip"])), at="on_epoch_end")
    model.fit(X, Y, epochs=2, callbacks=[DomainMonitor(log_dir=tmp_path), look], **FIT)
    assert seen == [1, 2]


@pytest.mark.one_backend
def test_keras_own_tensorboard_takes_them_too(tmp_path):
    pytest.importorskip("tensorboard")
    pytest.importorskip("tensorflow")
    model, _ = gated()
    model.fit(X, Y, callbacks=[DomainMonitor(X), keras.callbacks.TensorBoard(tmp_path)], **FIT)
    assert list(tmp_path.glob("train/events*"))


def test_tensorflow_is_not_imported_for_it(tmp_path):
    pytest.importorskip("tensorboard")
    if keras.backend.backend() == "tensorflow":
        pytest.skip("TensorFlow is the backend")
    code = f"""
import sys, json
from gated_domains.keras_layer.callbacks.events import EventFile
file = EventFile({str(tmp_path)!r})
file.write({{"a": 1.5}}, 3)
file.close()
print(json.dumps("tensorflow" in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) is False
    assert events(tmp_path) == {"a": [(3, 1.5)]}


def test_without_tensorboard_the_line_that_installs_it_is_said(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        DomainMonitor(X, log_dir=tmp_path)


@pytest.mark.one_backend
def test_the_picture_has_a_panel_for_each_set_of_inputs_and_is_written(tmp_path):
    model, _ = gated()
    monitor = DomainMonitor(X, {"dark": UNSEEN[:15], "bright": UNSEEN[15:]})
    model.fit(X, Y, epochs=3, callbacks=[monitor], **FIT)
    figure = monitor.plot(tmp_path / "gates.png")
    assert (tmp_path / "gates.png").read_bytes().startswith(b"\x89PNG")
    titles = [ax.get_title(loc="left") for ax in figure.axes if ax.axison]
    assert titles[:3] == ["gate use, train", "gate use, test_dark", "gate use, test_bright"]
    assert titles[3:5] == ["gate entropy", "reconstruction"]
    gates, ends = figure.axes[0].get_lines(), figure.axes[0].texts
    assert [list(line.get_ydata()) for line in gates] == [monitor.measured[f"train_gate_{j}"] for j in range(3)]
    assert [text.get_text() for text in ends] == ["basis 0", "basis 1", "basis 2"]
    heights = [text.xy[1] for text in ends]
    assert np.argsort(heights).tolist() == np.argsort([line.get_ydata()[-1] for line in gates]).tolist()
    assert np.diff(sorted(heights)).min() > 0.07  # no name on another


@pytest.mark.one_backend
def test_the_picture_of_several_units_names_each():
    model = two_heads()
    monitor = DomainMonitor(X)
    model.fit(X, Y, callbacks=[monitor], **FIT)
    figure = monitor.plot()
    assert [part.get_suptitle() for part in figure.subfigs] == ["deep", "flat"]


@pytest.mark.one_backend
def test_the_picture_of_bases_alone():
    model, _ = gated()
    monitor = DomainMonitor()
    model.fit(X, Y, callbacks=[monitor], **FIT)
    assert sum(ax.axison for ax in monitor.plot().axes) == 2


def test_there_is_no_picture_before_training():
    with pytest.raises(ValueError, match="nothing has been measured yet"):
        DomainMonitor(X).plot()


def test_inputs_that_do_not_fit_are_refused_before_the_first_epoch():
    model, _ = gated()
    began = []
    note = Calls(lambda _: began.append(1), at="on_epoch_begin")
    with pytest.raises(ValueError, match="shape"):
        model.fit(X, Y, callbacks=[DomainMonitor(test=X[:, :4]), note], **FIT)
    assert not began


@pytest.mark.parametrize(
    ("inputs", "error", "says"),
    [
        ((X, Y), TypeError, "pass the inputs alone"),
        ("x.npy", TypeError, "inputs must be an array"),
        (3, TypeError, "inputs must be an array"),
        ([[1.0, 2.0]], TypeError, "a batch must be what the model takes"),
        ([X, X[:3]], ValueError, r"as many rows each, got \[48, 3\]"),
        ({}, ValueError, "at least one domain"),
        ({"dark": "x.npy"}, TypeError, "inputs must be an array"),
        ([], ValueError, "no batch"),
        (iter([]), ValueError, "no batch"),
    ],
    ids=["a tuple", "a path", "a number", "numbers", "unlike lengths", "no domain", "a bad domain", "nothing", "read"],
)
def test_what_is_no_input_is_refused(inputs, error, says):
    with pytest.raises(error, match=says):
        DomainMonitor(inputs)
    with pytest.raises(error, match=says):
        DomainMonitor(test=inputs)


def test_an_empty_array_is_refused():
    model, _ = gated()
    with pytest.raises(ValueError, match="no rows"):
        DomainMonitor(X[:0]).measure(model)


@pytest.mark.parametrize("setting", ["batch_size", "max_rows", "every"])
def test_sizes_must_be_whole_numbers(setting):
    with pytest.raises(ValueError, match=f"{setting} must be a whole number of at least 1, got 0"):
        DomainMonitor(X, **{setting: 0})


def test_a_model_without_units_is_refused():
    model = keras.Sequential([keras.Input((6,)), layers.Dense(3)], name="plain")
    model.compile("sgd", LOSS())
    with pytest.raises(ValueError, match="'plain' has no GatedDomainUnits layer"):
        model.fit(X, Y, callbacks=[DomainMonitor(X)], **FIT)


def test_a_model_that_has_no_weights_before_the_first_step_is_measured_after_it():
    model = keras.Sequential([layers.Dense(8), GatedDomainUnits(3, num_bases=2, basis_size=2)])
    model.compile(optimizers.SGD(0.05), LOSS())
    assert "train_gate_1" in model.fit(X, Y, callbacks=[DomainMonitor(X)], **FIT).history
