"""A new site held against rows of the sources: distances by the formula, what is said of it, the file of the rows."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gated_domains.data.errors import DataError
from gated_domains.evaluation.scores import Predicted
from gated_domains.insight.shift import LeftOut, calibrate_accuracy
from gated_domains.insight.shift.distances import Distances
from gated_domains.insight.shift.reference import Reference, balanced
from gated_domains.insight.shift.report import MOST_SOURCES, NewSite, SiteShift, familiarity, site_shift
from gated_domains.layer import GatedDomainUnits
from gated_domains.layer.gates import residual
from gated_domains.layer.kernels import Gaussian
from gated_domains.reports.shift_words import sentences

# -- distances ---------------------------------------------------------------------------------------------------------


def slow_distance(a: torch.Tensor, b: torch.Tensor, sigma: float) -> float:
    """From the formula, pair by pair, no row with itself."""

    def k(x: list[float], z: list[float]) -> float:
        return math.exp(-(math.dist(x, z) ** 2) / (2 * sigma**2))

    def norm(rows: list[list[float]]) -> float:
        pairs = [k(x, z) for i, x in enumerate(rows) for j, z in enumerate(rows) if i != j]
        return sum(pairs) / len(pairs)

    one, other = a.tolist(), b.tolist()
    cross = sum(k(x, z) for x in one for z in other) / (len(a) * len(b))
    return math.sqrt(max(0.0, norm(one) + norm(other) - 2 * cross))


def test_distances_are_those_of_the_formula() -> None:
    one, two, three = (torch.randn(count, 3) + shift for count, shift in ((7, 0.0), (5, 1.0), (9, 2.0)))
    found = Distances.of(Gaussian(1.5), [one, two, three])
    assert found.between([0], [1]) == pytest.approx(slow_distance(one, two, 1.5), abs=1e-5)
    assert found.between([0, 1], [2]) == pytest.approx(slow_distance(torch.cat([one, two]), three, 1.5), abs=1e-5)


def test_few_rows_do_not_look_far() -> None:
    """With a row against itself ten rows would be at about 0.3."""
    rows = torch.randn(400, 2)
    squared = [Distances.of(Gaussian(1.0), [rows[:300], rows[start : start + 10]]).between([0], [1]) ** 2
               for start in range(300, 400, 10)]  # fmt: skip
    assert float(np.mean(squared)) < 0.03


def test_one_row_alone_has_no_distance() -> None:
    assert math.isnan(Distances.of(Gaussian(1.0), [torch.randn(5, 2), torch.randn(1, 2)]).between([0], [1]))


# -- the site ----------------------------------------------------------------------------------------------------------

CENTRES = torch.tensor([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
NAMES = ("north", "south", "west")


def rows_of(places: list[int], each: int, seed: int) -> torch.Tensor:
    noise = torch.randn(len(places) * each, 2, generator=torch.Generator().manual_seed(seed))
    return CENTRES[places].repeat_interleave(each, 0) + noise


@pytest.fixture(scope="module")
def units() -> GatedDomainUnits:
    torch.manual_seed(0)
    return GatedDomainUnits(2, 2, num_bases=3, basis_size=12).fit_bases(rows_of([0, 1, 2], 80, 1))


@torch.no_grad()
def said_of(units: GatedDomainUnits, view: torch.Tensor) -> Predicted:
    out = units.evaluate(view)
    left = residual(out.products, units.gate.explaining(out.products))
    output = torch.softmax(out.prediction + torch.tensor([1.0, 0.0]), 1)
    return Predicted(output.numpy(), out.beta.numpy(), left.numpy(), out.coverage.numpy())


def reference_of(units: GatedDomainUnits, view: torch.Tensor, domains: np.ndarray, names: tuple[str, ...]) -> Reference:
    said = said_of(units, view)
    return Reference(
        view=view.numpy(),
        domains=domains,
        domain_names=names,
        residual=said.residual,
        coverage=familiarity(units, said.residual, said.residual),
        beta=said.beta,
        confidence=said.output.max(1),
        correct=np.arange(len(view)) % 4 > 0,
        trained_on=False,
    )


@pytest.fixture(scope="module")
def reference(units: GatedDomainUnits) -> Reference:
    return reference_of(units, rows_of([0, 1, 2], 60, 2), np.repeat(np.arange(3), 60), NAMES)


def shift_of(units: GatedDomainUnits, reference: Reference, view: torch.Tensor, **others: object) -> SiteShift:
    new = NewSite("new.csv", view, said_of(units, view), others.pop("correct", None))
    return site_shift(units, reference, new, model="runs/abc", label="GDU", **others)


def test_a_site_like_the_sources_is_no_shift(units: GatedDomainUnits, reference: Reference) -> None:
    found = shift_of(units, reference, rows_of([0, 1, 2], 50, 3))
    assert not found.differs
    assert found.distance < 0.1 < found.usual[0]
    assert abs(found.novelty.auroc - 0.5) < 0.1
    assert found.novelty.unlike < 0.1
    assert (found.rows, found.all_rows, found.compared_rows) == (150, 150, 180)
    assert found.accuracy_of_sources == 0.75


def test_a_site_of_one_source_is_nearest_to_it_and_draws_on_its_basis(
    units: GatedDomainUnits, reference: Reference
) -> None:
    found = shift_of(units, reference, rows_of([1], 80, 4))
    assert found.differs
    assert found.nearest.name == "south"
    largest = max(found.mixture, key=lambda basis: basis.share)
    assert largest.share > 0.8
    assert largest.low <= largest.share <= largest.high
    assert NAMES[int(np.argmax(largest.of_sources))] == "south"
    assert "which stands mostly for south" in " ".join(sentences(found))
    own = {source.name: source.mixture for source in found.sources}
    assert own["south"][largest.basis - 1] > 0.8 > own["north"][largest.basis - 1]


def test_a_site_like_one_source_is_said_to_be_so_and_gets_the_score_of_the_sources(
    units: GatedDomainUnits, reference: Reference
) -> None:
    found = shift_of(units, reference, rows_of([1], 80, 4), no_accuracy="Nobody has measured it.")
    assert sentences(found)[0].startswith("new.csv is like south; no farther from the sources than they are from one")
    assert sentences(found)[-1] == (
        "No shift was seen: expect the accuracy that it has on validation rows of its sources, 75.0 %."
    )


def test_rows_that_belong_together_are_permuted_and_redrawn_together(
    units: GatedDomainUnits, reference: Reference
) -> None:
    """Five rows of the sources' own distribution, each ten times: a difference for whoever takes them for fifty."""
    view = rows_of([0, 1, 2], 2, 33)[:5].repeat_interleave(10, 0) + 0.01 * torch.randn(50, 2)
    said = said_of(units, view)
    alone, together = (
        site_shift(units, reference, NewSite("new.csv", view, said, groups=groups), model="m", label="GDU")
        for groups in (None, np.arange(50) // 10)
    )
    assert alone.differs
    assert not alone.kept_together
    assert not together.differs
    assert "999 permutations of whole groups of rows" in " ".join(sentences(together))
    widths = [sum(basis.high - basis.low for basis in found.mixture) for found in (alone, together)]
    assert widths[1] > widths[0]
    assert together.new_part.high - together.new_part.low >= 0


def test_a_site_unlike_anything_is_told(units: GatedDomainUnits, reference: Reference) -> None:
    found = shift_of(units, reference, rows_of([0], 60, 5) + 20.0)
    assert found.p_value == 0.001
    assert found.distance > found.usual[1]
    assert found.novelty.unlike > 0.9
    assert sentences(found)[0].startswith("new.csv is unlike all sources: 100 % of its rows are outside what was seen")
    assert (found.rank.rank, found.rank.sites) == (1, 4)
    assert found.novelty.auroc > 0.9
    assert found.outside > 0.9 > max(source.outside for source in found.sources)
    assert found.new_part.is_there


def test_distances_and_scale_are_those_of_the_formula(units: GatedDomainUnits, reference: Reference) -> None:
    view = rows_of([0, 1], 20, 6)
    found = shift_of(units, reference, view)
    of = {name: torch.from_numpy(reference.view[reference.domains == place]) for place, name in enumerate(NAMES)}
    sigma = units.kernel.get_sigma()
    assert found.sources[0].distance == pytest.approx(slow_distance(of["north"], view, sigma), abs=1e-4)
    others = torch.cat([of["south"], of["west"]])
    assert found.sources[0].to_others == pytest.approx(slow_distance(of["north"], others, sigma), abs=1e-4)
    assert found.between[0][1] == pytest.approx(slow_distance(of["north"], of["south"], sigma), abs=1e-4)
    assert found.distance == pytest.approx(slow_distance(torch.from_numpy(reference.view), view, sigma), abs=1e-4)


def test_whose_a_basis_is_does_not_hang_on_how_many_rows_a_source_has(
    units: GatedDomainUnits, reference: Reference
) -> None:
    view = torch.cat([rows_of([0], 10, 7), rows_of([1, 2], 80, 8)])
    few = reference_of(units, view, np.repeat([0, 1, 2], [10, 80, 80]), NAMES)
    shares = [[basis.of_sources for basis in shift_of(units, one, view).mixture] for one in (few, reference)]
    np.testing.assert_allclose(*shares, atol=0.12)


def test_shares_of_novelty_add_up(units: GatedDomainUnits, reference: Reference) -> None:
    found = shift_of(units, reference, rows_of([0], 30, 9)).novelty
    assert sum(found.shares) == pytest.approx(1)
    assert sum(found.shares_of_sources) == pytest.approx(1)
    assert len(found.edges) == len(found.shares) + 1


def test_accuracy_is_foreseen_by_the_calibration(units: GatedDomainUnits, reference: Reference) -> None:
    rng = np.random.default_rng(0)
    left_out = []
    for name in NAMES:
        sure = rng.uniform(0.5, 1, 200)
        left_out.append(
            LeftOut(name=name, confidence=sure, coverage=rng.uniform(size=200), correct=rng.uniform(size=200) < sure)
        )
    calibration = calibrate_accuracy(left_out)
    view = rows_of([0], 40, 10)
    found = shift_of(units, reference, view, calibration=calibration, correct=np.arange(40) % 5 > 0)
    said = said_of(units, view)
    covered = familiarity(units, said.residual, reference.residual)
    expected = calibration.estimate(said.output.max(1), covered, most=found.accuracy_of_sources)
    assert (found.accuracy.low, found.accuracy.high) == (expected.low, expected.high)
    assert [one.name for one in found.accuracy.left_out] == list(NAMES)
    assert found.true_accuracy == 0.8
    told = shift_of(units, reference, view, no_accuracy="Nobody has measured it.")
    assert told.accuracy is None
    far = shift_of(units, reference, rows_of([0, 1], 40, 10) + 1.5, no_accuracy="Nobody has measured it.")
    assert sentences(far)[-1] == "Nobody has measured it."


def test_it_goes_into_json_and_back(units: GatedDomainUnits, reference: Reference) -> None:
    found = shift_of(units, reference, rows_of([0], 30, 11), notes=("a note",))
    assert SiteShift.from_json(json.loads(json.dumps(found.as_json(), allow_nan=False))) == found


def test_the_same_rows_are_said_the_same_of(units: GatedDomainUnits, reference: Reference) -> None:
    view = rows_of([0, 1], 30, 12)
    assert shift_of(units, reference, view) == shift_of(units, reference, view)


def test_rows_of_unknown_domains_are_one_source(units: GatedDomainUnits, reference: Reference) -> None:
    alone = replace(reference, domains=np.zeros(180, np.int64), domain_names=("all",))
    found = shift_of(units, alone, rows_of([0], 30, 13))
    assert found.usual is None
    assert found.nearest is None
    assert found.rank is None
    assert "with fewer than two sources there is no scale" in sentences(found)[0]
    assert len(found.sources) == 1
    assert found.differs


def test_of_very_many_sources_the_largest_are_told_apart_and_all_are_compared_with(
    units: GatedDomainUnits, reference: Reference
) -> None:
    many = replace(reference, domains=np.arange(180) // 6, domain_names=tuple(f"site {place}" for place in range(30)))
    found = shift_of(units, many, rows_of([0, 1, 2], 30, 14))
    assert len(found.sources) == MOST_SOURCES
    assert found.compared_rows == 180
    assert (found.rank.sites, found.rank.rows) == (31, 6)
    assert found.distance == pytest.approx(shift_of(units, reference, rows_of([0, 1, 2], 30, 14)).distance, abs=1e-6)


def test_sources_of_too_few_rows_are_not_ranked_and_a_note_names_them(
    units: GatedDomainUnits, reference: Reference
) -> None:
    domains = np.repeat([0, 1, 2, 3], [60, 60, 55, 5])
    some = replace(reference, domains=domains, domain_names=("north", "south", "west", "tiny"))
    found = shift_of(units, some, rows_of([0, 1, 2], 30, 14))
    assert (found.rank.sites, found.rank.left_out) == (4, (3,))
    assert "not ranked, with fewer than 10 rows or groups of rows: tiny" in found.notes


def test_groups_of_the_new_site_alone_leave_the_rank_without_a_p_value(
    units: GatedDomainUnits, reference: Reference
) -> None:
    view = rows_of([0, 1, 2], 20, 15)
    new = NewSite("new.csv", view, said_of(units, view), groups=np.arange(60) // 3)
    alone = site_shift(units, reference, new, model="m", label="GDU")
    assert (alone.rank.p_value, alone.rank.groups, alone.groups) == (None, 20, 20)
    grouped = replace(reference, groups=np.arange(180) // 3)
    both = site_shift(units, grouped, new, model="m", label="GDU")
    assert (both.rank.p_value, both.rank.groups, both.rank.rows) == (both.rank.rank / 4, 20, 60)
    assert SiteShift.from_json(json.loads(json.dumps(alone.as_json(), allow_nan=False))) == alone


def test_a_layer_that_never_fitted_coverage_is_read_by_the_reference(reference: Reference) -> None:
    torch.manual_seed(0)
    plain = GatedDomainUnits(2, 2, num_bases=3, basis_size=12, coverage=False)
    with torch.no_grad():
        plain.bases.copy_(rows_of([0, 1, 2], 12, 15).reshape(3, 12, 2))
    view = rows_of([0, 1, 2], 60, 2)
    usual = plain.novelty(view).detach().numpy()
    covered = familiarity(plain, usual, usual)
    assert (covered == 0).mean() == pytest.approx(0.03, abs=0.01)


# -- the file ----------------------------------------------------------------------------------------------------------


def test_rows_are_read_as_they_were_written(reference: Reference, tmp_path: Path) -> None:
    path = tmp_path / "shift.npz"
    reference.write(path, of="abc")
    back = Reference.read(path, of="abc")
    for field in fields(Reference):
        one, other = getattr(back, field.name), getattr(reference, field.name)
        if isinstance(other, np.ndarray):
            np.testing.assert_array_equal(one, other)
        else:
            assert one == other
    assert Reference.read(path, of="other weights") is None
    replace(reference, groups=np.arange(180) // 5).write(path, of="abc")
    np.testing.assert_array_equal(Reference.read(path, of="abc").groups, np.arange(180) // 5)


def test_a_file_without_groups_is_refused_with_the_cure(reference: Reference, tmp_path: Path) -> None:
    path = tmp_path / "shift.npz"
    reference.write(path, of="abc")
    with np.load(path) as kept:
        np.savez(path, **{name: kept[name] for name in kept.files if name != "groups"})
    with pytest.raises(DataError, match=r"shift\.npz lacks 'groups'; delete it"):
        Reference.read(path, of="abc")


def test_nothing_kept_is_nothing_read(reference: Reference, tmp_path: Path) -> None:
    assert Reference.read(tmp_path / "nowhere.npz", of="abc") is None


def test_a_damaged_file_is_refused_with_the_cure(reference: Reference, tmp_path: Path) -> None:
    path = tmp_path / "shift.npz"
    reference.write(path, of="abc")
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"PK"):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="delete it to have it made again"):
            Reference.read(path, of="abc")


CHANGES = {
    "no view": {"view": None},
    "groups of others": {"groups": np.zeros(3, np.int64)},
    "rows of others": {"residual": np.zeros(3, np.float32)},
    "objects": {"beta": np.zeros((180, 3), np.int64)},
    "no numbers": {"coverage": np.full(180, np.nan, np.float32)},
    "domains that are none": {"domains": np.full(180, 7)},
    "domains below none": {"domains": np.full(180, -1)},
    "no domains": {"domain_names": np.empty(0, np.str_)},
    "another format": {"format": np.array(9)},
    "no format": {"format": np.array([1, 1])},
    "weights of nobody": {"of": None},
}


@pytest.mark.parametrize("change", CHANGES)
def test_arrays_that_do_not_go_together_are_refused(reference: Reference, change: str, tmp_path: Path) -> None:
    path = tmp_path / "shift.npz"
    reference.write(path, of="abc")
    with np.load(path) as kept:
        arrays = {name: kept[name] for name in kept.files}
    changed = {name: value for name, value in {**arrays, **CHANGES[change]}.items() if value is not None}
    np.savez(path, **changed)
    with pytest.raises(DataError, match="delete it to have it made again"):
        Reference.read(path, of="abc")


def test_rows_are_drawn_alike_from_every_source() -> None:
    domains = np.repeat([0, 1, 2], [5, 500, 5_000])
    chosen = balanced(domains, width=4, most=300)
    assert np.bincount(domains[chosen]).tolist() == [5, 147, 148]
    assert len(np.unique(chosen)) == len(chosen)
    assert len(balanced(domains, width=1 << 20)) == 8
    np.testing.assert_array_equal(chosen, balanced(domains, width=4, most=300))
    groups = np.arange(5_505) // 7
    whole = balanced(domains, width=4, most=300, groups=groups)
    for group in np.unique(groups[whole]):
        domain = domains[whole[groups[whole] == group][0]]
        assert (groups[whole] == group).sum() == ((groups == group) & (domains == domain)).sum() or domain == 0
