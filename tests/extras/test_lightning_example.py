"""The Lightning example: units are fitted before the first step, penalised in the loss, and kept by a checkpoint."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from gated_domains import fit_head, model_head

pytestmark = pytest.mark.extras
pytest.importorskip("lightning")

EXAMPLE = Path(__file__).parents[2] / "examples" / "lightning_module.py"
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}


@pytest.fixture(scope="module")
def example():
    return SimpleNamespace(**runpy.run_path(str(EXAMPLE)))


@pytest.fixture(scope="module")
def data(example):
    return example.loaders("numbers", most=400)


def trainer(example, folder, *, epochs: int, **settings):
    return example.Trainer(max_epochs=epochs, default_root_dir=folder, num_sanity_val_steps=1, **QUIET, **settings)


@pytest.fixture(scope="module")
def trained(example, data, tmp_path_factory):
    """A module after three epochs, with the loss of each step and the coverage and mode at each hook."""
    train, validation, _ = data
    seen: dict[str, list] = {"loss": [], "modes": []}

    class Watched(example.GatedModule):
        def on_train_batch_end(self, *_):
            seen["loss"].append(float(self.trainer.callback_metrics["loss"]))

        def on_train_epoch_start(self):
            super().on_train_epoch_start()
            seen["modes"].append((self.model.training, float(model_head(self.model).coverage.q97)))

        def on_validation_epoch_start(self):
            super().on_validation_epoch_start()
            seen["modes"].append((self.model.training, float(model_head(self.model).coverage.q97)))

    torch.manual_seed(0)
    module = Watched(example.small_cnn())
    fitter = trainer(example, tmp_path_factory.mktemp("lightning"), epochs=3)
    fitter.fit(module, train, validation)
    return module, fitter, seen


def predicted(module, data) -> torch.Tensor:
    images, _ = next(iter(data[2]))
    with torch.no_grad():
        return module.eval().model(images)


def test_the_loss_falls(trained):
    losses = trained[2]["loss"]
    assert sum(losses[-4:]) / 4 < 0.9 * sum(losses[:4]) / 4


def test_the_penalty_is_in_the_loss_and_reaches_the_bases(example, data):
    torch.manual_seed(0)
    module = example.GatedModule(example.small_cnn())
    fit_head(module.model, data[0])
    module.log = lambda *_, **__: None  # no trainer listens
    images, labels = next(iter(data[0]))
    module.model.eval()  # the same features in both calls
    head = model_head(module.model)
    bare = F.cross_entropy(module.model(images), labels)
    loss = module.training_step((images, labels), 0)
    with head.record() as outs:
        module.model(images)
    assert head.penalty(outs[-1]) > 1e-7
    torch.testing.assert_close(loss - bare, head.penalty(outs[-1]), rtol=1e-2, atol=1e-7)
    # With deviations at zero the task's loss does not know the bases: what reaches them is the penalty.
    loss.backward()
    assert head.bases.grad.abs().sum() > 0
    head.bases.grad = None
    F.cross_entropy(module.model(images), labels).backward()
    assert head.bases.grad.abs().sum() == 0


def test_coverage_is_renewed_in_the_mode_that_follows(trained):
    modes = trained[2]["modes"]
    assert [training for training, _ in modes] == [False, True, False, True, False, True, False]
    assert modes[0][1] == pytest.approx(2e4)  # the sanity check, before anything is fitted
    fitted = [level for _, level in modes[1:]]
    assert all(level < 10 for level in fitted)
    assert len(set(fitted)) == len(fitted)


def test_a_checkpoint_is_loaded_without_unpickling_and_predicts_the_same(example, data, trained, tmp_path):
    module, fitter, _ = trained
    before = predicted(module, data)
    fitter.save_checkpoint(tmp_path / "kept.ckpt", weights_only=True)
    torch.load(tmp_path / "kept.ckpt", weights_only=True)
    torch.manual_seed(1)
    loaded = example.GatedModule.load_from_checkpoint(
        tmp_path / "kept.ckpt", model=example.small_cnn(), weights_only=True
    )
    torch.testing.assert_close(predicted(loaded, data), before, rtol=0, atol=0)
    # Scored by a trainer that has no training data: the coverage is that of the checkpoint.
    trainer(example, tmp_path, epochs=1).validate(loaded, data[2], verbose=False)
    torch.testing.assert_close(predicted(loaded, data), before, rtol=0, atol=0)


def test_a_training_that_goes_on_keeps_its_bases(example, data, trained, tmp_path):
    module, fitter, _ = trained
    fitter.save_checkpoint(tmp_path / "kept.ckpt")
    bases = model_head(module.model).bases.detach().clone()
    torch.manual_seed(1)
    again, steps = example.GatedModule(example.small_cnn()), []
    further = trainer(example, tmp_path, epochs=4, enable_checkpointing=False)
    again.on_train_batch_start = lambda *_: steps.append(model_head(again.model).bases.detach().clone())
    further.fit(again, data[0], data[1], ckpt_path=tmp_path / "kept.ckpt", weights_only=True)
    assert len(steps) == 4  # one epoch more
    assert torch.equal(steps[0], bases)


def test_the_domains_seen_and_the_one_never_seen_are_scored(example, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    example.main("street", epochs=1, most=200)
    scores = [line.split() for line in capsys.readouterr().out.splitlines() if line.endswith(" %")]
    assert [" ".join(line[:-2]) for line in scores] == ["domains seen", "street, never seen"]
    assert all(0 < float(line[-2]) <= 100 for line in scores)
