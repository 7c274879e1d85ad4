"""Forms of Fourier mixing, compared on the choosing folds of Digits-5: pixel range, channels, norm statistics.

    python benchmarks/fourier_forms.py FORM --data-dir D --out out/forms/FORM

trains ``erm[fourier_mix=0.9,ema=0.995]`` in one of the FORMS with two seeds, each of MNIST, MNIST-M, SVHN and USPS held
out in turn (SYN is removed), and lists the scores in OUT. The package has the form ``unit``; the others are made by
replacing parts of it here.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import choose_recipe
import torch
from torch import Tensor

from gated_domains.training import mixing
from gated_domains.training.callbacks import ema

_MIX = mixing.FourierMix.mix
FORMS = {
    "unit": "pixels in [0, 1], every channel, averaged weights take norm statistics from mixed images",
    "signed": "pixels in [-1, 1], clamped at 1.5",
    "luminance": "the amplitudes of the luminance alone",
    "plain-norms": "averaged weights take norm statistics from images as they are",
}


def signed(self: mixing.FourierMix, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    self.black = 0.0
    return _MIX(self, images, generator).clamp(-1.5, 1.5)


def luminance(self: mixing.FourierMix, images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    weights = torch.tensor([0.299, 0.587, 0.114], device=images.device).reshape(1, 3, 1, 1)
    grey = (images * weights).sum(1, keepdim=True)
    return images + _MIX(self, grey, generator) - grey


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=list(FORMS))
    parser.add_argument("--data-dir", type=Path, help="folder that holds digits5/")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run folders and the run list")
    chosen = parser.parse_args()
    if chosen.form == "plain-norms":
        ema.training_inputs = lambda trainer: trainer.looks()
    elif chosen.form != "unit":
        mixing.FourierMix.mix = {"signed": signed, "luminance": luminance}[chosen.form]  # type: ignore[method-assign]
    settings: dict[str, Any] = {"set": "digits5", "data": None, "data_dir": chosen.data_dir, "lists": chosen.out}
    settings |= {"methods": [choose_recipe.MIX], "seeds": [0, 1], "machine": chosen.form, "compile": False}
    choose_recipe.run(argparse.Namespace(**settings, workers=None, out=chosen.out))


if __name__ == "__main__":
    main()
