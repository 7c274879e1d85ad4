"""Hardware that is not there is refused with the cure; precision rounds what it may; a graph is a step like any."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from gated_domains.backbones.bodies import MLP, Identity
from gated_domains.data.batches import DomainBatch, place
from gated_domains.data.encoding import fit_encoding
from gated_domains.data.errors import DataError
from gated_domains.evaluation.metrics import SELECTION_RULES
from gated_domains.methods import ERM, Numbers
from gated_domains.runs.recipe import TrainingSettings
from gated_domains.training import engine
from gated_domains.training.callbacks.base import MetricsWriter, ProgressCallback
from gated_domains.training.callbacks.checkpoint import Checkpoint
from gated_domains.training.engine import Hardware, as_computed
from gated_domains.training.optimizers import GraphedStep, _shapes
from gated_domains.training.trainer import Trainer
from gated_domains.training.training_data import TrainingData
from small_trainings import Records, build, cpu, given, material, pictures, train, vectors, weights

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

# -- hardware --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["gpu", "cuda:1", "mps", ""])
def test_a_device_of_another_name_is_refused(device):
    with pytest.raises(DataError, match=f"the device must be auto, cpu or cuda, got '{device}'"):
        Hardware(device=device).fabric("32")


def test_a_gpu_that_is_not_there_is_refused_with_the_cure(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DataError, match=r"no GPU can be used here .*; leave --device out"):
        Hardware(device="cuda").fabric("32")
    assert Hardware().accelerator == "cpu"


def test_a_gpu_is_used_where_there_is_one_unless_the_cpu_is_asked_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert Hardware().accelerator == "cuda"
    assert Hardware(device="cuda").accelerator == "cuda"
    assert Hardware(device="cpu").accelerator == "cpu"


def test_more_gpus_than_there_are_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(DataError, match="2 GPUs are asked for, there are 1"):
        Hardware(device="cuda").fabric("32")


@pytest.mark.parametrize("devices", [0, -3])
def test_no_devices_at_all_are_refused(devices):
    with pytest.raises(DataError, match=f"devices must be 1 or more, got {devices}"):
        Hardware(device="cpu", devices=devices).fabric("32")


def test_several_devices_without_their_processes_are_refused_with_the_command(monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    with pytest.raises(DataError, match="2 devices need 2 processes: start with `torchrun --nproc-per-node 2 -m gated"):
        Hardware(device="cpu", devices=2).fabric("32")


def test_a_number_that_is_not_the_launchers_is_refused(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(DataError, match="torchrun started 4 processes here, but devices is 2; leave it out"):
        Hardware(device="cpu", devices=2).fabric("32")


def test_a_strategy_that_nobody_knows_is_refused():
    with pytest.raises(DataError, match="the strategy must be auto or ddp, got 'teleport'"):
        Hardware(device="cpu", strategy="teleport").fabric("32")


def test_one_device_is_one_process():
    fabric = Hardware(device="cpu", devices=1).fabric("32")
    assert (fabric.world_size, fabric.device.type) == (1, "cpu")


# -- precision -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["bf16", "16", "64"])
@pytest.mark.parametrize("name", ["erm", "gdu"])
def test_every_precision_trains_on_a_cpu(name, precision):
    data = material(pictures(60), train=40, validation=20)
    journal = Records()
    outcome = train(build(name, data.dataset), data, epochs=2, batch_size=20, precision=precision, journal=journal)
    first, last = (sum(record["train"].values()) for record in journal)
    assert last < first
    assert outcome.validation.overall > 0.5


def test_half_precision_computes_in_it_and_keeps_weights_in_full():
    found = []

    class Noting(MLP):
        def forward(self, inputs):
            features = super().forward(inputs)
            found.append((inputs.dtype, self.blocks[0][0](inputs).dtype))
            return features

    data = material(vectors(60), train=40, validation=20)
    method = build("erm", data.dataset, body=Noting((6,)))
    train(method, data, epochs=1, precision="bf16")
    assert set(found) == {(torch.float32, torch.bfloat16)}
    assert {parameter.dtype for parameter in method.parameters()} == {torch.float32}


def test_double_precision_computes_in_doubles_throughout():
    found = []

    class Noting(Identity):
        def forward(self, inputs):
            found.append(inputs.dtype)
            return super().forward(inputs)

    data = material(vectors(60), train=40, validation=20)
    method = build("gdu", data.dataset, body=Noting((6,)), settings={"gating": "features"})
    train(method, data, epochs=2, precision="64")
    assert set(found) == {torch.float64}
    assert {parameter.dtype for parameter in method.parameters()} == {torch.float64}


def test_targets_far_from_zero_are_not_rounded_in_half_precision():
    """Rounded to half precision, 10,000.3 is 9,984: four times the scale off."""
    dataset = vectors(80, regression=True)
    targets = 10_000 + (dataset.targets - 100)
    dataset = type(dataset).from_arrays(dataset.inputs.values, targets, dataset.domains, task="regression")
    data = material(dataset, train=60, validation=20)
    losses = {}
    for precision in ("32", "bf16"):
        method, journal = build("erm", dataset, body=Identity((6,)), task=Numbers(10_000.0, 4.0)), Records()
        outcome = train(method, data, epochs=1, batch_size=60, precision=precision, journal=journal)
        losses[precision] = journal[0]["train"]["task"], outcome.validation.overall
    assert losses["bf16"] == pytest.approx(losses["32"], rel=0.03)


def test_inputs_become_what_the_method_computes_with():
    x = torch.randn(3, 2)
    assert as_computed(x, cpu("32")) is x
    assert as_computed(x, cpu("bf16")) is x  # autocast rounds where it pays
    assert as_computed(x, cpu("64")).dtype == torch.float64


# -- a step as a graph -----------------------------------------------------------------------------------------------


def batch_of(rows: int, *, domains: bool = False) -> DomainBatch:
    where = torch.zeros(rows, dtype=torch.int64) if domains else None
    return DomainBatch(torch.randn(rows, 6), torch.randint(3, (rows,)), where)


def test_a_step_that_could_not_be_recorded_is_taken_as_ever():
    taken = []

    def step(batch: DomainBatch) -> dict[str, torch.Tensor]:
        taken.append(batch)
        return {"task": torch.tensor(float(len(taken)))}

    graphed = GraphedStep(step)
    graphed.failed = True
    batches = [batch_of(4) for _ in range(6)]
    assert [float(graphed(batch)["task"]) for batch in batches] == [1, 2, 3, 4, 5, 6]
    assert all(one is other for one, other in zip(taken, batches, strict=True))


def test_batches_are_told_apart_by_shape():
    assert _shapes(batch_of(4)) == _shapes(batch_of(4))
    assert _shapes(batch_of(4)) != _shapes(batch_of(5))
    assert _shapes(batch_of(4)) != _shapes(batch_of(4, domains=True))


def on_gpu(dataset, *, train: int = 160, validation: int = 60) -> TrainingData:
    plain = material(dataset, train=train, validation=validation)
    samples = place(dataset, fit_encoding(dataset, plain.train), device="cuda")
    return TrainingData(dataset=dataset, samples=samples, train=plain.train, validation=plain.validation)


def gpu_training(method: nn.Module, data: TrainingData, *, eager: bool = False, **more) -> Trainer:
    callbacks = given(
        MetricsWriter(more.pop("journal")) if "journal" in more else None,
        *(more.pop(name, None) for name in ("progress", "checkpoint")),
    )
    settings = TrainingSettings(**{"epochs": 4, "batch_size": 32, "rate": 1e-3, "patience": None, **more})
    fabric = Hardware(device="cuda", devices=1).fabric(settings.precision)
    run = Trainer(
        method, data, settings, fabric=fabric, seed=0, rule=SELECTION_RULES["source_validation"], callbacks=callbacks
    )
    if eager and isinstance(run.update.advance, GraphedStep):
        run.update.advance = run.update.advance.step
    return run


def assert_close(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=1e-4, atol=1e-5, msg=lambda said: f"{name}: {said}")  # noqa: B023


@needs_gpu
@pytest.mark.parametrize("name", ["erm", "gdu"])
def test_twenty_recorded_steps_are_those_of_the_eager_loop(name):
    data = on_gpu(vectors())
    found = []
    for eager in (True, False):
        torch.manual_seed(0)
        method = build(name, data.dataset, body=MLP((6,), (16, 8), dropout=0))
        journal = Records()
        run = gpu_training(method, data, eager=eager, journal=journal)  # 4 epochs of 5 steps
        step = run.update.advance  # a finished training has let go of it
        run.fit()
        assert eager or step.graph is not None
        found.append((weights(method), journal))
    assert_close(found[1][0], found[0][0])
    for one, other in zip(found[0][1], found[1][1], strict=True):
        assert other["train"] == pytest.approx(one["train"], rel=1e-4)


@needs_gpu
@pytest.mark.parametrize("precision", ["32", "bf16", "16", "64"])
@pytest.mark.parametrize("name", ["erm", "gdu", "gdu-paper", "erm-ensemble"])
def test_every_method_is_recorded_in_every_precision_and_learns(name, precision):
    data = on_gpu(pictures())
    method, journal = build(name, data.dataset), Records()
    run = gpu_training(method, data, precision=precision, journal=journal)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # that it cannot be recorded
        step = run.update.advance  # a finished training has let go of it
    run.fit()
    assert step.graph is not None
    assert sum(journal[-1]["train"].values()) < sum(journal[0]["train"].values())


@needs_gpu
def test_class_weights_do_not_keep_a_step_from_being_recorded():
    from gated_domains.methods import Classes

    data = on_gpu(vectors())
    run = gpu_training(build("erm", data.dataset, task=Classes(torch.tensor([1.0, 2.0, 0.5]))), data)
    step = run.update.advance  # a finished training has let go of it
    run.fit()
    assert step.graph is not None


@needs_gpu
def test_a_batch_of_another_shape_is_stepped_as_ever():
    weight = torch.zeros(6, device="cuda")

    def step(batch: DomainBatch) -> dict[str, torch.Tensor]:
        weight.add_(batch.inputs.sum(0))
        return {"task": batch.inputs.sum()}

    graphed, sums = GraphedStep(step), []
    rows = (4, 4, 4, 4, 4, 3, 4, 5)
    batches = [DomainBatch(torch.randn(count, 6), torch.zeros(count), None).to("cuda") for count in rows]
    for batch in batches:
        sums.append(float(graphed(batch)["task"]))
    assert graphed.graph is not None
    torch.testing.assert_close(weight, torch.stack([batch.inputs.sum(0) for batch in batches]).sum(0))
    assert sums == pytest.approx([float(batch.inputs.sum()) for batch in batches], abs=1e-4)


@needs_gpu
def test_a_step_that_asks_the_host_is_not_recorded_and_training_goes_on():
    class Asking(ERM):
        def objective(self, batch):
            terms = super().objective(batch)
            return {"task": terms["task"] * (1.0 if float(terms["task"].detach()) > 0 else 2.0)}

    data = on_gpu(vectors())
    found = []
    for eager in (True, False):
        made = build("erm", data.dataset)  # with dropout, whose generator knows of recordings
        method = Asking(made.backbone, 3, made.task)
        run = gpu_training(method, data, eager=eager)
        step = run.update.advance
        if eager:
            run.fit()
        else:
            with pytest.warns(RuntimeWarning, match="cannot be recorded as a CUDA graph"):
                run.fit()
            assert step.failed
        found.append(weights(method))
    assert_close(*found)


@needs_gpu
@pytest.mark.parametrize("precision", ["32", "16"])
def test_on_a_gpu_too_a_cut_training_ends_as_if_it_had_never_been_cut(precision, tmp_path):
    class StopError(Exception):
        pass

    class Watch(ProgressCallback):
        def __init__(self, at: int) -> None:
            self.at = at

        def on_step(self, step: int, steps: int) -> None:
            if step == self.at:
                raise StopError

    data = on_gpu(vectors())
    found = []
    for cuts in ((), (3, 8, 14)):
        for at in (*cuts, -1):
            method = build("gdu", data.dataset)
            torch.manual_seed(7)
            run = gpu_training(
                method, data, precision=precision, progress=Watch(at), epochs=3,
                checkpoint=Checkpoint(tmp_path / str(cuts), seconds=0.0),
            )  # fmt: skip
            if at > 0:
                with pytest.raises(StopError):
                    run.fit()
            else:
                run.fit()
        found.append(weights(method))
    assert_close(*found)


@needs_gpu
def test_sgd_is_not_recorded():
    data = on_gpu(vectors())
    run = gpu_training(build("erm", data.dataset), data, optimizer="sgd", epochs=1)
    assert not isinstance(run.update.advance, GraphedStep)
    run.fit()


# -- compiled ----------------------------------------------------------------------------------------------------------


def test_an_objective_that_cannot_be_compiled_runs_as_it_is_and_says_so(monkeypatch, without_shape_checks):
    def refuses(module, example):
        raise RuntimeError("there is no compiler here")

    monkeypatch.setattr(engine, "BACKEND", refuses)
    torch._dynamo.reset()
    made = vectors()
    data, settings = material(made), TrainingSettings(epochs=1, batch_size=40, patience=None)
    shared = {"fabric": cpu(), "seed": 0, "rule": SELECTION_RULES["source_validation"]}
    plain, method = build("erm", made), build("erm", made)
    torch.manual_seed(0)
    Trainer(plain, data, settings, **shared).fit()
    torch.manual_seed(0)
    with pytest.warns(RuntimeWarning, match="cannot be compiled .*no compiler here.*; it runs without, slower"):
        Trainer(method, data, settings, **shared, compiled=True).fit()
    assert weights(method).keys() == weights(plain).keys()
    for name, value in weights(method).items():
        torch.testing.assert_close(value, weights(plain)[name])
