"""On what the ablations are run, how fine, and the recipe behind each setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gated_domains.data.digits5 import folder_name
from gated_domains.experiments.recipe_checks import choose_method
from gated_domains.paper.digits import OURS, PAPER
from gated_domains.reports.ablations.setting import Fineness, Mode, Setting
from gated_domains.runs.recipe import DataSettings, MethodChoice, Recipe, TrainingSettings
from gated_domains.settings import parsed

SEEDS, QUICK_SEEDS = 3, 2
_EPOCHS: Mapping[Mode, int] = {"FT": 12, "E2E": 8}
_QUICK_EPOCHS: Mapping[Mode, int] = {"FT": 6, "E2E": 4}
_QUICK_SHARE = 0.3  # of the rows
_WEIGHTS = ("lambda_ols", "lambda_l1", "lambda_orth")

FULL = Fineness(
    bases={"FT": (2, 5, 8, 10, 12, 15, 20), "E2E": (2, 5, 10, 20)},
    sizes={"FT": (2, 5, 10, 20, 50), "E2E": (2, 10, 50)},
    weights={"FT": (0.0, 0.001, 0.005, 0.01, 0.05, 0.1), "E2E": (0.0, 0.01, 0.1)},
    clusters=tuple(range(2, 21)),
)
QUICK = Fineness(
    bases={"FT": (2, 5, 10), "E2E": (2, 5, 10)},
    sizes={"FT": (2, 10, 30), "E2E": (2, 10)},
    weights={"FT": (0.0, 0.01, 0.1), "E2E": (0.0, 0.1)},
    clusters=tuple(range(2, 15)),
)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Data, network and grids. ``target`` is held out everywhere but for the figure of features: ``second``."""

    data: DataSettings
    body: str
    target: str
    target_title: str
    second: str
    second_title: str
    fineness: Fineness
    seeds: int
    epochs: Mapping[Mode, int]
    batch_size: int
    precision: str = "32"
    about: str = ""
    """What a reader must know first."""

    def recipe(self, setting: Setting, seed: int) -> Recipe:
        """The run of a setting; heads on frozen features lack the network that they stand on."""
        usual = OURS if setting.method == "gdu" else PAPER
        fields: dict[str, Any] = {**usual, "epochs": self.epochs[setting.mode], "batch_size": self.batch_size}
        fields |= {"patience": None, "precision": self.precision}
        return Recipe(
            data=self.data,
            hold_out=setting.hold_out,
            body=self.body,
            training=parsed(TrainingSettings, fields, "the ablations"),
            selection="source_pooled",
            seed=seed,
            method=_method(setting),
        )

    def under(self, setting: Setting, seed: int) -> Recipe | None:
        """The run whose network a setting stands on; None for what is trained end to end."""
        return self.recipe(Setting(method="erm", hold_out=setting.hold_out), seed) if setting.mode == "FT" else None

    def how(self) -> str:
        """How runs are trained, in a sentence."""
        share = "" if self.data.fraction is None else f" ({self.data.fraction:.0%} of the rows)"
        return (
            f"Data {self.data.what}{share}, network {self.body}, precision {self.precision}, batches of "
            f"{self.batch_size}. The paper's layer (tanh experts, its initialiser, M 10 and N 10 where they are not "
            f"varied, kappa 2) by Adam at 0.001: {self.epochs['E2E']} epochs end to end (E2E, sigma 7.5), "
            f"{self.epochs['FT']} on the frozen features of ERM (FT, sigma by the median). Our layer by AdamW with "
            "cosine decay. The epoch is selected on the sources' validation rows."
        )


def full(*, small: bool = False, epochs: int | None = None, precision: str = "32") -> Setup:
    """The paper's network on Digits-5, or on 1,500 images a domain."""
    return Setup(
        data=DataSettings(what=folder_name(small=small)),
        body="digits",
        target="mnistm",
        target_title="MNIST-M",
        second="syn",
        second_title="SYN",
        fineness=FULL,
        seeds=SEEDS,
        epochs=_capped(_EPOCHS, epochs),
        batch_size=512,
        precision=precision,
        about="SMALL: 1,500 training images a domain where the paper has 25,000." * small,
    )


def quick(*, epochs: int | None = None, precision: str = "32") -> Setup:
    """Every figure in minutes on a CPU: the digits of the package, a small network, coarse grids."""
    return Setup(
        data=DataSettings(what="digits", fraction=_QUICK_SHARE),
        body="small",
        target="blended",
        target_title="blended",
        second="numbers",
        second_title="numbers",
        fineness=QUICK,
        seeds=QUICK_SEEDS,
        epochs=_capped(_QUICK_EPOCHS, epochs),
        batch_size=64,
        precision=precision,
        about="QUICK: a small network, few epochs and a part of the digits in the package, where blended stands for "
        "MNIST-M and numbers for SYN; these figures say that every road works, and nothing about the paper's.",
    )


def _capped(usual: Mapping[Mode, int], most: int | None) -> dict[Mode, int]:
    return {mode: epochs if most is None else min(epochs, most) for mode, epochs in usual.items()}


def _method(setting: Setting) -> MethodChoice:
    if setting.method == "erm":
        return choose_method("erm", {"activation": "tanh"})
    size = {"num_bases": setting.bases, "basis_size": setting.size}
    if setting.method == "gdu":
        return choose_method("gdu", size)
    weights = {name: value for name in _WEIGHTS if (value := getattr(setting, name)) is not None}
    mode = "fine_tune" if setting.mode == "FT" else "end_to_end"
    return choose_method("gdu-paper", {"gate": setting.gate, "setting": "digits", "mode": mode, **size, **weights})
