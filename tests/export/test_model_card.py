"""The card beside an exported model: a golden one, where its scores come from, and names that mean harm."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import made_exports
import made_runs
from gated_domains.evaluation.statistics import Spread
from gated_domains.experiments.model import Model
from gated_domains.export.card import TITLE, model_card
from gated_domains.export.facts import Facts, facts_of
from gated_domains.export.feeds import feeds_of
from gated_domains.export.parity import Parity
from gated_domains.export.subject import subject_of_model
from gated_domains.runs.result import RunResult

pytestmark = pytest.mark.usefixtures("without_shape_checks")
GOLDEN = Path(__file__).with_name("golden_card.md")
OUTPUTS = ("prediction", "beta", "novelty", "coverage")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Runs of one recipe with north or south held out, or nothing, over seeds; and one of another recipe."""
    root, data = tmp_path_factory.mktemp("runs"), made_runs.vectors()
    for hold_out, seed in (("north", 0), ("north", 1), ("south", 0), (None, 0)):
        made_exports.trained(data, root, hold_out=hold_out, seed=seed)
    made_exports.trained(data, root, hold_out="west", settings={"num_bases": 3})
    return root


def run_of(root: Path, hold_out: str | None) -> Path:
    folders = {facts_of(path).recipe["hold_out"]: path for path in sorted(root.iterdir()) if seed_of(path) == 0}
    return folders[hold_out]


def seed_of(path: Path) -> int:
    return facts_of(path).recipe["seed"]


def card_of(folder: Path, *, facts: Facts | None = None, **changes) -> str:
    subject = replace(subject_of_model(Model.load(folder), gates=None, folder=folder), **changes)
    return model_card(
        subject,
        path=Path("model.onnx"),
        feeds=feeds_of(subject.schema.encoding),
        outputs=OUTPUTS,
        parity=Parity(3e-7),
        facts=facts or facts_of(folder),
    )


def golden_facts() -> Facts:
    result = RunResult(
        run="0123",
        data="vectors",
        method="gdu",
        label="GDU",
        seed=0,
        hold_out="north",
        held_out=("north",),
        sources=("south", "west"),
        metric="accuracy",
        higher_is_better=True,
        test={"north": 0.875},
        validation={"south": 0.9, "west": 1.0},
        validation_overall=0.95,
        selection="source validation accuracy",
        protocol="one domain held out; 20 % of the sources for validation",
        best_epoch=0,
        epochs=1,
        stopped="all epochs",
        seconds=1.0,
        parameters_trained=10,
        parameters_all=10,
        uses_domains=False,
        notes=("made in a test",),
    )
    return Facts(
        result=result,
        recipe={"split_seed": 0},
        data={"name": "vectors", "fingerprint": "abc"},
        rows=100,
        scores={"north": Spread(0.85, 0.02, 2), "south": Spread(0.9, None, 1)},
    )


def test_a_golden_card(root):
    card = card_of(run_of(root, "north"), facts=golden_facts(), temperature=1.25)
    # The version is that of the day.
    card = re.sub(r"by gated-domains \S+;", "by gated-domains VERSION;", card)
    assert card == GOLDEN.read_text("utf-8")


def test_scores_are_of_the_same_recipe_whatever_was_held_out(root):
    facts = facts_of(run_of(root, "north"))
    assert {domain: found.n for domain, found in facts.scores.items()} == {"north": 2, "south": 1}
    assert facts.result.test.keys() == {"north"}
    assert facts.rows == 100
    card = card_of(run_of(root, "north"))
    assert "Of this very model" in card
    assert re.search(r"\| north \| [\d.]+ ± [\d.]+ \(2\) \|", card)
    assert re.search(r"\| south \| [\d.]+ \(1\) \|", card)


def test_a_model_of_all_domains_has_the_scores_of_its_siblings(root):
    card = card_of(run_of(root, None))
    assert "held out: nothing" in card
    assert "Of this very model" not in card
    assert re.search(r"\| south \| [\d.]+ \(1\) \|", card)


def test_where_nothing_was_held_out_the_card_says_how_to_find_out(tmp_path):
    run = made_exports.trained(made_runs.vectors(), tmp_path, hold_out=None)
    assert "nobody knows how it does" in card_of(run.path)
    assert "`gated-domains compare vectors --methods gdu`" in card_of(run.path)


def test_a_sibling_that_cannot_be_read_is_counted_and_loses_nothing(tmp_path):
    data = made_runs.vectors()
    run = made_exports.trained(data, tmp_path)
    other = made_exports.trained(data, tmp_path, hold_out="south")
    (other.path / "result.json").write_text("{")
    facts = facts_of(run.path)
    assert (facts.unreadable, list(facts.scores)) == (1, ["north"])
    assert "could not be read: 1" in card_of(run.path)


def test_scores_that_are_handed_in_are_shown_as_such(root):
    card = card_of(run_of(root, None), facts=facts_of(None, scores={"site 9": 0.5}))
    assert "As handed in" in card
    assert "| site 9 | 0.5 |" in card
    assert "Not known: the model does not come from a run's folder." in card


def test_names_that_mean_harm_are_shown_letter_by_letter(root):
    evil = "a|b\n<script>alert(1)</script>\n# title `x`"
    facts = golden_facts()
    result = replace(facts.result, sources=(evil,), test={evil: 0.5}, held_out=(evil,), notes=(evil,))
    card = card_of(run_of(root, "north"), facts=replace(facts, result=result, data={"name": evil}, scores={}))
    assert "<script" not in card.replace("\\<script", "")
    assert "\n# title" not in card
    assert card.count("\n| a\\|b ") == 1
    assert card.startswith(TITLE)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"temperature": 1.0}, "they were not calibrated"),
        ({"temperature": 0.8}, "temperature 0.8, fitted to validation rows"),
        ({"gates": "batch"}, "never mix domains in a batch"),
        ({"gates": "sample"}, "hangs on that sample alone"),
    ],
)
def test_limits_follow_the_model(root, changes, words):
    assert words in card_of(run_of(root, "north"), **changes)


def test_an_oracle_is_called_one(root):
    facts = golden_facts()
    facts = replace(facts, result=replace(facts.result, oracle=True))
    assert "(oracle)" in card_of(run_of(root, "north"), facts=facts)


def test_a_name_with_a_comma_reads_as_one(root):
    facts = golden_facts()
    facts = replace(facts, result=replace(facts.result, sources=("Basel, old", "Bern")))
    assert 'source domains: "Basel, old", Bern' in card_of(run_of(root, "north"), facts=facts)


def test_a_card_says_where_coverage_is_steep():
    assert str(Parity(3e-7)) == "3e-07"
    assert "as far from its own value in float64" in str(Parity(3e-7, 2e-5))


def test_an_estimator_is_described_without_marks_of_code():
    from gated_domains.estimators.plain import ERMClassifier
    from gated_domains.export.subject import subject_of_estimator

    subject = subject_of_estimator(ERMClassifier().fit([[0.0], [1.0], [2.0]], [0, 1, 1]), gates=None)
    assert subject.what
    assert "`" not in subject.what
