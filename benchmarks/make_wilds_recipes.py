"""The recipes of WILDS that the package ships, from the tables of settings below.

    python benchmarks/make_wilds_recipes.py          # writes src/gated_domains/recipes/wilds/*.yaml
    python benchmarks/make_wilds_recipes.py --check  # says which of them differ from what it would write

ERM and GDU: the paper's appendix, which follows WILDS. Rivals: what WILDS or their authors published.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gated_domains.data.errors import written_whole
from gated_domains.recipes import folder
from gated_domains.reports.published import BENCHMARKS, ROWS
from gated_domains.settings import to_yaml

Fields = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What all methods share on one data set: the network, its training, and where these come from."""

    title: str
    body: str
    pretrained: str
    training: Fields
    source: str
    data: Fields = field(default_factory=dict)
    dataset: str = ""


@dataclass(frozen=True, kw_only=True)
class Rival:
    """A rival on one data set: what of the method and of the training is its own."""

    method: Fields
    training: Fields = field(default_factory=dict)
    note: str = ""
    body: str = ""


APPENDIX = "the paper's appendix, after WILDS"
_TEXT_NOTE = ", but for two of its habits: gradients are not clipped at 1, and biases and norms decay as weights do"
SETUPS = {
    "camelyon17": Setup(
        title="Camelyon17",
        body="densenet121",
        pretrained="false",
        training={"epochs": 5, "batch_size": 32, "optimizer": "sgd", "rate": 1e-3, "momentum": 0.9,
                  "weight_decay": 0.01, "schedule": "constant"},
        source=APPENDIX + "; its rate 10e-3 and decay 10e-2 are read as WILDS's 1e-3 and 1e-2",
    ),
    "camelyon17-digits": Setup(
        title="Camelyon17 with the digits body",
        dataset="camelyon17",
        body="digits",
        pretrained="false",
        training={"epochs": 250, "batch_size": 512, "optimizer": "adam", "rate": 1e-3, "schedule": "plateau",
                  "decay": 0.2, "drop_after": 10, "plateau_on": "loss", "patience": 20},
        data={"image_size": 32},
        source="the paper's second set-up of Camelyon17; image size (that of its digits), batch size and patience, "
        "which it does not give, are ours",
    ),
    "fmow": Setup(
        title="FMoW",
        body="densenet121",
        pretrained="true",
        training={"epochs": 50, "batch_size": 64, "optimizer": "adam", "rate": 1e-4, "schedule": "step", "decay": 0.96},
        source=APPENDIX,
    ),
    "amazon": Setup(
        title="Amazon",
        body="distilbert-classifier",
        pretrained="true",
        data={"tokens": 512},
        training={"epochs": 3, "batch_size": 8, "optimizer": "adamw", "rate": 1e-5, "weight_decay": 0.01,
                  "schedule": "linear"},
        source=APPENDIX + _TEXT_NOTE,
    ),
    "iwildcam": Setup(
        title="iWildCam",
        body="resnet50",
        pretrained="true",
        data={"image_size": 448},
        training={"epochs": 12, "batch_size": 16, "optimizer": "adam", "rate": 3e-5, "schedule": "constant"},
        source=APPENDIX,
    ),
    "rxrx1": Setup(
        title="RxRx1",
        body="resnet50",
        pretrained="true",
        training={"epochs": 90, "batch_size": 75, "optimizer": "adamw", "rate": 1e-4, "weight_decay": 1e-5,
                  "schedule": "cosine", "warmup": 10, "augment": "turns"},
        source=APPENDIX + ", which turns and mirrors the images",
    ),
    "ogb-molpcba": Setup(
        title="OGB-MolPCBA",
        body="gin",
        pretrained="false",
        training={"epochs": 100, "batch_size": 32, "optimizer": "adam", "rate": 1e-3, "schedule": "constant"},
        source=APPENDIX,
    ),
    "civilcomments": Setup(
        title="CivilComments",
        body="distilbert-classifier",
        pretrained="true",
        data={"tokens": 300},
        training={"epochs": 5, "batch_size": 16, "optimizer": "adamw", "rate": 1e-5, "weight_decay": 0.01,
                  "schedule": "linear"},
        source=APPENDIX + _TEXT_NOTE,
    ),
    "poverty": Setup(
        title="PovertyMap",
        body="resnet18",
        pretrained="false",
        training={"epochs": 200, "batch_size": 64, "optimizer": "adam", "rate": 1e-3, "schedule": "step",
                  "decay": 0.96},
        source=APPENDIX + " 2.0, whose network of 8 bands starts from nothing (the paper calls it pre-trained)",
    ),
}  # fmt: skip

OURS: dict[str, tuple[str, Fields]] = {
    "erm": ("ERM", {"name": "erm"}),
    "erm_ensemble": (
        "the paper's ERM ensemble: five heads on one body",
        {"name": "erm-ensemble", "heads": 5, "activation": "none"},
    ),
    **{
        f"{short}_{gate}": (
            f"{words} GDU with the {gate} gate, to the letter of the paper",
            {"name": "gdu-paper", "mode": mode, "gate": gate, "setting": "wilds", "num_bases": 5},
        )
        for short, words, mode in (("ft", "fine-tuned", "fine_tune"), ("e2e", "end-to-end", "end_to_end"))
        for gate in ("cosine", "mmd", "projection")
    },
    "gdu": ("GDU as we recommend it", {"name": "gdu"}),
}

WILDS = "examples/configs of WILDS 2.0"
FISH = (
    "src/config.py of YugeTen/fish, whose meta_lr is divided by its meta_steps as in src/main.py; rows of a step times "
    "domains make up a batch here"
)
LISA = "domain_shifts of huaxiuyao/LISA; partners are sought in the batch here, not in all the data"
CGD = "the defaults of vihari/CGD, which keeps WILDS's training"
ARM = "ARM-BN keeps WILDS's training of ERM"
_FISH_START = (
    "It goes on from an ERM network: give one by --backbone, as `reproduce wilds` does with its own. Its authors' has "
    "trained for some thousand steps, ours to its end; and their Adam is amsgrad."
)
_FOUR_STEPS = "There are four groups and so four inner steps; its authors name five, which meta_lr is divided by."
_FOUR_GROUPS = "WILDS's file has one group a batch, in doubt; that compares nothing, so all four are taken."
_REPEATED = {"repeat_rows": True}  # as WILDS draws: small groups are drawn with replacement
_RXRX1 = {"batch_size": 72, "optimizer": "adam", "rate": 1e-3}


def _wilds(weights: dict[str, float] | None, setting: Fields) -> dict[str, Rival]:
    """CORAL and IRM as WILDS has them: blocks of so many groups a batch."""
    groups = {"camelyon17": 2, "fmow": 8, "amazon": 2, "iwildcam": 2, "rxrx1": 9, "ogb-molpcba": 4, "civilcomments": 4,
              "poverty": 8}  # fmt: skip
    return {
        name: Rival(
            method={**setting, **({} if weights is None else {"weight": weights[name]})},
            training={"groups_per_batch": count, **_REPEATED, **(_RXRX1 if name == "rxrx1" else {})},
            note=_FOUR_GROUPS if name == "civilcomments" else "",
            # WILDS compares the features of the bare network.
            body="distilbert" if setting["name"] == "coral" and SETUPS[name].body == "distilbert-classifier" else "",
        )
        for name, count in groups.items()
    }


def _fish(
    rows: int, domains: int, meta_lr: float, *, meta_steps: int | None = None, start: bool = True, **training: Any
) -> Rival:
    """Fish with the ``meta_lr`` and ``meta_steps`` of its authors; they take as many steps as a batch has domains."""
    note = " ".join([_FISH_START] * start + [_FOUR_STEPS] * (meta_steps is not None))
    plain = {"schedule": "constant", "augment": "none", "weight_decay": 0.0}
    return Rival(
        method={"name": "fish", "meta_rate": round(meta_lr / (meta_steps or domains), 6)},
        training={**plain, "batch_size": rows * domains, "groups_per_batch": domains, **_REPEATED, **training},
        note=note,
    )


def _lisa(mix: str, **training: Any) -> Rival:
    plain = {"schedule": "constant", "augment": "none", "weight_decay": 0.0}
    settings = {"name": "lisa", "intra_label": 1.0, "alpha": 2.0, "mix": mix}
    return Rival(method=settings, training={**plain, **_REPEATED, **training})


_CORAL_WEIGHTS = {"camelyon17": 0.1, "fmow": 0.1, "amazon": 1.0, "iwildcam": 10.0, "rxrx1": 0.1, "ogb-molpcba": 0.1,
                  "civilcomments": 10.0, "poverty": 0.1}  # fmt: skip
_BALANCED = {"sampling": "balanced"}
RIVALS: dict[str, tuple[str, dict[str, Rival]]] = {
    "coral": (WILDS, _wilds(_CORAL_WEIGHTS, {"name": "coral"})),
    # lambda is 1 everywhere, so that there is nothing to anneal.
    "irm": (WILDS, _wilds(None, {"name": "irm", "weight": 1.0, "anneal_epochs": 0})),
    "group_dro": (
        WILDS,
        {
            name: Rival(
                method={"name": "group-dro", "eta": 0.01, "adjustment": 0.0},
                training={**_BALANCED, **(_RXRX1 if name == "rxrx1" else {})},
            )
            for name in BENCHMARKS
        },
    ),
    "fish": (
        FISH,
        {
            "camelyon17": _fish(32, 3, 0.01, epochs=20, rate=1e-4),
            "fmow": _fish(64, 5, 0.01, epochs=12),
            "amazon": _fish(8, 5, 0.01, epochs=3, optimizer="adam", rate=2e-6),
            "iwildcam": _fish(16, 10, 0.01, epochs=18, rate=1e-4),
            "civilcomments": _fish(16, 4, 0.05, meta_steps=5, epochs=5, optimizer="adam"),
            "poverty": _fish(64, 5, 0.1, start=False, epochs=200),
        },
    ),
    "lisa": (
        LISA,
        {
            "camelyon17": _lisa("cutmix", epochs=1, batch_size=32, rate=1e-4, groups_per_batch=3),
            "fmow": _lisa("cutmix", epochs=5, batch_size=32, groups_per_batch=2),
            "amazon": _lisa("features", epochs=3, optimizer="adam", rate=2e-6, groups_per_batch=2),
            "rxrx1": _lisa("cutmix", **_RXRX1, weight_decay=1e-5, schedule="cosine", groups_per_batch=2),
            "civilcomments": _lisa("features", epochs=5, batch_size=8, optimizer="adam", groups_per_batch=4),
        },
    ),
    "cgd": (
        CGD,
        {
            name: Rival(method={"name": "cgd", "eta": 0.05, "adjustment": 0.0}, training=_BALANCED)
            for name in ("camelyon17", "fmow", "civilcomments", "poverty")
        },
    ),
    "arm_bn": (ARM, {name: Rival(method={"name": "arm-bn"}) for name in ("camelyon17", "fmow", "iwildcam", "rxrx1")}),
}


def recipes() -> Iterator[tuple[str, str]]:
    """The name and the text of every file."""
    for name, setup in SETUPS.items():
        for row, (words, method) in OURS.items():
            yield f"{name}_{row}.yaml", text(setup, name, words, method, {}, [f"Settings: {setup.source}."])
        for row, (source, by_dataset) in RIVALS.items():
            if (rival := by_dataset.get(name)) is not None:
                said = [f"Settings: {source}.", *([rival.note] if rival.note else [])]
                own = replace(setup, body=rival.body or setup.body)
                yield f"{name}_{row}.yaml", text(own, name, ROWS[row], rival.method, rival.training, said)


def text(setup: Setup, name: str, words: str, method: Fields, changes: Fields, said: list[str]) -> str:
    """One recipe: comments, then its fields."""
    fields = {
        "data": {"what": f"wilds/{setup.dataset or name}", **setup.data},
        "hold_out": "official",
        "selection": "official",
        "body": setup.body,
        "pretrained": setup.pretrained,
        "training": {**setup.training, "patience": setup.training.get("patience"), **changes},
        "method": method,
    }
    comments = [f"# {setup.title}: {words}.", *(f"# {line}" for line in said)]
    return "\n".join([*comments, to_yaml(fields)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check, place, wanted = parser.parse_args().check, folder("wilds"), dict(recipes())
    there = {path.name: path.read_text("utf-8") for path in place.glob("*.yaml")}
    differ = sorted(name for name in {*there, *wanted} if there.get(name) != wanted.get(name))
    if check:
        raise SystemExit(f"differ: {', '.join(differ)}" if differ else 0)
    for name in differ:
        if name not in wanted:
            Path(place, name).unlink()
            continue
        with written_whole(place / name) as draft:
            draft.write_text(wanted[name], "utf-8")
    print(f"{len(wanted)} recipes in {place}, {len(differ)} of them changed")


if __name__ == "__main__":
    main()
