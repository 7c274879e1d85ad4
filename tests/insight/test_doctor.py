"""The doctor finds what is wrong with a layer, says it with its number, and names the cure."""

from __future__ import annotations

import ast
import inspect
import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import oracles
from gated_domains import GatedDomainUnits, examine
from gated_domains.common.validation import GateWarning
from gated_domains.data.errors import DataError
from gated_domains.estimators import GDUClassifier
from gated_domains.experiments.recipe_checks import parse_methods
from gated_domains.insight.doctor import Diagnosis, Finding, of_bases
from gated_domains.insight.doctor.cures import CURES
from gated_domains.insight.doctor.measures import (
    effective_bases,
    entropy_share,
    gram_of,
    information_share,
    input_information,
    look,
    matched_kappa,
    spread_of_bases,
)
from gated_domains.insight.doctor.of_labels import explained, mutual_information
from gated_domains.layer import penalties
from gated_domains.layer.gates import CosineGate, MMDGate, ProjectionGate

WIDTH, GROUPS = 6, 3
PACS = Path(__file__).parents[2].parent / "shared" / "data" / "pacs_efflite0_feats.npz"


@pytest.fixture
def rows() -> torch.Tensor:
    """Three groups that lie apart."""
    centres = 4 * torch.randn(GROUPS, WIDTH)
    return (centres[torch.arange(240) % GROUPS] + torch.randn(240, WIDTH)).float()


def fitted(rows: torch.Tensor, **settings: Any) -> GatedDomainUnits:
    return GatedDomainUnits(WIDTH, 2, **{"num_bases": GROUPS, "basis_size": 5, **settings}).fit_bases(rows)


def changed(
    head: GatedDomainUnits, *, bases: torch.Tensor | None = None, sigma: float = 0.0, kappa: float = 0.0
) -> Any:
    with torch.no_grad():
        if bases is not None:
            head.bases.copy_(bases)
        if sigma:
            head.kernel.set_sigma(sigma)
        if kappa:
            head.gate.set_kappa(kappa)
    return head


def troubled(found: Diagnosis) -> dict[str, str]:
    return {finding.name: finding.level for finding in found.findings if finding.level != "ok"}


# -- the measures, against loops from their formulas -------------------------------------------------------------------


def shannon(weights: list[float]) -> float:
    return -sum(w * math.log(w) for w in weights if w > 0)


@pytest.mark.parametrize("gate", [CosineGate(3.0), MMDGate(3.0), ProjectionGate(), ProjectionGate(1e-3)])
def test_entropy_information_and_effective_bases_are_what_loops_say(rows, gate):
    seen = look(fitted(rows, gate=gate, num_bases=4), rows[:40])
    beta = [oracles.simplex(row) for row in seen.weighed.beta.double().tolist()]
    mean = [sum(column) / len(beta) for column in zip(*beta, strict=True)]
    of_rows = sum(map(shannon, beta)) / len(beta)
    assert entropy_share(seen.beta) == pytest.approx(of_rows / math.log(4))
    assert information_share(seen.beta) == pytest.approx((shannon(mean) - of_rows) / math.log(4), abs=1e-12)
    assert effective_bases(seen.beta) == pytest.approx(math.exp(shannon(mean)))


def test_information_is_0_for_one_mixture_and_1_for_a_basis_of_its_own():
    alike, apart = torch.tensor([[0.7, 0.2, 0.1]] * 6).double(), torch.eye(3).repeat(2, 1).double()
    assert information_share(alike) == pytest.approx(0.0, abs=1e-12)
    assert (information_share(apart), effective_bases(apart)) == (pytest.approx(1.0), pytest.approx(3.0))
    assert entropy_share(apart) == 0.0
    assert (entropy_share(alike[:, :1]), information_share(alike[:, :1])) == (0.0, 0.0)


def test_overlap_of_bases_is_what_loops_say_and_places_not_in_use_count_nowhere(rows):
    head = fitted(rows, max_bases=5)
    gram = oracles.gram(oracles.radial_kernel("gaussian", float(head.kernel.sigma)), head.active_bases.tolist())
    found = gram_of(head)
    assert float(penalties.srip(found)) == pytest.approx(oracles.srip(gram, "diagonal"), rel=1e-4)
    value = examine(head)["orthogonality"].value
    assert value["mutual_coherence"] == pytest.approx(oracles.mutual_coherence(gram), rel=1e-4)
    assert len(examine(head, rows)["bases in use"].value["mean_weights"]) == GROUPS


def test_the_matched_kappa_is_the_one_that_fitting_sets(rows):
    head = fitted(rows)
    assert matched_kappa(look(head, rows)) == pytest.approx(float(head.gate.kappa), rel=1e-6)


# -- a healthy layer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", [CosineGate, MMDGate, lambda: ProjectionGate(1e-3)])
def test_a_fitted_layer_is_well(rows, gate):
    found = examine(fitted(rows, gate=gate()), rows)
    assert troubled(found) == {}
    assert (found.level, found.verdict) == ("ok", "ok")
    assert str(found).splitlines()[-1] == "ok"
    assert all(finding.cure is None for finding in found.findings)


def test_the_layer_and_the_rows_stay_as_they_were(rows):
    head = fitted(rows).train()
    before = {name: value.clone() for name, value in head.state_dict().items()}
    copy = rows.clone()
    examine(head, rows)
    assert head.training
    assert torch.equal(rows, copy)
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())
    assert all(parameter.grad is None for parameter in head.parameters())


def test_the_same_rows_give_the_same_findings_but_for_the_clock(rows):
    head = fitted(rows)
    first, second = (examine(head, rows).as_json()["findings"] for _ in range(2))
    assert [f for f in first if f["name"] != "cost"] == [f for f in second if f["name"] != "cost"]


# -- each trouble can be provoked --------------------------------------------------------------------------------------


def test_the_papers_start_is_broken_because_gates_do_not_depend_on_the_input(rows):
    wide = torch.randn(200, 300)
    found = examine(GatedDomainUnits.paper(300, 2), wide)
    assert found["dependence on the input"].level == "broken"
    assert "gates do not depend on the input" in found.verdict
    assert found.level == "broken"
    assert found["dependence on the input"].cure.startswith("call fit_bases")


def test_gates_that_move_and_tell_nothing_are_broken_too(rows):
    """Their standard deviation alone would pass."""
    head = changed(fitted(rows), kappa=float(fitted(rows).gate.kappa) / 40)
    finding = examine(head, rows)["dependence on the input"]
    assert finding.value["beta_std"] > 1e-3
    assert finding.value["information"] < 0.01
    assert (finding.level, finding.brief) == ("broken", "gates do not depend on the input")


def test_gates_that_tell_little_are_worth_a_look(rows):
    head = fitted(rows)
    similarity = head.gate.similarity(head.weigh(rows).products).detach().double()
    right = float(head.gate.kappa)
    kappas = [right * 0.8**step for step in range(30)]
    little = next(kappa for kappa in kappas if information_share((kappa * similarity).softmax(-1)) < 0.04)
    finding = examine(changed(head, kappa=little), rows)["dependence on the input"]
    assert 0.01 <= finding.value["information"] < 0.05
    assert (finding.level, finding.brief) == ("look", "gates hardly depend on the input")


def test_one_basis_cannot_depend_on_the_input_and_is_no_more_than_worth_a_look(rows):
    found = examine(fitted(rows, num_bases=1), rows)
    assert troubled(found) == {"dependence on the input": "look"}
    assert "two bases or more" in found["dependence on the input"].cure
    json.dumps(found.as_json(), allow_nan=False)  # what is infinite is null there


@pytest.mark.parametrize(("sigma", "words"), [(1e-2, "far from every basis"), (1e4, "near every basis")])
def test_a_saturated_kernel_is_broken(rows, sigma, words):
    found = examine(changed(fitted(rows), sigma=sigma), rows)
    assert found["kernel saturation"].level == "broken"
    assert words in found["kernel saturation"].says
    assert "sigma" in found["kernel saturation"].cure
    assert found["sigma"].level == "look"
    assert "the kernel saturates" in found.verdict


def test_uniform_and_one_hot_gates_are_worth_a_look(rows):
    for kappa, word, way in ((1e-3, "uniform", "raise kappa"), (1e5, "one-hot", "lower kappa")):
        found = examine(changed(fitted(rows), kappa=kappa), rows)
        assert found["gate entropy"].level == "look"
        assert word in found["gate entropy"].says
        assert way in found["gate entropy"].cure
        assert found["kappa"].level == "look"


def test_a_kappa_far_off_is_told_beside_the_one_that_fits(rows):
    head = fitted(rows)
    right = float(head.gate.kappa)
    assert examine(changed(head, kappa=9 * right), rows)["kappa"].level == "ok"
    for wrong, word in ((11 * right, "11 times too large"), (right / 11, "11 times too small")):
        finding = examine(changed(head, kappa=wrong), rows)["kappa"]
        assert finding.level == "look"
        assert word in finding.says
        assert finding.value["matched"] == pytest.approx(right, rel=1e-5)


def test_a_sigma_far_off_is_told_beside_the_median_distance(rows):
    head = fitted(rows)
    right = float(head.kernel.sigma)
    for wrong, word in ((5.5 * right, "too large"), (right / 5.5, "too small")):
        finding = examine(changed(head, sigma=wrong), rows)["sigma"]
        assert finding.level == "look"
        assert word in finding.says
        assert f"sigma={right:.3g}" in finding.cure
        assert finding.value["ratio"] == pytest.approx(wrong / right, rel=1e-5)
    assert examine(changed(head, sigma=4.5 * right), rows)["sigma"].level == "ok"


def test_a_dead_basis_is_named(rows):
    head = fitted(rows)
    bases = head.bases.detach().clone()
    bases[1] += 1e3
    found = examine(changed(head, bases=bases, kappa=50.0), rows)
    assert found["dead bases"].level == "look"
    assert found["dead bases"].value == {"dead": [1]}
    assert "bases [1] are dead" in found.verdict


def test_doubles_are_named_as_a_pair_and_all_alike_are_broken(rows):
    head = fitted(rows)
    bases = head.bases.detach().clone()
    bases[2] = bases[0]
    found = examine(changed(head, bases=bases), rows)
    assert found["duplicate bases"].level == "look"
    assert found["duplicate bases"].value["pairs"] == [[0, 2]]
    found = examine(changed(head, bases=bases[:1].expand(3, -1, -1)), rows)
    assert found["duplicate bases"].level == "broken"
    assert "all 3 bases are one" in found.verdict
    assert found["dependence on the input"].level == "broken"


def test_doubles_have_the_numbers_of_their_places_where_some_are_not_in_use(rows):
    head = fitted(rows, max_bases=5)
    with torch.no_grad():
        head.active.copy_(torch.tensor([True, False, True, True, False]))
        head.bases[3] = head.bases[2] = head.bases[1]
    assert examine(head)["duplicate bases"].value["pairs"] == [[2, 3]]


def test_a_basis_that_collapsed_to_a_point_is_named(rows):
    head = fitted(rows)
    bases = head.bases.detach().clone()
    bases[1] = bases[1, :1] + 1e-4 * bases[1]
    finding = examine(changed(head, bases=bases))["collapsed bases"]
    assert (finding.level, finding.value["collapsed"]) == ("look", [1])
    assert examine(fitted(rows, basis_size=1))["collapsed bases"].level == "ok"
    one = examine(changed(head, bases=torch.ones_like(bases)))
    assert one["collapsed bases"].value["collapsed"] == [0, 1, 2]


def test_tight_groups_that_lie_far_apart_are_no_points(rows):
    far = torch.eye(GROUPS, WIDTH)[torch.arange(240) % GROUPS] * 100 + torch.randn(240, WIDTH)
    found = examine(fitted(far), far)
    assert max(found["collapsed bases"].value["norms"]) > 0.999
    assert troubled(found) == {}


def test_the_spread_of_a_basis_is_what_a_loop_says(rows):
    head = fitted(rows)
    vectors = head.bases.detach().double().tolist()

    def spread(points: list[list[float]]) -> float:
        middle = [sum(column) / len(points) for column in zip(*points, strict=True)]
        return math.sqrt(sum(oracles.squared_distance(point, middle) for point in points) / len(points))

    whole = spread([vector for basis in vectors for vector in basis])
    assert spread_of_bases(head).tolist() == pytest.approx([spread(basis) / whole for basis in vectors])


def test_weight_on_few_of_many_bases_is_worth_a_look(rows):
    head = fitted(rows, num_bases=8)
    bases = head.bases.detach().clone()
    bases[2:] += 40
    found = examine(changed(head, bases=bases, kappa=200.0), rows)
    assert found["bases in use"].value["effective"] < 8 / 3
    assert found["bases in use"].level == "look"


def test_a_projection_that_takes_bases_for_orthogonal_is_told_where_they_are_not(rows):
    cloud = torch.randn(240, WIDTH)
    overlapping = examine(fitted(cloud, gate=ProjectionGate()), cloud)
    assert overlapping["orthogonality"].level == "look"
    assert "ridge=1e-3" in overlapping["orthogonality"].cure
    assert overlapping["kappa"].says == "ProjectionGate has none"
    assert examine(fitted(cloud, gate=ProjectionGate(1e-3)))["orthogonality"].level == "ok"
    assert examine(fitted(rows, gate=ProjectionGate()))["orthogonality"].level == "ok"


def test_a_projection_whose_scale_alone_depends_on_the_input_is_broken():
    cloud = torch.randn(240, WIDTH)
    found = examine(fitted(cloud, gate=ProjectionGate()), cloud)
    finding = found["dependence on the input"]
    assert finding.value["beta_std"] > 0.05
    assert finding.level == "broken"
    assert "CosineGate" in finding.cure
    assert found["gate entropy"].cure == finding.cure  # there is no kappa to be raised


def test_familiarity_is_unfitted_good_or_out_of_date(rows):
    never = examine(GatedDomainUnits(WIDTH, 2, coverage=True), rows)["familiarity"]
    assert (never.level, "fit_coverage" in never.cure) == ("look", True)
    assert examine(GatedDomainUnits(WIDTH, 2, coverage=False), rows)["familiarity"].level == "ok"  # it has no effect
    for covers, words in ((True, "deviations are multiplied by it"), (False, "it is reported and multiplies nothing")):
        head = fitted(rows, coverage=covers)
        good = examine(head, rows)["familiarity"]
        assert (good.level, words in good.says) == ("ok", True)
        familiar = head.familiarity(rows).detach()
        assert good.value["familiar"] == pytest.approx(float((familiar > 0).float().mean()))
        assert good.value["mean"] == pytest.approx(float(familiar.mean()), rel=1e-5)
        stale = examine(head, rows + 10)["familiarity"]
        assert (stale.level, stale.brief) == ("look", "rows of the training domains count as unfamiliar")


# -- domain or class ---------------------------------------------------------------------------------------------------


def slow_information(beta: list[list[float]], labels: list[int]) -> float:
    """sum_l p(l) sum_j p(j | l) log(p(j | l) / p(j))"""
    rows, bases = len(beta), len(beta[0])
    overall = [sum(row[j] for row in beta) / rows for j in range(bases)]
    found = 0.0
    for label in set(labels):
        own = [row for row, other in zip(beta, labels, strict=True) if other == label]
        for j in range(bases):
            of_label = sum(row[j] for row in own) / len(own)
            found += len(own) / rows * of_label * math.log(of_label / overall[j])
    return found


def test_the_information_of_gates_on_labels_is_what_a_loop_says():
    beta, labels = torch.randn(60, 4).double().softmax(-1), torch.randint(3, (60,))
    assert mutual_information(beta, labels) == pytest.approx(slow_information(beta.tolist(), labels.tolist()))
    assert mutual_information(beta, 2 * labels) == pytest.approx(
        mutual_information(beta, labels)
    )  # a label may be unused
    assert mutual_information(beta, torch.zeros(60).long()) == pytest.approx(0.0, abs=1e-12)
    assert mutual_information(beta, torch.arange(60)) == pytest.approx(input_information(beta))  # all there is to tell
    assert mutual_information(torch.eye(3).double().repeat(4, 1), torch.arange(12) % 3) == pytest.approx(math.log(3))


def test_labels_that_mean_nothing_explain_nothing_however_few_the_rows():
    """The plain estimate is far above 0 for 20 rows of 10 groups; permutations take that off."""
    plain, shares, small = [], [], 0
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        beta = (2 * torch.randn(20, 4, generator=generator)).double().softmax(-1)
        found = explained(beta, torch.randint(10, (20,), generator=generator), whole=input_information(beta), seed=seed)
        plain.append(found.information / input_information(beta))
        shares.append(found.share)
        small += found.p_value <= 0.05
    assert float(np.mean(plain)) > 0.3
    assert float(np.mean(shares)) < 0.05  # not 0: a share is not below 0
    assert small <= 8  # 3 are expected; 9 or more have probability 0.2 %


def test_gates_that_follow_the_class_are_worth_a_look_and_those_that_follow_the_domain_are_not(rows):
    head, group = fitted(rows), torch.arange(240) % GROUPS
    other = torch.arange(240) // GROUPS % 2
    good = examine(head, rows, domains=group, classes=other)["domain or class"]
    assert (good.level, good.cure) == ("ok", None)
    assert good.value["domain"]["share"] > 0.9
    assert good.value["class"]["share"] < 0.05
    bad = examine(head, rows, domains=[f"site {number}" for number in other], classes=group.numpy())["domain or class"]
    assert (bad.level, bad.brief) == ("look", "gates follow the class more than the domain")
    assert bad.value["class"] == good.value["domain"]
    assert "raw input" in bad.cure
    without = examine(head, rows, domains=group)["domain or class"]
    assert (without.level, "class" in without.value) == ("ok", False)


def test_where_there_is_nothing_to_follow_there_is_no_such_finding(rows):
    names = [finding.name for finding in examine(fitted(rows), rows, domains=[0] * 240, classes=[0] * 240).findings]
    assert "domain or class" not in names
    one = examine(fitted(rows, num_bases=1), rows, domains=torch.arange(240) % 2)
    assert "domain or class" not in [finding.name for finding in one.findings]
    with pytest.raises(DataError, match="domains must have a label for each of 240 rows, got 3"):
        examine(fitted(rows), rows, domains=[0, 1, 2])


def test_labels_follow_their_rows_where_only_some_are_looked_at():
    group = torch.arange(3_000) % GROUPS
    many = (8 * torch.eye(GROUPS, WIDTH)[group] + torch.randn(3_000, WIDTH)).float()
    found = examine(fitted(many), many, domains=group, seed=1)["domain or class"]
    assert found.value["domain"]["share"] > 0.9


# -- cures can be carried out where the model was made -----------------------------------------------------------------

NUMBERS = {"fewer": 3, "kappa": 12.5, "typical": 2.25}


@pytest.mark.parametrize("trouble", CURES)
def test_a_cure_names_settings_parameters_and_calls_that_exist(trouble):
    cure = CURES[trouble].given(**NUMBERS)
    for text in (cure.run, cure.paper):
        for method in re.findall(r"[a-z-]+\[[^]]*\]|(?<=--method )[a-z-]+", text):
            (chosen,) = parse_methods(method)
            assert chosen.name in ("gdu", "gdu-paper", "erm")
        for methods in re.findall(r"--methods '([^']*)'", text):
            assert len(parse_methods(methods)) == 3
        assert not re.search(r"fit_|GDUClassifier|ProjectionGate", text), text
    for name, value in re.findall(r"\b(\w+)=('\w+'|[\d.]*\d|True|False)", cure.estimator):
        GDUClassifier().set_params(**{name: ast.literal_eval(value)})
    assert "fit_" not in cure.estimator
    for call in re.findall(r"fit_\w+|num_bases|lambda_\w+|orthogonality_target", cure.layer):
        known = hasattr(GatedDomainUnits, call) or call in inspect.signature(GatedDomainUnits).parameters
        assert known, call
    assert not re.search(r"--method|gdu\[", cure.layer), cure.layer


def test_one_finding_has_a_cure_for_each_origin(rows):
    head = fitted(rows)
    bases = head.bases.detach().clone()
    bases[1] = bases[1, :1] + 1e-4 * bases[1]
    found = examine(changed(head, bases=bases))
    assert "fit_bases" in found["collapsed bases"].cure
    assert "'gdu[num_bases=2]'" in found.of("run")["collapsed bases"].cure
    assert "gdu-paper[lambda_orth=0]" in found.of("paper")["collapsed bases"].cure
    assert "fit with num_bases=2" in found.of("estimator").as_json()["findings"][1]["cure"]


class Round(NamedTuple):
    round: int
    temperature: float
    splits: int
    merges: int
    prunes: int
    num_bases: int


def test_the_history_of_an_adaptive_layer_is_one_finding(rows):
    class Adaptive(GatedDomainUnits):
        history = tuple(
            Round(*record)
            for record in ((1, 2.0, 1, 0, 0, 2), (2, 1.0, 2, 0, 0, 4), (3, 0.5, 0, 1, 0, 3), (4, 0.2, 0, 0, 0, 3))
        )

    head = Adaptive(WIDTH, 2, num_bases=GROUPS).fit_bases(rows)
    finding = examine(head)["how M came about"]
    assert finding.says == "3 bases after 4 rounds (3 splits, 1 merges, 0 prunes; 2 -> 4 -> 3)"
    assert finding.value["rounds"][1]["temperature"] == 1.0
    assert "how M came about" not in [found.name for found in examine(fitted(rows)).findings]
    head.history = tuple(record._asdict() for record in Adaptive.history)
    assert examine(head)["how M came about"].says == finding.says


# -- cost, views, weights alone ----------------------------------------------------------------------------------------


def test_cost_is_counted_and_timed_beside_a_linear_head(rows):
    finding = examine(fitted(rows), rows)["cost"]
    assert finding.level == "ok"
    assert finding.value["linear_parameters"] == sum(p.numel() for p in torch.nn.Linear(WIDTH, 2).parameters())
    assert finding.value["parameters"] == 3 * 5 * WIDTH + 4 * (WIDTH + 1) * 2
    assert finding.value["seconds"] > 0
    assert finding.value["linear_seconds"] > 0


def test_gates_may_see_another_view_than_experts(rows):
    head = GatedDomainUnits(9, 2, num_bases=GROUPS, gating_features=WIDTH).fit_bases(rows)
    assert examine(head, rows).level == "ok"
    assert examine(head, rows, features=torch.randn(240, 9))["cost"].value["rows"] == 240
    assert examine(head, rows.reshape(2, 120, WIDTH)).level == "ok"


def test_a_view_of_another_width_is_refused_in_the_layers_words(rows, without_shape_checks):
    with pytest.raises(ValueError, match=f"width {WIDTH}"):
        examine(fitted(rows), torch.randn(20, WIDTH + 1))


def test_weights_alone_tell_what_they_can_and_never_that_all_is_well(rows):
    found = examine(fitted(rows))
    assert [finding.name for finding in found.findings] == [
        "duplicate bases",
        "collapsed bases",
        "orthogonality",
        "cost",
    ]
    assert found.verdict == "ok as far as weights alone tell"
    assert "without rows" in found.notes[0]


@pytest.mark.parametrize("kernel", [lambda x, z: (0.1 * (x @ z.mT) + 1) ** 2])
def test_a_kernel_without_a_width_of_ours_has_no_sigma_to_advise_on(rows, kernel):
    head = GatedDomainUnits(WIDTH, 2, num_bases=GROUPS, kernel=kernel)
    assert examine(head, rows)["sigma"].says == "the kernel has no width of ours"


# -- what it comes to --------------------------------------------------------------------------------------------------


def test_the_verdict_is_the_worst_level_and_all_that_is_of_it():
    def found(name: str, level: str, says: str) -> Finding:
        return Finding(name=name, level=level, value={}, says=says)

    one, two = found("a", "look", "bases [1, 3] are dead (weight)"), found("b", "broken", "the kernel saturates: far")
    assert Diagnosis(()).verdict == "ok"
    assert Diagnosis((found("c", "ok", "fine"), one)).verdict == "look: bases [1, 3] are dead"
    both = Diagnosis((one, two)).joined_by([found("d", "broken", "all is lost; really")], notes=["so be it"])
    assert both.verdict == "broken: the kernel saturates; all is lost"
    assert both.lines() == [
        "look    a: bases [1, 3] are dead (weight)",
        "broken  b: the kernel saturates: far",
        "broken  d: all is lost; really",
        "note: so be it",
        "broken: the kernel saturates; all is lost",
    ]
    with pytest.raises(KeyError, match="there is no finding 'e'; there are a, b, d"):
        both["e"]


def test_json_holds_everything_and_no_infinity(rows):
    said = json.loads(json.dumps(examine(fitted(rows), rows).as_json(), allow_nan=False))
    assert set(said) == {"level", "verdict", "of_weights_alone", "findings", "notes"}
    assert all(set(finding) == {"name", "level", "value", "says", "cure"} for finding in said["findings"])
    odd = Finding(name="a", level="ok", value={"x": math.inf, "y": [1.0, math.nan], "z": (2,)}, says="")
    assert odd.as_json()["value"] == {"x": None, "y": [1.0, None], "z": [2]}


def test_health_and_doctor_agree_on_thresholds(rows):
    """What fitting warns of is never ok to the doctor."""
    head = fitted(rows)
    with pytest.warns(GateWarning, match="do not depend on the input"):
        head.fit_bases(rows, kappa=1e-3)
    assert examine(head, rows)["dependence on the input"].says == head.health(rows).findings()[0].partition("; ")[0]
    assert of_bases.dead(head.health(rows), head.num_bases).level == "ok"


@pytest.mark.skipif(not PACS.is_file(), reason="needs ../shared/data/pacs_efflite0_feats.npz")
def test_on_real_features_the_paper_is_broken_and_the_recommended_layer_well():
    arrays = np.load(PACS)
    features = torch.from_numpy(arrays["features"].astype(np.float32))[arrays["domains"] != 0][::12]
    for gate, setting in (("cosine", "digits"), ("mmd", "wilds"), ("projection", "wilds")):
        found = examine(GatedDomainUnits.paper(1280, 7, gate=gate, setting=setting), features)
        assert found.verdict == "broken: gates do not depend on the input", (gate, setting)
    assert examine(GatedDomainUnits(1280, 7).fit_bases(features), features).verdict == "ok"
