"""Gated domain units under a Hugging Face ``Trainer``: a small DistilBERT on reviews of things it never saw reviewed.

    pip install transformers accelerate
    python examples/hf_trainer.py                                       # some ten seconds on a CPU, no network

``GatedTrainer`` takes any model that ``replace_head`` gave units. What they need beside an ordinary training: they are
fitted to the data before the first step and whenever features have moved away, their penalty joins the loss, and what
is familiar is measured before each epoch and each evaluation.
``save_model`` keeps them; ``from_pretrained`` knows of none, so load what was saved into a model that has them:
``safetensors.torch.load_model(gated_model(), folder / "model.safetensors")``.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from gated_domains import model_head, renew_head, replace_head
from gated_domains.torchvision_operators import let_torchvision_import

let_torchvision_import()  # transformers import it where it is installed
from transformers import (  # noqa: E402
    DistilBertConfig,
    DistilBertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


class GatedTrainer(Trainer):
    """A ``Trainer`` of a model with gated domain units for a head. Evaluate once an epoch: what is saved is right."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.model_accepts_loss_kwargs = False  # losses and penalties are means of a batch, however many are gathered
        some = torch.randperm(len(self.train_dataset))[:2_000].tolist()
        self.familiar = DataLoader(self.train_dataset, 256, sampler=some, collate_fn=self.data_collator)
        self.add_callback(Renewing(self.familiar))

    def compute_loss(self, model: nn.Module, inputs: Any, return_outputs: bool = False, **more: Any) -> Any:
        with model_head(model).record() as outs:
            loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **more)
        loss = loss + model_head(model).penalty(outs[-1]) if model.training else loss
        return (loss, outputs) if return_outputs else loss

    def evaluation_loop(self, *args: Any, **settings: Any) -> Any:
        if self.state.global_step > 0:  # a model that is only loaded has the coverage it was saved with
            renew_head(self.model.eval(), self.familiar)
        return super().evaluation_loop(*args, **settings)


class Renewing(TrainerCallback):
    """Units fitted before the first step, and kept fitted to features that move at the start of each epoch."""

    def __init__(self, familiar: DataLoader[Any]) -> None:
        self.familiar = familiar

    def on_epoch_begin(
        self, args: Any, state: Any, control: Any, *, model: nn.Module, optimizer: torch.optim.Optimizer, **_: Any
    ) -> None:
        renew_head(model.train(), self.familiar, optimizer=optimizer)  # an evaluation has left it in eval mode


# What is reviewed: its parts, and the words that praise it and that blame it, which may be blame and praise of another.
THINGS = {
    "films": ("plot actor scene ending", "gripping loud dark", "slow plain light quiet"),
    "books": ("plot chapter author ending", "gripping dark long", "slow plain thin light"),
    "kettles": ("lid handle spout switch", "quiet light plain small", "loud slow dark"),
    "toasters": ("lever handle slot switch", "quiet small plain light", "loud slow dark"),
}
WORDS = ["[CLS]", *sorted({word for texts in THINGS.values() for text in texts for word in text.split()})]


def reviews(thing: str, number: int, *, seed: int) -> list[dict[str, Any]]:
    """Three parts of a thing with a word on each, as tokens; one word in ten says the opposite of what is meant."""
    rng, (parts, praise, blame) = random.Random(seed), (words.split() for words in THINGS[thing])
    made = []
    for label in [0, 1] * (number // 2):
        said = [(rng.choice(parts), rng.choice((blame, praise)[label ^ (rng.random() < 0.1)])) for _ in range(3)]
        tokens = ["[CLS]", *(word for pair in said for word in pair)]
        made.append({"input_ids": [WORDS.index(word) for word in tokens], "labels": label})
    return made


def words_seen(input_ids: Tensor, **_: Any) -> Tensor:
    """What gates see of a review: the share of each word. Features move far while a network learns from nothing."""
    return F.one_hot(input_ids, len(WORDS)).float().mean(1)


def gated_model() -> nn.Module:
    """A small DistilBERT of random weights, with units where its classifier was."""
    config = DistilBertConfig(vocab_size=len(WORDS), dim=48, n_layers=2, n_heads=4, hidden_dim=96)
    example = {"input_ids": torch.zeros(2, 7, dtype=torch.long)}
    return replace_head(DistilBertForSequenceClassification(config), gating=words_seen, example=example, verbose=False)


def make_trainer(folder: Path, hold_out: str, *, epochs: int = 4, each: int = 400) -> GatedTrainer:
    """All there is to train: the model, and ``each`` reviews of all things but one."""
    sizes = {"per_device_train_batch_size": 32, "per_device_eval_batch_size": 256, "num_train_epochs": epochs}
    seen = [thing for thing in THINGS if thing != hold_out]
    return GatedTrainer(
        gated_model(),
        TrainingArguments(
            str(folder), learning_rate=2e-3, eval_strategy="epoch", save_strategy="no", report_to="none", **sizes
        ),
        train_dataset=[row for thing in seen for row in reviews(thing, each, seed=0)],
        eval_dataset=[row for thing in seen for row in reviews(thing, 50, seed=1)],
        compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())},
    )


def main(hold_out: str = "toasters", **sizes: int) -> None:
    """Train on reviews of all things but one, and score the model on each."""
    trainer = make_trainer(Path("out/hf_trainer"), hold_out, **sizes)
    trainer.train()
    for thing in THINGS:
        score = 100 * trainer.evaluate(reviews(thing, 300, seed=2))["eval_accuracy"]
        print(f"{thing:>8}  {score:5.1f} %  {'never seen' if thing == hold_out else 'seen'}")


if __name__ == "__main__":
    main()
