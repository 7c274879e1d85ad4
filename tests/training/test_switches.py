"""MixStyle and SWAD go with every method: end to end and fine-tuned, cut anywhere, and no method learns more by it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from gated_domains.backbones.backbone import CachedBackbone
from gated_domains.backbones.bodies import SmallCNN
from gated_domains.backbones.mixstyle import MapMixer
from gated_domains.data.batches import place
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError
from gated_domains.evaluation.metrics import SELECTION_RULES
from gated_domains.layer import GateWarning
from gated_domains.methods import METHODS, Method
from gated_domains.runs.recipe import TrainingSettings
from gated_domains.settings import parsed
from gated_domains.training.callbacks.base import ProgressCallback
from gated_domains.training.callbacks.checkpoint import Checkpoint
from gated_domains.training.callbacks.ema import training_inputs
from gated_domains.training.engine import Hardware
from gated_domains.training.trainer import Trainer
from gated_domains.training.training_data import TrainingData, on_cached_features
from small_trainings import build, identical, material, pictures, train, training, vectors, weights

DATASETS = {"images": pictures, "vectors": vectors}
SWITCHES: dict[str, dict[str, Any]] = {"mixstyle": {"mixstyle": 1.0}, "swad": {"swad": True}}
OF_IMAGES: dict[str, dict[str, Any]] = {
    "fourier_mix": {"fourier_mix": 1.0},
    "consistency": {"fourier_mix": 1.0, "consistency": 1.0},
}
ALL_SWITCHES = {**SWITCHES, **OF_IMAGES}
TOGETHER = {**ALL_SWITCHES, "averaged teacher": {**OF_IMAGES["consistency"], "ema": 0.9}}
TRAINED = [
    (name, mode, kind)
    for name in METHODS
    if name != "ensemble"  # whose members are trained one by one
    for mode in METHODS[name].modes
    for kind in DATASETS
] + [("gdu[train_gates=batch]", "end_to_end", "images")]
SWITCHED = [(*trained, switch) for trained in TRAINED for switch in SWITCHES] + [
    (name, mode, kind, switch)
    for name, mode, kind in TRAINED
    for switch in OF_IMAGES
    if (mode, kind) == ("end_to_end", "images")
]
every_switch = pytest.mark.parametrize("switch", SWITCHES)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def _without_gate_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GateWarning)
        yield


@cache
def data(kind: str) -> TrainingData:
    return material(DATASETS[kind](100), train=64, validation=30)


@cache
def trained_without(name: str, mode: str, kind: str, switch: str) -> dict[str, Tensor]:
    """The weights without a switch, but with what it needs."""
    method = build(name, data(kind).dataset, mode=mode)
    train(method, data(kind), epochs=1, **(OF_IMAGES["fourier_mix"] if switch == "consistency" else {}))
    return weights(method)


def trained_names(method: nn.Module) -> list[str]:
    return [name for name, p in method.named_parameters() if p.requires_grad]


class CutError(Exception):
    pass


class Cut(ProgressCallback):
    """Ends a training after a step."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step(self, step: int, steps: int) -> None:
        if step == self.at:
            raise CutError


# -- every method ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "mode", "kind", "switch"), SWITCHED)
def test_it_trains_every_method_and_makes_a_difference(name, mode, kind, switch):
    method = build(name, data(kind).dataset, mode=mode)
    outcome = train(method, data(kind), epochs=1, **ALL_SWITCHES[switch])
    found, plain = weights(method), trained_without(name, mode, kind, switch)
    assert outcome.epochs == 1
    assert all(torch.isfinite(value).all() for value in found.values())
    assert found.keys() == plain.keys()
    moved = [part for part in trained_names(method) if not torch.equal(found[part], plain[part])]
    assert moved
    frozen = [part for part in found if "frozen" in part]
    assert all(torch.equal(found[part], plain[part]) for part in frozen)


@pytest.mark.parametrize(
    ("name", "mode", "kind", "switch"),
    [
        (*trained, switch)
        for trained in [
            ("erm", "end_to_end", "images"),
            ("gdu", "end_to_end", "images"),  # whose norms are gated
            ("gdu", "fine_tune", "vectors"),
            ("fish", "end_to_end", "vectors"),  # whose steps go through a batch part by part
            ("irm", "end_to_end", "vectors"),  # which counts its steps
        ]
        for switch in (ALL_SWITCHES if trained[2] == "images" else SWITCHES)
    ]
    + [("erm", "end_to_end", "images", "averaged teacher")],
)
def test_killed_in_the_middle_it_ends_as_if_it_had_never_been_cut(name, mode, kind, switch, tmp_path):
    def attempt(folder, progress=None) -> Trainer:
        method = build(name, data(kind).dataset, mode=mode)
        torch.manual_seed(7)
        checkpoint = None if folder is None else Checkpoint(folder, seconds=0.0)
        # The last weights, as the best ones may be older than the interruption. Those of SWAD are an average.
        rule = {} if switch == "swad" else {"rule": SELECTION_RULES["last"]}
        return training(
            method, data(kind), epochs=2, checkpoint=checkpoint, progress=progress, **rule, **TOGETHER[switch]
        )

    whole = attempt(None)
    whole.fit()
    with pytest.raises(CutError):
        attempt(tmp_path, Cut(4)).fit()  # the last of two steps of the second epoch, before it is kept
    torch.manual_seed(123)  # whatever the new process drew meanwhile
    again = attempt(tmp_path)
    again.fit()
    assert identical(weights(again.method), weights(whole.method))


# -- mixing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DATASETS)
@pytest.mark.parametrize("name", ["erm", "gdu", "fish"])
def test_the_mixer_hears_the_domains_and_a_method_that_does_not_use_them_never_does(name, kind, monkeypatch):
    run = training(build(name, data(kind).dataset), data(kind), epochs=1, mixstyle=0.5)
    told, seen = [], []
    mixer, objective = run.update.mixing.mixer, run.method.objective
    mixed = mixer.mixed
    monkeypatch.setattr(mixer, "mixed", lambda x: told.append((len(x), mixer.domains)) or mixed(x))
    monkeypatch.setattr(run.method, "objective", lambda batch: seen.append(batch) or objective(batch))
    run.fit()
    assert told
    assert len(seen) >= 2
    if kind == "vectors":
        assert all(len(domains) == rows for rows, domains in told)
        assert {int(domain) for _, domains in told for domain in domains} == {0, 1, 2}
    assert all((batch.domains is not None) == METHODS[name].uses_domains for batch in seen)


def test_rows_that_are_mixed_are_told_the_domains_they_have():
    """Every row carries its domain in its last number, so that both can be compared."""
    rng = np.random.default_rng(0)
    domains = np.arange(90) % 3
    values = np.column_stack([rng.normal(size=(90, 3)), domains]).astype(np.float32)
    dataset = DomainDataset.from_arrays(values, rng.integers(3, size=90), domains, task="classification")
    given = material(dataset, train=60, validation=30)
    for name in ("erm", "fish", "arm-bn"):
        run = training(build(name, dataset), given, epochs=1, mixstyle=0.5)
        mixer, pairs = run.update.mixing.mixer, []
        mixer.mixed = lambda x, mixer=mixer, pairs=pairs: pairs.append((x[:, 3], mixer.domains)) or x
        run.fit()
        assert pairs
        for last, told in pairs:
            levels = {round(float(last[told == domain].std(correction=0)), 4) for domain in told.unique()}
            assert levels == {0.0}
            assert len({round(float(value), 3) for value in last}) == len(told.unique())


def test_groups_by_domain_and_class_are_mixed_by_domain_alone():
    given = data("vectors")
    run = training(build("erm", given.dataset), given, mixstyle=0.5, group_by=("domain", "class"))
    mixer = run.update.mixing.mixer
    assert len(mixer.enough) == 3
    alone = training(build("erm", given.dataset), given, mixstyle=0.5).update.mixing.mixer
    assert torch.equal(mixer.moments.mean, alone.moments.mean)
    of_groups = {int(style) for style in run.update.mixing.styles}
    assert len(run.update.mixing.styles) == 9
    assert of_groups == {0, 1, 2}
    run.fit()


def test_groups_by_class_alone_are_refused_for_vectors_and_do_not_matter_to_images():
    with pytest.raises(DataError, match=r"groups by class say nothing of those; group by both"):
        training(build("erm", data("vectors").dataset), data("vectors"), mixstyle=0.5, group_by=("class",))
    train(build("erm", data("images").dataset), data("images"), epochs=1, mixstyle=0.5, group_by=("class",))


@pytest.mark.parametrize("kind", DATASETS)
def test_without_domains_images_are_mixed_and_vectors_refused_with_the_cure(kind):
    known = data(kind).dataset
    inputs = known.inputs.values
    dataset = DomainDataset.from_arrays(inputs, known.targets, None, task="classification")
    given = material(dataset, train=64, validation=30)
    if kind == "vectors":
        with pytest.raises(DataError, match=r"none is known: name the column .*; or leave mixstyle out"):
            training(build("erm", dataset), given, mixstyle=0.5)
    else:
        train(build("erm", dataset), given, epochs=1, mixstyle=0.5)


@pytest.mark.parametrize("kind", DATASETS)
def test_nothing_is_left_on_the_body_whether_it_ends_well_or_not(kind):
    for progress in (None, Cut(1)):
        run = training(build("gdu", data(kind).dataset), data(kind), epochs=1, mixstyle=1.0, progress=progress)
        before = sum(hooks(run.method))
        if progress is None:
            run.fit()
        else:
            with pytest.raises(CutError):
                run.fit()
        assert before > sum(hooks(run.method)) == 0


def hooks(method: Method) -> list[int]:
    return [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in method.backbone.modules()]


def test_mixing_changes_neither_the_validation_nor_what_the_method_looks_at():
    given, looked = data("vectors"), []
    run = training(build("gdu", given.dataset, settings={"gating": "features"}), given, epochs=3, mixstyle=1.0)
    mixed = run.update.mixing.mixer.mixed
    run.update.mixing.mixer.mixed = lambda x: looked.append(len(x)) or mixed(x)
    run.fit()
    assert len(looked) == 3 * len(run.sampler)  # once a step; not when gates are fitted again, nor for validation


def test_cached_features_are_mixed_and_the_body_is_untouched(tmp_path, monkeypatch):
    monkeypatch.setenv("GATED_DOMAINS_CACHE", str(tmp_path))
    found = {}
    for mixstyle in (None, 1.0):
        method = build("gdu", data("images").dataset, mode="fine_tune")
        before = weights(method.backbone.body)
        with on_cached_features(method, data("images"), key="pictures", seed=0) as cached:
            assert isinstance(method.backbone, CachedBackbone)
            train(method, cached, epochs=1, mixstyle=mixstyle)
        assert identical(weights(method.backbone.body), before)
        found[mixstyle] = weights(method.units)
    assert not identical(found[None], found[1.0])


@pytest.mark.parametrize("switch", ALL_SWITCHES)
def test_it_trains_in_half_and_in_double_precision(switch):
    for precision in ("bf16", "64"):
        for kind in DATASETS if switch in SWITCHES else ("images",):
            method = build("gdu", data(kind).dataset)
            train(method, data(kind), epochs=1, precision=precision, **ALL_SWITCHES[switch])
            assert all(torch.isfinite(value).all() for value in weights(method).values())


def test_mixing_and_a_moving_average_go_together():
    plain, both = (build("erm", data("images").dataset) for _ in range(2))
    train(plain, data("images"), epochs=1, ema=0.5)
    train(both, data("images"), epochs=1, ema=0.5, mixstyle=1.0)
    assert not identical(weights(plain), weights(both))


def test_mixing_and_swad_go_together():
    found = {}
    for mixstyle in (None, 1.0):
        method = build("erm", data("vectors").dataset)
        train(method, data("vectors"), epochs=2, swad=True, mixstyle=mixstyle)
        found[mixstyle] = weights(method)
    assert not identical(found[None], found[1.0])


# -- ema ---------------------------------------------------------------------------------------------------------


def test_averaged_weights_are_kept_with_batch_norm_statistics_of_their_own_and_training_goes_on_with_its_own():
    method, other = (build("erm", data("images").dataset) for _ in range(2))
    run = training(method, data("images"), epochs=3, ema=0.9)
    run.fit()
    norm = method.backbone.body.blocks[0][1]
    with torch.no_grad():
        maps = method.backbone.body.blocks[0][0](torch.cat(list(run.sample_inputs())))
    torch.testing.assert_close(norm.running_mean, maps.mean((0, 2, 3)), rtol=1e-4, atol=1e-5)
    last = []
    for one, more in ((build("erm", data("images").dataset), {"ema": 0.9}), (other, {})):
        visited = Visited()
        visited.method = one
        train(one, data("images"), epochs=2, progress=visited, **more)
        last.append({name: value for name, value in visited.weights[-1].items() if "running" in name})
    assert last[0]
    assert identical(*last)


# -- swad ------------------------------------------------------------------------------------------------------------


class Visited(ProgressCallback):
    """The weights after every step."""

    def __init__(self) -> None:
        self.method: nn.Module | None = None
        self.weights: list[dict[str, Tensor]] = []

    def on_step(self, step: int, steps: int) -> None:
        self.weights.append(weights(self.method))


@pytest.mark.parametrize(("name", "kind"), [("erm", "vectors"), ("gdu", "images"), ("fish", "vectors")])
def test_the_weights_are_the_hand_average_over_the_steps_of_the_epochs_it_names(name, kind):
    method, visited = build(name, data(kind).dataset), Visited()
    visited.method = method
    run = training(method, data(kind), epochs=5, swad=True, progress=visited)
    outcome = run.fit()
    first, last = run.swad.interval
    inside = visited.weights[first : last + 1]
    for part in trained_names(method):
        expected = sum(one[part].double() for one in inside) / len(inside)
        torch.testing.assert_close(weights(method)[part].double(), expected, rtol=1e-4, atol=1e-5)
    assert outcome.averaged == (first, last)
    assert "(SWAD)" in outcome.notes[0]


@pytest.mark.parametrize("statistics", ["batch", "basis"])
def test_the_scores_are_those_of_the_average_with_statistics_of_its_own(statistics):
    method = build("gdu", data("images").dataset, settings={"norm_statistics": statistics})
    run = training(method, data("images"), epochs=4, swad=True)
    outcome = run.fit()
    assert not method.training
    again = run.evaluate()
    assert outcome.validation.as_json() == again.scores.as_json()
    assert outcome.selection_score == run.rule(again)
    assert outcome.best_epoch == run.early_stopping.selector.best_epoch
    norm, wanted = method.backbone.body.blocks[0][1].normalise, []
    for seen in training_inputs(run):  # batches of the size of training: the 16 weigh the more, the smaller they are
        assert len(seen) == run.settings.batch_size
        with torch.no_grad():
            means = method.backbone.body.blocks[0][0](seen).mean((2, 3))
            wanted.append(means.mean(0))
            if statistics == "basis":  # weighted by beta, and 16 samples of the whole batch
                beta = method.units.weigh(method.backbone.look(seen)).beta
                wanted[-1] = (beta.T @ means + 16 * wanted[-1]) / (beta.sum(0) + 16).unsqueeze(1)
    assert len(wanted) > 1
    torch.testing.assert_close(norm.running_mean, sum(wanted) / len(wanted), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("segments", [1, 2, 3, 1000])
def test_the_validation_loss_is_looked_at_several_times_an_epoch(segments, monkeypatch):
    losses(monkeypatch, [1.0] * 999)
    run = training(build("erm", data("vectors").dataset), data("vectors"), epochs=2, swad=True, swad_segments=segments)
    run.fit()
    steps = len(run.sampler)
    ends = sorted({steps * number // segments for number in range(1, segments + 1)} - {0})
    assert run.swad.ends == [*ends, *(steps + end for end in ends)]
    assert run.swad.interval == (0, 2 * steps - 1)


def losses(monkeypatch, curve: list[float]) -> None:
    """A validation loss that goes as it is told."""
    given = iter(curve)
    monkeypatch.setattr("gated_domains.training.callbacks.swad.validation_loss", lambda output, targets: next(given))


def test_it_ends_when_the_valley_is_over_and_patience_does_not_matter(monkeypatch):
    losses(monkeypatch, [1.0] * 4 + [9.0] * 20)
    run = training(
        build("erm", data("vectors").dataset), data("vectors"), epochs=15, patience=1, schedule="constant", swad=True,
        swad_segments=1,
    )  # fmt: skip
    outcome = run.fit()
    assert (outcome.epochs, outcome.stopped) == (10, "early")
    assert outcome.averaged == (0, 4 * len(run.sampler) - 1)
    assert outcome.notes == ("the weights are the average over the flat valley of the validation loss (SWAD)",)


@pytest.mark.parametrize("more", [{"patience": None}, {"rule": SELECTION_RULES["last"]}])
def test_one_that_must_not_stop_early_goes_on_and_averages_the_same(more, monkeypatch):
    found = []
    for asked in ({}, more):
        losses(monkeypatch, [1.0] * 4 + [9.0] * 20)
        method = build("erm", data("vectors").dataset)
        usual = {"epochs": 12, "schedule": "constant", "swad": True, "swad_segments": 1, "patience": 9}
        outcome = train(method, data("vectors"), **{**usual, **asked})
        found.append((outcome.epochs, weights(method)))
    (short, one), (long, other) = found
    assert (short, long) == (10, 12)
    assert all(torch.equal(one[part], other[part]) for part in one if "running" not in part and "num_" not in part)


def test_resumed_after_its_end_it_gives_the_same_average(tmp_path):
    found = []
    for _ in range(2):
        method = build("gdu", data("vectors").dataset)
        outcome = train(method, data("vectors"), swad=True, checkpoint=Checkpoint(tmp_path, seconds=0.0))
        found.append((weights(method), outcome.validation.as_json(), outcome.notes))
    assert identical(found[0][0], found[1][0])
    assert found[0][1:] == found[1][1:]


def test_a_checkpoint_without_its_means_is_refused(tmp_path):
    checkpoint = Checkpoint(tmp_path, seconds=0.0)
    with pytest.raises(CutError):
        train(build("erm", data("vectors").dataset), data("vectors"), checkpoint=checkpoint, progress=Cut(2))
    with pytest.raises(DataError, match=r"is of another model .*; delete it to start"):
        train(build("erm", data("vectors").dataset), data("vectors"), checkpoint=checkpoint, swad=True)


def test_what_gates_are_fitted_to_anew_is_not_averaged_with_what_was_before():
    given = data("vectors")
    method, visited = build("gdu", given.dataset, settings={"gating": "features"}), Visited()
    visited.method = method
    run = training(method, given, epochs=2, swad=True, progress=visited)
    run.fit()
    steps = len(run.sampler)
    before, after = visited.weights[steps - 1]["units.bases"], visited.weights[steps]["units.bases"]
    assert not torch.allclose(before, after, atol=0.5)  # fitted again between the two epochs
    assert torch.allclose(weights(method)["units.bases"], after, atol=0.5)


def test_two_averages_of_the_same_weights_are_refused():
    with pytest.raises(ValidationError, match="two averages of the same weights; choose one"):
        TrainingSettings(swad=True, ema=0.9)
    with pytest.raises(DataError, match=r"^recipe: swad and ema are two averages of the same weights; choose one"):
        parsed(TrainingSettings, {"swad": True, "ema": 0.9}, "recipe")


# -- on a GPU --------------------------------------------------------------------------------------------------------


@needs_gpu
@pytest.mark.parametrize(
    ("kind", "switch"), [(k, s) for k in DATASETS for s in ALL_SWITCHES if k == "images" or s in SWITCHES]
)
@pytest.mark.parametrize("name", ["erm", "gdu", "fish", "lisa"])
def test_on_a_gpu_a_step_with_it_is_recorded(name, kind, switch):
    known = data(kind)
    samples = place(known.dataset, known.samples.encoding, device="cuda")
    settings = TrainingSettings(epochs=4, batch_size=16, **ALL_SWITCHES[switch])
    method, fabric = build(name, known.dataset), Hardware(device="cuda", devices=1).fabric("32")
    rule = SELECTION_RULES["source_validation"]
    run = Trainer(method, replace(known, samples=samples), settings, fabric=fabric, seed=0, rule=rule)
    step = run.update.advance  # a finished training has let go of it
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # that it cannot be recorded
        run.fit()
    assert step.graph is not None
    assert all(torch.isfinite(value).all() for value in weights(method).values())


@needs_gpu
def test_on_a_gpu_a_recorded_mixer_draws_anew_at_every_replay():
    mixer, maps = MapMixer(SmallCNN((3, 8, 8)), 1.0), torch.randn(8, 3, 4, 4, device="cuda")
    mixer.mixed(maps)
    graph, seen = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        mixed = mixer.mixed(maps)
    for _ in range(3):
        graph.replay()
        seen.append(mixed.clone())
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])
    assert torch.isfinite(torch.stack(seen)).all()
