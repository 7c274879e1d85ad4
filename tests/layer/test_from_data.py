"""``fit_bases`` and its siblings: what they set, what they keep, what they refuse without a trace."""

from __future__ import annotations

import math
import warnings
from itertools import permutations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, make_blobs

from gated_domains.layer import CosineGate, GatedDomainUnits, GateWarning, MMDGate, ProjectionGate, penalties
from gated_domains.layer.fitting import kmeans_bases, median_sigma, nearest_places, random_bases
from gated_domains.layer.kernels import Average, Gaussian, Laplacian, Scaled

WIDTH = 6


def digits(rows: int = 400) -> torch.Tensor:
    return torch.tensor(load_digits().data[:rows] / 16, dtype=torch.float32)


def three_blobs(rows: int = 120) -> torch.Tensor:
    corners = 4 * np.eye(3, WIDTH)
    x, _ = make_blobs(rows, centers=corners, cluster_std=0.4, random_state=0)
    return torch.tensor(x, dtype=torch.float32)


def copied(head: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in head.state_dict().items()}


def changed(head: torch.nn.Module, before: dict[str, torch.Tensor]) -> set[str]:
    after = head.state_dict()
    assert after.keys() == before.keys()
    return {name for name, value in after.items() if not torch.equal(value, before[name])}


@pytest.fixture
def head():
    return GatedDomainUnits(WIDTH, 2, num_bases=3)


# -- what is set -----------------------------------------------------------------------------------------------------


def test_fitting_sets_bases_sigma_kappa_and_coverage_and_nothing_else(head):
    before = copied(head)
    head.fit_bases(three_blobs())
    assert changed(head, before) == {"bases", "kernel.sigma", "gate.kappa", "coverage.q50", "coverage.q97"}


def test_fitting_takes_bases_from_clusters_and_sigma_from_the_median_distance(head):
    x = three_blobs()
    head.fit_bases(x, seed=3)
    assert torch.equal(head.bases, kmeans_bases(x, 3, 10, 3))
    assert head.kernel.sigma.item() == median_sigma(x, seed=3)


def test_fitting_returns_the_layer_itself(head):
    assert head.fit_bases(three_blobs()) is head
    assert head.fit_sigma(three_blobs()) is head
    assert head.fit_coverage(three_blobs()) is head


def test_given_values_are_taken_as_they_are(head):
    head.fit_bases(three_blobs(), sigma=1.25, kappa=3.5, initialiser=random_bases)
    assert head.kernel.sigma.item() == 1.25
    assert head.gate.kappa.item() == 3.5
    assert torch.equal(head.bases, random_bases(three_blobs(), 3, 10, 0))


@pytest.mark.parametrize("gate", [CosineGate, MMDGate])
@pytest.mark.parametrize("share", [0.3, 0.5])
def test_gates_have_the_wanted_share_of_the_largest_entropy_after_fitting_on_digits(gate, share):
    x = digits()
    head = GatedDomainUnits(64, 10, gate=gate()).fit_bases(x, entropy=share)
    assert penalties.entropy(head.evaluate(x)).item() / math.log(5) == pytest.approx(share, abs=1e-3)


def test_half_of_log_m_is_the_entropy_by_default():
    x = digits()
    head = GatedDomainUnits(64, 10, num_bases=7).fit_bases(x)
    assert penalties.entropy(head.evaluate(x)).item() == pytest.approx(math.log(7) / 2, abs=2e-3)


def test_fitting_is_the_same_for_the_same_seed_and_moves_with_it():
    def fitted(seed: int) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        return copied(GatedDomainUnits(64, 2).fit_bases(digits(), seed=seed))

    first, again, other = fitted(0), fitted(0), fitted(1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["bases"], other["bases"])


def test_fitting_does_not_move_the_random_numbers_of_the_program(head):
    torch.manual_seed(5)
    head.fit_bases(three_blobs())
    drawn = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(3))


def test_fitting_reads_features_of_any_leading_shape(head):
    x = three_blobs()
    head.fit_bases(x.reshape(4, 30, WIDTH))
    assert torch.equal(head.bases, kmeans_bases(x, 3, 10, 0))


def test_fitting_needs_no_graph_and_leaves_none(head):
    head.fit_bases(three_blobs().requires_grad_())
    assert head.bases.requires_grad
    assert head.bases.is_leaf
    assert not any(buffer.requires_grad for buffer in head.buffers())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_a_layer_of_another_precision_is_fitted_too(head, dtype):
    head.to(dtype).fit_bases(three_blobs().to(dtype))
    assert head.bases.dtype == dtype
    assert head(three_blobs().to(dtype)).isfinite().all()


def test_a_layer_with_another_view_is_fitted_on_that_view():
    head = GatedDomainUnits(9, 2, num_bases=3, gating_features=WIDTH).fit_bases(three_blobs())
    assert torch.equal(head.bases, kmeans_bases(three_blobs(), 3, 10, 0))


def test_a_projection_gate_has_no_kappa_to_fit():
    head = GatedDomainUnits(WIDTH, 2, num_bases=3, gate=ProjectionGate(ridge=1e-3))
    before = copied(head)
    head.fit_bases(three_blobs())
    assert changed(head, before) == {"bases", "kernel.sigma", "coverage.q50", "coverage.q97"}


def test_fitting_sigma_alone_renews_coverage_and_leaves_bases_and_kappa():
    head = GatedDomainUnits(WIDTH, 2, num_bases=3).fit_bases(three_blobs(), sigma=1.0)
    before = copied(head)
    head.fit_sigma(three_blobs())
    assert changed(head, before) == {"kernel.sigma", "coverage.q50", "coverage.q97"}
    assert head.kernel.sigma.item() == median_sigma(three_blobs())


@pytest.mark.parametrize(
    "kernel",
    [lambda: Average([Gaussian(1.0), Laplacian(4.0)]), lambda: Scaled(Gaussian(1.0), 3.0)],
    ids=["average", "scaled"],
)
def test_the_width_of_a_composed_kernel_is_fitted(kernel):
    head = GatedDomainUnits(WIDTH, 2, num_bases=3, kernel=kernel()).fit_bases(three_blobs())
    wanted = median_sigma(three_blobs())
    if isinstance(head.kernel, Average):
        narrow, wide = (member.sigma.item() for member in head.kernel.members)
        assert math.sqrt(narrow * wide) == pytest.approx(wanted)
        assert wide / narrow == pytest.approx(4)
    else:
        assert head.kernel.kernel.sigma.item() == wanted
        assert head.kernel.scale.item() == 3


# -- their number ----------------------------------------------------------------------------------------------------


def test_the_number_of_bases_is_found_without_a_change_of_shape():
    head = GatedDomainUnits(WIDTH, 2, num_bases="auto", max_bases=8)
    head.fit_bases(three_blobs())
    assert head.bases.shape == (8, 10, WIDTH)
    assert head.num_bases == 3
    assert head.active.tolist() == [True] * 3 + [False] * 5
    assert torch.equal(head.active_bases, kmeans_bases(three_blobs(), 3, 10, 0))


def test_bases_beyond_the_number_found_have_no_weight():
    head = GatedDomainUnits(WIDTH, 2, num_bases="auto").fit_bases(three_blobs())
    beta = head.evaluate(three_blobs()).beta
    assert beta.shape == (120, 12)
    assert (beta[:, 3:] == 0).all()
    torch.testing.assert_close(beta.sum(-1), torch.ones(120))


def test_a_second_fit_may_find_another_number():
    head = GatedDomainUnits(WIDTH, 2, num_bases="auto", max_bases=6).fit_bases(three_blobs())
    two = torch.cat([torch.randn(40, WIDTH), torch.randn(40, WIDTH) + 20])
    assert head.fit_bases(two).num_bases == 2


def test_a_fixed_number_of_bases_stays_with_room_to_spare():
    head = GatedDomainUnits(WIDTH, 2, num_bases=2, max_bases=5).fit_bases(three_blobs())
    assert head.num_bases == 2
    assert head.bases.shape[0] == 5


# -- in place --------------------------------------------------------------------------------------------------------


def test_parameters_and_buffers_stay_the_same_objects_in_the_same_memory(head):
    held = dict(head.named_parameters()) | dict(head.named_buffers())
    places = {name: value.data_ptr() for name, value in held.items()}
    head.fit_bases(three_blobs())
    for name, value in (dict(head.named_parameters()) | dict(head.named_buffers())).items():
        assert value is held[name]
        assert value.data_ptr() == places[name]


def test_the_optimiser_forgets_the_bases_and_nothing_else(head):
    head.fit_bases(three_blobs())
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        out = head.evaluate(three_blobs())
        (out.prediction.square().mean() + head.penalty(out)).backward()
        optimizer.step()
    kept = {name: {k: v.clone() for k, v in optimizer.state[p].items()} for name, p in head.named_parameters()}
    assert kept["bases"]["exp_avg"].abs().max() > 0

    head.fit_bases(three_blobs(), optimizer=optimizer)
    for name, parameter in head.named_parameters():
        for key, value in optimizer.state[parameter].items():
            expected = torch.zeros_like(value) if name == "bases" else kept[name][key]
            assert torch.equal(value, expected), (name, key)
    optimizer.step()
    assert all(parameter.isfinite().all() for parameter in head.parameters())


def test_an_optimiser_that_remembers_nothing_yet_is_no_trouble(head):
    head.fit_bases(three_blobs(), optimizer=torch.optim.Adam(head.parameters()))


def test_without_the_optimiser_its_memory_stays(head):
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
    head(three_blobs()).sum().backward()
    optimizer.step()
    memory = optimizer.state[head.bases]["momentum_buffer"]
    memory.fill_(1)
    head.fit_bases(three_blobs())
    assert (memory == 1).all()


# -- what is refused, without a trace --------------------------------------------------------------------------------


def spoilt(value: float) -> torch.Tensor:
    x = three_blobs()
    x[[3, 50], [1, 2]] = value
    return x


REFUSED = {
    "NaN": (spoilt(math.nan), {}, ValueError, "NaN or infinity in 2 of 120 rows"),
    "infinity": (spoilt(-math.inf), {}, ValueError, "NaN or infinity in 2 of 120 rows"),
    "too few rows": (three_blobs(2), {}, ValueError, "at least 3 rows, got 2"),
    "no rows": (torch.empty(0, WIDTH), {}, ValueError, "got 0"),
    "wrong width": (torch.randn(20, 5), {}, ValueError, r"width 6, got shape \(20, 5\)"),
    "one row alone": (torch.randn(WIDTH), {}, ValueError, r"got shape \(6,\)"),
    "integers": (torch.ones(20, WIDTH, dtype=torch.long), {}, TypeError, r"got torch.int64.*\.float\(\)"),
    "identical rows": (torch.ones(20, WIDTH), {}, ValueError, "20 rows is 0"),
    "sigma 0": (three_blobs(), {"sigma": 0.0}, ValueError, "sigma must be positive and finite, got 0.0"),
    "sigma below 0": (three_blobs(), {"sigma": -2.5}, ValueError, "sigma .* got -2.5"),
    "sigma NaN": (three_blobs(), {"sigma": math.nan}, ValueError, "sigma .* got nan"),
    "sigma infinite": (three_blobs(), {"sigma": math.inf}, ValueError, "sigma .* got inf"),
    "kappa 0": (three_blobs(), {"kappa": 0.0}, ValueError, "kappa must be positive and finite, got 0.0"),
    "kappa below 0": (three_blobs(), {"kappa": -1.0}, ValueError, "kappa .* got -1.0"),
    "kappa infinite": (three_blobs(), {"kappa": math.inf}, ValueError, "kappa .* got inf"),
    "entropy 0": (three_blobs(), {"entropy": 0.0}, ValueError, "entropy .* got 0.0"),
    "entropy 1": (three_blobs(), {"entropy": 1.0}, ValueError, "entropy .* got 1.0"),
    "entropy above 1": (three_blobs(), {"entropy": 3.0}, ValueError, "entropy .* got 3.0"),
    "entropy NaN": (three_blobs(), {"entropy": math.nan}, ValueError, "entropy .* got nan"),
}


@pytest.mark.parametrize(("x", "settings", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused_with_its_value_and_leaves_the_layer_as_it_was(head, x, settings, error, message):
    before = copied(head)
    with pytest.raises(error, match=message):
        head.fit_bases(x, **settings)
    assert changed(head, before) == set()


@pytest.mark.parametrize("method", ["fit_sigma", "fit_coverage", "health"])
@pytest.mark.parametrize("case", ["NaN", "wrong width", "integers", "one row alone", "no rows"])
def test_the_other_fits_refuse_the_same_input(head, method, case):
    x, _, error, message = REFUSED[case]
    before = copied(head)
    with pytest.raises(error, match=message):
        getattr(head, method)(x)
    assert changed(head, before) == set()


def test_the_optimiser_keeps_its_memory_when_a_fit_is_refused(head):
    optimizer = torch.optim.Adam(head.parameters())
    head(three_blobs()).sum().backward()
    optimizer.step()
    optimizer.state[head.bases]["exp_avg"].fill_(1)
    with pytest.raises(ValueError, match="NaN"):
        head.fit_bases(spoilt(math.nan), optimizer=optimizer)
    assert (optimizer.state[head.bases]["exp_avg"] == 1).all()


# -- kernels of the user ---------------------------------------------------------------------------------------------


class Bumps:
    """A kernel of the user's own, with a width of its own."""

    sigma = 2.0

    def __call__(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return torch.exp(-torch.cdist(x, z).square() / self.sigma**2)


def test_a_kernel_of_the_user_is_fitted_around_and_keeps_its_width():
    kernel = Bumps()
    head = GatedDomainUnits(WIDTH, 2, num_bases=3, kernel=kernel)
    before = copied(head)
    head.fit_bases(three_blobs())
    assert kernel.sigma == 2.0
    assert changed(head, before) == {"bases", "gate.kappa", "coverage.q50", "coverage.q97"}


def test_a_lambda_is_a_kernel_too():
    head = GatedDomainUnits(WIDTH, 2, num_bases=3, kernel=lambda x, z: (x @ z.mT / 9).exp()).fit_bases(three_blobs())
    assert head(three_blobs()).shape == (120, 2)


def test_a_width_for_a_kernel_of_the_user_is_refused_by_name():
    head = GatedDomainUnits(WIDTH, 2, num_bases=3, kernel=Bumps())
    with pytest.raises(ValueError, match=r"sigma=1\.0 cannot be set: .*Bumps.* leave sigma out"):
        head.fit_bases(three_blobs(), sigma=1.0)


def test_a_width_for_a_kernel_of_the_user_is_refused_before_anything_is_written():
    head = GatedDomainUnits(WIDTH, 2, num_bases=3, kernel=Bumps())
    before = copied(head)
    with pytest.raises(ValueError, match="has no width"):
        head.fit_bases(three_blobs(), sigma=1.0)
    assert changed(head, before) == set()


@pytest.mark.parametrize(
    "kernel", [lambda: Scaled(Bumps(), 2.0), lambda: Average([Gaussian(2.0), Bumps()])], ids=["scaled", "average"]
)
def test_a_kernel_composed_of_one_of_the_user_is_fitted_around_too(kernel):
    head = GatedDomainUnits(WIDTH, 2, num_bases=3, kernel=kernel())
    head.fit_bases(three_blobs())
    assert torch.equal(head.bases, kmeans_bases(three_blobs(), 3, 10, 0))


# -- coverage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate", [CosineGate, MMDGate, ProjectionGate, lambda: ProjectionGate(ridge=1e-3)])
def test_coverage_quantiles_are_those_of_the_novelty_of_training_rows(gate):
    head = GatedDomainUnits(64, 2, gate=gate()).double()
    x = digits().double()
    head.fit_bases(x)
    with torch.no_grad():
        head.bases += 0.05 * torch.randn_like(head.bases)  # as training would
    head.fit_coverage(x)
    novelty = head.novelty(x).detach().numpy()
    assert head.coverage.q50.item() == pytest.approx(np.quantile(novelty, 0.5), rel=1e-10)
    assert head.coverage.q97.item() == pytest.approx(np.quantile(novelty, 0.97), rel=1e-10)


def test_half_of_the_training_rows_are_covered_fully_and_three_in_a_hundred_not_at_all():
    x = digits()
    head = GatedDomainUnits(64, 2).fit_bases(x)
    coverage = head.evaluate(x).coverage
    assert coverage.median() == pytest.approx(1, abs=1e-3)
    assert (coverage == 0).float().mean() == pytest.approx(0.03, abs=0.005)
    assert (coverage > 0.999).float().mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("gate", [CosineGate, MMDGate, lambda: ProjectionGate(ridge=1e-3)])
def test_with_coverage_a_row_far_from_all_data_falls_back_to_the_shared_expert(gate):
    head = GatedDomainUnits(64, 2, gate=gate(), coverage=True).fit_bases(digits())
    with torch.no_grad():
        head.experts.weight.normal_()
    far = digits(20) + 1e3
    out = head.evaluate(far)
    assert (out.coverage == 0).all()
    torch.testing.assert_close(out.prediction, head.shared(far).squeeze(1), rtol=0, atol=0)
    near = head.evaluate(digits(20))
    assert (near.prediction - head.shared(digits(20)).squeeze(1)).abs().max() > 0.1


def test_before_fitting_everything_is_covered(head):
    assert (head.evaluate(1e3 * torch.randn(9, WIDTH)).coverage == 1).all()


@pytest.mark.parametrize("settings", [{"coverage": False}, {"shared": False}], ids=repr)
def test_a_layer_that_does_not_scale_by_coverage_still_knows_what_is_familiar(settings):
    x = three_blobs()
    head = GatedDomainUnits(WIDTH, 2, num_bases=3, **settings).fit_bases(x)
    assert head.familiarity(x).median().item() == pytest.approx(1, abs=0.05)
    assert (head.familiarity(x + 1e3) == 0).all()
    reported = head.evaluate(x).coverage
    assert reported is None if head.shared is None else torch.equal(reported, head.familiarity(x))


@pytest.mark.parametrize("sigma", [1e-3, 0.1, 1.0])
def test_a_sigma_far_too_small_is_noticed_although_basis_vectors_are_near_themselves(sigma):
    x = torch.randn(2000, 64) + torch.randint(3, (2000, 1)) * 3.0
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        GatedDomainUnits(64, 3).fit_bases(x, sigma=sigma)
    assert all(warning.category is GateWarning for warning in seen)
    assert any("the kernel saturates: every sample is far from every basis" in str(warning.message) for warning in seen)


def test_one_row_far_off_does_not_cost_the_others_their_distances():
    x = torch.cat([torch.randn(1000, 64), torch.full((1, 64), 1e6)])
    assert median_sigma(x) == pytest.approx(median_sigma(x[:-1]), rel=0.02)


def test_numpy_integers_are_sizes_too(without_shape_checks):
    head = GatedDomainUnits(np.int64(4), np.int64(2), num_bases=np.int32(3))
    assert head(torch.randn(5, 4)).shape == (5, 2)


def test_an_average_of_scaled_and_nested_kernels_is_scaled_as_a_whole():
    kernel = Average([2.0 * Gaussian(1.0), Average([Gaussian(4.0) * 0.5, Gaussian(1.0)])])
    head = GatedDomainUnits(WIDTH, 2, num_bases=3, kernel=kernel).fit_bases(three_blobs(), sigma=3.0)
    assert head.kernel.get_sigma() == pytest.approx(3.0)
    inner = head.kernel.members[1].members
    assert inner[0].get_sigma() / inner[1].get_sigma() == pytest.approx(4.0)


def test_kappa_for_a_gate_that_has_none_is_refused():
    with pytest.raises(ValueError, match=r"kappa=5\.0 cannot be set.*ProjectionGate"):
        GatedDomainUnits(WIDTH, 2, num_bases=3, gate=ProjectionGate()).fit_bases(three_blobs(), kappa=5.0)


def test_an_initialiser_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"the initialiser gave bases of shape \(1, 10"):
        GatedDomainUnits(WIDTH, 2, num_bases=3).fit_bases(
            three_blobs(), initialiser=lambda x, bases, size, seed: x[:size][None]
        )


def test_arrays_are_told_to_become_tensors(without_shape_checks):
    head = GatedDomainUnits(4, 2)
    for call in (head, head.fit_bases):
        with pytest.raises(TypeError, match=r"features must be a tensor, got ndarray; convert with torch\.as_tensor"):
            call(np.zeros((20, 4), dtype=np.float32))


# -- renewing --------------------------------------------------------------------------------------------------------


def test_renewed_bases_take_the_places_of_the_old_ones_they_are_nearest_to(head):
    """Features that are stretched and moved as a whole: the expert of a cluster stays its expert."""
    x = three_blobs()
    head.fit_bases(x, seed=1)
    old = head.bases.detach().mean(1)
    optimizer = torch.optim.Adam(head.parameters())
    head.renew(20 * x + 7, optimizer=optimizer, seed=5)
    new = (head.bases.detach().mean(1) - 7) / 20
    best = min(permutations(range(3)), key=lambda order: float((new[list(order)] - old).square().sum()))
    assert best == (0, 1, 2)
    assert head.kernel.get_sigma() == pytest.approx(20 * median_sigma(x), rel=1e-3)


def test_the_assignment_is_the_best_of_all():
    generator = torch.Generator().manual_seed(0)
    for size in (1, 2, 5, 6):
        new, old = torch.randn(2, size, 3, generator=generator)
        cost = [float((new[list(order)] - old).square().sum()) for order in permutations(range(size))]
        assert float((new[nearest_places(new, old)] - old).square().sum()) == pytest.approx(min(cost), rel=1e-5)


def test_renewing_keeps_the_number_that_was_chosen():
    """``num_bases="auto"`` chooses once; a refit in training keeps every expert."""
    head = GatedDomainUnits(WIDTH, 2, num_bases="auto", max_bases=4)
    optimizer = torch.optim.Adam(head.parameters())
    head.renew(three_blobs(), optimizer=optimizer)
    assert head.num_bases == 3
    two = 40 * three_blobs()[three_blobs()[:, 0] < 2]
    head.renew(two, optimizer=optimizer)
    assert head.num_bases == 3
    assert head.kernel.get_sigma() == pytest.approx(median_sigma(two), rel=1e-6)


@pytest.mark.parametrize("given", [{"sigma": 1.2}, {"kappa": 40.0}, {"sigma": 15.0, "kappa": 20.0}, {"entropy": 0.02}])
def test_renewing_keeps_a_width_and_sharpness_that_were_set_by_hand(head, given):
    x = three_blobs()
    head.fit_bases(x, **given)
    optimizer, before = torch.optim.Adam(head.parameters()), copied(head)
    assert head.drift(x) is None
    head.renew(x, optimizer=optimizer)
    assert changed(head, before) <= {"coverage.q50", "coverage.q97"}
    head.renew(20 * x, optimizer=optimizer)
    assert not torch.equal(head.bases, before["bases"])
    assert head.kernel.get_sigma() == pytest.approx(20 * float(before["kernel.sigma"]), rel=1e-5)
    assert float(head.gate.kappa) == pytest.approx(float(before["gate.kappa"]), rel=0.2)
    assert head.drift(20 * x) is None


@pytest.mark.filterwarnings("ignore::gated_domains.layer.GateWarning")
def test_renewing_keeps_bases_that_only_had_sigma_fitted_to_them():
    head = GatedDomainUnits.paper(WIDTH, 2).fit_sigma(three_blobs())
    before = copied(head)
    head.renew(20 * three_blobs(), optimizer=torch.optim.Adam(head.parameters()))
    assert changed(head, before) <= {"coverage.q50", "coverage.q97"}


@pytest.mark.filterwarnings("ignore::gated_domains.layer.GateWarning")
def test_bases_are_kept_where_a_refit_is_not_wanted():
    head = GatedDomainUnits.paper(WIDTH, 2)
    before = copied(head)
    head.renew(three_blobs(), optimizer=torch.optim.Adam(head.parameters()), refit=False)
    assert changed(head, before) == {"coverage.q50", "coverage.q97"}


def test_renewing_quantiles_does_not_count_as_fitting_bases(head):
    x = three_blobs()
    other = GatedDomainUnits(WIDTH, 2, num_bases=3).fit_bases(x).state_dict()
    # Healthy gates, so that only the missing fit is a reason to refit.
    head.load_state_dict({name: value for name, value in other.items() if "coverage" not in name}, strict=False)
    head.renew(x)
    assert head.drift(x).says == "bases were never fitted to data"
    before = copied(head)
    head.renew(x, optimizer=torch.optim.Adam(head.parameters()), seed=1)
    assert "bases" in changed(head, before)
    assert head.drift(x) is None


def test_a_layer_whose_weights_were_loaded_keeps_its_bases_while_they_fit(head):
    x = three_blobs()
    head.fit_bases(x)
    loaded = GatedDomainUnits(WIDTH, 2, num_bases=3)
    loaded.load_state_dict(head.state_dict())
    loaded.renew(x, optimizer=torch.optim.Adam(loaded.parameters()))
    assert torch.equal(loaded.bases, head.bases)
