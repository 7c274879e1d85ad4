"""Settings of a recipe on given data: every ``auto`` filled in, impossible combinations refused before training."""

from __future__ import annotations

from gated_domains.backbones.bodies import BODIES, default_body
from gated_domains.common.validation import PRESETS
from gated_domains.data.dataset import DomainDataset
from gated_domains.data.errors import DataError, listing
from gated_domains.data.labels import groups_among
from gated_domains.data.splits import OFFICIAL, HoldOut
from gated_domains.evaluation.metrics import SELECTION_RULES, metric_for
from gated_domains.experiments.run_scores import TEST, VALIDATION, scorer_for
from gated_domains.methods.method import Method
from gated_domains.runs.recipe import MAPS, Recipe


def resolve(recipe: Recipe, dataset: DomainDataset) -> Recipe:
    """The recipe with every ``auto`` filled in from the data and the method; a body for other data is refused."""
    if recipe.training.sampling == "auto":
        training = recipe.training.model_copy(update={"sampling": recipe.method.kind.sampling})
        recipe = recipe.replace(training=training)
    official = recipe.hold_out == OFFICIAL
    if recipe.selection == "auto":
        recipe = recipe.replace(selection="official" if official else "source_validation")
    if recipe.metric == "auto":
        published = dataset.published if official else None
        recipe = recipe.replace(metric=metric_for(dataset.task).name if published is None else published.metric)
    if recipe.body == "auto":
        return recipe.replace(body=default_body(dataset.inputs.kind))
    takes = BODIES[default_body(dataset.inputs.kind)].takes
    if BODIES[recipe.body].takes != takes:
        able = listing(name for name, body in BODIES.items() if body.takes == takes)
        raise DataError(
            f"the body {recipe.body!r} takes {BODIES[recipe.body].takes}, and {dataset.name} is "
            f"{dataset.inputs.describe()}; bodies for these data: {able}"
        )
    return recipe


def refuse_settings(recipe: Recipe, dataset: DomainDataset, split: HoldOut) -> None:
    """Refuse a recipe whose settings cannot be had on these data, or not all at once."""
    _refuse_training(recipe, dataset)
    _refuse_selection(recipe, split)


def _refuse_training(recipe: Recipe, dataset: DomainDataset) -> None:
    training, kind = recipe.training, dataset.inputs.kind
    if training.accumulate > 1 and recipe.method.kind.step is not Method.step:
        raise DataError(
            f"{recipe.label} has a step of its own, which cannot be cut into parts; leave accumulate out, or the method"
        )
    if training.accumulate > 1 and training.mixstyle is not None:
        raise DataError("styles are mixed over a whole batch; leave accumulate or mixstyle out")
    if training.sampling == "groups" and training.groups_per_batch % training.accumulate:
        raise DataError(
            f"a batch of {training.groups_per_batch} domains cannot be cut into {training.accumulate} parts; "
            "choose groups_per_batch as a multiple of accumulate"
        )
    if training.augment != "none" and kind not in MAPS:
        raise DataError(f"augment {training.augment} moves images, and these are {dataset.inputs.describe()}")
    if training.fourier_mix is not None and kind not in MAPS:
        described = dataset.inputs.describe()
        if recipe.label in PRESETS:
            raise DataError(f"{recipe.label} is for images, and these are {described}; choose erm or gdu")
        raise DataError(
            f"fourier_mix {training.fourier_mix:g} mixes the spectra of images, and these are {described}; "
            "leave fourier_mix out"
        )
    if training.fourier_mix is not None and recipe.backbone is not None and recipe.method.mode == "fine_tune":
        raise DataError(
            f"fourier_mix {training.fourier_mix:g} applies while a network is trained, and {recipe.label} keeps the "
            f"network of {recipe.backbone} frozen; set it for the run that trains the network"
        )
    if training.augment == "photos" and (kind != "images" or getattr(dataset.inputs, "standardise", False)):
        raise DataError(
            f"augment photos changes the brightness of pixels, and these are standardised "
            f"({dataset.inputs.describe()}); choose flips or turns"
        )
    if training.mixstyle is not None and kind in ("tokens", "graphs") and recipe.method.mode != "fine_tune":
        raise DataError(f"styles are mixed of images and of vectors, and these are {dataset.inputs.describe()}")


def _refuse_selection(recipe: Recipe, split: HoldOut) -> None:
    if recipe.hold_out == OFFICIAL and recipe.selection in ("out_of_domain", "leave_one_source_out"):
        raise DataError(
            f"the published division has its own validation rows, so {recipe.selection} has nothing to keep apart; "
            "select by official, or hold out domains by their names"
        )
    if recipe.selection == "out_of_domain" and recipe.validation_domain is None:
        raise DataError("selection out_of_domain needs validation_domain, the source domain to validate on")
    if recipe.selection != "out_of_domain" and recipe.validation_domain is not None:
        raise DataError(
            f"validation_domain {recipe.validation_domain} selects by out-of-domain validation; "
            "select by out_of_domain, or leave it out"
        )
    if recipe.training.swad and recipe.selection in ("leave_one_source_out", "last", "worst_class"):
        raise DataError(
            f"{recipe.label} averages over epochs that the validation loss chooses, so {recipe.selection} would "
            "choose for nothing; select by source_validation, or leave swad out"
        )
    if recipe.selection == "leave_one_source_out" and len(split.sources) < 2:
        raise DataError(
            f"with {recipe.hold_out} held out there is one source domain only, and leaving it out leaves none; "
            "select by source_validation"
        )
    if recipe.hold_out == OFFICIAL and recipe.score_by:
        raise DataError(
            "a published division is scored by its own groups; leave score_by out, or hold out domains by name"
        )
    if recipe.hold_out != OFFICIAL and recipe.selection == "official":
        raise DataError(f"selection official goes by a published division; hold out {OFFICIAL!r}, or select otherwise")


def check_scoring(recipe: Recipe, split: HoldOut, dataset: DomainDataset) -> None:
    """Refuse, before anything is trained, what could not be scored after it."""
    metric = metric_for(dataset.task, recipe.metric)
    if recipe.calibrate and dataset.num_classes is None:
        here = "labels are" if dataset.task == "labels" else "a number is"
        raise DataError(f"there is nothing to calibrate where {here} predicted; leave calibrate out")
    rule = SELECTION_RULES[recipe.selection]
    if rule.oracle and not len(split.test):
        raise DataError("the oracle selects by a held-out domain, and none is held out; name one, or select otherwise")
    if recipe.selection == "worst_class" and dataset.num_classes is None:
        here = "labels are" if dataset.task == "labels" else "a number is"
        raise DataError(f"there is no worst class where {here} predicted; select by source_validation")
    deciding = [("validation", VALIDATION, split.validation)]
    deciding += [("held-out", TEST, split.test)] * rule.oracle
    for what, part, rows in deciding:
        if not scorer_for(recipe, split, dataset, part).has_score(rows):
            of_groups = ", or those of each group that counts," * (split.key == OFFICIAL)
            raise DataError(
                f"the {len(rows):,} {what} rows{of_groups} share one target and have no {metric.label} to select by; "
                "choose another metric"
            )
    for rows in (split.validation, split.test):
        if recipe.score_by and len(rows):
            groups_among(dataset, rows, recipe.score_by)
