"""Mixed styles against loops over numbers; who is mixed, when, and what is never touched by it."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from gated_domains.backbones.backbone import Backbone, Body, CachedBackbone, Identity
from gated_domains.backbones.bodies import MLP, DigitsCNN, SmallCNN
from gated_domains.backbones.gating import GATINGS
from gated_domains.backbones.mixstyle import DomainMixer, MapMixer, StyleMixer, mix_styles, mixes_by_domain
from gated_domains.backbones.moments import Moments, domain_moments, map_moments, restyled
from gated_domains.data.errors import DataError
from gated_domains.training.training_data import FrozenBody

DOMAINS = torch.arange(60) % 3


def slow_map_style(positions: list[float]) -> tuple[float, float]:
    """The mean of one channel of one image, and its scale."""
    mean = math.fsum(positions) / len(positions)
    return mean, math.sqrt(math.fsum((p - mean) ** 2 for p in positions) / len(positions) + 1e-6)


def slow_restyled(x: float, own: tuple[float, float], other: tuple[float, float], share: float) -> float:
    """One number with the mean and scale of its own and another style."""
    mean = share * own[0] + (1 - share) * other[0]
    scale = share * own[1] + (1 - share) * other[1]
    return (x - own[0]) / own[1] * scale + mean


def slow_mixed_maps(x: Tensor, partner: list[int], shares: list[float]) -> Tensor:
    found = torch.empty_like(x)
    for row in range(x.shape[0]):
        for channel in range(x.shape[1]):
            own = slow_map_style(x[row, channel].flatten().tolist())
            other = slow_map_style(x[partner[row], channel].flatten().tolist())
            for h in range(x.shape[2]):
                for w in range(x.shape[3]):
                    found[row, channel, h, w] = slow_restyled(float(x[row, channel, h, w]), own, other, shares[row])
    return found


def vectors(rows: int = 60) -> Tensor:
    torch.manual_seed(0)
    domains = DOMAINS[:rows]
    return torch.randn(rows, 4) * (1 + domains.unsqueeze(1)) + 5 * domains.unsqueeze(1)


def by_domain(backbone: Backbone, probability: float = 1.0, rows: Tensor | None = None) -> StyleMixer:
    x = vectors() if rows is None else rows
    return mix_styles(
        backbone, probability, domains=3, training_rows=lambda: zip(x.split(25), DOMAINS.split(25), strict=True)
    )


class Fixed(MapMixer):
    """Everybody gets the same share."""

    share = 0.25

    def shares(self, like: Tensor) -> Tensor:
        return torch.full((len(like),), self.share, device=like.device)


# -- the formula -----------------------------------------------------------------------------------------------------


def test_maps_get_the_mixed_mean_and_scale_of_every_channel():
    torch.manual_seed(1)
    x = (torch.randn(5, 3, 4, 2) * torch.rand(5, 3, 1, 1) + torch.randn(5, 3, 1, 1)).double()
    partner, shares = [3, 0, 2, 4, 1], [0.0, 0.2, 0.5, 0.9, 1.0]
    own = map_moments(x)
    found = restyled(x, own, own.of(torch.tensor(partner)), torch.tensor(shares, dtype=torch.float64))
    torch.testing.assert_close(found, slow_mixed_maps(x, partner, shares), rtol=1e-12, atol=1e-12)


def test_a_mixer_of_maps_mixes_with_a_permutation_of_the_batch():
    mixer = MapMixer(SmallCNN((3, 8, 8)), 1.0)
    x = torch.randn(6, 3, 4, 4).double()
    torch.manual_seed(3)
    found = mixer.mixed(x)
    torch.manual_seed(3)
    partner = torch.rand(6).argsort().tolist()
    shares = mixer.shares(x).tolist()
    assert sorted(partner) == list(range(6))
    torch.testing.assert_close(found, slow_mixed_maps(x, partner, shares), rtol=1e-12, atol=1e-12)
    assert not torch.equal(found, x)


def test_the_moments_of_domains_are_those_of_a_loop_over_their_rows():
    x = vectors(50).double()
    moments, counts = domain_moments(zip(x.split(7), DOMAINS[:50].split(7), strict=True), 4)
    for domain in range(3):
        rows = [x[row] for row in range(50) if DOMAINS[row] == domain]
        assert counts[domain] == len(rows)
        for column in range(4):
            mean, scale = slow_map_style([float(row[column]) for row in rows])
            assert float(moments.mean[domain, column]) == pytest.approx(mean, rel=1e-12)
            assert float(moments.scale[domain, column]) == pytest.approx(scale, rel=1e-12)
    assert counts[3] == 0
    assert torch.isfinite(moments.scale).all()


def test_rows_far_from_0_keep_their_scale():
    x = vectors() + 1e4
    moments, _ = domain_moments([(x, DOMAINS)], 3)
    torch.testing.assert_close(moments.scale[1].float(), x[DOMAINS == 1].std(0, correction=0), rtol=1e-3, atol=0)


def test_a_vector_gets_the_mixed_mean_and_scale_of_two_domains():
    mixer = by_domain(Backbone(MLP((4,))))
    x = vectors()[:9].double()
    torch.manual_seed(5)
    with mixer.told(DOMAINS[:9]):
        found = mixer.mixed(x)
    torch.manual_seed(5)
    drawn, shares = torch.rand(9, 3), mixer.shares(x).tolist()
    mean, scale = mixer.moments
    for row in range(9):
        own = row % 3
        other = max((domain for domain in range(3) if domain != own), key=lambda domain: float(drawn[row, domain]))
        for column in range(4):
            styles = [(float(mean[domain, column]), float(scale[domain, column])) for domain in (own, other)]
            expected = slow_restyled(float(x[row, column]), *styles, shares[row])
            assert float(found[row, column]) == pytest.approx(expected, rel=1e-12)


def test_a_vector_given_all_of_another_style_looks_as_if_it_came_from_there():
    mixer = by_domain(Backbone(MLP((4,))))
    mixer.shares = lambda like: torch.zeros(len(like))
    x = vectors()
    mixer.enough = torch.tensor([True, True, False])  # so that 0 and 1 have no other but each other
    with mixer.told(DOMAINS):
        found = mixer.mixed(x)
    for own, other in ((0, 1), (1, 0)):
        given, there = found[own::3], x[other::3]
        torch.testing.assert_close(given.mean(0), there.mean(0), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(given.std(0), there.std(0), rtol=1e-4, atol=1e-4)
    assert torch.equal(found[2::3], x[2::3])


# -- chance ----------------------------------------------------------------------------------------------------------


def test_shares_come_from_a_beta_that_favours_the_ends():
    torch.manual_seed(0)
    shares = MapMixer(SmallCNN((1, 8, 8)), 1.0).shares(torch.zeros(20_000, 1))
    assert float(shares.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(shares.var()) == pytest.approx(0.25 / 1.2, abs=0.01)  # ab / ((a + b)^2 (a + b + 1)) at 0.1
    assert ((shares >= 0) & (shares <= 1)).all()


def test_with_a_probability_of_0_3_three_batches_in_ten_are_mixed():
    mixer = MapMixer(SmallCNN((1, 8, 8)), 0.3)
    torch.manual_seed(0)
    left = [bool((mixer.shares(torch.zeros(8, 1)) == 1).all()) for _ in range(1000)]
    assert 0.65 < sum(left) / len(left) < 0.75


def test_where_the_coin_says_no_nothing_changes_to_the_last_bit():
    x, mixer = torch.randn(7, 3, 5, 5), MapMixer(SmallCNN((3, 8, 8)), 1e-9)
    assert torch.equal(mixer.mixed(x), x)
    half = x.bfloat16()
    assert torch.equal(mixer.mixed(half), half)
    unlikely = by_domain(Backbone(MLP((4,))), 1e-9)
    with unlikely.told(DOMAINS):
        assert torch.equal(unlikely.mixed(vectors()), vectors())


def test_the_same_seed_mixes_the_same():
    backbone = Backbone(SmallCNN((3, 8, 8))).train()
    mixer = mix_styles(backbone, 1.0)
    found = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        with mixer.told(None):
            found.append(backbone(torch.ones(4, 3, 8, 8) * torch.arange(4).reshape(-1, 1, 1, 1)).features)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


# -- gradients and numbers -------------------------------------------------------------------------------------------


def test_no_gradient_flows_through_means_and_scales():
    torch.manual_seed(0)
    mixer = Fixed(SmallCNN((3, 8, 8)), 1.0)
    x = torch.randn(5, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn_like(x)
    torch.manual_seed(1)
    (mixer.mixed(x) * weight).sum().backward()
    torch.manual_seed(1)
    own = map_moments(x)
    other = own.of(torch.rand(5).argsort())
    assert not own.mean.requires_grad
    expected = weight * (0.25 * own.scale + 0.75 * other.scale) / own.scale
    torch.testing.assert_close(x.grad, expected, rtol=1e-10, atol=1e-12)


def test_maps_in_half_precision_stay_so_and_their_moments_are_not_rounded():
    x = (torch.randn(4, 3, 16, 16) + 10).bfloat16()
    assert map_moments(x).mean.dtype == torch.float32
    found = Fixed(SmallCNN((3, 8, 8)), 1.0).mixed(x)
    assert found.dtype == torch.bfloat16
    assert torch.isfinite(found).all()


def test_a_channel_that_is_the_same_everywhere_stays_finite():
    x = torch.zeros(4, 2, 3, 3)
    x[1] = 7.0
    assert torch.isfinite(Fixed(SmallCNN((3, 8, 8)), 1.0).mixed(x)).all()


# -- when ------------------------------------------------------------------------------------------------------------


def make(kind: str, gating: str | None = None) -> tuple[Backbone, Tensor]:
    torch.manual_seed(0)
    if kind == "images":
        body: Body = SmallCNN((3, 8, 8))
        inputs = torch.rand(60, 3, 8, 8) + DOMAINS.reshape(-1, 1, 1, 1)
    else:
        body, inputs = MLP((4,), (8, 8), dropout=0), vectors()
    view = None if gating is None else GATINGS[gating](body, body.shape)
    return Backbone(body, view), inputs


def mixer_of(backbone: Backbone, inputs: Tensor, probability: float = 1.0) -> StyleMixer:
    return by_domain(backbone, probability, inputs) if mixes_by_domain(backbone) else mix_styles(backbone, probability)


@pytest.mark.parametrize("kind", ["images", "vectors"])
def test_it_mixes_inside_told_and_in_train_mode_alone_until_it_is_removed(kind):
    backbone, inputs = make(kind)
    plain = {mode: backbone.train(mode)(inputs).features for mode in (False, True)}  # in train mode, norms move after
    mixer = mixer_of(backbone, inputs)
    assert torch.equal(backbone.train()(inputs).features, plain[True])
    with mixer.told(DOMAINS):
        assert not torch.allclose(backbone(inputs).features, plain[True], atol=1e-3)
        assert not torch.allclose(backbone.body(inputs), plain[True], atol=1e-3)  # whoever calls the body by itself
        backbone.load_state_dict(make(kind)[0].state_dict())
        assert torch.equal(backbone.eval()(inputs).features, plain[False])
        mixer.remove()
        assert torch.equal(backbone.train()(inputs).features, plain[True])


@pytest.mark.parametrize("kind", ["images", "vectors"])
def test_nothing_of_it_is_part_of_a_state(kind):
    backbone, inputs = make(kind)
    names = list(backbone.state_dict())
    mixer_of(backbone, inputs)
    assert list(backbone.state_dict()) == names
    assert len(list(backbone.modules())) == len(list(make(kind)[0].modules()))


def test_told_within_told_holds_inside_and_ends_there():
    mixer = by_domain(Backbone(MLP((4,))))
    with mixer.told(DOMAINS), mixer.told(DOMAINS[:5]):
        assert len(mixer.mixed(vectors()[:5])) == 5
    with mixer.told(DOMAINS):
        with pytest.raises(ValueError, match="inside"), mixer.told(DOMAINS[:5]):
            raise ValueError("inside")
        assert len(mixer.mixed(vectors())) == 60


# -- what it never touches -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "gating"), [("images", "filters"), ("images", "style"), ("vectors", "input")])
def test_what_gates_see_is_never_mixed(kind, gating):
    backbone, inputs = make(kind, gating)
    backbone.train()
    plain = copy.deepcopy(backbone)(inputs)
    mixer = mixer_of(backbone, inputs)
    with mixer.told(DOMAINS):
        mixed = backbone(inputs)
    assert torch.equal(mixed.gating, plain.gating)
    assert not torch.allclose(mixed.features, plain.features, atol=1e-3)


def test_a_cache_gives_mixed_features_beside_the_view_that_gates_see():
    rows = torch.cat([vectors(), torch.randn(60, 2)], dim=1)
    backbone = CachedBackbone(4, 2).train()
    mixer = by_domain(backbone, 1.0, rows)
    assert torch.equal(backbone(rows).features, vectors())
    with mixer.told(DOMAINS):
        view = backbone(rows)
        assert torch.equal(backbone.look(rows), rows[:, 4:])
    assert torch.equal(view.gating, rows[:, 4:])
    assert not torch.allclose(view.features, vectors(), atol=1e-2)
    with mixer.told(DOMAINS):
        assert torch.equal(backbone.eval()(rows).features, vectors())
    assert torch.equal(CachedBackbone(4).look(vectors()), vectors())


@pytest.mark.parametrize("kind", ["images", "vectors"])
def test_of_a_frozen_body_the_features_are_mixed(kind):
    body = FrozenBody(make(kind)[0].body)
    backbone, inputs = Backbone(body).train(), make(kind)[1]
    plain = backbone(inputs).features
    assert mixes_by_domain(backbone)
    mixer = by_domain(backbone, 1.0, inputs)
    assert isinstance(mixer, DomainMixer)
    own = Moments(*(part.float() for part in mixer.moments))
    torch.testing.assert_close(own.mean[1], plain[DOMAINS == 1].mean(0), rtol=1e-4, atol=1e-5)
    torch.manual_seed(2)
    with mixer.told(DOMAINS):
        found = backbone(inputs).features
        torch.manual_seed(2)
        assert torch.equal(found, mixer.mixed(plain))


# -- where it stands -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gating", "places"), [("filters", 2), ("style", 1)])
def test_maps_are_mixed_after_each_early_block_or_after_the_last_where_gates_look(gating, places):
    backbone, inputs = make("images", gating)
    mixer = mix_styles(backbone, 1.0)
    calls = []
    mixer.mixed = lambda x: calls.append(x.shape[1]) or x
    with mixer.told(None):
        backbone.train()(inputs)
    assert calls == [16, 32][-places:]


def test_the_digits_network_is_mixed_too():
    backbone = Backbone(DigitsCNN((3, 8, 8))).train()
    mixer = mix_styles(backbone, 0.5)
    assert isinstance(mixer, MapMixer)
    assert not mixer.needs_domains
    with mixer.told(None):
        assert torch.isfinite(backbone(torch.rand(4, 3, 8, 8)).features).all()


def test_a_domain_of_one_training_row_is_left_as_it_is_and_lends_nothing():
    x = torch.cat([torch.randn(10, 4), torch.randn(1, 4) + 1000, torch.randn(10, 4) + 3])
    domains = torch.tensor([0] * 10 + [1] + [2] * 10)
    mixer = mix_styles(Backbone(MLP((4,))), 1.0, domains=3, training_rows=lambda: [(x, domains)])
    with mixer.told(domains):
        found = torch.stack([mixer.mixed(x) for _ in range(20)])
    assert (found[:, 10] == x[10]).all()
    assert found[:, domains != 1].abs().max() < 50
    assert not torch.equal(found[0, 0], x[0])


def test_a_batch_of_one_domain_is_mixed_as_well():
    mixer = by_domain(Backbone(MLP((4,))))
    mixer.shares = lambda like: torch.full((len(like),), 0.5)
    own = DOMAINS == 1
    with mixer.told(DOMAINS[own]):
        assert (mixer.mixed(vectors()[own]) - vectors()[own]).abs().min(1).values.max() > 0.1


# -- what is refused -------------------------------------------------------------------------------------------------


def test_vectors_without_domains_are_refused_with_the_cure():
    with pytest.raises(DataError, match=r"between source domains, and none is known: name the column .*--domain"):
        mix_styles(Backbone(MLP((4,))), 0.5)
    with pytest.raises(DataError, match=r"there is one only; or leave mixstyle out"):
        mix_styles(Backbone(Identity((4,))), 0.5, domains=1, training_rows=list)


def test_rows_whose_domains_were_not_told_are_refused():
    backbone = Backbone(MLP((4,))).train()
    mixer = by_domain(backbone)
    with mixer.told(None), pytest.raises(RuntimeError, match=r"60 rows .* the domains of none are told"):
        backbone(vectors())
    with mixer.told(DOMAINS[:7]), pytest.raises(RuntimeError, match=r"60 rows .* the domains of 7 are told"):
        backbone(vectors())


@pytest.mark.parametrize("probability", [0.0, -0.5, 1.5, float("nan")])
def test_a_probability_outside_0_to_1_is_refused(probability):
    with pytest.raises(DataError, match=f"got {probability}"):
        MapMixer(SmallCNN((3, 8, 8)), probability)


def test_a_body_without_early_blocks_is_refused():
    class Flat(Body):
        takes = "images"
        features = 4

        def __init__(self) -> None:
            super().__init__((1, 8, 8))
            self.dense = nn.Linear(64, 4)

    with pytest.raises(DataError, match=r"Flat names no early block .*leave mixstyle out"):
        mix_styles(Backbone(Flat()), 0.5)
