"""The Hugging Face example: units fitted before the first step, penalised in the loss, kept by ``save_model``."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, load_model, save_file

from gated_domains import fit_head, model_head

pytestmark = pytest.mark.extras
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

EXAMPLE = Path(__file__).parents[2] / "examples" / "hf_trainer.py"


@pytest.fixture(autouse=True, scope="module")
def nothing_is_downloaded():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def example(nothing_is_downloaded):
    return SimpleNamespace(**runpy.run_path(str(EXAMPLE)))


def made(example, folder, *, epochs: int = 3, each: int = 64, **settings):
    torch.manual_seed(0)
    trainer = example.make_trainer(folder, "toasters", epochs=epochs, each=each)
    for name, value in {"disable_tqdm": True, "logging_steps": 1, **settings}.items():
        setattr(trainer.args, name, value)
    return trainer


@pytest.fixture(scope="module")
def trained(example, tmp_path_factory):
    """A trainer after three epochs, with the mode at each renewal and what happened, in order."""
    trainer, seen = made(example, tmp_path_factory.mktemp("hf"), each=320), []
    scope = example.GatedTrainer.compute_loss.__globals__
    renew, step, evaluate = scope["renew_head"], trainer.training_step, trainer.prediction_step

    def noted(what, function):
        def call(model, *arguments, **more):
            seen.append((what, model.training))
            return function(model, *arguments, **more)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(scope, "renew_head", noted("renewed", renew))
        patch.setattr(trainer, "training_step", noted("step", step))
        patch.setattr(trainer, "prediction_step", noted("predicted", evaluate))
        trainer.train()
    trainer.save_model()
    return trainer, seen


def batch_of(trainer) -> dict[str, torch.Tensor]:
    return dict(next(iter(trainer.familiar)))


def logits(model, batch) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(**batch).logits


def test_the_loss_falls(trained):
    losses = [entry["loss"] for entry in trained[0].state.log_history if "loss" in entry]
    assert len(losses) == 90
    assert sum(losses[-8:]) < 0.8 * sum(losses[:8])


def test_the_penalty_is_in_the_loss_and_reaches_the_bases(example, tmp_path):
    trainer = made(example, tmp_path)
    model, batch = trainer.model, batch_of(trainer)
    fit_head(model, trainer.familiar)
    for module in model.modules():
        module.training = module is model  # as in training, but without dropout
    head = model_head(model)
    bare, loss = model(**batch).loss, trainer.compute_loss(model, batch)
    with head.record() as outs:
        model(**batch)
    assert head.penalty(outs[-1]) > 1e-7
    torch.testing.assert_close(loss - bare, head.penalty(outs[-1]), rtol=1e-2, atol=1e-7)
    # With deviations at zero the task's loss does not know the bases: what reaches them is the penalty.
    loss.backward()
    assert head.bases.grad.abs().sum() > 0
    head.bases.grad = None
    model(**batch).loss.backward()
    assert head.bases.grad.abs().sum() == 0
    model.eval()
    torch.testing.assert_close(trainer.compute_loss(model, batch), bare, rtol=1e-6, atol=1e-6)


def test_gathered_batches_weigh_as_much_as_one(example, tmp_path):
    """Two halves of a batch, gathered, give the gradient of their mean."""
    trainer = made(example, tmp_path)
    model, batch = trainer.model, batch_of(trainer)
    fit_head(model, trainer.familiar)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    gradients = []
    for gathered in (1, 2):
        model.zero_grad()
        trainer.current_gradient_accumulation_steps = gathered
        for _ in range(gathered):
            trainer.training_step(model, dict(batch), num_items_in_batch=torch.tensor(gathered * len(batch["labels"])))
        gradients.append(model_head(model).bases.grad.clone())
    assert gradients[0].abs().sum() > 0
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-8)


def test_coverage_is_renewed_in_the_mode_that_follows(trained):
    renewals = [entry for entry in trained[1] if entry[0] == "renewed"]
    assert renewals == [("renewed", True), ("renewed", False)] * 3
    mode = None
    for what, training in trained[1]:
        if what == "renewed":
            mode = training
        elif what == "predicted":
            assert (mode, training) == (False, False)
        else:
            assert mode is True


def test_the_gates_tell_things_apart_and_are_alive_after_training(example, trained):
    trainer = trained[0]
    head, mixtures = model_head(trainer.model), {}
    assert head.coverage.q97 > head.coverage.q50 + 0.01
    for thing in ("films", "kettles", "toasters"):
        rows = example.reviews(thing, 100, seed=3)
        with head.record() as outs:
            logits(trainer.model, dict(trainer.data_collator(rows)))
        mixtures[thing] = outs[-1].beta.mean(0)
    assert (mixtures["films"] - mixtures["kettles"]).abs().sum() > 0.3
    near, far = ((mixtures["toasters"] - mixtures[thing]).abs().sum() for thing in ("kettles", "films"))
    assert near < far


def test_a_saved_model_is_loaded_and_predicts_the_same(example, trained):
    trainer, _ = trained
    folder, batch = Path(trainer.args.output_dir), batch_of(trainer)
    assert set(load_file(folder / "model.safetensors")) == set(trainer.model.state_dict())
    torch.manual_seed(1)
    loaded = example.gated_model()
    load_model(loaded, folder / "model.safetensors")
    torch.testing.assert_close(logits(loaded, batch), logits(trainer.model, batch), rtol=0, atol=0)
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


def test_a_saved_model_that_lacks_weights_is_refused(example, trained, tmp_path):
    folder = Path(trained[0].args.output_dir)
    tensors = load_file(folder / "model.safetensors")
    save_file({name: value for name, value in tensors.items() if "bases" not in name}, tmp_path / "model.safetensors")
    with pytest.raises(RuntimeError, match=r"classifier\.units\.bases"):
        load_model(example.gated_model(), tmp_path / "model.safetensors")


def test_a_training_that_goes_on_keeps_its_bases(example, tmp_path):
    first = made(example, tmp_path, epochs=1, save_strategy="epoch")
    first.train()
    (kept,) = tmp_path.glob("checkpoint-*")
    bases = model_head(first.model).bases.detach().clone()
    further = made(example, tmp_path, epochs=2, learning_rate=0.0)
    for group in further.create_optimizer().param_groups:
        group["lr"] = 0.0
    still = []

    class Watching(example.TrainerCallback):
        def on_epoch_begin(self, *_, model, **__):
            still.append(model_head(model).bases.detach().clone())

    further.add_callback(Watching())
    further.train(resume_from_checkpoint=str(kept))
    assert torch.equal(still[0], bases)


def test_all_things_are_scored_and_the_one_held_out_is_named(example, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    example.main("kettles", epochs=1, each=8)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.endswith("seen")]
    assert [line[0] for line in lines] == list(example.THINGS)
    assert [line[0] for line in lines if line[3] == "never"] == ["kettles"]
    assert all(0 <= float(line[1]) <= 100 for line in lines)
